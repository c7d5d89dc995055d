"""Trains a model on a corpus and writes it to a run directory.

    python -m experiments.train --out=runs/first
    python -m experiments.train --corpus=nhds --path=FILE --mode=finetune --out=DIR

The directory gets settings.json, model/ (dwl_jax.load_model), embeddings.txt (word2vec
text), topics.csv, metrics.jsonl, tensorboard/ and checkpoints/. A run that was stopped
goes on with the same flags and --resume. Settings that are not given are the mode's.
"""

import dataclasses
import hashlib
from typing import Any, get_args

import jax
import numpy as np
import tqdm
from absl import flags, logging

from dwl_jax import (
    checks,
    data,
    forecast,
    parallel,
    presets,
    runner,
    settings,
    stream,
    types,
)
from dwl_jax import train as train_lib
from dwl_jax.data import Corpus
from dwl_jax.versions import versions
from experiments import cli, corpora, results, rundir

MODES = get_args(presets.Mode)

_OUT = flags.DEFINE_string("out", None, "Run directory to make.", required=True)
_MODE = flags.DEFINE_enum(
    "mode",
    "scratch",
    MODES,
    "scratch: random embeddings. finetune: from --vectors, or from Word2Vec trained on "
    "the documents. supervised: topics belong to the classes of --labels.",
)
_VECTORS = flags.DEFINE_string("vectors", None, "finetune: word2vec or GloVe file.")
_WORD2VEC = flags.DEFINE_enum(
    "word2vec", "input", data.word2vec.WHICH, "finetune: which vectors of Word2Vec."
)
_LABELS = flags.DEFINE_string("labels", "died", "supervised: name of the label.")
_SPLIT = flags.DEFINE_enum(
    "split", "train", ["train", "all"], "Train on the training half, or on everything."
)
_SPLIT_SEED = flags.DEFINE_integer("split_seed", 0, "Of the 50/25/25 split.")
_SEED = flags.DEFINE_integer("seed", 0, "Of initial values and shuffles.")
_EPOCHS = flags.DEFINE_integer("epochs", None, "Passes; the mode's.", lower_bound=1)
_STREAM = flags.DEFINE_enum(
    "stream",
    "auto",
    ["auto", "yes", "no"],
    "Documents and their weights stay on the host, a batch at a time on the device. "
    "auto: with more than 1,000 words, on one device.",
)
_FORECAST = flags.DEFINE_bool("forecast", True, "Say time and memory before the start.")
_MEMORY = flags.DEFINE_float(
    "memory", None, "GB that a run may take; half of the machine's.", lower_bound=0.1
)
_RESUME = flags.DEFINE_bool("resume", False, "Go on where the run in --out stopped.")
_SAVE_EVERY = flags.DEFINE_integer(
    "checkpoint_every", 1, "Epochs between checkpoints; 0: none.", lower_bound=0
)
_KEEP = flags.DEFINE_integer("keep", 3, "Checkpoints that stay.", lower_bound=1)
_NUM_DEVICES = flags.DEFINE_integer(
    "num_devices", None, "Devices to spread documents over.", lower_bound=1
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "Several processes: host:port of process 0."
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "How many.", lower_bound=1)
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which one.", lower_bound=0)
_PYLDAVIS = flags.DEFINE_bool("pyldavis", False, "Also write pyldavis.json.")
_PROJECTOR = flags.DEFINE_bool("projector", False, "Also write projector/.")


def _define_settings() -> list[str]:
    """A flag for every field of Config and Hyper that a flag can hold."""
    names = []
    for field in dataclasses.fields(types.Config):
        help_text = f"Config.{field.name}, default {field.default!r}."
        choices = [a for a in get_args(field.type) if isinstance(a, str)]
        if field.name == "loss":
            choices = list(types.LOSSES)
        if field.name.startswith("optimizer_"):
            choices = list(types.OPTIMIZERS)
        if field.name == "embedding":
            continue  # the other maps need word features
        if choices:
            flags.DEFINE_enum(field.name, None, choices, help_text)
        elif field.type is int:
            flags.DEFINE_integer(field.name, None, help_text)
        elif field.type is bool:
            flags.DEFINE_bool(field.name, None, help_text)
        else:
            flags.DEFINE_float(field.name, None, help_text)
        names.append(field.name)
    for name, default in types.Hyper._field_defaults.items():
        flags.DEFINE_float(name, None, f"Hyper.{name}, default {default!r}.")
        names.append(name)
    return names


_SETTINGS = _define_settings()
_LEARN = flags.DEFINE_bool("learn_embeddings", True, "no: they stay as they start.")
flags.DEFINE_alias("topics", "num_topics")


def preset(corpus: Corpus | None = None) -> presets.Preset:
    """The mode's recipe for a corpus, with what flags change."""
    changes = {n: flags.FLAGS[n].value for n in _SETTINGS if flags.FLAGS[n].present}
    if _EPOCHS.value is not None:
        changes["num_epochs"] = _EPOCHS.value
    changes["learn_embeddings"] = _LEARN.value
    return presets.default(corpus, mode=_MODE.value, **changes)


def check_flags() -> None:
    """What can be known to be wrong before any work."""
    several = [_COORDINATOR, _NUM_PROCESSES, _PROCESS_ID]
    if len({flag.value is None for flag in several}) > 1:
        names = ", ".join(f"--{flag.name}" for flag in several)
        raise ValueError(f"{names} are needed together.")
    if _VECTORS.value and _MODE.value != "finetune":
        raise ValueError(f"--vectors: --mode={_MODE.value} starts without vectors.")
    several_devices = _COORDINATOR.value or (_NUM_DEVICES.value or 1) > 1
    if _STREAM.value == "yes" and several_devices:
        raise ValueError("--stream=yes is for one device.")


def starting_vectors(corpus: Corpus, cfg: types.Config) -> np.ndarray | None:
    """What fine-tuning keeps of given vectors, [N, given]; None in other modes."""
    if _MODE.value != "finetune":
        return None
    if _VECTORS.value:
        found = data.read_vectors(_VECTORS.value, corpus, seed=_SEED.value)
    else:
        found = data.train_word2vec(
            corpus, dim=cfg.dim, which=_WORD2VEC.value, seed=_SEED.value
        )
    return presets.starting_vectors(found.X, cfg, corpus.kinds)


def streamed(num_words: int, mesh) -> bool:
    """Whether documents stay on the host: with many words, if nothing is said."""
    if _STREAM.value != "auto":
        return _STREAM.value == "yes"
    return num_words > types.FEW_WORDS and mesh is None


def check_memory(spec: corpora.Spec, corpus: Corpus, cfg: types.Config) -> None:
    """ValueError if so many words take more memory than allowed, before any work."""
    allowed = forecast.machine() / 2
    if _MEMORY.value is not None:
        allowed = _MEMORY.value * forecast.GB
    size = 8 if jax.config.jax_enable_x64 else 4
    needed = forecast.needed(corpus.num_words, cfg, size)
    if needed > allowed:
        fit = forecast.words_that_fit(allowed, cfg, size)
        if not fit:
            least = forecast.needed(0, cfg) / forecast.GB
            raise ValueError(f"--memory: no run takes less than {least:.1f} GB.")
        raise ValueError(
            f"{corpus.num_words:,} words with {cfg.num_topics} topics, batches of "
            f"{cfg.batch_size} and {cfg.num_iters} iterations take "
            f"{needed / forecast.GB:.1f} GB, and --memory allows "
            f"{allowed / forecast.GB:.1f}: {fit:,} words fit. "
            f"{corpora.fewer(spec, corpus, fit)} would do."
        )


def notes(corpus, vectors, recipe, classes) -> dict[str, Any]:
    """settings.json: all that decides the result, and what made it."""
    sha = lambda x: hashlib.sha256(np.ascontiguousarray(x).tobytes()).hexdigest()
    return {
        "corpus": corpora.Spec.from_flags().to_json(),
        "corpus_sha256": corpora.digest(corpus),
        "split": _SPLIT.value,
        "split_seed": _SPLIT_SEED.value,
        "mode": _MODE.value,
        "vectors": _VECTORS.value or (_WORD2VEC.value if vectors is not None else None),
        "vectors_sha256": None if vectors is None else sha(vectors),
        "labels": _LABELS.value if classes else None,
        "classes": list(classes),
        "seed": _SEED.value,
        "epochs": recipe.num_epochs,
        "config": settings.config_to_json(recipe.cfg),
        "hyper": settings.hyper_to_json(recipe.hyper),
        "x64": jax.config.jax_enable_x64,
    }


def main(argv):
    del argv
    check_flags()
    preset()  # a setting that is wrong is named before any work
    spec = corpora.Spec.from_flags()
    if _COORDINATOR.value:
        parallel.join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value)
    cli.setup_jax(_NUM_DEVICES.value)
    mesh, first = cli.mesh(_NUM_DEVICES.value), parallel.is_first()
    rundir.check(_OUT.value, resume=_RESUME.value)

    corpus = whole = corpora.load(spec)
    if _SPLIT.value == "train":
        corpus = data.split(corpus, seed=_SPLIT_SEED.value)[0]
    recipe = preset(corpus)
    check_memory(spec, whole, recipe.cfg)
    labels, classes = None, ()
    if _MODE.value == "supervised":
        labels, classes = corpus.label_codes(_LABELS.value)
    vectors = starting_vectors(corpus, recipe.cfg)
    task = train_lib.prepare(
        jax.random.key(_SEED.value),
        corpus.documents(np.float64 if jax.config.jax_enable_x64 else np.float32),
        recipe.hyper,
        cfg=recipe.cfg,
        num_words=corpus.num_words,
        vectors=vectors,
        labels=labels,
    )
    note = notes(corpus, vectors, recipe, classes)
    out = rundir.begin(_OUT.value, note, versions(), resume=_RESUME.value)
    logging.info("training on %s", corpus.summary())

    rows = None
    if streamed(corpus.num_words, mesh):
        rows = stream.from_counts(corpus.counts, task.docs.mass.dtype)
        if _FORECAST.value:
            found = forecast.measure(task, rows, cfg=recipe.cfg)
            logging.info("forecast: %s", found.text(recipe.num_epochs))
    metrics = runner.Metrics(out)
    bar = tqdm.tqdm(total=recipe.num_epochs, unit="epoch", disable=None)
    with runner.Signals() as signals:
        try:
            ended = runner.run(
                task,
                cfg=recipe.cfg,
                num_epochs=recipe.num_epochs,
                mesh=mesh,
                folder=f"{out}/checkpoints" if _SAVE_EVERY.value else None,
                resume=_RESUME.value,
                save_every=_SAVE_EVERY.value or 1,
                keep=_KEEP.value,
                watch=results.reporter(metrics, bar),
                stop=signals,
                rows=rows,
                watch_batches=results.batch_reporter(bar),
            )
        except checks.NonFiniteError as error:
            if first:
                results.save(f"{out}/last_good", error.state, recipe, corpus, note)
                logging.error("the last good state is the model in %s/last_good.", out)
            raise
        finally:
            bar.close()
            metrics.close()
    if ended.stopped:
        logging.warning("stopped at epoch %d; --resume goes on.", ended.state.epoch)
        return 128 + (signals.received or 0)
    if first:
        results.write(
            out,
            ended.state,
            recipe,
            corpus,
            note,
            projector=_PROJECTOR.value,
            pyldavis=_PYLDAVIS.value,
        )
        rundir.finish(out)
        print(out)
    return 0


if __name__ == "__main__":
    cli.run(main)
