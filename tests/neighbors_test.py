"""Pruned neighbours against POT, pair by pair."""

import numpy as np
import ot
import pytest
from absl.testing import absltest, parameterized
from scipy.spatial.distance import cdist

from dwl_jax import data, neighbors
from dwl_jax.documents import Documents, from_counts


def pairwise(queries: Documents, references: Documents, D, k: int):
    """All pairs by ot.emd2, sorted by distance (rounded), then index."""
    cut = lambda docs, m: (docs.words[m][docs.mass[m] > 0], docs.mass[m])
    out = np.zeros((len(queries.words), len(references.words)))
    for q in range(len(out)):
        words, mass = cut(queries, q)
        for r in range(out.shape[1]):
            other, mass_r = cut(references, r)
            cost = np.ascontiguousarray(D[np.ix_(words, other)])
            out[q, r] = ot.emd2(mass[mass > 0], mass_r[mass_r > 0], cost)
    places = np.arange(out.shape[1])
    order = [np.lexsort((places, np.rint(row / D.max() * 1e10)))[:k] for row in out]
    return np.array(order), np.take_along_axis(out, np.array(order), axis=1)


def admissions(num_docs: int, seed: int) -> Documents:
    return data.synthetic_admissions(num_docs, seed).documents(np.float64)


class KnnTest(parameterized.TestCase):
    @parameterized.parameters(1, 5)
    def test_same_neighbours_as_all_pairs(self, k):
        X = np.random.default_rng(k).standard_normal((81, 10))
        D = cdist(X, X)
        queries, references = admissions(15, 1), admissions(120, 2)
        got = neighbors.knn(queries, references, D, k)
        index, distance = pairwise(queries, references, D, k)
        np.testing.assert_array_equal(got.index, index)
        np.testing.assert_allclose(got.distance, distance, rtol=1e-9, atol=1e-12)
        self.assertLess(got.num_solved, 0.6 * 15 * 120)

    def test_few_exact_problems_where_embeddings_have_structure(self):
        queries, references = admissions(50, 1), admissions(1_000, 2)
        X = np.random.default_rng(0).standard_normal((81, 50))
        got = neighbors.knn(queries, references, cdist(X, X), 5)
        self.assertLess(got.num_solved, 0.03 * 50 * 1_000)

    def test_ties_go_to_the_lower_index(self):
        """One-hot costs, and every reference three times: nearly all is a tie."""
        D = np.sqrt(2.0) * (1.0 - np.eye(81))
        queries, once = admissions(12, 1), admissions(40, 2)
        references = Documents(*(np.tile(x, (3, 1)) for x in once))
        got = neighbors.knn(queries, references, D, 7)
        index, _ = pairwise(queries, references, D, 7)
        np.testing.assert_array_equal(got.index, index)
        # The distance is a total variation there.
        dense = lambda docs: neighbors._supports(docs, 81)
        a, b = dense(queries), dense(references)
        tv = 0.5 * cdist(a.Y[a.back], b.Y[b.back], "cityblock")
        want = np.sqrt(2.0) * np.sort(tv, axis=1)[:, :7]
        np.testing.assert_allclose(got.distance, want, atol=1e-12)

    def test_unequal_masses_and_costs_that_are_not_symmetric(self):
        rng = np.random.default_rng(0)
        counts = lambda m: rng.integers(0, 4, (m, 9)) * (rng.random((m, 9)) < 0.5)
        filled = lambda x: from_counts(x + np.eye(9)[rng.integers(0, 9, len(x))])
        queries, references = filled(counts(20)), filled(counts(40))
        D = rng.random((9, 9))
        got = neighbors.knn(queries, references, D, 40)
        wide = [Documents(d.words, d.mass.astype(np.float64)) for d in (queries,)]
        a = Documents(wide[0].words, _unit(wide[0].mass))
        b = Documents(references.words, _unit(references.mass.astype(np.float64)))
        index, distance = pairwise(a, b, D, 40)
        np.testing.assert_allclose(got.distance, distance, atol=1e-9)
        np.testing.assert_array_equal(got.index, index)

    def test_does_not_depend_on_blocks(self):
        X = np.random.default_rng(0).standard_normal((81, 5))
        args = admissions(30, 1), admissions(60, 2), cdist(X, X), 3
        whole = neighbors.knn(*args)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(neighbors, "_BLOCK", 100)
            parts = neighbors.knn(*args)
        np.testing.assert_array_equal(whole.index, parts.index)
        self.assertEqual(whole.num_solved, parts.num_solved)

    @parameterized.named_parameters(
        ("not square", np.zeros((3, 2)), 1, "D must be"),
        ("negative", -np.ones((3, 3)), 1, "not negative"),
        ("nan", np.full((3, 3), np.nan), 1, "finite"),
        ("k", np.ones((3, 3)), 3, "num_neighbors"),
        ("words", np.ones((2, 2)), 1, "document 1"),
    )
    def test_bad_input(self, D, k, message):
        docs = from_counts(np.array([[1, 1, 0], [0, 1, 1]]))
        with self.assertRaisesRegex(ValueError, message):
            neighbors.knn(docs, docs, D, k)


def _unit(mass):
    return mass / mass.sum(axis=1, keepdims=True)


class EmdTest(parameterized.TestCase):
    def test_closed_form_on_a_line(self):
        """On a line, transport is the area between the distribution functions."""
        rng = np.random.default_rng(0)
        x = np.sort(rng.random(6))
        a, b = rng.random(6), rng.random(6)
        want = np.sum(np.abs(np.cumsum(a / a.sum() - b / b.sum()))[:-1] * np.diff(x))
        got = neighbors.emd(a, b, np.abs(x[:, None] - x[None, :]))
        self.assertAlmostEqual(got, want, places=12)

    def test_falls_back_to_checked_solver(self):
        """Another POT version may have another inner function."""
        a, cost = np.ones(3), np.random.default_rng(0).random((3, 3))
        want = neighbors.emd(a, a, cost)
        neighbors._solver.cache_clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(ot.lp.emd_wrap, "emd_c")
            got = neighbors.emd(a, a, cost)
        neighbors._solver.cache_clear()
        self.assertAlmostEqual(got, want, places=12)

    @parameterized.parameters(([0.0, 0.0],), ([np.nan, 1.0],), ([-1.0, 2.0],))
    def test_bad_masses(self, a):
        with self.assertRaisesRegex(ValueError, "masses"):
            neighbors.emd(np.array(a), np.ones(2), np.ones((2, 2)))

    def test_shapes(self):
        with self.assertRaisesRegex(ValueError, "cost"):
            neighbors.emd(np.ones(2), np.ones(3), np.ones((3, 2)))


class SmallestTest(absltest.TestCase):
    def test_stable_sort(self):
        D = np.random.default_rng(0).integers(0, 4, (20, 30)).astype(float)
        index, distance = neighbors.smallest(D, 6, 1e-9)
        want = np.argsort(D, axis=1, kind="stable")[:, :6]
        np.testing.assert_array_equal(index, want)
        np.testing.assert_array_equal(distance, np.take_along_axis(D, want, axis=1))

    def test_noise_below_the_grid_is_a_tie(self):
        index, _ = neighbors.smallest(np.array([[1.0 + 1e-13, 1.0, 0.5]]), 3, 1e-9)
        np.testing.assert_array_equal(index, [[2, 0, 1]])

    def test_not_finite(self):
        with self.assertRaisesRegex(ValueError, "finite"):
            neighbors.smallest(np.array([[np.nan, 1.0]]), 1, 1e-9)


if __name__ == "__main__":
    absltest.main()
