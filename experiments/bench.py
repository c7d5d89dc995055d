"""All speed claims in one run: only ratios of one run mean anything.

python -m experiments.bench [--parts=gradient --parts=epoch] [--quick] [--out=DIR]

Writes bench.json and bench.md. Times are the best of several turns that all rows of a
part take one after the other, after compilation, with block_until_ready.
"""

import importlib.metadata
import json
import os
import platform
import time

import jax
from absl import flags, logging

from experiments import bench_gradient, bench_scale, bench_training, cli
from experiments.bench_timing import Size

PARTS = ("gradient", "epoch", "quality", "sweep", "knn", "inference", "growth")
_PARTS = flags.DEFINE_multi_enum("parts", list(PARTS), PARTS, "What to measure.")
_QUICK = flags.DEFINE_bool("quick", False, "Small sizes, two turns: does it run?")
_OUT = flags.DEFINE_string("out", "runs/bench", "Directory for bench.json and .md.")
_SIZES = {
    name: flags.DEFINE_integer(name, None, f"Instead of {default}.", lower_bound=low)
    for name, default, low in (
        ("num_topics", Size().num_topics, 1),
        ("batch_size", Size().batch_size, 1),
        ("num_iters", Size().num_iters, 1),
        ("dim", Size().dim, 1),
        ("num_docs", Size().num_docs, 1),
        ("num_queries", Size().num_queries, 1),
        ("rounds", Size().rounds, 1),
        ("seed", Size().seed, 0),
    )
}
_QUICK_SIZE = Size(
    num_topics=3, batch_size=16, num_iters=4, dim=4, num_docs=60, num_queries=20,
    rounds=2, seconds=0.5,
)  # fmt: skip

# part of the result, ratio over or ahead, floor, goal
AIMS = (
    ("batch gradient, float32, epsilon 0.05, over the bare matrix products", 2.5, 1.5),
    ("batch gradient, float32, epsilon 0.01, over the bare matrix products", 4.0, 2.0),
    ("fast at epsilon 0.01 ahead of OTT lse mode, both forward", 30.0, 80.0),
    ("plain at epsilon 0.05 ahead of OTT kernel mode, both forward", 3.0, 5.0),
    ("whole epoch over its batch gradients", 1.6, 1.25),
    ("warm start, time to the cold run's quality", 0.5, 0.2),
    ("exact Wasserstein k-NN ahead of POT pair by pair", 20.0, 100.0),
    ("tau sweep of 5 in one vmap over 5 single runs", 1.1, 0.9),
    ("compile seconds of fit", 8.0, 3.0),
    ("memory of a batch gradient over the arrays it must keep", 2.0, 1.3),
)


def main(argv) -> None:
    del argv
    changes = {k: f.value for k, f in _SIZES.items() if f.value is not None}
    size = (_QUICK_SIZE if _QUICK.value else Size())._replace(**changes)
    cli.setup_jax()
    os.makedirs(_OUT.value, exist_ok=True)
    results = {"about": about(size)}
    for part in PARTS:
        if part not in _PARTS.value:
            continue
        start = time.perf_counter()
        results[part] = measure(part, size, quick=_QUICK.value)
        logging.info("%s took %.0f s", part, time.perf_counter() - start)
    results["ratios"] = ratios(results)
    with open(os.path.join(_OUT.value, "bench.json"), "w") as file:
        json.dump(results, file, indent=1)
    text = markdown(results)
    with open(os.path.join(_OUT.value, "bench.md"), "w") as file:
        file.write(text)
    print(text)


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
    """The ratios that have a floor and a goal, as far as they were measured."""
    names = [name for name, *_ in AIMS]
    out = {}
    if "gradient" in results:
        low, high = (results["gradient"][f"float32, epsilon {e}"] for e in (0.01, 0.05))
        for name, part in zip(names, (high, low), strict=False):
            row = part["seconds"]
            bare = min(v for k, v in row.items() if k.startswith("bare products"))
            out[name] = row["auto, gradient"] / bare
        fast, plain = low["seconds"], high["seconds"]
        out[names[2]] = fast["OTT lse mode, forward"] / fast["auto, forward"]
        out[names[3]] = plain["OTT kernel mode, forward"] / plain["auto, forward"]
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
    """The table of ratios with floors and goals, then all that was measured."""
    about = results["about"]
    versions = ", ".join(f"{k} {v}" for k, v in about["versions"].items())
    lines = [
        f"{about['cores']} cores of {about['processor']}, Python {about['python']}, "
        f"{versions}.",
        "",
        "| ratio in one run | floor | goal | measured |",
        "|---|---|---|---|",
    ]
    for name, floor, goal in AIMS:
        if name in results["ratios"]:
            sign = "≥" if goal > floor else "≤"
            value = results["ratios"][name]
            shown = "not reached" if value is None else f"{value:.2f}"
            lines.append(f"| {name} | {sign} {floor:g} | {sign} {goal:g} | {shown} |")
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


if __name__ == "__main__":
    cli.run(main)
