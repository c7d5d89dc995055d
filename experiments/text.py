"""Topics of text beside what people use, and beside what could prove transport idle.

    python -m experiments.text --data=20ng --path=FOLDER --topics=50 --seeds=5 --out=DIR
    python -m experiments.text --data=m10 --path=corpus.tsv --topics=20 --out=DIR
    python -m experiments.text --data=npz --path=corpus.npz --topics=20 --out=DIR

`20ng` is a folder with {train,test}_bow.npz, their labels and vocab.txt; `m10` has
text<tab>part<tab>label in a line; `npz` is a labelled corpus saved by dwl_jax.data. All
methods learn from the training part. Clusters are the largest weights of the evaluated
documents; coherence is over the training documents; classifiers learn from the weights
of the training documents. Everything is learned anew from each seed. Writes
text.{md,csv,json}; --part=valid is for choosing settings.
"""

import functools
import os
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import scipy.sparse as sp
from absl import flags, logging

import dwl_jax
from dwl_jax import data, metrics, presets, start, train
from dwl_jax.documents import Documents, from_counts, sparse
from experiments import cli, tables

TOP_N = (10, 15)
_NEAREST = 5
_VALID = 5  # every so manieth training document of 20ng is kept back to choose by


class Text(NamedTuple):
    """Labelled documents: those that are learned from, and those that are judged."""

    train: sp.csr_array  # [M, N]
    test: sp.csr_array
    labels: np.ndarray  # [M]
    truth: np.ndarray  # of test
    vocab: tuple[str, ...]


class Found(NamedTuple):
    """What a method says."""

    weights: np.ndarray  # [M, K] of the documents that it learned from
    told: np.ndarray  # of the others
    tops: np.ndarray  # [K, 15] words of each topic, first ones first
    X: np.ndarray | None = None  # [N, dim]


def read_20ng(path: str, part: str) -> Text:
    """Bags of words in scipy's format, with a label a line."""
    at = functools.partial(os.path.join, path)
    counts, labels = [], []
    for name in ("train", "test"):
        counts.append(sp.csr_array(sp.load_npz(at(f"{name}_bow.npz"))))
        labels.append(np.loadtxt(at(f"{name}_labels.txt"), dtype=int))
    with open(at("vocab.txt"), encoding="utf-8") as handle:
        vocab = tuple(handle.read().split())
    if part == "valid":
        kept = np.arange(counts[0].shape[0]) % _VALID == 0
        counts = [counts[0][~kept], counts[0][kept]]
        labels = [labels[0][~kept], labels[0][kept]]
    return Text(*counts, *labels, vocab)


def read_m10(path: str, part: str) -> Text:
    """Titles with the part that they belong to."""
    with open(path, encoding="utf-8") as handle:
        rows = [line.rstrip("\n").split("\t") for line in handle]
    wanted = {"train": "train", "test": {"valid": "val", "test": "test"}[part]}
    corpus = data.from_tokens([row[0].split() for row in rows])
    parts, labels = np.array([row[1] for row in rows]), np.array([r[2] for r in rows])
    first, second = (np.flatnonzero(parts == name) for name in wanted.values())
    return _known(corpus.counts, corpus.vocab, labels, first, second)


def read_npz(path: str, part: str) -> Text:
    """A corpus with one label, divided at random."""
    corpus = data.load(path)
    if len(corpus.labels) != 1:
        raise ValueError(f"--path: {path} has {len(corpus.labels)} labels, not one.")
    labels = next(iter(corpus.labels.values()))
    first, valid, test = data.split_rows(corpus.num_docs, seed=0)
    second = valid if part == "valid" else test
    return _known(corpus.counts, corpus.vocab, labels, first, second)


def _known(counts, vocab, labels, first, second) -> Text:
    """The words that the first rows have, and documents that have any of them."""
    words = np.flatnonzero(counts[first].sum(axis=0) > 0)
    counts = sp.csr_array(counts[:, words])
    second = second[counts[second].sum(axis=1) > 0]
    vocab = tuple(vocab[n] for n in words)
    return Text(counts[first], counts[second], labels[first], labels[second], vocab)


READERS = {"20ng": read_20ng, "m10": read_m10, "npz": read_npz}


# Methods: from a Text, K topics and a seed to Found.


def dwl(text: Text, K: int, seed: int, **changes) -> Found:
    """The recipe, or a part of it."""
    cfg, hyper, epochs = presets.default(text.train, num_topics=K, **changes)
    state, _ = dwl_jax.fit(
        jax.random.key(seed), text.train, hyper, cfg=cfg, num_epochs=epochs
    )
    model = dwl_jax.model(state, cfg)
    weights, told = (
        dwl_jax.infer_rows(x, model, hyper, cfg=cfg).lam
        for x in (text.train, text.test)
    )
    log_y = np.asarray(dwl_jax.topic_documents(model, hyper, cfg=cfg))
    return Found(weights, told, metrics.own_words(log_y, max(TOP_N)), model.X)


def pooled_clusters(text: Text, K: int, seed: int, **changes) -> Found:
    """Where the recipe starts: untrained embeddings, and clusters pooled in them."""
    N = len(text.vocab)
    cfg, hyper, _ = presets.default(text.train, num_topics=K, **changes)
    task = train.prepare(jax.random.key(seed), text.train, hyper, cfg=cfg)
    A, R, X = map(np.asarray, task.state.params)
    pool = lambda counts: start.pooled(sparse(from_counts(counts), N), X)
    Z, member = pool(text.train), A.argmax(axis=1)
    centres = np.stack([Z[member == k].sum(axis=0) for k in range(K)])
    centres /= np.maximum(np.linalg.norm(centres, axis=1, keepdims=True), 1e-30)
    tops = metrics.own_words(R, max(TOP_N))
    return Found(Z @ centres.T, pool(text.test) @ centres.T, tops, X)


def lda(text: Text, K: int, seed: int) -> Found:
    """Online LDA of scikit-learn, 10 passes."""
    from sklearn.decomposition import LatentDirichletAllocation

    return _sklearn(
        LatentDirichletAllocation(K, learning_method="online", random_state=seed), text
    )


def nmf(text: Text, K: int, seed: int, *, of_tfidf: bool) -> Found:
    """NMF of counts by the KL loss, or of TF-IDF."""
    from sklearn.decomposition import NMF

    how = {"beta_loss": "kullback-leibler", "solver": "mu"}
    model = NMF(K, init="nndsvda", random_state=seed, **({} if of_tfidf else how))
    return _sklearn(model, text, of_tfidf)


def _sklearn(model, text: Text, of_tfidf: bool = False) -> Found:
    from sklearn.feature_extraction.text import TfidfTransformer

    parts = [x.astype(np.float64) for x in (text.train, text.test)]
    if of_tfidf:
        transform = TfidfTransformer().fit(parts[0]).transform
        parts = list(map(transform, parts))
    model.fit(parts[0])
    share = lambda W: W / np.maximum(W.sum(axis=1, keepdims=True), 1e-30)
    log_B = np.log(np.maximum(share(model.components_), 1e-12))
    weights = (share(model.transform(x)) for x in parts)
    return Found(*weights, metrics.own_words(log_B, max(TOP_N)))


METHODS: dict[str, Callable[..., Found]] = {
    "DWL": dwl,
    "without transport": functools.partial(dwl, transport=False),
    "frozen embeddings": functools.partial(dwl, learn_embeddings=False),
    "k-means of pooled spectral embeddings": pooled_clusters,
    "online LDA": lda,
    "NMF of counts, KL": functools.partial(nmf, of_tfidf=False),
    "NMF of TF-IDF": functools.partial(nmf, of_tfidf=True),
}
OURS = tuple(METHODS)[:4]


# Scores.


def cells(text: Text, found: Found) -> dict[str, float]:
    """All columns but the time, in percent."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier

    own, docs, N = found.told.argmax(axis=1), from_counts(text.train), len(text.vocab)
    out = {
        "text/purity": metrics.purity(own, text.truth),
        "text/nmi": metrics.nmi(own, text.truth),
    }
    for n in TOP_N:
        tops = found.tops[:, :n]
        out[f"text/npmi{n}"] = metrics.npmi(tops, docs, N).mean()
        out[f"text/diversity{n}"] = metrics.diversity(tops)
    judges = {
        "logistic": LogisticRegression(C=100.0, max_iter=500),
        "5nn": KNeighborsClassifier(5),
    }
    for name, judge in judges.items():
        judge.fit(found.weights, text.labels)
        out[f"text/{name}"] = judge.score(found.told, text.truth)
    if found.X is not None:
        out["text/words"] = nearest_words(found.X, docs, N)
    return {name: 100.0 * float(value) for name, value in out.items()}


def nearest_words(X: np.ndarray, docs: Documents, num_words: int) -> float:
    """NPMI of each word with those nearest to it, the mean over words that occur."""
    X = np.asarray(X, np.float64)
    seen = np.flatnonzero(sparse(docs, num_words).sum(axis=0) > 0.0)
    D = metrics.euclidean(X[seen], X[seen])
    np.fill_diagonal(D, np.inf)
    near = seen[np.argsort(D, axis=1, kind="stable")[:, :_NEAREST]]
    pairs = np.stack([np.repeat(seen, near.shape[1]), near.ravel()], axis=1)
    return metrics.npmi(pairs, docs, num_words).mean()


def compare(text: Text, K: int, seeds: int, out: str, methods, changes: dict, title):
    """Results over the seeds, written after each; a stopped comparison goes on."""
    results, path = tables.Results(title), os.path.join(out, "text.json")
    if os.path.exists(path):
        results = tables.read(path)
        if results.title != title:
            raise ValueError(f"--out={out}: holds another comparison: {results.title}")
    for seed in range(results.num_trials, seeds):
        rows = {}
        for name in methods:
            begin = time.perf_counter()
            found = METHODS[name](text, K, seed, **(changes if name in OURS else {}))
            took = time.perf_counter() - begin
            rows[name] = cells(text, found) | {"text/seconds": took}
            logging.info("seed %d, %s: %.1f s %s", seed, name, took, rows[name])
        results.add(rows)
        results.write(out, "text")
    return results


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    cli.setup_jax()
    changes = cli.settings(FLAGS.change)
    presets.default(**changes)  # wrong settings are named before any work
    try:
        text = READERS[FLAGS.data](FLAGS.path, FLAGS.part)
    except (OSError, IndexError, KeyError) as error:
        kind = type(error).__name__
        raise ValueError(f"--path: {FLAGS.path}: {kind}: {error}") from error
    title = (
        f"{FLAGS.data}, {text.train.shape[0]:,} documents to learn from, "
        f"{text.test.shape[0]:,} of the {FLAGS.part} part, {len(text.vocab):,} words, "
        f"{FLAGS.topics} topics{'; changed: ' + str(changes) if changes else ''}"
    )
    methods = FLAGS.method or list(METHODS)
    results = compare(
        text, FLAGS.topics, FLAGS.seeds, FLAGS.out, methods, changes, title
    )
    report = results.markdown()
    if "without transport" in methods:
        rows = [name for name in OURS if name in methods]
        report += "\n" + results.differences("without transport", rows)
    with open(os.path.join(FLAGS.out, "text.md"), "w", encoding="utf-8") as handle:
        handle.write(report)
    print(report)


def define_flags():
    flags.DEFINE_enum("data", None, list(READERS), "What --path is.", required=True)
    flags.DEFINE_string("path", None, "File or folder.", required=True)
    flags.DEFINE_integer("topics", 50, "K.", lower_bound=1)
    flags.DEFINE_integer("seeds", 5, "Runs of each method.", lower_bound=1)
    flags.DEFINE_enum("part", "test", ["valid", "test"], "What is judged.")
    flags.DEFINE_multi_enum("method", [], list(METHODS), "Some alone; all if none.")
    flags.DEFINE_multi_string("change", [], "A setting of the recipe: name=value.")
    flags.DEFINE_string("out", None, "Folder for the results.", required=True)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
