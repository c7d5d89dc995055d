"""Greenkhorn against POT and against converged Sinkhorn."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
from absl.testing import absltest, parameterized

from experiments.greenkhorn import greenkhorn


def problem(seed=0, n=12, m=5):
    rng = np.random.default_rng(seed)
    X, Y = rng.random((n, 2)), rng.random((m, 2))
    D = ((X[:, None] - Y[None]) ** 2).sum(-1)
    return rng.dirichlet(np.ones(n)), rng.dirichlet(np.ones(m)), D


class GreenkhornTest(parameterized.TestCase):
    @parameterized.parameters(0.05, 0.5)
    def test_plan_is_that_of_pot(self, epsilon):
        u, v, D = problem()
        got = jax.jit(lambda *a: greenkhorn(*a, epsilon, tolerance=1e-10))(u, v, D)
        want = ot.sinkhorn(u, v, D, epsilon, method="sinkhorn_log", stopThr=1e-13)
        np.testing.assert_allclose(got.T, want, atol=1e-9)
        self.assertLess(got.error, 1e-9)

    def test_words_without_mass_get_none(self):
        u, v, D = problem()
        u[3] = 0.0
        u /= u.sum()
        got = greenkhorn(jnp.asarray(u), jnp.asarray(v), jnp.asarray(D), 0.1)
        np.testing.assert_allclose(got.T[3], 0.0, atol=1e-4)
        self.assertTrue(bool(jnp.isfinite(got.T).all()))
        self.assertLess(got.error, 1.1e-4)

    def test_stops_at_the_number_of_steps_and_says_so(self):
        u, v, D = map(jnp.asarray, problem())
        got = greenkhorn(u, v, D, 0.05, tolerance=1e-12, max_steps=7)
        self.assertEqual(int(got.steps), 7)
        self.assertGreater(got.error, 1e-12)

    def test_shapes_that_disagree_are_named(self):
        u, v, D = map(jnp.asarray, problem())
        with self.assertRaisesRegex(ValueError, "D must be"):
            greenkhorn(v, u, D, 0.1)


if __name__ == "__main__":
    absltest.main()
