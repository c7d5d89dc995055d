"""The softmax maps of Eq. 8."""

import jax.numpy as jnp
import numpy as np

from dwl_jax import simplex


def test_weights_and_topics_are_softmax_over_the_right_axis():
    A = np.log([[1.0, 3.0], [2.0, 2.0], [9.0, 1.0]])
    want = [[0.25, 0.75], [0.5, 0.5], [0.9, 0.1]]
    np.testing.assert_allclose(simplex.weights(jnp.asarray(A)), want, rtol=1e-14)
    got = simplex.log_topics(jnp.asarray(A))
    np.testing.assert_allclose(got, np.log(want), rtol=1e-13)


def test_large_logits_neither_overflow_nor_round_to_minus_infinity():
    R = jnp.array([[1e4, 0.0], [-1e4, 1e4]])
    np.testing.assert_allclose(simplex.log_topics(R), [[0.0, -1e4], [-2e4, 0.0]])
    np.testing.assert_allclose(simplex.weights(R), [[1.0, 0.0], [0.0, 1.0]])
