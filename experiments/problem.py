"""One split of a corpus with its tasks: every method answers the same Problem."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dwl_jax import data
from dwl_jax.data.corpus import take
from dwl_jax.documents import Documents

TYPES = ("elective", "emergency", "newborn", "urgent")
NUM_NEIGHBORS = (1, 5)


class Task(NamedTuple):
    """A label to be told from the nearest labelled admissions."""

    references: np.ndarray  # rows of the corpus, of the training part
    queries: np.ndarray  # rows of the corpus, of the evaluated part
    labels: np.ndarray  # [M] str of all documents of the corpus


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """One split of a corpus: what may be learned from, and what is evaluated.

    Attributes:
      corpus: all documents.
      seed: of the split and of all that is drawn for it.
      train: rows that may be learned from, sorted.
      rows: rows that are evaluated, sorted.
      tasks: name -> Task.
      draw: 0 for the whole training part, 1 + trial for a part of it.
    """

    corpus: data.Corpus
    seed: int
    train: np.ndarray
    rows: np.ndarray
    tasks: Mapping[str, Task]
    draw: int = 0

    @functools.cached_property
    def present(self) -> np.ndarray:
        """[M, N] bool: which words each document of the corpus has."""
        return self.corpus.counts.toarray() > 0

    @functools.cached_property
    def documents(self) -> Documents:
        """All documents of the corpus, in float64."""
        return self.corpus.documents(np.float64)

    @functools.cached_property
    def train_corpus(self) -> data.Corpus:
        """The documents that may be learned from."""
        return take(self.corpus, self.train, f"training rows of split {self.seed}")

    @functools.cached_property
    def is_disease(self) -> np.ndarray:
        """[N] bool."""
        return self.corpus.is_kind("disease")

    @functools.cached_property
    def procedures(self) -> np.ndarray:
        """Word indices of the procedures."""
        return np.flatnonzero(self.corpus.is_kind("procedure"))

    @functools.cached_property
    def rec_rows(self) -> np.ndarray:
        """Evaluated rows that have a disease to go by and a procedure to find."""
        has = self.present[self.rows]
        both = has[:, self.is_disease].any(1) & has[:, self.procedures].any(1)
        return self.rows[both]


def problem(
    corpus: data.Corpus,
    seed: int = 0,
    part: str = "test",
    *,
    trial: int | None = None,
    fraction: float = 0.8,
) -> Problem:
    """The 50/25/25 split of this seed, evaluated on a part of it.

    Args:
      corpus: labels `died` and `admission_type` give the paper's tasks; any other label
        a task of its name with all its classes.
      seed: of `data.split_rows` and of the balanced subsets.
      part: "valid" or "test".
      trial: None learns from the whole training part. A number learns from a random
        subset of it, the paper's kind of trial, and draws new balanced subsets.
      fraction: size of that subset.

    Returns:
      A Problem.
    """
    if part not in ("valid", "test"):
        raise ValueError(f"part must be valid or test, got {part!r}.")
    train, valid, test = data.split_rows(corpus.num_docs, seed=seed)
    rows = test if part == "test" else valid
    if trial is not None:
        if not 0.0 < fraction <= 1.0:
            raise ValueError(f"fraction must be in (0, 1], got {fraction}.")
        rng = np.random.default_rng([seed, 1, trial])
        size = max(1, round(fraction * train.size))
        train = np.sort(rng.choice(train, size, replace=False))
    draw = 0 if trial is None else trial + 1
    tasks = _tasks(corpus, train, rows, seed, draw)
    return Problem(corpus, seed, train, rows, tasks, draw)


def _tasks(corpus, train, rows, seed, draw) -> dict[str, Task]:
    tasks = {}
    for name, labels in corpus.labels.items():
        known = lambda part, y=labels: part[y[part] != data.MISSING]
        if name == "died":
            cut = lambda part, place, y=labels: balanced_rows(
                part, y, np.random.default_rng([seed, 2, draw, place])
            )
            tasks["mortality"] = Task(cut(train, 0), cut(rows, 1), labels)
        elif name == "admission_type":
            four = lambda part, y=labels: part[np.isin(y[part], TYPES)]
            tasks["type"] = Task(four(train), four(rows), labels)
            merged = np.where(labels == "urgent", "emergency", labels)
            tasks["type_merged"] = Task(four(train), four(rows), merged)
        else:
            tasks[name] = Task(known(train), known(rows), labels)
    for name, task in tasks.items():
        if task.references.size < max(NUM_NEIGHBORS) or task.queries.size == 0:
            raise ValueError(
                f"task {name}: {task.references.size} labelled documents to learn from "
                f"and {task.queries.size} to evaluate are too few."
            )
    return tasks


def balanced_rows(rows, labels, rng: np.random.Generator) -> np.ndarray:
    """As many rows of each class as the rarest has, sorted; missing labels are out."""
    classes = [rows[labels[rows] == c] for c in np.unique(labels[rows]) if c]
    size = min((c.size for c in classes), default=0)
    if len(classes) < 2:
        return rows[:0]
    drawn = [rng.choice(c, size, replace=False) for c in classes]
    return np.sort(np.concatenate(drawn))
