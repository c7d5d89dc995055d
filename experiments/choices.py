"""What each choice of the recipe does: one change at a time, on validation parts.

    python -m experiments.choices --corpus=nhds --path=FILE --splits=3 --out=DIR

Every row is the default recipe of --mode with one change; `beside=(35,1.0)` is the map
of fine-tuning, `embedding.beside` of so many given coordinates and their share, and
`by_kind=False` lets all kinds of words share them. Columns are what
embeddings and topics alone tell, so that nothing need be inferred: recommendation by
distance, pooled k-NN, topics. Writes choices.{md,csv,json} after every row; a stopped
run goes on where it was.
"""

import os

import numpy as np
from absl import flags, logging

import dwl_jax
from dwl_jax import embedding, presets
from experiments import baselines, cli, corpora, protocol, study, tables

DEFAULT = "default"
BEFORE = (  # the recipe of three iterations from N(0, 1), 20 epochs
    "start=documents epsilon=0.15 num_iters=3 transport_iters=10 batch_size=256 "
    "num_epochs=20"
)
CHOICES = (
    BEFORE,
    "transport=False",
    "learn_embeddings=False",
    "squared=False",
    "tau=0.5",
    "tau=1.0",
    "blur=0.2",
    "blur=0.4",
    "blur=1.6",
    "loss=squared",
    "loss=sinkhorn",
    "start=normal",
    "start=documents",
    "prior=0.0",
    "prior=0.1",
    "rate_A=0.3",
    "joint=False",
    "rate_joint=0.01",
    "rate_joint=0.1",
    "step=none",
    "rate_theta=0.2",
    "rate_theta=1.2",
    "epsilon_transport=0.3",
    "transport_iters=10",
    "closest=distance",
    "anchor=0.002",
    "num_iters=2",
    "num_iters=10",
    "batch_size=256",
    "num_steps=200",
    "num_steps=800",
    "num_topics=16",
)
OF_MODE = {
    "scratch": ("step=proximal beta=0.5",),
    "finetune": (
        "rate_joint=0.4",
        "rate_theta=3.0",
        "beside=(25,0.3)",
        "beside=(35,0.15)",
        "beside=(35,0.6)",
        "beside=(35,1.0)",
        "by_kind=False",
    ),
}


def parse(choice: str, mode: str) -> tuple[dict, bool]:
    """'step=none tau=1.0' as settings, and whether kinds have their own coordinates."""
    changes = {} if choice == DEFAULT else cli.settings(choice.split())
    if "beside" in changes:
        changes["embedding"] = embedding.beside(*changes.pop("beside"))
    by_kind = changes.pop("by_kind", True)
    presets.default(mode=mode, **changes)
    return changes, by_kind


def cells(problem: protocol.Problem, mode: str, choice: str, W: np.ndarray) -> dict:
    """What embeddings and topics of one model are good for; W are Word2Vec's."""
    changes, by_kind = parse(choice, mode)
    vectors = W if mode == "finetune" else None
    model, recipe = study.train(problem, mode, changes, vectors, by_kind)
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
        W = baselines.word2vec(problem, "input")
        for choice in choices:
            done = next(iter(results.values.get(choice, {}).values()), [])
            if len(done) > seed:
                continue
            results.add({choice: cells(problem, mode, choice, W)})
            results.write(out, "choices")
            logging.info("split %d: %s is done", seed, choice)
    return results


def report(results: tables.Results) -> str:
    """Markdown: all rows, and paired differences to the default."""
    return results.markdown() + "\n" + results.differences(DEFAULT)


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    choices = FLAGS.choice or (*CHOICES, *OF_MODE[FLAGS.mode])
    for choice in choices:  # wrong settings are named before any work
        parse(choice, FLAGS.mode)
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
