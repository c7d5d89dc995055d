"""Documents as padded supports: which words occur, and with what mass.

A document holds a few of the N words, so a corpus is kept as [M, S] with S the most
distinct words of any document. A batch becomes dense, [s, N], only when it is used.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

Array = jax.Array


class Documents(NamedTuple):
    """M word distributions y_m on their supports; unused places have mass 0."""

    words: Array  # [M, S] int32 word indices, 0 where unused
    mass: Array  # [M, S] float, rows sum to 1

    @property
    def num_docs(self) -> int:
        """M, or 1 less dimension for a single document."""
        return self.mass.shape[0]


def dense(docs: Documents, num_words: int) -> Array:
    """Y, the distributions over all words: [..., S] supports to [..., N]."""
    y = jnp.zeros((num_words,), docs.mass.dtype)
    scatter = lambda words, mass: y.at[words].add(mass)
    for _ in range(docs.mass.ndim - 1):
        scatter = jax.vmap(scatter)
    return scatter(docs.words, docs.mass)


def sparse(docs: Documents, num_words: int) -> sp.csr_array:
    """Y as a scipy matrix on the host, [M, N]: places without mass are not in it."""
    words, mass = np.asarray(docs.words), np.asarray(docs.mass)
    there = mass > 0.0
    rows = np.repeat(np.arange(len(words)), there.sum(axis=1))
    shape = (len(words), num_words)
    return sp.csr_array((mass[there], (rows, words[there])), shape=shape)


def from_counts(counts, *, dtype=np.float32, ids=None) -> Documents:
    """Documents from word counts, checked; each row is divided by its sum.

    Args:
      counts: [M, N] non-negative counts or weights; an array or a scipy sparse matrix.
      dtype: of the masses.
      ids: names of the rows for error messages; their index if not given.

    Returns:
      Documents, as numpy arrays: [M, S] with S the largest number of distinct words.

    Raises:
      ValueError: for an entry that is negative, NaN or infinite and for a document
        without words, naming the document.
    """
    if np.ndim(counts) != 2 and not sp.issparse(counts):
        raise ValueError(
            f"counts must have shape [documents, words], got {np.shape(counts)}."
        )
    csr = sp.csr_array(counts, dtype=np.float64, copy=True)
    num_docs, num_words = csr.shape
    if num_docs == 0 or num_words == 0:
        raise ValueError(
            f"counts is empty: {num_docs} documents over {num_words} words."
        )
    name = lambda m: f"document {m}" if ids is None else f"document {ids[m]!r}"
    row_of = np.repeat(np.arange(num_docs), np.diff(csr.indptr))
    bad = np.flatnonzero(~np.isfinite(csr.data) | (csr.data < 0))
    if bad.size:
        value, m = csr.data[bad[0]], row_of[bad[0]]
        raise ValueError(
            f"counts must be finite and not negative: {name(m)}, word "
            f"{csr.indices[bad[0]]} has {value} ({bad.size} such entries)."
        )
    csr.sum_duplicates()
    csr.eliminate_zeros()
    size = np.diff(csr.indptr)
    if (size == 0).any():
        empty = np.flatnonzero(size == 0)
        raise ValueError(
            f"a document needs at least one word: {name(empty[0])} has none "
            f"({empty.size} such documents)."
        )
    row_of = np.repeat(np.arange(num_docs), size)
    place = np.arange(csr.nnz) - np.repeat(csr.indptr[:-1], size)
    words = np.zeros((num_docs, size.max()), np.int32)
    mass = np.zeros((num_docs, size.max()), np.float64)
    words[row_of, place] = csr.indices
    # Divide by the largest count first: a sum of huge counts must not overflow.
    mass[row_of, place] = csr.data
    mass /= mass.max(axis=1, keepdims=True)
    mass /= mass.sum(axis=1, keepdims=True)
    return Documents(words, mass.astype(dtype))
