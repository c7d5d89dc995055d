"""Algorithm 2 forward and backward, against numpy, finite differences, POT and OTT."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import ot
import problems
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from ott.geometry import geometry
from ott.problems.linear import barycenter_problem
from ott.solvers.linear import discrete_barycenter

from dwl_jax import barycenter as public_barycenter
from dwl_jax import cost, kernel
from dwl_jax.barycenter import Barycenter

FORMS = ["plain", "scaled", "log"]
STATIC = ("num_iters", "form")


@functools.partial(jax.jit, static_argnames=STATIC)
def solve(log_B, lam, D, epsilon, log_scal=None, *, form="auto", **kwargs):
    k = kernel.build(D, epsilon, form=form)
    return public_barycenter(log_B, lam, k, log_scal=log_scal, **kwargs)


@functools.partial(jax.jit, static_argnames=STATIC)
def gradients(log_B, lam, D, epsilon, log_scal, probe, **kwargs):
    """Of sum(probe * y) + something of the scalings, for every input at once."""

    def fn(log_B, lam, D, log_scal):
        out = solve(log_B, lam, D, epsilon, log_scal, **kwargs)
        return jnp.sum(probe * jnp.exp(out.log_y)) + jnp.sum(jnp.sin(out.log_scal))

    return jax.grad(fn, argnums=(0, 1, 2, 3))(log_B, lam, D, log_scal)


def plain_loop(log_B, lam, D, epsilon, log_scal, *, num_iters):
    """Algorithm 2 as anyone would write it in jax, for autodiff: one document."""
    apply = lambda v: jax.nn.logsumexp(-D[None] / epsilon + v[:, None, :], axis=-1)
    scal = log_scal
    for _ in range(num_iters):
        phi = apply(log_B - apply(scal))
        log_y = lam @ phi
        scal = log_y[None, :] - phi
    return Barycenter(log_y, scal, None)


def scalings(p, seed=5):
    rng = np.random.default_rng(seed)
    shape = (len(p.lam), *p.log_B.shape)
    return jnp.asarray(0.3 * rng.normal(size=shape))


@pytest.mark.parametrize("form", [*FORMS, "auto"])
@pytest.mark.parametrize("tau", [0.25, 1.0])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_forward_is_the_numpy_loop(form, tau, epsilon):
    p = problems.problem()
    D = cost.distill(p.D, tau)
    got = solve(p.log_B, p.lam, D, epsilon, num_iters=20, form=form)
    for m, lam in enumerate(np.asarray(p.lam)):
        run = reference.forward(np.exp(p.log_B), lam, D, epsilon, 20)
        np.testing.assert_allclose(np.exp(got.log_y[m]), run.y, rtol=1e-9)
        np.testing.assert_allclose(np.exp(got.log_scal[m]), run.beta[-1], rtol=1e-9)
        sides = np.abs(run.beta[-2] * run.phi[-1] - run.y).sum(axis=1)
        np.testing.assert_allclose(got.error[m], lam @ sides, rtol=1e-5, atol=1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("num_iters", [1, 2, 12])
def test_slip_backward_loops_run_from_L_to_1_for_weights_and_basis(form, num_iters):
    p = problems.problem()
    eps, B, D = 0.2, np.exp(p.log_B), np.asarray(p.D)

    def fn(log_B, lam):
        out = solve(log_B, lam, p.D, eps, num_iters=num_iters, form=form)
        return jnp.sum(p.probe * jnp.exp(out.log_y))

    grad_B, grad_lam = jax.jit(jax.grad(fn, (0, 1)))(p.log_B, p.lam)
    want_B = np.zeros_like(B)
    for m, lam in enumerate(np.asarray(p.lam)):
        args = (B, lam, D, eps)
        run = reference.forward(*args, num_iters)
        grad_y = np.asarray(p.probe[m])
        want = reference.weight_gradient(run, *args, grad_y)
        np.testing.assert_allclose(grad_lam[m], want, rtol=1e-8, atol=1e-12)
        want_B += reference.basis_gradient(run, *args, grad_y)
    np.testing.assert_allclose(grad_B, want_B * B, rtol=1e-8, atol=1e-12)


def test_slip_the_loops_as_printed_are_not_the_gradient():
    """The reference by finite differences, and what C = exp(+D / eps) would do."""
    p = problems.problem()
    B, lam, D = np.exp(p.log_B), np.asarray(p.lam[0]), np.asarray(p.D)
    probe, eps = np.asarray(p.probe[0]), 0.5
    run = reference.forward(B, lam, D, eps, 6)
    got = reference.weight_gradient(run, B, lam, D, eps, probe)
    for k, unit in enumerate(np.eye(3)):
        fn = lambda lam: probe @ reference.barycenter(B, lam, D, eps, 6)
        want = reference.finite_difference(fn, lam, unit)
        np.testing.assert_allclose(got[k], want, rtol=1e-6)
    got = reference.basis_gradient(run, B, lam, D, eps, probe)
    direction = np.random.default_rng(0).normal(size=B.shape)
    fn = lambda B: probe @ reference.barycenter(B, lam, D, eps, 6)
    want = reference.finite_difference(fn, B, direction)
    np.testing.assert_allclose(np.vdot(got, direction), want, rtol=1e-6)
    # Loops that run 1 ... L see the iterations in the wrong order ...
    flipped = run._replace(phi=[None, *run.phi[:0:-1]], beta=run.beta[::-1])
    wrong = reference.weight_gradient(flipped, B, lam, D, eps, probe)
    right = reference.weight_gradient(run, B, lam, D, eps, probe)
    assert np.abs(wrong - right).max() > 0.1 * np.abs(right).max()
    # ... and with exp(+D / eps) a single topic is not its own barycenter as eps falls.
    one = reference.barycenter(B[:1], np.ones(1), -D, 0.05, 5)
    assert np.abs(one - B[0]).sum() > 0.1
    one = reference.barycenter(B[:1], np.ones(1), D, 0.05, 5)
    np.testing.assert_allclose(one, B[0], atol=1e-3)


@functools.cache
def plain_gradients():
    p = problems.problem()
    h = scalings(p)

    def fn(log_B, lam, D, h):
        run = functools.partial(plain_loop, num_iters=5)
        out = jax.vmap(run, (None, 0, None, None, 0))(log_B, lam, D, 0.3, h)
        return jnp.sum(p.probe * jnp.exp(out.log_y)) + jnp.sum(jnp.sin(out.log_scal))

    return jax.jit(jax.grad(fn, (0, 1, 2, 3)))(p.log_B, p.lam, p.D, h)


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_every_input_is_autodiff_through_a_plain_loop(form):
    p = problems.problem()
    h = scalings(p)
    got = gradients(
        p.log_B, p.lam, p.D, 0.3, h, p.probe,
        num_iters=5, form=form,
    )  # fmt: skip
    off = 1.0 - np.eye(7)  # the diagonal of the cost is not free
    names = ("topics", "weights", "cost", "start")
    for name, a, b in zip(names, got, plain_gradients(), strict=True):
        mask = off if name == "cost" else 1.0
        np.testing.assert_allclose(a * mask, b * mask, rtol=1e-8, atol=1e-11)
        assert np.abs(b * mask).max() > 1e-3, name


@pytest.mark.parametrize("form", FORMS)
def test_gradient_of_the_cost_is_the_finite_difference(form):
    p = problems.problem()
    direction = np.random.default_rng(1).normal(size=p.D.shape)
    direction = jnp.asarray((direction + direction.T) * (1 - np.eye(7)))

    def fn(D):
        out = solve(p.log_B, p.lam, D, 0.1, num_iters=15, form=form)
        return jnp.sum(p.probe * jnp.exp(out.log_y))

    want = reference.finite_difference(fn, p.D, direction)
    got = jnp.vdot(jax.jit(jax.grad(fn))(p.D), direction)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    of_epsilon = lambda e: solve(
        p.log_B, p.lam, p.D, e, num_iters=15, form=form
    ).log_y.sum()
    want = reference.finite_difference(of_epsilon, 0.1, 1.0)
    np.testing.assert_allclose(jax.jit(jax.grad(of_epsilon))(0.1), want, rtol=1e-6)


def test_given_scalings_go_on_where_they_were_left():
    p = problems.problem()
    run = functools.partial(solve, p.log_B, p.lam, p.D, 0.1, form="plain")
    whole = run(num_iters=9)
    first = run(num_iters=4)
    both = run(first.log_scal, num_iters=5)
    chex.assert_trees_all_close(both, whole, rtol=1e-12)
    assert np.abs(first.log_y - whole.log_y).max() > 1e-4


def test_error_falls_to_zero_and_then_the_masses_sum_to_one():
    p = problems.problem()
    run = functools.partial(solve, p.log_B, p.lam, p.D, 0.1, form="plain")
    few, more, many = run(num_iters=2), run(num_iters=20), run(num_iters=2000)
    assert (more.error < 0.3 * few.error).all() and (few.error > 0.1).all()
    np.testing.assert_allclose(many.error, 0.0, atol=1e-12)
    np.testing.assert_allclose(np.exp(many.log_y).sum(axis=1), 1.0, rtol=1e-12)
    assert np.abs(np.exp(few.log_y).sum(axis=1) - 1.0).min() > 1e-3


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_barycenter_is_that_of_pot_with_unequal_weights(epsilon):
    p = problems.problem()
    lam = jnp.array([[0.7, 0.2, 0.1], [0.1, 0.0, 0.9]])
    got = solve(p.log_B, lam, p.D, epsilon, num_iters=3000, form="plain")
    for row, weights in zip(got.log_y, np.asarray(lam), strict=True):
        want = ot.bregman.barycenter(
            np.exp(p.log_B).T, np.array(p.D), epsilon, weights=weights,
            method="sinkhorn_log", numItermax=5000, stopThr=1e-14,
        )  # fmt: skip
        np.testing.assert_allclose(np.exp(row), want, rtol=1e-7)


@pytest.mark.usefixtures("allow_rank_promotion")
def test_barycenter_is_that_of_ott():
    p = problems.problem()
    lam = jnp.array([0.7, 0.2, 0.1])
    got = solve(p.log_B, lam, p.D, 0.05, num_iters=3000, form="plain")
    geom = geometry.Geometry(cost_matrix=p.D, epsilon=0.05)
    problem = barycenter_problem.FixedBarycenterProblem(geom, jnp.exp(p.log_B), lam)
    solver = discrete_barycenter.FixedBarycenter(
        threshold=1e-13, max_iterations=3000, lse_mode=False
    )
    np.testing.assert_allclose(np.exp(got.log_y), solver(problem).histogram, rtol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_identity_kernel_gives_the_geometric_mean(form):
    p = problems.problem()
    size = 1e3 if form == "scaled" else 1e4  # `auto` takes scaled up to 1,200
    far = size * (1.0 - jnp.eye(7))
    got = solve(p.log_B, p.lam, far, 1.0, num_iters=5, form=form)
    np.testing.assert_allclose(got.log_y, p.lam @ p.log_B, rtol=1e-13)


@pytest.mark.parametrize("form", FORMS)
def test_two_points_in_closed_form(form):
    b, c = np.array([0.8, 0.2]), np.exp(-2.0)
    D = jnp.array([[0.0, 1.0], [1.0, 0.0]])
    run = functools.partial(solve, D=D, epsilon=0.5, num_iters=200, form=form)
    one = run(jnp.log(jnp.array([b])), jnp.ones(1))
    np.testing.assert_allclose(np.exp(one.log_y), (b + c * b[::-1]) / (1 + c), 1e-13)
    mirrored = run(jnp.log(jnp.array([b, b[::-1]])), jnp.array([0.5, 0.5]))
    np.testing.assert_allclose(np.exp(mirrored.log_y), 0.5, rtol=1e-12)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.integers(0, 10_000), st.floats(0.02, 0.5))
def test_one_topic_is_its_own_barycenter_in_the_limit(seed, share):
    p = problems.problem(seed, num_words=5, num_topics=1)
    off = np.asarray(p.D)[~np.eye(5, dtype=bool)]
    sharp = solve(p.log_B, p.lam, p.D, share * off.min() / 10, num_iters=3, form="log")
    bound = 5 * np.exp(-10 / share)
    np.testing.assert_allclose(np.exp(sharp.log_y[0]), np.exp(p.log_B[0]), atol=bound)
    blurred = solve(p.log_B, p.lam, p.D, off.min(), form="log", num_iters=300)
    assert np.abs(np.exp(blurred.log_y[0]) - np.exp(p.log_B[0])).max() > 1e-4


@settings(max_examples=12, deadline=None, derandomize=True)
@given(st.permutations(range(6)), st.permutations(range(3)), st.integers(0, 99))
def test_permuting_words_or_topics_permutes_the_result(words, topics, seed):
    p = problems.problem(seed, num_words=6)
    w, t = np.array(words), np.array(topics)
    run = functools.partial(solve, epsilon=0.1, num_iters=10, form="plain")
    want = run(p.log_B, p.lam, p.D)
    got = run(p.log_B[t][:, w], p.lam[:, t], p.D[w][:, w])
    np.testing.assert_allclose(got.log_y, want.log_y[:, w], rtol=1e-10)
    np.testing.assert_allclose(got.log_scal, want.log_scal[:, t][:, :, w], atol=1e-10)
    np.testing.assert_allclose(got.error, want.error, rtol=1e-7)
