"""C as its diagonal and a matrix of low rank, in place of N x N numbers.

Off its diagonal a smooth kernel is nearly of low rank. With the diagonal it is not, and
Nystroem's C_nm W^-1 C_mn takes that diagonal for what it should predict: it loses half
and more of the rest. Here landmarks give features alone, F = C_nm T [N, r]; the core
M of C near F M F' + diagonal is a least-squares fit to entries between words that
differ. T leads from the landmarks to the largest eigenvectors of that fit; it is
renewed each epoch (`find`). Features and core are made anew in each step, from the
landmarks and some words: nothing costs more than N times the number of landmarks, and
gradients go through both.

Entries of low rank may be negative where C is small. No logarithm ever sees that: a
product is at least the smallest entry that a word has with any landmark times the sum
of v. Gradients in v follow whichever of both was used; those in X take that smallest
entry for a constant.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array
MAX_REACH = 32.0  # of cost / epsilon: as for the plain form of a dense kernel

_LANDMARKS = 256  # or twice the rank
_FITTED = 512  # words on either side of the entries that a core is fitted to
_LEAST = 1e-3  # of a diagonal entry after low rank has taken its part
_RIDGE = 1e-4  # of least squares, in units of the largest eigenvalue


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    """C near F (F M)' + diag(own); gradients flow through `factors`."""

    factors: Array  # [N, 2 r] F and F M
    own: Array  # [N] 1 - diagonal of F M F'
    least: Array  # [N] smallest entry of each row of C, by the landmarks
    map: Array  # [m, r] T
    error: Array  # [] relative L1 error of products with document-like vectors
    fits: Array  # [] bool: no exponent is too large for plain sums

    form: Literal["plain"] = dataclasses.field(
        metadata={"static": True}, default="plain"
    )
    axis: Literal[0, -1] = dataclasses.field(metadata={"static": True}, default=-1)

    @property
    def num_words(self) -> int:
        """N."""
        return self.factors.shape[0]

    @property
    def next_basis(self) -> Array:
        """The map from landmarks as it is, [m, r]."""
        return self.map

    def forward(self, v: Array) -> tuple[Array, tuple[Array, Array]]:
        """C v over the words' axis; where low rank was above its bound, and F' v."""
        left, right = self._halves()
        few = self._shrink(left, v)
        near = self._grow(right, few)
        total = jnp.sum(v, axis=self.axis, keepdims=True)
        bound = total * self._along(self.least, v)
        above = near > bound
        u = self._along(self.own, v) * v + jnp.where(above, near, bound)
        return u, (above, few)

    def pull(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The product v * C' (w / u): the derivative of `forward` exactly."""
        left, right = self._halves()
        above, _ = aux
        a = w / u
        near = self._grow(left, self._shrink(right, jnp.where(above, a, 0.0)))
        below = jnp.where(above, 0.0, a) * self._along(self.least, a)
        bound = jnp.sum(below, axis=self.axis, keepdims=True)
        return v * (self._along(self.own, a) * a + near + bound)

    def outer(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The cotangent of `factors` when w is the one of log u, [N, 2 r]."""
        left, right = self._halves()
        above, few = aux
        a = w / u
        near = jnp.where(above, a, 0.0)
        others = [i for i in range(a.ndim) if i != self.axis % a.ndim]
        own = jnp.where(self.own > _LEAST, jnp.sum(a * v, axis=others), 0.0)[:, None]
        left_bar = self._outer(v, self._shrink(right, near)) - own * right
        right_bar = self._outer(near, few) - own * left
        return jnp.concatenate([left_bar, right_bar], axis=1)

    def _halves(self) -> list[Array]:
        """F and F M, [N, r] each."""
        return jnp.split(self.factors, 2, axis=1)

    def _shrink(self, columns: Array, v: Array) -> Array:
        """Products of the columns with v, [r, ...]."""
        return jnp.tensordot(columns, v, axes=((0,), (self.axis % v.ndim,)))

    def _grow(self, columns: Array, few: Array) -> Array:
        """Sums of the columns, times few."""
        return jnp.moveaxis(jnp.tensordot(columns, few, axes=1), 0, self.axis)

    def _outer(self, v: Array, few: Array) -> Array:
        """Sum over all axes but the words' of v (outer) few, [N, r]."""
        others = [i for i in range(v.ndim) if i != self.axis % v.ndim]
        return jnp.tensordot(v, few, axes=(others, list(range(1, few.ndim))))

    def _along(self, x: Array, like: Array) -> Array:
        """[N] against the axis of the words."""
        shape = [1] * like.ndim
        shape[self.axis] = -1
        return x.reshape(shape)

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.factors)

    def cotangent(self, factors_bar: Array) -> Any:
        """A gradient for `factors` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("own", "least", "map", "error", "fits"))
        return dataclasses.replace(self, factors=factors_bar, **none)


def build(
    X: Array, ground: blocks.Ground, *, rank: int, basis: Array | None = None
) -> LowRankKernel:
    """The low-rank kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      rank: r, at most N; static.
      basis: the map from landmarks, from `find`, [m, r]; found if None.

    Returns:
      The kernel.
    """
    if basis is None:
        basis = find(X, ground, rank)
    want = (_num_landmarks(X.shape[0], rank), min(rank, X.shape[0]))
    if basis.shape != want:
        raise ValueError(f"basis must be {want}, got {basis.shape}.")
    basis = jax.lax.stop_gradient(basis)
    seen = landmark_entries(X, ground, basis.shape[0])
    left = seen @ basis
    right = left @ core(left, X, ground, _FITTED)
    diagonal = jax.lax.stop_gradient(jnp.sum(left * right, axis=1))
    least = jax.lax.stop_gradient(jnp.min(seen, axis=1))
    least = jnp.maximum(least, jnp.exp(-MAX_REACH))
    kernel = LowRankKernel(
        factors=jnp.concatenate([left, right], axis=1),
        own=jnp.maximum(1.0 - diagonal, _LEAST),
        least=least,
        map=basis,
        error=jnp.zeros((), X.dtype),
        fits=jnp.all(least > jnp.exp(-MAX_REACH)),
    )
    return dataclasses.replace(kernel, error=_error(kernel, X, ground))


def find(X: Array, ground: blocks.Ground, rank: int) -> Array:
    """T, from the landmarks to the r largest eigenvectors of a fit by all, [m, r]."""
    X = jax.lax.stop_gradient(X)
    N = X.shape[0]
    number = _num_landmarks(N, rank)
    seen = landmark_entries(X, ground, number)
    fit = core(seen, X, ground, 4 * number)
    value, vector = jnp.linalg.eigh(seen.T @ seen)
    size = jnp.sqrt(jnp.maximum(value, 0.0))
    inner = size[:, None] * (vector.T @ fit @ vector) * size[None, :]
    inner_value, inner_vector = jnp.linalg.eigh(inner)
    largest = jnp.argsort(-jnp.abs(inner_value))[: min(rank, N)]
    inverse = size / (value + _RIDGE**2 * value[-1])
    inverse = jnp.where(value > 0.0, inverse, 0.0)
    return vector @ (inverse[:, None] * inner_vector[:, largest])


def landmark_entries(X: Array, ground: blocks.Ground, number: int) -> Array:
    """C between words and landmarks, [N, m]; their columns' mean for a word and itself.

    Landmarks are evenly spread over the vocabulary.
    """
    N = X.shape[0]
    words = spread(N, number)
    C = blocks.off_diagonal(words, X[words], X, ground).T
    own = jnp.arange(N)[:, None] == words[None, :]
    return jnp.where(own, jnp.sum(C, axis=0, keepdims=True) / max(N - 1, 1), C)


def core(left: Array, X: Array, ground: blocks.Ground, number: int) -> Array:
    """M of left M left' nearest to C between two sets of `number` words, [r, r]."""
    N = X.shape[0]
    words = spread(N, 2 * min(number, max(N // 2, 1)))
    I, J = words[0::2], words[1::2]
    C = jnp.exp(-ground.exponent(blocks.squared_distances(X[I], X[J])))
    M = _regress(left[I], _regress(left[J], C.T).T)
    return 0.5 * (M + M.T)


def spread(num_words: int, number: int) -> Array:
    """So many words, evenly spread over the vocabulary."""
    return (jnp.arange(number) * num_words) // number


def _regress(A: Array, Y: Array) -> Array:
    """Argument of the least |A Z - Y|^2, with a small ridge, [r, n]."""
    gram = A.T @ A
    ridge = _RIDGE * jnp.trace(gram) * jnp.eye(gram.shape[0], dtype=gram.dtype)
    return jax.scipy.linalg.solve(gram + ridge, A.T @ Y, assume_a="pos")


def _num_landmarks(num_words: int, rank: int) -> int:
    return min(num_words, max(_LANDMARKS, 2 * rank))


def _error(kernel: LowRankKernel, X: Array, ground: blocks.Ground) -> Array:
    """Relative L1 error of products with document-like vectors, C - I alone."""
    y = blocks.probes(X.shape[0], X.dtype)[1]
    return blocks.probe_error(kernel.forward(y.T)[0].T - y, X, ground)
