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


def topics(seed=1, dtype=jnp.float64):
    rng = np.random.default_rng(seed)
    log_B = jax.nn.log_softmax(jnp.asarray(2 * rng.standard_normal((K, N)), dtype))
    return log_B, jnp.asarray(rng.dirichlet(np.ones(K), 4), dtype)


class BlocksTest(parameterized.TestCase):
    @parameterized.product(squared=[True, False], scale=["mean", "none"])
    def test_entries_are_those_of_the_dense_kernel(self, squared, scale):
        X = embeddings()
        C = jnp.exp(dense(X, squared=squared, scale=scale).log_C) - jnp.eye(N)
        rows = jnp.array([3, 0, 39])
        how = ground(X, squared=squared, scale=scale)
        got = blocks.off_diagonal(rows, X[rows], X, how)
        np.testing.assert_allclose(got, C[rows], atol=1e-12)

    def test_a_power_of_one_needs_no_power(self):
        X = embeddings()
        rows = jnp.arange(N)
        entries = lambda tau: blocks.off_diagonal(rows, X, X, ground(X, tau=tau))
        np.testing.assert_allclose(entries(1.0), entries(jnp.asarray(1.0)), rtol=1e-10)

    def test_gradient_is_finite_where_words_coincide(self):
        X = embeddings().at[1].set(embeddings()[0])
        rows = jnp.arange(N)
        f = lambda X: jnp.sum(blocks.off_diagonal(rows, X, X, ground(X)))
        self.assertTrue(bool(jnp.isfinite(jax.grad(f)(X)).all()))


if __name__ == "__main__":
    absltest.main()
