"""Runs that take turns under vmap are the runs by themselves."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import problems

from dwl_jax import lanes, presets, train


def test_lanes_take_turns_and_share_what_they_have_in_common():
    fn = lambda x, pair: (x * pair["a"], pair["b"] + 1.0)
    pair = {"a": jnp.arange(3.0), "b": jnp.ones(())}
    run = jax.vmap(lanes.in_turn(fn), (None, {"a": 0, "b": None}))
    got = jax.jit(run)(jnp.full((2,), 2.0), pair)
    want = jax.vmap(fn, (None, {"a": 0, "b": None}))(jnp.full(2, 2.0), pair)
    chex.assert_trees_all_equal(got, want)
    eqns = list(problems.equations(jax.make_jaxpr(run)(jnp.ones(2), pair)))
    assert [e.params["length"] for e in eqns if e.primitive.name == "scan"] == [3]


def test_a_sweep_of_whole_runs_is_each_run():
    counts, _ = problems.counts()
    cfg, hyper, _ = presets.default(num_topics=2, dim=3, batch_size=8, num_iters=3)
    key = jax.random.key(0)
    *task, _ = train.prepare(key, counts, hyper, cfg=cfg)

    def run(tau):
        key, state, docs, hyper, labels = task
        hyper = hyper._replace(tau=tau)
        return train.run_epochs(key, state, docs, hyper, labels, cfg=cfg, num_epochs=2)

    taus = jnp.array([0.3, 1.0], task[2].mass.dtype)
    states, infos = jax.jit(jax.vmap(run))(taus)
    for place, tau in enumerate(taus):
        state, info = run(tau)
        np.testing.assert_allclose(infos.loss[place], info.loss, rtol=1e-5)
        got = jax.tree.map(lambda x, place=place: x[place], states.params)
        chex.assert_trees_all_close(got, state.params, rtol=1e-3, atol=1e-4)
    assert np.abs(infos.loss[0] - infos.loss[1]).max() > 1e-5
