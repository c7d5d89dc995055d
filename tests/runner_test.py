"""The host loop: stop and resume anywhere, stop at the step that is not finite."""

import dataclasses
import json
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dwl_jax import Config, Hyper, checks, fit, run_epochs, runner, train, types

CFG = Config(
    num_topics=3, dim=4, batch_size=8, num_iters=4, transport_iters=4, kernel="plain"
)


def counts(num_docs=21, num_words=9):
    rng = np.random.default_rng(0)
    return rng.poisson(0.5, (num_docs, num_words)) + np.eye(num_docs, num_words)


def prepare(hyper=Hyper(), cfg=CFG, **kwargs):  # noqa: B008 - a tuple
    Y = counts()
    Y[:, 0] += Y.sum(axis=1) == 0
    return train.prepare(jax.random.key(3), Y, hyper, cfg=cfg, **kwargs)


def assert_same(a, b):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def test_the_loop_is_run_epochs():
    task = prepare()
    seen = []
    ended = runner.run(
        task, cfg=CFG, num_epochs=3, watch=lambda e, info: seen.append((e, info.loss))
    )
    *args, num_labels = task
    state, info = run_epochs(*args, cfg=CFG, num_epochs=3, num_labels=num_labels)
    assert not ended.stopped
    assert [e for e, _ in seen] == [0, 1, 2]
    np.testing.assert_allclose([x for _, x in seen], info.loss, rtol=1e-5)
    for got, want in zip(ended.state.params, state.params, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert jax.tree.leaves(task.state)[0].sum() is not None  # still the caller's


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, stop_at):
    labels = np.arange(21) % 2
    task = prepare(Hyper(label_weight=1.0), CFG, labels=labels)
    args = {"cfg": CFG, "num_epochs": 5}
    whole = runner.run(task, **args).state
    asked = iter(range(1, 10))
    stop = lambda: next(asked) == stop_at
    first = runner.run(task, folder=tmp_path, save_every=3, stop=stop, **args)
    assert first.stopped
    assert int(first.state.epoch) == stop_at
    second = runner.run(task, folder=tmp_path, save_every=3, resume=True, **args)
    assert not second.stopped
    assert_same(second.state, whole)


def test_checkpoints_come_when_due(tmp_path):
    task = prepare()
    runner.run(task, cfg=CFG, num_epochs=5, folder=tmp_path, save_every=2, keep=9)
    assert sorted(os.listdir(tmp_path)) == [f"epoch-{e:08d}" for e in (2, 4, 5)]


def poisoned(bad_step, steps):
    """The KL loss, which is NaN from the given step on. Steps count on the host."""

    def count(_):
        steps.append(len(steps))
        return np.float32(steps[-1])

    def loss(y, log_y):
        step = jax.pure_callback(count, jax.ShapeDtypeStruct((), "f4"), y[0, 0])
        value = -jnp.sum(y * jax.nn.log_softmax(log_y, axis=-1), axis=-1)
        return value + jnp.where(step >= bad_step, jnp.nan, 0.0).astype(value.dtype)

    return loss


def test_a_loss_that_is_not_finite_stops_the_run_at_that_step():
    """3 batches an epoch: step 5 is batch 2 of epoch 1. The state is that of step 4."""
    steps, seen = [], []
    cfg = Config(**(CFG.__dict__ | {"loss": poisoned(5, steps)}))
    task = prepare(cfg=cfg)
    with pytest.raises(checks.NonFiniteError) as caught:
        watch = lambda epoch, info: seen.append(info.fault)
        runner.run(task, cfg=cfg, num_epochs=4, watch=watch)
    for part in ("the loss", "epoch 1, batch 2", "epsilon", "kernel", "64 bit", "clip"):
        assert part in str(caught.value)
    assert len(seen) == 2  # no further epoch
    assert not (seen[0].any() or seen[1][:2].any())
    good = caught.value.state
    assert int(good.epoch) == 1
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(good))

    steps.clear()  # now the five good steps alone
    state = runner.run(task, cfg=cfg, num_epochs=1).state
    order = jax.random.permutation(jax.random.fold_in(task.key, 1), 21)
    step = jax.jit(train.step, static_argnames="cfg")
    for rows in (order[:8], order[8:16]):
        y = train.dense(jax.tree.map(lambda x, r=rows: x[r], task.docs), 9)
        batch = train.Batch(rows, jnp.ones(8, y.dtype), y, None)
        state, info = step(state, batch, task.hyper, cfg=cfg)
        assert int(info.fault) == 0
    for got, want in zip(good.params, state.params, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "hyper, fault",
    [
        (Hyper(rate_A=3.4e38), "A or its gradient"),
        (Hyper(rate_theta=1e38), "theta after the embedding step"),
        (Hyper(rate_joint=3.4e38), "theta after the embedding step"),
        (Hyper(rate_R=3.4e38), "R or its gradient"),
    ],
)
def test_fit_names_what_overflowed(hyper, fault):
    assert fault in types.FAULTS
    with pytest.raises(checks.NonFiniteError, match=fault) as caught:
        fit(jax.random.key(0), counts(), hyper, cfg=CFG, num_epochs=4)
    state = caught.value.state
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(state))


def test_faults_are_bits_in_order():
    good, bad = jnp.ones(3), {"a": jnp.ones(2), "b": jnp.array([1.0, -jnp.inf])}
    assert int(checks.faults(good, [], good)) == 0
    assert int(checks.faults(good, bad, jnp.nan)) == 0b110


def test_clipping_bounds_the_step():
    """With plain gradient descent a step has the rate times the clipped norm."""
    names = ("optimizer_A", "optimizer_R", "optimizer_theta")
    norm = lambda x: np.sqrt((np.asarray(x) ** 2).sum())
    for clip in (1e-3, 1e9):
        bound = dict.fromkeys(names, optax.clip_by_global_norm(clip))
        cfg = dataclasses.replace(CFG, **bound, step="none", batch_size=21)
        task = prepare(Hyper(rate_A=1.0, rate_R=1.0, rate_joint=1.0), cfg)
        *args, _ = task
        state, info = run_epochs(*args, cfg=cfg, num_epochs=1)
        info = jax.tree.map(lambda x: x[0], info)
        moved = jax.tree.map(lambda a, b: a - b, state.params, task.state.params)
        want = min(clip, float(info.grad_norm[0]))
        np.testing.assert_allclose(norm(moved.R), want, rtol=1e-3)
        rows = np.sqrt((np.asarray(moved.A) ** 2).sum(axis=1))
        assert (rows <= clip * (1 + 1e-3)).all()
        assert norm(moved.theta) <= clip * (1 + 1e-3)


def test_metrics_after_a_resume_are_those_of_one_run(tmp_path):
    info = types.Info(*(np.arange(2.0) for _ in types.Info._fields))
    for folder, epochs in (("whole", [[0, 1, 2]]), ("parts", [[0, 1, 2], [1, 2]])):
        os.mkdir(tmp_path / folder)
        for part in epochs:
            metrics = runner.Metrics(tmp_path / folder)
            for epoch in part:
                metrics(epoch, info)
            metrics.close()
            with open(tmp_path / folder / "metrics.jsonl", "a") as handle:
                handle.write('{"epoch": 2, "torn')  # what a kill may leave
    whole, parts = (tmp_path / f / "metrics.jsonl" for f in ("whole", "parts"))
    assert whole.read_text() == parts.read_text()
    rows = [json.loads(line) for line in whole.read_text().splitlines()[:-1]]
    assert [r["step"] for r in rows] == [0, 1, 2, 3, 4, 5]
    assert any((tmp_path / "whole" / "tensorboard").iterdir())


def test_metrics_hold_numbers_that_are_not_finite_as_text(tmp_path):
    bad = types.Info(*(np.array([np.nan, np.inf]) for _ in types.Info._fields))
    metrics = runner.Metrics(tmp_path)
    metrics(0, bad)
    metrics.close()
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    refuse = lambda name: pytest.fail(f"{name} is not JSON")
    assert json.loads(rows[0], parse_constant=refuse)["loss"] == "nan"


def test_a_signal_asks_and_the_second_one_acts():
    # A shell's background job inherits SIGINT ignored: begin from Python's handler.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with runner.Signals() as stop:
        assert not stop()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop()
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)
