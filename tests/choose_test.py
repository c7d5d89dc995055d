"""Forms are chosen where numbers are known, and a run outlives the one it began in."""

import dataclasses
import functools
import logging

import chex
import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest

from dwl_jax import Config, Hyper, checks, choose, cost, fit, kernel, runner, train
from dwl_jax.documents import from_counts
from dwl_jax.types import UNHELD

COUNTS, _ = problems.counts()
CFG = Config(num_topics=3, dim=3, batch_size=6, num_iters=3, transport_iters=3)
# A step so long that embeddings swing further out each time, and the reach with them.
FLEEING = dataclasses.replace(CFG, scale="none", joint=False)
APART = Hyper(tau=1.0, epsilon=0.03, epsilon_transport=0.06, rate_theta=25.0)
DOCS = from_counts(COUNTS, dtype=np.float64)


@pytest.mark.parametrize("scale", ["mean", "none"])
@pytest.mark.parametrize("squared", [False, True])
def test_extent_is_that_of_the_matrix(scale, squared):
    X = np.random.default_rng(0).normal(size=(7, 3))
    D = cost.scale(cost.distance_matrix(jnp.asarray(X), squared=squared), scale)
    off = np.asarray(D)[~np.eye(7, dtype=bool)]
    cfg = dataclasses.replace(CFG, scale=scale, squared=squared)
    np.testing.assert_allclose(choose.extent(X, cfg), (off.min(), off.max()), 1e-12)
    assert choose.extent(X[:1], cfg) == (0.0, 0.0)
    assert choose.extent(0.0 * X, cfg) == (0.0, 0.0)


@pytest.mark.parametrize("epsilon", [0.5, 0.04, 0.012, 0.001])
def test_the_host_chooses_what_the_device_would(epsilon):
    X = np.random.default_rng(1).normal(size=(9, 40)).astype(np.float32)
    R = np.random.default_rng(2).normal(size=(3, 9)).astype(np.float32)
    hyper = Hyper(tau=0.5, epsilon=epsilon, epsilon_transport=epsilon)
    got = choose.settle(CFG, X, R, hyper)

    @jax.jit
    def run(X, epsilon):
        D = cost.scale(cost.distance_matrix(X))
        topics, plans = (kernel.build(D**tau, epsilon) for tau in (0.5, 1.0))
        in_form = lambda k: jnp.asarray(["plain", "scaled", "log"].index(k.form))
        log_B = jax.nn.log_softmax(R)
        return kernel.resolve(topics, in_form, log_B), kernel.resolve(plans, in_form)

    want = [("plain", "scaled", "log")[int(place)] for place in run(X, epsilon)]
    assert [got.kernel, got.transport_kernel] == want
    assert choose.settle(got, X, R, Hyper(epsilon=1e-6)) is got  # what is said stays


def test_what_is_traced_keeps_its_branch():
    X, R = np.eye(5, 3), np.zeros((3, 5))
    seen = []
    jax.jit(lambda X: seen.append(choose.settle(CFG, X, R, Hyper())))(X)
    jax.vmap(lambda t: seen.append(choose.settle(CFG, X, R, Hyper(tau=t))))(np.ones(2))
    assert seen == [CFG, CFG]


def test_fit_compiles_one_form():
    """No branch is left, and nothing runs in the log domain."""
    seen = []

    def run(state, cfg, num_epochs):
        seen.append(cfg)
        args = (task.key, state, task.docs, task.hyper)
        step = functools.partial(train.run_epochs, cfg=cfg, num_epochs=num_epochs)
        found = problems.equations(jax.make_jaxpr(step)(*args))
        assert not [eqn for eqn in found if eqn.primitive.name == "cond"]
        return step(*args)

    task = train.prepare(jax.random.key(0), COUNTS, Hyper(), cfg=CFG)
    choose.train(run, task.state, task.hyper, CFG, 2)
    assert [(cfg.kernel, cfg.transport_kernel) for cfg in seen] == [("plain", "plain")]


def test_forms_only_rise_within_a_call():
    form = lambda k, t: dataclasses.replace(CFG, kernel=k, transport_kernel=t)
    plain, scaled = form("plain", "plain"), form("scaled", "plain")
    assert choose.higher(plain, CFG, scaled) == scaled
    assert choose.higher(scaled, CFG, plain) == form("log", "log")  # no way back
    assert choose.higher(plain, CFG, plain) == form("scaled", "log")
    last = form("log", "log")
    assert choose.higher(last, CFG, plain) == last
    given = form("plain", "auto")
    assert choose.higher(plain, given, plain) == form("plain", "log")
    assert choose.higher(form("plain", "log"), given, scaled) == form("plain", "log")


def test_embeddings_that_drive_apart_go_on_in_the_next_form(caplog):
    """No epoch is lost and no number is NaN: as if `log` had run all the way."""
    key, epochs = jax.random.key(3), 4
    sizes = {"num_epochs": epochs, "num_words": 12}
    with caplog.at_level(logging.INFO, logger="absl"):
        state, info = fit(key, DOCS, APART, cfg=FLEEING, **sizes)
    assert "going on from there in another form" in caplog.text
    slow = dataclasses.replace(FLEEING, kernel="log", transport_kernel="log")
    want, want_info = fit(key, DOCS, APART, cfg=slow, **sizes)
    assert int(state.epoch) == epochs and int(state.batch) == 0 and bool(state.finite)
    assert info.loss.shape == want_info.loss.shape and not info.fault.any()
    chex.assert_tree_all_finite((state.params, info))
    np.testing.assert_allclose(info.loss, want_info.loss, rtol=1e-6)
    np.testing.assert_allclose(state.params.theta, want.params.theta, rtol=1e-5)
    again, _ = fit(key, DOCS, APART, cfg=FLEEING, **sizes)
    chex.assert_trees_all_equal(state, again)


def test_a_run_that_outgrows_its_form_is_resumed_with_the_same_bits(tmp_path, caplog):
    task = train.prepare(jax.random.key(3), DOCS, APART, cfg=FLEEING, num_words=12)
    run = functools.partial(runner.run, task, cfg=FLEEING, num_epochs=5)
    with caplog.at_level(logging.INFO, logger="absl"):
        whole = run().state
    assert "going on from there in another form" in caplog.text
    for last in (3, 4):
        asked = iter(range(1, 10))
        stop = lambda asked=asked, last=last: next(asked) == last
        assert run(folder=tmp_path / str(last), stop=stop).stopped
        second = run(folder=tmp_path / str(last), resume=True).state
        jax.tree.map(np.testing.assert_array_equal, second, whole)


def test_a_form_that_was_asked_for_and_cannot_hold_is_named():
    cfg = dataclasses.replace(FLEEING, kernel="plain", transport_kernel="plain")
    with pytest.raises(checks.NonFiniteError, match="forms 'plain' and") as e:
        fit(jax.random.key(3), DOCS, APART, cfg=cfg, num_epochs=4, num_words=12)
    fault = e.value.info.fault
    assert fault[fault != 0][0] == UNHELD
    assert all(np.isfinite(x).all() for x in e.value.state.params)
