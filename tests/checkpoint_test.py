"""Checkpoints: whole or passed over, and never at the cost of the one before."""

import json
import logging as std_logging
import os
import resource
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dwl_jax import Config, checkpoint, embedding, init

CFG = Config(num_topics=3, dim=4)


def state(epoch, num_docs=10, cfg=CFG, **kwargs):
    new = init(jax.random.key(epoch), num_docs, 6, cfg=cfg, **kwargs)
    return new._replace(epoch=jnp.asarray(epoch, jnp.int32))


def assert_same(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("case", ["plain", "features", "float64", "sgd"])
def test_what_is_restored_is_what_was_saved(tmp_path, case):
    kwargs = {}
    if case == "features":
        cfg = Config(num_topics=3, dim=4, embedding=embedding.mlp(5))
        kwargs = {"cfg": cfg, "features": np.ones((6, 2))}
    if case == "float64":
        kwargs = {"dtype": jnp.float64}
    if case == "sgd":  # an optimiser without any state
        names = ("optimizer_A", "optimizer_R", "optimizer_theta")
        kwargs = {"cfg": Config(num_topics=3, dim=4, **dict.fromkeys(names, "sgd"))}
    saved = state(7, **kwargs)
    checkpoint.save(tmp_path / "c", saved)
    assert_same(checkpoint.restore(tmp_path / "c", state(0, **kwargs)), saved)


def test_none_is_found_where_there_is_none(tmp_path):
    assert checkpoint.restore(tmp_path / "c", state(0)) is None
    (tmp_path / "c").mkdir()
    assert checkpoint.restore(tmp_path / "c", state(0)) is None


def test_the_newest_few_are_kept(tmp_path):
    for epoch in (1, 2, 9, 10, 11):
        checkpoint.save(tmp_path, state(epoch), keep=2)
    assert checkpoint.epochs(tmp_path) == [10, 11]
    assert_same(checkpoint.restore(tmp_path, state(0)), state(11))


def flip(path):
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


DAMAGE = {
    "flipped bit": flip,
    "cut short": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "removed": os.remove,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_to_any_file_is_seen_and_the_one_before_is_used(tmp_path, name, caplog):
    for epoch in (1, 2):
        checkpoint.save(tmp_path / "good", state(epoch))
    newest = tmp_path / "good" / "epoch-00000002"
    files = [p.relative_to(newest) for p in newest.rglob("*") if p.stat().st_size]
    files = [p for p in files if (newest / p).is_file()]
    assert len(files) > 5
    for file in files:
        shutil.rmtree(tmp_path / "bad", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "bad")
        DAMAGE[name](tmp_path / "bad" / "epoch-00000002" / file)
        caplog.clear()
        with caplog.at_level(std_logging.WARNING):
            assert checkpoint.good_epoch(tmp_path / "bad") == 1, file
        assert "epoch 2 is damaged" in caplog.text
    assert_same(checkpoint.restore(tmp_path / "bad", state(0)), state(1))


def test_an_added_file_and_a_foreign_manifest_are_seen(tmp_path):
    for epoch in (1, 2, 3):
        checkpoint.save(tmp_path, state(epoch))
    (tmp_path / "epoch-00000003" / "state" / "more").write_text("x")
    (tmp_path / "epoch-00000002" / "manifest.json").write_text(json.dumps([1]))
    (tmp_path / "epoch-5").mkdir()  # not a name of ours
    assert checkpoint.good_epoch(tmp_path) == 1


def test_what_a_killed_run_left_is_no_checkpoint(tmp_path):
    checkpoint.save(tmp_path, state(1))
    part = tmp_path / "partial-00000002"
    shutil.copytree(tmp_path / "epoch-00000001", part)
    assert checkpoint.epochs(tmp_path) == [1]
    checkpoint.clean(tmp_path)
    assert not part.exists()
    shutil.copytree(tmp_path / "epoch-00000001", part)
    checkpoint.save(tmp_path, state(2))  # the same epoch again, over the remains
    assert_same(checkpoint.restore(tmp_path, state(0)), state(2))


def test_another_run_is_refused(tmp_path):
    checkpoint.save(tmp_path, state(1))
    with pytest.raises(ValueError, match="opt_R"):
        other = Config(num_topics=3, dim=4, optimizer_R="sgd")
        checkpoint.restore(tmp_path, state(0, cfg=other))
    with pytest.raises(ValueError, match="theta"):
        checkpoint.restore(tmp_path, state(0, cfg=Config(num_topics=3, dim=5)))
    with pytest.raises(ValueError, match="float32"):
        checkpoint.restore(tmp_path, state(0, dtype=jnp.float64))


def test_a_full_disk_leaves_the_last_good_one(tmp_path):
    """The kernel refuses to let files grow, as it does on a full disk."""
    big = lambda epoch: state(epoch, num_docs=40_000)
    checkpoint.save(tmp_path, big(1), keep=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    try:
        with pytest.raises(checkpoint.CheckpointError, match="epoch 2.*last is of 1"):
            checkpoint.save(tmp_path, big(2), keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["epoch-00000001"]
    assert_same(checkpoint.restore(tmp_path, big(0)), big(1))
    checkpoint.save(tmp_path, big(2), keep=1)  # and goes on when there is room again
    assert checkpoint.epochs(tmp_path) == [2]


def test_no_space_is_named_and_nothing_is_lost(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, state(1), keep=1)

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "_write_manifest", full)
    with pytest.raises(checkpoint.CheckpointError, match="No space left"):
        checkpoint.save(tmp_path, state(2), keep=1)
    assert os.listdir(tmp_path) == ["epoch-00000001"]


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(checkpoint.CheckpointError, match="there is none before it"):
        checkpoint.save(tmp_path / "file" / "c", state(1))
    with pytest.raises(ValueError, match="keep"):
        checkpoint.save(tmp_path, state(1), keep=0)
