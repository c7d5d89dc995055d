"""Codes and their categories."""

import numpy as np
from absl.testing import absltest, parameterized

from dwl_jax import data
from dwl_jax.data import hierarchy


class HierarchyTest(parameterized.TestCase):
    @parameterized.parameters(
        ("d_0389", "d_038"),
        ("d_V5861", "d_V58"),
        ("d_E8859", "d_E885"),
        ("d_412", "d_412"),
        ("p_3995", "p_39"),
        ("p_0331", "p_03"),
        ("d10_A419", "d10_A41"),
        ("p10_02HV33Z", "p10_02H"),
        ("heart", "heart"),
    )
    def test_category(self, word, want):
        self.assertEqual(hierarchy.category(word), want)

    def test_counts_are_added_up(self):
        corpus = data.synthetic_admissions(50)
        coarse, of_word = hierarchy.to_categories(corpus)
        self.assertLess(coarse.num_words, corpus.num_words)
        fine = corpus.counts.toarray()
        for c in range(coarse.num_words):
            want = fine[:, of_word == c].sum(axis=1)
            np.testing.assert_array_equal(coarse.counts.toarray()[:, c], want)
        for j, word in enumerate(corpus.vocab):
            self.assertEqual(coarse.vocab[of_word[j]], hierarchy.category(word))
            self.assertEqual(coarse.kinds[of_word[j]], corpus.kinds[j])

    def test_codes_start_around_their_category_and_apart(self):
        rng = np.random.default_rng(0)
        X, of_word = rng.standard_normal((5, 40)), np.repeat(np.arange(5), 3)
        fine = hierarchy.start_from(X, of_word)
        nearest = np.argmin(((fine[:, None] - X[None]) ** 2).sum(-1), axis=1)
        np.testing.assert_array_equal(nearest, of_word)
        apart = ((fine[:, None] - fine[None]) ** 2).sum(-1)[~np.eye(15, dtype=bool)]
        self.assertGreater(apart.min(), 0.1)


if __name__ == "__main__":
    absltest.main()
