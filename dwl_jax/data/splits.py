"""Deterministic splits: 50/25/25 as in the paper, stratified as a choice."""

from collections.abc import Sequence

import numpy as np

from dwl_jax.data.corpus import Corpus, take

PAPER = (0.5, 0.25, 0.25)  # train, validation, test


def split_rows(
    num_docs: int,
    *,
    seed: int = 0,
    fractions: Sequence[float] = PAPER,
    strata: np.ndarray | None = None,
) -> tuple[np.ndarray, ...]:
    """Row numbers of each part, sorted; every row is in exactly one.

    Args:
      num_docs: M.
      seed: of a PCG64 generator; the same seed gives the same parts.
      fractions: of the parts, positive, sum 1.
      strata: [M] class of each row. Then each class is cut like the whole, to within
        one document, and part sizes are the same as without.

    Returns:
      One array of row numbers for each fraction.
    """
    fractions = np.asarray(fractions, dtype=np.float64)
    if fractions.ndim != 1 or not (fractions > 0).all():
        raise ValueError(f"fractions must be positive, got {fractions.tolist()}.")
    if abs(fractions.sum() - 1.0) > 1e-9:
        raise ValueError(f"fractions must sum to 1, got {fractions.tolist()}.")
    order = np.random.Generator(np.random.PCG64(seed)).permutation(num_docs)
    strata = np.zeros(num_docs) if strata is None else np.asarray(strata)
    if strata.shape != (num_docs,):
        raise ValueError(f"strata have shape {strata.shape} for {num_docs} documents.")
    order = order[np.argsort(strata[order], kind="stable")]
    sizes = np.unique(strata, return_counts=True)[1]
    ends = np.cumsum(sizes)
    cuts = np.concatenate([[0.0], np.cumsum(fractions)])
    cuts[-1] = 1.0
    parts = [[] for _ in fractions]
    for start, end in zip(ends - sizes, ends, strict=True):
        # Cuts at round(f * end) of the running total: exact in all, +-1 in a class.
        at = np.rint(cuts * end) - np.rint(cuts * start)
        pieces = np.split(order[start:end], at[1:-1].astype(np.int64))
        for part, piece in zip(parts, pieces, strict=True):
            part.append(piece)
    return tuple(np.sort(np.concatenate(part)) for part in parts)


def split(
    corpus: Corpus,
    *,
    seed: int = 0,
    fractions: Sequence[float] = PAPER,
    stratify: str | None = None,
) -> tuple[Corpus, ...]:
    """Cuts a corpus into parts, by default train, validation and test (50/25/25).

    Args:
      corpus: what to cut.
      seed: same seed, same parts.
      fractions: one for each part.
      stratify: name of a label whose classes (and its missing values) keep their share
        in every part.

    Returns:
      One Corpus for each fraction, documents in their old order.

    Raises:
      ValueError: if a part would be empty, or fractions or the label are not right.
    """
    strata = None if stratify is None else corpus.label_codes(stratify)[0]
    parts = split_rows(corpus.num_docs, seed=seed, fractions=fractions, strata=strata)
    how = "" if stratify is None else f", stratified by {stratify}"
    line = "split part {} of {}: {:,} of {:,} documents, seed {}{}"
    return tuple(
        take(
            corpus,
            rows,
            line.format(i + 1, len(parts), rows.size, corpus.num_docs, seed, how),
        )
        for i, rows in enumerate(parts)
    )
