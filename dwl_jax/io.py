"""Models that travel: a folder of plain arrays and JSON, and nothing that is run.

`model.json` holds words, settings and versions, `arrays.npz` the topics and embeddings.
Loading trusts neither: every size is checked against the other file before memory is
taken for it, and whatever does not fit is a ValueError that names the file.
"""

import hashlib
import json
import os
import shutil
import stat
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import logging

from dwl_jax import checks, embedding
from dwl_jax.data.corpus import KINDS
from dwl_jax.settings import (
    config_from_json,
    config_to_json,
    hyper_from_json,
    hyper_to_json,
)
from dwl_jax.types import Config, Hyper, Model
from dwl_jax.versions import versions

_FORMAT = "dwl_jax.model/1"
_JSON, _ARRAYS = "model.json", "arrays.npz"
_MAX_JSON = 1 << 28  # bytes
_KEYS = {
    "format": str,
    "vocab": list,
    "kinds": list,
    "descriptions": list,
    "config": dict,
    "hyper": dict,
    "versions": dict,
    "extra": dict,
    "arrays": dict,
    "sha256": str,
}


class SavedModel(NamedTuple):
    """A model and all that `infer` and a reader need with it."""

    model: Model
    cfg: Config
    hyper: Hyper
    vocab: tuple[str, ...]
    kinds: tuple[str, ...]
    descriptions: tuple[str, ...]
    versions: Mapping[str, str]  # what it was made with
    extra: Mapping[str, Any]  # what else the maker noted, plain JSON

    @property
    def ground(self) -> jax.Array:
        """Embeddings as the ground cost sees them, [N, dim]; see `embedding.beside`."""
        return embedding.ground(jax.numpy.asarray(self.model.X), self.cfg.embedding)


def save_model(
    path: str | os.PathLike,
    model: Model,
    *,
    cfg: Config,
    hyper: Hyper,
    vocab: Sequence[str],
    kinds: Sequence[str] | None = None,
    descriptions: Sequence[str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Writes a model as a folder that `load_model` reads.

    The folder is written beside its place and then moved there. A model that is already
    at `path` is replaced; any other file or folder there is an error.

    Example:
      `save_model("model", model(state, cfg), cfg=cfg, hyper=hyper, vocab=corpus.vocab)`

    Args:
      path: folder to make.
      model: topics and embeddings, all finite.
      cfg: as in training. Its loss and optimisers must be named ones, and its embedding
        map one of this package: code does not travel.
      hyper: as in training, scalars.
      vocab: N distinct words.
      kinds: N of "disease", "procedure", "word"; "word" if not given.
      descriptions: N texts; "" if not given.
      extra: anything that JSON can hold.

    Raises:
      ValueError: for what cannot be stored, naming it.
      FileExistsError: if `path` is something else than a model.
    """
    path, N = os.path.abspath(path), len(vocab)
    arrays = {"log_B": np.asarray(model.log_B), "X": np.asarray(model.X)}
    meta = {
        "format": _FORMAT,
        "vocab": [str(word) for word in vocab],
        "kinds": list(kinds or ["word"] * N),
        "descriptions": [str(text) for text in descriptions or [""] * N],
        "config": config_to_json(cfg),
        "hyper": hyper_to_json(hyper.at(model.epsilon)),
        "versions": versions(),
        "extra": dict(extra or {}),
        "arrays": {
            name: {"shape": list(x.shape), "dtype": x.dtype.name}
            for name, x in arrays.items()
        },
    }
    _check(meta, arrays)
    if os.path.lexists(path) and not os.path.isfile(os.path.join(path, _JSON)):
        raise FileExistsError(f"{path}: exists and is not a model.")
    part = f"{path}.part-{os.getpid()}"
    os.makedirs(part)
    try:
        with open(os.path.join(part, _ARRAYS), "wb") as handle:
            np.savez(handle, **arrays)
        meta["sha256"] = file_sha256(os.path.join(part, _ARRAYS))
        with open(os.path.join(part, _JSON), "w", encoding="ascii") as handle:
            json.dump(meta, handle, indent=1, allow_nan=False)
        old = f"{part}-old"
        if os.path.lexists(path):
            os.rename(path, old)
        os.rename(part, path)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def load_model(path: str | os.PathLike) -> SavedModel:
    """Reads what `save_model` wrote; `infer` gives the same bits as before saving.

    Raises:
      ValueError: for a folder that is not a saved model, is damaged, was made by a
        newer version, or claims what it does not hold.
    """
    path = os.fspath(path)
    try:
        meta = _read_json(os.path.join(path, _JSON))
        arrays = _read_arrays(os.path.join(path, _ARRAYS), meta)
        _check(meta, arrays)
        if arrays["X"].dtype == np.float64 and not jax.config.jax_enable_x64:
            logging.warning("%s has 64 bit and will be used with 32.", path)
        return SavedModel(
            Model(**arrays),
            config_from_json(meta["config"]),
            hyper_from_json(meta["hyper"]),
            *(tuple(meta[name]) for name in ("vocab", "kinds", "descriptions")),
            meta["versions"],
            meta["extra"],
        )
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        raise ValueError(f"{path}: cannot be read as a model: {error}") from error
    except (ValueError, TypeError, KeyError, EOFError) as error:
        raise ValueError(f"{path}: not a model, or damaged: {error}") from error


def _regular(path: str, limit: int | None = None) -> None:
    """ValueError unless the path is a plain file, no link, not above the limit."""
    info = os.lstat(path)
    name = os.path.basename(path)
    if not stat.S_ISREG(info.st_mode):
        raise ValueError(f"{name} is a link or no plain file.")
    if limit is not None and info.st_size > limit:
        raise ValueError(f"{name} has {info.st_size:,} bytes, above {limit:,}.")


def _read_json(path: str) -> dict:
    _regular(path, _MAX_JSON)
    with open(path, encoding="utf-8") as handle:
        text = handle.read()

    def refuse(name):
        raise ValueError(f"{_JSON} holds {name}, which is not JSON.")

    try:
        meta = json.loads(text, parse_constant=refuse)
    except RecursionError:
        raise ValueError(f"{_JSON} is nested too deeply.") from None
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise ValueError(f"{_JSON} does not have the format {_FORMAT!r}.")
    for key, kind in _KEYS.items():
        if not isinstance(meta.get(key), kind):
            raise ValueError(f"{_JSON} lacks {key!r}, or it is no {kind.__name__}.")
    return meta


def _read_arrays(path: str, meta: dict) -> dict[str, np.ndarray]:
    """The arrays that the JSON declares; no data is read before its header fits."""
    _regular(path)
    if file_sha256(path) != meta["sha256"]:
        raise ValueError(f"{_ARRAYS} is not the file that {_JSON} was written for.")
    with zipfile.ZipFile(path) as archive:
        members = {info.filename: info for info in archive.infolist()}
        if sorted(members) != ["X.npy", "log_B.npy"] or len(archive.infolist()) != 2:
            raise ValueError(f"{_ARRAYS} holds other members than X and log_B.")
        read = lambda name: _member(archive, members[f"{name}.npy"], meta, name)
        return {name: read(name) for name in ("log_B", "X")}


def _member(archive, info: zipfile.ZipInfo, meta: dict, name: str) -> np.ndarray:
    declared = meta["arrays"][name]
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed: not as it was saved.")
    with archive.open(info) as handle:
        if np.lib.format.read_magic(handle) != (1, 0):
            raise ValueError(f"{name} has another version of npy.")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
        if dtype.name not in ("float32", "float64") or fortran or len(shape) != 2:
            raise ValueError(f"{name} holds {dtype} of shape {shape}.")
        if [list(shape), dtype.name] != [declared["shape"], declared["dtype"]]:
            raise ValueError(f"{name} is {dtype} {shape}, {_JSON} says {declared}.")
        size = int(shape[0]) * int(shape[1]) * dtype.itemsize
        if min(shape) < 1 or handle.tell() + size != info.file_size:
            raise ValueError(f"{name} has {info.file_size} bytes for shape {shape}.")
        return np.frombuffer(handle.read(size), dtype).reshape(shape).copy()


def _check(meta: dict, arrays: dict[str, np.ndarray]) -> None:
    """ValueError unless words, settings and arrays agree and are what a model has."""
    log_B, X = arrays["log_B"], arrays["X"]
    if log_B.ndim != 2 or X.ndim != 2 or log_B.shape[1] != X.shape[0]:
        raise ValueError(f"topics {log_B.shape} and embeddings {X.shape} disagree.")
    if log_B.dtype != X.dtype or X.dtype.name not in ("float32", "float64"):
        raise ValueError(f"topics are {log_B.dtype}, embeddings {X.dtype}.")
    cfg, N = config_from_json(meta["config"]), X.shape[0]
    if log_B.shape[0] != cfg.num_topics or X.shape[1] != cfg.dim:
        raise ValueError(
            f"topics {log_B.shape} and embeddings {X.shape} do not have the sizes of "
            f"the config: {cfg.num_topics} topics, dim {cfg.dim}."
        )
    for name in ("vocab", "kinds", "descriptions"):
        values = meta[name]
        if len(values) != N or not all(isinstance(v, str) for v in values):
            raise ValueError(f"{name} must be {N} texts, one for each word.")
    if len(set(meta["vocab"])) != N or "" in meta["vocab"]:
        raise ValueError("the words of vocab must be distinct and not empty.")
    if not set(meta["kinds"]) <= set(KINDS):
        raise ValueError(f"kinds must be among {KINDS}.")
    if not np.isfinite(X).all():
        raise ValueError("embeddings must be finite.")
    with np.errstate(over="ignore"):
        mass = np.exp(log_B.astype(np.float64)).sum(axis=1)
    if not (np.abs(mass - 1.0) < 1e-3).all():  # also False for NaN
        raise ValueError("log_B must hold logs of distributions.")
    checks.hyper(hyper_from_json(meta["hyper"]), cfg)


def file_sha256(path: str | os.PathLike) -> str:
    """SHA-256 of a file, read in pieces."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
