"""Sparse baselines against the dense ones of the tables."""

import numpy as np
import scipy.sparse as sp
from absl.testing import absltest

from dwl_jax import data, io, presets, types
from experiments import baselines, large, protocol


class LargeTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.corpus = data.synthetic_admissions(400)
        cls.problem = protocol.problem(cls.corpus, 0, "test")
        cls.task = large.Task(cls.corpus, cls.problem.rows)

    def dense(self, ranked):
        cells = protocol.recommend_cells(self.problem, ranked)
        return [cells[f"rec/f1@{n}"] for n in large.TOP_N]

    def sparse(self, score):
        return [f1.mean() for f1 in self.task.scores(score).values()]

    def test_by_distance(self):
        X = np.random.default_rng(0).standard_normal((self.corpus.num_words, 7))
        got = self.sparse(self.task.by_distance(X))
        want = self.dense(protocol.rank_by_embedding(self.problem, X))
        np.testing.assert_allclose(got, want, rtol=1e-6)

    def test_by_reconstruction(self):
        rng = np.random.default_rng(0)
        cfg, hyper, _ = presets.default(num_topics=3, dim=4)
        N = self.corpus.num_words
        log_B = np.log(rng.dirichlet(np.full(N, 0.3), 3) + 1e-4)
        model = types.Model(log_B, rng.standard_normal((N, 4)))
        saved = io.SavedModel(model, cfg, hyper, (), (), (), {}, {})
        got = self.sparse(self.task.by_reconstruction(saved))
        ranked = protocol.rank_by_reconstruction(self.problem, model, hyper, cfg=cfg)
        np.testing.assert_allclose(got, self.dense(ranked), rtol=1e-6)

    def test_counts_are_the_admissions(self):
        has = self.problem.present[self.problem.rec_rows]
        np.testing.assert_array_equal(self.task.counts().toarray() > 0, has)

    def test_naive_bayes(self):
        present = sp.csr_array((self.corpus.counts > 0).astype(float))[
            self.problem.train
        ]
        odds, gain = large.naive_bayes(
            sp.csr_array(present[:, self.task.procedures]),
            sp.csr_array(present[:, self.task.diseases]),
        )
        got = self.sparse(lambda E: odds[None, :] + E @ gain)
        want = self.dense(protocol.rank_by_naive_bayes(self.problem))
        np.testing.assert_allclose(got, want, rtol=1e-3)

    def test_glove_takes_the_steps_of_the_dense_one(self):
        rng = np.random.default_rng(1)
        present = sp.csr_array((rng.random((60, 9)) < 0.4).astype(float))
        C = (present.T @ present).toarray()
        np.fill_diagonal(C, 0.0)
        params = [x.copy() for x in _start(9, 4)]
        squares = [np.ones_like(x) for x in params]
        weight = np.minimum(1.0, (C / 100.0) ** 0.75)
        log_C = np.log(np.where(C > 0.0, C, 1.0))
        for _ in range(5):
            grads = baselines.glove_gradient(params, weight, log_C)
            for x, grad, square in zip(params, grads, squares, strict=True):
                square += grad**2
                x -= 0.05 * grad / np.sqrt(square)
        got = large.glove(present, dim=4, num_steps=5)
        np.testing.assert_allclose(got, params[0] + params[1], atol=1e-4)


def _start(N, dim):
    rng = np.random.default_rng(0)
    draw = lambda: (rng.random((N, dim)) - 0.5) / dim
    return draw(), draw(), np.zeros(N), np.zeros(N)


if __name__ == "__main__":
    absltest.main()
