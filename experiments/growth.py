"""How the time of a step grows with the vocabulary, and of an epoch with the corpus.

    python -m experiments.growth --sizes=1000,2000,4000,8000 --out=DIR
    python -m experiments.growth --documents=1000000
    python -m experiments.growth --greenkhorn
    python -m experiments.growth --draw=DIR/growth.json --figure=growth.svg

The recipe for large vocabularies on drawn documents (word frequencies as 1 / rank, 9
words each), sizes in turn in one process, best of --repeats. Seconds of the
processor are given beside those of the clock: on a shared machine they are what can be
compared.
"""

import json
import os
import time

import jax
import numpy as np
import scipy.sparse as sp
from absl import flags

from dwl_jax import choose, presets, stream, train
from experiments import cli
from experiments.greenkhorn import greenkhorn

_STEPS = 8  # one after the other: some make the kernel, some do not


def draw_counts(num_docs: int, num_words: int, size: int = 9, seed: int = 0):
    """Documents of about `size` words whose frequencies fall as 1 / rank, CSR."""
    rng = np.random.default_rng(seed)
    share = np.cumsum(1.0 / np.arange(1, num_words + 1))
    words = np.searchsorted(share, share[-1] * rng.random((num_docs, size)))
    rows = np.repeat(np.arange(num_docs), size)
    ones = np.ones(num_docs * size, np.int32)
    return sp.csr_array((ones, (rows, words.ravel())), shape=(num_docs, num_words))


def make_step(num_words: int, changes: dict):
    """Compiled steps, and the memory of one."""
    recipe = presets.default(presets.Sizes(num_words=num_words), **changes)
    cfg = recipe.cfg
    counts = draw_counts(cfg.batch_size, num_words)
    task = train.prepare(jax.random.key(0), counts, recipe.hyper, cfg=cfg)
    cfg = choose.of_state(cfg, task.state, task.hyper)
    rows = stream.from_counts(counts)
    docs, mask = rows.take(np.arange(cfg.batch_size)), np.ones(cfg.batch_size, "f4")
    static = {"cfg": cfg, "num_words": num_words, "num_labels": 0}

    def run():
        state, k, args = task.state, None, (docs, mask, None, task.hyper)
        for i in range(_STEPS):
            k = None if i % cfg.renew == 0 else k
            state, _, made = stream.step(state, *args, k, **static)
            k = made if k is None else k
        jax.block_until_ready(state)

    run()
    lowered = stream.step.lower(task.state, docs, mask, None, task.hyper, **static)
    return run, lowered.compile().memory_analysis().temp_size_in_bytes


def measure(sizes, changes, repeats: int) -> list[dict]:
    """Seconds of a step for each size."""
    cells = []
    for num_words in sizes:
        run, memory = make_step(num_words, changes)
        cell = {"N": num_words, "temporary_GB": memory / 1024**3, "run": run}
        cells.append(cell | {"clock": np.inf, "processor": np.inf})
    for _ in range(repeats):
        for cell in cells:
            clock, processor = time.perf_counter(), time.process_time()
            cell["run"]()
            clock = (time.perf_counter() - clock) / _STEPS
            processor = (time.process_time() - processor) / _STEPS
            cell["clock"] = min(cell["clock"], clock)
            cell["processor"] = min(cell["processor"], processor)
    return [{k: v for k, v in cell.items() if k != "run"} for cell in cells]


def exponent(cells: list[dict]) -> float:
    """Slope of log time over log N."""
    mine = [(c["N"], c["processor"]) for c in cells]
    return float(np.polyfit(*np.log(np.array(mine)).T, 1)[0])


def documents(num_docs: int, changes: dict) -> tuple[float, float]:
    """Processor's seconds: an epoch of all documents, ten of a tenth of them."""
    recipe = presets.default(**changes)
    cfg, hyper = recipe.cfg, recipe.hyper
    counts = draw_counts(num_docs, 81)

    def epochs(counts, number):
        task = train.prepare(jax.random.key(0), counts[:1], hyper, cfg=cfg)
        rows = stream.from_counts(counts)
        M, K = rows.num_docs, cfg.num_topics
        opt_A = jax.tree.map(
            lambda x: np.zeros((M, *np.shape(x)[1:]), np.asarray(x).dtype),
            task.state.opt_A,
        )
        A = np.random.default_rng(0).standard_normal((M, K)).astype(np.float32)
        state = task.state._replace(params=task.state.params._replace(A=A), opt_A=opt_A)
        begin = time.process_time()
        for _ in range(number):
            state, _ = stream.epoch(task.key, state, rows, task.hyper, cfg=cfg)
        return time.process_time() - begin

    tenth = counts[: num_docs // 10]
    epochs(tenth[: 4 * cfg.batch_size], 1)  # compiles
    return epochs(counts, 1), epochs(tenth, 10)


def against_sinkhorn(num_words: int, size: int, epsilon: float, repeats: int = 3):
    """Seconds to an equal L1 error of both marginals: Greenkhorn, Sinkhorn, errors."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((num_words, 50)).astype(np.float32)
    D = ((X[:, None, :] - X[None, :size, :]) ** 2).sum(-1) / 100.0
    u = rng.dirichlet(np.full(num_words, 0.1)).astype(np.float32)
    v = np.full(size, 1.0 / size, np.float32)
    C = jax.numpy.exp(-jax.numpy.asarray(D) / epsilon)

    @jax.jit
    def sinkhorn(C, u, v):
        def body(carry):
            g, _ = carry
            f = u / (C @ g)
            columns = f @ C
            return v / columns, jax.numpy.abs(g * columns - v).sum()

        start = (v, jax.numpy.ones(()))
        g, error = jax.lax.while_loop(lambda c: c[1] > 1e-3, body, start)
        f = u / (C @ g)
        return f[:, None] * C * g[None, :], error

    green = jax.jit(lambda u, v, D: greenkhorn(u, v, D, epsilon, tolerance=1e-3))
    took = []
    for run in (lambda: green(u, v, D), lambda: sinkhorn(C, u, v)):
        found, best = jax.block_until_ready(run()), np.inf
        for _ in range(repeats):
            begin = time.perf_counter()
            jax.block_until_ready(run())
            best = min(best, time.perf_counter() - begin)
        took += [best, float(found[1])]
    return took


def figure(cells: list[dict], path: str) -> None:
    """Seconds of a step over the number of words, both in logs."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(5, 3.2))
    label = f"N^{exponent(cells):.2f}"
    ax.loglog(
        [c["N"] for c in cells], [c["processor"] for c in cells], "o-", label=label
    )
    sizes = []
    for N in sorted({c["N"] for c in cells}):  # labels must not touch
        if not sizes or 1.3 * sizes[-1] < N:
            sizes.append(N)
    ax.set_xticks(sizes, [f"{N:,}" for N in sizes])
    ax.set_xticks([], minor=True)
    ax.set_xlabel("words N")
    ax.set_ylabel("processor seconds of a step")
    ax.legend(frameon=False)
    fig.savefig(path, bbox_inches="tight", metadata={"Date": None})


def main(argv):
    del argv
    FLAGS = flags.FLAGS
    if FLAGS.draw:
        with open(FLAGS.draw) as handle:
            figure(json.load(handle), FLAGS.figure)
        return
    cli.setup_jax()
    if FLAGS.greenkhorn:
        print("| N | words | epsilon | Greenkhorn ms | Sinkhorn ms |")
        print("|---" * 5 + "|")
        for N, size in ((81, 9), (1798, 9), (5550, 9), (1000, 1000)):
            for epsilon in (1.0, 0.2, 0.05):
                green, _, sinkhorn, _ = against_sinkhorn(N, size, epsilon)
                print(
                    f"| {N:,} | {size:,} | {epsilon} | {1e3 * green:.2f} | "
                    f"{1e3 * sinkhorn:.2f} |",
                    flush=True,
                )
        return
    changes = {name: FLAGS[name].value for name in
               ("num_topics", "num_iters", "topic_words", "batch_size")
               if FLAGS[name].present}  # fmt: skip
    if FLAGS.documents:
        one, ten = documents(FLAGS.documents, changes)
        print(
            f"{FLAGS.documents:,} documents once: {one:.1f} s of the processor; a "
            f"tenth of them ten times: {ten:.1f} s; ratio {one / ten:.3f}"
        )
        return
    sizes = [int(n) for n in FLAGS.sizes]
    cells = measure(sizes, changes, FLAGS.repeats)
    print("| N | clock s | processor s | temporary GB |\n" + "|---" * 4 + "|")
    for c in cells:
        print(f"| {c['N']:,} | {c['clock']:.3f} | {c['processor']:.3f} | "
              f"{c['temporary_GB']:.2f} |")  # fmt: skip
    if len(sizes) > 1:
        print(f"exponent: {exponent(cells):.2f}")
    if FLAGS.out:
        os.makedirs(FLAGS.out, exist_ok=True)
        with open(os.path.join(FLAGS.out, "growth.json"), "w") as handle:
            json.dump(cells, handle, indent=1)


def define_flags():
    flags.DEFINE_list("sizes", ["1000", "2000", "4000"], "Numbers of words.")
    flags.DEFINE_integer("repeats", 3, "Best of so many.", lower_bound=1)
    flags.DEFINE_integer("documents", 0, "Measure an epoch of so many instead.")
    for name in ("num_topics", "num_iters", "topic_words", "batch_size"):
        flags.DEFINE_integer(name, 0, f"Config.{name}; the recipe's if not given.")
    flags.DEFINE_string("out", None, "Folder for growth.json.")
    flags.DEFINE_bool("greenkhorn", False, "Time it against Sinkhorn instead.")
    flags.DEFINE_string("draw", None, "growth.json to draw, nothing is measured.")
    flags.DEFINE_string("figure", "growth.svg", "With --draw: file to write.")


if __name__ == "__main__":
    define_flags()
    cli.run(main)
