"""Baselines: second opinions, determinism, and nothing learned from what is tested."""

import functools
import subprocess
import sys

import numpy as np
from absl.testing import absltest, parameterized
from scipy.optimize import approx_fprime
from scipy.stats import spearmanr

from dwl_jax import data
from experiments import baselines, protocol


@functools.cache
def small():
    return protocol.problem(data.synthetic_admissions(400, 1), 0)


def other_evaluated():
    """The same split with other evaluated documents: one disease, one procedure."""
    p = small()
    counts = p.corpus.counts.toarray()
    counts[p.rows] = 0
    counts[p.rows, np.arange(p.rows.size) % 56] = 1
    counts[p.rows, 80 - np.arange(p.rows.size) % 25] = 1
    other = data.Corpus(**{**vars(p.corpus), "counts": counts})
    return protocol.problem(other, 0)


class FeaturesTest(parameterized.TestCase):
    @parameterized.parameters(True, False)
    def test_tfidf_formula(self, unit_norm):
        p = small()
        df = p.present[p.train].sum(axis=0)
        want = p.present * (np.log((1 + p.train.size) / (1 + df)) + 1)
        if unit_norm:
            want = want / np.linalg.norm(want, axis=1, keepdims=True)
        got = baselines.tfidf(p, unit_norm=unit_norm)
        np.testing.assert_allclose(got, want)

    def test_lda_gives_distributions(self):
        found = baselines.lda(small(), num_topics=3, max_iter=2)
        self.assertEqual(found.weights.shape, (400, 3))
        np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
        np.testing.assert_allclose(np.exp(found.log_B).sum(axis=1), 1.0)

    def test_doc2vec_is_the_same_in_another_process(self):
        """gensim's own inference starts from Python's salted hash."""
        code = (
            "from dwl_jax import data; from experiments import baselines, protocol;"
            "p = protocol.problem(data.synthetic_admissions(400, 1), 0);"
            "print(repr(float(abs(baselines.doc2vec(p, dim=4, epochs=2)).sum())))"
        )
        out = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            check=True,
        )
        got = np.abs(baselines.doc2vec(small(), dim=4, epochs=2)).sum()
        self.assertEqual(float(out.stdout), got)


class EmbeddingsTest(parameterized.TestCase):
    def test_random_control_is_another_in_every_trial(self):
        corpus = small().corpus
        draw = lambda t: baselines.random_embeddings(
            protocol.problem(corpus, 0, trial=t), dim=2
        )
        np.testing.assert_array_equal(draw(None), draw(None))
        drawn = [draw(t).tolist() for t in (None, 0, 1)]
        self.assertLen({str(x) for x in drawn}, 3)

    def test_glove_gradient(self):
        """Against finite differences of the loss in its paper."""
        rng = np.random.default_rng(0)
        shapes = [(4, 2), (4, 2), (4,), (4,)]
        weight, log_C = rng.random((4, 4)), rng.random((4, 4))
        ends = np.cumsum([0] + [int(np.prod(s)) for s in shapes])
        cut = lambda x: [
            x[a:b].reshape(s)
            for a, b, s in zip(ends[:-1], ends[1:], shapes, strict=True)
        ]

        def loss(x):
            W, V, b, c = cut(x)
            return sum(
                weight[i, j] * (W[i] @ V[j] + b[i] + c[j] - log_C[i, j]) ** 2
                for i in range(4)
                for j in range(4)
            )

        x = rng.standard_normal(ends[-1])
        got = baselines.glove_gradient(cut(x), weight, log_C)
        want = approx_fprime(x, loss, 1e-7)
        np.testing.assert_allclose(
            2 * np.concatenate([g.ravel() for g in got]), want, rtol=1e-4, atol=1e-5
        )

    def test_glove_brings_words_of_one_document_together(self):
        p = small()
        X = baselines.glove(p, dim=10, num_steps=500)
        Y = p.present[p.train].astype(float)
        often = np.flatnonzero(Y.sum(axis=0) >= 10)
        together = (Y.T @ Y)[np.ix_(often, often)]
        pairs = np.triu_indices(often.size, 1)
        rank = spearmanr((X @ X.T)[np.ix_(often, often)][pairs], together[pairs])
        self.assertGreater(rank.statistic, 0.3)

    @parameterized.named_parameters(
        ("glove", lambda p: baselines.glove(p, dim=5, num_steps=20)),
        ("word2vec", lambda p: baselines.word2vec(p, "input", dim=5)),
        ("lda", lambda p: baselines.lda(p, num_topics=2, max_iter=1).log_B),
        ("tfidf", lambda p: baselines.tfidf(p)[p.train]),
        ("doc2vec", lambda p: baselines.doc2vec(p, dim=3, epochs=1)[p.train]),
        ("frequency", lambda p: protocol.rank_by_frequency(p)[0]),
    )
    def test_learns_from_the_training_part_only(self, make):
        np.testing.assert_array_equal(make(small()), make(other_evaluated()))


class RowsTest(absltest.TestCase):
    def test_all_rows_have_the_cells_of_their_kind(self):
        quick = ("majority", "random", "one_hot", "procedures", "tfidf", "glove")
        found = baselines.rows(small(), {name: baselines.ALL[name] for name in quick})
        self.assertContainsSubset(
            ["majority class", "random, Wasserstein", "one-hot, pooled", "naive Bayes"],
            found,
        )
        for row, cells in found.items():
            kind = row.split(", ")[-1]
            ranks = kind in ("distance", "naive Bayes", "most frequent")
            want = "rec/f1@5" if ranks else "type_merged/5nn/balanced"
            self.assertIn(want, cells, row)
            self.assertTrue(all(0.0 <= v <= 100.0 for v in cells.values()))

    def test_words_without_kinds_have_no_recommendation(self):
        corpus = data.from_tokens(
            [list("ab"), list("bc"), list("cd")] * 20, labels=list("xyz") * 20
        )
        p = protocol.problem(corpus, 0)
        found = baselines.rows(p, baselines.CONTROLS)
        self.assertEqual(
            list(found),
            ["majority class", "random, pooled", "random, Wasserstein"]
            + ["one-hot, pooled", "one-hot, Wasserstein"],
        )
        self.assertEqual(found["one-hot, pooled"]["label/1nn"], 100.0)


if __name__ == "__main__":
    absltest.main()
