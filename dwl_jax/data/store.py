"""Saving and loading a corpus: one .npz of plain arrays and JSON text, no pickle."""

import json
import os
import zipfile
import zlib

import numpy as np
import scipy.sparse as sp

from dwl_jax.data.corpus import Corpus

_FORMAT = "dwl_jax.corpus/1"
_ARRAYS = ("data", "indices", "indptr", "shape", "meta")
_TEXT = ("vocab", "kinds", "descriptions", "history")


def save(corpus: Corpus, path: str | os.PathLike) -> None:
    """Writes a corpus, with its ids and labels, to exactly `path`.

    The file is written beside its place and then moved, so a stop in between leaves
    no half file under that name. The same corpus gives the same bytes.
    """
    meta = {"format": _FORMAT} | {name: getattr(corpus, name) for name in _TEXT}
    meta["labels"] = {name: v.tolist() for name, v in corpus.labels.items()}
    meta["ids"] = corpus.ids.tolist()
    text = json.dumps(meta, ensure_ascii=True).encode("ascii")
    arrays = {
        "data": corpus.counts.data,
        "indices": corpus.counts.indices.astype(np.int32),
        "indptr": corpus.counts.indptr.astype(np.int64),
        "shape": np.array(corpus.counts.shape, dtype=np.int64),
        "meta": np.frombuffer(text, dtype=np.uint8),
    }
    part = f"{os.fspath(path)}.part"
    with open(part, "wb") as handle:
        np.savez_compressed(handle, **arrays)
    os.replace(part, path)


def load(path: str | os.PathLike) -> Corpus:
    """Reads what `save` wrote.

    Raises:
      ValueError: for a file that is not a saved corpus, is damaged, or holds a corpus
        that does not pass `validate`.
    """
    path = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = {info.filename: info for info in archive.infolist()}
            if set(names) != {f"{name}.npy" for name in _ARRAYS}:
                raise ValueError("its members are not those of a corpus")
            arrays = {n: _member(archive, names[f"{n}.npy"]) for n in _ARRAYS}
        return _build(arrays)
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        KeyError,
        TypeError,
        AttributeError,
        NotImplementedError,  # a zip with another compression
        RuntimeError,  # an encrypted zip
        ValueError,
    ) as error:
        raise ValueError(f"{path}: not a saved corpus, or damaged: {error}") from error


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """One array; a header that claims another size than the member has is refused."""
    with archive.open(info) as handle:
        version = np.lib.format.read_magic(handle)
        if version != (1, 0):
            raise ValueError(f"{info.filename} has npy version {version}")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(handle)
        if dtype.hasobject or dtype.kind not in "iuf" or fortran or len(shape) != 1:
            raise ValueError(f"{info.filename} holds {dtype} of shape {shape}")
        payload = handle.read()
    if len(payload) != shape[0] * dtype.itemsize:
        raise ValueError(f"{info.filename} has {len(payload)} bytes for shape {shape}")
    return np.frombuffer(payload, dtype=dtype).copy()


def _build(arrays: dict[str, np.ndarray]) -> Corpus:
    """The Corpus of checked arrays."""
    meta = json.loads(arrays["meta"].astype(np.uint8).tobytes())
    if not isinstance(meta, dict) or meta.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    if arrays["shape"].shape != (2,) or (arrays["shape"] < 0).any():
        raise ValueError("its shape is not that of a matrix")
    lists = [meta[name] for name in (*_TEXT, "ids")] + list(meta["labels"].values())
    for values in lists:
        if not isinstance(values, list) or not all(isinstance(v, str) for v in values):
            raise ValueError("its texts are not lists of texts")
    parts = (arrays["data"], arrays["indices"], arrays["indptr"])
    counts = sp.csr_array(parts, shape=tuple(arrays["shape"].tolist()))
    counts.check_format(full_check=True)
    return Corpus(
        counts=counts,
        **{name: tuple(meta[name]) for name in _TEXT},
        labels=meta["labels"],
        ids=meta["ids"],
    )
