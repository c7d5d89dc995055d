"""Transport on supports against the aggregate over all words, and training with it."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

import dwl_jax
from dwl_jax import (
    blocks,
    cost,
    embedding,
    kernel,
    objective,
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
        self.cfg = Config(num_topics=3, dim=4, batch_size=16, num_iters=1, squared=True)
        self.hyper = Hyper(epsilon=0.3)

    def fit(self, few_words, **changes):
        cfg = dataclasses.replace(self.cfg, **changes)
        with mock.patch.object(objective, "FEW_WORDS", few_words):
            jax.clear_caches()
            state, info = dwl_jax.fit(
                jax.random.key(0), self.counts, self.hyper, cfg=cfg, num_epochs=2
            )
        jax.clear_caches()
        return train.model(state, cfg), info

    @parameterized.parameters(1, 2)
    def test_all_words_of_topics_train_as_all_words_do(self, num_iters):
        want, want_info = self.fit(N, num_iters=num_iters)
        got, info = self.fit(1, num_iters=num_iters, topic_words=N)
        np.testing.assert_allclose(info.loss, want_info.loss, rtol=1e-5)
        np.testing.assert_allclose(info.energy, want_info.energy, rtol=1e-3)
        np.testing.assert_allclose(got.X, want.X, atol=2e-4)

    def test_heaviest_words_pull_nearly_as_all_do(self):
        want, want_info = self.fit(N)
        got, info = self.fit(1, topic_words=N // 2)
        np.testing.assert_allclose(info.loss, want_info.loss, rtol=0.02)
        self.assertTrue((info.energy != want_info.energy).all())
        cosine = np.sum(got.X * want.X) / np.linalg.norm(got.X) / np.linalg.norm(want.X)
        self.assertGreater(cosine, 0.95)

    def test_heaviest_words_have_a_topics_mass(self):
        log_B = jnp.log(jnp.array([[0.1, 0.6, 0.3], [0.5, 0.5, 0.0]]))
        words, mass = supports.heaviest(log_B, 2)
        np.testing.assert_array_equal(words, [[1, 2], [0, 1]])
        np.testing.assert_allclose(mass, [[2 / 3, 1 / 3], [0.5, 0.5]], rtol=1e-12)
        self.assertEqual(supports.heaviest(log_B, 192)[0].shape, (2, 3))

    @parameterized.parameters(
        {"step": "proximal"}, {"closest": "distance"}, {"step": "none"}
    )
    def test_what_needs_all_words_gets_them(self, **changes):
        cfg = dataclasses.replace(self.cfg, **changes)
        self.assertFalse(objective.on_supports(cfg, 5_000))
        self.assertTrue(objective.on_supports(self.cfg, 5_000))

    @parameterized.parameters(
        ({"topic_words": 0}, "topic_words"),
        ({"kernel": "topics"}, "kernel 'topics' was removed"),
        ({"kernel": "sparse"}, "kernel"),
    )
    def test_choices_that_are_none_are_named(self, changes, name):
        with self.assertRaisesRegex(ValueError, name):
            dataclasses.replace(self.cfg, **changes)


if __name__ == "__main__":
    absltest.main()
