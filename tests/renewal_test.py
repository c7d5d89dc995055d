"""A kernel that is made every few steps: what moves when, and from the host as well."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import counts

from dwl_jax import Config, Hyper, objective, train
from dwl_jax.documents import dense
from dwl_jax.mesh import take
from dwl_jax.objective import Batch

M, N = 22, 12
CFG = Config(num_topics=2, dim=3, batch_size=4, num_iters=1, squared=True, renew=4,
             kernel="plain", transport_kernel="plain")  # fmt: skip
HYPER = Hyper(epsilon=0.3)


@pytest.fixture(autouse=True, scope="module")
def few_words_are_many():
    """So that kernels are held and transports are on supports, at a size for tests."""
    with mock.patch.object(objective, "FEW_WORDS", 1):
        jax.clear_caches()
        yield
    jax.clear_caches()


def task(cfg=CFG):
    return train.prepare(jax.random.key(0), counts()[0], HYPER, cfg=cfg)


def run(cfg=CFG, num_epochs=2, state=None):
    t = task(cfg)
    return train.run_epochs(
        t.key, t.state if state is None else state, t.docs, t.hyper,
        cfg=cfg, num_epochs=num_epochs,
    )  # fmt: skip


def by_hand(cfg, turn):
    """An epoch as a loop: six batches, the kernel made anew every `turn` of them."""
    t = task(cfg)
    order = np.asarray(jax.random.permutation(jax.random.fold_in(t.key, 0), M))
    order = np.concatenate([order, [M, M]]).reshape(6, 4)
    state, infos, k = t.state, [], None

    @jax.jit
    def advance(state, rows, k):
        docs = take(t.docs, rows)
        mask = (rows < M).astype(docs.mass.dtype)
        batch = Batch(rows, mask, dense(docs, N), None, docs)
        return train.advance(state, batch, t.hyper, k, cfg=cfg, lasts=turn)

    for i, rows in enumerate(order):
        k = None if i % turn == 0 else k
        state, info, k = advance(state, jnp.asarray(rows), k)
        infos.append(info)
    return state, jax.tree.map(lambda *x: np.stack(x), *infos)


def test_turns_are_alike_and_no_longer_than_asked():
    for renew in (1, 2, 3, 4, 8, 100):
        cfg = dataclasses.replace(CFG, renew=renew)
        for number in range(1, 40):
            turn = train.turn(number, cfg)
            assert 1 <= turn <= renew
            turns = -(-number // turn)
            assert turns == -(-number // renew)
            assert turns * turn - number < turns


@pytest.mark.parametrize(("renew", "turn"), [(4, 3), (100, 6)])
def test_an_epoch_is_its_steps_with_a_kernel_made_every_few(renew, turn):
    """Of six batches at most `renew` share a kernel, in turns that are alike."""
    cfg = dataclasses.replace(CFG, renew=renew)
    state, info = run(cfg, num_epochs=1)
    want, want_info = by_hand(cfg, turn)
    assert info.loss.shape == (1, 6)
    for a, b in zip(state.params, want.params, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(info.loss[0], want_info.loss, rtol=1e-4)


def test_embeddings_follow_the_loss_only_when_the_kernel_is_made():
    cfg = dataclasses.replace(CFG, step="none")
    state, _ = by_hand(cfg, 6)
    always, _ = by_hand(cfg, 1)
    assert int(state.opt_theta.count) == 1 and int(always.opt_theta.count) == 6
    start = task(cfg).state.params.theta
    assert np.abs(state.params.theta - start).max() > 0.01


def test_the_laplacian_step_acts_when_the_kernel_is_made_for_all_that_share_it():
    cfg = dataclasses.replace(CFG, joint=False)
    _, info = run(dataclasses.replace(cfg, renew=3), num_epochs=1)
    assert (info.energy > 0.0).all() and len(np.unique(info.energy)) == 2
    assert len(np.unique(info.transport_error)) == 2
    start = task(cfg).state.params.theta
    moved = lambda turn: by_hand(cfg, turn)[0].params.theta - start
    # One step of six times the rate goes about as far as six.
    np.testing.assert_allclose(
        np.linalg.norm(moved(6)), np.linalg.norm(moved(1)), rtol=0.5
    )


def test_the_anchor_pulls_as_often_as_there_are_steps():
    cfg, t = dataclasses.replace(CFG, joint=False, step="none"), task()
    away = t.state._replace(theta_start=t.state.theta_start + 1.0)
    batch = Batch(
        jnp.arange(4), jnp.ones(4), dense(take(t.docs, jnp.arange(4)), N), None
    )
    hyper = t.hyper._replace(anchor=jnp.asarray(0.1))
    how = {"cfg": cfg, "lasts": 3}
    state, _, _ = train.advance(away, batch, hyper, **how)
    moved = state.params.theta - away.params.theta
    np.testing.assert_allclose(moved, 1.0 - 0.9**3, rtol=1e-5)


def test_an_empty_last_place_changes_nothing():
    """Five batches in turns of three leave one place without documents."""
    docs = counts()[0][:18]
    for renew in (1, 4):
        cfg = dataclasses.replace(CFG, renew=renew, joint=False, step="none")
        t = train.prepare(jax.random.key(0), docs, HYPER, cfg=cfg)
        args = (t.key, t.state, t.docs, t.hyper)
        state, info = train.run_epochs(*args, cfg=cfg, num_epochs=2)
        assert info.loss.shape == (2, 5) and np.isfinite(info.loss).all()
        if renew == 1:  # embeddings stay, and so does the kernel, however often made
            want = state
        np.testing.assert_allclose(state.params.A, want.params.A, rtol=1e-4, atol=1e-5)
        assert int(state.epoch) == 2 and int(state.batch) == 0


def test_a_resumed_run_has_the_same_bits():
    whole, _ = run(num_epochs=3)
    state, _ = run(num_epochs=1)
    state, _ = run(num_epochs=1, state=state)
    state, _ = run(num_epochs=1, state=state)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("renew", [0, -1, 1.5])
def test_a_number_of_steps_that_is_none_is_named(renew):
    with pytest.raises(ValueError, match="Config.renew"):
        dataclasses.replace(CFG, renew=renew)
