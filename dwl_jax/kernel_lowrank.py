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
from typing import Any

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array
MAX_REACH = 40.0  # of cost / epsilon: float32 holds plain sums with room to spare

_PASSES = 3  # powers of C - I that a first basis takes
_LEAST = 1e-3  # of a diagonal entry after low rank has taken its part


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class LowRankKernel:
    """C near Q S Q' + diag(own); gradients flow through `image`."""

    image: Array  # [N, r] (C - I) Q
    basis: Array  # [N, r] Q
    right: Array  # [N, r] Q S with S = Q' (C - I) Q
    own: Array  # [N] 1 - diagonal of Q S Q'
    least: Array  # [N] smallest entry of each row of C
    error: Array  # [] relative L1 error of products with document-like vectors
    fits: Array  # [] bool: no exponent is too large for plain sums

    form = "lowrank"

    @property
    def num_words(self) -> int:
        """N."""
        return self.basis.shape[0]

    @property
    def next_basis(self) -> Array:
        """An orthonormal basis that is one power of C - I nearer, [N, r]."""
        return jnp.linalg.qr(jax.lax.stop_gradient(self.image))[0]

    def _off(self, v: Array) -> tuple[Array, Array]:
        """(C - I) v as low rank has it, and the bound below it, [..., N]."""
        near = (v @ self.right) @ self.basis.T
        return near, jnp.sum(v, axis=-1, keepdims=True) * _along(self.least, v)

    def forward(self, log_v: Array) -> tuple[Array, tuple[Array, Array]]:
        """log(C v) over the last axis; the maxima of log_v, and where the bound was."""
        top = jnp.max(log_v, axis=-1, keepdims=True)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        v = jnp.exp(log_v - top)
        near, bound = self._off(v)
        used = near > bound
        u = _along(self.own, v) * v + jnp.where(used, near, bound)
        return top + jnp.log(u), (top, used)

    def pull(self, w: Array, log_u: Array, log_v: Array, aux) -> Array:
        """exp(log_v) * C' (w exp(-log_u)), the derivative of `forward` exactly."""
        top, used = aux
        a = w * jnp.exp(top - log_u)
        near = (jnp.where(used, a, 0.0) @ self.right) @ self.basis.T
        bound = jnp.sum(
            jnp.where(used, 0.0, a) * _along(self.least, a), axis=-1, keepdims=True
        )
        return jnp.exp(log_v - top) * (_along(self.own, a) * a + near + bound)

    def outer(self, w: Array, log_u: Array, log_v: Array, aux) -> Array:
        """The cotangent of `image` when w is the one of log_u, [N, r]."""
        top, used = aux
        flat = lambda x: jnp.broadcast_to(x, log_v.shape).reshape(-1, self.num_words)
        a = flat(jnp.where(used, w * jnp.exp(top - log_u), 0.0))
        v = flat(jnp.exp(log_v - top))
        A = a.T @ (v @ self.basis)
        B = v.T @ (a @ self.basis)
        return A + B - self.basis @ (self.basis.T @ A)

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.image)

    def cotangent(self, image_bar: Array) -> Any:
        """A gradient for `image` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("basis", "right", "own", "least", "error", "fits"))
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
    right = basis @ (0.5 * (S + S.T))
    diagonal = jnp.sum(right * basis, axis=-1)
    near = right @ (basis.T @ probes) - diagonal[:, None] * probes
    return LowRankKernel(
        image=image,
        basis=basis,
        right=right,
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


def _along(x: Array, like: Array) -> Array:
    """[N] with as many axes as `like` has."""
    return x.reshape((1,) * (like.ndim - 1) + x.shape)
