"""C as its diagonal and a positive matrix of low rank, in place of N x N numbers.

Off its diagonal a smooth kernel is nearly of low rank: C is near W W' + diag(own) with
W >= 0, [N, r]. Eigenvectors are nearer in the mean, but they make negative entries, and
a barycenter takes logarithms of small products; with W >= 0 every product is positive.
W is found by the multiplicative steps of non-negative factorisation, each a product of
C with W by blocks of rows, and improved by one more every second training step, while
the embeddings move: nothing of size N^2 is kept.

Gradients in v are those of the product as it is computed. Gradients in X are those of C
itself and never of its factors: embeddings that descend through an approximation learn
to deceive it. Each step takes the entries with a sample of words, drawn anew, and
counts each for as many as it stands for.
"""

import dataclasses
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array
_SAMPLE = 128  # words whose entries carry the gradient of a step
_FIRST_STEPS = 30  # of the factorisation, from columns of C
_RENEW = 2  # training steps between two of its steps
_LEAST = 1e-3  # of a diagonal entry after low rank has taken its part
_TINY = 1e-6  # least entry of W: a zero would stay one


class Basis(NamedTuple):
    """What a kernel goes on from."""

    W: Array  # [N, r], positive
    age: Array  # [] int32: kernels made before; it also numbers the samples


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    """C near W W' + diag(own); gradients flow through `entries`."""

    entries: Array  # [N, n] C between all words and a sample of them
    sample: Array  # [n] int32
    counted: Array  # [n] how many words each of them stands for
    basis: Basis
    own: Array  # [N] 1 - diagonal of W W'
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
        """The cotangent of `entries` when w is the one of log u, [N, n]."""
        del aux
        others = [i for i in range(v.ndim) if i != self.axis % v.ndim]
        few = jnp.take(v, self.sample, axis=self.axis)
        return self.counted[None, :] * jnp.tensordot(w / u, few, axes=(others, others))

    def _times(self, v: Array) -> Array:
        """(W W' + diag(own)) v over the words' axis."""
        W = self.basis.W
        few = jnp.tensordot(W, v, axes=((0,), (self.axis % v.ndim,)))
        near = jnp.moveaxis(jnp.tensordot(W, few, axes=1), 0, self.axis)
        shape = [1] * v.ndim
        shape[self.axis] = -1
        return self.own.reshape(shape) * v + near

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.entries)

    def cotangent(self, entries_bar: Array) -> Any:
        """A gradient for `entries` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("sample", "counted", "basis", "own", "error", "fits"))
        return dataclasses.replace(self, entries=entries_bar, **none)


def build(
    X: Array,
    ground: blocks.Ground,
    *,
    rank: int,
    basis: Basis | None = None,
    share: Array | None = None,
) -> LowRankKernel:
    """The low-rank kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      rank: r, at most N; static.
      basis: of a kernel near it, improved if it is old; found if None.
      share: of all mass that words have, [N]: what the sample is drawn by.

    Returns:
      The kernel.
    """
    Z = jax.lax.stop_gradient(X)
    if basis is None:
        basis = find(Z, ground, rank)
    else:
        basis = jax.lax.cond(
            (basis.age > 0) & (basis.age % _RENEW == 0),
            lambda basis: basis._replace(W=improve(Z, ground, basis.W)),
            lambda basis: basis,
            basis,
        )
    sample, counted = draw(basis.age, X.shape[0], share)
    diagonal = jnp.sum(basis.W**2, axis=1)
    kernel = LowRankKernel(
        entries=blocks.off_diagonal(sample, X[sample], X, ground).T,
        sample=sample,
        counted=counted.astype(X.dtype),
        basis=basis,
        own=jnp.maximum(1.0 - diagonal, _LEAST),
        error=jnp.zeros((), X.dtype),
        fits=jnp.all(diagonal > 4.0 * basis.W.shape[1] * _TINY**2),
    )
    return dataclasses.replace(kernel, error=_error(kernel, Z, ground))


def draw(number: Array, num_words: int, share: Array | None) -> tuple[Array, Array]:
    """A sample of words by their share of all mass, and how many each stands for.

    Half of the chance is everyone's, so that nobody stands for more than 2 N / n.
    Places on the line of all chances are evenly spaced: large shares are certain.
    """
    n = min(_SAMPLE, num_words)
    if n == num_words:
        return jnp.arange(n), jnp.ones(n)
    chance = jnp.full(num_words, 1.0 / num_words)
    if share is not None:
        chance = 0.5 * (chance + share / jnp.sum(share))
    key = jax.random.fold_in(jax.random.key(0), number)
    line = jnp.cumsum(chance)
    places = (jnp.arange(n) + jax.random.uniform(key, (n,))) / n * line[-1]
    sample = jnp.searchsorted(line, places)
    return sample, 1.0 / (n * chance[sample])


def find(X: Array, ground: blocks.Ground, rank: int) -> Basis:
    """The basis of a kernel that nothing is known of, from some columns of it."""
    N = X.shape[0]
    words = jax.random.permutation(jax.random.key(0), N)[: min(rank, N)]
    W = blocks.off_diagonal(words, X[words], X, ground).T + _TINY
    step = lambda W, _: (improve(X, ground, W), None)
    W = jax.lax.scan(step, _fitted(X, ground, W), length=_FIRST_STEPS)[0]
    return Basis(W, jnp.zeros((), jnp.int32))


def _fitted(X: Array, ground: blocks.Ground, W: Array) -> Array:
    """The multiple of W whose W W' is nearest to C - I."""
    gram = W.T @ W
    return W * jnp.sqrt(jnp.sum(W * products(X, ground, W)) / jnp.sum(gram**2))


def improve(X: Array, ground: blocks.Ground, W: Array) -> Array:
    """One step to the least |C - W W'|^2 off the diagonal (Ding et al., 2005)."""
    target = products(X, ground, W) + jnp.sum(W**2, axis=1, keepdims=True) * W
    return jnp.maximum(0.5 * W * (1.0 + target / (W @ (W.T @ W))), _TINY)


def products(X: Array, ground: blocks.Ground, W: Array) -> Array:
    """(C - I) W, [N, r], by blocks of rows."""
    some = lambda rows, X_rows: blocks.off_diagonal(rows, X_rows, X, ground) @ W
    return blocks.map_rows(some, X)


def _error(kernel: LowRankKernel, X: Array, ground: blocks.Ground) -> Array:
    """Relative L1 error of products with document-like vectors."""
    y = blocks.probes(X.shape[0], X.dtype)[1]
    return blocks.probe_error(kernel.forward(y.T)[0].T, X, ground)
