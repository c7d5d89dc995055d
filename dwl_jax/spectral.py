"""Embeddings that start from the spectrum of co-occurrence, with neighbours at once.

N(0, 1) draws in 50 dimensions are all equally far apart: no word has a neighbour, and a
kernel that is to move mass has nowhere to. Words that share documents more often than
chance start near each other instead: the leading eigenvectors of the positive pointwise
mutual information (as in latent semantic analysis; Levy and Goldberg 2014 say why that
is what Word2Vec factors).
"""

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from dwl_jax.documents import Documents, sparse

_DENSE = 512  # words whose whole spectrum is found at once
_SEED = 0  # of what is drawn: the same words have the same start
_NO_PLACE = 1e-6  # a row so short, beside the longest, belongs to no direction


def spectral(docs: Documents, num_words: int, dim: int) -> np.ndarray:
    """Where words start, by the documents they share.

    The eigenvectors of the largest eigenvalues of positive PMI, each times the root of
    its eigenvalue; rows brought to one length. A word that shares no document more
    often than chance (never seen, or in every document) gets a draw of that length.
    The same documents give the same bits on one machine.

    Args:
      docs: M documents; only which words they have counts.
      num_words: N.
      dim: of the embeddings; those above N - 1 are 0.

    Returns:
      X, [N, dim] float64, rows of length sqrt(dim).
    """
    P = positive_pmi(sparse(docs, num_words))
    size, U = _leading(P, min(dim, num_words))
    U = U * np.sign(U[np.argmax(np.abs(U), axis=0), np.arange(U.shape[1])])[None, :]
    X = np.zeros((num_words, dim))
    X[:, : U.shape[1]] = U * np.sqrt(np.maximum(size, 0.0))[None, :]
    length = np.linalg.norm(X, axis=1)
    lost = length <= _NO_PLACE * length.max()
    X[lost] = np.random.default_rng(_SEED).standard_normal((lost.sum(), dim))
    return X * (np.sqrt(dim) / np.linalg.norm(X, axis=1))[:, None]


def positive_pmi(Y: sp.csr_array) -> sp.csr_array:
    """Log of p(i, j) / (p(i) p(j)) over documents where it is positive, [N, N]."""
    present = (Y > 0.0).astype(np.float64)
    M, count = present.shape[0], present.sum(axis=0)
    both = sp.coo_array(present.T @ present)
    pmi = np.log(both.data * M / (count[both.row] * count[both.col]))
    kept = (both.row != both.col) & (pmi > 0.0)
    entries = pmi[kept], (both.row[kept], both.col[kept])
    return sp.csr_array(entries, shape=both.shape)


def _leading(P: sp.csr_array, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The largest eigenvalues, falling, and their vectors, [number] and [N, number]."""
    N = P.shape[0]
    if P.nnz == 0:
        return np.zeros(number), np.zeros((N, number))
    if max(_DENSE, 2 * number) >= N:
        size, U = np.linalg.eigh(P.toarray())
    else:
        start = np.random.default_rng(_SEED).random(N)
        size, U = eigsh(P, number, which="LA", v0=start)
    order = np.argsort(-size, kind="stable")[:number]
    return size[order], U[:, order]
