"""A dense kernel in the log domain: always right, an exponential per entry of C.

All over the last axis, with log_C [N, N] and masses as logs, [..., N].
"""

import jax
import jax.numpy as jnp

Array = jax.Array


def logsumexp(log_C: Array, log_v: Array) -> Array:
    """log(C v), a word at a time: memory stays that of log_v."""
    one = lambda row: jax.nn.logsumexp(
        log_v + jnp.broadcast_to(row, log_v.shape), axis=-1
    )
    return jnp.moveaxis(jax.lax.map(one, log_C), 0, -1)


def pull(log_C: Array, w: Array, log_u: Array, log_v: Array) -> Array:
    """The product v * C (w / u) of `DenseKernel.pull`, a word at a time."""

    def one(row_and_v):
        row, v = row_and_v
        row = jnp.broadcast_to(row, w.shape)
        return jnp.sum(w * jnp.exp(v[..., None] + row - log_u), axis=-1)

    pulled = jax.lax.map(one, (log_C, jnp.moveaxis(log_v, -1, 0)))
    return jnp.moveaxis(pulled, 0, -1)


def outer(log_C: Array, w: Array, log_u: Array, log_v: Array) -> Array:
    """Sum over rows of w / u (outer) v, times C, for arrays of shape [rows, N]."""

    def one(row_w_u):
        row, w_i, u_i = row_w_u
        return w_i @ jnp.exp(log_v + row[None, :] - u_i[:, None])

    return jax.lax.map(one, (log_C, w.T, log_u.T))
