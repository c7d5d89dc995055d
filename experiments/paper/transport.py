"""Transport between two admissions (the paper's Figure 1).

    python -m experiments.paper.transport --corpus=nhds --path=FILE --out=DIR

The admissions are synthetic, whatever the corpus: no patient's record is shown.
"""

import textwrap

import adjustText
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
import ot

from dwl_jax import data, io, metrics
from experiments.paper import models, plots, run
from experiments.paper.section import Section

NAME = "transport"
_DRAWN = 400  # synthetic admissions to choose from


def admissions(vocab, num_docs: int = _DRAWN) -> list[list[int]]:
    """Synthetic admissions as word indices of a model; words it lacks are left out."""
    corpus = data.synthetic_admissions(num_docs, seed=1)
    index = {word: n for n, word in enumerate(vocab)}
    place = [index.get(word) for word in corpus.vocab]
    rows = np.split(corpus.counts.indices, corpus.counts.indptr[1:-1])
    found = ([place[n] for n in row.tolist() if place[n] is not None] for row in rows)
    return [words for words in found if len(words) >= 4]


def plan(D: np.ndarray, first: list[int], second: list[int]) -> np.ndarray:
    """Exact plan between two admissions with equal mass on each code, [n, m]."""
    even = lambda words: np.full(len(words), 1.0 / len(words))
    return np.asarray(ot.emd(even(first), even(second), D[np.ix_(first, second)]))


def choose(D: np.ndarray, found: list[list[int]]) -> tuple[list[int], list[int]]:
    """The nearest two that share no code, one of 5 and one of 7 codes if there are."""
    some = [words for words in found if len(words) == 5][:80] or found[:80]
    more = [words for words in found if len(words) == 7][:80] or found[-80:]
    best, pair = np.inf, (some[0], more[-1])
    for first in some:
        for second in more:
            if set(first) & set(second):
                continue
            block = D[np.ix_(first, second)]
            if max(block.min(axis=1).mean(), block.min(axis=0).mean()) >= best:
                continue  # a lower bound is above the best already
            cost = float((plan(D, first, second) * block).sum())
            if cost < best:
                best, pair = cost, (first, second)
    return pair


def plane(D: np.ndarray, words: list[int]) -> dict[int, np.ndarray]:
    """Places of words whose distances are near those of the embeddings."""
    graph = nx.complete_graph(words)
    apart = {a: {b: float(D[a, b]) for b in words} for a in words}
    return nx.kamada_kawai_layout(graph, dist=apart)


def figure(current: run.Run, saved: io.SavedModel, D, pair, T: np.ndarray) -> str:
    """The plan as a heat map, and as arrows between embeddings."""
    first, second = pair
    label = lambda n: f"{plots.short(saved.descriptions[n], 40)}  {saved.vocab[n]}"
    fig = plt.figure(figsize=(13, 5.6), layout="constrained")
    left, right = fig.subfigures(1, 2, width_ratios=(1, 0.9))
    heat, arrows = left.subplots(), right.subplots()
    heat.imshow(T, cmap="Blues", vmin=0, vmax=T.max() * 1.25, aspect="auto")
    for i, j in np.argwhere(T > 5e-4):
        dark = "white" if T[i, j] > 0.6 * T.max() else "black"
        number = f"{100 * T[i, j]:.0f}"
        heat.text(j, i, number, ha="center", va="center", size=9, color=dark)
    heat.set_xticks(range(len(second)), [label(n) for n in second])
    plt.setp(heat.get_xticklabels(), rotation=32, ha="right", rotation_mode="anchor")
    heat.set_yticks(range(len(first)), [label(n) for n in first])
    for axis, words in (
        (heat.get_xticklabels(), second),
        (heat.get_yticklabels(), first),
    ):
        for tick, n in zip(axis, words, strict=True):
            tick.set(color=plots.colour(saved.kinds[n]), size=8)
    heat.set_title("what moves where, % of all mass")
    heat.tick_params(length=0)
    for spine in heat.spines.values():
        spine.set_visible(False)

    xy = plane(D, [*first, *second])
    _arrows(arrows, saved, xy, first, second, T)
    return plots.save(current, fig, "transport")


def _arrows(axis, saved, xy, first, second, T) -> None:
    words = [*first, *second]
    points = np.array([xy[n] for n in words])
    for i, j in np.argwhere(T > 5e-4):
        axis.annotate(
            "",
            xy[second[j]],
            xy[first[i]],
            arrowprops={
                "arrowstyle": "-|>",
                "color": plots.GREY,
                "alpha": 0.55,
                "lw": 0.6 + 14 * T[i, j],
                "shrinkA": 5,
                "shrinkB": 5,
            },
        )
    for side, marker, name in ((first, "o", "from"), (second, "D", "to")):
        colours = [plots.colour(saved.kinds[n]) for n in side]
        axis.scatter(
            *np.array([xy[n] for n in side]).T,
            s=70,
            c=colours,
            marker=marker,
            zorder=3,
            ec="white",
        )
        axis.scatter([], [], s=60, c=plots.GREY, marker=marker, label=f"{name}")
    axis.scatter([], [], s=60, c=plots.BLUE, marker="s", label="disease")
    axis.scatter([], [], s=60, c=plots.ORANGE, marker="s", label="procedure")
    axis.margins(0.22, 0.14)
    name = lambda n: textwrap.fill(plots.short(saved.descriptions[n], 44), 24)
    made = [
        axis.text(*xy[n], name(n), size=8, zorder=4, linespacing=0.95) for n in words
    ]
    adjustText.adjust_text(
        made,
        x=points[:, 0],
        y=points[:, 1],
        ax=axis,
        expand=(1.1, 1.4),
        arrowprops={"arrowstyle": "-", "color": plots.FAINT, "lw": 0.6},
    )
    axis.legend(loc="best", fontsize=8, ncols=2)
    axis.set_title("the same plan between embeddings")
    axis.set_xticks([])
    axis.set_yticks([])


def make(current: run.Run) -> Section:
    saved = models.load(current, "finetune")
    found = admissions(saved.vocab)
    if len(found) < 2:
        reason = "the synthetic admissions have too few codes of this model."
        return Section(
            NAME, "Figure 1 — transport between two admissions", "", skipped=reason
        )
    D = metrics.euclidean(saved.ground, saved.ground)
    D /= D[D > 0].mean()
    pair = choose(D, found)
    T = plan(D, *pair)
    cost = float((T * D[np.ix_(*pair)]).sum())
    caption = (
        f"Exact plan; its cost is {cost:.2f} of the mean distance between codes. The "
        "places on the right keep the distances as well as a plane can."
    )
    return Section(
        NAME,
        "Figure 1 — transport between two admissions",
        "Two synthetic admissions that share no code and are near all the same: the "
        "nearest such pair among those drawn. Each code has the same mass.",
        figures=[(figure(current, saved, D, pair, T), caption)],
        notes=["Both admissions are drawn, not recorded. The explorer has more."],
    )


if __name__ == "__main__":
    run.main(make)
