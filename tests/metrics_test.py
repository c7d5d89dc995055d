"""Metrics against scikit-learn, POT and hand computation."""

import jax.numpy as jnp
import numpy as np
import ot
import problems
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from sklearn import metrics as sk
from sklearn.neighbors import KNeighborsClassifier

from dwl_jax import metrics
from dwl_jax.documents import Documents, dense, from_counts

RNG = np.random.default_rng(0)


def test_pooling_is_the_mean_embedding_by_mass():
    counts, _ = problems.counts(num_docs=6, num_words=7)
    docs = from_counts(counts, dtype=np.float64)
    X = RNG.normal(size=(7, 3))
    want = counts / counts.sum(axis=1, keepdims=True) @ X
    got = metrics.pool(Documents(*map(jnp.asarray, docs)), jnp.asarray(X))
    np.testing.assert_allclose(got, want, rtol=1e-12)


def test_euclidean_is_scipys():
    F, G = RNG.normal(size=(5, 4)), RNG.normal(size=(6, 4))
    np.testing.assert_allclose(metrics.euclidean(F, G), cdist(F, G), rtol=1e-10)


def test_equal_rows_are_at_distance_zero():
    F = RNG.normal(size=(40, 50)).astype(np.float32)
    np.testing.assert_array_equal(np.diagonal(metrics.euclidean(F, F)), 0.0)


def test_wasserstein_between_documents_nears_exact_transport_from_above():
    counts, _ = problems.counts(num_docs=6, num_words=8)
    docs = from_counts(counts, dtype=np.float64)
    D = np.array(problems.problem(num_words=8).D)
    Y = np.asarray(dense(Documents(*map(jnp.asarray, docs)), 8))
    exact = np.array([[ot.emd2(a / a.sum(), b / b.sum(), D) for b in Y[:4]] for a in Y])
    half = lambda rows: Documents(docs.words[rows], docs.mass[rows])
    run = lambda eps: np.asarray(
        metrics.wasserstein(docs, half(slice(4)), jnp.asarray(D), eps, num_iters=2000)
    )
    fine, coarse = run(0.02), run(0.2)
    assert fine.shape == (6, 4)
    np.testing.assert_allclose(fine, exact, atol=5e-3)
    assert (fine > exact - 1e-6).all() and (coarse > fine - 1e-6).all()
    assert (coarse - exact).max() > 1e-2
    np.testing.assert_allclose(np.diagonal(fine[:4]), 0.0, atol=5e-3)


@pytest.mark.parametrize("k", [1, 3, 5])
def test_the_judge_of_knn_is_scikit_learns(k):
    train, test = RNG.normal(size=(60, 3)), RNG.normal(size=(40, 3))
    labels = RNG.integers(0, 2, 60)  # two classes and an odd k: no ties
    sklearn = KNeighborsClassifier(k).fit(train, labels)
    got = reference.knn_predict(metrics.euclidean(test, train), labels, k)
    np.testing.assert_array_equal(got, sklearn.predict(test))
    truth = RNG.integers(0, 2, 40)
    assert metrics.accuracy(got, truth) == sk.accuracy_score(truth, got)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2))
def test_clustering_scores_are_scikit_learns(pairs):
    a, b = np.array(pairs).T
    want = sk.normalized_mutual_info_score(b, a)
    np.testing.assert_allclose(metrics.nmi(a, b), want, atol=1e-9)
    table = sk.cluster.contingency_matrix(b, a)
    assert metrics.purity(a, b) == table.max(axis=0).sum() / table.sum()


def test_balanced_accuracy_is_scikit_learns():
    truth, predicted = RNG.integers(0, 3, 50), RNG.integers(0, 3, 50)
    want = sk.balanced_accuracy_score(truth, predicted)
    np.testing.assert_allclose(metrics.balanced_accuracy(predicted, truth), want)
    # Always the majority: 90 % accuracy, and nothing learned.
    truth = np.array([0] * 9 + [1])
    assert metrics.accuracy(np.zeros(10), truth) == 0.9
    assert metrics.balanced_accuracy(np.zeros(10), truth) == 0.5


def test_slip_precision_recall_and_f1_are_averages_by_hand_not_sums():
    ranked = np.array([[5, 6, 7, 8], [8, 7, 6, 5], [5, 6, 7, 8]])
    truth = [{5, 7}, {5}, {6, 7, 8}]
    got = reference.precision_recall_f1(ranked, truth, 2)
    # hits 1, 0, 1 of 2: P = 1/2, 0, 1/2; R = 1/2, 0, 1/3; F1 = 1/2, 0, 2/5.
    np.testing.assert_allclose(got, [1 / 3, 5 / 18, 0.3], rtol=1e-12)
    best = reference.precision_recall_f1(ranked[:1], [{5, 6, 7, 8}], 4)
    np.testing.assert_allclose(best, [1.0, 1.0, 1.0])


def test_recommendation_ranks_targets_by_mean_distance_to_the_sources():
    X = np.array([[0.0], [10.0], [1.0], [9.0], [4.0]])  # two diseases, three procedures
    docs = Documents(np.array([[0, 3], [1, 0], [0, 1]]), np.array([[0.5, 0.5]] * 3))
    sources, targets = np.array([True, True, False, False, False]), np.array([4, 2, 3])
    got = metrics.recommend(docs, jnp.asarray(X), sources, targets)
    # Document 0: only word 0 is given (3 is not a source). 1 and 2: words 0 and 1 both,
    # so that every target is 5 from them on average, and the order of targets stays.
    np.testing.assert_array_equal(got, [[2, 4, 3], [4, 2, 3], [4, 2, 3]])


def test_recommendation_needs_a_source_in_every_document():
    docs = Documents(np.array([[0, 3], [3, 0]]), np.array([[0.5, 0.5], [1.0, 0.0]]))
    sources, targets = np.array([True, True, False, False, False]), np.array([2, 3])
    with pytest.raises(ValueError, match="document 1 has no source word"):
        metrics.recommend(docs, jnp.eye(5, 2), sources, targets)


def test_top_words_and_diversity():
    log_B = np.log([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3]])
    tops = metrics.top_words(jnp.asarray(log_B), 2)
    np.testing.assert_array_equal(tops, [[1, 2], [0, 2]])
    assert metrics.diversity(tops) == 3 / 4
    np.testing.assert_array_equal(metrics.top_words(np.zeros((1, 3)), 2), [[0, 1]])


def test_npmi_by_hand():
    counts = np.array([[1, 1, 0, 1], [1, 1, 0, 1], [1, 0, 1, 1], [0, 0, 1, 1]])
    docs = from_counts(counts)
    got = metrics.npmi(np.array([[0, 1], [1, 2], [0, 2]]), docs, 4)
    # p(0)=3/4, p(1)=p(2)=1/2, p(0,1)=1/2, p(1,2)=0, p(0,2)=1/4.
    want = [np.log(0.5 / 0.375) / np.log(2), -1.0, np.log(0.25 / 0.375) / np.log(4)]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    three = metrics.npmi(np.array([[0, 1, 2]]), docs, 4)
    np.testing.assert_allclose(three, [np.mean(want)], rtol=1e-12)
    same = metrics.npmi(np.array([[3, 3]]), docs, 4)  # in every document, always
    np.testing.assert_allclose(same, [1.0])


def test_coherence_of_a_single_word_is_refused():
    with pytest.raises(ValueError, match="at least two words"):
        metrics.npmi(np.array([[1]]), from_counts(np.eye(3)), 3)


def test_unused_places_of_a_support_are_no_occurrence_of_word_zero():
    docs = from_counts(np.array([[0, 1, 1], [0, 1, 0], [1, 0, 0]]))
    assert (docs.words[1] == [1, 0]).all() and docs.mass[1, 1] == 0.0
    np.testing.assert_allclose(metrics.npmi(np.array([[0, 1]]), docs, 3), [-1.0])


def test_effective_rank_in_closed_form():
    square = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    np.testing.assert_allclose(metrics.effective_rank(square), 2.0, rtol=1e-12)
    np.testing.assert_allclose(metrics.effective_rank(square + 7.0), 2.0, rtol=1e-9)
    stretched = square * np.array([3.0, 1.0])
    p = np.array([0.75, 0.25])
    want = np.exp(-np.sum(p * np.log(p)))
    np.testing.assert_allclose(metrics.effective_rank(stretched), want, rtol=1e-12)
    line = square[:, :1] * np.ones((1, 5))
    np.testing.assert_allclose(metrics.effective_rank(line), 1.0, rtol=1e-9)
    assert metrics.effective_rank(np.ones((4, 3))) == 0.0


def test_own_words_are_those_that_others_lack():
    B = np.array([[0.5, 0.3, 0.2, 0.0], [0.5, 0.1, 0.1, 0.3]]) + 1e-9
    score = B * (B / B.sum(axis=0))
    want = np.argsort(-score, axis=1)
    got = metrics.own_words(np.log(B), 4)
    np.testing.assert_array_equal(got, want)
    assert got[0, 0] == 0 and metrics.own_words(np.log(B), 1)[1, 0] == 3


def test_topics_that_share_half_of_their_first_words_are_named():
    tops = np.array([[0, 1, 2, 3], [4, 5, 6, 7], [2, 3, 8, 9], [3, 7, 10, 11]])
    assert metrics.near_duplicates(tops) == [(0, 2)]
    assert metrics.near_duplicates(tops, 0.25) == [(0, 2), (0, 3), (1, 3), (2, 3)]
