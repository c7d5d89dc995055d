"""Where documents live when there is more than one device.

Training never asks how many devices there are: inside a mesh with the axis `documents`
a batch is cut over it, and XLA sums what has to be summed. Outside of one these
functions do nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, Mesh, PartitionSpec

Array = jax.Array
AXIS = "documents"


def make(devices: Any = None) -> Mesh:
    """A mesh of one axis, over all devices of all processes or over the given ones."""
    devices = jax.devices() if devices is None else list(devices)
    return jax.make_mesh(
        (len(devices),), (AXIS,), axis_types=(AxisType.Auto,), devices=devices
    )


def split(tree: Any) -> Any:
    """Cuts the leading axis of every array over the devices of the mesh, if any."""
    if AXIS not in jax.sharding.get_abstract_mesh().axis_names:
        return tree
    cut = lambda x: jax.lax.with_sharding_constraint(x, PartitionSpec(AXIS))
    return jax.tree.map(cut, tree)


def take(tree: Any, rows: Array) -> Any:
    """The given rows of every array; a row that does not exist gives the last one."""
    read = lambda x: jnp.asarray(x).at[rows].get(mode="clip")
    return split(jax.tree.map(read, tree))


def put(tree: Any, rows: Array, tree_s: Any) -> Any:
    """Writes rows back; a row that does not exist is dropped."""
    write = lambda x, x_s: x.at[rows].set(x_s, mode="drop")
    return jax.tree.map(write, tree, tree_s)
