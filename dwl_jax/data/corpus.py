"""The one container every reader fills: counts, words, labels, and what was done.

A Corpus is checked when it is made. Selecting and splitting give a new one; nothing is
changed in place. Counts stay sparse until `documents` turns them into padded supports.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp
from absl import logging

from dwl_jax import documents as documents_lib

KINDS = ("disease", "procedure", "word")
MISSING = ""  # the label of a document whose class is not known


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Corpus:
    """M documents over N words.

    Attributes:
      counts: [M, N] scipy CSR array, int32 (float64 if weights are not whole numbers),
        sorted indices, no stored zeros, no empty document. A word may have no counts.
      vocab: N distinct words. ICD-9-CM codes are `d_0389` (disease) and `p_0331`
        (procedure), ICD-10 codes `d10_A419` and `p10_02HV33Z`, without the dot.
      kinds: N of "disease", "procedure" and "word".
      descriptions: N texts, "" where there is none.
      labels: name -> [M] array of str; "" (MISSING) where the class is not known.
      ids: [M] array of distinct str. They may point to people: no log, error or
        history line contains one.
      history: one line for each step that made this corpus, what it kept and dropped.
    """

    counts: sp.csr_array
    vocab: tuple[str, ...]
    kinds: tuple[str, ...]
    descriptions: tuple[str, ...]
    labels: Mapping[str, np.ndarray]
    ids: np.ndarray
    history: tuple[str, ...] = ()

    def __post_init__(self):
        frozen = lambda name, value: object.__setattr__(self, name, value)
        frozen("counts", _canonical(self.counts))
        for name in ("vocab", "kinds", "descriptions", "history"):
            frozen(name, tuple(str(x) for x in getattr(self, name)))
        labels = {str(k): label_array(v) for k, v in dict(self.labels).items()}
        frozen("labels", labels)
        frozen("ids", np.array([str(i) for i in self.ids], dtype=np.str_))
        validate(self)

    @property
    def num_docs(self) -> int:
        """M."""
        return self.counts.shape[0]

    @property
    def num_words(self) -> int:
        """N."""
        return self.counts.shape[1]

    def documents(self, dtype=np.float32) -> documents_lib.Documents:
        """The word distributions that `dwl_jax.fit` takes."""
        return documents_lib.from_counts(self.counts, dtype=dtype)

    def is_kind(self, kind: str) -> np.ndarray:
        """[N] bool: which words are diseases, procedures or plain words."""
        if kind not in KINDS:
            raise ValueError(f"kind must be one of {KINDS}, got {kind!r}.")
        return np.array([k == kind for k in self.kinds], dtype=bool)

    def label_codes(self, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """A label as class numbers.

        Args:
          name: a key of `labels`.

        Returns:
          [M] int32 indices into the classes, -1 where the label is missing; and the
          sorted classes.
        """
        if name not in self.labels:
            raise ValueError(f"no label {name!r}: this corpus has {list(self.labels)}.")
        classes, codes = np.unique(self.labels[name], return_inverse=True)
        codes = codes.astype(np.int32)
        if classes.size and classes[0] == MISSING:  # "" sorts first
            classes, codes = classes[1:], codes - 1
        return codes, tuple(classes.tolist())

    def summary(self) -> str:
        """Sizes, kinds and label counts in one line; no ids."""
        kinds = [f"{sum(self.is_kind(k))} {k}" for k in KINDS if self.is_kind(k).any()]
        parts = [f"{self.num_docs:,} documents, {self.num_words:,} words"]
        parts[0] += f" ({', '.join(kinds)}), {self.counts.nnz:,} nonzeros"
        for name in self.labels:
            codes, classes = self.label_codes(name)
            number = np.bincount(codes + 1, minlength=len(classes) + 1).tolist()
            shown = [f"{c} {n:,}" for c, n in zip(classes, number[1:], strict=True)]
            more = [f"... {len(shown)} classes"] if len(shown) > 12 else []
            missing = [f"missing {number[0]:,}"] if number[0] else []
            parts.append(f"{name}: {', '.join(shown[:12] + more + missing)}")
        return "; ".join(parts)

    def __repr__(self) -> str:
        return f"Corpus({self.summary()})"


def _canonical(counts) -> sp.csr_array:
    """CSR with sorted, summed, nonzero entries; int32 where all are whole numbers."""
    if not sp.issparse(counts) and np.ndim(counts) != 2:
        raise ValueError(
            f"counts must have shape [documents, words], got {np.shape(counts)}."
        )
    csr = sp.csr_array(counts, copy=True)
    if csr.dtype.kind not in "buif":
        raise ValueError(f"counts must be numbers, got dtype {csr.dtype}.")
    if csr.dtype.kind == "b":
        csr = csr.astype(np.int32)
    csr.check_format(full_check=True)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    whole = csr.dtype.kind in "ui" or np.array_equal(csr.data, np.trunc(csr.data))
    small = csr.nnz == 0 or (np.abs(csr.data) < 2**31).all()  # False for NaN and inf
    return csr.astype(np.int32 if whole and small else np.float64)


def label_array(values: Sequence) -> np.ndarray:
    """Labels as str; None, NaN and "" become MISSING, whole numbers lose their ".0"."""

    def text(value):
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or value != value:  # noqa: PLR0124 (NaN is not itself)
            return MISSING
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return str(value)

    return np.array([text(v) for v in values], dtype=np.str_)


def validate(corpus: Corpus) -> None:
    """Raises a ValueError that names what is wrong; a Corpus calls it when made."""
    num_docs, num_words = corpus.counts.shape
    if num_docs == 0 or num_words == 0:
        raise ValueError(
            f"a corpus needs documents and words, got {num_docs} and {num_words}."
        )
    for name in ("vocab", "kinds", "descriptions"):
        size = len(getattr(corpus, name))
        if size != num_words:
            raise ValueError(f"{name} has {size} entries for {num_words} words.")
    columns = {"ids": corpus.ids} | {
        f"label {k!r}": v for k, v in corpus.labels.items()
    }
    for name, values in columns.items():
        if values.shape != (num_docs,):
            raise ValueError(
                f"{name} has shape {values.shape} for {num_docs} documents."
            )
    for j, kind in enumerate(corpus.kinds):
        if kind not in KINDS:
            raise ValueError(
                f"kind of {corpus.vocab[j]!r} is {kind!r}, not in {KINDS}."
            )
    seen = {}
    for j, word in enumerate(corpus.vocab):
        if not word:
            raise ValueError(f"word {j} of the vocabulary is empty.")
        if seen.setdefault(word, j) != j:
            raise ValueError(f"words {seen[word]} and {j} are both {word!r}.")
    _validate_rows(corpus)


def _validate_rows(corpus: Corpus) -> None:
    """Entries, empty documents and ids; rows are named by number, never by id."""
    csr = corpus.counts
    bad = np.flatnonzero(~np.isfinite(csr.data) | (csr.data < 0))
    if bad.size:
        row = np.searchsorted(csr.indptr, bad[0], side="right") - 1
        raise ValueError(
            f"counts must be finite and not negative: row {row}, word "
            f"{corpus.vocab[csr.indices[bad[0]]]!r} has {csr.data[bad[0]]} "
            f"({bad.size} such entries)."
        )
    empty = np.flatnonzero(np.diff(csr.indptr) == 0)
    if empty.size:
        raise ValueError(
            f"a document needs at least one word: row {empty[0]} has none "
            f"({empty.size} such rows)."
        )
    order = np.argsort(corpus.ids, kind="stable")
    same = np.flatnonzero(corpus.ids[order][1:] == corpus.ids[order][:-1])
    if same.size:
        first, second = order[same[0]], order[same[0] + 1]
        raise ValueError(
            f"ids must be distinct: rows {first} and {second} have the same one."
        )


def note(history: Sequence[str], line: str) -> tuple[str, ...]:
    """The history with one more line, which is logged too."""
    logging.info("corpus: %s", line)
    return (*history, line)


def take(corpus: Corpus, rows: np.ndarray, line: str) -> Corpus:
    """The given documents in the given order; `line` says why, for the history."""
    rows = np.asarray(rows)
    if rows.dtype == bool:
        rows = np.flatnonzero(rows)
    if rows.size == 0:
        raise ValueError(f"no document is left: {line}")
    return dataclasses.replace(
        corpus,
        counts=corpus.counts[rows],
        labels={name: values[rows] for name, values in corpus.labels.items()},
        ids=corpus.ids[rows],
        history=note(corpus.history, line),
    )
