"""An epoch whose documents stay on the host: a batch at a time goes to the device.

Documents are a CSR matrix, and the rows of A with their optimiser states are arrays of
numpy, so that a device holds what one batch needs, whatever the size of the corpus. No
document is in two batches of an epoch: the next batch is gathered, and the last one
written back, while the device computes. Shuffles are those of `train.epoch`, and so are
the results.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp

from dwl_jax import train
from dwl_jax.documents import Documents, dense
from dwl_jax.objective import Batch
from dwl_jax.types import Config, Hyper, Info, State

Array = jax.Array


class Rows(NamedTuple):
    """M distributions over N words as CSR: memory grows with what they hold."""

    start: np.ndarray  # [M + 1] where each document's entries begin
    words: np.ndarray  # [nnz] int32
    mass: np.ndarray  # [nnz]
    size: int  # S, the most distinct words of any document

    @property
    def num_docs(self) -> int:
        """M."""
        return self.start.shape[0] - 1

    def take(self, rows: np.ndarray) -> Documents:
        """Padded supports of some documents, [s, S], as `documents.from_counts`."""
        begin, end = self.start[rows][:, None], self.start[rows + 1][:, None]
        place = begin + np.arange(self.size)[None, :]
        there = place < end
        place = np.where(there, place, 0)
        pick = lambda x: np.where(there, x[place], np.zeros((), x.dtype))
        return Documents(pick(self.words), pick(self.mass))


def from_counts(counts: Any, dtype=np.float32) -> Rows:
    """Rows of counts that were checked (a Corpus has checked its own), [M, N]."""
    csr = sp.csr_array(counts, dtype=np.float64)
    csr.sum_duplicates()
    csr.eliminate_zeros()
    size = np.diff(csr.indptr)
    if (size == 0).any():
        raise ValueError(f"document {np.flatnonzero(size == 0)[0]} has no words.")
    total = np.repeat(np.add.reduceat(csr.data, csr.indptr[:-1]), size)
    mass = (csr.data / total).astype(dtype)
    start = csr.indptr.astype(np.int64)
    return Rows(start, csr.indices.astype(np.int32), mass, int(size.max()))


def to_host(state: State) -> State:
    """The State with all that each document has as writable numpy arrays."""
    host = lambda tree: jax.tree.map(np.array, tree)
    params = state.params._replace(A=host(state.params.A))
    return state._replace(params=params, opt_A=host(state.opt_A))


@functools.partial(jax.jit, static_argnames=("cfg", "num_words", "num_labels", "lasts"))
def step(
    state, docs, mask, labels, hyper, k=None, due=True,
    *, cfg, num_words, num_labels, lasts=1
):  # fmt: skip
    """`train.advance` of one batch, whose rows of A are all that the State holds.

    A kernel is given back if it is new and the next step is to have it.
    """
    s = mask.shape[0]
    place = jnp.where(mask > 0.0, jnp.arange(s), s)  # a row of no document is dropped
    batch = Batch(place, mask, dense(docs, num_words), labels, docs, due)
    how = {"cfg": cfg, "num_labels": num_labels, "lasts": lasts}
    state, info, made = train.advance(state, batch, hyper, k, **how)
    return state, info, made if k is None and cfg.renew > 1 else None


def epoch(
    key: Array,
    state: State,
    rows: Rows,
    hyper: Hyper,
    *,
    cfg: Config,
    labels: np.ndarray | None = None,
    num_labels: int = 0,
    watch: Callable[[int, int], None] = lambda done, batches: None,
) -> tuple[State, Info]:
    """`train.epoch` from the host.

    Args:
      key: a `jax.random.key`; the epoch's number is folded in.
      state: before the epoch, from `to_host`; its rows are changed in place.
      rows: the corpus.
      hyper: traced numbers.
      cfg: static choices.
      labels: [M] int, -1 where unknown, or None.
      num_labels: how many labels there are.
      watch: called with the number of batches done, and of all.

    Returns:
      The State after the epoch, and Info with one entry per batch.
    """
    M, N = rows.num_docs, state.params.R.shape[1]
    s = min(cfg.batch_size, M)
    number = -(-M // s)
    order = jax.random.permutation(jax.random.fold_in(key, state.epoch), M)
    order = np.concatenate([np.asarray(order), np.full(number * s - M, M)])
    order = order.reshape(number, s)
    own = (state.params.A, state.opt_A)
    labels = None if labels is None else np.asarray(labels)

    def gather(batch):
        real = np.minimum(batch, M - 1)
        mask = (batch < M).astype(rows.mass.dtype)
        rows_s = jax.tree.map(lambda x: x[real], own)
        return rows_s, rows.take(real), mask, None if labels is None else labels[real]

    def write_back(batch, done):
        real = batch < M
        new = (done.params.A, done.opt_A)
        jax.tree.map(lambda x, x_s: _assign(x, batch[real], x_s, real), own, new)

    begin, turn = int(state.batch), train.turn(number, cfg)
    first = begin - begin % turn  # where the kernel of a turn that was left is made
    ready, infos, pending, k = gather(order[first]), [], None, None
    for i, batch in enumerate(order[first:], first):
        (A_s, opt_s), docs, mask, labels_s = ready
        state = state._replace(params=state.params._replace(A=A_s), opt_A=opt_s)
        k = None if i % turn == 0 else k  # before there is another: C is large
        state, info, made = step(
            state, docs, mask, labels_s, hyper, k, i >= begin, cfg=cfg, num_words=N,
            num_labels=num_labels, lasts=turn,
        )  # fmt: skip
        if i % turn:
            info = train.shared(info, infos[-1])
        k = made if k is None else k
        if pending is not None:  # the one before: it is done, or nearly
            write_back(*pending)
            watch(i, number)
        pending = (batch, state)
        infos.append(info)
        if i + 1 < number:
            ready = gather(order[i + 1])
    write_back(*pending)
    watch(number, number)
    A, opt_A = own
    state = state._replace(params=state.params._replace(A=A), opt_A=opt_A)
    infos = [jax.tree.map(jnp.zeros_like, infos[0])] * first + infos  # done before
    return train.completed(state), jax.tree.map(lambda *x: np.stack(x), *infos)


def _assign(x: np.ndarray, rows: np.ndarray, x_s: Array, real: np.ndarray) -> None:
    x[rows] = np.asarray(x_s)[real]
