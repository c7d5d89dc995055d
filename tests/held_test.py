"""One iteration by a kernel that is held, against the dense one and float64."""

import unittest
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from dwl_jax import barycenter, blocks, cost, held, kernel

N, K, DIM = 300, 3, 6


def setUpModule():
    """Blocks of 64 rows: several, and one that is not whole."""
    unittest.enterModuleContext(mock.patch.object(blocks, "_ENTRIES", 64 * N + 5))


def embeddings(seed=0, dtype=jnp.float64):
    """Words in clusters: near and far pairs, as trained embeddings have."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((5, DIM))
    X = centres[rng.integers(0, 5, N)] + 0.5 * rng.standard_normal((N, DIM))
    return jnp.asarray(X, dtype)


def topics(dtype=jnp.float64):
    rng = np.random.default_rng(1)
    return jax.nn.log_softmax(jnp.asarray(2 * rng.standard_normal((K, N)), dtype))


def weights(dtype=jnp.float64):
    return jnp.asarray(np.random.default_rng(2).dirichlet(np.ones(K), 4), dtype)


def of(X, epsilon=0.3, tau=0.75, **choices):
    return held.make(X, blocks.ground(X, tau, epsilon, **({"squared": True} | choices)))


def dense(X, epsilon=0.3, tau=0.75, squared=True, scale="mean"):
    D = cost.scale(cost.distance_matrix(X, squared=squared), scale)
    return kernel.build(cost.distill(D, tau), epsilon, form="log")


class HeldTest(parameterized.TestCase):
    @parameterized.product(squared=[True, False], scale=["mean", "none"])
    def test_entries_are_those_of_the_dense_kernel(self, squared, scale):
        X = embeddings()
        how = {"squared": squared, "scale": scale}
        got, want = of(X, **how), dense(X, **how)
        np.testing.assert_allclose(got.C, np.exp(want.log_C), atol=1e-12)
        np.testing.assert_allclose(got.u, np.exp(want.log_C).sum(axis=1))
        np.testing.assert_allclose(got.reach, want.reach)

    def test_a_power_of_one_needs_no_power(self):
        X = embeddings()
        got, want = of(X, tau=1.0), of(X, tau=jnp.asarray(1.0))
        np.testing.assert_allclose(got.C, want.C, rtol=1e-10)

    @parameterized.parameters(0.3, 0.05)
    def test_one_iteration_is_that_of_the_dense_kernel(self, epsilon):
        X, log_B, lam = embeddings(), topics(), weights()
        at = lambda make: (
            lambda log_B, lam, X: barycenter(
                log_B, lam, make(X, epsilon=epsilon), num_iters=1
            )
        )
        got, want = (at(make)(log_B, lam, X) for make in (of, dense))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        probe = jnp.asarray(np.random.default_rng(3).standard_normal((4, N)))
        pulled = [
            jax.grad(
                lambda *args, make=make: jnp.sum(probe * at(make)(*args).log_y),
                (0, 1, 2),
            )(log_B, lam, X)
            for make in (of, dense)
        ]
        for a, b in zip(*pulled, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-8 * np.abs(b).max())

    def test_gradient_of_embeddings_by_finite_differences(self):
        X, log_B = embeddings(), topics()
        rng = np.random.default_rng(4)
        toward, probe = rng.standard_normal((N, DIM)), rng.standard_normal((K, N))
        unit = blocks.ground(X, 0.75, 0.3, squared=True)  # which carries no gradient
        f = lambda X: jnp.sum(probe * held.make(X, unit).vertices(log_B))
        got = jnp.sum(jax.grad(f)(X) * toward)
        want = (f(X + 1e-5 * toward) - f(X - 1e-5 * toward)) / 2e-5
        np.testing.assert_allclose(got, want, rtol=1e-6)

    def test_gradient_is_finite_where_words_coincide(self):
        X = embeddings(dtype=jnp.float32)
        X = X.at[1].set(X[0]).at[2].set(X[0] + 1e-7)
        log_B = topics(jnp.float32)
        f = lambda X: jnp.sum(of(X, squared=False).vertices(log_B)[:, :5])
        self.assertTrue(bool(jnp.isfinite(jax.grad(f)(X)).all()))

    def test_float32_is_near_float64(self):
        wide, narrow = (
            of(embeddings(dtype=t), epsilon=0.04).vertices(topics(t))
            for t in (jnp.float64, jnp.float32)
        )
        self.assertGreater(float(of(embeddings(), epsilon=0.04).reach), 50.0)
        np.testing.assert_allclose(narrow, wide, atol=2e-4)

    @parameterized.parameters(0.02, 1e-4)
    def test_entries_that_exp_loses_do_not_count(self, epsilon):
        """Almost all of C is 0 in float32; topics span as much as is allowed."""
        log_B = topics() * 3.0
        log_B = jax.nn.log_softmax(log_B.at[:, 0].set(jnp.min(log_B) - 15.0))
        narrow = of(embeddings(dtype=jnp.float32), epsilon=epsilon, tau=1.0)
        log_B32 = log_B.astype(jnp.float32)
        self.assertGreater(float(narrow.reach), 100.0)
        self.assertGreater(float(kernel.span(log_B32)), 50.0)
        self.assertTrue(bool(kernel.holds(narrow, "held", log_B32)))
        k = dense(embeddings(), epsilon=epsilon, tau=1.0)
        want = barycenter(log_B, jnp.eye(K), k, num_iters=1).log_y
        np.testing.assert_allclose(narrow.vertices(log_B32), want, rtol=1e-4, atol=2e-4)
        far = log_B32.at[:, 0].add(-40.0)
        self.assertFalse(bool(kernel.holds(narrow, "held", far)))

    def test_topics_may_span_anything_where_no_entry_is_lost(self):
        near, k = of(embeddings(dtype=jnp.float32)), dense(embeddings())
        log_B = topics().at[:, 0].add(-200.0)
        self.assertTrue(bool(kernel.holds(near, "held", log_B.astype(jnp.float32))))
        want = barycenter(log_B, jnp.eye(K), k, num_iters=1).log_y
        got = near.vertices(log_B.astype(jnp.float32))
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=2e-4)

    def test_more_than_one_iteration_is_refused(self):
        with self.assertRaisesRegex(ValueError, "one iteration"):
            barycenter(topics(), weights(), of(embeddings()), num_iters=2)


if __name__ == "__main__":
    absltest.main()
