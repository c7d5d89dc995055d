"""Algorithm 2 at its edges: no mass, coinciding words, one word; what tau does."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from barycenter_test import gradients, scalings, solve

import dwl_jax
from dwl_jax import cost, kernel

FORMS = ["plain", "scaled", "log"]


@pytest.mark.parametrize("form", FORMS)
def test_words_that_topics_lack_have_finite_values_and_zero_gradient(form):
    p = problems.problem()
    B = np.exp(p.log_B)
    B[0, 2] = B[1, 2] = B[1, 4] = B[2, :5] = 0.0
    B /= B.sum(axis=1, keepdims=True)
    absent = B == 0.0
    with np.errstate(divide="ignore"):
        log_B = jnp.log(B)
    got = solve(log_B, p.lam, p.D, 0.1, num_iters=10, form=form)
    for row, lam in zip(got.log_y, np.asarray(p.lam), strict=True):
        want = reference.barycenter(B, lam, p.D, 0.1, 10)
        np.testing.assert_allclose(np.exp(row), want, rtol=1e-10)
    h = scalings(p)
    grads = gradients(log_B, p.lam, p.D, 0.1, h, p.probe, num_iters=10, form=form)
    chex.assert_tree_all_finite(grads)
    np.testing.assert_array_equal(grads[0][absent], 0.0)
    # The limit of a vanishing mass, taken numerically.
    tiny = jnp.log(jnp.where(absent, 1e-30, B))
    near = gradients(tiny, p.lam, p.D, 0.1, h, p.probe, num_iters=10, form=form)
    for a, b in zip(grads, near, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)


def test_a_word_that_no_topic_has_and_nothing_reaches_gets_exactly_zero():
    log_B = jnp.log(jnp.array([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0]]))
    D = jnp.array([[0.0, 1.0, 900.0], [1.0, 0.0, 900.0], [900.0, 900.0, 0.0]])
    out = solve(log_B, jnp.array([0.3, 0.7]), D, 1.0, num_iters=4, form="log")
    assert np.exp(out.log_y)[2] == 0.0 and np.isfinite(out.log_y[2])
    chex.assert_tree_all_finite(out)


@pytest.mark.parametrize("form", FORMS)
def test_coinciding_words_share_and_have_finite_gradients(form):
    p = problems.problem()
    X = np.random.default_rng(0).normal(size=(7, 3))
    X[1] = X[5] = X[0]

    def fn(X):
        D = cost.distill(cost.scale(cost.distance_matrix(X)), 0.5)
        return solve(p.log_B, p.lam, D, 0.1, num_iters=10, form=form).log_y

    log_y = fn(jnp.asarray(X))
    D = cost.distill(cost.scale(cost.distance_matrix(jnp.asarray(X))), 0.5)
    want = reference.barycenter(np.exp(p.log_B), np.asarray(p.lam[0]), D, 0.1, 10)
    np.testing.assert_allclose(np.exp(log_y[0]), want, rtol=1e-10)
    np.testing.assert_allclose(log_y[:, 0], log_y[:, 5], rtol=1e-13)
    grad = jax.jit(jax.grad(lambda X: jnp.sum(p.probe * jnp.exp(fn(X)))))(jnp.array(X))
    assert np.isfinite(grad).all() and np.abs(grad[1]).max() > 1e-6


@pytest.mark.parametrize("form", [*FORMS, "auto"])
def test_one_word_is_always_itself(form):
    log_B, lam = jnp.zeros((2, 1)), jnp.array([[0.4, 0.6]])
    D, h = jnp.zeros((1, 1)), jnp.zeros((1, 2, 1))
    out = solve(log_B, lam, D, 0.1, num_iters=3, form=form)
    np.testing.assert_array_equal(out.log_y, 0.0)
    np.testing.assert_array_equal(out.error, 0.0)
    grads = gradients(log_B, lam, D, 0.1, h, jnp.ones((1, 1)), num_iters=3, form=form)
    chex.assert_tree_all_finite(grads)
    first = lambda log_B: solve(log_B, lam, D, 0.1, num_iters=1, form=form).log_y[0, 0]
    np.testing.assert_allclose(jax.grad(first)(log_B), lam.T, rtol=1e-13)


def kernels():
    """Every form on the same words, with the field that its gradients flow through."""
    X = jnp.asarray(np.random.default_rng(2).normal(size=(7, 3)))
    D = cost.scale(cost.distance_matrix(X))
    for form in ("plain", "scaled", "log"):
        yield kernel.build(D, 0.2, form=form), "log_C"


@pytest.mark.parametrize("num_iters", [1, 3])
def test_a_first_iteration_that_documents_share_is_that_of_each(num_iters):
    p = problems.problem(num_docs=4)

    def outcomes(k, name):
        def run(log_B, lam, leaf, start):
            out = dwl_jax.barycenter(
                log_B,
                lam,
                dataclasses.replace(k, **{name: leaf}),
                num_iters=num_iters,
                log_scal=start,
            )
            weighed = jnp.sum(p.probe * jnp.exp(out.log_y))
            return weighed + jnp.sum(jnp.sin(out.log_scal)), out

        args, h = (p.log_B, p.lam, getattr(k, name)), jnp.zeros((4, 3, 7))
        grad = jax.grad(run, (0, 1, 2), has_aux=True)
        return grad(*args, None), grad(*args, h), run(*args, None)[1]

    for k, name in kernels():
        shared, each, forward = jax.jit(functools.partial(outcomes, name=name))(k)
        chex.assert_trees_all_close(forward, each[1], rtol=1e-11, atol=1e-13)
        chex.assert_trees_all_close(shared, each, rtol=1e-9, atol=1e-12)
        assert min(np.abs(g).max() for g in shared[0]) > 1e-4


def test_leading_axes_are_documents():
    p = problems.problem(num_docs=6)
    flat = solve(p.log_B, p.lam, p.D, 0.2, num_iters=5, form="plain")
    boxed = solve(p.log_B, p.lam.reshape(2, 3, 3), p.D, 0.2, num_iters=5, form="plain")
    alone = solve(p.log_B, p.lam[4], p.D, 0.2, num_iters=5, form="plain")
    chex.assert_trees_all_close(
        jax.tree.map(lambda x: x.reshape(6, *x.shape[2:]), boxed), flat, rtol=1e-12
    )
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[4], flat), alone, rtol=1e-12)


def test_gradient_does_not_depend_on_what_else_is_asked_for():
    p = problems.problem()
    fn = lambda log_B, lam, D: jnp.sum(
        p.probe * solve(log_B, lam, D, 0.2, num_iters=5, form="plain").log_y
    )
    together = jax.jit(jax.grad(fn, (0, 1, 2)))(p.log_B, p.lam, p.D)
    for place, want in enumerate(together):
        got = jax.jit(jax.grad(fn, place))(p.log_B, p.lam, p.D)
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_loss_of_the_callers_own_through_the_public_function():
    p = problems.problem()

    def fn(X):
        D = cost.distill(cost.scale(cost.distance_matrix(X)), 0.5)
        k = kernel.build(D, 0.2, form="plain")
        out = dwl_jax.barycenter(p.log_B, p.lam, k, num_iters=10)
        return jnp.sum(jnp.cos(3.0 * out.log_y))

    X = jnp.asarray(np.random.default_rng(3).normal(size=(7, 3)))
    direction = jnp.asarray(np.random.default_rng(4).normal(size=(7, 3)))
    unit = cost.distance_matrix(X).sum() / 42

    @jax.jit
    def held(X):  # the unit of the distances carries no gradient
        D = cost.distill(cost.distance_matrix(X) / unit, 0.5)
        out = solve(p.log_B, p.lam, D, 0.2, num_iters=10, form="plain")
        return jnp.sum(jnp.cos(3.0 * out.log_y))

    want = reference.finite_difference(held, X, direction)
    got = jnp.vdot(jax.jit(jax.grad(fn))(X), direction)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_error_carries_no_gradient():
    p = problems.problem()
    fn = lambda lam: solve(
        p.log_B, lam, p.D, 0.2, num_iters=3, form="plain"
    ).error.sum()
    np.testing.assert_array_equal(jax.grad(fn)(p.lam), 0.0)


def test_tau_matters_and_a_sweep_compiles_once():
    p = problems.problem()

    def run(tau):
        D = cost.distill(p.D, tau)
        return solve(p.log_B, p.lam, D, 0.1, num_iters=20).log_y

    taus = jnp.array([0.25, 0.5, 1.0])
    sweep = jax.jit(jax.vmap(chex.assert_max_traces(run, n=1)))
    got, other = sweep(taus), sweep(taus[::-1])
    np.testing.assert_allclose(got, other[::-1], rtol=1e-12)
    one = jax.jit(chex.assert_max_traces(lambda tau: run(tau), n=1))
    for tau, row in zip((0.25, 0.5, 1.0), got, strict=True):
        np.testing.assert_allclose(row, one(tau), rtol=1e-10)
        want = [
            reference.barycenter(np.exp(p.log_B), lam, np.asarray(p.D) ** tau, 0.1, 20)
            for lam in np.asarray(p.lam)
        ]
        np.testing.assert_allclose(np.exp(row), want, rtol=1e-10)
    assert np.abs(np.exp(got[0]) - np.exp(got[1])).max() > 1e-3
    assert np.abs(np.exp(got[1]) - np.exp(got[2])).max() > 1e-3


@pytest.mark.parametrize("tau", [0.25, 0.5, 1.0])
def test_trap_unscaled_distances_at_epsilon_001_make_tau_do_nothing(tau):
    p = problems.problem(num_words=30, num_topics=4)
    X = jnp.asarray(np.random.default_rng(0).normal(size=(30, 50)))
    geometric = p.lam @ p.log_B
    D = cost.distance_matrix(X)
    out = solve(p.log_B, p.lam, cost.distill(D, tau), 0.01, num_iters=20, form="log")
    np.testing.assert_allclose(out.log_y, geometric, rtol=0, atol=1e-13)
    D = cost.scale(D, "mean")  # the way out, at an epsilon that reaches a neighbour
    out = solve(p.log_B, p.lam, cost.distill(D, tau), 0.2, num_iters=20, form="log")
    assert np.abs(out.log_y - geometric).max() > 1e-2


def test_under_vmap_over_costs_the_solver_decides_once():
    p = problems.problem()

    def run(epsilon, form):
        fn = lambda D: solve(p.log_B, p.lam, D, epsilon, num_iters=3, form=form)
        return jax.grad(lambda D: fn(D).log_y.sum())(p.D)

    epsilons = jnp.array([0.001, 0.1])
    auto = jax.vmap(lambda e: run(e, "auto"))
    jaxpr = jax.make_jaxpr(auto)(epsilons)
    found = [e for e in problems.equations(jaxpr) if e.primitive.name == "cond"]
    assert len(found) == 2 and all(e.invars[0].aval.shape == () for e in found)
    want = jax.jit(lambda: run(0.1, "plain"))()
    np.testing.assert_allclose(jax.jit(auto)(epsilons)[1], want, rtol=1e-8, atol=1e-12)


def test_bad_input_is_named():
    p = problems.problem()
    k = kernel.build(p.D, 0.1)
    with pytest.raises(ValueError, match="topics have 6 words, the kernel 7"):
        dwl_jax.barycenter(p.log_B[:, :6], p.lam, k, num_iters=1)
    with pytest.raises(ValueError, match="num_iters must be at least 1, got 0"):
        dwl_jax.barycenter(p.log_B, p.lam, k, num_iters=0)
    with pytest.raises(ValueError, match="lam has"):
        dwl_jax.barycenter(p.log_B, p.lam[:, :2], k, num_iters=1)
    with pytest.raises(ValueError, match="log_scal must be"):
        dwl_jax.barycenter(p.log_B, p.lam, k, num_iters=1, log_scal=jnp.zeros((2, 3)))
