"""Rows of cells over trials or splits, as Markdown, CSV and JSON."""

import csv
import dataclasses
import json
import os
from collections.abc import Iterable

from experiments.intervals import Interval, interval, paired

TABLES = {
    "Accuracy (%)": {
        "mortality/1nn": "mortality 1-NN",
        "mortality/5nn": "5-NN",
        "type/1nn": "type 1-NN",
        "type/5nn": "5-NN",
        "type_merged/1nn": "type, urgent = emergency 1-NN",
        "type_merged/5nn": "5-NN",
    },
    "Balanced accuracy (%)": {
        "mortality/1nn/balanced": "mortality 1-NN",
        "mortality/5nn/balanced": "5-NN",
        "type/1nn/balanced": "type 1-NN",
        "type/5nn/balanced": "5-NN",
        "type_merged/1nn/balanced": "type, urgent = emergency 1-NN",
        "type_merged/5nn/balanced": "5-NN",
    },
    "Procedure recommendation (%)": {
        f"rec/{score}@{n}": f"{score.upper()}@{n}"
        for n in (1, 3, 5)
        for score in ("p", "r", "f1")
    },
    "Topics, top 10 words (x 100)": {
        "topics/npmi": "NPMI",
        "topics/diversity": "diversity",
    },
    "Wrong (%)": {"error": "error"},
    "Text (x 100)": {
        "text/purity": "purity",
        "text/nmi": "NMI",
        "text/npmi10": "NPMI, 10 words",
        "text/diversity10": "diversity",
        "text/npmi15": "NPMI, 15",
        "text/diversity15": "diversity",
        "text/logistic": "logistic regression",
        "text/5nn": "5-NN",
        "text/words": "NPMI of nearest words",
        "text/seconds": "seconds",
    },
}
LESS_IS_BETTER = ("error", "text/seconds")


@dataclasses.dataclass
class Results:
    """Values of every row and cell, one for each trial or split, in order."""

    title: str = ""
    values: dict[str, dict[str, list[float]]] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, rows: dict[str, dict[str, float]]) -> None:
        """Appends one trial: row -> cell -> value."""
        for row, cells in rows.items():
            for cell, value in cells.items():
                self.values.setdefault(row, {}).setdefault(cell, []).append(value)

    def interval(self, row: str, cell: str) -> Interval:
        """Mean and 90 % interval over trials."""
        return interval(self.values[row][cell])

    def paired(self, row: str, against: str, cell: str, **kwargs) -> Interval:
        """90 % interval of the difference of two rows over the same trials."""
        values = self.values
        return paired(values[row][cell], values[against][cell], **kwargs)

    def tables(self) -> Iterable[tuple[str, dict[str, str], list[str]]]:
        """Name, columns and rows of each table that has any."""
        cells = {cell for row in self.values.values() for cell in row}
        known = {cell for columns in TABLES.values() for cell in columns}
        extra = {c: c for c in sorted(cells - known)}
        for name, columns in (TABLES | {"Other labels (%)": extra}).items():
            columns = {c: text for c, text in columns.items() if c in cells}
            rows = [r for r, found in self.values.items() if set(columns) & set(found)]
            if columns and rows:
                yield name, columns, rows

    @property
    def num_trials(self) -> int:
        """How many trials or splits were added."""
        return max(
            (len(v) for row in self.values.values() for v in row.values()), default=0
        )

    def markdown(self) -> str:
        """All tables; the best of each column in bold."""
        out = [f"{self.title}; mean ± 90 % interval of it, n = {self.num_trials}.", ""]
        for name, columns, rows in self.tables():
            best = {c: self._best(c, rows) for c in columns}
            text = lambda row, cell, best=best: self._text(row, cell, best[cell])
            out += [_markdown(name, columns, rows, text), ""]
        return "\n".join(out + self.notes).strip() + "\n"

    def differences(self, against: str, rows: Iterable[str] | None = None) -> str:
        """Markdown of paired differences to one row; * where 0 is outside."""
        chosen = [r for r in (rows or self.values) if r != against]
        base, out = self.values[against], []
        for name, columns, found in self.tables():
            columns = {c: text for c, text in columns.items() if c in base}
            found = [
                r for r in found if r in chosen and set(columns) & set(self.values[r])
            ]

            def text(row, cell):
                if cell not in self.values[row]:
                    return ""
                d = self.paired(row, against, cell)
                star = "*" if d.excludes_zero else ""
                return f"{d.mean:+.1f}{star} [{d.low:+.1f}, {d.high:+.1f}]"

            if columns and found:
                title = f"{name}, minus {against}"
                out += [_markdown(title, columns, found, text), ""]
        return "\n".join(out)

    def _best(self, cell, rows) -> float:
        means = [self.interval(r, cell).mean for r in rows if cell in self.values[r]]
        return min(means) if cell in LESS_IS_BETTER else max(means)

    def _text(self, row, cell, best) -> str:
        if cell not in self.values[row]:
            return ""
        found = self.interval(row, cell)
        text = f"{found.mean:.1f}"
        text = f"**{text}**" if found.mean == best else text
        # A value that no trial changes has no interval over trials.
        return f"{text} ± {found.half:.1f}" if found.n > 1 and found.sd > 1e-9 else text

    def write(self, folder: str | os.PathLike, name: str) -> None:
        """Writes name.md, name.csv (one line for each cell) and name.json (all)."""
        os.makedirs(folder, exist_ok=True)
        path = lambda kind: os.path.join(folder, f"{name}.{kind}")
        with open(path("json"), "w", encoding="utf-8") as handle:
            json.dump(dataclasses.asdict(self), handle, indent=1)
        with open(path("md"), "w", encoding="utf-8") as handle:
            handle.write(self.markdown())
        with open(path("csv"), "w", encoding="utf-8", newline="") as handle:
            lines = csv.writer(handle)
            lines.writerow(["row", "cell", "mean", "low", "high", "sd", "n"])
            for row, cells in self.values.items():
                for cell in cells:
                    lines.writerow([row, cell, *self.interval(row, cell)])


def _markdown(name, columns, rows, text) -> str:
    line = lambda cells: "| " + " | ".join(cells) + " |"
    body = [line([row, *(text(row, cell) for cell in columns)]) for row in rows]
    head = [line([name, *columns.values()]), "|---" * (len(columns) + 1) + "|"]
    return "\n".join(head + body)


def merge(*parts: Results) -> Results:
    """The rows of several Results over the same splits, to pair them."""
    if len({part.num_trials for part in parts}) != 1:
        raise ValueError(f"{[p.num_trials for p in parts]} trials cannot be paired.")
    names = [row for part in parts for row in part.values]
    if len(set(names)) != len(names):
        raise ValueError(f"a row is there twice: {sorted(names)}.")
    values = {row: cells for part in parts for row, cells in part.values.items()}
    notes = [line for part in parts for line in part.notes]
    return Results(" + ".join(p.title for p in parts), values, notes)


def read(path: str | os.PathLike) -> Results:
    """Results from a JSON file that `write` made."""
    with open(path, encoding="utf-8") as handle:
        return Results(**json.load(handle))
