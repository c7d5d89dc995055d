"""What a part leaves for the report: text, tables and figures, as plain values."""

import csv
import dataclasses
import os
from typing import Any

from experiments.paper.run import Run, write_json, write_text

Cell = dict[str, Any]  # mean, half or low and high, paper, best, signed, digits


def cell(mean: float, half: float | None = None, **more) -> Cell:
    """A number for a table, with half of its interval."""
    return {"mean": float(mean), "half": half} | more


def difference(found) -> Cell:
    """An Interval of a paired difference."""
    better = bool(found.low > 0.0)
    return cell(found.mean, low=float(found.low), high=float(found.high)) | {
        "signed": True,
        "best": better,
    }


def text(value: str | Cell) -> str:
    """A cell in words: 33.8 ± 0.7, or −1.2 [−2.1, −0.3]."""
    if isinstance(value, str):
        return value
    digits = value.get("digits", 1)
    if value.get("signed"):
        mean, low, high = value["mean"], value["low"], value["high"]
        out = f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
        return out.replace("-", "−")
    half = value.get("half")
    out = f"{value['mean']:.{digits}f}".replace("-", "−")
    return out if half is None else f"{out} ± {half:.{digits}f}"


@dataclasses.dataclass
class Sheet:
    """A table: a head, and rows of words and Cells; a row of one entry is a heading."""

    name: str
    title: str
    head: list[str]
    rows: list[list]
    notes: list[str] = dataclasses.field(default_factory=list)

    def markdown(self) -> str:
        """With the paper's number in brackets, the best in bold."""

        def show(value):
            out = text(value)
            if isinstance(value, str):
                return out
            out = f"**{out}**" if value.get("best") else out
            paper = value.get("paper")
            return out if paper is None else f"{out} ({paper})"

        bars = lambda words: words.replace("|", "\\|")
        line = lambda cells: "| " + " | ".join(map(bars, cells)) + " |"
        out = [f"**{self.title}**", "", line(self.head), "|---" * len(self.head) + "|"]
        for row in self.rows:
            if len(row) == 1:
                row = [f"*{row[0]}*", *[""] * (len(self.head) - 1)]
            out.append(line([show(value) for value in row]))
        return "\n".join([*out, "", *self.notes]) + "\n"

    def write(self, folder: str) -> None:
        """NAME.md, and NAME.csv with columns for mean, interval and the paper's."""
        write_text(os.path.join(folder, f"{self.name}.md"), self.markdown())
        body = [row for row in self.rows if len(row) > 1]
        numeric = [
            any(isinstance(row[j], dict) for row in body) for j in range(len(self.head))
        ]
        head, lines = [], []
        for title, number in zip(self.head, numeric, strict=True):
            parts = ("", " low", " high", " paper") if number else ("",)
            head += [f"{title}{part}" for part in parts]
        for row in body:
            line = []
            for value, number in zip(row, numeric, strict=True):
                line += _numbers(value) if number else [value]
            lines.append(line)
        path = os.path.join(folder, f"{self.name}.csv")
        with open(path, "w", encoding="utf-8", newline="") as handle:
            csv.writer(handle).writerows([head, *lines])


def _numbers(value) -> list:
    if isinstance(value, str):
        return [value, "", "", ""]
    mean, half = value["mean"], value.get("half")
    low, high = value.get("low"), value.get("high")
    if half is not None:
        low, high = mean - half, mean + half
    return [mean, low, high, value.get("paper")]


@dataclasses.dataclass
class Section:
    """A part of the report."""

    name: str
    title: str
    lead: str  # what there is to see, in a sentence or two
    sheets: list[Sheet] = dataclasses.field(default_factory=list)
    figures: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    findings: list[str] = dataclasses.field(default_factory=list)  # for the top
    skipped: str = ""  # why there is nothing
    made_for: dict = dataclasses.field(default_factory=dict)

    def save(self, run: Run) -> None:
        """Writes its tables, and itself for the report."""
        for sheet in self.sheets:
            sheet.write(run.path("tables", "")[:-1])
        write_json(_path(run, self.name), dataclasses.asdict(self))


def _path(run: Run, name: str) -> str:
    return run.path("parts", f"section-{name}.json")


def load(run: Run, name: str) -> Section | None:
    """The Section that a part left, or None."""
    if not os.path.exists(_path(run, name)):
        return None
    found = run.once(f"section-{name}", dict)
    sheets = [Sheet(**sheet) for sheet in found.pop("sheets")]
    figures = [tuple(figure) for figure in found.pop("figures")]
    return Section(**found, sheets=sheets, figures=figures)
