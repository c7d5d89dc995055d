"""Transport on supports against the aggregate over all words, and training with it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import dwl_jax
from dwl_jax import (
    blocks,
    cost,
    embedding,
    forms,
    kernel,
    supports,
    train,
    transport,
)
from dwl_jax.documents import Documents, dense
from dwl_jax.types import Config, Hyper

N = 30


def documents(seed=0, num_docs=7, size=4):
    rng = np.random.default_rng(seed)
    words = np.stack([rng.choice(N, size, replace=False) for _ in range(num_docs)])
    mass = rng.dirichlet(np.ones(size), num_docs)
    words[0, -1], mass[0, -1] = 0, 0.0  # a shorter document
    mass[0] /= mass[0].sum()
    return Documents(jnp.asarray(words), jnp.asarray(mass))


class SupportsTest(parameterized.TestCase):
    @parameterized.parameters(1.0, 0.2)
    def test_pull_is_the_laplacian_of_the_aggregate_times_X(self, epsilon):
        rng = np.random.default_rng(1)
        X, docs = jnp.asarray(rng.standard_normal((N, 5))), documents()
        log_b = jax.nn.log_softmax(jnp.asarray(rng.standard_normal((7, N))))
        weight = jnp.asarray(rng.random(7))
        D = cost.scale(cost.distance_matrix(X, squared=True))
        want = transport.aggregate(
            log_b, dense(docs, N), kernel.build(D, epsilon), num_iters=5, weight=weight
        )
        L = embedding.laplacian(want.T)
        ground = blocks.ground(X, 1.0, epsilon, squared=True)
        got = supports.pull(jnp.exp(log_b), docs, X, ground, num_iters=5, weight=weight)
        np.testing.assert_allclose(got.LX, L @ X, atol=1e-12)
        np.testing.assert_allclose(got.energy, embedding.spread_energy(X, L))
        np.testing.assert_allclose(got.error, want.error, atol=1e-12)

    @parameterized.parameters(N, 6)
    def test_pull_of_few_words_is_that_of_topics_without_others(self, number):
        rng = np.random.default_rng(1)
        X, docs = jnp.asarray(rng.standard_normal((N, 5))), documents()
        log_b = jax.nn.log_softmax(jnp.asarray(rng.standard_normal((7, N))))
        few = jax.lax.top_k(log_b, number)[1]
        without = jnp.full_like(log_b, -jnp.inf)
        without = without.at[jnp.arange(7)[:, None], few].set(0.0) + log_b
        ground = blocks.ground(X, 1.0, 0.3, squared=True)
        how = {"num_iters": 5, "weight": jnp.asarray(rng.random(7))}
        want = supports.pull(jax.nn.softmax(without), docs, X, ground, **how)
        b = jax.nn.softmax(jnp.take_along_axis(log_b, few, axis=1))
        twice = lambda x, y: (
            jnp.concatenate([x[:, :1], x], axis=1).at[:, :2].multiply(y)
        )
        few, b = twice(few, 1), twice(b, 0.5)  # the first in two halves
        got = supports.pull(b, docs, X, ground, words=few, **how)
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, atol=1e-12), got, want
        )

    def test_documents_in_several_parts_are_as_at_once(self):
        rng = np.random.default_rng(2)
        X, docs = jnp.asarray(rng.standard_normal((N, 5))), documents()
        log_b = jax.nn.log_softmax(jnp.asarray(rng.standard_normal((7, N))))
        ground = blocks.ground(X, 1.0, 0.5)
        run = lambda: supports.pull(
            jnp.exp(log_b), docs, X, ground, num_iters=3, weight=jnp.ones(7)
        )
        want = run()
        at_once, supports._AT_ONCE = supports._AT_ONCE, 3 * 4 * N
        try:
            jax.tree.map(np.testing.assert_allclose, run(), want)
        finally:
            supports._AT_ONCE = at_once


class TrainTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(3)
        self.counts = rng.poisson(0.2, (40, N)) + np.eye(40, N, dtype=int)
        self.counts[30:, 0] = 1
        self.cfg = Config(num_topics=3, dim=4, batch_size=16, num_iters=3, squared=True)
        self.hyper = Hyper(epsilon=0.3)

    def fit(self, **changes):
        cfg = dataclasses.replace(self.cfg, **changes)
        state, info = dwl_jax.fit(
            jax.random.key(0), self.counts, self.hyper, cfg=cfg, num_epochs=2
        )
        return train.model(state, cfg), info

    def test_all_entries_train_as_the_dense_kernel_does(self):
        want, want_info = self.fit(kernel="plain")
        got, info = self.fit(kernel="topics", topic_words=N)
        np.testing.assert_allclose(info.loss, want_info.loss, rtol=1e-3)
        np.testing.assert_allclose(info.energy, want_info.energy, rtol=1e-2)
        np.testing.assert_allclose(got.X, want.X, atol=0.02)
        self.assertTrue((info.kernel_error < 1e-3).all())

    def test_topics_of_few_words_learn_and_report_their_error(self):
        want, want_info = self.fit(kernel="plain")
        got, info = self.fit(kernel="topics", topic_words=6)
        np.testing.assert_allclose(info.loss, want_info.loss, rtol=0.02)
        self.assertTrue((info.kernel_error > 1e-4).all() and info.fast.all())
        self.assertLess(info.kernel_error.max(), 0.5)
        cosine = np.sum(got.X * want.X) / np.linalg.norm(got.X) / np.linalg.norm(want.X)
        self.assertGreater(cosine, 0.9)

    @parameterized.parameters(
        ({"kernel": "topics", "step": "proximal"}, "step"),
        ({"kernel": "topics", "closest": "distance"}, "closest"),
        ({"topic_words": 0}, "topic_words"),
        ({"kernel": "topics", "loss": "sinkhorn"}, "sinkhorn"),
        ({"kernel": "sparse"}, "kernel"),
    )
    def test_choices_that_do_not_go_together_are_named(self, changes, name):
        with self.assertRaisesRegex(ValueError, name):
            dataclasses.replace(self.cfg, **changes)

    def test_auto_chooses_by_size_and_measured_error(self):
        few = forms.choose(np.zeros((N, 4)), self.hyper, self.cfg)
        self.assertEqual(few.cfg.kernel, "auto")
        rng = np.random.default_rng(5)
        X = rng.standard_normal((1_100, 3)).astype(np.float32)
        log_B = jax.nn.log_softmax(3 * rng.standard_normal((3, 1_100)))
        own = forms.choose(X, self.hyper._replace(epsilon=0.1), self.cfg, log_B)
        self.assertEqual(own.cfg.kernel, "topics")
        self.assertLess(own.error, 0.15)
        self.assertIn("64 words", own.why)
        alone = forms.choose(X, self.hyper, self.cfg)
        self.assertEqual(alone.cfg.kernel, "auto")
        rough = forms.choose(X, self.hyper._replace(epsilon=0.005), self.cfg, log_B)
        self.assertEqual(rough.cfg.kernel, "auto")
        self.assertIn("% off", rough.why)


if __name__ == "__main__":
    absltest.main()
