"""The protocol of the tables: who is compared with whom, and how it is scored.

A `Problem` is one split of a corpus, with its tasks; every method answers the same one.
Methods give features, embeddings or rankings; `*_cells` turn them into a dict of
numbers in percent, with the same keys for every method:

    mortality/1nn, mortality/1nn/balanced, mortality/5nn, ... (1:1 balanced subsets)
    type/1nn, ...         emergency, urgent, elective, newborn
    type_merged/1nn, ...  urgent is emergency
    rec/p@1, rec/r@1, rec/f1@1, ... @3, @5
    topics/npmi, topics/diversity

Nothing here reads a file, draws without a seed, or learns from the evaluated part.
"""

import functools

import numpy as np
from scipy.spatial.distance import cdist

import dwl_jax
from dwl_jax import metrics, neighbors
from dwl_jax.documents import Documents, from_counts
from experiments.intervals import Interval, interval, paired
from experiments.problem import NUM_NEIGHBORS, Problem, Task, balanced_rows, problem

__all__ = [
    "NUM_NEIGHBORS",
    "TOP_N",
    "Cells",
    "Interval",
    "Problem",
    "Task",
    "balanced_rows",
    "interval",
    "knn_cells",
    "majority_cells",
    "nearest",
    "neighbor_cells",
    "paired",
    "pool",
    "pooled_cells",
    "problem",
    "rank_by_embedding",
    "rank_by_frequency",
    "rank_by_naive_bayes",
    "rank_by_reconstruction",
    "rank_by_score",
    "recommend_cells",
    "topic_cells",
    "topic_weights",
    "vote",
    "wasserstein_cells",
]

Cells = dict[str, float]
TOP_N = (1, 3, 5)
_GRID = 1e-9  # distances nearer than this part of the largest are equal


# Neighbours -> classification cells.


def nearest(F: np.ndarray, G: np.ndarray, num_neighbors: int) -> np.ndarray:
    """Rows of G nearest to each row of F, Euclidean; ties by row number, [Q, k]."""
    F, G = (np.asarray(Z, np.float64) for Z in (F, G))
    if not (np.isfinite(F).all() and np.isfinite(G).all()):
        raise ValueError("features must be finite.")
    out = []
    for part in np.array_split(F, max(1, F.shape[0] * G.shape[0] >> 23)):
        D = cdist(part, G)
        near, _ = neighbors.smallest(D, num_neighbors, _GRID * max(D.max(), 1e-300))
        out.append(near)
    return np.concatenate(out)


def vote(labels: np.ndarray) -> np.ndarray:
    """Majority of each row of [Q, k], nearest first; a tie goes to the nearer label."""
    classes, coded = np.unique(labels, return_inverse=True)
    coded = coded.reshape(labels.shape)
    votes = (coded[:, :, None] == np.arange(classes.size)).astype(np.float64)
    bonus = 2.0 ** -np.arange(2, labels.shape[1] + 2) / labels.shape[1]
    return classes[np.argmax(np.einsum("qkc,k->qc", votes, 1.0 + bonus), axis=1)]


def neighbor_cells(task: Task, name: str, near: np.ndarray) -> Cells:
    """Accuracy and balanced accuracy by voting; near [Q, >= 5] indexes references."""
    cells, true = {}, task.labels[task.queries]
    found = task.labels[task.references][near]
    for k in NUM_NEIGHBORS:
        told = vote(found[:, :k])
        cells[f"{name}/{k}nn"] = 100 * metrics.accuracy(told, true)
        cells[f"{name}/{k}nn/balanced"] = 100 * metrics.balanced_accuracy(told, true)
    return cells


def _classify(problem: Problem, find) -> Cells:
    """Cells of all tasks; tasks over the same rows share their neighbours."""
    cells, done = {}, {}
    for name, task in problem.tasks.items():
        key = (task.references.tobytes(), task.queries.tobytes())
        if key not in done:
            done[key] = find(task.queries, task.references)
        cells |= neighbor_cells(task, name, done[key])
    return cells


def knn_cells(problem: Problem, features: np.ndarray) -> Cells:
    """k-NN on Euclidean features, [M, F] for all documents of the corpus.

    Rows of documents that are neither in `train` nor in `rows` are not looked at.
    """
    features = np.asarray(features)
    k = max(NUM_NEIGHBORS)
    return _classify(problem, lambda q, r: nearest(features[q], features[r], k))


def pooled_cells(problem: Problem, X: np.ndarray) -> Cells:
    """k-NN on average pooling of embeddings, [N, dim]."""
    return knn_cells(problem, pool(problem, X))


def pool(problem: Problem, X: np.ndarray) -> np.ndarray:
    """Average pooling of embeddings for all documents of the corpus, [M, dim]."""
    docs = problem.documents
    return np.einsum("ms,msd->md", docs.mass, np.asarray(X, np.float64)[docs.words])


def wasserstein_cells(problem: Problem, X: np.ndarray) -> Cells:
    """k-NN by exact transport between documents, Euclidean cost of embeddings."""
    X, docs = np.asarray(X, np.float64), problem.documents
    rows = lambda r: Documents(docs.words[r], docs.mass[r])
    find = lambda q, r: neighbors.knn(rows(q), rows(r), cdist(X, X), k).index
    k = max(NUM_NEIGHBORS)
    return _classify(problem, find)


def majority_cells(problem: Problem) -> Cells:
    """Always the commonest class among the references."""

    def find(task):
        y = task.labels[task.references]
        classes, number = np.unique(y, return_counts=True)
        first = np.flatnonzero(y == classes[np.argmax(number)])[0]
        return np.full((task.queries.size, max(NUM_NEIGHBORS)), first)

    cells = [neighbor_cells(t, n, find(t)) for n, t in problem.tasks.items()]
    return functools.reduce(dict.__or__, cells, {})


# Rankings -> recommendation cells.


def recommend_cells(problem: Problem, ranked: np.ndarray) -> Cells:
    """Precision, recall and F1 of ranked procedures, word indices [rec_rows, P]."""
    true = problem.present[problem.rec_rows]
    hit = np.take_along_axis(true, np.asarray(ranked)[:, : max(TOP_N)], axis=1)
    size = true[:, problem.procedures].sum(1)
    cells = {}
    for n in TOP_N:
        hits = hit[:, :n].sum(1)
        # 2PR / (P + R) with P = hits / n and R = hits / size.
        scores = {"p": hits / n, "r": hits / size, "f1": 2 * hits / (n + size)}
        cells |= {f"rec/{s}@{n}": 100 * float(v.mean()) for s, v in scores.items()}
    return cells


def rank_by_score(problem: Problem, score: np.ndarray) -> np.ndarray:
    """Procedures by falling score, [rec_rows, P] to word indices; ties keep order."""
    return problem.procedures[np.argsort(-score, axis=1, kind="stable")]


def rank_by_embedding(problem: Problem, X: np.ndarray) -> np.ndarray:
    """Procedures by mean distance to the document's diseases (Table 2)."""
    docs = from_counts(problem.corpus.counts[problem.rec_rows], dtype=np.float64)
    X = np.asarray(X, np.float32)
    return metrics.recommend(docs, X, problem.is_disease, problem.procedures)


def rank_by_reconstruction(
    problem: Problem, model, hyper, *, cfg, num_steps: int = 100
) -> np.ndarray:
    """Procedures by log_y, weights inferred from the diseases alone."""
    seen = problem.present[problem.rec_rows] & problem.is_disease[None, :]
    log_y = _infer(
        problem,
        seen,
        model,
        hyper,
        cfg=cfg,
        num_steps=num_steps,
        observed=problem.is_disease,
    ).log_y
    return rank_by_score(problem, log_y[:, problem.procedures])


def rank_by_frequency(problem: Problem) -> np.ndarray:
    """The most frequent procedures of the training part, for everyone."""
    count = problem.present[problem.train][:, problem.procedures].sum(0)
    return rank_by_score(problem, np.tile(count, (problem.rec_rows.size, 1)))


def rank_by_naive_bayes(problem: Problem, smooth: float = 0.1) -> np.ndarray:
    """log odds of each procedure given which diseases are there and which are not."""
    Y = problem.present[problem.train].astype(np.float64)
    P, E = Y[:, problem.procedures], Y[:, problem.is_disease]

    def logs(weight):  # log P(disease | weight) and log P(no disease | weight)
        rate = (weight.T @ E + smooth) / (weight.sum(0)[:, None] + 2 * smooth)
        return np.log(rate), np.log1p(-rate)

    (yes1, no1), (yes0, no0) = logs(P), logs(1.0 - P)
    prior = (P.sum(0) + smooth) / (len(P) + 2 * smooth)
    seen = problem.present[problem.rec_rows][:, problem.is_disease].astype(np.float64)
    score = np.log(prior / (1.0 - prior)) + (no1 - no0).sum(1)
    score = score[None, :] + seen @ (yes1 - yes0 - no1 + no0).T
    return rank_by_score(problem, score)


# Topics.


def topic_weights(
    problem: Problem, model, hyper, *, cfg, num_steps: int = 100
) -> np.ndarray:
    """Inferred weights as features, [M, K]; 0 for documents that are not used."""
    used = np.concatenate([problem.train, problem.rows])
    counts = problem.corpus.counts[used].toarray()
    out = _infer(problem, counts, model, hyper, cfg=cfg, num_steps=num_steps)
    lam = np.zeros((problem.corpus.num_docs, out.lam.shape[1]))
    lam[used] = out.lam
    return lam


def _infer(problem: Problem, counts: np.ndarray, model, hyper, **settings):
    """Inference for rows of counts, as numpy; rows that are alike are inferred once.

    Rows are filled up to a round number and places to those of the corpus, so that the
    trials of a corpus share what is compiled.
    """
    distinct, back = np.unique(counts, axis=0, return_inverse=True)
    docs = from_counts(distinct)
    places = problem.documents.words.shape[1] - docs.words.shape[1]
    rows = -len(distinct) % (1 << max(0, len(distinct).bit_length() - 4))
    fill = lambda x: np.pad(
        np.pad(x, ((0, 0), (0, places))), ((0, rows), (0, 0)), "edge"
    )
    out = dwl_jax.infer(Documents(*map(fill, docs)), model, hyper, **settings)
    return type(out)(*(np.asarray(x)[back.ravel()] for x in out))


def topic_cells(problem: Problem, log_B: np.ndarray, top_n: int = 10) -> Cells:
    """NPMI of topics' own words over the evaluated documents, and their diversity."""
    tops = metrics.own_words(log_B, top_n)
    docs = from_counts(problem.corpus.counts[problem.rows])
    npmi = metrics.npmi(tops, docs, problem.corpus.num_words).mean()
    cells = {"npmi": npmi, "diversity": metrics.diversity(tops)}
    return {f"topics/{name}": 100 * float(v) for name, v in cells.items()}
