"""Baselines of the paper's tables, each learned from the training part of a Problem.

    python -m experiments.baselines --corpus=nhds --path=FILE --splits=10 --out=DIR

prints both tables over random splits. TF-IDF and LDA are scikit-learn's, Word2Vec and
Doc2Vec gensim's. GloVe is written here: no maintained package has it.
"""

import functools
import zlib
from collections.abc import Callable, Mapping
from typing import NamedTuple
from unittest import mock

import numpy as np
from absl import flags, logging

from dwl_jax import data
from experiments import cli, corpora, protocol, tables
from experiments.protocol import Cells, Problem

Rows = dict[str, Cells]


# Document features, [M, F] for all documents of the corpus.


def tfidf(problem: Problem, *, unit_norm: bool = True) -> np.ndarray:
    """Counts by smoothed inverse document frequency, with or without unit norm."""
    from sklearn.feature_extraction.text import TfidfTransformer

    model = TfidfTransformer(norm="l2" if unit_norm else None)
    model.fit(problem.corpus.counts[problem.train])
    return model.transform(problem.corpus.counts).toarray()


class Lda(NamedTuple):
    """A fitted LDA."""

    weights: np.ndarray  # [M, K]
    log_B: np.ndarray  # [K, N]


def lda(
    problem: Problem,
    *,
    num_topics: int = 8,
    prior: float | None = None,
    max_iter: int = 30,
) -> Lda:
    """Variational LDA (batch), weights of all documents.

    Args:
      problem: learned from its training part.
      num_topics: K.
      prior: of the weights; scikit-learn's 1 / K if None. Above it, topics share fewer
        of their top words.
      max_iter: passes.
    """
    from sklearn.decomposition import LatentDirichletAllocation

    model = LatentDirichletAllocation(
        num_topics,
        doc_topic_prior=prior,
        max_iter=max_iter,
        random_state=problem.seed,
    ).fit(problem.corpus.counts[problem.train])
    B = model.components_ / model.components_.sum(axis=1, keepdims=True)
    return Lda(model.transform(problem.corpus.counts), np.log(B))


def doc2vec(problem: Problem, *, dim: int = 50, epochs: int = 20) -> np.ndarray:
    """PV-DBOW over whole documents; vectors are inferred for all but the training."""
    from gensim.models import doc2vec as gensim_doc2vec

    corpus = problem.corpus
    texts = [
        [corpus.vocab[n] for n in np.repeat(row.indices, row.data)]
        for row in (corpus.counts[[m]] for m in range(corpus.num_docs))
    ]
    train = [gensim_doc2vec.TaggedDocument(texts[m], [m]) for m in problem.train]
    model = gensim_doc2vec.Doc2Vec(
        train,
        vector_size=dim,
        dm=0,
        window=max(len(document.words) for document in train),
        sample=0,
        min_count=1,
        epochs=epochs,
        seed=problem.seed,
        workers=1,
    )
    features = np.zeros((corpus.num_docs, dim))
    features[problem.train] = model.dv.vectors[problem.train]
    # gensim starts inference from Python's hash, which is another in every process.
    start = functools.partial(
        gensim_doc2vec.pseudorandom_weak_vector,
        hashfxn=lambda text: zlib.crc32(text.encode()),
    )
    with mock.patch.object(gensim_doc2vec, "pseudorandom_weak_vector", start):
        for m in np.setdiff1d(np.arange(corpus.num_docs), problem.train):
            model.random.seed(problem.seed)
            features[m] = model.infer_vector(texts[m])
    return features


# Word embeddings, [N, dim].


def word2vec(problem: Problem, which: str, *, dim: int = 50) -> np.ndarray:
    """Skip-gram over whole admissions, learned from the training part."""
    return data.train_word2vec(
        problem.train_corpus, dim=dim, which=which, seed=problem.seed
    ).X


def glove(
    problem: Problem,
    *,
    dim: int = 50,
    num_steps: int = 2_000,
    rate: float = 0.05,
    saturate: float = 100.0,
    power: float = 0.75,
) -> np.ndarray:
    """GloVe (Pennington et al. 2014) on co-occurrence within documents.

    Full-batch AdaGrad on sum_ij f(C_ij) (w_i'v_j + b_i + c_j - log C_ij)^2 with
    f(C) = min(1, (C / saturate)^power); C_ij counts documents with both words.

    Returns:
      W + V, [N, dim], as its authors advise.
    """
    Y = problem.present[problem.train].astype(np.float64)
    C = Y.T @ Y
    np.fill_diagonal(C, 0.0)
    weight = np.minimum(1.0, (C / saturate) ** power)
    log_C = np.log(np.where(C > 0.0, C, 1.0))
    rng = np.random.default_rng(problem.seed)
    W, V = ((rng.random((len(C), dim)) - 0.5) / dim for _ in range(2))
    params = (W, V, np.zeros(len(C)), np.zeros(len(C)))
    squares = [np.ones_like(x) for x in params]
    for _ in range(num_steps):
        grads = glove_gradient(params, weight, log_C)
        for x, grad, square in zip(params, grads, squares, strict=True):
            square += grad**2
            x -= rate * grad / np.sqrt(square)
    return W + V


def glove_gradient(params, weight, log_C):
    """Half of the gradient of GloVe's loss for W, V, b, c."""
    W, V, b, c = params
    E = weight * (W @ V.T + b[:, None] + c[None, :] - log_C)
    return E @ V, E.T @ W, E.sum(axis=1), E.sum(axis=0)


def random_embeddings(problem: Problem, *, dim: int = 50) -> np.ndarray:
    """Standard normal draws: the control for everything that is learned."""
    rng = np.random.default_rng([problem.seed, 3, problem.draw])
    return rng.standard_normal((problem.corpus.num_words, dim))


# Rows of the tables.


def embedding_rows(name: str, problem: Problem, X: np.ndarray) -> Rows:
    """What embeddings are good for: pooled, by transport, and for recommending."""
    rows = {
        f"{name}, pooled": protocol.pooled_cells(problem, X),
        f"{name}, Wasserstein": protocol.wasserstein_cells(problem, X),
    }
    if problem.rec_rows.size:
        ranked = protocol.rank_by_embedding(problem, X)
        rows[f"{name}, distance"] = protocol.recommend_cells(problem, ranked)
    return rows


def feature_row(name: str, problem: Problem, features: np.ndarray) -> Rows:
    """Row of document features."""
    return {name: protocol.knn_cells(problem, features)}


def _lda_rows(name: str, problem: Problem, prior: float | None) -> Rows:
    found = lda(problem, prior=prior)
    cells = protocol.knn_cells(problem, found.weights)
    return {name: cells | protocol.topic_cells(problem, found.log_B)}


def _one_hot_rows(problem: Problem) -> Rows:
    rows = embedding_rows("one-hot", problem, np.eye(problem.corpus.num_words))
    rows.pop("one-hot, distance", None)  # all distances are equal: no order
    return rows


def _procedure_rows(problem: Problem) -> Rows:
    if not problem.rec_rows.size:
        return {}
    ranked = {
        "most frequent": protocol.rank_by_frequency(problem),
        "naive Bayes": protocol.rank_by_naive_bayes(problem),
    }
    return {n: protocol.recommend_cells(problem, r) for n, r in ranked.items()}


Maker = Callable[[Problem], Rows]
CONTROLS: Mapping[str, Maker] = {
    "majority": lambda p: {"majority class": protocol.majority_cells(p)},
    "random": lambda p: embedding_rows("random", p, random_embeddings(p)),
    "one_hot": _one_hot_rows,
    "procedures": _procedure_rows,
}
LEARNED: Mapping[str, Maker] = {
    "tfidf": lambda p: feature_row("TF-IDF", p, tfidf(p)),
    "tfidf_plain": lambda p: feature_row("TF-IDF, plain", p, tfidf(p, unit_norm=False)),
    "lda": lambda p: _lda_rows("LDA", p, None),
    "lda_flat": lambda p: _lda_rows("LDA, prior 1", p, 1.0),
    "doc2vec": lambda p: feature_row("Doc2Vec", p, doc2vec(p)),
    "word2vec_input": lambda p: embedding_rows(
        "Word2Vec input", p, word2vec(p, "input")
    ),
    "word2vec_sum": lambda p: embedding_rows("Word2Vec sum", p, word2vec(p, "sum")),
    "glove": lambda p: embedding_rows("GloVe", p, glove(p)),
}
ALL = CONTROLS | LEARNED


def rows(problem: Problem, makers: Mapping[str, Maker] = ALL) -> Rows:
    """All rows of these makers for one Problem."""
    out = {}
    for make in makers.values():
        out |= make(problem)
    return out


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    cli.setup_jax()
    corpus = corpora.load(corpora.Spec.from_flags())
    results = tables.Results(f"{FLAGS.part} part of random splits, seeds 0, 1, ...")
    makers = {name: ALL[name] for name in FLAGS.methods or ALL}
    for seed in range(FLAGS.splits):
        results.add(rows(protocol.problem(corpus, seed, FLAGS.part), makers))
        logging.info("split %d of %d done", seed + 1, FLAGS.splits)
        if FLAGS.out:
            results.write(FLAGS.out, "baselines")
    print(results.markdown())


def define_flags():
    flags.DEFINE_integer("splits", 1, "Random splits, seeds 0, 1, ...", lower_bound=1)
    flags.DEFINE_enum("part", "test", ["valid", "test"], "What is evaluated.")
    flags.DEFINE_multi_enum("methods", None, list(ALL), "All if not given.")
    flags.DEFINE_string("out", None, "Folder for baselines.md, .csv and .json.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
