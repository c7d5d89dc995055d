"""Clocks for `experiments.bench`: alternated, best of several, compilation apart."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np


class Size(NamedTuple):
    """What is measured, at the paper's size unless told otherwise."""

    num_words: int = 81
    num_topics: int = 8
    batch_size: int = 256
    num_iters: int = 20
    dim: int = 50
    num_docs: int = 5543
    num_queries: int = 2771
    rounds: int = 20
    seconds: float = 4.0  # that one row may take, compilation apart
    seed: int = 0


QUICK = Size(
    num_topics=3,
    batch_size=16,
    num_iters=4,
    dim=4,
    num_docs=60,
    num_queries=20,
    rounds=2,
    seconds=0.5,
)


def best(
    runs: Mapping[str, Callable[[], Any]], *, rounds: int, seconds: float
) -> dict[str, float]:
    """Shortest time of each run in seconds, the runs taking turns.

    Args:
      runs: name -> a function that gives back arrays to wait for.
      rounds: at most so many turns.
      seconds: a run that has had so much time sits out.
    """
    found, spent = {}, dict.fromkeys(runs, 0.0)
    for run in runs.values():
        jax.block_until_ready(run())  # compiles, and touches its memory once
    for _ in range(rounds):
        for name, run in runs.items():
            if spent[name] > seconds:
                continue
            start = time.perf_counter()
            jax.block_until_ready(run())
            took = time.perf_counter() - start
            spent[name] += took
            found[name] = min(took, found.get(name, np.inf))
    return found


def compiled(fn: Callable, *args) -> tuple[Callable, float, int]:
    """fn for these arguments; seconds of tracing and compiling; bytes of its work."""
    start = time.perf_counter()
    ready = jax.jit(fn).lower(*args).compile()
    took = time.perf_counter() - start
    return (lambda: ready(*args)), took, ready.memory_analysis().temp_size_in_bytes


def exponent(sizes, values) -> float:
    """p of values ~ sizes^p, by least squares on logs."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
