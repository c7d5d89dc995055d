"""What `experiments.bench` measures, in what order, and how it is written down."""

import importlib.metadata
import json
import os
import platform
import time

import jax
from absl import logging

from experiments import bench_gradient, bench_scale, bench_training
from experiments.bench_timing import Size

PARTS = ("gradient", "epoch", "quality", "sweep", "knn", "inference", "growth")
RATIOS = (
    "batch gradient, float32, epsilon 0.05, over the bare matrix products",
    "batch gradient, float32, epsilon 0.01, over the bare matrix products",
    "forward at epsilon 0.01 ahead of OTT lse mode",
    "forward at epsilon 0.05 ahead of OTT kernel mode",
    "whole epoch over its batch gradients",
    "five iterations, time to the loss that fifty end at",
    "exact Wasserstein k-NN ahead of POT pair by pair",
    "tau sweep of 5 in one vmap over 5 single runs",
    "compile seconds of fit",
    "memory of a batch gradient over the arrays it must keep",
)


def run(size: Size, parts, out: str, *, quick: bool) -> str:
    """Measures the parts, writes bench.json and bench.md; gives the latter back."""
    os.makedirs(out, exist_ok=True)
    results = {"about": about(size)}
    for part in PARTS:
        if part in parts:
            start = time.perf_counter()
            results[part] = measure(part, size, quick=quick)
            logging.info("%s took %.0f s", part, time.perf_counter() - start)
    results["ratios"] = ratios(results)
    text = markdown(results)
    with open(os.path.join(out, "bench.json"), "w") as file:
        json.dump(results, file, indent=1)
    with open(os.path.join(out, "bench.md"), "w") as file:
        file.write(text)
    return text


def measure(part: str, size: Size, *, quick: bool) -> dict:
    """The numbers of one part."""
    log = logging.info
    if part == "gradient":
        return bench_gradient.measure(size, log)
    if part == "quality":
        return bench_training.quality(size, log, num_epochs=2 if quick else 10)
    if part == "growth":
        return bench_scale.growth(size, log, quick)
    if part in ("epoch", "sweep"):
        return getattr(bench_training, part)(size, log)
    return getattr(bench_scale, part)(size, log)


def about(size: Size) -> dict:
    """Machine, versions and sizes."""
    names = ("jax", "jaxlib", "numpy", "optax", "ott-jax", "POT", "torch")
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed: its rows are left out"
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "versions": versions,
        "size": size._asdict(),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].split(":")[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


def ratios(results: dict) -> dict[str, float]:
    """The ratios, as far as they were measured."""
    names, out = RATIOS, {}
    if "gradient" in results:
        low, high = (results["gradient"][f"float32, epsilon {e}"] for e in (0.01, 0.05))
        for name, part in zip(names, (high, low), strict=False):
            row = part["seconds"]
            bare = min(v for k, v in row.items() if k.startswith("bare products"))
            out[name] = row["auto, gradient"] / bare
        small, large = low["seconds"], high["seconds"]
        out[names[2]] = small["OTT lse mode, forward"] / small["auto, forward"]
        out[names[3]] = large["OTT kernel mode, forward"] / large["auto, forward"]
        out[names[9]] = high["memory over what must be kept"]["auto"]
    found = {
        names[4]: ("epoch", "ratio, joint=False"),
        names[5]: ("quality", "ratio"),
        names[6]: ("knn", "ratio"),
        names[7]: ("sweep", "ratio"),
        names[8]: ("epoch", "compile seconds of fit"),
    }
    for name, (part, key) in found.items():
        if part in results:
            out[name] = results[part][key]
    return out


def markdown(results: dict) -> str:
    """The table of ratios, then all that was measured."""
    about = results["about"]
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    lines = [
        f"{about['cores']} cores of {about['processor']}, Python {about['python']}, "
        f"{versions}.",
        "",
        "| ratio in one run | measured |",
        "|---|---|",
    ]
    for name, value in results["ratios"].items():
        shown = "not reached" if value is None else f"{value:.2f}"
        lines.append(f"| {name} | {shown} |")
    for part in PARTS:
        if part in results:
            lines += ["", f"## {part}", "", "| | |", "|---|---|"]
            lines += [f"| {k} | {v} |" for k, v in _flat(results[part])]
    return "\n".join(lines) + "\n"


def _flat(tree, name=""):
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flat(value, f"{name}, {key}" if name else key)
    elif name != "curves":
        yield name, f"{tree:.4g}" if isinstance(tree, float) else tree
