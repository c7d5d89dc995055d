"""How figures look: one palette that all eyes can tell apart, PNG and SVG."""

import os

import matplotlib

matplotlib.use("Agg")  # files alone, no window

import matplotlib.pyplot as plt  # noqa: E402

from experiments.paper.run import Run  # noqa: E402

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#AA4499"
GREY, FAINT, RED = "#555555", "#B8BEC6", "#C1121F"
SEQUENCE = (BLUE, ORANGE, GREEN, PURPLE, "#E69F00", "#56B4E9")
MARKERS = "osD^vP"

plt.rcParams.update(
    {
        "font.size": 9,
        "font.family": "DejaVu Sans",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.edgecolor": GREY,
        "axes.labelcolor": "#222222",
        "figure.dpi": 100,
        "savefig.dpi": 160,
        "svg.fonttype": "path",  # labels stay where they were put, whatever fonts
        "svg.hashsalt": "dwl_jax",
        "legend.frameon": False,
    }
)


def colour(kind: str) -> str:
    """Blue for diseases and plain words, orange for procedures."""
    return ORANGE if kind == "procedure" else BLUE


def save(run: Run, figure, name: str) -> str:
    """Writes figures/NAME.png and .svg, closes the figure, gives the name."""
    for kind in ("png", "svg"):
        path = run.path("figures", f"{name}.{kind}")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(f"{path}.part", format=kind, metadata=metadata)
        os.replace(f"{path}.part", path)
    plt.close(figure)
    return name


def short(text: str, width: int = 34) -> str:
    """A description that fits, cut at a word."""
    if len(text) <= width:
        return text
    return text[: width - 1].rsplit(" ", 1)[0].rstrip(",;") + "…"
