"""The loop around training that lives on the host: it may be stopped at any time.

One epoch is one compiled call, and its shuffle depends on the run's key and its number
alone. A run that is resumed from a checkpoint therefore goes through the very same
calls as one that was never stopped, and ends with the same bits.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.sharding import Mesh

from dwl_jax import checkpoint, checks, choose, parallel, stream, train
from dwl_jax.types import Config, Info, State

_epoch = jax.jit(
    train.epoch,
    static_argnames=("cfg", "num_labels", "num_docs"),
    donate_argnames=("state",),
)


class Run(NamedTuple):
    """What a run ended with."""

    state: State  # numpy, without rows added for devices
    stopped: bool  # by a signal, before the last epoch


def run(
    task: train.Task,
    *,
    cfg: Config,
    num_epochs: int,
    mesh: Mesh | None = None,
    folder: str | os.PathLike | None = None,
    resume: bool = False,
    save_every: int = 1,
    keep: int = 3,
    watch: Callable[[int, Info], None] = lambda epoch, info: None,
    stop: Callable[[], bool] = lambda: False,
    rows: stream.Rows | None = None,
    watch_batches: Callable[[int, int], None] = lambda done, batches: None,
) -> Run:
    """Trains to `num_epochs` epochs, with checkpoints.

    Args:
      task: from `train.prepare`.
      cfg: static choices, as given to `prepare`.
      num_epochs: epochs in all, those before a resume included.
      mesh: devices to spread over, or None for one.
      folder: of checkpoints; none are written if None.
      resume: go on from the newest good checkpoint in `folder`, if there is one.
      save_every: epochs from checkpoint to checkpoint; the last epoch has one always.
      keep: how many checkpoints stay.
      watch: called with the number of an epoch and its Info, as numpy, when it is over.
      stop: asked after each epoch; True ends the run with a checkpoint.
      rows: the same documents on the host, to go to the device a batch at a time; not
        with a mesh.
      watch_batches: with `rows`: called with the batches done, and all, of an epoch.

    Returns:
      A Run.

    Raises:
      NonFiniteError: naming epoch, batch and quantity; its state is the last good one.
      CheckpointError: if a checkpoint cannot be written.
    """
    num_docs, hyper = task.docs.num_docs, task.hyper
    if mesh is not None:
        task = parallel.place(task, mesh)
    # A copy, because its buffers are given to the first epoch and are gone after it.
    state = jax.tree.map(jnp.copy, task.state)
    if folder is not None:
        checkpoint.clean(folder)
        found = checkpoint.restore(folder, state) if resume else None
        state = state if found is None else found
    if rows is not None:
        if mesh is not None:
            raise ValueError("documents on the host go to one device, not to a mesh.")
        state = stream.to_host(state)
    stopped, blurs, num_done = False, True, int(state.epoch)
    with contextlib.nullcontext() if mesh is None else jax.set_mesh(mesh):
        labelled = {"labels": task.labels, "num_labels": task.num_labels}

        def run_epoch(state, cfg, _):
            how, key = {"cfg": cfg, **labelled}, task.key
            if rows is None:
                args = (key, state, task.docs, task.hyper)
                state, info = _epoch(*args, num_docs=num_docs, **how)
            else:
                args = (key, state, rows, task.hyper)
                state, info = stream.epoch(*args, watch=watch_batches, **how)
            return state, jax.tree.map(lambda x: np.asarray(x)[None], info)

        for epoch in range(num_done, num_epochs):
            # Forms are chosen anew for each epoch: a resumed run chooses the same.
            state, info = choose.train(run_epoch, state, hyper, cfg, 1)
            info = jax.tree.map(lambda x: x[0], info)
            watch(epoch, info)
            if not bool(state.finite):
                checks.finite(parallel.collect(state, num_docs), info, hyper, cfg)
            blurs = blurs and checks.blurs(info, hyper.at(state.epsilon), cfg)
            last = epoch + 1 == num_epochs
            stopped = not last and parallel.any_process(stop())
            due = last or stopped or (epoch + 1) % save_every == 0
            if folder is not None and due:
                checkpoint.save(folder, state, keep=keep)
            if stopped:
                break
    return Run(parallel.collect(state, num_docs), stopped)


class Signals:
    """Turns SIGTERM and SIGINT into a request; the second one acts as usual."""

    def __init__(self):
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number, frame):
        del frame
        self.received = number
        logging.warning(
            "%s: will stop after this epoch, with a checkpoint. Again: at once.",
            signal.Signals(number).name,
        )
        signal.signal(number, self._before[number])

    def __call__(self) -> bool:
        """Whether a signal came."""
        return self.received is not None


class Metrics:
    """Numbers of every step, as JSON lines and, if tensorboardX is there, for it.

    What the files have from the first epoch that comes on is dropped: after a resume
    they are as if the run had never been stopped.
    """

    def __init__(self, folder: str | os.PathLike):
        self._folder = os.fspath(folder)
        self._file = self._board = None
        self._step = 0

    def _open(self, first_epoch: int) -> None:
        path = os.path.join(self._folder, "metrics.jsonl")
        kept = [line for line, epoch in _lines(path) if epoch < first_epoch]
        with open(f"{path}.part", "w", encoding="ascii") as handle:
            handle.writelines(kept)
        os.replace(f"{path}.part", path)
        self._file = open(path, "a", encoding="ascii")  # noqa: SIM115
        self._step = len(kept)
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            logging.info("no TensorBoard files: pip install 'dwl-jax[train]' for them.")
        else:
            board = os.path.join(self._folder, "tensorboard")
            self._board = SummaryWriter(board, purge_step=self._step)

    def __call__(self, epoch: int, info: Info) -> None:
        """Writes the steps of one epoch."""
        if self._file is None:
            self._open(epoch)
        for batch in range(len(info.loss)):
            row = {name: x[batch].item() for name, x in info._asdict().items()}
            place = {"epoch": epoch, "batch": batch, "step": self._step}
            finite = {k: v if np.isfinite(v) else str(v) for k, v in row.items()}
            self._file.write(json.dumps(place | finite) + "\n")
            if self._board is not None:
                for name, value in row.items():
                    self._board.add_scalar(f"train/{name}", value, self._step)
            self._step += 1
        self._file.flush()

    def close(self) -> None:
        """Closes the files."""
        if self._file is not None:
            self._file.close()
        if self._board is not None:
            self._board.close()


def _lines(path: str) -> Iterator[tuple[str, int]]:
    """Whole lines of a metrics file with their epochs; a torn last line is left out."""
    if not os.path.exists(path):
        return
    with open(path, encoding="ascii", errors="replace") as handle:
        for line in handle:
            try:
                yield line, json.loads(line)["epoch"]
            except (ValueError, TypeError, KeyError):
                return
