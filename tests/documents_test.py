"""Documents as padded supports, and what they refuse."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from dwl_jax.documents import Documents, dense, from_counts

COUNTS = np.array([[0, 2, 0, 6], [1, 0, 0, 0], [1, 1, 1, 1]])


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.coo_matrix, jnp.asarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_become_supports_and_come_back_as_distributions(kind, dtype):
    docs = from_counts(kind(COUNTS), dtype=dtype)
    assert docs.words.shape == docs.mass.shape == (3, 4) and docs.num_docs == 3
    assert docs.mass.dtype == dtype and docs.words.dtype == np.int32
    want = COUNTS / COUNTS.sum(axis=1, keepdims=True)
    Y = dense(Documents(*map(jnp.asarray, docs)), 4)
    np.testing.assert_allclose(Y, want, rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(Y)[want == 0.0], 0.0)


def test_support_is_as_wide_as_the_longest_document_and_unused_places_weigh_nothing():
    docs = from_counts(COUNTS[:2])
    np.testing.assert_array_equal(docs.words, [[1, 3], [0, 0]])
    np.testing.assert_array_equal(docs.mass, np.float32([[0.25, 0.75], [1.0, 0.0]]))


def test_dense_adds_words_that_are_listed_twice_and_takes_leading_axes():
    docs = Documents(jnp.array([[[2, 2, 0]]]), jnp.array([[[0.5, 0.25, 0.25]]]))
    np.testing.assert_array_equal(dense(docs, 3), [[[0.25, 0.0, 0.75]]])
    one = Documents(jnp.array([1, 0]), jnp.array([1.0, 0.0]))
    np.testing.assert_array_equal(dense(one, 3), [0.0, 1.0, 0.0])


def test_duplicate_sparse_entries_are_summed_and_the_callers_matrix_is_left_alone():
    rows, cols = [0, 0, 1], [1, 1, 0]
    counts = sp.coo_array(([1.0, 2.0, 1.0], (rows, cols)), shape=(2, 2)).tocsr()
    raw = sp.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), (2, 2))
    before = raw.data.copy()
    np.testing.assert_array_equal(from_counts(raw).mass, [[1.0], [1.0]])
    np.testing.assert_array_equal(raw.data, before)
    np.testing.assert_array_equal(from_counts(counts).words, [[1], [0]])


def test_huge_counts_do_not_overflow():
    docs = from_counts([[1e308, 1e308, 0.0]])
    np.testing.assert_allclose(docs.mass, [[0.5, 0.5]])


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, -np.inf])
def test_bad_counts_name_the_document_and_the_word(bad):
    counts = COUNTS.astype(float)
    counts[2, 1] = bad
    with pytest.raises(
        ValueError, match=r"document 2, word 1 has .* \(1 such entries\)"
    ):
        from_counts(counts)
    with pytest.raises(ValueError, match="document 'c', word 1"):
        from_counts(counts, ids=["a", "b", "c"])


def test_a_document_without_words_is_named():
    counts = COUNTS.copy()
    counts[1] = 0
    with pytest.raises(ValueError, match=r"document 1 has none \(1 such documents\)"):
        from_counts(counts)
    with pytest.raises(ValueError, match="document 'b' has none"):
        from_counts(sp.csr_array(counts), ids=["a", "b", "c"])


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_counts_of_another_rank_are_refused(shape):
    with pytest.raises(ValueError, match=r"\[documents, words\], got"):
        from_counts(np.ones(shape))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_an_empty_corpus_is_refused(shape):
    with pytest.raises(ValueError, match="counts is empty"):
        from_counts(np.ones(shape))
