"""One recipe at many sizes: codes times admissions, and one change at a time.

    python -m experiments.sizes --corpus=nhds --path=FILE --sizes=81,500,2000,5550 \
        --admissions=250,1000,4457 --splits=3 --choice='blur=0.4' --out=DIR

81 are the paper's codes, other numbers the most frequent ones. Each split draws its
training admissions from its training part, the same for every row; recommendation is
judged on the first --limit admissions of the validation part. Rows are the default
recipe, each --choice (changes apart by blanks), it without transport, with frozen
embeddings, and the spectral embeddings untrained, beside naive Bayes and one-hot
neighbours if --baselines. Writes sizes.{md,json} after every cell; a run that was
stopped goes on.
"""

import json
import os
import time

import jax
import numpy as np
import scipy.sparse as sp
from absl import flags, logging

import dwl_jax
from dwl_jax import data, io, presets, train
from dwl_jax.data import Corpus
from dwl_jax.data import corpus as corpus_lib
from experiments import cli, corpora, large

DEFAULT = "default"
CONTROLS = ("transport=False", "learn_embeddings=False")
UNTRAINED = "untrained"


def select(corpus: Corpus, num_codes: int) -> Corpus:
    """The paper's 81 codes, or the most frequent ones, with admissions of both."""
    if num_codes == 81:
        corpus = data.select_paper81(corpus)
    else:
        seen = np.bincount(corpus.counts.indices, minlength=corpus.num_words)
        first = np.sort(np.argsort(-seen, kind="stable")[:num_codes])
        corpus = data.select_words(corpus, [corpus.vocab[n] for n in first])
    return data.select_docs(corpus, min_diseases=2, min_procedures=2)


def row(corpus: Corpus, task: large.Task, seed: int, topics: int, changes: dict):
    """What one recipe gives: F1 by distance and by reconstruction, loss, seconds."""
    changes = {"num_topics": topics} | changes
    untrained = changes.pop(UNTRAINED, False)
    recipe = presets.default(corpus, **changes)
    begin, key = time.perf_counter(), jax.random.key(seed)
    docs, how = corpus.documents(), {"cfg": recipe.cfg, "num_words": corpus.num_words}
    if untrained:
        X = train.prepare(key, docs, recipe.hyper, **how).state.params.theta
        return {"distance": f1(task.scores(task.by_distance(X)))}
    state, info = dwl_jax.fit(
        key, docs, recipe.hyper, num_epochs=recipe.num_epochs, **how
    )
    took = time.perf_counter() - begin
    model = dwl_jax.model(state, recipe.cfg)
    saved = io.SavedModel(model, recipe.cfg, recipe.hyper, (), (), (), {}, {})
    return {
        "distance": f1(task.scores(task.by_distance(model.X))),
        "reconstruction": f1(task.scores(task.by_reconstruction(saved))),
        "blur": [float(x) for x in np.asarray(info.blur).reshape(-1)[[0, -1]]],
        "loss": [float(np.mean(info.loss[-1]))],
        "seconds": [took],
    }


def f1(scores: dict) -> list[float]:
    """Means over admissions."""
    return [float(x.mean()) for x in scores.values()]


def baselines(corpus: Corpus, task: large.Task) -> dict:
    """Naive Bayes, and the share of the 50 nearest admissions by one-hot idf."""
    present = sp.csr_array((corpus.counts > 0).astype(np.float64))
    E, P = (sp.csr_array(present[:, w]) for w in (task.diseases, task.procedures))
    odds, gain = large.naive_bayes(P, E)
    bayes = f1(task.scores(lambda D: odds[None, :] + D @ gain))
    idf = np.log(E.shape[0] / np.maximum(E.sum(axis=0), 1.0))
    unit = lambda D: D / np.maximum(np.sqrt(D.power(2).sum(axis=1)), 1e-12)[:, None]
    refs = sp.csr_array(unit(sp.csr_array(E * idf[None, :])))

    def share(D):
        near = (sp.csr_array(unit(sp.csr_array(D * idf[None, :]))) @ refs.T).toarray()
        k = min(50, near.shape[1])
        first = np.argpartition(-near, k - 1, axis=1)[:, :k]
        return np.stack([np.asarray(P[rows].mean(axis=0)).ravel() for rows in first])

    near = f1(task.scores(share))
    told = {"naive Bayes": bayes, "one-hot neighbours": near}
    return {name: {"distance": scores} for name, scores in told.items()}


def markdown(found: dict) -> str:
    """A line for each cell and row: means over splits."""
    out = ["| codes, admissions | row | F1@1/3/5 by distance | by reconstruction | "
           "blur | loss | s |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    digits = {"distance": 1, "reconstruction": 1, "blur": 2, "loss": 3, "seconds": 0}
    for cell, rows in found.items():
        for name, splits in rows.items():
            text = []
            for what, places in digits.items():
                values = [s[what] for s in splits if what in s]
                means = np.mean(values, axis=0) if values else []
                text.append(" / ".join(f"{x:.{places}f}" for x in means))
            out.append(f"| {cell} | {name} | " + " | ".join(text) + " |")
    return "\n".join(out) + "\n"


def write(out: str, found: dict) -> None:
    """What is found so far."""
    with open(os.path.join(out, "sizes.json"), "w") as handle:
        json.dump(found, handle, indent=1)
    with open(os.path.join(out, "sizes.md"), "w") as handle:
        handle.write(markdown(found))


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    cli.setup_jax()
    choices = {DEFAULT: {}} | {c: cli.settings(c.split()) for c in FLAGS.choice}
    if FLAGS.controls:
        choices |= {c: cli.settings(c.split()) for c in CONTROLS}
        choices |= {"spectral embeddings, untrained": {UNTRAINED: True}}
    for changes in choices.values():
        presets.default(**{k: v for k, v in changes.items() if k != UNTRAINED})
    path, found = os.path.join(FLAGS.out, "sizes.json"), {}
    if os.path.exists(path):
        with open(path) as handle:
            found = json.load(handle)
    os.makedirs(FLAGS.out, exist_ok=True)
    whole = corpora.load(corpora.Spec.from_flags())
    for codes in map(int, FLAGS.sizes):
        corpus = select(whole, codes)
        for seed in range(FLAGS.splits):
            first, valid, _ = data.split_rows(corpus.num_docs, seed=seed)
            task = large.Task(corpus, valid[: FLAGS.limit])
            for number in map(int, FLAGS.admissions):
                if number > first.size:
                    continue
                drawn = np.random.default_rng(seed).permutation(first)[:number]
                learned = corpus_lib.take(corpus, np.sort(drawn), f"{number} drawn")
                cell = found.setdefault(f"{corpus.num_words:,}, {number:,}", {})
                if FLAGS.baselines and len(cell.get("naive Bayes", [])) <= seed:
                    for name, got in baselines(learned, task).items():
                        cell.setdefault(name, []).append(got)
                for name, changes in choices.items():
                    done = cell.setdefault(name, [])
                    if len(done) > seed:
                        continue
                    done.append(row(learned, task, seed, FLAGS.topics, changes))
                    logging.info("%d codes, %d: %s %s", codes, number, name, done[-1])
                    write(FLAGS.out, found)
    print(markdown(found))


def define_flags():
    flags.DEFINE_list("sizes", ["81", "500", "2000", "5550"], "How many codes.")
    flags.DEFINE_list("admissions", ["250", "1000", "4457"], "To learn from.")
    flags.DEFINE_integer("splits", 3, "Random splits.", lower_bound=1)
    flags.DEFINE_integer("limit", 2_000, "Admissions that are judged.", lower_bound=1)
    flags.DEFINE_integer("topics", 8, "K.", lower_bound=1)
    flags.DEFINE_bool("controls", False, "Also the control, frozen and untrained.")
    flags.DEFINE_bool("baselines", False, "Also naive Bayes and one-hot neighbours.")
    flags.DEFINE_multi_string("choice", [], "Changes of one row: 'blur=0.4 tau=1.0'.")
    flags.DEFINE_string("out", None, "Folder for the results.", required=True)


if __name__ == "__main__":
    define_flags()
    cli.run(main)
