"""Topics that start as clusters of documents, against scikit-learn and by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import problems
import pytest
from sklearn import cluster

from dwl_jax import objective, spectral, start, train
from dwl_jax.documents import Documents, from_counts, sparse
from dwl_jax.types import Config, Hyper

COUNTS, GROUP = problems.counts(num_docs=60, num_words=12)
DOCS = Documents(*map(jnp.asarray, from_counts(COUNTS, dtype=np.float64)))
Y = COUNTS / COUNTS.sum(axis=1, keepdims=True)


def own(centres):
    """The cluster of each document, by numpy."""
    return np.argmax(
        np.sqrt(Y) @ (centres / np.linalg.norm(centres, axis=1)[:, None]).T, 1
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_clusters_are_means_of_their_documents_and_find_the_groups(seed):
    centres = np.asarray(
        start.clusters(jax.random.key(seed), jnp.sqrt(jnp.asarray(Y)), 3)
    )
    member = own(centres)
    for k in range(3):
        mean = np.sqrt(Y[member == k]).mean(axis=0)
        np.testing.assert_allclose(centres[k], mean, rtol=1e-9)
    pairs, count = np.unique(np.stack([member, GROUP]), axis=1, return_counts=True)
    best = [count[pairs[0] == k].max() for k in range(3)]
    assert sum(best) >= 0.9 * len(Y)


def test_clusters_spread_no_more_than_those_of_scikit_learn():
    V = np.sqrt(Y)
    best = cluster.KMeans(3, n_init=5, random_state=0).fit(V).inertia_
    spread = []
    for seed in range(5):
        centres = np.asarray(
            start.clusters(jax.random.key(seed), jnp.sqrt(jnp.asarray(Y)), 3)
        )
        spread.append(np.sum((V - centres[own(centres)]) ** 2))
    assert min(spread) <= 1.02 * best


def test_documents_join_the_cluster_of_the_nearest_centre():
    A, R = start.from_documents(jax.random.key(0), DOCS, num_words=12, num_topics=3)
    B = np.exp(np.asarray(R))
    member = np.argmax(np.asarray(A), axis=1)
    np.testing.assert_array_equal(member, own(np.sqrt(B)))


def test_more_topics_than_distinct_documents_stay_finite():
    few = Documents(DOCS.words[:2], DOCS.mass[:2])
    A, R = start.from_documents(jax.random.key(0), few, num_words=12, num_topics=5)
    assert A.shape == (2, 5) and R.shape == (5, 12)
    assert np.isfinite(A).all() and np.isfinite(R).all()
    np.testing.assert_allclose(np.exp(R).sum(axis=1), 1.0, rtol=1e-9)


def test_fit_starts_from_clusters_only_where_asked():
    cfg = Config(num_topics=3, dim=4, batch_size=20, start="documents")
    run = lambda cfg: train.prepare(
        jax.random.key(0), DOCS, Hyper(), cfg=cfg, num_words=12
    )
    A, R, _ = run(cfg).state.params
    np.testing.assert_array_equal(np.sort(np.asarray(A), axis=1)[:, :2], 0.0)
    B = np.exp(np.asarray(R))
    tops = {tuple(np.flatnonzero(b > 0.5 * b.max()) % 3) for b in B}
    assert len(tops) == 3  # each topic has the words of another group
    drawn = run(dataclasses.replace(cfg, start="normal")).state.params
    assert np.abs(np.asarray(drawn.A)).min() > 0.0


def test_labelled_documents_start_in_topics_of_their_label():
    labels = jnp.asarray(np.where(GROUP == 2, -1, GROUP))
    own = objective.own_topics(labels, 4, 2)
    A, _ = start.from_documents(
        jax.random.key(0), DOCS, own, num_words=12, num_topics=4
    )
    first = np.argmax(np.asarray(A), axis=1)
    assert np.asarray(own)[np.arange(len(first)), first].all()
    np.testing.assert_array_equal(first[GROUP < 2] % 2, GROUP[GROUP < 2])
    assert len(set(first)) == 4


def pooled_by_loops(X):
    present = COUNTS > 0
    idf = 1.0 + np.log((1.0 + len(Y)) / (1.0 + present.sum(0)))
    Z = np.stack([sum(y[n] * idf[n] * X[n] for n in range(12)) for y in Y])
    return Z / np.linalg.norm(Z, axis=1)[:, None]


def start_pooled(seed=0, own=None, num_topics=3):
    X = spectral.spectral(DOCS, 12, 4)
    Z = start.pooled(sparse(DOCS, 12), X)
    np.testing.assert_allclose(Z, pooled_by_loops(X), rtol=1e-9)
    A, R = start.from_pooled(
        jax.random.key(seed), DOCS, Z, own, num_words=12, num_topics=num_topics
    )
    return np.asarray(A), np.exp(np.asarray(R)), Z


@pytest.mark.parametrize("seed", [0, 1])
def test_pooled_documents_start_in_the_groups_they_were_drawn_from(seed):
    A, B, Z = start_pooled(seed)
    member = A.argmax(1)
    pairs, count = np.unique(np.stack([member, GROUP]), axis=1, return_counts=True)
    assert sum(count[pairs[0] == k].max() for k in range(3)) >= 0.9 * len(Y)
    for k in range(3):
        want = 0.7 * Y[member == k].mean(0) + 0.3 * Y.mean(0)
        np.testing.assert_allclose(B[k], want, rtol=1e-9)
    centres = np.stack([Z[member == k].mean(0) for k in range(3)])
    best = cluster.KMeans(3, n_init=5, random_state=0).fit(Z).inertia_
    assert np.sum((Z - centres[member]) ** 2) <= 1.02 * best


def test_pooled_documents_start_in_topics_of_their_label():
    labels = jnp.asarray(np.where(GROUP == 2, -1, GROUP))
    own = objective.own_topics(labels, 4, 2)
    A, _, _ = start_pooled(0, own, num_topics=4)
    assert np.asarray(own)[np.arange(len(A)), A.argmax(1)].all()


def test_a_cluster_without_documents_is_the_mean_of_all():
    A, B, _ = start_pooled(num_topics=80)
    empty = np.setdiff1d(np.arange(80), A.argmax(1))
    assert empty.size >= 20 and np.isfinite(np.log(B)).all()
    np.testing.assert_allclose(B[empty], np.tile(Y.mean(0), (empty.size, 1)))
