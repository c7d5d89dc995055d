"""C as its diagonal, each word's nearest neighbours, and a far field for the rest.

At a small epsilon hardly anything but a word's neighbours matters. Pairs that are among
each other's nearest have their own entry of C, with its gradient. All others share the
far field f_n f_n', whose row sums are those of what it replaces. Every entry is
positive and every sum is taken in logs: this form holds at any epsilon, in float32 too.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array


class Graph(NamedTuple):
    """Which pairs have entries of their own; found anew now and then."""

    words: Array  # [N, k] int32, nearest first
    mutual: Array  # [N, k] bool, the pairs that are kept
    log_far: Array  # [N] log of the far field f
    error: Array  # [] relative L1 error of products with document-like vectors


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class NeighbourKernel:
    """C near diagonal + pairs + f f'; gradients flow through `log_near`."""

    log_near: Array  # [N, k] log C of the pairs
    log_own: Array  # [N] of the diagonal that the far field leaves
    graph: Graph

    form = "neighbours"

    @property
    def num_words(self) -> int:
        """N."""
        return self.log_near.shape[0]

    @property
    def next_basis(self) -> Graph:
        """The graph as it is."""
        return self.graph

    @property
    def error(self) -> Array:
        """Of products, when the graph was found."""
        return self.graph.error

    @property
    def fits(self) -> Array:
        """It holds everywhere."""
        return jnp.ones((), bool)

    def _pairs(self) -> tuple[Array, Array]:
        """The k-th neighbours of all words and their log C, [k, N] each."""
        kept = jnp.where(self.graph.mutual, self.log_near, -jnp.inf)
        return self.graph.words.T, kept.T

    def forward(self, log_v: Array) -> tuple[Array, tuple]:
        """log(C v) over the last axis, [..., N]."""
        log_far = _along(self.graph.log_far, log_v)
        far = log_far + jax.nn.logsumexp(log_v + log_far, axis=-1, keepdims=True)
        first = jnp.maximum(log_v + _along(self.log_own, log_v), far)
        term = lambda pair: jnp.take(log_v, pair[0], axis=-1) + _along(pair[1], log_v)
        highest = lambda top, pair: (jnp.maximum(top, term(pair)), None)
        top = jax.lax.scan(highest, first, self._pairs())[0]
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        add = lambda total, pair: (total + jnp.exp(term(pair) - top), None)
        own = jnp.exp(log_v + _along(self.log_own, log_v) - top)
        total = jax.lax.scan(add, own + jnp.exp(far - top), self._pairs())[0]
        return top + jnp.log(total), ()

    def pull(self, w: Array, log_u: Array, log_v: Array, aux: tuple) -> Array:
        """exp(log_v) * C (w exp(-log_u)), [..., N]: no term of it exceeds its w."""
        del aux
        log_far = _along(self.graph.log_far, log_v)
        reach = log_far - log_u
        high = jnp.max(reach, axis=-1, keepdims=True)
        far = jnp.sum(w * jnp.exp(reach - high), axis=-1, keepdims=True)
        own = w * jnp.exp(log_v + _along(self.log_own, log_v) - log_u)

        def add(total, pair):
            words, log_near = pair
            away = lambda x: jnp.take(x, words, axis=-1)
            share = jnp.exp(log_v + _along(log_near, log_v) - away(log_u))
            return total + away(w) * share, None

        start = own + far * jnp.exp(log_v + log_far + high)
        return jax.lax.scan(add, start, self._pairs())[0]

    def outer(self, w: Array, log_u: Array, log_v: Array, aux: tuple) -> Array:
        """The cotangent of `log_near` when w is the one of log_u, [N, k]."""
        del aux
        flat = lambda x: jnp.broadcast_to(x, log_v.shape).reshape(-1, self.num_words)
        w, log_u, log_v = flat(w), flat(log_u), flat(log_v)

        def one(pair):
            words, log_near = pair
            share = jnp.take(log_v, words, axis=-1) + log_near[None, :] - log_u
            return jnp.sum(w * jnp.exp(share), axis=0)

        return jax.lax.map(one, self._pairs()).T

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.log_near)

    def cotangent(self, log_near_bar: Array) -> Any:
        """A gradient for `log_near` in the shape that a custom_vjp gives back."""
        none = {"log_own": None, "graph": None}
        return dataclasses.replace(self, log_near=log_near_bar, **none)


def find(X: Array, ground: blocks.Ground, number: int) -> Graph:
    """Each word's nearest words and the far field of the rest, a block at a time."""
    X = jax.lax.stop_gradient(X)
    N = X.shape[0]
    number = min(number, N - 1)

    def nearest(rows, X_rows):
        C = blocks.off_diagonal(rows, X_rows, X, ground)
        D2 = blocks.squared_distances(X_rows, X)
        own = rows[:, None] == jnp.arange(N)[None, :]
        words = jax.lax.top_k(jnp.where(own, -jnp.inf, -D2), number)[1]
        near = jnp.take_along_axis(C, words, axis=1)
        return words.astype(jnp.int32), near, jnp.sum(C, axis=1)

    words, near, total = blocks.map_rows(nearest, X)
    back = words[words]  # [N, k, k] the neighbours' neighbours
    mutual = jnp.any(back == jnp.arange(N)[:, None, None], axis=-1)
    rest = total - jnp.sum(jnp.where(mutual, near, 0.0), axis=1)
    tiny = jnp.finfo(X.dtype).tiny
    rest = jnp.maximum(rest, tiny)
    log_far = jnp.log(rest) - 0.5 * jnp.log(jnp.sum(rest))
    graph = Graph(words, mutual, log_far, jnp.zeros((), X.dtype))
    return graph._replace(error=_error(build(X, ground, basis=graph), X, ground))


def build(
    X: Array,
    ground: blocks.Ground,
    *,
    neighbours: int | None = None,
    basis: Graph | None = None,
) -> NeighbourKernel:
    """The neighbour kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      neighbours: k, at most N - 1; static.
      basis: the graph to use, found by `find` if None.

    Returns:
      The kernel.
    """
    graph = find(X, ground, neighbours) if basis is None else basis
    graph = jax.lax.stop_gradient(graph)

    def pairs(rows, X_rows, words):
        del rows
        D2 = jnp.sum((X_rows[:, None, :] - X[words]) ** 2, axis=-1)
        return -ground.exponent(D2)

    log_near = blocks.map_rows(pairs, X, graph.words)
    # A pair's own entry takes the place of its far field, as the diagonal's 1 does.
    log_far = graph.log_far[:, None] + graph.log_far[graph.words]
    log_near = _without(log_near, jax.lax.stop_gradient(log_far))
    log_own = _without(jnp.zeros_like(graph.log_far), 2.0 * graph.log_far)
    return NeighbourKernel(log_near, log_own, graph)


def _without(log_x: Array, log_far: Array) -> Array:
    """log(x - far), but at least log(x / 2): where far is large, their sum is not x."""
    part = jnp.exp(jnp.minimum(log_far - log_x, 0.0))
    return log_x + jnp.log1p(-jnp.minimum(part, 0.5))


def _error(kernel: NeighbourKernel, X: Array, ground: blocks.Ground) -> Array:
    """Relative L1 error of products with document-like vectors."""
    y = blocks.probes(X.shape[0], X.dtype)[1]
    near = jnp.exp(kernel.forward(jnp.log(y.T))[0]).T
    return blocks.probe_error(near, X, ground)


def _along(x: Array, like: Array) -> Array:
    """[N] with as many axes as `like` has."""
    return x.reshape((1,) * (like.ndim - 1) + x.shape)
