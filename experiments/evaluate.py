"""The paper's tables for a run, or for any embeddings, beside the controls.

    python -m experiments.evaluate --run=DIR
    python -m experiments.evaluate --vectors=FILE --corpus=nhds --path=FILE --out=DIR

A run is evaluated on the corpus and the split that it was trained on, unless corpus
flags name another. Each trial takes a random part of the training admissions, as in
the paper; what is given stays as it is, all else is learned anew from that part.
Intervals over trials hide the noise of the evaluated sample: the last line bounds it,
and `experiments.study` pairs methods over random splits.
"""

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from absl import flags, logging

import dwl_jax
from dwl_jax import data, io, metrics
from experiments import baselines, cli, corpora, protocol, rundir, tables
from experiments.protocol import Cells, Problem

Maker = Callable[[Problem], dict[str, Cells]]


class Target(NamedTuple):
    """What is evaluated: embeddings, and the whole model if there is one."""

    name: str
    X: np.ndarray  # [N, dim]
    saved: io.SavedModel | None


def model_rows(name: str, problem: Problem, model, hyper, *, cfg, num_steps=100):
    """All rows of a model: its embeddings, its weights, its reconstructions."""
    rows = baselines.embedding_rows(name, problem, np.asarray(model.X))
    return rows | of_topics(name, problem, model, hyper, cfg=cfg, num_steps=num_steps)


def of_topics(name: str, problem: Problem, model, hyper, *, cfg, num_steps=100):
    """Rows of a model's topics: weights of documents, and reconstructions."""
    settings = {"cfg": cfg, "num_steps": num_steps}
    weights = protocol.topic_weights(problem, model, hyper, **settings)
    log_y = dwl_jax.topic_documents(model, hyper, cfg=cfg)
    rows = weight_row(name, problem, weights, log_y)
    return rows | reconstruction_row(name, problem, model, hyper, **settings)


def weight_row(name: str, problem: Problem, weights, log_y) -> dict[str, Cells]:
    """Row of topic weights, [M, K], with the cells of the topics' documents, [K, N]."""
    cells = protocol.knn_cells(problem, weights)
    return {f"{name}, topic weights": cells | protocol.topic_cells(problem, log_y)}


def reconstruction_row(name: str, problem: Problem, model, hyper, **settings):
    """Row of procedures ranked by the barycenter of the diseases' weights."""
    if not problem.rec_rows.size:
        return {}
    ranked = protocol.rank_by_reconstruction(problem, model, hyper, **settings)
    return {f"{name}, reconstruction": protocol.recommend_cells(problem, ranked)}


def maker(target: Target, whole: Problem, *, num_steps: int = 100) -> Maker:
    """Rows of a fixed target; what no trial changes is inferred once, on `whole`."""
    name, saved = target.name, target.saved
    if saved is None:
        return lambda problem: baselines.embedding_rows(name, problem, target.X)
    settings = {"cfg": saved.cfg, "num_steps": num_steps}
    weights = protocol.topic_weights(whole, saved.model, saved.hyper, **settings)
    log_y = dwl_jax.topic_documents(saved.model, saved.hyper, cfg=saved.cfg)
    fixed = reconstruction_row(name, whole, saved.model, saved.hyper, **settings)

    def rows(problem):
        out = baselines.embedding_rows(name, problem, target.X)
        return out | weight_row(name, problem, weights, log_y) | fixed

    return rows


def evaluate(
    makers: Iterable[Maker], problems: Iterable[Problem], title: str, watch=None
) -> tables.Results:
    """Rows of all makers for each problem; `watch(results)` after each."""
    results, makers = tables.Results(title), list(makers)
    for problem in problems:
        for make in makers:
            results.add(make(problem))
        if watch:
            watch(results)
    return results


def sample_note(problem: Problem, results: tables.Results) -> str:
    """What the evaluated sample alone leaves open, for cells of about 50 % and 80 %."""
    parts = []
    sizes = {name: task.queries.size for name, task in problem.tasks.items()}
    sizes["recommendation"] = problem.rec_rows.size
    for name, size in sizes.items():
        if size:
            low, high = (164.5 * (p * (1 - p) / size) ** 0.5 for p in (0.8, 0.5))
            parts.append(f"{name} {size:,} admissions, ± {low:.1f} to {high:.1f}")
    return (
        f"± is the 90 % interval over {results.num_trials} trials (training subsets). "
        f"The evaluated sample alone gives at most: {'; '.join(parts)}."
    )


def load_target(FLAGS) -> tuple[Target, data.Corpus, dict]:
    """What --run or --vectors names, its corpus, and the settings of a run."""
    if (FLAGS.run is None) == (FLAGS.vectors is None):
        raise ValueError("give --run=DIR or --vectors=FILE, one of them.")
    given = FLAGS["corpus"].present or FLAGS["path"].present
    if FLAGS.vectors:
        corpus = corpora.load(corpora.Spec.from_flags())
        X, missing = data.read_vectors(FLAGS.vectors, corpus)
        name = os.path.basename(FLAGS.vectors)
        logging.info("%s: %d words filled by draws.", name, len(missing))
        return Target(name, X, None), corpus, {}
    note = rundir.read(FLAGS.run)
    saved = io.load_model(os.path.join(FLAGS.run, "model"))
    spec = corpora.Spec.from_flags() if given else corpora.Spec(**note["corpus"])
    corpus = corpora.load(spec)
    if corpus.vocab != saved.vocab:
        raise ValueError(
            f"the corpus has {corpus.num_words} words, and not the {len(saved.vocab)} "
            f"of the model in {FLAGS.run}."
        )
    name = "DWL"
    if not saved.cfg.transport:
        name = "without transport"
    elif saved.cfg.step == "none" and not saved.cfg.joint:
        name = "frozen embeddings"
    return Target(name, np.asarray(saved.model.X), saved), corpus, note


def warn(note: dict, corpus: data.Corpus, problem: Problem) -> list[str]:
    """Notes on a run whose evaluated admissions are not new to it, or not its own."""
    if not note:
        return []
    seen = {corpora.digest(c) for c in (problem.train_corpus, corpus)}
    if note["corpus_sha256"] not in seen:
        return ["The corpus or split is another than the one it was trained on."]
    if note["split"] == "all":
        return ["The model was trained on all admissions: it has seen these."]
    return []


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    cli.setup_jax()
    target, corpus, note = load_target(FLAGS)
    seed = FLAGS.split_seed
    seed = note.get("split_seed", 0) if seed is None else seed
    whole = protocol.problem(corpus, seed, FLAGS.part)
    notes = warn(note, corpus, whole)
    for line in notes:
        logging.warning("%s", line)
    title = f"{target.name}: {FLAGS.part} part of split {seed}, {FLAGS.trials} trials"
    write = lambda results: results.write(FLAGS.out, "tables") if FLAGS.out else None
    others = baselines.ALL if FLAGS.baselines else baselines.CONTROLS
    results = evaluate(
        [maker(target, whole, num_steps=FLAGS.infer_steps), *others.values()],
        (
            protocol.problem(
                corpus, seed, FLAGS.part, trial=trial, fraction=FLAGS.fraction
            )
            for trial in range(FLAGS.trials)
        ),
        title,
        write,
    )
    rank = metrics.effective_rank(target.X)
    results.notes = [
        *notes,
        sample_note(whole, results),
        f"Effective rank of the embeddings: {rank:.1f} of {target.X.shape[1]}.",
    ]
    write(results)
    print(results.markdown())


def define_flags():
    flags.DEFINE_string("run", None, "Run directory of experiments.train.")
    flags.DEFINE_string("vectors", None, "word2vec or GloVe file to evaluate instead.")
    flags.DEFINE_enum("part", "test", ["valid", "test"], "What is evaluated.")
    flags.DEFINE_integer("split_seed", None, "Of the 50/25/25 split; the run's, or 0.")
    flags.DEFINE_integer("trials", 20, "Training subsets.", lower_bound=1)
    flags.DEFINE_float("fraction", 0.8, "Size of a training subset.")
    flags.DEFINE_integer("infer_steps", 100, "Of topic weights.", lower_bound=1)
    flags.DEFINE_bool("baselines", False, "Also all of experiments.baselines.")
    flags.DEFINE_string("out", None, "Folder for tables.md, tables.csv, tables.json.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
