"""report.html: tables, figures and the explorer on one page that needs no network."""

import base64
import json
import os
import pathlib

import jinja2
import plotly.offline

from experiments import rundir
from experiments.paper import explorer, section
from experiments.paper.run import Run, write_text

_FOLDER = pathlib.Path(__file__).parent / "page"
_NAMES = {
    "synthetic": "synthetic admissions",
    "nhds": "admissions of the National Hospital Discharge Survey",
    "mimic3": "admissions of MIMIC-III",
    "mimic4": "admissions of MIMIC-IV",
}


def write(run: Run, parts: list[str]) -> str:
    """Writes the page from all parts that are there; gives its path."""
    found = [section.load(run, name) for name in parts]
    path = run.path("report.html")
    known = None
    if any(part is not None and not part.skipped for part in found):
        known = run.once("explorer", lambda: explorer.contents(run))
    write_text(path, page(run, [part for part in found if part], known))
    return path


def page(run: Run, sections: list[section.Section], known: dict | None) -> str:
    """The page as text."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters["number"] = section.text
    env.globals["picture"] = lambda name: _picture(run, name)
    note = rundir.read(run.out)
    if note["corpus"]["path"]:
        note["corpus"]["path"] = os.path.basename(note["corpus"]["path"])
    read = lambda name: (_FOLDER / name).read_text(encoding="utf-8")
    return env.get_template("report.html").render(
        corpus=_NAMES.get(run.spec.corpus, "documents"),
        summary=run.corpus.summary(),
        scale=run.scale,
        drawn=run.spec.corpus == "synthetic",
        command=_command(run),
        sections=sections,
        topics=_topics(known) if known else [],
        known=_script_json(known) if known else "",
        settings=json.dumps(note, indent=1),
        versions=note["versions"],
        css=read("report.css"),
        script=read("explorer.js"),
        plotly=plotly.offline.get_plotlyjs() if known else "",
    )


def _command(run: Run) -> str:
    """How to make the page again; folders of whoever made it are left out."""
    words = ["python -m experiments.reproduce", f"--corpus={run.spec.corpus}"]
    if run.spec.path:
        words.append(f"--path={os.path.basename(run.spec.path.rstrip(os.sep))}")
    words += [f"--trials={run.trials}", f"--splits={run.splits}"]
    if run.scale < 1.0:
        words.append(f"--scale={run.scale:g}")
    words.append(f"--infer_steps={run.steps}")
    words += [f"--change={name}={value}" for name, value in run.changes.items()]
    return " ".join(words)


def _picture(run: Run, name: str) -> str:
    """A figure as a data address."""
    with open(run.path("figures", f"{name}.svg"), "rb") as handle:
        return "data:image/svg+xml;base64," + base64.b64encode(handle.read()).decode()


def _script_json(value: dict) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")


def _topics(known: dict) -> list[dict]:
    """Topics with the words of their bars, for the template."""
    out = []
    for k, topic in enumerate(known["topics"]):
        most = topic["words"][0][1]
        bars = [
            {"word": known["words"][n], "p": p, "width": 100 * p / most}
            for n, p in topic["words"]
        ]
        out.append({"number": k + 1, "share": topic["share"], "bars": bars})
    return out
