"""Exact Wasserstein nearest neighbours, with few exact problems solved.

Documents hold few words, so lower bounds of all distances are two matrix products, and
most pairs are never solved. The relaxed transport of Kusner et al. (2015) sends each
word to the nearest word of the other document; it drops one side's constraint, so it is
a lower bound from either side. References are solved in the order of their bounds until
the next bound is above the k-th best distance: the neighbours are those of solving all.
Documents that are alike are solved once.
"""

import bisect
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dwl_jax.documents import Documents

_GRID = 1e-10  # distances nearer than this part of the largest cost are equal
_MAX_ITERS = 1_000_000  # of the network simplex
_BLOCK = 1 << 22  # bounds held at once


class Neighbors(NamedTuple):
    """The nearest references of Q queries."""

    index: np.ndarray  # [Q, k] int64, nearest first; equal distances by index
    distance: np.ndarray  # [Q, k] float64
    num_solved: int  # exact problems, of Q x M pairs


def emd(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> float:
    """Exact transport cost between two distributions (POT's network simplex).

    Args:
      a: masses, [n], of positive sum; divided by it.
      b: masses, [m], of positive sum; divided by it.
      cost: between their places, [n, m].

    Returns:
      min Tr(T' cost) over plans T with marginals a and b.
    """
    a, b = (np.asarray(x, np.float64) for x in (a, b))
    cost = np.ascontiguousarray(cost, np.float64)
    if a.ndim != 1 or b.ndim != 1 or cost.shape != a.shape + b.shape:
        raise ValueError(f"cost {cost.shape} for masses {a.shape} and {b.shape}.")
    for x in (a, b):
        if not (np.isfinite(x).all() and (x >= 0.0).all() and x.sum() > 0.0):
            raise ValueError("masses must be finite, not negative, not all 0.")
    if not np.isfinite(cost).all():
        raise ValueError("cost must be finite.")
    return _solver()(a / a.sum(), b / b.sum(), cost)


def knn(
    queries: Documents, references: Documents, D: np.ndarray, num_neighbors: int
) -> Neighbors:
    """The references nearest to each query by exact transport (extra `evaluate`).

    Example:
      `near = knn(test.documents(), train.documents(), cost.distance_matrix(X), 5)`

    Args:
      queries: Q documents.
      references: M documents over the same words.
      D: cost from the query's word to the reference's word, [N, N], not negative.
      num_neighbors: k, at most M.

    Returns:
      Neighbors, as if all pairs were solved and sorted by distance, then by index.
      Distances are equal if they agree to 1e-10 of the largest cost.
    """
    D = np.ascontiguousarray(D, np.float64)
    if D.ndim != 2 or D.shape[0] != D.shape[1]:
        raise ValueError(f"D must be [N, N], got {D.shape}.")
    if not (np.isfinite(D).all() and (D >= 0.0).all()):
        raise ValueError("D must be finite and not negative.")
    a, b = (_supports(docs, D.shape[0]) for docs in (queries, references))
    if not 1 <= num_neighbors <= b.back.size:
        raise ValueError(
            f"num_neighbors must be in [1, {b.back.size}], got {num_neighbors}."
        )
    grid = _GRID * max(float(D.max()), np.finfo(np.float64).tiny / _GRID)
    search = functools.partial(_search, b=b, k=num_neighbors, grid=grid)
    nearest_b = _nearest_cost(b, D.T)
    found, solved = [], 0
    for rows in np.array_split(
        np.arange(len(a.words)), max(1, len(a.words) * len(b.words) // _BLOCK)
    ):
        bounds = np.maximum(a.Y[rows] @ nearest_b.T, _nearest_cost(a, D, rows) @ b.Y.T)
        for row, bound in zip(rows, bounds, strict=True):
            index, distance, count = search(a.masses[row], D[a.words[row]], bound)
            found.append((index, distance))
            solved += count
    index, distance = (np.stack(x)[a.back] for x in zip(*found, strict=True))
    return Neighbors(index, distance, solved)


def smallest(
    distances: np.ndarray, num_neighbors: int, grid: float
) -> tuple[np.ndarray, np.ndarray]:
    """The smallest entries of each row, ties by column.

    Args:
      distances: [Q, M], not negative.
      num_neighbors: k, at most M.
      grid: distances that round to the same multiple of it are equal.

    Returns:
      Columns and their distances, both [Q, k], smallest first.
    """
    M = distances.shape[1]
    if not 1 <= num_neighbors <= M:
        raise ValueError(f"num_neighbors must be in [1, {M}], got {num_neighbors}.")
    place = np.rint(distances / grid)
    if not place.max(initial=0.0) < 2**62 / M:  # also NaN
        raise ValueError(f"distances are not finite, or grid {grid} is too fine.")
    key = place.astype(np.int64) * M + np.arange(M)[None, :]
    if num_neighbors < M:
        key = np.partition(key, num_neighbors - 1, axis=1)[:, :num_neighbors]
    index = np.sort(key, axis=1) % M
    return index, np.take_along_axis(distances, index, axis=1)


class _Supports(NamedTuple):
    """Distinct documents, and where they came from."""

    words: list[np.ndarray]  # of each distinct document, without unused places
    masses: list[np.ndarray]
    Y: np.ndarray  # [distinct, N]
    back: np.ndarray  # [M] distinct document of each document
    members: list[np.ndarray]  # documents of each distinct document, sorted


def _supports(docs: Documents, num_words: int) -> _Supports:
    words, mass = np.asarray(docs.words), np.asarray(docs.mass, np.float64)
    if words.ndim != 2 or words.shape != mass.shape or 0 in words.shape:
        raise ValueError(f"words {words.shape} and masses {mass.shape} of documents.")
    used = mass > 0.0
    bad = ~np.isfinite(mass).all(1) | (mass < 0.0).any(1) | ~used.any(1)
    bad |= ((words < 0) | (words >= num_words)).any(1)
    if bad.any():
        raise ValueError(
            f"document {np.flatnonzero(bad)[0]} is no distribution over {num_words} "
            "words."
        )
    mass = mass / mass.sum(1, keepdims=True)
    rows = np.concatenate([np.where(used, words, -1), mass], axis=1)
    _, first, back = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    back = back.ravel()
    Y = np.zeros((first.size, num_words))
    np.add.at(Y, (np.arange(first.size)[:, None], words[first]), mass[first])
    order = np.argsort(back, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(back))[:-1])
    cut = lambda x: [x[m][used[m]] for m in first]
    return _Supports(cut(words), cut(mass), Y, back, members)


def _nearest_cost(docs: _Supports, D: np.ndarray, rows=None) -> np.ndarray:
    """Cost of each word's way from the nearest word of a document, [distinct, N]."""
    rows = range(len(docs.words)) if rows is None else rows
    return np.stack([D[docs.words[row]].min(axis=0) for row in rows])


def _search(mass, cost, bound, *, b: _Supports, k: int, grid: float):
    """One query against all distinct references; cost [n, N] from its words."""
    solve, slack = _solver(), 2.0 * grid
    solved, best = {}, []  # best: the distances so far, each as often as it occurs

    def visit(ref):
        block = cost.take(b.words[ref], axis=1)
        solved[ref] = distance = solve(mass, b.masses[ref], block)
        for _ in range(min(k, b.members[ref].size)):
            bisect.insort(best, distance)

    first = np.argpartition(bound, k - 1)[:k] if k < bound.size else range(bound.size)
    for ref in first:
        visit(ref)
    left = np.flatnonzero(bound <= best[k - 1] + slack)
    for ref in left[np.argsort(bound[left], kind="stable")]:
        if bound[ref] > best[k - 1] + slack:
            break
        if ref not in solved:
            visit(ref)
    near = [ref for ref, d in solved.items() if d <= best[k - 1] + slack]
    index = np.concatenate([b.members[ref] for ref in near])
    distance = np.repeat([solved[r] for r in near], [b.members[r].size for r in near])
    order = np.lexsort((index, np.rint(distance / grid)))[:k]
    return index[order], distance[order], len(solved)


@functools.cache
def _solver() -> Callable[[np.ndarray, np.ndarray, np.ndarray], float]:
    """POT's solver, without the checks of `ot.emd2` where this version allows."""
    try:
        import ot
    except ImportError as error:
        raise ImportError(
            "exact transport needs POT: pip install 'dwl-jax[evaluate]'"
        ) from error
    checked = lambda a, b, cost: float(ot.emd2(a, b, cost, numItermax=_MAX_ITERS))
    try:
        raw = ot.lp.emd_wrap.emd_c
        half = np.full(2, 0.5)
        _, value, *_, code = raw(half, half, 1.0 - np.eye(2), _MAX_ITERS, 1)
        if value != 0.0 or code != 1:
            return checked
    except (AttributeError, TypeError, ValueError):
        return checked

    def solve(a, b, cost):
        _, value, *_, code = raw(a, b, cost, _MAX_ITERS, 1)
        return value if code == 1 else checked(a, b, cost)

    return solve
