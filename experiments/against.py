"""This tree against another checkout of it: first results, gradients, tests, lines.

    git worktree add ../before 953e9cf
    python -m experiments.against --before=../before [--parts=first --parts=step]

Every number comes from a new process that imports one of the trees; the trees take
turns, and the best of `--rounds` counts. Only the ratios of one run mean anything.
"""

import json
import os
import pathlib
import subprocess
import sys
import threading
import time

from absl import app, flags, logging

PARTS = ("first", "gradient", "step", "tests", "lines")
HERE = pathlib.Path(__file__).resolve().parents[1]

_BEFORE = flags.DEFINE_string("before", None, "The other checkout.", required=True)
_PARTS = flags.DEFINE_multi_enum("parts", list(PARTS), PARTS, "What to measure.")
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Turns of each tree.", lower_bound=1)

FIRST = """
import json, time
import jax
from dwl_jax import data, fit, infer, model, presets
corpus, recipe = data.synthetic_admissions(2000, 0), presets.default()
docs, how = corpus.documents(), {"cfg": recipe.cfg}
def timed(fn):
    begin = time.perf_counter()
    out = jax.block_until_ready(fn())
    return time.perf_counter() - begin, out
took, (state, info) = timed(lambda: fit(
    jax.random.key(0), docs, recipe.hyper, num_epochs=recipe.num_epochs,
    num_words=corpus.num_words, **how))
learned = model(state, recipe.cfg)
again, found = timed(lambda: infer(docs, learned, recipe.hyper, **how))
print(json.dumps({
    "first fit, s": took, "first infer, s": again,
    "loss of the last epoch": float(info.loss[-1].mean()),
    "loss at the inferred weights": float(found.loss.mean())}))
"""

GRADIENT = """
import functools, json, time
import jax, jax.numpy as jnp, numpy as np
from dwl_jax import barycenter, kernel
from experiments import bench_gradient
from experiments.bench_timing import Size, best
p = {k: jnp.asarray(v) for k, v in bench_gradient.problem(Size()).items()}

def form(D, epsilon):
    if not hasattr(kernel, "form_for"):
        return "auto"  # every form is compiled, and one branch runs
    exponent, off = np.asarray(D) / epsilon, ~np.eye(len(D), dtype=bool)
    log_B = np.asarray(jax.nn.log_softmax(p["R"], axis=-1))
    span = float(kernel.span(log_B))
    return kernel.form_for(exponent.max(), exponent[off].min(), span, D.dtype)

def loss(A, R, D, epsilon, how, num_iters):
    k = kernel.build(D, epsilon, form=how)
    log_B, lam = jax.nn.log_softmax(R, axis=-1), jax.nn.softmax(A, axis=-1)
    log_y = barycenter(log_B, lam, k, num_iters=num_iters).log_y
    return -jnp.sum(p["y"] * jax.nn.log_softmax(log_y, axis=-1))

runs = {}
for name, D, epsilon, num_iters, places in (
    ("L=20, epsilon 0.05", p["D"], 0.05, 20, (0, 1)),
    ("L=20, epsilon 0.01", p["D"], 0.01, 20, (0, 1)),
    ("the recipe: L=3, epsilon 0.15, and the cost", p["D"] ** 3, 0.15, 3, (0, 1, 2)),
):
    fn = functools.partial(loss, how=form(D, epsilon), num_iters=num_iters)
    step = jax.jit(jax.value_and_grad(fn, places))
    args = p["A"], p["R"], D, jnp.float32(epsilon)
    runs[f"batch gradient, {name}, ms"] = functools.partial(step, *args)
    jax.block_until_ready(step(*args))
found = best(runs, rounds=30, seconds=4.0)
print(json.dumps({name: 1e3 * seconds for name, seconds in found.items()}))
"""

STEP = """
import inspect, json
from experiments import growth
found, forms = {}, "form" in inspect.signature(growth.make_step).parameters
for size in (5550, 16000):
    args = ([size], {"num_topics": 32}, 3)
    cell, = growth.measure(*(["topics"], *args) if forms else args)
    found[f"a step of 128 documents, {size:,} words, ms"] = 1e3 * cell["clock"]
print(json.dumps(found))
"""


def run(tree: pathlib.Path, code: str) -> dict[str, float]:
    """What a snippet prints in a new process that imports this tree."""
    env = os.environ | {"PYTHONPATH": str(tree), "JAX_ENABLE_COMPILATION_CACHE": "0"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=tree, env=env, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{tree}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def best_of(trees: dict, code: str, rounds: int) -> dict[str, dict[str, float]]:
    """The least of each number over turns that the trees take."""
    found = {name: {} for name in trees}
    for turn in range(rounds):
        for name, tree in trees.items():
            logging.info("turn %d: %s", turn + 1, name)
            for what, value in run(tree, code).items():
                found[name][what] = min(value, found[name].get(what, value))
    return found


def tests(tree: pathlib.Path) -> dict[str, float]:
    """Seconds of the whole suite, as `make test` runs it, and its peak memory."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile"]
    begin, peak, over = time.perf_counter(), [0], threading.Event()
    env = os.environ | {"PYTHONPATH": str(tree)}
    suite = subprocess.Popen(command, cwd=tree, env=env, stdout=subprocess.DEVNULL)

    def watch():
        while not over.wait(0.5):
            peak[0] = max(peak[0], resident(suite.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = suite.wait()
    over.set()
    watcher.join()
    if code:
        logging.warning("the tests of %s ended with %d", tree, code)
    return {
        "the tests, s": time.perf_counter() - begin,
        "the tests, peak memory, GB": peak[0] / 1024**2,
    }


def resident(root: int) -> int:
    """Resident kB of a process and all that it started (Linux)."""
    parents, sizes = {}, {}
    for entry in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            lines = (line.split() for line in entry.read_text().splitlines())
        except OSError:
            continue  # it ended meanwhile
        fields = {words[0]: words[1] for words in lines if len(words) > 1}
        number = int(fields["Pid:"])
        parents[number], sizes[number] = int(fields["PPid:"]), fields.get("VmRSS:", 0)
    total = 0
    for number, size in sizes.items():
        up = number
        while up not in (root, 0, 1) and up in parents:
            up = parents[up]
        total += int(size) if up == root else 0
    return total


def lines(tree: pathlib.Path) -> dict[str, float]:
    """How long the library is."""
    files = (tree / "dwl_jax").rglob("*.py")
    total = sum(len(file.read_text().splitlines()) for file in files)
    return {"lines of dwl_jax": total}


def table(found: dict[str, dict[str, float]]) -> str:
    """Markdown: before, now, and their ratio."""
    rows = ["| | before | now | now / before |", "|---|---|---|---|"]
    for what, old in found["before"].items():
        new = found["now"][what]
        rows.append(f"| {what} | {old:.6g} | {new:.6g} | {new / old:.3f} |")
    return "\n".join(rows)


def main(argv):
    del argv
    trees = {"before": pathlib.Path(_BEFORE.value).resolve(), "now": HERE}
    if not (trees["before"] / "dwl_jax").is_dir():
        raise app.UsageError(f"--before={_BEFORE.value}: no checkout of this project.")
    found = {name: {} for name in trees}
    for part in _PARTS.value:
        snippet = {"first": FIRST, "gradient": GRADIENT, "step": STEP}.get(part)
        if snippet:
            got = best_of(trees, snippet, _ROUNDS.value)
        else:
            measure = {"tests": tests, "lines": lines}[part]
            got = {name: measure(tree) for name, tree in trees.items()}
        for name in trees:
            found[name] |= got[name]
        print(table(got), flush=True)
    if len(_PARTS.value) > 1:
        print(f"\n{table(found)}")


if __name__ == "__main__":
    app.run(main)
