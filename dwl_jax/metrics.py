"""How good embeddings, topics and neighbours are; numpy in, numpy out."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import log_softmax

from dwl_jax.documents import Documents, sparse

Array = jax.Array


def pool(docs: Documents, X: Array) -> Array:
    """Average pooling: sum_n y_n x_n of each document, [M, dim]."""
    return jnp.einsum("ms,msd->md", docs.mass, X[docs.words])


def euclidean(F: Array, G: Array) -> np.ndarray:
    """Distances between the rows of two feature matrices, [M, M']; equal rows are 0."""
    return cdist(np.asarray(F, np.float64), np.asarray(G, np.float64))


def wasserstein(
    docs_a: Documents,
    docs_b: Documents,
    D: Array,
    epsilon: float = 0.02,
    *,
    num_iters: int = 200,
) -> Array:
    """Transport cost between all pairs of documents, on their supports, [M, M'].

    Args:
      docs_a: M documents.
      docs_b: M' documents.
      D: ground cost, [N, N].
      epsilon: entropic weight; the result is at or above the exact distance, and nears
        it as epsilon falls (with more iterations).
      num_iters: Sinkhorn iterations; static.

    Returns:
      Tr(T' D), [M, M'].
    """

    def pair(a: Documents, b: Documents):
        block = D[a.words][:, b.words]
        log = lambda m: jnp.where(m > 0, jnp.log(jnp.where(m > 0, m, 1.0)), -jnp.inf)
        log_a, log_b, log_C = log(a.mass), log(b.mass), -block / epsilon

        def body(g, _):
            f = -jax.nn.logsumexp(log_C + (g + log_b)[None, :], axis=1)
            return -jax.nn.logsumexp(log_C + (f + log_a)[:, None], axis=0), None

        g, _ = jax.lax.scan(body, jnp.zeros_like(log_b), length=num_iters)
        f = -jax.nn.logsumexp(log_C + (g + log_b)[None, :], axis=1)
        T = jnp.exp((f + log_a)[:, None] + (g + log_b)[None, :] + log_C)
        return jnp.sum(T * block)

    docs_a, docs_b, D = jax.tree.map(jnp.asarray, (docs_a, docs_b, D))
    row = lambda a: jax.vmap(lambda b: pair(a, b))(docs_b)
    return jax.jit(lambda a: jax.lax.map(row, a))(docs_a)


def accuracy(predicted: Sequence, labels: Sequence) -> float:
    """Share of right predictions."""
    return float(np.mean(np.asarray(predicted) == np.asarray(labels)))


def balanced_accuracy(predicted: Sequence, labels: Sequence) -> float:
    """Mean over classes of the share of right predictions in the class."""
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    return float(np.mean([np.mean(predicted[labels == c] == c) for c in set(labels)]))


def recommend(docs: Documents, X: Array, sources: Array, targets: Array) -> np.ndarray:
    """Ranks target words by their distance to each document's source words (Table 2).

    A target's score is its mean distance to the document's sources: on the bipartite
    graph of diseases and procedures, procedures near all diseases come first.

    Args:
      docs: M documents.
      X: embeddings, [N, dim].
      sources: words that are given, say diseases: bool [N].
      targets: words to rank, say procedures: int [P].

    Returns:
      Word indices, best first, [M, P]. Ties keep the order of `targets`.
    """
    D = euclidean(X, np.asarray(X)[np.asarray(targets)])
    given = np.asarray(docs.mass) * np.asarray(sources)[np.asarray(docs.words)]
    if not given.any(axis=1).all():
        m = np.flatnonzero(~given.any(axis=1))[0]
        raise ValueError(f"document {m} has no source word to recommend from.")
    score = np.einsum("ms,msp->mp", given, D[np.asarray(docs.words)])
    return np.asarray(targets)[np.argsort(score, axis=1, kind="stable")]


def top_words(log_B: Array, top_n: int | None) -> np.ndarray:
    """The most probable words of each topic, best first, [K, top_n]."""
    return np.argsort(-np.asarray(log_B), axis=1, kind="stable")[:, :top_n]


def own_words(log_y: Array, top_n: int | None) -> np.ndarray:
    """The words that tell a topic, best first, by log p(w|k) + log p(k|w), [K, top_n].

    What is common in all topics says little about one, however probable it is there.

    Args:
      log_y: log documents of the topics, [K, N].
      top_n: how many of each.
    """
    log_y = np.asarray(log_y, np.float64)
    return top_words(log_y + log_softmax(log_y, axis=0), top_n)


def npmi(tops: np.ndarray, docs: Documents, num_words: int) -> np.ndarray:
    """Coherence of each topic: mean normalised PMI of its top words over documents.

    Args:
      tops: top words of each topic, [K, n].
      docs: reference corpus.
      num_words: N.

    Returns:
      NPMI in [-1, 1] of each topic, [K]; a pair that never occurs together counts -1.
    """
    if np.shape(tops)[1] < 2:
        raise ValueError("coherence needs at least two words for each topic.")
    used = np.unique(tops)
    present = (sparse(docs, num_words)[:, used] > 0.0).astype(np.float64)
    joint = (present.T @ present).toarray() / present.shape[0]
    single = np.diagonal(joint)
    place = {w: i for i, w in enumerate(used)}

    def pair(i, j):
        if joint[i, j] == 0.0:
            return -1.0
        if joint[i, j] == 1.0:
            return 1.0
        return np.log(joint[i, j] / (single[i] * single[j])) / -np.log(joint[i, j])

    return np.array(
        [
            np.mean(
                [pair(place[a], place[b]) for i, a in enumerate(row) for b in row[:i]]
            )
            for row in np.asarray(tops)
        ]
    )


def diversity(tops: np.ndarray) -> float:
    """Share of distinct words among all topics' top words."""
    return np.unique(tops).size / np.asarray(tops).size


def near_duplicates(tops: np.ndarray, share: float = 0.5) -> list[tuple[int, int]]:
    """Pairs of topics that have at least this share of their first words in common."""
    sets, least = [set(row) for row in np.asarray(tops).tolist()], share * len(tops[0])
    pairs = ((k, l) for l in range(len(sets)) for k in range(l))
    return [(k, l) for k, l in pairs if len(sets[k] & sets[l]) >= least]


def _contingency(clusters: Sequence, labels: Sequence) -> np.ndarray:
    """Counts of documents by cluster and label."""
    _, c = np.unique(np.asarray(clusters), return_inverse=True)
    _, l = np.unique(np.asarray(labels), return_inverse=True)
    table = np.zeros((c.max() + 1, l.max() + 1))
    np.add.at(table, (c, l), 1.0)
    return table


def purity(clusters: Sequence, labels: Sequence) -> float:
    """Share of documents that carry the commonest label of their cluster."""
    table = _contingency(clusters, labels)
    return float(table.max(axis=1).sum() / table.sum())


def nmi(clusters: Sequence, labels: Sequence) -> float:
    """Mutual information over the mean of both entropies; 1 if both are constant."""
    P = _contingency(clusters, labels)
    P = P / P.sum()
    entropy = lambda p: -np.sum(p[p > 0] * np.log(p[p > 0]))
    h_c, h_l = entropy(P.sum(axis=1)), entropy(P.sum(axis=0))
    if h_c + h_l == 0.0:
        return 1.0
    return float(2.0 * (h_c + h_l - entropy(P)) / (h_c + h_l))


def effective_rank(X: Array) -> float:
    """Exp of the entropy of the singular values of centred X (Roy and Vetterli)."""
    X = np.asarray(X, np.float64)
    s = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)
    if s.sum() == 0.0:
        return 0.0
    p = s[s > 0] / s.sum()
    return float(np.exp(-np.sum(p * np.log(p))))
