"""A reproduction: its flags, its run directory, and what its parts share.

Everything that decides a number is in `settings.json`; a directory that was made with
other settings is refused. More trials or splits, other parts and other jobs go on in
the same directory: what is finished is not computed again.
"""

import dataclasses
import functools
import json
import logging as std_logging
import os
import signal
import sys
import time
from collections.abc import Callable

import jax
import numpy as np
import tqdm
from absl import flags, logging

from dwl_jax import data, presets, settings
from dwl_jax.data.corpus import take
from dwl_jax.versions import versions
from experiments import cli, corpora, protocol, rundir

FOLDERS = ("tables", "figures", "parts", "compiled")
_MIN_DOCS = 120  # below it a split has too few labelled admissions for its tasks

_OUT = flags.DEFINE_string(
    "out", None, "Run directory; runs/reproduce-CORPUS if not given."
)
_TRIALS = flags.DEFINE_integer("trials", 20, "Training subsets.", lower_bound=2)
_SPLITS = flags.DEFINE_integer("splits", 10, "Random splits.", lower_bound=2)
_SCALE = flags.DEFINE_float(
    "scale", 1.0, "Share of the documents, for a quick run.", 1e-3, 1.0
)
_JOBS = flags.DEFINE_integer(
    "jobs", None, "Processes for trials and splits; a core each.", lower_bound=1
)
_STEPS = flags.DEFINE_integer(
    "infer_steps", 40, "Of topic weights and reconstruction.", lower_bound=1
)
_CHANGE = flags.DEFINE_multi_string("change", [], "Of the recipe: name=value.")
_TWITTER = flags.DEFINE_string(
    "twitter", None, "label<tab>text file of the sentiment part; skipped without."
)


class Stopped(Exception):
    """A signal came."""


@dataclasses.dataclass(frozen=True)
class Run:
    """What the parts are given.

    Attributes:
      out: run directory.
      spec: which corpus.
      corpus: all its documents, or the share that --scale takes.
      tweets: labelled texts of the sentiment part, or None.
      trials, splits, scale, jobs, steps: as the flags.
      changes: of the recipe.
    """

    out: str
    spec: corpora.Spec
    corpus: data.Corpus
    tweets: data.Corpus | None
    trials: int
    splits: int
    scale: float
    jobs: int
    steps: int
    changes: dict

    def path(self, *names: str) -> str:
        """A file of the run directory; its folder is made."""
        path = os.path.join(self.out, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def recipe(self, mode: str, **changes) -> presets.Preset:
        """The recipe of a mode, as changed by flags."""
        corpus = self.problem.train_corpus
        return presets.default(corpus, mode=mode, **(self.changes | changes))

    @functools.cached_property
    def problem(self) -> protocol.Problem:
        """Split 0 with the whole training part: what models and figures are of."""
        return protocol.problem(self.corpus, 0)

    def once(self, name: str, make: Callable[[], dict]) -> dict:
        """What `make` gives, from parts/NAME.json if it was made before."""
        path = self.path("parts", f"{name}.json")
        if os.path.exists(path):
            with open(path, encoding="utf-8") as handle:
                return json.load(handle)
        return write_json(path, make())


def write_json(path: str, value: dict) -> dict:
    """Writes JSON, whole or not at all; gives the value as it will be read."""
    text = json.dumps(value, indent=1)
    with open(f"{path}.part", "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(f"{path}.part", path)
    return json.loads(text)


def write_text(path: str, text: str) -> None:
    """Writes a text file, whole or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as handle:
        handle.write(text)
    os.replace(f"{path}.part", path)


def cores() -> list[int]:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def scaled(corpus: data.Corpus, scale: float) -> data.Corpus:
    """A random share of the documents, the same for the same share."""
    size = round(scale * corpus.num_docs)
    if size < _MIN_DOCS:
        raise ValueError(
            f"--scale={scale}: {size} of {corpus.num_docs:,} documents are left, at "
            f"least {_MIN_DOCS} are needed."
        )
    if size == corpus.num_docs:
        return corpus
    rows = np.random.default_rng(0).choice(corpus.num_docs, size, replace=False)
    return take(corpus, np.sort(rows), f"a share of {scale:g}")


def read_tweets(path: str | None) -> data.Corpus | None:
    """The corpus of the sentiment part: one label, at least two classes."""
    if path is None:
        return None
    try:
        corpus = data.read_labelled_lines(path)
    except (OSError, ValueError) as error:
        raise ValueError(f"--twitter: {error}") from error
    if len(corpus.labels) != 1:
        raise ValueError(f"--twitter={path}: lines must be label<tab>text.")
    (name,) = corpus.labels
    if len(corpus.label_codes(name)[1]) < 2:
        raise ValueError(f"--twitter={path}: only one label is in it.")
    return corpus


def begin(
    out: str,
    spec: corpora.Spec,
    *,
    trials: int = 20,
    splits: int = 10,
    scale: float = 1.0,
    jobs: int = 1,
    steps: int = 40,
    changes: dict | None = None,
    twitter: str | None = None,
) -> Run:
    """A Run in a directory; every error of input is met here, before any work."""
    changes = changes or {}
    recipe = presets.default(**changes)
    rundir.check(out, resume=True)
    corpus = scaled(corpora.load(spec), scale)
    if not (corpus.is_kind("disease").any() and corpus.is_kind("procedure").any()):
        raise ValueError(
            f"--corpus={spec.corpus}: the paper's tables are of diseases and "
            "procedures, and this corpus has none. Tweets are given by --twitter."
        )
    protocol.problem(corpus, 0)  # names a task that has too few documents
    tweets = read_tweets(twitter)
    note = {
        "what": "reproduction",
        "corpus": spec.to_json(),
        "corpus_sha256": corpora.digest(corpus),
        "scale": scale,
        "infer_steps": steps,
        "config": settings.config_to_json(recipe.cfg),
        "hyper": settings.hyper_to_json(recipe.hyper),
        "epochs": recipe.num_epochs,
        "x64": jax.config.jax_enable_x64,
    }
    out = rundir.begin(out, note, versions(), resume=True)
    for folder in FOLDERS:
        os.makedirs(os.path.join(out, folder), exist_ok=True)
    return Run(out, spec, corpus, tweets, trials, splits, scale, jobs, steps, changes)


def open_run() -> Run:
    """The Run of the flags, with a log and a place for what is compiled."""
    spec, changes = corpora.Spec.from_flags(), cli.settings(_CHANGE.value)
    cli.setup_jax()
    run = begin(
        _OUT.value or os.path.join("runs", f"reproduce-{spec.corpus}"),
        spec,
        trials=_TRIALS.value,
        splits=_SPLITS.value,
        scale=_SCALE.value,
        jobs=_JOBS.value or len(cores()),
        steps=_STEPS.value,
        changes=changes,
        twitter=_TWITTER.value,
    )
    log_to(run.path("log.txt"))
    jax.config.update("jax_compilation_cache_dir", run.path("compiled", ""))
    return run


class Progress:
    """Steps of long work: a bar on a terminal, a line with the time left in the log."""

    def __init__(self, text: str, total: int, unit: str, done: int = 0):
        self._bar = tqdm.tqdm(
            total=total, initial=done, unit=unit, desc=text, disable=None
        )
        self._total, self._first, self._done = total, done, done
        self._start = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._bar.close()

    def step(self, text: str) -> None:
        """One more is done."""
        self._done += 1
        self._bar.update()
        speed = (time.monotonic() - self._start) / (self._done - self._first)
        left = speed * (self._total - self._done)
        left = f"{left / 60:.0f} min" if left > 90 else f"{left:.0f} s"
        place = f"{self._done} of {self._total}, {left} left"
        logging.info("%s (%s)", text, place)


def say(text: str) -> None:
    """Tells the log, and a terminal whose log is hidden by progress bars."""
    logging.info("%s", text)
    if sys.stderr.isatty():
        tqdm.tqdm.write(text, file=sys.stderr)


def log_to(path: str) -> None:
    """Everything logged also goes to a file; a terminal gets progress bars instead."""
    handler = std_logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(std_logging.Formatter("%(asctime)s %(message)s"))
    handler.addFilter(cli.QuietLibraries())
    logging.get_absl_logger().addHandler(handler)
    if sys.stderr.isatty():
        logging.get_absl_handler().setLevel(std_logging.WARNING)


def stoppable(work: Callable[[], int]) -> int:
    """Runs with SIGINT and SIGTERM as exceptions: 128 + n, and a word how to go on."""

    def stop(number, frame):
        raise Stopped(number)

    before = {n: signal.signal(n, stop) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        return work()
    except Stopped as error:
        (number,) = error.args
        logging.warning("stopped; the same command goes on from here.")
        return 128 + number
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main(make: Callable[[Run], None]) -> None:
    """The script of one part: `python -m experiments.paper.NAME`."""

    def call(argv):
        del argv
        run = open_run()

        def work():
            make(run)
            print(run.out)
            return 0

        return stoppable(work)

    cli.run(call)
