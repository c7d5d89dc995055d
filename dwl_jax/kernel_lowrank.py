"""C as its diagonal and a matrix of low rank, in place of N x N numbers.

Off its diagonal a smooth kernel is nearly of low rank. With Q an orthonormal basis of
its largest eigenvalues and P = Q Q', the matrix P (C - I) P + diagonal stands for C:
its diagonal is exactly 1, and a product costs 4 N r instead of 2 N^2. The basis comes
from powers of C - I that are formed a block of rows at a time, and the next step goes
on from it. `image` = (C - I) Q carries the gradient: all of it but the part that no
vector of the basis sees on either side, that of P dC + dC P - P dC P.

Entries of low rank may be negative where C is small. No logarithm ever sees that: a
product is at least the smallest entry of the true row times the sum of v, which is a
bound that the true product keeps as well; gradients follow whichever of both was used.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array
MAX_REACH = 32.0  # of cost / epsilon: as for the plain form of a dense kernel

_PASSES = 3  # powers of C - I that a first basis takes
_LEAST = 1e-3  # of a diagonal entry after low rank has taken its part


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    """C near Q S Q' + diag(own); gradients flow through `image`."""

    image: Array  # [N, r] (C - I) Q
    basis: Array  # [N, r] Q
    small: Array  # [r, r] S = Q' (C - I) Q
    own: Array  # [N] 1 - diagonal of Q S Q'
    least: Array  # [N] smallest entry of each row of C
    error: Array  # [] relative L1 error of products with document-like vectors
    fits: Array  # [] bool: no exponent is too large for plain sums

    form: Literal["plain"] = dataclasses.field(
        metadata={"static": True}, default="plain"
    )
    axis: Literal[0, -1] = dataclasses.field(metadata={"static": True}, default=-1)

    @property
    def num_words(self) -> int:
        """N."""
        return self.basis.shape[0]

    @property
    def next_basis(self) -> Array:
        """An orthonormal basis that is one power of C - I nearer, [N, r]."""
        return jnp.linalg.qr(jax.lax.stop_gradient(self.image))[0]

    def forward(self, v: Array) -> tuple[Array, tuple[Array, Array]]:
        """C v over the words' axis; where low rank was above its bound, and Q' v."""
        ones = jnp.ones_like(self.basis[:, :1])
        few = self._shrink(jnp.concatenate([self.basis, ones], axis=1), v)
        few, total = few[:-1], few[-1:]
        near = self._grow(few)
        bound = jnp.moveaxis(total, 0, self.axis) * self._along(self.least, v)
        above = near > bound
        u = self._along(self.own, v) * v + jnp.where(above, near, bound)
        return u, (above, few)

    def pull(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The product v * C' (w / u): the derivative of `forward` exactly."""
        above, _ = aux
        a = w / u
        near = self._grow(self._shrink(self.basis, jnp.where(above, a, 0.0)))
        below = jnp.where(above, 0.0, a) * self._along(self.least, a)
        bound = jnp.sum(below, axis=self.axis, keepdims=True)
        return v * (self._along(self.own, a) * a + near + bound)

    def outer(self, w: Array, u: Array, v: Array, aux: tuple) -> Array:
        """The cotangent of `image` when w is the one of log u, [N, r]."""
        above, few = aux
        a = jnp.where(above, w / u, 0.0)
        A = self._outer(a, few)
        B = self._outer(v, self._shrink(self.basis, a))
        return A + B - self.basis @ (self.basis.T @ A)

    def _shrink(self, basis: Array, v: Array) -> Array:
        """Products of the columns with v, [r, ...]."""
        return jnp.tensordot(basis, v, axes=((0,), (self.axis % v.ndim,)))

    def _grow(self, few: Array) -> Array:
        """Q S times few."""
        near = jnp.tensordot(self.basis, jnp.tensordot(self.small, few, axes=1), axes=1)
        return jnp.moveaxis(near, 0, self.axis)

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
        return jnp.zeros_like(self.image)

    def cotangent(self, image_bar: Array) -> Any:
        """A gradient for `image` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("basis", "small", "own", "least", "error", "fits"))
        return dataclasses.replace(self, image=image_bar, **none)


def build(
    X: Array, ground: blocks.Ground, *, rank: int, basis: Array | None = None
) -> LowRankKernel:
    """The low-rank kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.
      rank: r, at most N; static.
      basis: orthonormal columns to go on from (`next_basis` of a kernel near this one),
        [N, r]; found by powers of C - I from a fixed draw if None.

    Returns:
      The kernel.
    """
    N = X.shape[0]
    rank = min(rank, N)
    if basis is None:
        basis = first_basis(X, ground, rank)
    if basis.shape != (N, rank):
        raise ValueError(f"basis must be {(N, rank)}, got {basis.shape}.")
    basis = jax.lax.stop_gradient(basis)
    probes = blocks.probes(N, X.dtype)
    both, reach = blocks.product(X, jnp.concatenate([basis, probes], axis=1), ground)
    image, exact = both[:, :rank], jax.lax.stop_gradient(both[:, rank:])
    S = basis.T @ jax.lax.stop_gradient(image)
    small = 0.5 * (S + S.T)
    right = basis @ small
    diagonal = jnp.sum(right * basis, axis=-1)
    near = right @ (basis.T @ probes) - diagonal[:, None] * probes
    return LowRankKernel(
        image=image,
        basis=basis,
        small=small,
        own=jnp.maximum(1.0 - diagonal, _LEAST),
        least=jnp.exp(-jnp.minimum(reach, MAX_REACH)),
        error=jnp.sum(jnp.abs(near - exact)) / jnp.sum(exact),
        fits=jnp.max(reach) <= MAX_REACH,
    )


def first_basis(X: Array, ground: blocks.Ground, rank: int) -> Array:
    """Orthonormal columns near the largest eigenvectors of C - I, [N, r]."""
    X = jax.lax.stop_gradient(X)
    Q = jax.random.normal(jax.random.key(0), (X.shape[0], rank), X.dtype)
    for _ in range(_PASSES):
        Q = jnp.linalg.qr(blocks.product(X, Q, ground)[0])[0]
    return Q
