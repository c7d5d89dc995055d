"""Exports of a model that other tools read; plain text all of them."""

import contextlib
import csv
import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from absl import logging

from dwl_jax import metrics
from dwl_jax.data.corpus import Corpus
from dwl_jax.types import Model


def write_word2vec(path: str | os.PathLike, X: Any, vocab: Sequence[str]) -> None:
    """Writes embeddings in word2vec's text format, which gensim's KeyedVectors loads.

    Numbers are written so that reading them gives the same bits. The format cannot hold
    blanks inside a word: they become `_`, with a warning.

    Args:
      path: file to write.
      X: embeddings, [N, dim].
      vocab: N words.
    """
    X = np.asarray(X)
    if X.ndim != 2 or len(vocab) != X.shape[0]:
        raise ValueError(f"{len(vocab)} words for embeddings of shape {X.shape}.")
    words = [re.sub(r"\s", "_", word) for word in vocab]
    if words != list(vocab):
        logging.warning("%s: blanks inside words are written as _.", path)
    if len(set(words)) != len(words) or "" in words:
        raise ValueError("words must be distinct and not empty (blanks count as _).")
    digits = 17 if X.dtype == np.float64 else 9
    with _replacing(path) as handle:
        handle.write(f"{X.shape[0]} {X.shape[1]}\n")
        for word, row in zip(words, X, strict=True):
            numbers = " ".join(f"{x:.{digits}g}" for x in row.tolist())
            handle.write(f"{word} {numbers}\n")


def write_topics(
    path: str | os.PathLike,
    log_y: Any,
    vocab: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    descriptions: Sequence[str] | None = None,
    top_n: int | None = None,
) -> None:
    """Writes topics as CSV: topic, rank, word, kind, description, probability.

    A topic's own words come first, see `metrics.own_words`.

    Args:
      path: file to write.
      log_y: log documents of the topics, from `topic_documents`, [K, N].
      vocab: N words.
      kinds: N kinds, or None.
      descriptions: N texts, or None.
      top_n: words of each topic; all if None.
    """
    log_y = np.asarray(log_y, np.float64)
    order = metrics.own_words(log_y, top_n)
    with _replacing(path) as handle:
        out = csv.writer(handle, lineterminator="\n")
        out.writerow(["topic", "rank", "word", "kind", "description", "probability"])
        for k, row in enumerate(order.tolist()):
            for rank, n in enumerate(row, start=1):
                kind = kinds[n] if kinds else ""
                text = descriptions[n] if descriptions else ""
                p = f"{np.exp(log_y[k, n]):.6g}"
                out.writerow([k, rank, vocab[n], kind, text, p])


def write_projector(
    folder: str | os.PathLike,
    X: Any,
    vocab: Sequence[str],
    *,
    kinds: Sequence[str] | None = None,
    descriptions: Sequence[str] | None = None,
) -> None:
    """Writes embeddings for TensorBoard's projector: `tensorboard --logdir=FOLDER`.

    Args:
      folder: made if it is not there; gets vectors.tsv, metadata.tsv and
        projector_config.pbtxt.
      X: embeddings, [N, dim].
      vocab: N words.
      kinds: N kinds, or None.
      descriptions: N texts, or None.
    """
    X, N = np.asarray(X), len(vocab)
    os.makedirs(folder, exist_ok=True)
    clean = lambda text: re.sub(r"\s", " ", text)
    columns = (vocab, kinds or [""] * N, descriptions or [""] * N)
    with _replacing(os.path.join(folder, "vectors.tsv")) as handle:
        for row in X.tolist():
            handle.write("\t".join(f"{x:.9g}" for x in row) + "\n")
    with _replacing(os.path.join(folder, "metadata.tsv")) as handle:
        handle.write("word\tkind\tdescription\n")
        for row in zip(*columns, strict=True):
            handle.write("\t".join(map(clean, row)) + "\n")
    with _replacing(os.path.join(folder, "projector_config.pbtxt")) as handle:
        handle.write(
            "embeddings {\n"
            '  tensor_name: "words"\n'
            '  tensor_path: "vectors.tsv"\n'
            '  metadata_path: "metadata.tsv"\n'
            "}\n"
        )


def pyldavis_inputs(model: Model, lam: Any, corpus: Corpus) -> dict[str, Any]:
    """The arguments of `pyLDAvis.prepare`, as plain lists.

    Args:
      model: topics and embeddings.
      lam: topic weights of the corpus's documents, [M, K].
      corpus: M documents over the model's words.

    Returns:
      A dict for `pyLDAvis.prepare(**inputs)`; words that never occur are left out,
      since pyLDAvis divides by their number.
    """
    lam = np.asarray(lam, np.float64)
    if lam.shape != (corpus.num_docs, model.log_B.shape[0]):
        raise ValueError(f"lam is {lam.shape} for {corpus.num_docs} documents.")
    if corpus.num_words != model.X.shape[0]:
        raise ValueError(f"{corpus.num_words} words, the model {model.X.shape[0]}.")
    number = np.asarray(corpus.counts.sum(axis=0)).ravel()
    keep = np.flatnonzero(number > 0)
    B = np.exp(np.asarray(model.log_B, np.float64))[:, keep]
    return {
        "topic_term_dists": (B / B.sum(axis=1, keepdims=True)).tolist(),
        "doc_topic_dists": (lam / lam.sum(axis=1, keepdims=True)).tolist(),
        "doc_lengths": np.asarray(corpus.counts.sum(axis=1)).ravel().tolist(),
        "vocab": [corpus.vocab[n] for n in keep],
        "term_frequency": number[keep].tolist(),
    }


def write_pyldavis(
    path: str | os.PathLike, model: Model, lam: Any, corpus: Corpus
) -> None:
    """Writes `pyldavis_inputs` as JSON: `pyLDAvis.prepare(**json.load(open(path)))`."""
    with _replacing(path) as handle:
        json.dump(pyldavis_inputs(model, lam, corpus), handle, allow_nan=False)


@contextlib.contextmanager
def _replacing(path: str | os.PathLike) -> Iterator[IO[str]]:
    """Opens a text file beside its place, and moves it there when all went well."""
    part = f"{os.fspath(path)}.part"
    try:
        with open(part, "w", encoding="utf-8", newline="") as handle:
            yield handle
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)
