"""Fast paths are taken, counted in jaxprs and choices, and equal the slow ones."""

import functools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from dwl_jax import barycenter, kernel
from experiments import bench_gradient, bench_report
from experiments.bench_timing import QUICK, Size, best, exponent

PAPER = Size()
SMALL = Size(num_words=13, num_topics=3, batch_size=5, num_iters=4, dim=6)
FORMS = ("plain", "scaled", "log")
LIMIT = {"float32": 32.0, "float64": 300.0}
SCALED_LIMIT = {"float32": 120.0, "float64": 1200.0}


def chosen(cost, epsilon, log_scal=None, log_B=None):
    """The form that the barycenter settles on."""

    @jax.jit
    def run(cost, epsilon):
        k = kernel.build(cost, epsilon)
        place = lambda k: jnp.asarray(FORMS.index(k.form))
        topics = jnp.zeros_like(cost) if log_B is None else log_B
        return kernel.resolve(k, place, topics, log_scal)

    return FORMS[int(run(cost, jnp.asarray(epsilon, cost.dtype)))]


@pytest.mark.parametrize(
    ("dtype", "epsilon", "form"),
    [
        (np.float32, 0.05, "plain"),
        (np.float32, 0.01, "scaled"),
        (np.float32, 0.008, "log"),
        (np.float64, 0.05, "plain"),
        (np.float64, 0.01, "plain"),
        (np.float64, 0.003, "scaled"),
        (np.float64, 0.0009, "log"),
    ],
)
def test_at_the_papers_size_each_epsilon_gets_its_form(dtype, epsilon, form):
    D = jnp.asarray(bench_gradient.problem(PAPER, dtype)["D"])
    assert chosen(D, epsilon) == form


def counts(form, argnums):
    """How often the gradient of a batch meets each primitive on masses [N, K, s]."""
    args = (*bench_gradient.problem(SMALL).values(), np.float32(0.1))
    fn = functools.partial(bench_gradient.loss, size=SMALL, form=form)
    jaxpr = jax.make_jaxpr(jax.value_and_grad(fn, argnums))(*args)
    masses = SMALL.num_words * SMALL.num_topics * SMALL.batch_size
    found = {}
    for loop in problems.equations(jaxpr):
        if loop.primitive.name != "scan":
            continue
        for eqn in problems.equations(loop.params["jaxpr"]):
            arrays = (v.aval for v in (*eqn.invars, *eqn.outvars))
            size = max(getattr(x, "size", 0) for x in arrays)
            if size in (masses, 2 * masses):
                name = eqn.primitive.name
                found[name] = found.get(name, 0) + 1
    return found


def test_plain_loops_are_four_products_and_two_logs():
    """Two products and a log each way; nothing else is transcendental."""
    found = counts("plain", (0, 1))
    assert found["dot_general"] == 4 and found["log"] == 2 and "exp" not in found
    assert counts("plain", (0, 1, 2))["dot_general"] == 6  # the cost's gradient


@pytest.mark.parametrize("form", ["plain", "scaled"])
def test_documents_share_the_products_of_a_cold_first_iteration(form):
    """Of 4 iterations the loops run 3; no product outside has documents."""
    args = (*bench_gradient.problem(SMALL).values(), np.float32(0.1))
    fn = functools.partial(bench_gradient.loss, size=SMALL, form=form)
    jaxpr = jax.make_jaxpr(jax.value_and_grad(fn, (0, 1)))(*args)
    found = list(problems.equations(jaxpr))
    loops = [eqn for eqn in found if eqn.primitive.name == "scan"]
    assert [loop.params["length"] for loop in loops] == [3, 3]
    products = [eqn for eqn in found if eqn.primitive.name == "dot_general"]
    sizes = [eqn.outvars[0].aval.size for eqn in products]
    shared = SMALL.num_words * SMALL.num_topics
    assert sizes.count(shared * SMALL.batch_size) == 4
    assert set(sizes) == {shared, shared * SMALL.batch_size}


def test_scaled_loops_take_an_exponential_and_a_logarithm():
    """Going back, an exponential for each product; nothing else is transcendental."""
    found = counts("scaled", (0, 1))
    assert found["dot_general"] == 4
    assert found["log"] == 1 and found["exp"] == 1 + 2
    assert counts("scaled", (0, 1, 2))["dot_general"] == 6


@functools.partial(jax.jit, static_argnames="form")
def outcome(log_B, lam, cost, epsilon, log_scal, probe, *, form):
    """Everything a caller can see of a barycenter, gradients for all inputs."""

    def fn(log_B, lam, cost, log_scal):
        k = kernel.build(cost, epsilon, form=form)
        out = barycenter(log_B, lam, k, num_iters=6, log_scal=log_scal)
        weighed = jnp.sum(probe * jnp.exp(out.log_y))
        return weighed + 1e-2 * jnp.sum(jnp.sin(out.log_scal)), out

    return jax.grad(fn, (0, 1, 2, 3), has_aux=True)(log_B, lam, cost, log_scal)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float32", 2e-5), ("float64", 1e-10)]
)
@pytest.mark.parametrize("form", ["plain", "scaled", "auto"])
def test_every_path_is_the_log_domain_of_float64(form, dtype, tolerance):
    p = problems.problem(num_words=11, num_topics=3, num_docs=4)
    rng = np.random.default_rng(1)
    h = 0.5 * rng.normal(size=(4, 3, 11))
    args = [np.asarray(x, np.float32) for x in (p.log_B, p.lam, p.D, 0.1, h, p.probe)]
    wide = [np.asarray(x, np.float64) for x in args]
    want = outcome(*wide, form="log")
    got = outcome(*(x.astype(dtype) for x in args), form=form)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == dtype
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-9)])
def test_plain_holds_topics_of_one_word_as_far_apart_as_it_admits(dtype, tolerance):
    """Where scalings differ most: each topic sits on a word of its own."""
    rng = np.random.default_rng(2)
    limit = LIMIT[dtype]
    cost = np.triu(rng.uniform(0.9, 1.0, (9, 9)), 1) * limit
    cost[0, 1] = limit
    cost = (cost + cost.T).astype(dtype)
    assert chosen(jnp.asarray(cost), 1.0) == "plain"
    assert chosen(jnp.asarray(cost), 0.99) == "scaled"
    B = np.full((3, 9), 1e-12)
    B[np.arange(3), np.arange(3)] = 1.0
    lam = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [1e-6, 1e-6, 1.0 - 2e-6]])
    h, probe = np.zeros((3, 3, 9)), rng.normal(size=(3, 9))
    args = [x.astype(dtype) for x in (np.log(B), lam, cost, np.ones(()), h, probe)]
    wide = [x.astype(np.float64) for x in args]
    want = outcome(*wide, form="log")
    got = outcome(*args, form="plain")
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.isfinite(a).all()
        scale = max(np.abs(b).max(), 1e-2)  # the error of a converged loop is 0
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-9)])
@pytest.mark.parametrize("least", [0.5, 0.99])
def test_scaled_holds_topics_as_far_apart_as_it_admits(dtype, tolerance, least):
    """Topics on words of their own, with masses as small as it admits, and absent."""
    rng = np.random.default_rng(3)
    limit, small = SCALED_LIMIT[dtype], {"float32": -63.9, "float64": -199.0}[dtype]
    cost = np.triu(rng.uniform(least, 1.0, (9, 9)), 1) * limit
    cost[0, 1] = limit
    cost = (cost + cost.T).astype(dtype)
    log_B = np.full((3, 9), small)
    log_B[:, 5:7] = [small / 2, -np.inf]
    log_B[np.arange(3), np.arange(3)] = 0.0
    log_B = log_B.astype(dtype)
    assert chosen(jnp.asarray(cost), 1.0, log_B=jnp.asarray(log_B)) == "scaled"
    assert chosen(jnp.asarray(cost), 1.0, log_B=jnp.asarray(1.01 * log_B)) == "log"
    assert chosen(jnp.asarray(cost), 0.99, log_B=jnp.asarray(log_B)) == "log"
    lam = np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [1e-6, 1e-6, 1.0 - 2e-6]])
    h, probe = 20.0 * rng.normal(size=(3, 3, 9)), rng.normal(size=(3, 9))
    args = [x.astype(dtype) for x in (log_B, lam, cost, np.ones(()), h, probe)]
    want = outcome(*(x.astype(np.float64) for x in args), form="log")
    got = outcome(*args, form="scaled")
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert np.isfinite(a).all()
        scale = max(np.abs(b).max(), 1e-2)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def test_scalings_too_large_to_be_numbers_are_taken_as_logs():
    p = problems.problem(num_words=7)
    args = [np.asarray(x, np.float32) for x in (p.log_B, p.lam, p.D, 0.1)]
    D, h = jnp.asarray(args[2]), np.zeros((2, 3, 7), np.float32)
    assert chosen(D, 0.1, jnp.asarray(h)) == "plain"
    h[0, 0] += 95.0  # exp(95) is no float32
    assert chosen(D, 0.1, jnp.asarray(h)) == "scaled"
    probe = np.asarray(p.probe, np.float32)
    got = outcome(*args, h, probe, form="auto")
    want = outcome(*args, h, probe, form="log")
    chex.assert_trees_all_close(got, want, rtol=1e-3, atol=1e-4)


def test_a_sweep_that_one_member_takes_out_of_plain_is_right_for_all():
    p = problems.problem(num_words=7)
    log_B, lam, D = (jnp.asarray(x, jnp.float32) for x in (p.log_B, p.lam, p.D))

    def run(epsilon, form):
        k = kernel.build(D, epsilon, form=form)
        return barycenter(log_B, lam, k, num_iters=5).log_y

    epsilons = jnp.array([0.5, 0.02], jnp.float32)
    traced = chex.assert_max_traces(lambda epsilon: run(epsilon, "auto"), n=1)
    got = jax.jit(jax.vmap(traced))(epsilons)
    want = jax.vmap(functools.partial(run, form="log"))(epsilons)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_work_memory_is_near_what_must_be_kept():
    size = PAPER._replace(batch_size=64)
    args = (*bench_gradient.problem(size).values(), np.float32(0.05))
    fn = functools.partial(bench_gradient.loss, size=size, form="plain")
    work = jax.jit(jax.value_and_grad(fn, (0, 1))).lower(*args).compile()
    kept = 2 * size.num_iters * size.num_topics * size.batch_size * size.num_words * 4
    assert kept < work.memory_analysis().temp_size_in_bytes < 1.3 * kept


def test_times_are_the_best_and_slow_rows_sit_out():
    calls = {"quick": 0, "slow": 0}

    def run(name):
        calls[name] += 1
        return jnp.zeros(())

    runs = {name: functools.partial(run, name) for name in calls}
    assert set(best(runs, rounds=5, seconds=60.0)) == {"quick", "slow"}
    assert calls == {"quick": 5, "slow": 5}
    best(runs, rounds=5, seconds=0.0)
    assert calls == {"quick": 6, "slow": 6}
    assert abs(exponent([1, 10, 100], [3.0, 300.0, 30_000.0]) - 2.0) < 1e-12


def test_the_script_writes_what_it_measured(tmp_path):
    text = bench_report.run(QUICK, ["knn"], str(tmp_path), quick=True)
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["knn"]["same neighbours"] and found["about"]["size"]["num_docs"] == 60
    name = "exact Wasserstein k-NN ahead of POT pair by pair"
    assert found["ratios"] == {name: found["knn"]["ratio"]}
    table = (tmp_path / "bench.md").read_text()
    assert f"| {name} | {found['knn']['ratio']:.2f} |" in table and table == text
