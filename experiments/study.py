"""The recipe against the baselines over random splits, everything learned anew in each.

    python -m experiments.study --corpus=nhds --path=FILE --splits=10 --out=DIR

Writes study.{md,csv,json} after every split; a study that was stopped goes on where it
was. --part=valid is for choosing settings, --part=test for reporting. The Markdown ends
with paired differences to the rows that a method should beat.
"""

import os

import jax
import numpy as np
from absl import flags, logging

import dwl_jax
from dwl_jax import data, presets
from experiments import baselines, cli, corpora, evaluate, protocol, tables

NAMES = {
    "scratch": "DWL scratch",
    "finetune": "DWL fine-tuned",
    "control": "without transport",
    "frozen": "frozen embeddings",
    "died": "DWL supervised by died",
    "admission_type": "DWL supervised by admission_type",
}
MODES = tuple(NAMES)
CHANGES = {  # of the recipe, in modes that show what a part of it gives
    "control": {"transport": False, "num_iters": 1},
    "frozen": {"learn_embeddings": False},
}
AGAINST = (
    "GloVe, distance",
    "Word2Vec sum, distance",
    "naive Bayes",
    "Word2Vec input, pooled",
    "LDA",
    "TF-IDF",
    "GloVe, Wasserstein",
    "Word2Vec input, Wasserstein",
)
OF_TOPICS = ("topic weights", "reconstruction")


def train(problem: protocol.Problem, mode: str, changes, vectors=None, by_kind=True):
    """A model of the default recipe for one split, with its settings.

    `control` and `frozen` are `scratch` but for what they leave out. Vectors are
    Word2Vec's for `finetune`, each kind of words in its own coordinates if `by_kind`;
    in any other mode they are what X starts from.
    """
    supervised = mode in ("died", "admission_type")
    of = "supervised" if supervised else "scratch" if mode in CHANGES else mode
    corpus = problem.train_corpus
    recipe = presets.default(corpus, mode=of, **changes | CHANGES.get(mode, {}))
    if mode == "finetune":
        kinds = corpus.kinds if by_kind else None
        vectors = presets.starting_vectors(vectors, recipe.cfg, kinds)
    state, _ = dwl_jax.fit(
        jax.random.key(problem.seed),
        corpus.documents(),
        recipe.hyper,
        cfg=recipe.cfg,
        num_epochs=recipe.num_epochs,
        num_words=corpus.num_words,
        vectors=vectors,
        labels=corpus.label_codes(mode)[0] if supervised else None,
    )
    return dwl_jax.model(state, recipe.cfg), recipe


def rows(problem: protocol.Problem, modes, changes, num_steps: int) -> dict:
    """Rows of DWL in these modes for one split; without steps, of embeddings alone."""
    out = {}
    for mode in modes:
        name, vectors = NAMES[mode], None
        if mode == "finetune":
            vectors = baselines.word2vec(problem, "input")
        model, recipe = train(problem, mode, changes, vectors)
        rank = dwl_jax.metrics.effective_rank(model.X)
        distance = np.asarray(dwl_jax.metrics.euclidean(model.X, model.X))
        nearest = distance[~np.eye(len(distance), dtype=bool)].min() / distance.mean()
        logging.info("%s: effective rank %.1f, nearest %.3f", name, rank, nearest)
        if num_steps:
            settings = {"cfg": recipe.cfg, "num_steps": num_steps}
            out |= evaluate.model_rows(name, problem, model, recipe.hyper, **settings)
        else:
            out |= baselines.embedding_rows(name, problem, np.asarray(model.X))
        out[f"{name}, embeddings"] = {"rank": rank, "nearest pair / mean": nearest}
    return out


def study(
    corpus: data.Corpus,
    out: str,
    *,
    splits: int,
    part: str,
    modes,
    changes: dict,
    num_steps: int,
    learn_baselines: bool,
) -> tables.Results:
    """Results over the splits, written to `out` after each; resumes what is there."""
    title = f"{corpus.num_docs:,} documents, random splits, {part} part"
    note = (
        f"{', '.join(modes)}; {num_steps} steps of inference; baselines learned: "
        f"{learn_baselines}; changed: {changes or 'nothing'}"
    )
    results, path = tables.Results(title, notes=[note]), os.path.join(out, "study.json")
    if os.path.exists(path):
        results = tables.read(path)
        if (results.title, results.notes) != (title, [note]):
            raise ValueError(f"--out={out}: holds another study: {results.notes}")
    for seed in range(results.num_trials, splits):
        problem = protocol.problem(corpus, seed, part)
        found = rows(problem, modes, changes, num_steps)
        if learn_baselines:
            found |= baselines.rows(problem)
        results.add(found)
        results.write(out, "study")
        logging.info("split %d is done", seed)
    return results


def report(results: tables.Results) -> str:
    """Markdown: all rows, and paired differences of DWL to what it should beat."""
    text = results.markdown()
    mine = [row for row in results.values if row.startswith("DWL")]
    left_out = [f"{NAMES[mode]}, {what}" for mode in CHANGES for what in OF_TOPICS]
    for against in (*AGAINST, *left_out):
        if against in results.values:
            text += "\n" + results.differences(against, mine)
    return text


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    changes = cli.settings(FLAGS.change)
    presets.default(**changes)  # wrong settings are named before any work
    results = study(
        corpora.load(corpora.Spec.from_flags()),
        FLAGS.out,
        splits=FLAGS.splits,
        part=FLAGS.part,
        modes=FLAGS.modes,
        changes=changes,
        num_steps=FLAGS.num_steps,
        learn_baselines=FLAGS.baselines,
    )
    if FLAGS.baseline_results:
        results = tables.merge(results, tables.read(FLAGS.baseline_results))
    text = report(results)
    with open(os.path.join(FLAGS.out, "study.md"), "w", encoding="utf-8") as handle:
        handle.write(text)
    print(text)


def define_flags():
    flags.DEFINE_integer("splits", 10, "Random splits.", lower_bound=2)
    flags.DEFINE_enum("part", "test", ["valid", "test"], "What is evaluated.")
    flags.DEFINE_string("out", None, "Folder for the results.", required=True)
    flags.DEFINE_multi_enum("modes", list(MODES), MODES, "Repeat for several.")
    flags.DEFINE_integer(
        "num_steps", 100, "Of inference; 0: embeddings alone.", lower_bound=0
    )
    flags.DEFINE_multi_string("change", [], "A setting of the recipe: name=value.")
    flags.DEFINE_bool("baselines", True, "Also learn the baselines in each split.")
    flags.DEFINE_string(
        "baseline_results", None, "baselines.json over the same splits to pair with."
    )


if __name__ == "__main__":
    define_flags()
    cli.run(main)
