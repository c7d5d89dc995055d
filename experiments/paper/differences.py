"""Paired differences to the best baseline over random splits: a table and a figure."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np

from experiments import tables
from experiments.paper import plots
from experiments.paper.run import Run
from experiments.paper.section import Sheet, difference, text


def best_row(results: tables.Results, cell: str, rows: Sequence[str]) -> str:
    """The row among these with the highest mean of a cell."""
    able = [row for row in rows if cell in results.values.get(row, {})]
    return max(able, key=lambda row: float(np.mean(results.values[row][cell])))


def sheet(
    name: str,
    results: tables.Results,
    cells: Mapping[str, str],
    mine: Sequence[str],
    others: Sequence[str],
) -> Sheet:
    """DWL's rows minus, in each column, the best of the others."""
    cells = {c: t for c, t in cells.items() if c in results.values[mine[0]]}
    best = {cell: best_row(results, cell, others) for cell in cells}
    body = [["best of all others", *(_best_text(results, best[c], c) for c in cells)]]
    for row in mine:
        body.append(
            [row, *(difference(results.paired(row, best[c], c)) for c in cells)]
        )
    notes = [
        "Difference to the best of all other rows, controls included, which is chosen "
        "by the same splits and so a little favoured; 90 % interval over "
        f"{results.num_trials} splits, paired. Splits share admissions: the "
        "intervals are somewhat too narrow.",
    ]
    title = "Paired differences to the best baseline"
    return Sheet(name, title, ["", *cells.values()], body, notes)


def _best_text(results: tables.Results, row: str, cell: str) -> str:
    return f"{row} ({results.interval(row, cell).mean:.1f})"


def figure(run: Run, found: Sheet, name: str) -> str:
    """Dots with intervals, a panel for each column, rows shared."""
    titles, rows = found.head[1:], found.rows[1:]
    fig, axes = plt.subplots(
        1,
        len(titles),
        figsize=(11.2, 1.2 + 0.33 * len(rows)),
        sharey=True,
        layout="constrained",
    )
    for j, (title, axis) in enumerate(zip(titles, np.atleast_1d(axes), strict=True)):
        axis.axvline(0.0, color=plots.GREY, lw=1)
        for i, row in enumerate(rows):
            value = row[j + 1]
            color = plots.ORANGE if row[0].startswith("DWL fine") else plots.BLUE
            clear = value["low"] > 0 or value["high"] < 0
            axis.plot([value["low"], value["high"]], [i, i], color=color, lw=2)
            axis.plot(
                value["mean"],
                i,
                "s" if row[0].startswith("DWL fine") else "o",
                color=color,
                mfc=color if clear else "white",
                ms=6,
            )
        axis.set_title(title, fontsize=9)
        axis.set_xlabel(f"minus {found.rows[0][j + 1]}", fontsize=7.5, color=plots.GREY)
        axis.grid(axis="x", color="#e6e8eb")
        axis.set_axisbelow(True)
    axes = np.atleast_1d(axes)
    axes[0].set_yticks(range(len(rows)), [row[0] for row in rows])
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    return plots.save(run, fig, name)


def finding(found: Sheet, row: str, task: str) -> str:
    """A row of the sheet in a sentence."""
    line = next(r for r in found.rows[1:] if r[0] == row)
    parts = []
    for title, other, value in zip(
        found.head[1:], found.rows[0][1:], line[1:], strict=True
    ):
        parts.append(f"{title} {text(value)} to {other}")
    return f"{task}, {row}: " + "; ".join(parts) + "."
