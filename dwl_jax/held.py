"""C for one Sinkhorn iteration, as a matrix that is held from step to step.

From scalings of 1, the first iteration of Algorithm 2 is

    u = C 1,   v_k = log C (b_k / u),   log y = sum_k lambda_k v_k

so that a batch needs nothing of C but v, the topics' own documents: one product with C
for each topic, one more for its gradient, and none for a document. C is made by blocks
of rows and is the one array of N x N there is: the gradient in the embeddings goes
through all of its entries, and makes them again, block by block.

Numbers are plain. Where all cost / epsilon is small, no entry of C is lost; where it is
large, what a word keeps, b_k / u with u at least 1, bounds C (b_k / u) from below, and
nothing that exp loses counts beside it unless a topic's masses lie as far apart.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp

from dwl_jax import blocks

Array = jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class HeldKernel:
    """C of all words; gradients flow through X."""

    C: Array  # [N, N]
    u: Array  # [N] C 1: sums of rows, diagonal included
    reach: Array  # [] largest cost / epsilon
    X: Array  # [N, dim]
    ground: blocks.Ground

    form: Literal["held"] = dataclasses.field(metadata={"static": True}, default="held")

    @property
    def num_words(self) -> int:
        """N."""
        return self.C.shape[0]

    def row_sums(self) -> Array:
        """Of C off its diagonal, [N]."""
        return self.u - 1.0

    def vertices(self, log_B: Array) -> Array:
        """Log documents of the topics, v = log C (b / u), [K, N]; differentiable."""
        return _vertices(log_B, self.X, self.C, self.u, self.ground)


def make(X: Array, ground: blocks.Ground) -> HeldKernel:
    """The kernel of embeddings.

    Args:
      X: embeddings, [N, dim]; differentiable.
      ground: the cost, from `blocks.ground`.

    Returns:
      The kernel.
    """
    Z = jax.lax.stop_gradient(X)

    def some(C, block):
        exponent = ground.exponent(blocks.between(Z, block))
        C = jax.lax.dynamic_update_slice(C, jnp.exp(-exponent), (block[0], 0))
        return C, jnp.max(exponent)

    C, reach = blocks.scan_rows(some, jnp.zeros((len(Z), len(Z)), Z.dtype))
    return HeldKernel(C, jnp.sum(C, axis=1), jnp.max(reach), X, ground)


@jax.custom_vjp
def _vertices(log_B, X, C, u, ground):
    return _forward(log_B, X, C, u, ground)[0]


def _forward(log_B, X, C, u, ground):
    q = jnp.exp(log_B) / u[None, :]
    phi = q @ C
    return jnp.log(phi), (q, phi, X, C, u, ground)


def _backward(residuals, v_bar):
    """Through phi = q C and q = b / (C 1), with C_nj(||x_n - x_j||^2)."""
    q, phi, X, C, u, ground = residuals
    W = v_bar / phi
    q_bar = W @ C
    u_bar = -jnp.sum(q_bar * q, axis=0) / u
    left, right = jnp.concatenate([q, W]), jnp.concatenate([W, q])

    def some(X_bar, block):
        begin, size = block
        cut = lambda x: jax.lax.dynamic_slice_in_dim(x, begin, size, -1)
        # cotangents of C_nj and C_jn, which are one number
        C_bar = cut(left).T @ right + cut(u_bar)[:, None] + u_bar[None, :]
        C_n = jax.lax.dynamic_slice_in_dim(C, begin, size)
        pull = C_bar * ground.fall(C_n, blocks.between(X, block))
        X_n = jax.lax.dynamic_slice_in_dim(X, begin, size)
        rows = 2.0 * (pull @ X - jnp.sum(pull, axis=1, keepdims=True) * X_n)
        return jax.lax.dynamic_update_slice(X_bar, rows, (begin, 0)), None

    X_bar, _ = blocks.scan_rows(some, jnp.zeros_like(X))
    return q_bar * q, X_bar, None, None, None


_vertices.defvjp(_forward, _backward)
