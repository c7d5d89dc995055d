"""The graph of nearest diseases and procedures (the paper's Figure 2).

    python -m experiments.paper.graph --corpus=nhds --path=FILE --out=DIR

An edge joins each code to its K nearest. Three groups that hang together are drawn
enlarged: chosen by the graph itself, among its communities.
"""

import textwrap

import adjustText
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

from dwl_jax import io, metrics
from experiments.paper import models, plots, run
from experiments.paper.section import Section

NAME = "graph"
NEIGHBOURS = 4
NUM_PARTS = 3
_LARGEST = 12  # codes of an enlarged part
_MOST_LABELS = 120  # more words than this are not all named


def knn_graph(X: np.ndarray, num_neighbors: int = NEIGHBOURS) -> nx.Graph:
    """Undirected graph over the rows of X: an edge from each to its nearest others."""
    D = metrics.euclidean(X, X)
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D, axis=1, kind="stable")[:, :num_neighbors]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(D)))
    for n, row in enumerate(near.tolist()):
        graph.add_edges_from((n, m, {"distance": float(D[n, m])}) for m in row)
    return graph


def communities(graph: nx.Graph) -> list[set[int]]:
    """Louvain communities, rather small ones; the same for the same graph."""
    return nx.community.louvain_communities(graph, resolution=1.5, seed=0)


def layout(graph: nx.Graph) -> np.ndarray:
    """Places of the nodes in [0, 1]^2, [N, 2]; communities are kept together."""
    home = {n: i for i, group in enumerate(communities(graph)) for n in group}
    length = lambda a, b, _: 1.0 if home[a] == home[b] else 2.2
    paths = dict(nx.all_pairs_dijkstra_path_length(graph, weight=length))
    longest = max(max(row.values()) for row in paths.values())
    nodes = list(graph)
    apart = {a: {b: paths[a].get(b, 0.8 * longest) for b in nodes} for a in nodes}
    start = nx.circular_layout(sorted(nodes, key=home.get))
    place = nx.kamada_kawai_layout(graph, dist=apart, pos=start)
    xy = np.array([place[n] for n in nodes])
    xy = (xy - xy.min(axis=0)) / np.ptp(xy, axis=0)
    rank = np.argsort(np.argsort(xy, axis=0), axis=0) / (len(nodes) - 1)
    return 0.55 * xy + 0.45 * rank  # fills the plane where it would be empty


def parts(graph: nx.Graph, kinds) -> list[list[int]]:
    """Groups to enlarge, best first.

    Among Louvain communities of 4 to 12 codes: those that keep most of their edges to
    themselves and mix diseases with procedures.
    """

    def worth(group):
        inside = graph.subgraph(group).number_of_edges()
        touching = len(graph.edges(group))
        share = np.mean([kinds[n] == "procedure" for n in group])
        return inside / touching * (0.25 + share * (1 - share))

    fit = [sorted(g) for g in communities(graph) if 4 <= len(g) <= _LARGEST]
    return sorted(fit, key=worth, reverse=True)[:NUM_PARTS]


def _draw(axis, graph, xy, kinds, nodes, *, size, faint=False):
    for a, b in graph.subgraph(nodes).edges:
        axis.plot(*xy[[a, b]].T, color=plots.FAINT, lw=0.9, zorder=1)
    for kind, marker in (("disease", "o"), ("procedure", "s")):
        some = [n for n in nodes if (kinds[n] == "procedure") == (kind == "procedure")]
        axis.scatter(
            *xy[some].T,
            s=size,
            marker=marker,
            color=plots.FAINT if faint else plots.colour(kind),
            edgecolor="white",
            lw=0.8,
            zorder=2,
            label={"disease": "disease", "procedure": "procedure"}[kind],
        )


def _labels(axis, xy, nodes, text, **style):
    """Names beside nodes, moved until none covers another."""
    box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 0.4}
    made = [axis.text(*xy[n], text(n), zorder=3, bbox=box, **style) for n in nodes]
    adjustText.adjust_text(
        made,
        x=xy[nodes, 0],
        y=xy[nodes, 1],
        ax=axis,
        expand=(1.1, 1.3),
        arrowprops={"arrowstyle": "-", "color": plots.GREY, "lw": 0.5},
    )


def full_figure(current: run.Run, graph, xy, saved, groups) -> str:
    """All codes, the enlarged parts framed in red."""
    fig, axis = plt.subplots(figsize=(11, 7.6), layout="constrained")
    nodes = list(graph)
    _draw(axis, graph, xy, saved.kinds, nodes, size=55)
    for letter, group in zip("bcd", groups, strict=False):
        (x0, y0), (x1, y1) = xy[group].min(0) - 0.018, xy[group].max(0) + 0.018
        box = plt.Rectangle(
            (x0, y0), x1 - x0, y1 - y0, fill=False, ec=plots.RED, lw=1.3, zorder=1
        )
        axis.add_patch(box)
        axis.text(x0, y1 + 0.004, letter, color=plots.RED, weight="bold", size=11)
    degree = dict(graph.degree)
    named = sorted(nodes, key=lambda n: -degree[n])[:_MOST_LABELS]
    _labels(axis, xy, named, lambda n: saved.vocab[n], size=7.5)
    axis.legend(loc="lower left", fontsize=9)
    axis.set_axis_off()
    return plots.save(current, fig, "graph")


def parts_figure(current: run.Run, graph, saved, groups) -> str:
    """The enlarged parts, with the names of their codes."""
    fig, axes = plt.subplots(1, len(groups), figsize=(13, 5.2), layout="constrained")
    for letter, axis, group in zip("bcd", np.atleast_1d(axes), groups, strict=False):
        inner = graph.subgraph(group)
        place = nx.kamada_kawai_layout(inner)
        xy = np.zeros((len(graph), 2))
        for n in group:
            xy[n] = place[n]
        _draw(axis, graph, xy, saved.kinds, group, size=90)
        axis.margins(0.36, 0.14)

        def name(n):
            label = plots.short(saved.descriptions[n], 46)
            return "\n".join([saved.vocab[n], *textwrap.wrap(label, 22)])

        _labels(axis, xy, group, name, size=7.5, linespacing=0.95)
        axis.set_title(f"({letter})", color=plots.RED)
        axis.set_xticks([])
        axis.set_yticks([])
        for spine in axis.spines.values():
            spine.set(visible=True, color=plots.RED, lw=1.2)
    return plots.save(current, fig, "graph_parts")


def make(current: run.Run) -> Section:
    saved: io.SavedModel = models.load(current, "finetune")
    graph = knn_graph(saved.ground)
    xy = layout(graph)
    groups = parts(graph, saved.kinds)
    figures = [
        (
            full_figure(current, graph, xy, saved, groups),
            f"Each code is joined to its {NEIGHBOURS} nearest. Blue dots are diseases, "
            "orange squares procedures; red frames are enlarged below.",
        )
    ]
    if groups:
        figures.append(
            (
                parts_figure(current, graph, saved, groups),
                "The enlarged parts: communities that keep most edges to themselves "
                "and mix diseases with procedures, chosen by the graph alone.",
            )
        )
    same = np.mean([saved.kinds[a] == saved.kinds[b] for a, b in graph.edges])
    return Section(
        NAME,
        "Figure 2 — which codes are near each other",
        "The k-NN graph of the fine-tuned embeddings.",
        figures=figures,
        notes=[
            f"{graph.number_of_edges()} edges, {same:.0%} of them between codes of one "
            "kind; the rest join a disease with a procedure."
        ],
    )


if __name__ == "__main__":
    run.main(make)
