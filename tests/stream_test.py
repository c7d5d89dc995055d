"""Documents that stay on the host: the same numbers as on the device."""

import tempfile

import jax
import numpy as np
from absl.testing import absltest, parameterized

from dwl_jax import documents, forecast, runner, stream, train
from dwl_jax.types import Config, Hyper

N = 12


def counts(num_docs=22, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.poisson(0.3, (num_docs, N))
        + np.eye(num_docs, N, dtype=int)[rng.permutation(num_docs)]
        + (np.arange(N) == 3)[None, :] * (np.arange(num_docs) >= N)[:, None]
    )


class StreamTest(parameterized.TestCase):
    def test_rows_are_the_padded_supports(self):
        Y = counts()
        rows = stream.from_counts(Y)
        want = documents.from_counts(Y)
        got = rows.take(np.arange(len(Y)))
        np.testing.assert_array_equal(got.words, want.words)
        np.testing.assert_allclose(got.mass, want.mass, rtol=1e-6)
        some = rows.take(np.array([5, 0, 21]))
        np.testing.assert_array_equal(some.words, want.words[[5, 0, 21]])

    @parameterized.parameters(1, 2)
    def test_two_epochs_are_those_of_the_device(self, renew):
        Y, seen = counts(), []
        cfg = Config(num_topics=2, dim=3, batch_size=8, num_iters=2, kernel="plain",
                     renew=renew)  # fmt: skip
        task = train.prepare(jax.random.key(0), Y, Hyper(), cfg=cfg)
        want, want_info = train.run_epochs(
            task.key, task.state, task.docs, task.hyper, cfg=cfg, num_epochs=2
        )
        state = stream.to_host(task.state)
        for _ in range(2):
            state, info = stream.epoch(
                task.key, state, stream.from_counts(Y), task.hyper, cfg=cfg,
                watch=lambda done, all_: seen.append((done, all_)),
            )  # fmt: skip
        self.assertEqual(seen, [(1, 3), (2, 3), (3, 3)] * 2)
        np.testing.assert_allclose(info.loss, want_info.loss[1], rtol=1e-4)
        np.testing.assert_allclose(state.params.A, want.params.A, atol=2e-3)
        np.testing.assert_allclose(state.params.theta, want.params.theta, atol=2e-3)
        self.assertEqual(int(state.epoch), 2)
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, atol=2e-3),
            state.opt_A,
            want.opt_A,
        )

    def test_labels_go_along(self):
        Y = counts()
        labels = np.arange(len(Y)) % 2
        cfg = Config(num_topics=2, dim=3, batch_size=8, num_iters=2)
        hyper = Hyper(label_weight=1.0)
        task = train.prepare(jax.random.key(0), Y, hyper, cfg=cfg, labels=labels)
        want, _ = train.run_epochs(*task[:-1], cfg=cfg, num_epochs=1, num_labels=2)
        got, _ = stream.epoch(
            task.key, stream.to_host(task.state), stream.from_counts(Y), task.hyper,
            cfg=cfg, labels=labels, num_labels=2,
        )  # fmt: skip
        np.testing.assert_allclose(got.params.A, want.params.A, atol=2e-3)

    def test_a_run_from_the_host_resumes_with_the_same_bits(self):
        Y, folder = counts(), self.enterContext(tempfile.TemporaryDirectory())
        cfg = Config(num_topics=2, dim=3, batch_size=8, num_iters=2, kernel="plain",
                     renew=2)  # fmt: skip
        task = train.prepare(jax.random.key(0), Y, Hyper(), cfg=cfg)
        rows = stream.from_counts(Y)
        run = lambda number, **kw: runner.run(
            task, cfg=cfg, num_epochs=number, rows=rows, **kw
        )
        whole = run(2).state
        run(1, folder=folder)
        parts = run(2, folder=folder, resume=True).state
        jax.tree.map(np.testing.assert_array_equal, parts, whole)

    def test_the_forecast_counts_batches_and_leaves_the_task_alone(self):
        cfg = Config(num_topics=2, dim=3, batch_size=8, num_iters=2)
        task = train.prepare(jax.random.key(0), counts(), Hyper(), cfg=cfg)
        before = jax.tree.map(np.array, task.state)
        found = forecast.measure(task, stream.from_counts(counts()), cfg=cfg)
        self.assertEqual(found.batches, 3)
        self.assertGreater(found.step, 0.0)
        self.assertIn("2 epochs of 3 batches", found.text(2))
        jax.tree.map(np.testing.assert_array_equal, task.state, before)

    def test_a_document_without_words_is_named(self):
        Y = counts()
        Y[4] = 0
        with self.assertRaisesRegex(ValueError, "document 4"):
            stream.from_counts(Y)


if __name__ == "__main__":
    absltest.main()
