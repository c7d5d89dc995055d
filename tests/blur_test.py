"""Epsilon for a blur, against a root finder in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.spatial.distance import cdist

from dwl_jax import blur

HOW = {"squared": True, "scale": "mean"}


def by_root(X, tau, want, squared):
    D = cdist(X, X) ** (2 if squared else 1)
    N = len(D)
    cost = (D / (D.sum() / (N * (N - 1)))) ** tau
    row = lambda e: np.median(np.exp(-cost / e).sum(1)) - 1.0
    return np.exp(brentq(lambda t: row(np.exp(t)) - want, np.log(1e-3), np.log(50)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize(("tau", "want"), [(0.75, 0.8), (0.25, 0.02), (1.0, 0.1)])
def test_it_is_the_root(dtype, squared, tau, want):
    X = np.random.default_rng(1).normal(size=(60, 4))
    got = blur.epsilon_for(
        jnp.asarray(X, dtype), tau, want, squared=squared, scale="mean"
    )
    assert got.dtype == dtype
    np.testing.assert_allclose(got, by_root(X, tau, want, squared), rtol=1e-4)


def test_many_words_are_looked_at_in_part():
    X = np.random.default_rng(0).normal(size=(2_500, 3))
    got = float(blur.epsilon_for(jnp.asarray(X), 0.75, 0.5, **HOW))
    np.testing.assert_allclose(got, by_root(X, 0.75, 0.5, True), rtol=0.03)


def test_it_can_be_swept():
    X = jnp.asarray(np.random.default_rng(1).normal(size=(30, 4)))
    taus = jnp.array([0.5, 1.0])
    got = jax.vmap(lambda tau: blur.epsilon_for(X, tau, 0.5, **HOW))(taus)
    want = [blur.epsilon_for(X, tau, 0.5, **HOW) for tau in (0.5, 1.0)]
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("X", [np.ones((9, 2)), np.eye(3), np.zeros((1, 2))])
def test_no_epsilon_is_said(X):
    with pytest.raises(ValueError, match="no epsilon gives a blur of 2.5"):
        blur.epsilon_for(jnp.asarray(X), 0.75, 2.5, **HOW)
