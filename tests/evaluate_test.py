"""The tables' script: a run, a vector file, paired comparisons, bad input."""

import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types

import numpy as np
import pytest
from absl import flags
from absl.testing import absltest

import dwl_jax
from dwl_jax import data, export, io
from dwl_jax.versions import versions
from experiments import corpora, evaluate, protocol, rundir, tables

SPEC = corpora.Spec(num_docs=300)


def random_model(num_topics=3, dim=4):
    rng = np.random.default_rng(0)
    log_B = np.log(rng.dirichlet(np.ones(81), num_topics)).astype(np.float32)
    return dwl_jax.Model(log_B, rng.standard_normal((81, dim)).astype(np.float32))


def write_run(path, split="train"):
    """A run directory as experiments.train leaves it; its model is random."""
    corpus = corpora.load(SPEC)
    part = data.split(corpus, seed=0)[0] if split == "train" else corpus
    note = {
        "corpus": SPEC.to_json(),
        "corpus_sha256": corpora.digest(part),
        "split": split,
        "split_seed": 0,
    }
    os.makedirs(path)
    rundir.begin(path, note, versions(), resume=False)
    cfg = dwl_jax.Config(num_topics=3, dim=4, num_iters=2, kernel="log")
    words = {"vocab": corpus.vocab, "kinds": corpus.kinds}
    io.save_model(
        f"{path}/model", random_model(), cfg=cfg, hyper=dwl_jax.Hyper(), **words
    )
    export.write_word2vec(f"{path}/embeddings.txt", random_model().X, corpus.vocab)
    return path


def script(*args):
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "experiments.evaluate", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd=pathlib.Path(__file__).parent.parent,
    )


class FolderTest(absltest.TestCase):
    def folder(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return made.name


class ScriptTest(FolderTest):
    def test_run_directory(self):
        folder = self.folder()
        run = write_run(f"{folder}/run")
        out = script(f"--run={run}", "--trials=2", "--infer_steps=3", f"--out={folder}")
        self.assertEqual(out.returncode, 0, out.stderr)
        for row in ("pooled", "topic weights", "Wasserstein", "reconstruction"):
            self.assertIn(f"| DWL, {row} |", out.stdout)
        for row in ("majority class", "naive Bayes", "most frequent", "random, pooled"):
            self.assertIn(f"| {row} |", out.stdout)
        self.assertIn("Balanced accuracy", out.stdout)
        self.assertIn("Effective rank", out.stdout)
        self.assertNotIn("another", out.stdout)  # it is its own corpus and split
        with open(f"{folder}/tables.md", encoding="utf-8") as handle:
            self.assertEqual(handle.read().strip(), out.stdout.strip())
        results = tables.read(f"{folder}/tables.json")
        self.assertLen(results.values["DWL, pooled"]["mortality/1nn"], 2)
        with open(f"{folder}/tables.csv", encoding="utf-8") as handle:
            lines = list(csv.DictReader(handle))
        found = {(x["row"], x["cell"]): float(x["mean"]) for x in lines}
        want = np.mean(results.values["naive Bayes"]["rec/f1@3"])
        self.assertAlmostEqual(found["naive Bayes", "rec/f1@3"], want)

    def test_bad_input_is_a_line_not_a_traceback(self):
        out = script(f"--run={self.folder()}")
        self.assertEqual(out.returncode, 1, out.stderr)
        self.assertIn("error: ", out.stderr)
        self.assertIn("not a run directory", out.stderr)
        self.assertNotIn("Traceback", out.stderr)

    def test_importing_defines_no_flags(self):
        """Other scripts have --out too, and a process may import them all."""
        defined = flags.FLAGS.flags_by_module_dict()
        self.assertNoCommonElements(
            ["experiments.evaluate", "experiments.baselines"], defined
        )


def given(**values):
    """What load_target reads of the flags."""
    spec = {name: types.SimpleNamespace(present=False) for name in ("corpus", "path")}

    class Flags(types.SimpleNamespace):
        def __getitem__(self, name):
            return spec[name]

    return Flags(**({"run": None, "vectors": None} | values))


class TargetTest(FolderTest):
    def test_run_or_vectors(self):
        for values in ({}, {"run": "a", "vectors": "b"}):
            with self.assertRaisesRegex(ValueError, "one of them"):
                evaluate.load_target(given(**values))

    def test_corpus_and_model_must_have_the_same_words(self):
        run = write_run(f"{self.folder()}/run")
        target, corpus, _ = evaluate.load_target(given(run=run))
        self.assertEqual(target.saved.vocab, corpus.vocab)
        with pytest.MonkeyPatch.context() as patch:
            fewer = data.drop_words(corpus, corpus.vocab[:1])
            patch.setattr(corpora, "load", lambda spec: fewer)
            with self.assertRaisesRegex(ValueError, "80 words, and not the 81"):
                evaluate.load_target(given(run=run))

    def test_vectors_are_those_of_the_file(self):
        run = write_run(f"{self.folder()}/run")
        corpus = corpora.load(SPEC)
        X, missing = data.read_vectors(f"{run}/embeddings.txt", corpus)
        self.assertEmpty(missing)
        p = protocol.problem(corpus, 0)
        target = evaluate.Target("file", X, None)
        saved = io.load_model(f"{run}/model")
        whole = evaluate.Target("file", np.asarray(saved.model.X), saved)
        got = evaluate.maker(target, p)(p)
        want = evaluate.maker(whole, p, num_steps=3)(p)
        for row, cells in got.items():
            self.assertEqual(cells, want[row])

    def test_notes_on_what_was_seen(self):
        corpus = corpora.load(SPEC)
        p = protocol.problem(corpus, 0)
        note = lambda split, c: {"split": split, "corpus_sha256": corpora.digest(c)}
        train = data.split(corpus, seed=0)[0]
        self.assertEmpty(evaluate.warn({}, corpus, p))
        self.assertEmpty(evaluate.warn(note("train", train), corpus, p))
        seen = evaluate.warn(note("all", corpus), corpus, p)
        self.assertIn("has seen these", seen[0])
        other = data.synthetic_admissions(300, 7)
        self.assertIn("another", evaluate.warn(note("train", other), corpus, p)[0])


class TablesTest(FolderTest):
    def test_round_trip_and_text(self):
        results = tables.Results("title")
        results.add({"a": {"type/1nn": 50.0, "ward/1nn": 1.0}, "b": {"type/1nn": 70.0}})
        results.add({"a": {"type/1nn": 52.0, "ward/1nn": 1.0}, "b": {"type/1nn": 70.0}})
        folder = self.folder()
        results.write(folder, "x")
        self.assertEqual(tables.read(f"{folder}/x.json"), results)
        text = results.markdown()
        self.assertIn("| a | 51.0 ± 6.3 |", text)
        self.assertIn("| b | **70.0** |", text)  # no trial changes it: no interval
        self.assertIn("ward/1nn", text)
        self.assertIn("n = 2", text)
        table = results.differences("b")
        self.assertIn("| a | -19.0* [-25.3, -12.7] |", table)
        self.assertNotIn("ward", table)
        with open(f"{folder}/x.json", encoding="utf-8") as handle:
            self.assertEqual(json.load(handle)["values"]["b"]["type/1nn"], [70.0] * 2)

    def test_of_errors_the_least_is_the_best(self):
        results = tables.Results("title")
        for wrong in (30.0, 32.0):
            results.add({"a": {"error": wrong}, "b": {"error": 20.0}})
        text = results.markdown()
        self.assertIn("| b | **20.0** |", text)
        self.assertIn("| a | 31.0 ±", text)

    def test_merge_pairs_only_the_same_number_of_splits(self):
        one, two, long = tables.Results("1"), tables.Results("2"), tables.Results("3")
        one.add({"a": {"type/1nn": 1.0}})
        two.add({"b": {"type/1nn": 3.0}})
        self.assertEqual(tables.merge(one, two).paired("b", "a", "type/1nn").mean, 2.0)
        with self.assertRaisesRegex(ValueError, "twice"):
            tables.merge(one, one)
        with self.assertRaisesRegex(ValueError, "trials"):
            tables.merge(one, long)


if __name__ == "__main__":
    absltest.main()
