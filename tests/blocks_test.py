"""Blocks of the kernel against the dense one."""

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from dwl_jax import blocks, cost, kernel

N, K, DIM = 40, 3, 6


def embeddings(seed=0, num_words=N, dtype=jnp.float64):
    """Words in clusters: near and far pairs, as trained embeddings have."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((5, DIM))
    X = centres[rng.integers(0, 5, num_words)] + 0.5 * rng.standard_normal(
        (num_words, DIM)
    )
    return jnp.asarray(X, dtype)


def ground(X, epsilon=0.3, tau=0.75, **choices):
    return blocks.ground(X, tau, epsilon, **({"squared": True} | choices))


def dense(X, epsilon=0.3, tau=0.75, squared=True, scale="mean"):
    D = cost.scale(cost.distance_matrix(X, squared=squared), scale)
    return kernel.build(cost.distill(D, tau), epsilon)


def entries(X, how):
    """C by blocks."""
    return jnp.exp(-how.exponent(blocks.between(X, (0, len(X)))))


class BlocksTest(parameterized.TestCase):
    @parameterized.product(squared=[True, False], scale=["mean", "none"])
    def test_entries_are_those_of_the_dense_kernel(self, squared, scale):
        X = embeddings()
        want = jnp.exp(dense(X, squared=squared, scale=scale).log_C)
        got = entries(X, ground(X, squared=squared, scale=scale))
        np.testing.assert_allclose(got, want, atol=1e-12)

    def test_a_block_is_its_rows(self):
        X = embeddings()
        want = blocks.between(X, (0, N))[30:37]
        got = blocks.between(X, (jnp.asarray(30), 7))
        np.testing.assert_allclose(got, want, atol=1e-12)
        np.testing.assert_array_equal(got[jnp.arange(7), 30 + jnp.arange(7)], 0.0)

    def test_rows_of_all_blocks_are_visited(self):
        entries, blocks._ENTRIES = blocks._ENTRIES, 7 * N + 3
        try:
            seen, _ = blocks.scan_rows(
                lambda x, b: (
                    jax.lax.dynamic_update_slice(x, b[0] + jnp.arange(b[1]), (b[0],)),
                    None,
                ),
                jnp.full(N, -1),
            )
        finally:
            blocks._ENTRIES = entries
        np.testing.assert_array_equal(seen, np.arange(N))

    def test_a_power_of_one_needs_no_power(self):
        X = embeddings()
        of = lambda tau: entries(X, ground(X, tau=tau))
        np.testing.assert_allclose(of(1.0), of(jnp.asarray(1.0)), rtol=1e-10)

    @parameterized.parameters(0.75, 1.0)
    def test_fall_is_the_derivative(self, tau):
        X = embeddings()
        how, D2 = ground(X, tau=tau), jnp.array([0.0, 1e-3, 0.7, 5.0])
        want = -jax.vmap(jax.grad(lambda d: jnp.exp(-how.exponent(d))))(D2)
        C = jnp.exp(-how.exponent(D2))
        np.testing.assert_allclose(how.fall(C, D2)[1:], want[1:], rtol=1e-10)
        self.assertEqual(float(how.fall(C, D2)[0]), 0.0)
        self.assertEqual(float(how.fall(jnp.zeros(()), jnp.asarray(9e9))), 0.0)


if __name__ == "__main__":
    absltest.main()
