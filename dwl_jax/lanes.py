"""What a `vmap` over whole runs does: on a CPU they take turns in one compilation."""

from collections.abc import Callable

import jax


def in_turn(fn: Callable) -> Callable:
    """The function, whose lanes under `vmap` run one after the other on a CPU.

    What one run keeps for its gradient fits a CPU's caches, what several keep does not.
    Elsewhere, and for what no lane has of its own, `vmap` does what it always does.

    Args:
      fn: arrays in, arrays out, by position; not differentiated.
    """
    if jax.default_backend() != "cpu":
        return fn
    one = jax.custom_batching.custom_vmap(fn)

    @one.def_vmap
    def many(axis_size, in_batched, *args):
        del axis_size
        leaves, tree = jax.tree.flatten(args)
        batched = jax.tree.leaves(in_batched)
        places = [place for place, of_lane in enumerate(batched) if of_lane]

        def lane(own):
            mine = list(leaves)
            for place, leaf in zip(places, own, strict=True):
                mine[place] = leaf
            return one(*jax.tree.unflatten(tree, mine))

        out = jax.lax.map(lane, [leaves[place] for place in places])
        return out, jax.tree.map(lambda _: True, out)

    return one
