"""The ground cost: distances, their unit, and the distilled power."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from scipy.spatial.distance import cdist

from dwl_jax import cost, kernel


def embeddings(seed=0, num_words=6, dim=3):
    return jnp.asarray(np.random.default_rng(seed).normal(size=(num_words, dim)))


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("limit", [1 << 24, 0])
def test_distances_are_those_of_scipy(monkeypatch, squared, limit):
    monkeypatch.setattr(cost, "_AT_ONCE", limit)
    X = embeddings()
    want = cdist(X, X, "sqeuclidean" if squared else "euclidean")
    got = cost.distance_matrix(X, squared=squared)
    np.testing.assert_allclose(got, want, rtol=1e-14)
    np.testing.assert_array_equal(np.diagonal(got), 0.0)
    np.testing.assert_array_equal(got, got.T)


@pytest.mark.parametrize("limit", [1 << 24, 0])
def test_words_that_coincide_or_nearly_do_are_as_exact_far_from_the_origin(
    monkeypatch, limit
):
    """Where a Gram matrix fails: |x|^2 is 1e6 and the differences are 1e-3."""
    monkeypatch.setattr(cost, "_AT_ONCE", limit)
    X = np.repeat(np.random.default_rng(0).normal(size=(8, 50)), 2, axis=0)
    X = (X + 150.0).astype(np.float32)
    X[1] += np.float32(2**-10)
    D = np.asarray(cost.distance_matrix(jnp.asarray(X)))
    assert D.dtype == np.float32
    np.testing.assert_allclose(D, cdist(np.float64(X), np.float64(X)), rtol=1e-6)
    np.testing.assert_array_equal(D[2::2, 3::2].diagonal(), 0.0)
    assert 0.0 < D[0, 1] < 1e-2


def test_slip_distance_is_defined_unsquared_and_used_squared():
    X = jnp.array([[0.0, 0.0], [3.0, 4.0]])
    assert cost.distance_matrix(X)[0, 1] == 5.0  # D_theta as defined
    assert cost.distance_matrix(X, squared=True)[0, 1] == 25.0  # as in the objective


@pytest.mark.parametrize("limit", [1 << 24, 0])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0])
def test_gradient_through_all_of_it_is_the_finite_difference(
    monkeypatch, squared, limit, tau
):
    monkeypatch.setattr(cost, "_AT_ONCE", limit)
    X, probe = embeddings(), embeddings(1, 6, 6)
    unit = jnp.mean(cost.distance_matrix(X, squared=squared)) * 6 / 5

    @functools.partial(jax.jit, static_argnums=1)
    def fn(X, scaled):
        D = cost.distance_matrix(X, squared=squared)
        D = cost.scale(D, "mean") if scaled else D / unit
        return jnp.sum(probe * cost.distill(D, tau))

    direction = embeddings(2)
    want = reference.finite_difference(lambda X: fn(X, False), X, direction)
    got = jnp.vdot(jax.jit(jax.grad(lambda X: fn(X, True)))(X), direction)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("how", ["mean", "none"])
@pytest.mark.parametrize("tau", [0.25, 1.0])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradient_is_finite_at_coinciding_words_and_zero_between_them(how, tau, dtype):
    X = embeddings(num_words=4).at[1].set(embeddings()[0]).astype(dtype)
    D = cost.distance_matrix(X)
    assert D[0, 1] == 0.0
    pair = lambda X: cost.distill(cost.scale(cost.distance_matrix(X), how), tau)[0, 1]
    np.testing.assert_array_equal(jax.jit(jax.grad(pair))(X), 0.0)
    whole = lambda X: cost.distill(cost.scale(cost.distance_matrix(X), how), tau).sum()
    grad = jax.jit(jax.grad(whole))(X)
    np.testing.assert_allclose(grad[0], grad[1], rtol=1e-5)  # they pull alike
    assert np.isfinite(grad).all() and np.abs(grad).max() > 0.1


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_gradient_is_finite_at_the_smallest_distances_a_float_has(dtype):
    tiny = np.sqrt(np.finfo(dtype).tiny)
    X = jnp.array([[0.0], [2.0 * tiny], [1.0]], dtype)
    fn = lambda X: cost.distill(cost.scale(cost.distance_matrix(X)), 0.25).sum()
    assert cost.distance_matrix(X)[0, 1] > 0.0
    assert np.isfinite(jax.jit(jax.grad(fn))(X)).all()


def test_a_plain_power_of_the_distance_has_no_gradient_at_zero():
    """The trap that `distance_matrix` and `distill` avoid, to show that it is there."""
    X = embeddings()
    plain = lambda X: jnp.sum(
        jnp.sqrt(jnp.sum((X[:, None] - X[None, :]) ** 2, axis=-1)) ** 0.5
    )
    assert np.isnan(jax.grad(plain)(X)).any()


@pytest.mark.parametrize(("how", "unit"), [("mean", 7 / 3), ("none", 1.0)])
def test_scale_divides_by_the_mean_of_the_off_diagonal(how, unit):
    D = jnp.array([[0.0, 1.0, 2.0], [1.0, 0.0, 4.0], [2.0, 4.0, 0.0]])
    np.testing.assert_allclose(cost.scale(D, how), D / unit, rtol=1e-15)


def test_stretching_all_embeddings_does_nothing():
    D = cost.distance_matrix(embeddings())
    np.testing.assert_allclose(cost.scale(7.0 * D), cost.scale(D), rtol=1e-14)


def test_no_gradient_flows_through_the_unit():
    D = cost.distance_matrix(embeddings())
    entry = lambda D: cost.scale(D)[0, 1]
    want = np.zeros(D.shape)
    want[0, 1] = cost.scale(D)[0, 1] / D[0, 1]
    np.testing.assert_allclose(jax.grad(entry)(D), want, rtol=1e-14)


@pytest.mark.parametrize("num_words", [1, 3])
def test_scale_leaves_coinciding_words_and_a_single_word_alone(num_words):
    D = jnp.zeros((num_words, num_words))
    np.testing.assert_array_equal(cost.scale(D), D)
    np.testing.assert_array_equal(
        jax.jacobian(lambda D: cost.scale(D)[0, 0])(D)[0, 0], 1.0
    )


def test_unknown_scale_is_named():
    with pytest.raises(ValueError, match="scale must be mean.*'mode'"):
        cost.scale(jnp.ones((2, 2)), "mode")


@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0])
def test_distill_is_the_power_and_keeps_zero(tau):
    D = cost.distance_matrix(embeddings())
    np.testing.assert_allclose(cost.distill(D, tau), np.asarray(D) ** tau, rtol=1e-14)
    np.testing.assert_array_equal(np.diagonal(cost.distill(D, tau)), 0.0)


@pytest.mark.parametrize("tau", [-1.0, 0.0, 1.5, np.nan])
def test_distill_names_a_tau_out_of_range(tau):
    with pytest.raises(ValueError, match=rf"tau must be in \(0, 1\], got {tau}"):
        cost.distill(jnp.ones((2, 2)), tau)


def test_tau_and_epsilon_may_be_arrays_that_a_jitted_function_closes_over():
    D, tau, epsilon = (
        jnp.array([[0.0, 2.0], [2.0, 0.0]]),
        jnp.array(0.5),
        jnp.array(0.1),
    )
    run = jax.jit(lambda D: kernel.build(cost.distill(D, tau), epsilon).log_C)
    np.testing.assert_allclose(run(D)[0, 1], -(2.0**0.5) / 0.1)


def test_tau_is_traced_and_has_a_gradient():
    D = jnp.array([[0.0, 2.0], [2.0, 0.0]])
    grad = jax.jit(jax.grad(lambda tau: cost.distill(D, tau)[0, 1]))(0.5)
    np.testing.assert_allclose(grad, np.sqrt(2.0) * np.log(2.0), rtol=1e-14)
    whole = jax.grad(lambda tau: cost.distill(D, tau).sum())(0.5)
    np.testing.assert_allclose(whole, 2 * np.sqrt(2.0) * np.log(2.0), rtol=1e-14)


def test_distilling_shrinks_the_ratio_of_distances():
    D = jnp.array([[0.0, 4.0], [4.0, 0.0]])
    assert cost.distill(D, 0.5)[0, 1] == 2.0
    np.testing.assert_allclose(cost.distill(D, 0.25)[0, 1], np.sqrt(2.0), rtol=1e-15)
