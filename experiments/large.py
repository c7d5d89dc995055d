"""Procedures recommended over a vocabulary of thousands, beside baselines.

    python -m experiments.large --run=DIR

Everything is a product of sparse matrices, so that memory grows with the codes in the
records. The split is the run's; what is learned comes from its training part. Numbers
are means over the admissions of the evaluated part that have a disease to go by and a
procedure to find, with the 90 % interval of that sample.
"""

import dataclasses
import os

import numpy as np
import scipy.sparse as sp
from absl import flags, logging

from dwl_jax import data, infer, infer_rows, io
from experiments import cli, corpora, rundir

TOP_N = (1, 3, 5)
_CHUNK = 512  # admissions that are ranked at once


def glove(
    present: sp.csr_array,
    *,
    dim: int = 50,
    num_steps: int = 300,
    rate: float = 0.05,
    saturate: float = 100.0,
    power: float = 0.75,
    seed: int = 0,
) -> np.ndarray:
    """`baselines.glove` on the pairs that occur alone, [N, dim]."""
    C = sp.coo_array(sp.triu(present.T @ present, 1))
    i, j = np.concatenate([C.row, C.col]), np.concatenate([C.col, C.row])
    count = np.tile(C.data.astype(np.float32), 2)
    weight, log_C = np.minimum(1.0, (count / saturate) ** power), np.log(count)
    N = present.shape[1]
    rng = np.random.default_rng(seed)
    draw = lambda: ((rng.random((N, dim)) - 0.5) / dim).astype(np.float32)
    params = [draw(), draw(), np.zeros(N, np.float32), np.zeros(N, np.float32)]
    squares = [np.ones_like(x) for x in params]
    for _ in range(num_steps):
        W, V, b, c = params
        told = np.einsum("pd,pd->p", W[i], V[j]) + b[i] + c[j]
        E = sp.csr_array((weight * (told - log_C), (i, j)), shape=(N, N))
        grads = (E @ V, E.T @ W, E.sum(axis=1), E.sum(axis=0))
        for x, grad, square in zip(params, grads, squares, strict=True):
            square += grad**2
            x -= rate * grad / np.sqrt(square)
    return params[0] + params[1]


def naive_bayes(P: sp.csr_array, E: sp.csr_array, smooth: float = 0.1):
    """Log odds of procedures: a constant [P], and what each disease adds, [E, P]."""
    M = P.shape[0]
    both, p, e = (P.T @ E).toarray(), P.sum(axis=0), E.sum(axis=0)
    rate = lambda n, of: (n + smooth) / (of + 2 * smooth)
    yes, no = rate(both, p[:, None]), rate(e[None, :] - both, M - p[:, None])
    prior = rate(p, M)
    odds = np.log(prior / (1 - prior)) + (np.log1p(-yes) - np.log1p(-no)).sum(axis=1)
    return odds, (np.log(yes / no) - np.log1p(-yes) + np.log1p(-no)).T


class Task:
    """Admissions of one part, with diseases given and procedures to be found."""

    def __init__(self, corpus: data.Corpus, rows: np.ndarray):
        present = (corpus.counts > 0).astype(np.float64)[rows]
        self.diseases = np.flatnonzero(corpus.is_kind("disease"))
        self.procedures = np.flatnonzero(corpus.is_kind("procedure"))
        E, P = present[:, self.diseases], present[:, self.procedures]
        both = (E.sum(axis=1) > 0) & (P.sum(axis=1) > 0)
        self.E, self.P = sp.csr_array(E[both]), sp.csr_array(P[both])
        self.num_words = corpus.num_words

    def counts(self) -> sp.csr_array:
        """Diseases and procedures of the admissions, [n, N]."""
        return self._over_words(self.E, self.diseases) + self._over_words(
            self.P, self.procedures
        )

    def _over_words(self, codes, words) -> sp.csr_array:
        codes = sp.coo_array(codes)
        where = (codes.row, words[codes.col])
        shape = (codes.shape[0], self.num_words)
        return sp.csr_array((codes.data, where), shape=shape)

    def scores(self, score) -> dict[str, np.ndarray]:
        """F1 of each admission at 1, 3 and 5; score(diseases [n, E]) gives [n, P]."""
        out = {f"F1@{n}": [] for n in TOP_N}
        for start in range(0, self.E.shape[0], _CHUNK):
            told = np.asarray(score(self.E[start : start + _CHUNK]))
            true = self.P[start : start + _CHUNK].toarray()
            ranked = np.argsort(-told, axis=1, kind="stable")[:, : max(TOP_N)]
            hits = np.take_along_axis(true, ranked, axis=1)
            for n in TOP_N:
                f1 = 2 * hits[:, :n].sum(axis=1) / (n + true.sum(axis=1))
                out[f"F1@{n}"].append(100 * f1)
        return {name: np.concatenate(parts) for name, parts in out.items()}

    def by_distance(self, X: np.ndarray):
        """Minus the mean distance of procedures to an admission's diseases."""
        X = np.asarray(X, np.float64)
        Xd, Xp = X[self.diseases], X[self.procedures]
        D2 = (Xd**2).sum(1)[:, None] + (Xp**2).sum(1)[None, :] - 2 * Xd @ Xp.T
        D = np.sqrt(np.maximum(D2, 0.0))
        return lambda E: -(E @ D) / E.sum(axis=1)[:, None]

    def by_reconstruction(self, saved: io.SavedModel):
        """Log mass of procedures where topics reconstruct an admission's diseases."""
        observed = np.zeros(self.num_words, bool)
        observed[self.diseases] = True

        def score(E):
            counts = self._over_words(E, self.diseases)
            told = infer(
                counts, saved.model, saved.hyper, cfg=saved.cfg, observed=observed
            )
            return np.asarray(told.log_y)[:, self.procedures]

        return score


def methods(corpus: data.Corpus, train: np.ndarray, seed: int, task: Task) -> dict:
    """Scores of the baselines, learned from the training rows."""
    learned = data.corpus.take(corpus, train, "training part")
    present = sp.csr_array((learned.counts > 0).astype(np.float64))
    E, P = present[:, task.diseases], present[:, task.procedures]
    frequency = P.sum(axis=0)
    odds, gain = naive_bayes(sp.csr_array(P), sp.csr_array(E))
    X = data.train_word2vec(learned, which="sum", seed=seed).X
    logging.info("Word2Vec is learned")
    G = glove(present, seed=seed)
    logging.info("GloVe is learned")
    return {
        "most frequent procedures": lambda E: np.tile(frequency, (E.shape[0], 1)),
        "naive Bayes": lambda E: odds[None, :] + E @ gain,
        "Word2Vec input + output, by distance": task.by_distance(X),
        "GloVe, by distance": task.by_distance(G),
    }


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    cli.setup_jax()
    note = rundir.read(FLAGS.run)
    corpus = corpora.load(corpora.Spec(**note["corpus"]))
    seed = note["split_seed"]
    train, valid, test = data.split_rows(corpus.num_docs, seed=seed)
    rows = valid if FLAGS.part == "valid" else test
    task = Task(corpus, rows[: FLAGS.limit])
    saved = io.load_model(os.path.join(FLAGS.run, "model"))
    if saved.vocab != corpus.vocab:
        raise ValueError(f"{FLAGS.run} has another vocabulary than its corpus.")
    if FLAGS.judge_iters:
        cfg = dataclasses.replace(saved.cfg, num_iters=FLAGS.judge_iters)
        saved = saved._replace(cfg=cfg)
    if note["split"] == "all":
        logging.warning("%s was trained on all admissions, these too.", FLAGS.run)
    rows = {
        "DWL, by distance": task.by_distance(saved.model.X),
        "DWL, by reconstruction": task.by_reconstruction(saved),
    }
    if FLAGS.baselines:
        rows |= methods(corpus, train, seed, task)
    told = infer_rows(task.counts(), saved.model, saved.hyper, cfg=saved.cfg)
    print(f"mean loss {told.loss.mean():.4f}")
    print(f"{task.E.shape[0]:,} admissions, {task.P.shape[1]:,} procedures\n")
    print("| F1 % at | " + " | ".join(map(str, TOP_N)) + " |\n|---|---|---|---|")
    for name, score in rows.items():
        cells = []
        for f1 in task.scores(score).values():
            cells.append(f"{f1.mean():.1f} ± {1.645 * f1.std() / f1.size**0.5:.1f}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def define_flags():
    flags.DEFINE_string(
        "run", None, "Run directory of experiments.train.", required=True
    )
    flags.DEFINE_enum("part", "test", ["valid", "test"], "What is evaluated.")
    flags.DEFINE_integer(
        "judge_iters",
        None,
        "Judge by so many Sinkhorn iterations, so that different runs can be compared.",
        lower_bound=1,
    )
    flags.DEFINE_integer("limit", None, "Evaluate the first so many alone.")
    flags.DEFINE_bool("baselines", True, "Also the baselines, which are learned anew.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
