"""What each choice of the recipe does: one change at a time, on validation parts.

    python -m experiments.choices --corpus=nhds --path=FILE --splits=3 --out=DIR

Every row is the default recipe of --mode with one change. Columns are what embeddings
and topics alone tell, so that nothing need be inferred: recommendation by distance,
pooled k-NN, topics. Writes choices.{md,csv,json} after every row; a stopped run
goes on where it was.
"""

import os

import numpy as np
from absl import flags, logging

import dwl_jax
from dwl_jax import presets
from experiments import baselines, cli, corpora, protocol, study, tables

DEFAULT = "default"
CHOICES = (
    "squared=False",
    "tau=0.5",
    "tau=1.0",
    "epsilon=0.05",
    "epsilon=0.3",
    "loss=squared",
    "loss=sinkhorn",
    "start=normal",
    "prior=0.0",
    "prior=0.1",
    "rate_A=0.3",
    "joint=False",
    "rate_joint=0.1",
    "step=none",
    "step=proximal beta=0.5",
    "step=inner rate_theta=0.03",
    "rate_theta=0.2",
    "rate_theta=1.5",
    "epsilon_transport=0.3",
    "closest=distance",
    "hold=scale",
    "hold=covariance",
    "anchor=0.005",
    "num_iters=5",
    "num_iters=20",
    "num_iters=3 warm_start=True",
    "num_epochs=40",
    "num_topics=16",
)


def cells(problem: protocol.Problem, mode: str, changes: dict, vectors) -> dict:
    """What embeddings and topics of one model are good for."""
    model, recipe = study.train(problem, mode, changes, vectors)
    X = np.asarray(model.X, np.float64)
    log_y = dwl_jax.topic_documents(model, recipe.hyper, cfg=recipe.cfg)
    out = protocol.pooled_cells(problem, X)
    out |= protocol.recommend_cells(problem, protocol.rank_by_embedding(problem, X))
    out |= protocol.topic_cells(problem, log_y)
    return out | {"effective rank": dwl_jax.metrics.effective_rank(X)}


def compare(corpus, out: str, *, mode: str, splits: int, choices) -> tables.Results:
    """Cells of every choice over the splits; resumes what is there."""
    title = f"{mode}, validation parts of {splits} random splits"
    results, path = tables.Results(title), os.path.join(out, "choices.json")
    if os.path.exists(path):
        results = tables.read(path)
        if results.title != title:
            raise ValueError(f"--out={out}: holds other choices: {results.title}")
    for seed in range(splits):
        problem = protocol.problem(corpus, seed, "valid")
        vectors = None
        if mode == "finetune":
            vectors = presets.starting_vectors(baselines.word2vec(problem, "input"))
        for choice in choices:
            done = next(iter(results.values.get(choice, {}).values()), [])
            if len(done) > seed:
                continue
            changes = study.parse(choice.split()) if choice != DEFAULT else {}
            results.add({choice: cells(problem, mode, changes, vectors)})
            results.write(out, "choices")
            logging.info("split %d: %s is done", seed, choice)
    return results


def report(results: tables.Results) -> str:
    """Markdown: all rows, and paired differences to the default."""
    return results.markdown() + "\n" + results.differences(DEFAULT)


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    choices = FLAGS.choice or CHOICES
    for choice in choices:  # wrong settings are named before any work
        presets.default(mode=FLAGS.mode, **study.parse(choice.split()))
    results = compare(
        corpora.load(corpora.Spec.from_flags()),
        FLAGS.out,
        mode=FLAGS.mode,
        splits=FLAGS.splits,
        choices=(DEFAULT, *choices),
    )
    text = report(results)
    with open(os.path.join(FLAGS.out, "choices.md"), "w", encoding="utf-8") as handle:
        handle.write(text)
    print(text)


def define_flags():
    flags.DEFINE_integer("splits", 3, "Random splits.", lower_bound=2)
    flags.DEFINE_enum("mode", "scratch", ["scratch", "finetune"], "Of the recipe.")
    flags.DEFINE_multi_string(
        "choice", [], "Changes of one row, apart by blanks: 'step=none tau=1.0'."
    )
    flags.DEFINE_string("out", None, "Folder for the results.", required=True)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
