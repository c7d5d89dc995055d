"""Choosing words and documents.

Each function gives a new Corpus and says, in its history and in the log, what it kept
and what it dropped.
"""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import scipy.sparse as sp

from dwl_jax.data import codes
from dwl_jax.data.corpus import KINDS, MISSING, Corpus, note, take

_NAMED = 10  # how many words a history line names


def name_some(words: Sequence[str]) -> str:
    """A few words and how many more there are."""
    more = f" and {len(words) - _NAMED:,} more" if len(words) > _NAMED else ""
    return ", ".join(map(str, words[:_NAMED])) + more


def _take_words(corpus: Corpus, columns: np.ndarray, line: str) -> Corpus:
    """The given words in the given order; documents left without a word are dropped."""
    columns = np.asarray(columns, dtype=np.int64)
    if columns.size == 0:
        raise ValueError(f"no word is left: {line}")
    counts = corpus.counts[:, columns]
    full = np.flatnonzero(np.diff(counts.indptr) > 0)
    if full.size == 0:
        raise ValueError(f"no document has a word left: {line}")
    occurrences = corpus.counts.sum()
    line += (
        f"; kept {columns.size:,} of {corpus.num_words:,} words and "
        f"{counts.sum() / occurrences:.1%} of their {occurrences:,.0f} occurrences; "
        f"dropped {corpus.num_docs - full.size:,} of {corpus.num_docs:,} documents "
        "left without a word"
    )
    return dataclasses.replace(
        corpus,
        counts=counts[full],
        vocab=tuple(corpus.vocab[j] for j in columns),
        kinds=tuple(corpus.kinds[j] for j in columns),
        descriptions=tuple(corpus.descriptions[j] for j in columns),
        labels={name: values[full] for name, values in corpus.labels.items()},
        ids=corpus.ids[full],
        history=note(corpus.history, line),
    )


def select_words(corpus: Corpus, words: Iterable[str]) -> Corpus:
    """The given words, in the given order.

    Raises:
      ValueError: naming words that are repeated or not in the vocabulary.
    """
    words = list(words)
    index = {word: j for j, word in enumerate(corpus.vocab)}
    unknown = [word for word in words if word not in index]
    if unknown:
        raise ValueError(f"not in the vocabulary: {name_some(unknown)}.")
    if len(set(words)) != len(words):
        repeated = [w for i, w in enumerate(words) if w in words[:i]]
        raise ValueError(f"named more than once: {name_some(repeated)}.")
    return _take_words(corpus, [index[w] for w in words], "select_words: by name")


def select_paper81(corpus: Corpus) -> Corpus:
    """The paper's 81 codes in its order. One that never occurs keeps its (empty) place.

    Works for every source with ICD-9-CM words: NHDS, MIMIC-III, version 9 of MIMIC-IV.
    """
    table = codes.paper81()
    index = {word: j for j, word in enumerate(corpus.vocab)}
    absent = [code for code in table if code.word not in index]
    if len(absent) == len(table):
        raise ValueError(
            f"none of the paper's 81 codes is among the {corpus.num_words:,} words."
        )
    for code in table:  # a word d_0389 that is no disease is not this code
        j = index.get(code.word)
        if j is not None and corpus.kinds[j] != code.kind:
            raise ValueError(
                f"{code.word!r} is a {corpus.kinds[j]}, not a {code.kind}."
            )
    if absent:
        empty = sp.csr_array((corpus.num_docs, len(absent)), dtype=np.int32)
        corpus = dataclasses.replace(
            corpus,
            counts=sp.hstack([corpus.counts, empty], format="csr"),
            vocab=corpus.vocab + tuple(code.word for code in absent),
            kinds=corpus.kinds + tuple(code.kind for code in absent),
            descriptions=corpus.descriptions + tuple(code.label for code in absent),
        )
        index = {word: j for j, word in enumerate(corpus.vocab)}
    line = "select_paper81"
    if absent:
        line += f": never seen here: {name_some([code.word for code in absent])}"
    chosen = _take_words(corpus, [index[code.word] for code in table], line)
    return dataclasses.replace(chosen, descriptions=tuple(code.label for code in table))


def select_top(
    corpus: Corpus,
    *,
    diseases: int | None = None,
    procedures: int | None = None,
    words: int | None = None,
) -> Corpus:
    """The words that occur in the most documents, per kind; None keeps all of a kind.

    The vocabulary's order is kept, and decides among words equally frequent.
    """
    wanted = dict(zip(KINDS, (diseases, procedures, words), strict=True))
    frequency = np.bincount(corpus.counts.indices, minlength=corpus.num_words)
    keep, said = [], []
    for kind, number in wanted.items():
        columns = np.flatnonzero(corpus.is_kind(kind))
        if number is None:
            keep.append(columns)
            continue
        if number < 0:
            raise ValueError(f"cannot keep {number} words of kind {kind}.")
        best = columns[np.argsort(-frequency[columns], kind="stable")[:number]]
        keep.append(best)
        said.append(f"{best.size} of {columns.size} {kind} (asked {number})")
    columns = np.sort(np.concatenate(keep))
    line = f"select_top: {', '.join(said)}"
    return _take_words(corpus, columns, line)


def select_min_count(corpus: Corpus, min_docs: int) -> Corpus:
    """The words that occur in at least `min_docs` documents."""
    frequency = np.bincount(corpus.counts.indices, minlength=corpus.num_words)
    line = f"select_min_count: words in at least {min_docs} documents"
    return _take_words(corpus, np.flatnonzero(frequency >= min_docs), line)


def drop_words(corpus: Corpus, stop_words: Iterable[str]) -> Corpus:
    """All words but these. Stop words that do not occur are no error, and counted."""
    stop = set(stop_words)
    keep = np.flatnonzero([word not in stop for word in corpus.vocab])
    line = f"drop_words: {corpus.num_words - keep.size} of {len(stop)} stop words occur"
    return _take_words(corpus, keep, line)


def count_kind(corpus: Corpus, kind: str) -> np.ndarray:
    """[M] number of distinct words of one kind in each document."""
    of_kind = corpus.is_kind(kind)[corpus.counts.indices]
    rows = np.repeat(np.arange(corpus.num_docs), np.diff(corpus.counts.indptr))
    return np.bincount(rows[of_kind], minlength=corpus.num_docs)


def select_docs(
    corpus: Corpus,
    *,
    min_diseases: int = 0,
    min_procedures: int = 0,
    min_words: int = 0,
) -> Corpus:
    """Documents with at least so many distinct diseases, procedures and words.

    Args:
      corpus: what to choose from.
      min_diseases: distinct words of kind disease.
      min_procedures: distinct words of kind procedure.
      min_words: distinct words of any kind.
    """
    size = np.diff(corpus.counts.indptr)
    keep = size >= min_words
    keep &= count_kind(corpus, "disease") >= min_diseases
    keep &= count_kind(corpus, "procedure") >= min_procedures
    line = (
        f"select_docs: kept {keep.sum():,} and dropped {(~keep).sum():,} documents; "
        f"at least {min_diseases} diseases, {min_procedures} procedures, "
        f"{min_words} words"
    )
    return take(corpus, keep, line)


def select_labelled(corpus: Corpus, name: str) -> Corpus:
    """Documents whose label `name` is known."""
    corpus.label_codes(name)  # says so if there is no such label
    keep = corpus.labels[name] != MISSING
    line = (
        f"select_labelled: kept {keep.sum():,} documents with a known {name}, "
        f"dropped {(~keep).sum():,}"
    )
    return take(corpus, keep, line)
