"""Sums over documents, some at a time, whose gradient is found on the way.

What a Sinkhorn loop holds of a batch is K N numbers for each document: at thousands of
words that is far more than a processor's caches, and every pass over it is a pass over
memory. Some documents at a time stay near. Each part is differentiated before the next
one begins, so that nothing of it is kept.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Fn = Callable[[Any, Any], tuple[Array, Any]]


def size(num_docs: int, at_most: int) -> int:
    """The largest number of documents that divides all and is no larger than asked."""
    return max(d for d in range(1, max(at_most, 1) + 1) if num_docs % d == 0)


def total(fn: Fn, size: int, shared: Any, rows: Any) -> tuple[Array, Any]:
    """fn(shared, rows) as a sum over parts of `size` rows, and its aux by rows.

    Args:
      fn: gives a sum over its rows, and a tree of arrays with a row for each.
      size: rows of a part; it divides their number. Static.
      shared: what all parts share; differentiable where it is float.
      rows: a tree of arrays with one row per document; differentiable where float.

    Returns:
      What fn gives for all rows; differentiable once, the aux is not.
    """
    num_rows = jax.tree.leaves(rows)[0].shape[0]
    if size >= num_rows:
        return fn(shared, rows)
    split = lambda x: x.reshape(-1, size, *x.shape[1:])
    value, aux = _total(fn, shared, jax.tree.map(split, rows))
    return value, jax.lax.stop_gradient(_joined(aux))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _total(fn, shared, rows):
    def add(value, part):
        more, aux = fn(shared, part)
        return value + more, aux

    return jax.lax.scan(add, _zero(rows), rows)


def _total_fwd(fn, shared, rows):
    floats, rest = _floats(shared)

    def add(carry, part):
        mine, others = _floats(part)
        call = lambda floats, mine: fn(_filled(floats, rest), _filled(mine, others))
        more, pull, aux = jax.vjp(call, floats, mine, has_aux=True)
        shared_bar, part_bar = pull(jnp.ones_like(more))
        value, so_far = carry
        so_far = jax.tree.map(jnp.add, so_far, shared_bar)
        return (value + more, so_far), (aux, part_bar)

    start = (_zero(rows), jax.tree.map(jnp.zeros_like, floats))
    (value, shared_bar), (aux, rows_bar) = jax.lax.scan(add, start, rows)
    return (value, aux), (shared_bar, rows_bar)


def _total_bwd(fn, bars, cotangent):
    del fn
    return jax.tree.map(lambda x: cotangent[0] * x, bars)


_total.defvjp(_total_fwd, _total_bwd)


def _floats(tree):
    """The tree with None for what is no float, and with None for what is."""
    is_float = lambda x: jnp.issubdtype(x.dtype, jnp.floating)
    pick = lambda keep: jax.tree.map(lambda x: x if is_float(x) == keep else None, tree)
    return pick(True), pick(False)


def _filled(tree, other):
    """What `_floats` took apart."""
    none = lambda x: x is None
    return jax.tree.map(lambda x, y: y if x is None else x, tree, other, is_leaf=none)


def _joined(aux):
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), aux)


def _zero(rows):
    floats = [x for x in jax.tree.leaves(rows) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.zeros((), floats[0].dtype)
