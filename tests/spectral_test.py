"""Embeddings from the spectrum of co-occurrence, against loops in numpy."""

import jax.numpy as jnp
import numpy as np
import problems
import pytest
import scipy.sparse as sp

from dwl_jax import spectral
from dwl_jax.documents import from_counts, sparse


def pmi_by_loops(counts):
    there = counts > 0
    M, N = there.shape
    out = np.zeros((N, N))
    for i in range(N):
        for j in range(N):
            both = (there[:, i] & there[:, j]).mean()
            if i != j and both > 0:
                out[i, j] = np.log(both / (there[:, i].mean() * there[:, j].mean()))
    return np.maximum(out, 0.0)


def test_pmi_is_that_of_loops():
    counts = problems.themes()
    got = spectral.positive_pmi(sparse(from_counts(counts), 40))
    np.testing.assert_allclose(got.toarray(), pmi_by_loops(counts), atol=1e-12)


@pytest.mark.parametrize("num_words", [40, 700])
def test_rows_are_the_leading_part_of_pmi_at_one_length(num_words):
    counts = problems.themes(900, num_words)
    seen = counts.sum(0) > 0
    X = spectral.spectral(from_counts(counts), num_words, 7)
    pmi = spectral.positive_pmi(sp.csr_array(counts)).toarray()
    size, U = np.linalg.eigh(pmi)
    want = U[:, -7:] * np.sqrt(size[-7:])
    want *= np.sqrt(7) / np.maximum(np.linalg.norm(want, axis=1), 1e-12)[:, None]
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), np.sqrt(7), rtol=1e-12)
    X, want = X[seen], want[seen]
    np.testing.assert_allclose(X @ X.T, want @ want.T, atol=1e-6)


def test_the_same_documents_give_the_same_bits_and_signs():
    counts = problems.themes(900, 700)
    one, two = (spectral.spectral(from_counts(counts), 700, 20) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    again = spectral.spectral(from_counts(sp.csr_array(counts)), 700, 20)
    np.testing.assert_array_equal(one, again)


def test_words_of_one_theme_are_nearer_than_those_of_two():
    counts = np.kron(np.eye(2, dtype=int), np.ones((10, 5), int))
    counts[::2, ::2] += np.kron(np.eye(2, dtype=int), np.ones((5, 3), int))[:, :5]
    X = spectral.spectral(from_counts(counts), 10, 4)
    D = np.linalg.norm(X[:, None] - X[None], axis=-1)
    assert D[:5, :5].max() < 1e-3 and D[:5, 5:].min() > 1.0


@pytest.mark.parametrize("num_words", [12, 600])
def test_words_without_a_place_are_drawn_at_that_length(num_words):
    counts = np.zeros((200, num_words), int)
    counts[:, :8] = problems.themes(200, 8)
    counts[:, 8] = 1  # in every document; the others are never seen
    X = spectral.spectral(from_counts(counts), num_words, 5)
    assert np.isfinite(X).all()
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), np.sqrt(5), rtol=1e-12)
    assert np.unique(X, axis=0).shape[0] == num_words


@pytest.mark.parametrize("num_words", [3, 600])
def test_documents_that_are_all_alike_give_draws(num_words):
    X = spectral.spectral(from_counts(np.ones((30, num_words), int)), num_words, 4)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 2.0, rtol=1e-12)


def test_fewer_words_than_dimensions_leave_the_others_0():
    X = spectral.spectral(from_counts(problems.themes(50, 3)), 3, 8)
    assert X.shape == (3, 8) and np.isfinite(X).all()


def test_places_that_are_filled_up_do_not_count():
    docs = from_counts(problems.themes())
    more = lambda x: np.pad(np.asarray(x), ((0, 0), (0, 4)))
    np.testing.assert_array_equal(
        spectral.spectral(docs, 40, 6),
        spectral.spectral(type(docs)(*map(more, map(jnp.asarray, docs))), 40, 6),
    )
