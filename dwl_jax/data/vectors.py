"""Starting vectors: read from word2vec or GloVe files, or filled in.

A word without a vector is named and gets one drawn from a normal distribution with the
mean and the standard deviation, per dimension, of the vectors that were found: a
neutral place, at a usual distance from the rest, and no two alike.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

import numpy as np
from absl import logging

from dwl_jax.data import files, selection
from dwl_jax.data.corpus import Corpus

_MAX_DIM = 10_000  # more is no embedding: a header that lies
_MAX_WORD = 4_096  # bytes
_MAX_LINE = 1 << 20
_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})\s*")


class Vectors(NamedTuple):
    """One vector for each word of a vocabulary."""

    X: np.ndarray  # [N, dim] float32
    missing: tuple[str, ...]  # words that had none and were filled


def fill_missing(
    found: dict[str, np.ndarray], vocab: Sequence[str], *, seed: int = 0
) -> Vectors:
    """Vectors in the order of the vocabulary, missing ones drawn as stated above.

    Args:
      found: word -> [dim] vector, for at least one word.
      vocab: N words.
      seed: of a PCG64 generator.
    """
    missing = tuple(word for word in vocab if word not in found)
    if len(missing) == len(vocab):
        raise ValueError(f"none of the {len(vocab)} words has a vector.")
    known = np.stack([found[word] for word in vocab if word in found])
    known = known.astype(np.float64)
    rng = np.random.Generator(np.random.PCG64(seed))
    spread = known.std(axis=0)
    if not spread.any():  # a single vector, or all alike: keep the new ones apart
        spread = np.full_like(spread, max(np.abs(known).mean(), 1e-3))
    drawn = known.mean(axis=0) + spread * rng.standard_normal(
        (len(missing), known.shape[1])
    )
    X = np.empty((len(vocab), known.shape[1]), dtype=np.float32)
    has = np.array([word in found for word in vocab])
    X[has], X[~has] = known, drawn
    if missing:
        logging.warning(
            "%d of %d words have no vector, filled by draws: %s",
            len(missing),
            len(vocab),
            selection.name_some(missing),
        )
    return Vectors(X, missing)


def read_vectors(
    path: str | os.PathLike,
    vocab: Corpus | Sequence[str],
    *,
    form: str = "auto",
    encoding: str = "utf-8",
    seed: int = 0,
) -> Vectors:
    """Reads the vectors of a vocabulary from a word2vec or GloVe file.

    The file is streamed, and only wanted vectors are kept. A word that comes twice
    keeps its first vector. The header's claims are checked against what is read.

    Example:
      `X, missing = read_vectors("glove.6B.50d.txt", corpus)`

    Args:
      path: plain, .gz or .bz2.
      vocab: a Corpus or its words; looked up as they are written.
      form: "word2vec" (text with a header), "binary" (word2vec's), "glove" (text
        without a header), or "auto": a first line of two whole numbers is a header, and
        what follows it tells text from binary.
      encoding: of the words.
      seed: of the draws for words without a vector.

    Returns:
      Vectors in the order of the vocabulary.

    Raises:
      ValueError: for a damaged, truncated or lying file, naming file, line and value;
        if no word of the vocabulary is in it.
    """
    vocab = vocab.vocab if isinstance(vocab, Corpus) else tuple(vocab)
    path, wanted, found = os.fspath(path), set(vocab), {}
    with files.open_bytes(path) as handle:
        form = _detect(path) if form == "auto" else form
        if form not in _READERS:
            raise ValueError(f"form must be auto or {list(_READERS)}, got {form!r}.")
        for where, word, values in _READERS[form](handle, path, encoding):
            if word in found or word not in wanted:
                continue
            if not np.isfinite(values).all():
                raise ValueError(f"{path}, {where}: {word!r} has a value not finite.")
            found[word] = values
    return fill_missing(found, vocab, seed=seed)


def _detect(path: str) -> str:
    """The form of a file by its first bytes."""
    with files.open_bytes(path) as handle:
        first = handle.readline(_MAX_LINE)
        if not _HEADER.fullmatch(first):
            return "glove"
        second = handle.readline(_MAX_LINE)
    with contextlib.suppress(ValueError):  # also bytes that are no text
        cells = second.decode("utf-8").split()
        if len([float(cell) for cell in cells[1:]]) >= 1:
            return "word2vec"
    return "binary"


def _header(handle: IO[bytes], path: str) -> tuple[int, int]:
    """Number and size of vectors as the header claims them."""
    match = _HEADER.fullmatch(handle.readline(_MAX_LINE))
    if not match:
        raise ValueError(f"{path}, line 1: no header of two whole numbers.")
    number, dim = map(int, match.groups())
    if not 1 <= dim <= _MAX_DIM or number < 1:
        raise ValueError(f"{path}, line 1: {number} vectors of size {dim}: no header.")
    return number, dim


def _decode(raw: bytes, encoding: str, path: str, where: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, {where}: not {encoding} text.") from error


def _text(handle, path, encoding, dim=None, first=1) -> Iterator:
    """Lines `word x_1 ... x_dim`; the first line sets dim if it is not given."""
    for number, raw in enumerate(iter(lambda: handle.readline(_MAX_LINE), b""), first):
        where = f"line {number}"
        if len(raw) == _MAX_LINE:
            raise ValueError(f"{path}, {where}: longer than {_MAX_LINE} bytes.")
        line = _decode(raw, encoding, path, where).rstrip(" \r\n")
        dim = len(line.split(" ")) - 1 if dim is None else dim
        word, *cells = line.rsplit(" ", dim) if dim else [line]
        if dim < 1 or dim > _MAX_DIM or len(cells) != dim or not word:
            size = len(line.split(" ")) - 1
            raise ValueError(f"{path}, {where}: {size} values, not {dim or 'some'}.")
        try:
            yield where, word, np.array(cells, dtype=np.float32)
        except ValueError as error:
            bad = next(cell for cell in cells if not _is_number(cell))
            raise ValueError(f"{path}, {where}: {bad!r} is no number.") from error


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _word2vec_text(handle, path, encoding) -> Iterator:
    number, dim = _header(handle, path)
    count = 0
    for count, item in enumerate(_text(handle, path, encoding, dim, 2), start=1):
        if count > number:
            break
        yield item
    if count != number:
        raise ValueError(
            f"{path}: header says {number} vectors, found {count} or more."
        )


def _word2vec_binary(handle, path, encoding) -> Iterator:
    number, dim = _header(handle, path)
    most = _MAX_WORD + 1 + 4 * dim  # bytes of a word, its space and its vector
    buffer, at = b"", 0
    for count in range(1, number + 1):
        where = f"vector {count}"
        if len(buffer) - at < most:
            buffer, at = buffer[at:] + _read(handle, most + (1 << 20)), 0
        space = buffer.find(b" ", at, at + _MAX_WORD + 1)
        if space < 0:
            raise ValueError(f"{path}, {where}: the file ends or has no word there.")
        end = space + 1 + 4 * dim
        if len(buffer) < end:
            raise ValueError(f"{path}, {where}: the file ends inside a vector.")
        word = _decode(buffer[at:space].lstrip(b"\n"), encoding, path, where)
        yield where, word, np.frombuffer(buffer[space + 1 : end], dtype="<f4")
        at = end
    if (buffer[at:] + handle.read(64)).strip(b"\n"):
        raise ValueError(
            f"{path}: more bytes after the {number} vectors of the header."
        )


def _read(handle: IO[bytes], size: int) -> bytes:
    """So many bytes, or all that are left."""
    parts = []
    while size > 0 and (part := handle.read(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


_READERS = {
    "word2vec": _word2vec_text,
    "binary": _word2vec_binary,
    "glove": lambda handle, path, encoding: _text(handle, path, encoding),
}
