"""The protocol against scikit-learn, scipy and the package's own metrics."""

import functools

import numpy as np
import reference
from absl.testing import absltest, parameterized
from scipy import stats
from sklearn.metrics import accuracy_score, balanced_accuracy_score
from sklearn.naive_bayes import BernoulliNB
from sklearn.neighbors import KNeighborsClassifier

import dwl_jax
from dwl_jax import data, metrics
from dwl_jax.documents import from_counts
from experiments import protocol


@functools.cache
def small(seed=0, part="test", trial=None):
    corpus = data.synthetic_admissions(400, 1)
    return protocol.problem(corpus, seed, part, trial=trial)


class ProblemTest(parameterized.TestCase):
    @parameterized.parameters(("test", None), ("valid", None), ("test", 0), ("test", 3))
    def test_nothing_evaluated_is_learned_from(self, part, trial):
        p = small(1, part, trial)
        train, valid, test = data.split_rows(400, seed=1)
        self.assertTrue(set(p.train) <= set(train))
        np.testing.assert_array_equal(p.rows, test if part == "test" else valid)
        for task in p.tasks.values():
            self.assertTrue(set(task.references) <= set(p.train))
            self.assertTrue(set(task.queries) <= set(p.rows))

    def test_mortality_is_balanced_and_holds_all_deaths(self):
        task = small().tasks["mortality"]
        died = small().corpus.labels["died"] == "died"
        for rows, part in ((task.references, "train"), (task.queries, "rows")):
            self.assertEqual(died[rows].sum(), died[getattr(small(), part)].sum())
            self.assertEqual(2 * died[rows].sum(), rows.size)

    def test_seeds_and_trials(self):
        again = protocol.problem(small().corpus, 0)
        np.testing.assert_array_equal(
            small().tasks["mortality"].references, again.tasks["mortality"].references
        )
        one, two = small(0, "test", 0), small(0, "test", 1)
        self.assertEqual(one.train.size, 160)
        self.assertFalse(np.array_equal(one.train, two.train))
        np.testing.assert_array_equal(one.rows, two.rows)

    def test_missing_labels_and_other_classes_are_left_out(self):
        corpus = small().corpus
        types = corpus.labels["admission_type"].copy().astype("U16")
        died = corpus.labels["died"].copy().astype("U16")
        types[::7], types[1::7], died[::5] = "", "trauma", ""
        labels = {"died": died, "admission_type": types, "ward": types}
        odd = data.Corpus(**{**vars(corpus), "labels": labels})
        tasks = protocol.problem(odd, 0).tasks
        self.assertEqual(list(tasks), ["mortality", "type", "type_merged", "ward"])
        used = lambda t: set(t.labels[np.concatenate([t.references, t.queries])])
        four = {"elective", "emergency", "newborn", "urgent"}
        self.assertEqual(used(tasks["type"]), four)
        self.assertEqual(used(tasks["type_merged"]), four - {"urgent"})
        self.assertEqual(used(tasks["mortality"]), {"alive", "died"})
        self.assertEqual(used(tasks["ward"]), four | {"trauma"})

    def test_bad_input(self):
        with self.assertRaisesRegex(ValueError, "part"):
            protocol.problem(small().corpus, 0, "train")
        with self.assertRaisesRegex(ValueError, "too few"):
            protocol.problem(data.synthetic_admissions(20, 0), 0)


class ClassificationTest(parameterized.TestCase):
    @parameterized.product(task=["mortality", "type", "type_merged"], k=[1, 5])
    def test_cells_match_scikit_learn(self, task, k):
        p = small()
        features = np.random.default_rng(0).standard_normal((400, 6))
        cells, t = protocol.knn_cells(p, features), p.tasks[task]
        # Distinct distances; a vote's tie goes to the nearer class, as by weights that
        # fall so slowly that they never outweigh a vote.
        tie = lambda d: 1.0 + 0.05 * 2.0 ** -np.arange(1, d.shape[1] + 1) + 0 * d
        model = KNeighborsClassifier(k, weights=tie)
        model.fit(features[t.references], t.labels[t.references])
        told = model.predict(features[t.queries])
        true = t.labels[t.queries]
        accuracy, balanced = f"{task}/{k}nn", f"{task}/{k}nn/balanced"
        self.assertAlmostEqual(cells[accuracy], 100 * accuracy_score(true, told))
        self.assertAlmostEqual(
            cells[balanced], 100 * balanced_accuracy_score(true, told)
        )

    def test_vote_is_that_of_metrics(self):
        rng = np.random.default_rng(0)
        D, labels = (
            rng.integers(0, 3, (50, 12)).astype(float),
            rng.choice(list("abc"), 12),
        )
        near = np.argsort(D, axis=1, kind="stable")[:, :5]
        want = reference.knn_predict(D, labels, 5)
        np.testing.assert_array_equal(protocol.vote(labels[near]), want)

    def test_wasserstein_matches_entropic_limit(self):
        """Sinkhorn at a small epsilon, all pairs, gives the same neighbours."""
        p = small()
        X = np.random.default_rng(0).standard_normal((81, 4))
        D = metrics.euclidean(X, X)
        D = D / D.max()
        task = p.tasks["mortality"]
        rows = lambda r: dwl_jax.Documents(p.documents.words[r], p.documents.mass[r])
        soft = metrics.wasserstein(
            rows(task.queries), rows(task.references), D, 0.005, num_iters=800
        )
        told = reference.knn_predict(soft, task.labels[task.references], 1)
        want = 100 * metrics.accuracy(told, task.labels[task.queries])
        got = protocol.wasserstein_cells(p, X)["mortality/1nn"]
        self.assertLessEqual(abs(got - want), 100 / task.queries.size + 1e-9)

    def test_majority(self):
        cells = protocol.majority_cells(small())
        self.assertEqual(cells["mortality/5nn"], 50.0)
        true = small().tasks["type"].labels[small().tasks["type"].queries]
        self.assertAlmostEqual(cells["type/1nn"], 100 * np.mean(true == "emergency"))
        self.assertAlmostEqual(cells["type/1nn/balanced"], 100 / len(set(true)))

    def test_features_must_be_finite(self):
        with self.assertRaisesRegex(ValueError, "finite"):
            protocol.knn_cells(small(), np.full((400, 2), np.nan))


class RecommendationTest(absltest.TestCase):
    def test_cells_match_metrics(self):
        p = small()
        ranked = protocol.rank_by_embedding(
            p, np.random.default_rng(0).standard_normal((81, 5))
        )
        cells = protocol.recommend_cells(p, ranked)
        truth = [
            set(p.procedures[row].tolist())
            for row in p.present[p.rec_rows][:, p.procedures]
        ]
        for n in (1, 3, 5):
            want = reference.precision_recall_f1(ranked, truth, n)
            got = [cells[f"rec/{s}@{n}"] for s in ("p", "r", "f1")]
            np.testing.assert_allclose(got, 100 * np.array(want))

    def test_naive_bayes_matches_scikit_learn(self):
        p = small()
        Y = p.present[p.train]
        seen = p.present[p.rec_rows][:, p.is_disease]
        score = np.zeros((p.rec_rows.size, p.procedures.size))
        for j, word in enumerate(p.procedures):
            model = BernoulliNB(alpha=0.1).fit(Y[:, p.is_disease], Y[:, word])
            if len(model.classes_) == 2:  # the procedure occurs
                log = model.predict_joint_log_proba(seen)
                score[:, j] = log[:, 1] - log[:, 0]
        occurs = Y[:, p.procedures].any(axis=0)
        got = protocol.rank_by_naive_bayes(p)[:, :5]
        want = protocol.rank_by_score(p, np.where(occurs, score, -np.inf))[:, :5]
        # The prior is smoothed here and not there: near ties may swap.
        self.assertGreater(np.mean(got == want), 0.98)

    def test_frequency(self):
        p = small()
        count = p.present[p.train].sum(axis=0)
        ranked = protocol.rank_by_frequency(p)
        self.assertTrue((np.diff(count[ranked[0]]) <= 0).all())
        self.assertTrue((ranked == ranked[0]).all())

    def test_reconstruction_does_not_see_procedures(self):
        p = small()
        cfg = dwl_jax.Config(num_topics=3, dim=4, num_iters=3, kernel="log")
        hyper = dwl_jax.Hyper()
        rng = np.random.default_rng(0)
        log_B = np.log(rng.dirichlet(np.full(81, 0.3), 3) + 1e-6)
        log_B -= np.log(np.exp(log_B).sum(axis=1, keepdims=True))
        model = dwl_jax.Model(log_B, rng.standard_normal((81, 4)))
        rank = functools.partial(
            protocol.rank_by_reconstruction, model=model, hyper=hyper, cfg=cfg
        )
        want = rank(p, num_steps=5)
        counts = p.corpus.counts.toarray()
        counts[np.ix_(p.rows, p.procedures)] = 0
        counts[p.rows, p.procedures[0]] = 1  # so that the rows are evaluated
        other = data.Corpus(**{**vars(p.corpus), "counts": counts})
        got = rank(protocol.problem(other, 0), num_steps=5)
        np.testing.assert_array_equal(got, want)


class TopicsTest(absltest.TestCase):
    def test_weights_are_those_of_infer(self):
        p = small()
        cfg = dwl_jax.Config(num_topics=2, dim=3, num_iters=2, kernel="log")
        rng = np.random.default_rng(0)
        log_B = np.log(rng.dirichlet(np.ones(81), 2))
        model = dwl_jax.Model(log_B, rng.standard_normal((81, 3)))
        lam = protocol.topic_weights(p, model, dwl_jax.Hyper(), cfg=cfg, num_steps=3)
        rows = p.rows[:10]
        docs = from_counts(p.corpus.counts[rows])
        want = dwl_jax.infer(docs, model, dwl_jax.Hyper(), cfg=cfg, num_steps=3).lam
        np.testing.assert_allclose(lam[rows], want, rtol=1e-5)
        np.testing.assert_allclose(lam[p.train].sum(axis=1), 1.0, rtol=1e-5)

    def test_cells(self):
        log_B = np.zeros((2, 81))
        log_B[:, :10] = 1.0  # both topics have the same top words
        cells = protocol.topic_cells(small(), log_B)
        self.assertEqual(cells["topics/diversity"], 50.0)
        self.assertBetween(cells["topics/npmi"], -100.0, 100.0)


class IntervalTest(parameterized.TestCase):
    def test_matches_scipy(self):
        rng = np.random.default_rng(0)
        a, b = rng.random(12), rng.random(12)
        got = protocol.paired(a, b)
        want = stats.ttest_rel(a, b).confidence_interval(0.9)
        np.testing.assert_allclose([got.low, got.high], [want.low, want.high])
        self.assertEqual(got.excludes_zero, stats.ttest_rel(a, b).pvalue < 0.1)

    def test_overlap_widens(self):
        x = np.arange(10.0)
        plain, wide = protocol.interval(x), protocol.interval(x, overlap=0.5)
        self.assertAlmostEqual(wide.half / plain.half, np.sqrt((0.1 + 0.5) / 0.1))

    def test_edges(self):
        self.assertFalse(protocol.interval([1.0]).excludes_zero)
        self.assertTrue(protocol.interval([1.0, 1.0]).excludes_zero)
        with self.assertRaisesRegex(ValueError, "paired"):
            protocol.paired([1.0, 2.0], [1.0])
        with self.assertRaises(ValueError):
            protocol.interval([])


if __name__ == "__main__":
    absltest.main()
