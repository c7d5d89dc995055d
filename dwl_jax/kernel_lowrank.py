"""C as the entries of a few hubs, a diagonal, and a positive matrix of low rank.

A topic has most of its mass on a few words, and those matter in every product: hubs are
the words with the largest share in all topics, and C keeps every entry of theirs. What
is left off the diagonal is nearly of low rank, C near W W' + diag(own) with W >= 0,
[N, r]. Eigenvectors are nearer in the mean, but they make negative entries, and a
barycenter takes logarithms of small products; with W >= 0 every product is positive.
W is found by the multiplicative steps of non-negative factorisation, each a product of
C with W by blocks of rows, and improved by one more every few training steps, while
the embeddings move: nothing of size N^2 is kept.

Gradients in v are those of the product as it is computed. Gradients in X are those of C
itself and never of its factors: embeddings that descend through an approximation learn
to deceive it. Each step takes the entries of hubs and those with a sample of other
words, drawn anew, and counts each of these for as many as it stands for.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array
_SAMPLE = 64  # words beside the hubs whose entries carry the gradient of a step
_FIRST_STEPS = 30  # of the factorisation, from columns of C
_RENEW = 4  # training steps between two of its steps
_STRIDE = 0.8  # of each: 1 may swing, 0.5 is slow
_BALANCE = 4  # passes over the sums of rows
_LEAST = 1e-3  # of a diagonal entry after low rank has taken its part
_TINY = 1e-6  # least entry of W: a zero would stay one


class Basis(NamedTuple):
    """What a kernel goes on from."""

    W: Array  # [N, r], positive
    age: Array  # [] int32: kernels made before; it also numbers the samples


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    """C near W W' + diag(own) between words that are no hubs, and exact beside them."""

    entries: Array  # [N, m + n] of C off its diagonal, with m hubs and n sampled words
    words: Array  # [m + n] int32, which these are
    counted: Array  # [m + n] how many words each of them stands for
    factors: Array  # [N, m + r] entries of the hubs, and W, which is 0 in their rows
    own: Array  # [N] 1 - diagonal of W W'
    other: Array  # [N] 0 for hubs, 1 for all others
    basis: Basis
    error: Array  # [] relative L1 error of products with document-like vectors
    fits: Array  # [] bool: no word is so far from all others that its W is the least

    form: Literal["plain"] = dataclasses.field(
        metadata={"static": True}, default="plain"
    )
    axis: Literal[0, -1] = dataclasses.field(metadata={"static": True}, default=-1)

    @property
    def num_words(self) -> int:
        """N."""
        return self.own.shape[0]

    @property
    def hubs(self) -> Array:
        """Which words they are, [m]."""
        return self.words[: self.factors.shape[1] - self.basis.W.shape[1]]

    @property
    def next_basis(self) -> Basis:
        """The same W, one step older."""
        return self.basis._replace(age=self.basis.age + 1)

    def forward(self, v: Array) -> tuple[Array, tuple]:
        """C v over the words' axis."""
        return self._times(v), ()

    def pull(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The product v * C (w / u)."""
        del aux
        return v * self._times(w / u)

    def outer(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The cotangent of `entries` when w is the one of log u, [N, m + n].

        An entry of a hub stands for the one across the diagonal too, unless that is a
        hub's itself.
        """
        del aux
        axis, a, m = self.axis % v.ndim, w / u, self.hubs.shape[0]
        rest = [i for i in range(v.ndim) if i != axis]
        product = lambda x, y, words: jnp.tensordot(
            x, jnp.take(y, words, axis=axis), axes=(rest, rest)
        )
        columns = self.counted[None, :] * product(a, v, self.words)
        other = self.other[:, None]
        of_hubs = columns[:, :m] + other * product(v, a, self.hubs)
        return jnp.concatenate([of_hubs, other * columns[:, m:]], axis=1)

    def _times(self, v: Array) -> Array:
        """C v over the words' axis: entries from and to hubs, W between the others."""
        axis, hubs = self.axis % v.ndim, self.hubs
        m = hubs.shape[0]
        few = jnp.tensordot(self.factors, v, axes=((0,), (axis,)))
        v_hubs = jnp.moveaxis(jnp.take(v, hubs, axis=axis), axis, 0)
        back = jnp.concatenate([v_hubs, few[m:]])
        near = jnp.moveaxis(jnp.tensordot(self.factors, back, axes=1), 0, axis)
        own = self.own.reshape([-1 if i == axis else 1 for i in range(v.ndim)])
        at_hubs = (slice(None),) * axis + (hubs,)
        exact = jnp.moveaxis(v_hubs + few[:m], 0, axis)
        return (own * v + near).at[at_hubs].set(exact)

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.entries)

    def cotangent(self, entries_bar: Array) -> Any:
        """A gradient for `entries` in the shape that a custom_vjp gives back."""
        arrays = [f.name for f in dataclasses.fields(self) if not f.metadata]
        return dataclasses.replace(
            self, **(dict.fromkeys(arrays) | {"entries": entries_bar})
        )


def build(
    X: Array,
    ground: blocks.Ground,
    *,
    rank: int,
    hubs: int,
    basis: Basis | None = None,
    share: Array | None = None,
) -> LowRankKernel:
    """The low-rank kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      rank: r, at most N; static.
      hubs: how many words keep all their entries, at most N; static.
      basis: of a kernel near it, improved if it is old; found if None.
      share: of all mass that words have, [N]: what hubs and the sample are chosen by.

    Returns:
      The kernel.
    """
    Z, N = jax.lax.stop_gradient(X), X.shape[0]
    if basis is None:
        basis = find(Z, ground, rank)
    else:
        basis = jax.lax.cond(
            (basis.age > 0) & (basis.age % _RENEW == 0),
            lambda basis: basis._replace(W=improve(Z, ground, basis.W)),
            lambda basis: basis,
            basis,
        )
    share = jnp.ones(N) if share is None else jax.lax.stop_gradient(share)
    first, last = jnp.split(jnp.argsort(-share), [min(hubs, N)])
    other = jnp.ones(N, X.dtype).at[first].set(0.0)
    sample, counted = last, jnp.ones(last.shape)
    if last.shape[0] > _SAMPLE:
        sample, counted = draw(basis.age, share, other)
    words = jnp.concatenate([first, sample])
    entries = blocks.off_diagonal(words, X[words], X, ground).T
    W = other[:, None] * basis.W
    by_hubs = jax.lax.stop_gradient(entries[:, : first.shape[0]])
    kernel = LowRankKernel(
        entries=entries,
        words=words,
        counted=jnp.concatenate([jnp.ones(first.shape[0]), counted]).astype(X.dtype),
        factors=jnp.concatenate([by_hubs, W], axis=1),
        own=jnp.maximum(1.0 - jnp.sum(W**2, axis=1), _LEAST),
        other=other,
        basis=basis,
        error=jnp.zeros((), X.dtype),
        fits=jnp.all(jnp.sum(basis.W**2, axis=1) > 4.0 * basis.W.shape[1] * _TINY**2),
    )
    return dataclasses.replace(kernel, error=_error(kernel, Z, ground))


def draw(number: Array, share: Array, other: Array) -> tuple[Array, Array]:
    """A sample of words by their share of all mass, and how many each stands for.

    Half of the chance is everyone's, so that nobody stands for more than 2 N / n.
    Places on the line of all chances are evenly spaced: large shares are certain.

    Args:
      number: of the sample.
      share: of all mass, [N].
      other: 1 for words to draw from, 0 for those to leave out, [N].

    Returns:
      Words [n], and how many each of them stands for [n].
    """
    N, n = share.shape[0], _SAMPLE
    part = lambda x: x / jnp.maximum(jnp.sum(x), jnp.finfo(x.dtype).tiny)
    chance = 0.5 * (part(other) + part(other * share))
    key = jax.random.fold_in(jax.random.key(0), number)
    line = jnp.cumsum(chance)
    places = (jnp.arange(n) + jax.random.uniform(key, (n,))) / n * line[-1]
    sample = jnp.minimum(jnp.searchsorted(line, places), N - 1)
    return sample, other[sample] / (n * jnp.maximum(chance[sample], 0.5 / N))


def find(X: Array, ground: blocks.Ground, rank: int) -> Basis:
    """The basis of a kernel that nothing is known of, from some columns of it."""
    N = X.shape[0]
    words = jax.random.permutation(jax.random.key(0), N)[: min(rank, N)]
    W = blocks.off_diagonal(words, X[words], X, ground).T + _TINY
    W = balance(W, blocks.products(X, ground, jnp.ones((N, 1), X.dtype)))
    step = lambda W, _: (improve(X, ground, W), None)
    W = jax.lax.scan(step, W, length=_FIRST_STEPS)[0]
    return Basis(W, jnp.zeros((), jnp.int32))


def improve(X: Array, ground: blocks.Ground, W: Array) -> Array:
    """One step to the least sum of q_n q_n' (C - W W')_nn'^2 off the diagonal.

    A multiplicative step (Ding et al., 2005). Words weigh q, one over the sum of their
    row, so that those far from all others count as well; then rows are balanced.
    """
    q = 1.0 / (row_sums(W) + _TINY)
    found = blocks.products(
        X, ground, jnp.concatenate([q * W, jnp.ones_like(q)], axis=1)
    )
    target = found[:, :-1] + jnp.sum(W**2, axis=1, keepdims=True) * q * W
    ratio = target / (W @ (W.T @ (q * W)))
    W = jnp.maximum(W * (1.0 - _STRIDE + _STRIDE * ratio), _TINY)
    return balance(W, found[:, -1:])


def balance(W: Array, sums: Array) -> Array:
    """W with rows scaled until those of W W' have given sums [N, 1], or nearly."""
    tiny = jnp.finfo(W.dtype).tiny
    body = lambda _, W: W * jnp.sqrt(sums / jnp.maximum(row_sums(W), tiny))
    return jnp.maximum(jax.lax.fori_loop(0, _BALANCE, body, W), _TINY)


def row_sums(W: Array) -> Array:
    """Of W W' off its diagonal, [N, 1]."""
    return jnp.sum(W * (jnp.sum(W, axis=0, keepdims=True) - W), axis=1, keepdims=True)


def _error(kernel: LowRankKernel, X: Array, ground: blocks.Ground) -> Array:
    """Relative L1 error of products with document-like vectors."""
    y = blocks.probes(X.shape[0], X.dtype)[1]
    return blocks.probe_error(kernel.forward(y.T)[0].T, X, ground)
