"""How distillation acts: convergence for several τ (the appendix's figure).

    python -m experiments.paper.tau --corpus=nhds --path=FILE --out=DIR

All τ and all seeds are one vmapped function that is compiled once and called for each
epoch. After each epoch the state is written: a sweep that was stopped goes on.
"""

import functools
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import dwl_jax
from dwl_jax import train
from experiments import protocol
from experiments.intervals import interval
from experiments.paper import knn, plots, run
from experiments.paper.section import Section, Sheet, cell, text

NAME = "tau"
TAUS = (0.25, 0.5, 0.75, 1.0)
SEEDS = 3
MOST_DOCS = 1_500  # training documents of the sweep
CURVES = {
    "loss": "reconstruction loss",
    "accuracy": "admission type, 5-NN on topic weights, %",
    "f1": "procedures by distance, F1@3, %",
}


def sweep(problem: protocol.Problem, recipe, taus, seeds: int):
    """The first states of all lanes, and one compiled epoch for all of them.

    Args:
      problem: learned from its training part.
      recipe: of training from scratch.
      taus: values of τ.
      seeds: runs for each; a seed has the same start and the same shuffles for all τ.

    Returns:
      States with a leading axis τ-major [τ × seeds], and epoch(states) -> states, Info.
    """
    corpus = problem.train_corpus
    prepared = [
        train.prepare(
            jax.random.key(seed),
            corpus.documents(),
            recipe.hyper._replace(tau=tau),  # of which a blur has its epsilon
            cfg=recipe.cfg,
            num_words=corpus.num_words,
        )
        for tau in taus
        for seed in range(seeds)
    ]
    stack = lambda trees: jax.tree.map(lambda *x: jnp.stack(x), *trees)
    states = stack([task.state for task in prepared])
    keys = jnp.stack([task.key for task in prepared])
    lanes = jnp.repeat(jnp.asarray(taus, jnp.float32), seeds)
    docs, hyper = prepared[0].docs, prepared[0].hyper._replace(tau=lanes)
    return states, lambda states: _epoch(keys, states, docs, hyper, cfg=recipe.cfg)


@functools.partial(jax.jit, static_argnames="cfg")
def _epoch(keys, states, docs, hyper, *, cfg):
    """One epoch of all lanes; τ alone differs in hyper."""
    axes = type(hyper)(**(dict.fromkeys(hyper._fields) | {"tau": 0}))
    lane = lambda key, state, hyper: dwl_jax.epoch(key, state, docs, hyper, cfg=cfg)
    return jax.vmap(lane, in_axes=(0, 0, axes))(keys, states, hyper)


def measure(problem: protocol.Problem, labels, A, X) -> dict[str, float]:
    """What an epoch has reached in one lane: accuracy and F1, in percent.

    Accuracy is that of the training documents told by their nearest other ones, by
    their weights: the paper's training accuracy.
    """
    known = np.flatnonzero(labels != "")
    lam = np.asarray(jax.nn.softmax(A, axis=-1))[known]
    near = knn.without_self(protocol.nearest(lam, lam, 6), np.arange(len(lam)))
    ranked = protocol.rank_by_embedding(problem, X)
    return {
        "accuracy": 100 * knn.accuracy(labels[known], near, labels[known], 5),
        "f1": protocol.recommend_cells(problem, ranked)["rec/f1@3"],
    }


def curves(current: run.Run) -> dict[str, np.ndarray]:
    """Each of CURVES as [τ, seeds, epochs]; goes on where a sweep was stopped."""
    problem = current.problem
    corpus = problem.corpus
    if problem.train.size > MOST_DOCS:
        share = MOST_DOCS / problem.train.size
        problem = protocol.problem(corpus, 0, "valid", trial=0, fraction=share)
    else:
        problem = protocol.problem(corpus, 0, "valid")
    recipe = current.recipe("scratch")
    states, epoch = sweep(problem, recipe, TAUS, SEEDS)
    labels = problem.train_corpus.labels.get("admission_type")
    if labels is None:
        labels = next(iter(problem.train_corpus.labels.values()))
    path = current.path("parts", "tau.npz")
    before, states = _restore(path, states)
    # Embeddings and weights before the first epoch are no result; curves start after.
    found = {
        name: before.get(name, np.zeros((0, len(TAUS) * SEEDS))) for name in CURVES
    }
    done, total = len(found["loss"]), recipe.num_epochs
    with run.Progress("All τ and seeds", total, "epoch", done) as progress:
        for number in range(done, total):
            states, info = epoch(states)
            measured = [
                measure(problem, labels, A, X)
                for A, X in zip(
                    np.asarray(states.params.A),
                    np.asarray(states.params.theta),
                    strict=True,
                )
            ]
            new = {"loss": np.asarray(info.loss).mean(axis=1)}
            for name in ("accuracy", "f1"):
                new[name] = np.array([m[name] for m in measured])
            found = {name: np.vstack([found[name], new[name]]) for name in CURVES}
            _write(path, found, states)
            progress.step(f"all τ, epoch {number}: loss {new['loss'].mean():.4f}")
    shape = (recipe.num_epochs, len(TAUS), SEEDS)
    return {n: x.reshape(shape).transpose(1, 2, 0) for n, x in found.items()}


def _write(path: str, found: dict, states) -> None:
    leaves = {f"leaf{i}": x for i, x in enumerate(jax.tree.leaves(states))}
    with open(f"{path}.part", "wb") as handle:
        np.savez(handle, **found, **leaves)
    os.replace(f"{path}.part", path)


def _restore(path: str, states):
    """Curves so far and the states after them; nothing and the given states if none."""
    if not os.path.exists(path):
        return {}, states
    with np.load(path) as file:
        found = {name: file[name] for name in CURVES}
        leaves = [file[f"leaf{i}"] for i in range(len(jax.tree.leaves(states)))]
    return found, jax.tree.unflatten(jax.tree.structure(states), leaves)


def figure(current: run.Run, found: dict[str, np.ndarray]) -> str:
    """A panel for each curve; lines are means, bands the range over seeds."""
    fig, axes = plt.subplots(1, len(CURVES), figsize=(12, 3.6), layout="constrained")
    for axis, (name, title) in zip(axes, CURVES.items(), strict=True):
        for tau, x, color, marker in zip(
            TAUS, found[name], plots.SEQUENCE, plots.MARKERS, strict=False
        ):
            epochs = 1 + np.arange(x.shape[1])
            axis.fill_between(
                epochs, x.min(axis=0), x.max(axis=0), color=color, alpha=0.18, lw=0
            )
            axis.plot(
                epochs,
                x.mean(axis=0),
                color=color,
                marker=marker,
                markevery=max(1, x.shape[1] // 7),
                ms=5,
                label=f"τ = {tau:g}",
            )
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("epoch")
        axis.grid(color="#e6e8eb")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].legend()
    return plots.save(current, fig, "tau")


def make(current: run.Run) -> Section:
    found = curves(current)
    rows = []
    for i, tau in enumerate(TAUS):
        line = [f"τ = {tau:g}"]
        for name in CURVES:
            last = interval(found[name][i, :, -1])
            digits = 3 if name == "loss" else 1
            line.append(cell(last.mean, last.half, digits=digits))
        rows.append(line)
    head = ["", *CURVES.values()]
    table = Sheet("tau", "After the last epoch, mean ± 90 % interval", head, rows)
    name = figure(current, found)
    order = np.argsort([row[2]["mean"] for row in rows])
    best, worst = rows[order[-1]], rows[order[0]]
    squared = current.recipe("scratch").cfg.squared
    unit = "squared distances" if squared else "distances"
    return Section(
        NAME,
        "Figure 3 — how strong distillation should be",
        "The ground cost is D^τ: small τ smooths the teacher's distances more. "
        f"{SEEDS} seeds for each τ, trained from scratch, all at once.",
        sheets=[table],
        findings=[
            f"Distillation: admission type is told best at {best[0]} "
            f"({text(best[2])} %) and worst at {worst[0]} ({text(worst[2])} %) after "
            "the last epoch, on training admissions."
        ],
        figures=[(name, "Lines are means, bands the range over seeds.")],
        notes=[
            f"D holds {unit} divided by their mean here, so that τ acts at all; the "
            "paper's curve is training accuracy alone, with unscaled distances, where "
            "neither τ nor the embeddings matter at its ε (see BUILD_NOTES.md).",
            "Accuracy is on training admissions as in the paper; F1 on the validation "
            "part. The loss at different τ is not of the same model class. Every τ has "
            "the ε at which its kernel blurs as much as the others'.",
        ],
    )


if __name__ == "__main__":
    run.main(make)
