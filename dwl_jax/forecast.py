"""What a run will take, in time and memory, from its compiled step and a few trials."""

import bisect
import os
import time
from typing import NamedTuple

import jax
import numpy as np

from dwl_jax import choose, objective, stream, train
from dwl_jax.train import Task
from dwl_jax.types import Config

GB = 1024.0**3
_BASE = 0.6 * GB  # of Python, jax and its compiler
_STEPS = 8  # one after the other: some make the kernel, some do not


class Forecast(NamedTuple):
    """Of a run from the host."""

    step: float  # seconds of a batch
    batches: int  # of an epoch
    memory: float  # bytes: the process, its documents, and a step's arrays

    def text(self, num_epochs: int) -> str:
        """In words."""
        epoch = self.step * self.batches
        return (
            f"{num_epochs} epochs of {self.batches:,} batches at {self.step:.2f} s: "
            f"{num_epochs * epoch / 60:.1f} minutes ({epoch / 60:.1f} an epoch), "
            f"{self.memory / GB:.1f} GB."
        )


def needed(num_words: int, cfg: Config, itemsize: int = 4) -> float:
    """Bytes that training on so many words takes, corpus apart; known before any work.

    One array of N x N where a kernel is held; a dense one of more iterations keeps
    every scaling of every document for its gradient.
    """
    N, s, K = num_words, cfg.batch_size, cfg.num_topics
    squares, columns = 6.0, s * K * (5.0 + 2.3 * cfg.num_iters)
    if objective.may_hold(cfg, N) or not cfg.transport:
        squares, columns = float(cfg.transport), 8.0 * s + 6.0 * K
    if cfg.step != "none" and not objective.on_supports(cfg, N):
        squares += 4.0
    return _BASE + itemsize * N * (squares * N + columns + 4.0 * cfg.dim)


def words_that_fit(memory: float, cfg: Config, itemsize: int = 4) -> int:
    """The most words that training can be given so many bytes for."""
    fits = lambda N: needed(N, cfg, itemsize) <= memory
    return bisect.bisect(range(1, 1 << 24), False, key=lambda N: not fits(N))


def machine() -> float:
    """Bytes of memory that the first device has, or the machine if that is a CPU."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return float(stats["bytes_limit"])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def measure(task: Task, rows: stream.Rows, *, cfg: Config) -> Forecast:
    """Compiles the step that the run will use, and times it on its first batch.

    Args:
      task: from `train.prepare`; not changed.
      rows: its documents on the host.
      cfg: static choices.

    Returns:
      A Forecast.
    """
    state, cfg = (
        stream.to_host(task.state),
        choose.of_state(cfg, task.state, task.hyper),
    )
    s = min(cfg.batch_size, rows.num_docs)
    first = np.arange(s)
    few = jax.tree.map(lambda x: x[:s], (state.params.A, state.opt_A))
    small = state._replace(params=state.params._replace(A=few[0]), opt_A=few[1])
    labels = None if task.labels is None else np.asarray(task.labels)[:s]
    mask = np.ones(s, rows.mass.dtype)
    args = (rows.take(first), mask, labels, task.hyper)
    static = {
        "cfg": cfg,
        "num_words": state.params.R.shape[1],
        "num_labels": task.num_labels,
    }
    compiled = stream.step.lower(small, *args, **static).compile().memory_analysis()
    turn = train.turn(-(-rows.num_docs // s), cfg)

    def run(small, k=None):
        """As many steps as share a kernel, or a few more."""
        steps = max(turn, _STEPS // turn * turn)
        for i in range(steps):
            k = None if i % turn == 0 else k
            small, _, made = stream.step(small, *args, k, **static)
            k = made if k is None else k
        return jax.block_until_ready(small), steps

    small, _ = run(small)
    begin = time.perf_counter()
    _, steps = run(small)
    took = (time.perf_counter() - begin) / steps
    held = sum(x.nbytes for x in jax.tree.leaves((state, rows[:3], task.docs)))
    work = compiled.temp_size_in_bytes + compiled.output_size_in_bytes
    return Forecast(took, -(-rows.num_docs // s), _BASE + held + work)
