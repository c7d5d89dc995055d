"""Sentiment of tweets (the appendix's last experiment).

    python -m experiments.paper.twitter --twitter=FILE --out=DIR

FILE has label<tab>text lines. Embeddings are learned from the texts of the training
part, without labels; k of k-NN is chosen by leaving one out inside the training part.
The dense kernel is N x N: DWL learns the most frequent words, the others keep the
vectors it started from.
"""

import jax
import numpy as np
from scipy.spatial.distance import cdist
from sklearn.feature_extraction.text import TfidfTransformer

import dwl_jax
from dwl_jax import data, neighbors, presets
from dwl_jax.data.corpus import take
from dwl_jax.documents import Documents
from experiments import corpora, protocol, tables
from experiments.paper import knn, published, run, units
from experiments.paper.section import Section, Sheet, cell, difference, text

NAME = "twitter"
SPLITS = 5
SHARE = 0.7  # of the tweets is for training
WORDS = 200  # that DWL learns
KS = (1, 3, 5, 9, 15, 19)
TUNING = 600  # training tweets that choose k
DEPENDS = lambda current: {"tweets": _digest(current)}


def _digest(current: run.Run) -> str:
    return "" if current.tweets is None else corpora.digest(current.tweets)[:8]


def learned(train: data.Corpus, start: np.ndarray, recipe, seed: int, given: bool):
    """Embeddings of all words, [N, dim]: frequent ones learned, others as they start.

    Args:
      train: texts to learn from.
      start: vectors of all words, of the size that the recipe expects; rare words have
        nothing beside them.
      recipe: a Preset.
      seed: of training.
      given: whether the frequent words start from `start` too, or from draws.
    """
    common = data.select_top(train, words=min(WORDS, train.num_words))
    place = {word: n for n, word in enumerate(train.vocab)}
    chosen = np.array([place[word] for word in common.vocab])
    state, _ = dwl_jax.fit(
        jax.random.key(seed),
        common.documents(),
        recipe.hyper,
        cfg=recipe.cfg,
        num_epochs=recipe.num_epochs,
        num_words=common.num_words,
        vectors=start[chosen] if given else None,
    )
    X = np.zeros((len(start), recipe.cfg.dim))
    X[:, : start.shape[1]] = start
    X[chosen] = np.asarray(dwl_jax.model(state, recipe.cfg).X)
    return X


class Split:
    """One random split; `error(find)` is the test error in percent of a search."""

    def __init__(self, corpus: data.Corpus, seed: int):
        (self._labels,) = corpus.labels.values()
        rng = np.random.default_rng([seed, 11])
        rows = rng.permutation(corpus.num_docs)
        size = round(SHARE * corpus.num_docs)
        self.train, self.test = np.sort(rows[:size]), np.sort(rows[size:])
        self._tune = np.sort(rng.choice(size, min(TUNING, size), replace=False))

    def error(self, find) -> float:
        """find(queries, references, k) -> places among references, [Q, k]."""
        labels, most = self._labels[self.train], max(KS)
        near = find(self.train[self._tune], self.train, most + 1)
        near = knn.without_self(near, self._tune)
        k = knn.choose(labels, near, labels[self._tune], KS)
        near = find(self.test, self.train, k)
        return 100 * (1 - knn.accuracy(labels, near, self._labels[self.test], k))

    def majority_error(self) -> float:
        """Of always saying what most training tweets are."""
        classes, number = np.unique(self._labels[self.train], return_counts=True)
        told = classes[np.argmax(number)]
        return 100 * float(np.mean(self._labels[self.test] != told))


def errors(corpus: data.Corpus, seed: int, changes: dict) -> dict[str, float]:
    """Test error of every row for one split, in percent."""
    split, docs = Split(corpus, seed), corpus.documents(np.float64)
    train = take(corpus, split.train, f"training tweets of split {seed}")
    sizes = presets.Sizes(train.num_docs, min(WORDS, train.num_words))
    scratch, tuned = (
        presets.default(sizes, mode=mode, **changes) for mode in ("scratch", "finetune")
    )
    dim = scratch.cfg.dim
    rows = lambda r: Documents(docs.words[r], docs.mass[r])

    def wasserstein(X):
        D = cdist(X, X)
        return split.error(lambda q, r, k: neighbors.knn(rows(q), rows(r), D, k).index)

    def pooled(X):
        F = np.einsum("ms,msd->md", docs.mass, X[docs.words])
        return split.error(lambda q, r, k: protocol.nearest(F[q], F[r], k))

    def tfidf(norm):
        model = TfidfTransformer(norm=norm).fit(train.counts)
        F = model.transform(corpus.counts)
        square = np.asarray(F.multiply(F).sum(axis=1)).ravel()

        def find(q, r, k):
            D = square[q][:, None] + square[r][None, :] - 2 * (F[q] @ F[r].T).toarray()
            D = np.sqrt(np.maximum(D, 0.0))
            return neighbors.smallest(D, k, 1e-7 * D.max())[0]

        return split.error(find)

    random = np.random.default_rng([seed, 12]).standard_normal((corpus.num_words, dim))
    vectors = data.train_word2vec(train, dim=dim, which="input", seed=seed).X
    start = presets.starting_vectors(vectors, tuned.cfg)
    X = learned(train, random, scratch, seed, given=False)
    Z = learned(train, start, tuned, seed, given=True)
    return {
        "always the commonest label": split.majority_error(),
        "TF-IDF": tfidf(None),
        "TF-IDF, unit norm": tfidf("l2"),
        "random, Wasserstein": wasserstein(random),
        "Word2Vec, pooled": pooled(vectors),
        "Word2Vec, Wasserstein": wasserstein(vectors),
        "DWL scratch, pooled": pooled(X),
        "DWL scratch, Wasserstein": wasserstein(X),
        "DWL fine-tuned, pooled": pooled(Z),
        "DWL fine-tuned, Wasserstein": wasserstein(Z),
    }


def sheets(found: tables.Results) -> list[Sheet]:
    """Errors beside the paper's, and their paired differences to the best other row."""
    listed = list(found.values)
    mean = lambda row: found.interval(row, "error").mean
    least = min(map(mean, listed))
    rows = []
    for row in listed:
        at = found.interval(row, "error")
        paper = published.TWITTER[0] if row == "DWL fine-tuned, Wasserstein" else None
        rows.append([row, cell(at.mean, at.half, paper=paper, best=at.mean == least)])
    table = Sheet(
        NAME,
        "Test error, %",
        ["method", "error"],
        rows,
        [
            f"Mean ± 90 % interval over {found.num_trials} random {SHARE:.0%} splits; "
            "the paper's number in brackets is of a split that is not published."
        ],
    )
    others = [row for row in listed if not row.startswith("DWL")]
    best = min(others, key=mean)
    lines = []
    for row in listed:
        if row.startswith("DWL"):
            gap = difference(found.paired(row, best, "error"))
            lines.append([row, gap | {"best": gap["high"] < 0}])
    head = ["method", f"minus {best} ({mean(best):.1f})"]
    title = "Paired differences to the best other row"
    return [table, Sheet("twitter_paired", title, head, lines)]


def make(current: run.Run) -> Section:
    title = "Appendix — sentiment of tweets"
    if current.tweets is None:
        reason = "no tweets were given: --twitter=FILE, lines of label<tab>text."
        return Section(NAME, title, "", skipped=reason)
    corpus = run.scaled(current.tweets, current.scale)
    names = [f"twitter-{_digest(current)}-{n}" for n in range(SPLITS)]
    arguments = lambda name: (corpus, int(name[-1]), current.changes)
    found = tables.Results("tweets")
    for row in units.spread(current, names, errors, arguments, "Tweets").values():
        found.add({name: {"error": value} for name, value in row.items()})
    found.write(current.path("tables", ""), "twitter_splits")
    made = sheets(found)
    told = "; ".join(f"{row[0]} {text(row[1])}" for row in made[0].rows)
    return Section(
        NAME,
        title,
        f"{corpus.num_docs:,} tweets are told negative, neutral or positive by their "
        "nearest neighbours. Most are neutral: always saying so is the first bar.",
        sheets=made,
        findings=[f"Test error on tweets, %: {told}."],
        notes=[
            f"Embeddings are learned from the training tweets; DWL learns the {WORDS} "
            "most frequent words, the others keep the vectors it starts from.",
        ],
    )


if __name__ == "__main__":
    run.main(make)
