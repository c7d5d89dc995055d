"""Training over several devices: documents are spread, topics and embeddings copied.

Batches hold the same documents in the same order as on one device, so the result is the
same up to the order of summation. One process with many devices, or many processes that
called `join`, need no other code.

Example:
  mesh = parallel.make_mesh()
  state, info = parallel.fit(key, docs, mesh=mesh, num_epochs=20, num_words=81)
"""

from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dwl_jax import checks, choose, train
from dwl_jax import mesh as mesh_lib
from dwl_jax.documents import Documents
from dwl_jax.train import Task
from dwl_jax.types import Config, Hyper, Info, State

Array = jax.Array
make_mesh = mesh_lib.make


def join(
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Makes this process one of several; before any other use of jax.

    On TPU, Slurm and Open MPI no argument is needed. Processes on CPUs talk by gloo.

    Args:
      coordinator: "host:port" of process 0.
      num_processes: how many there are.
      process_id: which of them this is, from 0.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, num_processes, process_id)


def place(task: Task, mesh: Mesh) -> Task:
    """Puts a task's arrays on the devices of a mesh.

    Args:
      task: from `train.prepare`; the same in every process.
      mesh: from `make_mesh`.

    Returns:
      The task with documents, and all that is kept for each of them, cut over the
      devices, and the rest copied to each. Rows are added until the shares are equal;
      pass the true number of documents on as `num_docs`.
    """
    cut, whole = NamedSharding(mesh, PartitionSpec(mesh_lib.AXIS)), _whole(mesh)
    spread = lambda x: _put(_pad(np.asarray(x), mesh.size), cut)
    copy = lambda x: _put(np.asarray(x), whole)
    data = copy(jax.random.key_data(task.key))
    return Task(
        key=jax.random.wrap_key_data(data, impl=jax.random.key_impl(task.key)),
        state=_map_state(spread, copy, task.state),
        docs=jax.tree.map(spread, task.docs),
        hyper=jax.tree.map(copy, task.hyper),
        labels=None if task.labels is None else spread(task.labels),
        num_labels=task.num_labels,
    )


def collect(state: State, num_docs: int) -> State:
    """The whole State as numpy arrays, in every process, without added rows."""
    rows = lambda x: _fetch(x)[:num_docs]
    return _map_state(rows, _fetch, state)


def fit(
    key: Array,
    docs: Documents | Any,
    hyper: Hyper = Hyper(),  # noqa: B008 - a tuple of numbers
    *,
    mesh: Mesh,
    cfg: Config = Config(),  # noqa: B008 - frozen
    num_epochs: int,
    **kwargs,
) -> tuple[State, Info]:
    """`dwl_jax.fit` over the devices of a mesh.

    Args:
      key: a `jax.random.key`.
      docs: Documents or counts, all of them, the same in every process.
      hyper: traced numbers.
      mesh: from `make_mesh`.
      cfg: static sizes and choices.
      num_epochs: passes over the corpus.
      **kwargs: as `dwl_jax.fit`.

    Returns:
      State and Info as numpy arrays, as `dwl_jax.fit` gives them.
    """
    task = train.prepare(key, docs, hyper, cfg=cfg, **kwargs)
    num_docs = task.docs.num_docs
    key, state, *rest, num_labels = place(task, mesh)

    def run(state, cfg, num_epochs):
        sizes = {"num_labels": num_labels, "num_docs": num_docs}
        args = (key, state, *rest)
        state, info = train.run_epochs(*args, cfg=cfg, num_epochs=num_epochs, **sizes)
        return state, jax.tree.map(_fetch, info)

    with jax.set_mesh(mesh):
        state, info = choose.train(run, state, task.hyper, cfg, num_epochs)
    state = collect(state, num_docs)
    checks.finite(state, info, hyper, cfg)
    checks.blurs(info, hyper.at(state.epsilon), cfg)
    return state, info


def is_first() -> bool:
    """Whether this is the process that writes files."""
    return jax.process_index() == 0


def wait(name: str) -> None:
    """Waits until every process is here."""
    if jax.process_count() > 1:
        multihost_utils.sync_global_devices(name)


def agree(value: int) -> int:
    """The first process's value, in all of them."""
    if jax.process_count() == 1:
        return value
    return int(multihost_utils.broadcast_one_to_all(np.int32(value)))


def any_process(flag: bool) -> bool:
    """Whether the flag is set in any process."""
    if jax.process_count() == 1:
        return flag
    return bool(multihost_utils.process_allgather(np.asarray(flag)).any())


def _whole(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def _pad(x: np.ndarray, number: int) -> np.ndarray:
    """Rows of the first document are added up to a multiple of `number`."""
    missing = -len(x) % number
    return np.concatenate([x, np.repeat(x[:1], missing, axis=0)])


def _put(x: np.ndarray, sharding: NamedSharding) -> Array:
    """An array over all processes, of which each gives the part that it has to."""
    return jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])


def _fetch(x: Array) -> np.ndarray:
    if isinstance(x, np.ndarray):
        return x
    if x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return np.asarray(multihost_utils.process_allgather(x, tiled=True))


def _map_state(by_row, shared, state: State) -> State:
    """Applies one function to what each document has, another to the rest."""
    A, R, theta = state.params
    params = (by_row(A), *jax.tree.map(shared, (R, theta)))
    return jax.tree.map(shared, state._replace(params=None, opt_A=None))._replace(
        params=type(state.params)(*params), opt_A=jax.tree.map(by_row, state.opt_A)
    )
