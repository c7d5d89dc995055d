"""The kernel in logs: each form against scipy's logsumexp, and how `auto` chooses."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
import reference
from scipy.special import logsumexp

from dwl_jax import kernel, masses

FORMS = ["auto", "plain", "scaled", "log"]
build = jax.jit(kernel.build, static_argnames="form")
apply_log = jax.jit(kernel.apply_log)


def apply_reference(cost, epsilon, log_v):
    """log(C v), float64, every exponential of it."""
    log_C = -np.asarray(cost, np.float64) / epsilon
    return logsumexp(log_C + np.asarray(log_v, np.float64)[..., None, :], axis=-1)


def spread_cost(num_words, low, high, seed=0):
    """A symmetric cost with off-diagonal entries in [low, high], both ends taken."""
    rng = np.random.default_rng(seed)
    cost = np.triu(rng.uniform(low, high, (num_words, num_words)), 1)
    cost[0, 1], cost[0, 2] = low, high
    return jnp.asarray(cost + cost.T)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("epsilon", [0.005, 0.05, 0.5])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_apply_log_is_logsumexp(form, epsilon, shape):
    D = problems.problem(num_words=6).D
    log_v = jnp.asarray(np.random.default_rng(1).normal(size=(*shape, 6)) * 5)
    got = apply_log(build(D, epsilon, form=form), log_v)
    np.testing.assert_allclose(got, apply_reference(D, epsilon, log_v), rtol=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_two_points_in_closed_form(form):
    cost = jnp.array([[0.0, 3.0], [3.0, 0.0]])
    log_v = jnp.array([0.3, -0.2])
    got = apply_log(build(cost, 2.0, form=form), log_v)
    v = np.exp(log_v)
    np.testing.assert_allclose(
        got, np.log([v[0] + v[1] * np.exp(-1.5), v[1] + v[0] * np.exp(-1.5)]), 1e-14
    )


@pytest.mark.parametrize("form", ["auto", "plain", "log"])
def test_a_single_word_is_left_as_it_is(form):
    k = build(jnp.zeros((1, 1)), 0.1, form=form)
    assert apply_log(k, jnp.array([0.7]))[0] == 0.7
    grad = jax.grad(lambda v: apply_log(k, v)[0])(jnp.array([0.7]))
    assert grad[0] == 1.0


@pytest.mark.parametrize("form", FORMS)
def test_words_without_mass_add_nothing(form):
    D = problems.problem(num_words=5).D
    log_v = jnp.array([[0.1, -jnp.inf, 0.4, -jnp.inf, -1.0], [-jnp.inf] * 4 + [2.0]])
    k = build(D, 0.05, form=form)
    got = apply_log(k, log_v)
    np.testing.assert_allclose(got, apply_reference(D, 0.05, log_v), rtol=1e-13)
    grad = jax.grad(lambda v: apply_log(k, v).sum())(log_v)
    assert np.isfinite(grad).all()
    np.testing.assert_array_equal(np.asarray(grad)[~np.isfinite(log_v)], 0.0)
    nothing = apply_log(k, jnp.full((5,), -jnp.inf))
    np.testing.assert_array_equal(nothing, -jnp.inf)


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize("form", ["plain", "scaled", "log"])
@pytest.mark.parametrize("epsilon", [0.05, 0.5])
def test_pull_and_outer_are_what_they_say(form, epsilon, axis):
    D = problems.problem(num_words=6).D
    rng = np.random.default_rng(2)
    log_v, w = (jnp.asarray(rng.normal(size=(2, 3, 6))) for _ in range(2))
    k = build(D, epsilon, form=form)
    turn = lambda x: jnp.moveaxis(x, -1, axis)
    k, v = dataclasses.replace(k, axis=axis), turn(masses.enter(k, log_v))
    u = jax.jit(lambda k: k.forward(v))(k)
    C = np.exp(-np.asarray(D) / epsilon)
    log_u = jnp.moveaxis(masses.leave(k, u), axis, -1)
    np.testing.assert_allclose(jnp.exp(log_u), np.exp(log_v) @ C, rtol=1e-12)
    left = np.asarray(w) * np.exp(-np.asarray(log_u))
    want_outer = np.einsum("abi,ij,abj->ij", left, C, np.exp(log_v))
    pull, outer = (
        jax.jit(getattr(type(k), name))(k, turn(w), u, v) for name in ("pull", "outer")
    )
    pull = jnp.moveaxis(pull, axis, -1)
    np.testing.assert_allclose(pull, np.exp(log_v) * (left @ C), rtol=1e-11)
    np.testing.assert_allclose(outer, want_outer, rtol=1e-11)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", ["cost", "epsilon", "log_v"])
def test_gradients_are_finite_differences(form, what):
    rng = np.random.default_rng(3)
    probe = jnp.asarray(rng.normal(size=(2, 5)))
    args = {
        "cost": problems.problem(num_words=5).D,
        "epsilon": jnp.asarray(0.2),
        "log_v": jnp.asarray(rng.normal(size=(2, 5))),
    }

    @jax.jit
    def fn(x):
        a = args | {what: x}
        k = build(a["cost"], a["epsilon"], form=form)
        return jnp.sum(probe * apply_log(k, a["log_v"]))

    x = args[what]
    direction = jnp.asarray(rng.normal(size=x.shape))
    if what == "cost":  # the kernel is of a symmetric cost with zero diagonal
        direction = (direction + direction.T) * (1 - jnp.eye(5))
    want = reference.finite_difference(fn, x, direction)
    got = jnp.vdot(jax.jit(jax.grad(fn))(x), direction)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("tau", [0.5, 1.0])
def test_float32_is_exact_at_an_epsilon_where_a_plain_kernel_is_zeros(tau):
    D = problems.problem(num_words=81, dim=50).D ** tau
    log_v = jnp.asarray(np.random.default_rng(4).normal(size=(8, 81)) * 20, jnp.float32)
    k = build(D.astype(jnp.float32), 0.01)
    assert k.shift > 50.0 and k.reach > 104.0
    plain = jnp.exp(-D / 0.01).astype(jnp.float32)
    assert float((plain == 0.0).mean()) > 0.2  # what a scaling loop would multiply with
    got = apply_log(k, log_v)
    assert got.dtype == jnp.float32
    np.testing.assert_allclose(got, apply_reference(D, 0.01, log_v), rtol=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("over", [False, True])
def test_auto_is_plain_up_to_the_reach_a_float_holds_and_log_above(dtype, over):
    limit, info = kernel._MAX_REACH[jnp.dtype(dtype).name], np.finfo(dtype)
    assert 2.0 * limit < -np.log(info.tiny)  # masses span twice the reach
    reach = limit + (0.5 if over else -0.5)
    cost = spread_cost(9, 0.4 * limit, reach).astype(dtype)
    k = build(cost, 1.0)
    np.testing.assert_allclose(k.reach, reach, rtol=1e-5)
    assert kernel.resolve(k, lambda settled: jnp.asarray(settled.form == "log")) == over
    log_v = jnp.asarray(np.random.default_rng(5).normal(size=(3, 9)) * 30, dtype)
    got = apply_log(k, log_v)
    tol = 1e-5 if dtype == jnp.float32 else 1e-12
    np.testing.assert_allclose(got, apply_reference(cost, 1.0, log_v), rtol=tol)
    grad = jax.grad(lambda v: apply_log(k, v).sum())(log_v)
    exact = lambda x: np.asarray(x, np.float64)
    log_u = apply_reference(cost, 1.0, log_v)
    plan = np.exp(exact(log_v)[:, None, :] - exact(cost) - log_u[:, :, None])
    np.testing.assert_allclose(grad, plan.sum(axis=1), rtol=10 * tol, atol=1e-30)


def test_plain_alone_would_be_wrong_above_the_limit():
    """What `auto` is for: a far word's whole mass is lost by the matrix product."""
    cost = spread_cost(3, 0.0, 300.0).astype(jnp.float32)
    log_v = jnp.array([0.0, -jnp.inf, -jnp.inf], jnp.float32)
    plain, auto = (
        apply_log(build(cost, 1.0, form=form), log_v) for form in ("plain", "auto")
    )
    np.testing.assert_allclose(auto, -cost[0], rtol=1e-6)
    assert plain[2] == -jnp.inf


def conds(jaxpr):
    return [e for e in problems.equations(jaxpr) if e.primitive.name == "cond"]


@pytest.mark.parametrize("grad", [False, True])
def test_under_vmap_auto_stays_a_cond_of_which_one_branch_runs(grad):
    D = problems.problem(num_words=5).D
    log_v = jnp.zeros((2, 5))

    def run(epsilon):
        fn = lambda D: apply_log(build(D, epsilon), log_v).sum()
        return jax.grad(fn)(D) if grad else fn(D)

    jaxpr = jax.make_jaxpr(jax.vmap(run))(jnp.array([0.01, 0.1, 1.0]))
    found = conds(jaxpr)
    assert len(found) == 1 + grad
    for eqn in found:
        assert eqn.invars[0].aval.shape == ()  # one decision for all lanes
        assert len(eqn.params["branches"]) == 2
    # A cond whose predicate is batched turns into a select of both branches.
    plain = jax.vmap(lambda x: jax.lax.cond(x > 0, jnp.sin, jnp.cos, x))
    assert not conds(jax.make_jaxpr(plain)(jnp.ones(3)))


def test_one_lane_that_needs_the_log_domain_takes_all_there():
    cost = spread_cost(6, 1.0, 2.0).astype(jnp.float32)
    epsilons = jnp.array([1.0, 0.005], jnp.float32)  # spreads 1 and 200
    log_v = jnp.asarray(np.random.default_rng(6).normal(size=(6,)), jnp.float32)

    def run(epsilon):
        k = build(cost, epsilon)
        chosen = kernel.resolve(k, lambda settled: jnp.asarray(settled.form == "log"))
        return chosen, apply_log(k, log_v)

    run_all = jax.jit(jax.vmap(run))
    in_log, got = run_all(epsilons)
    assert in_log.all()
    for e, row in zip(epsilons, got, strict=True):
        want = apply_reference(cost, float(e), log_v)
        np.testing.assert_allclose(row, want, rtol=1e-5)
    in_log, _ = run_all(jnp.array([1.0, 0.5], jnp.float32))
    assert not in_log.any()
    in_log, _ = jax.jit(jax.vmap(jax.vmap(run)))(epsilons[:, None])
    assert in_log.all()


def test_epsilon_is_traced_once_for_all_values():
    D = problems.problem(num_words=5).D
    run = lambda e: apply_log(build(D, e), jnp.zeros(5))
    run = jax.jit(chex.assert_max_traces(run, n=1))
    values = [run(e) for e in (0.01, 0.1, 1.0)]
    for e, got in zip((0.01, 0.1, 1.0), values, strict=True):
        np.testing.assert_allclose(got, apply_reference(D, e, np.zeros(5)), atol=1e-14)


def test_a_kernel_passes_through_jit_and_keeps_its_form():
    k = build(problems.problem().D, 0.1, form="log")
    through = jax.jit(lambda k: dataclasses.replace(k, shift=2 * k.shift))(k)
    assert through.form == "log" and through.num_words == 7
    np.testing.assert_allclose(through.shift, 2 * k.shift)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"cost must be square, got \(2, 3\)"):
        kernel.build(jnp.zeros((2, 3)), 0.1)
    with pytest.raises(ValueError, match="form must be one of .*, got 'slow'"):
        kernel.build(jnp.zeros((2, 2)), 0.1, form="slow")


@pytest.mark.parametrize("epsilon", [-0.1, 0.0, np.nan, np.inf])
def test_epsilon_out_of_range_is_named_unless_traced(epsilon):
    cost = jnp.ones((3, 3)) - jnp.eye(3)
    with pytest.raises(ValueError, match=rf"epsilon must be in .*, got {epsilon}"):
        kernel.build(cost, epsilon)
    assert build(cost, epsilon).num_words == 3


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_a_cost_that_is_none_is_refused(bad):
    good = problems.problem(num_words=3).D
    with pytest.raises(ValueError, match="with a zero diagonal"):
        kernel.build(jnp.ones((3, 3)), 0.1)
    with pytest.raises(ValueError, match="cost must be finite and not negative"):
        kernel.build(good.at[0, 1].set(bad).at[1, 0].set(bad), 0.1)
    with pytest.raises(ValueError, match="cost must be symmetric"):
        kernel.build(good.at[0, 2].multiply(2.0), 0.1)
    kernel.build(good.at[0, 2].multiply(1.0 + 1e-6), 0.1)  # rounding is no culprit
