"""Coarse to fine: ICD-9-CM codes by their category, and vectors from category to code.

A disease's category is its first three digits (four with E, as in E880), a procedure's
its first two; ICD-10 codes have theirs in three characters for both. Words that are no
codes are their own category.
"""

import dataclasses

import numpy as np
import scipy.sparse as sp

from dwl_jax.data.codes import PREFIX, PREFIX10
from dwl_jax.data.corpus import Corpus, note


def category(word: str) -> str:
    """The category of a code, as a word: d_0389 is of d_038, p_3995 of p_39."""
    for prefix in PREFIX10.values():
        if word.startswith(prefix):
            return prefix + word[len(prefix) :][:3]
    if word.startswith(PREFIX["disease"]):
        code = word[len(PREFIX["disease"]) :]
        return PREFIX["disease"] + code[: 4 if code.startswith("E") else 3]
    if word.startswith(PREFIX["procedure"]):
        return PREFIX["procedure"] + word[len(PREFIX["procedure"]) :][:2]
    return word


def to_categories(corpus: Corpus) -> tuple[Corpus, np.ndarray]:
    """The corpus over categories, and each word's category, [N] ints.

    Counts of the codes of a category are added up; categories are in the order of their
    first code.
    """
    names = [category(word) for word in corpus.vocab]
    vocab = list(dict.fromkeys(names))
    place = {name: j for j, name in enumerate(vocab)}
    of_word = np.array([place[name] for name in names])
    first = np.unique(of_word, return_index=True)[1]
    N = corpus.num_words
    gather = sp.csr_array(
        (np.ones(N, corpus.counts.dtype), (np.arange(N), of_word)),
        shape=(N, len(vocab)),
    )
    line = f"to_categories: {N:,} words in {len(vocab):,} categories"
    coarse = dataclasses.replace(
        corpus,
        counts=sp.csr_array(corpus.counts @ gather),
        vocab=tuple(vocab),
        kinds=tuple(corpus.kinds[j] for j in first),
        descriptions=("",) * len(vocab),
        history=note(corpus.history, line),
    )
    return coarse, of_word


def start_from(
    X: np.ndarray, of_word: np.ndarray, *, spread: float = 0.3, seed: int = 0
) -> np.ndarray:
    """Vectors of codes around those of their categories, [N, dim].

    Args:
      X: vectors of the categories, [C, dim].
      of_word: each code's category, [N].
      spread: size of what tells codes of a category apart, as a part of the root mean
        square of X: codes that coincide would never part.
      seed: of that difference.
    """
    X = np.asarray(X)
    size = spread * np.sqrt(np.mean((X - X.mean(axis=0)) ** 2))
    noise = np.random.default_rng(seed).standard_normal((of_word.size, X.shape[1]))
    return X[of_word] + size * noise.astype(X.dtype)
