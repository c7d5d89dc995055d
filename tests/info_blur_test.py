"""What a run tells of its kernel: the blur, and how far distances stay as they were."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import problems
from absl.testing import absltest, parameterized
from scipy.spatial.distance import pdist, squareform

import dwl_jax
from dwl_jax import blocks, embedding, held, identity, kernel, runner, train
from dwl_jax.types import Config, Hyper

Y, _ = problems.counts()
X = np.random.default_rng(0).normal(size=(Y.shape[1], 3))
CFG = Config(num_topics=3, dim=3, batch_size=11, num_iters=1, transport_iters=2)
HYPER = Hyper(rate_theta=0.0, rate_joint=0.0)
BLUR = {0.02: "is the identity", 0.2: None, 30.0: "swallows the topics"}


def fit(epsilon, **changes):
    cfg, hyper = dataclasses.replace(CFG, **changes), HYPER._replace(epsilon=epsilon)
    key = jax.random.key(0)
    return dwl_jax.fit(key, Y, hyper, cfg=cfg, num_epochs=2, vectors=X)[1]


def numpy_blur(epsilon):
    D = squareform(pdist(X))
    cost = (D / D[D > 0].mean()) ** HYPER.tau
    return np.median(np.exp(-cost / epsilon).sum(axis=1) - 1.0)


class BlurTest(parameterized.TestCase):
    @parameterized.parameters("plain", "scaled", "log", "held")
    def test_sums_of_rows(self, form):
        cost = jnp.asarray(squareform(pdist(X)))
        k = kernel.build(cost, 0.5, form="log" if form == "held" else form)
        if form == "held":
            unit = blocks.ground(jnp.asarray(X), 1.0, 0.5, scale="none")
            k = held.make(jnp.asarray(X), unit)
        want = np.exp(-np.asarray(cost) / 0.5).sum(axis=1) - 1.0
        np.testing.assert_allclose(k.row_sums(), want, rtol=1e-9)
        nothing = identity.IdentityKernel(jnp.zeros(()), len(X)).row_sums()
        np.testing.assert_array_equal(nothing, np.zeros(len(X)))

    @parameterized.parameters(*BLUR)
    def test_a_run_tells_its_blur_and_warns_where_it_does_nothing(self, epsilon):
        told = BLUR[epsilon]
        with self.assertLogs("absl", "WARNING" if told else "INFO") as logs:
            dwl_jax.checks.logging.info("so that there is a line")
            info = fit(epsilon)
        np.testing.assert_allclose(info.blur, numpy_blur(epsilon), rtol=1e-4, atol=1e-6)
        warned = [line for line in logs.output if line.startswith("WARNING")]
        self.assertLen(warned, 1 if told else 0)
        if told:
            self.assertIn(told, warned[0])

    def test_the_control_has_no_blur_and_no_warning(self):
        with self.assertNoLogs("absl", "WARNING"):
            info = fit(0.2, transport=False, joint=False, step="none")
        np.testing.assert_array_equal(info.blur, 0.0)

    def test_a_run_of_many_epochs_warns_once(self):
        task = train.prepare(
            jax.random.key(0), Y, HYPER._replace(epsilon=0.02), cfg=CFG, vectors=X
        )
        with self.assertLogs("absl", "WARNING") as logs:
            runner.run(task, cfg=CFG, num_epochs=3)
        self.assertLen([x for x in logs.output if "is the identity" in x], 1)


class LikenessTest(absltest.TestCase):
    def test_it_is_the_correlation_of_the_pairs_that_it_looks_at(self):
        rng = np.random.default_rng(1)
        X, Z = rng.normal(size=(2, 40, 5))
        i, j = np.random.default_rng(0).integers(40, size=(2, 1024))
        i, j = i[i != j], j[i != j]
        distance = lambda x: np.linalg.norm(x[i] - x[j], axis=1)
        want = np.corrcoef(distance(X), distance(Z))[0, 1]
        got = embedding.likeness(jnp.asarray(X), jnp.asarray(Z))
        np.testing.assert_allclose(got, want, rtol=1e-10)
        self.assertLess(abs(float(got)), 0.3)

    def test_scale_and_rotation_change_nothing(self):
        X = jnp.asarray(np.random.default_rng(1).normal(size=(40, 5)))
        Q = jnp.linalg.qr(jnp.asarray(np.random.default_rng(2).normal(size=(5, 5))))[0]
        np.testing.assert_allclose(embedding.likeness(X, 3.0 * X @ Q), 1.0)

    def test_words_that_coincide_and_one_word_give_0(self):
        ones, X = jnp.ones((6, 2)), jnp.arange(12.0).reshape(6, 2)
        self.assertEqual(float(embedding.likeness(ones, X)), 0.0)
        self.assertEqual(float(embedding.likeness(X[:1], X[:1])), 0.0)

    def test_embeddings_that_stay_are_like_their_start(self):
        np.testing.assert_allclose(fit(0.2).likeness, 1.0, rtol=1e-5)


if __name__ == "__main__":
    absltest.main()
