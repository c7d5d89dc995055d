"""The recipe against the baselines over random splits, everything learned anew in each.

    python -m experiments.study --corpus=nhds --path=FILE --splits=10 --out=DIR

Writes study.{md,csv,json} after every split; a study that was stopped goes on where it
was. --part=valid is for choosing settings, --part=test for reporting. The Markdown ends
with paired differences to the rows that a method should beat.
"""

import ast
import os

import jax
import numpy as np
from absl import flags, logging

import dwl_jax
from dwl_jax import presets
from experiments import baselines, cli, corpora, evaluate, protocol, tables

MODES = ("scratch", "finetune", "died", "admission_type")
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


def train(problem: protocol.Problem, mode: str, changes, vectors=None):
    """A model of the default recipe for one split, with its settings."""
    supervised = mode not in ("scratch", "finetune")
    recipe = presets.default(mode="supervised" if supervised else mode, **changes)
    corpus = problem.train_corpus
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
    names = {"scratch": "DWL scratch", "finetune": "DWL fine-tuned"}
    out = {}
    for mode in modes:
        name = names.get(mode, f"DWL supervised by {mode}")
        vectors = None
        if mode == "finetune":
            vectors = presets.starting_vectors(baselines.word2vec(problem, "input"))
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


def parse(changes: list[str]) -> dict:
    """["tau=1", "loss=squared"] as settings of a preset."""
    out = {}
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals:
            raise ValueError(f"--change={change}: must be name=value.")
        try:
            out[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            out[name] = value  # a word, such as a loss
    return out


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    changes = parse(FLAGS.change)
    presets.default(**changes)  # wrong settings are named before any work
    corpus = corpora.load(corpora.Spec.from_flags())
    path = os.path.join(FLAGS.out, "study.json")
    title = f"{corpus.num_docs:,} documents, random splits, {FLAGS.part} part"
    note = (
        f"{', '.join(FLAGS.modes)}; {FLAGS.num_steps} steps of inference; baselines "
        f"learned: {FLAGS.baselines}; changed: {changes or 'nothing'}"
    )
    results = tables.Results(title, notes=[note])
    if os.path.exists(path):
        results = tables.read(path)
        if (results.title, results.notes) != (title, [note]):
            raise ValueError(f"--out={FLAGS.out}: holds another study: {results.notes}")
    for seed in range(results.num_trials, FLAGS.splits):
        problem = protocol.problem(corpus, seed, FLAGS.part)
        found = rows(problem, FLAGS.modes, changes, FLAGS.num_steps)
        if FLAGS.baselines:
            found |= baselines.rows(problem)
        results.add(found)
        results.write(FLAGS.out, "study")
        logging.info("split %d is done", seed)
    whole = results
    if FLAGS.baseline_results:
        whole = tables.merge(results, tables.read(FLAGS.baseline_results))
    text = whole.markdown()
    mine = [row for row in whole.values if row.startswith("DWL")]
    for against in AGAINST:
        if against in whole.values:
            text += "\n" + whole.differences(against, mine)
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
