"""What the page's explorer knows: codes, their places, neighbours and topics."""

import json
from typing import Any

import numpy as np

from dwl_jax import metrics
from experiments.paper import graph, models, table3, transport
from experiments.paper.run import Run

MOST_WORDS = 300  # the most frequent ones of a larger vocabulary
_NEIGHBOURS = 10
_TOPIC_WORDS = 10
_ADMISSIONS = 14


def contents(run: Run) -> dict[str, Any]:
    """Plain values for explorer.js; of the model and of drawn admissions alone.

    Returns:
      words: code, kind, name and place on the map of each word.
      edges: pairs of the k-NN graph.
      near: nearest words of each.
      D: distances in thousandths of their mean, [N][N].
      topics: share of all weight, and first words with their probabilities.
      profile: probability of each topic given the word, [N][K].
      admissions: name and words of synthetic ones.
    """
    saved = models.load(run, "finetune")
    keep = _frequent(run)
    X = np.asarray(saved.ground, np.float64)[keep]
    joined = graph.knn_graph(X)
    xy = graph.layout(joined)
    D = metrics.euclidean(X, X)
    D /= D[D > 0].mean()
    log_y, share = table3.topics(saved)[:, keep], topic_share(run)
    joint = share[:, None] * np.exp(log_y)
    column = lambda names: [names[n] for n in keep]
    words = zip(
        *map(column, (saved.vocab, saved.kinds, saved.descriptions)), strict=True
    )
    return {
        "words": [
            {"code": w, "kind": k, "name": text or w, "x": _r(x), "y": _r(y)}
            for (w, k, text), (x, y) in zip(words, xy, strict=True)
        ],
        "edges": [list(edge) for edge in joined.edges],
        "near": np.argsort(D, axis=1, kind="stable")[:, 1 : _NEIGHBOURS + 1].tolist(),
        "D": np.rint(1000 * D).astype(int).tolist(),
        "topics": [
            {
                "share": _r(share[k]),
                "words": [[int(n), _r(np.exp(log_y[k, n]))] for n in row],
            }
            for k, row in enumerate(metrics.own_words(log_y, _TOPIC_WORDS))
        ],
        "profile": np.round((joint / joint.sum(axis=0)).T, 3).tolist(),
        "admissions": _admissions(column(saved.vocab)),
    }


def topic_share(run: Run) -> np.ndarray:
    """Mean weight of each topic over the training admissions, [K]."""
    with open(run.path("models", "finetune", "pyldavis.json")) as handle:
        return np.mean(json.load(handle)["doc_topic_dists"], axis=0)


def _frequent(run: Run) -> np.ndarray:
    """Indices of the words that are shown, in the order of the vocabulary."""
    number = run.problem.present[run.problem.train].sum(axis=0)
    return np.sort(np.argsort(-number, kind="stable")[:MOST_WORDS])


def _admissions(vocab) -> list[dict[str, Any]]:
    found = [words for words in transport.admissions(vocab, 200) if len(words) <= 9]
    return [
        {"name": f"Synthetic admission {i + 1} ({len(words)} codes)", "words": words}
        for i, words in enumerate(found[:_ADMISSIONS])
    ]


def _r(x) -> float:
    return round(float(x), 4)
