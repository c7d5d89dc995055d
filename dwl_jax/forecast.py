"""What a run will take, in time and memory, from its compiled step and a few trials."""

import time
from typing import NamedTuple

import jax
import numpy as np

from dwl_jax import choose, stream, train
from dwl_jax.train import Task
from dwl_jax.types import Config

_GB = 1024.0**3
_BASE = 0.6 * _GB  # of Python, jax and its compiler
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
            f"{self.memory / _GB:.1f} GB."
        )


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
