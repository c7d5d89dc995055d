"""Neighbours, inference, and growth with documents, words, topics and iterations."""

import functools
import time

import jax
import numpy as np

from dwl_jax import data, infer, metrics, model, neighbors, train
from dwl_jax.documents import Documents
from experiments import bench_gradient, bench_training
from experiments.bench_timing import Size, best, compiled, exponent


def knn(size: Size, log, num_neighbors: int = 5, num_pairs: int = 4000) -> dict:
    """Exact Wasserstein neighbours of all queries, against POT pair by pair."""
    import ot

    log("exact Wasserstein neighbours")
    docs = bench_training.corpus(size).documents()
    refs = bench_training.rows(docs, 0, size.num_docs)
    queries = bench_training.rows(docs, size.num_docs, size.num_docs + size.num_queries)
    rng = np.random.default_rng(size.seed)
    X = rng.normal(size=(size.num_words, size.dim))
    D = np.asarray(metrics.euclidean(X, X), np.float64)
    start = time.perf_counter()
    found = neighbors.knn(queries, refs, D, num_neighbors)
    ours = time.perf_counter() - start

    log("POT pair by pair, a sample")
    support = lambda docs, m: (docs.words[m][docs.mass[m] > 0], _masses(docs, m))

    def pair(q, m):
        (a, u), (b, v) = support(queries, q), support(refs, m)
        return ot.emd2(u, v, D[np.ix_(a, b)])

    num_q, num_m = queries.num_docs, refs.num_docs
    pairs = np.stack([rng.integers(top, size=num_pairs) for top in (num_q, num_m)], 1)
    start = time.perf_counter()
    for q, m in pairs:
        pair(q, m)
    each = (time.perf_counter() - start) / num_pairs
    checked = rng.choice(num_q, size=min(3, num_q), replace=False)
    grid = 1e-10 * D.max()
    same = True
    for q in checked:
        all_of_q = np.array([[pair(q, m) for m in range(num_m)]])
        want, _ = neighbors.smallest(all_of_q, num_neighbors, grid)
        same &= bool((want[0] == found.index[q]).all())
    return {
        "seconds": {"all pairs here": ours, "all pairs by POT": each * num_q * num_m},
        "pairs solved": found.num_solved / (num_q * num_m),
        "ratio": each * num_q * num_m / ours,
        "queries checked": len(checked),
        "same neighbours": same,
    }


def _masses(docs: Documents, m: int) -> np.ndarray:
    mass = np.asarray(docs.mass[m], np.float64)
    mass = mass[mass > 0]
    return mass / mass.sum()


def inference(size: Size, log) -> dict:
    """Documents per second: topic weights, and pooled features."""
    log("inference and pooled features")
    words = bench_training.corpus(size)
    docs = bench_training.rows(words.documents(), 0, 4 * size.batch_size)
    preset = bench_training.recipe(size)
    state = bench_training.task(size, preset, docs, words.num_words)[1]
    trained = model(state, preset.cfg)
    pool = jax.jit(metrics.pool)
    runs = {
        "topic weights": lambda: infer(docs, trained, preset.hyper, cfg=preset.cfg),
        "pooled features": lambda: pool(docs, trained.X),
    }
    found = best(runs, rounds=3, seconds=2.0 * size.seconds)
    rate = {name: docs.num_docs / took for name, took in found.items()}
    return {"seconds": found, "documents per second": rate}


def growth(size: Size, log, quick: bool) -> dict:
    """Time and memory of a batch gradient, or an epoch for M, with fitted exponents."""
    values = {
        "num_iters": (5, 20, 100),
        "num_topics": (8, 16, 32, 64),
        "num_words": (81, 200, 500, 1000, 2000),
    }
    docs = (1_000, 10_000, 100_000)
    if quick:
        values, docs = {k: v[:2] for k, v in values.items()}, docs[:1]
    out = {}
    for name, row in values.items():
        log(f"growth with {name}")
        base = size._replace(batch_size=min(64, size.batch_size))
        took, work = [], []
        for value in row:
            at = base._replace(**{name: value})
            fn = functools.partial(bench_gradient.loss, size=at, form="auto")
            args = (*bench_gradient.problem(at).values(), np.float32(0.05))
            run, _, temp = compiled(jax.value_and_grad(fn, (0, 1)), *args)
            took.append(best({"": run}, rounds=5, seconds=size.seconds)[""])
            work.append(temp)
        out[name] = _fitted(row, took, work)
    took, work = [], []
    for number in docs:
        log(f"growth with documents: {number}")
        corpus = data.synthetic_admissions(number, seed=size.seed)
        preset = bench_training.recipe(size, joint=False)
        args = bench_training.task(size, preset, corpus.documents(), corpus.num_words)
        fit = functools.partial(train.run_epochs, cfg=preset.cfg, num_epochs=1)
        run, _, temp = compiled(fit, *args)
        took.append(best({"": run}, rounds=2, seconds=0.1)[""])
        held = sum(x.nbytes for x in jax.tree.leaves(args[1:3]))
        work.append(temp + held)
    out["documents"] = _fitted(docs, took, work)
    return out


def _fitted(sizes, took, work) -> dict:
    out = {"sizes": list(sizes), "seconds": took, "bytes": work}
    if len(sizes) > 1:
        out["exponent of time"] = exponent(sizes, took)
        out["exponent of memory"] = exponent(sizes, work)
    return out
