"""Losses between a document and its reconstruction."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import ot
import problems
import pytest
import reference
from ott.geometry import geometry
from ott.solvers import linear
from scipy.special import rel_entr

from dwl_jax import kernel, losses


def pair(seed=0, num_words=6):
    rng = np.random.default_rng(seed)
    y = problems.simplex(rng, 3, num_words)
    y[:, 1] = y[0, 3] = 0.0
    y /= y.sum(axis=1, keepdims=True)
    return jnp.asarray(y), jnp.asarray(np.log(problems.simplex(rng, 3, num_words)))


divergence = jax.jit(losses.sinkhorn_divergence, static_argnames="num_iters")


def test_squared_is_the_squared_l2_distance_not_normalised():
    y, log_y_hat = pair()
    log_y_hat = log_y_hat + 0.3  # far from convergence, masses do not sum to 1
    want = ((np.exp(log_y_hat) - np.asarray(y)) ** 2).sum(axis=1)
    np.testing.assert_allclose(losses.squared(y, log_y_hat), want, rtol=1e-14)


def test_kl_is_scipys_relative_entropy_of_the_normalised_reconstruction():
    y, log_y_hat = pair()
    want = rel_entr(np.asarray(y), np.exp(log_y_hat)).sum(axis=1)
    np.testing.assert_allclose(losses.kl(y, log_y_hat), want, rtol=1e-13)
    np.testing.assert_allclose(losses.kl(y, log_y_hat + 0.3), want, rtol=1e-13)


@pytest.mark.parametrize("loss", [losses.kl, losses.squared])
def test_words_without_mass_on_either_side_have_finite_gradients(loss):
    y = jnp.array([[0.5, 0.5, 0.0, 0.0]])
    log_y_hat = jnp.array([[-0.5, -1.0, -2.0, -jnp.inf]])
    value, grad = jax.value_and_grad(lambda x: loss(y, x).sum())(log_y_hat)
    assert np.isfinite(value) and np.isfinite(grad).all()
    assert grad[0, 3] == 0.0
    held = lambda x: loss(y[:, :3], x).sum()
    want = jax.grad(held)(log_y_hat[:, :3])
    np.testing.assert_allclose(grad[:, :3], want, rtol=1e-13)


@pytest.mark.parametrize("loss", [losses.kl, losses.squared])
def test_gradients_are_finite_differences(loss):
    y, log_y_hat = pair()
    fn = jax.jit(lambda x: loss(y, x).sum())
    direction = jnp.asarray(np.random.default_rng(1).normal(size=y.shape))
    want = reference.finite_difference(fn, log_y_hat, direction)
    np.testing.assert_allclose(
        jnp.vdot(jax.grad(fn)(log_y_hat), direction), want, rtol=1e-7
    )


@functools.partial(jax.jit, static_argnames="epsilon")
def ott_cost(a, b, D, epsilon):
    """<T, D> + eps KL(T | a b'), the dual value of OTT."""
    with jax.numpy_rank_promotion("allow"):
        geom = geometry.Geometry(cost_matrix=D, epsilon=epsilon)
        out = linear.solve(geom, a=a, b=b, threshold=1e-12, max_iterations=20_000)
        return out.ent_reg_cost


@pytest.mark.parametrize("form", ["plain", "log"])
def test_sinkhorn_divergence_is_that_of_ott(form):
    y, log_y_hat = pair()
    D, epsilon = problems.problem(num_words=6).D, 0.3
    k = kernel.build(D, epsilon, form=form)
    got = divergence(y, log_y_hat + 0.2, k, epsilon, num_iters=500)
    for m in range(3):
        b = jnp.exp(log_y_hat[m])
        ab, aa, bb = (
            ott_cost(u, v, D, epsilon) for u, v in ((y[m], b), (y[m], y[m]), (b, b))
        )
        np.testing.assert_allclose(got[m], ab - 0.5 * (aa + bb), rtol=1e-6)


def test_sinkhorn_divergence_of_equals_is_zero_and_nears_exact_transport():
    y, log_y_hat = pair()
    D = problems.problem(num_words=6).D
    k = kernel.build(D, 0.005)
    log_y = jnp.log(jnp.where(y > 0, y, 1e-300))
    same = divergence(y, log_y, k, 0.005, num_iters=50)
    np.testing.assert_allclose(same, 0.0, atol=1e-9)
    got = divergence(y, log_y_hat, k, 0.005, num_iters=5000)
    for m in range(3):
        b = np.exp(log_y_hat[m])
        exact = ot.emd2(np.asarray(y[m]), b / b.sum(), np.array(D))
        np.testing.assert_allclose(got[m], exact, rtol=0.05)


@pytest.mark.parametrize("what", ["reconstruction", "cost"])
def test_envelope_gradient_of_the_divergence_is_the_finite_difference(what):
    y, log_y_hat = pair()
    D = problems.problem(num_words=6).D
    rng = np.random.default_rng(2)

    @jax.jit
    def fn(x):
        args = (x, D) if what == "reconstruction" else (log_y_hat, x)
        k = kernel.build(args[1], 0.4, form="plain")
        return losses.sinkhorn_divergence(y, args[0], k, 0.4, num_iters=200).sum()

    x = log_y_hat if what == "reconstruction" else D
    direction = rng.normal(size=x.shape)
    if what == "cost":
        direction = (direction + direction.T) * (1 - np.eye(6))
    direction = jnp.asarray(direction)
    want = reference.finite_difference(fn, x, direction, step=1e-5)
    got = jnp.vdot(jax.jit(jax.grad(fn))(x), direction)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def by_hand(F, labels, weight, blur):
    """NCA over documents that know their label; all labels weigh the same."""
    known = [i for i in range(len(F)) if labels[i] >= 0 and weight[i] > 0]
    D2 = lambda i, j: np.sum((F[i] - F[j]) ** 2)
    unit = np.mean([D2(i, j) for i in known for j in known if i != j])
    size = lambda i: sum(labels[j] == labels[i] for j in known)
    total, labels_seen = 0.0, {labels[i] for i in known if size(i) > 1}
    for i in known:
        if size(i) == 1:
            continue
        draw = {j: np.exp(-D2(i, j) / (blur * unit)) / size(j) for j in known if j != i}
        own = sum(p for j, p in draw.items() if labels[j] == labels[i])
        total -= np.log(own / sum(draw.values())) / size(i)
    return total / len(labels_seen)


def test_neighbours_are_those_by_hand_and_blind_to_scale_and_to_what_is_unknown():
    rng = np.random.default_rng(0)
    F = rng.normal(size=(9, 3))
    labels = np.array([0, 0, 1, 1, 1, 1, -1, 2, 0])
    weight = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 0])
    got = losses.neighbours(F, labels, weight)
    np.testing.assert_allclose(got, by_hand(F, labels, weight, 0.1), rtol=1e-9)
    np.testing.assert_allclose(losses.neighbours(5 * F, labels, weight), got, rtol=1e-9)
    F[[6, 8]] = 100.0  # unknown, and no document
    np.testing.assert_allclose(losses.neighbours(F, labels, weight), got, rtol=1e-9)
    assert losses.neighbours(F, np.full(9, -1), weight) == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_descending_on_neighbours_brings_labels_together(dtype):
    rng = np.random.default_rng(1)
    Y, labels = rng.normal(size=(40, 6)), np.arange(40) % 2
    Y[:, 0] += 1.5 * labels  # one of six words tells
    X, weight = np.eye(6), np.ones(40)
    Y, X, weight = (jnp.asarray(x, dtype) for x in (Y, X, weight))
    loss = lambda X: losses.neighbours(Y @ X, labels, weight)
    grad = jax.jit(jax.grad(loss))
    before = loss(X)
    for _ in range(200):
        X = X - 0.2 * grad(X)
    assert loss(X) < 0.7 * before
    size = np.linalg.norm(np.asarray(X), axis=1)
    assert size[0] == size.max()
    assert np.isfinite(grad(jnp.zeros_like(X))).all()  # all documents coincide
