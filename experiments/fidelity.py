"""How near one corpus of admissions comes to another over the same words."""

from typing import NamedTuple

import numpy as np

from dwl_jax.data.corpus import MISSING, Corpus


class Fidelity(NamedTuple):
    """Measures of a synthetic against a real corpus; shares are between 0 and 1."""

    prevalence_corr: float  # of log prevalence over codes
    prevalence_error: float  # mean |difference| of prevalence over codes
    prevalence_worst: float  # largest |difference|
    pair_corr: float  # of log co-occurrence over pairs seen >= min_pairs times
    num_pairs: int  # how many such pairs
    pair_ratio: float  # median of max(a/b, b/a) of the two co-occurrence rates
    size_distance: float  # total variation of number of codes
    mean_size: tuple[float, float]  # real, synthetic
    death_rate: tuple[float, float]  # real, synthetic
    death_corr: float  # of death rate given a code, over codes with >= min_docs
    death_error: float  # mean |difference| of it
    type_distance: float  # total variation of admission types
    type_given_code: float  # mean total variation of admission types given a code
    num_codes: int  # codes with >= min_docs admissions in both


def measure(
    real: Corpus, synthetic: Corpus, *, min_pairs: int = 20, min_docs: int = 50
) -> Fidelity:
    """Compares prevalence, pairs of codes, sizes, and labels given codes.

    Args:
      real: the corpus to come near to.
      synthetic: over the same words; any number of documents.
      min_pairs: pairs of codes seen this often in `real` count. A pair that
        `synthetic` never shows counts as half an admission.
      min_docs: codes with this many admissions with a known label count for labels.
    """
    if real.vocab != synthetic.vocab:
        raise ValueError("the two corpora have different vocabularies.")
    a, b = ((c.counts > 0).astype(np.float64) for c in (real, synthetic))
    prevalence = [np.asarray(x.mean(axis=0)).ravel() for x in (a, b)]
    seen = (prevalence[0] > 0) & (prevalence[1] > 0)
    pairs = [(x.T @ x).toarray() for x in (a, b)]
    upper = np.triu(np.ones_like(pairs[0], dtype=bool), k=1)
    often = upper & (pairs[0] >= min_pairs)
    rate = [
        np.maximum(p[often], 0.5) / x.shape[0]
        for p, x in zip(pairs, (a, b), strict=True)
    ]
    gap = np.abs(prevalence[0] - prevalence[1])
    sizes = [np.diff(x.indptr) for x in (a, b)]
    top = max(size.max() for size in sizes) + 1
    size_share = [np.bincount(s, minlength=top) / s.size for s in sizes]
    deaths = [
        _given_code(x, c, "died", ("alive", "died"))
        for x, c in ((a, real), (b, synthetic))
    ]
    names = sorted(
        (set(real.labels["admission_type"]) | set(synthetic.labels["admission_type"]))
        - {MISSING}
    )
    types = [
        _given_code(x, c, "admission_type", names)
        for x, c in ((a, real), (b, synthetic))
    ]
    enough = np.all([d.number >= min_docs for d in (*deaths, *types)], axis=0)
    death = [d.share[enough, 1] for d in deaths]
    return Fidelity(
        prevalence_corr=_corr(*(np.log(p[seen]) for p in prevalence)),
        prevalence_error=float(gap.mean()),
        prevalence_worst=float(gap.max()),
        pair_corr=_corr(np.log(rate[0]), np.log(rate[1])),
        num_pairs=int(often.sum()),
        pair_ratio=float(np.exp(np.median(np.abs(np.log(rate[0] / rate[1]))))),
        size_distance=_variation(*size_share),
        mean_size=tuple(float(s.mean()) for s in sizes),
        death_rate=tuple(float(d.overall[1]) for d in deaths),
        death_corr=_corr(*death),
        death_error=float(np.abs(death[0] - death[1]).mean()),
        type_distance=_variation(*(t.overall for t in types)),
        type_given_code=float(
            np.mean(np.abs(types[0].share - types[1].share)[enough].sum(axis=1) / 2)
        ),
        num_codes=int(enough.sum()),
    )


class _Given(NamedTuple):
    number: np.ndarray  # [N] admissions with the code and a known label
    share: np.ndarray  # [N, C] of each class among them
    overall: np.ndarray  # [C] of each class among all with a known label


def _given_code(x, corpus: Corpus, label: str, names) -> _Given:
    onehot = np.stack([corpus.labels[label] == n for n in names], axis=1).astype(float)
    table = x.T @ onehot
    number = table.sum(axis=1)
    share = table / np.maximum(number, 1.0)[:, None]
    return _Given(number, share, onehot.sum(axis=0) / onehot.sum())


def _corr(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(x, y)[0, 1])


def _variation(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.abs(p - q).sum() / 2)
