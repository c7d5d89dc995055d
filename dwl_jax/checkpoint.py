"""Checkpoints of a run (orbax), whole or not there, and checked before they are used.

A checkpoint is written under another name, with a manifest that has a checksum of every
file, and then moved to `epoch-00000012`. Restoring takes the newest one whose manifest
holds; damaged ones are passed over with a warning. Every process of a run must call
these functions; the arrays may be spread over all of them.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any

import jax
from absl import logging

from dwl_jax import parallel
from dwl_jax.io import file_sha256
from dwl_jax.types import State

_NAME = re.compile(r"epoch-(\d{8})")
_PARTIAL = "partial-"
_MANIFEST = "manifest.json"
_NONE = -1


class CheckpointError(RuntimeError):
    """A checkpoint could not be written; the ones before it are untouched."""


def _orbax():
    """The orbax package, or how to get it."""
    try:
        import orbax.checkpoint as ocp
    except ImportError as error:
        raise ImportError(
            "checkpoints need orbax-checkpoint: pip install 'dwl-jax[train]'"
        ) from error
    return ocp


def epochs(folder: str | os.PathLike) -> list[int]:
    """Epochs that have a checkpoint, good or damaged, in order."""
    if not os.path.isdir(folder):
        return []
    found = (_NAME.fullmatch(name) for name in os.listdir(folder))
    return sorted(int(match[1]) for match in found if match)


def save(folder: str | os.PathLike, state: State, *, keep: int = 3) -> str:
    """Writes a checkpoint of a State, then removes all but the newest `keep`.

    Args:
      folder: of this run's checkpoints; made if it is not there.
      state: with the number of epochs done, which names the checkpoint.
      keep: how many stay, at least 1.

    Returns:
      The path of the checkpoint.

    Raises:
      CheckpointError: if it could not be written. What was there before is still there.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, got {keep}.")
    folder, epoch, first = (
        os.path.abspath(folder),
        int(state.epoch),
        parallel.is_first(),
    )
    part = os.path.join(folder, f"{_PARTIAL}{epoch:08d}")
    path = os.path.join(folder, f"epoch-{epoch:08d}")
    ocp = _orbax()
    try:
        if first:
            os.makedirs(folder, exist_ok=True)
            shutil.rmtree(part, ignore_errors=True)
            os.mkdir(part)
        parallel.wait("checkpoint begins")
        with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as writer:
            tree = ocp.args.StandardSave(_named(state))
            writer.save(os.path.join(part, "state"), args=tree)
        if first:
            _write_manifest(part)
            shutil.rmtree(path, ignore_errors=True)
            os.rename(part, path)
            for old in epochs(folder)[:-keep]:
                shutil.rmtree(os.path.join(folder, f"epoch-{old:08d}"))
        parallel.wait("checkpoint done")
    except Exception as error:  # orbax and tensorstore raise many kinds
        shutil.rmtree(part, ignore_errors=True)
        last = good_epoch(folder) if first else None
        kept = "there is none before it" if last is None else f"the last is of {last}"
        raise CheckpointError(
            f"no checkpoint of epoch {epoch} in {folder} ({kept}): {error}"
        ) from error
    return path


def restore(folder: str | os.PathLike, like: State) -> State | None:
    """The State of the newest good checkpoint, or None if there is none.

    Args:
      folder: of the run's checkpoints.
      like: a State of the same run: shapes, dtypes, and where the arrays shall live.
        Rows that only fill up the devices' shares may be more or fewer than saved.

    Raises:
      ValueError: if the newest good checkpoint is of another kind of run.
    """
    folder = os.path.abspath(folder)
    epoch = good_epoch(folder) if parallel.is_first() else None
    epoch = parallel.agree(_NONE if epoch is None else epoch)
    if epoch == _NONE:
        return None
    ocp = _orbax()
    path = os.path.join(folder, f"epoch-{epoch:08d}", "state")
    want = _named(like)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as reader:
        saved = reader.metadata(path).item_metadata
        _check_kind(path, saved, want)
        want = jax.tree.map(_abstract, want)
        found = reader.restore(path, args=ocp.args.StandardRestore(want, strict=False))
    leaves = [found[name] for name in _names(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def good_epoch(folder: str | os.PathLike) -> int | None:
    """The newest epoch whose checkpoint is whole; a warning for each that is not."""
    for epoch in reversed(epochs(folder)):
        problem = _problem(os.path.join(folder, f"epoch-{epoch:08d}"))
        if problem is None:
            return epoch
        logging.warning("checkpoint of epoch %d is damaged: %s", epoch, problem)
    return None


def clean(folder: str | os.PathLike) -> None:
    """Removes what a killed run left half written; only the first process does."""
    if parallel.is_first() and os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.startswith(_PARTIAL):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    parallel.wait("checkpoints cleaned")


def _files(path: str) -> dict[str, str]:
    """Relative path of every file in a checkpoint, but the manifest -> full path."""
    found = {}
    for folder, _, names in os.walk(path):
        for name in names:
            full = os.path.join(folder, name)
            found[os.path.relpath(full, path)] = full
    found.pop(_MANIFEST, None)
    return found


def _write_manifest(path: str) -> None:
    manifest = {name: file_sha256(full) for name, full in _files(path).items()}
    with open(os.path.join(path, _MANIFEST), "w", encoding="ascii") as handle:
        json.dump(manifest, handle, indent=1)
        handle.flush()
        os.fsync(handle.fileno())


def _problem(path: str) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        with open(os.path.join(path, _MANIFEST), encoding="ascii") as handle:
            manifest = json.load(handle)
        files = _files(path)
        if not isinstance(manifest, dict) or set(manifest) != set(files):
            return "files are missing or added"
        for name, full in files.items():
            if file_sha256(full) != manifest[name]:
                return f"{name} has changed"
    except (OSError, ValueError) as error:
        return str(error)
    return None


def _names(state: State) -> list[str]:
    paths, _ = jax.tree_util.tree_flatten_with_path(state)
    return [jax.tree_util.keystr(path) for path, _ in paths]


def _named(state: State) -> dict[str, jax.Array]:
    return dict(zip(_names(state), jax.tree.leaves(state), strict=True))


def _abstract(x: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)


def _check_kind(path: str, saved: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    """ValueError unless names, dtypes and all but the number of rows agree."""
    if set(saved) != set(want):
        odd = sorted(set(saved) ^ set(want))
        raise ValueError(f"{path} is of another kind of run: {', '.join(odd[:5])}.")
    for name, x in want.items():
        shape = tuple(saved[name].shape)
        if saved[name].dtype != x.dtype or shape[1:] != x.shape[1:]:
            raise ValueError(
                f"{path} is of another run: {name} is {saved[name].dtype} {shape}, "
                f"expected {x.dtype} {x.shape}."
            )
