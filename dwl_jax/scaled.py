"""A dense kernel between scalings and topics by numbers, at exponents past `plain`.

A column of masses is numbers beside one log, with the largest number exp(H), where H is
half of the largest cost / epsilon. No entry of C is below exp(-2 H), so that products
lie between exp(-H) and N exp(H), and what is too small beside exp(H) to be a float adds
nothing to any of them. Scalings and phi are logs: an exponential and a logarithm per
element are all that an iteration takes. Words are the first axis, [N, K, s].
"""

from typing import Any

import jax
import jax.numpy as jnp

Array = jax.Array
Kernel = Any  # a settled DenseKernel, words first

_LIFT = 16.0  # log of the largest number of a topic: half of what its masses may span


def products(kernel: Kernel, B: Array, log_scal: Array) -> tuple[Array, Array, tuple]:
    """Both products of an iteration, phi = C (B / u) with u = C scal.

    Args:
      kernel: a dense kernel in its scaled form.
      B: log topics, [N, K, 1].
      log_scal: [N, K, s].

    Returns:
      log phi; u as numbers; the logs beside u and beside the numbers of B / u.
    """
    H = 0.5 * kernel.reach
    log_u = jnp.max(log_scal, axis=0, keepdims=True) - H
    u = _apply(kernel, jnp.exp(log_scal - log_u))
    b, log_b = _topics(B)
    largest = jnp.max(b / u, axis=0, keepdims=True)
    log_q = log_b - log_u + jnp.log(largest) - H
    phi = _apply(kernel, _divide(b, u, log_b - log_u - log_q))
    return jnp.log(phi) + log_q, u, (log_u, log_q)


def products_back(
    kernel: Kernel,
    B: Array,
    phi_bar: Array,
    log_phi: Array,
    u: Array,
    log_scal: Array,
    logs: tuple,
    *,
    learn_cost: bool,
) -> tuple[Array, Array, Array | None]:
    """Cotangents of log B (each document's), log scal and log C, from that of log phi.

    Args:
      kernel: a dense kernel in its scaled form.
      B: log topics, [N, K, 1].
      phi_bar: cotangent of log phi, [N, K, s].
      log_phi: as `products` gave it, as are u and logs.
      u: numbers.
      log_scal: what `products` was given.
      logs: beside u and beside the numbers of B / u.
      learn_cost: the cotangent of log C is wanted.
    """
    log_u, log_q = logs
    b, log_b = _topics(B)
    q = _divide(b, u, log_b - log_u - log_q)
    phi_args = (phi_bar, jnp.exp(log_phi - log_q), q)
    q_bar = _pull(kernel, *phi_args)
    u_args = (-q_bar, u, jnp.exp(log_scal - log_u))
    C_bar = None
    if learn_cost:
        C_bar = _outer(kernel, *phi_args) + _outer(kernel, *u_args)
    return q_bar, _pull(kernel, *u_args), C_bar


def _topics(B):
    """Topics as numbers, and the log beside them."""
    log_b = jnp.max(B, axis=0, keepdims=True) - _LIFT
    return jnp.exp(B - log_b), log_b


def _divide(b, u, log_factor):
    """Numbers b / u times a factor that neither b nor 1 / u could take whole."""
    half = jnp.exp(0.5 * log_factor)
    most = jnp.finfo(u.dtype).max  # for words that a topic lacks: 0 times this is 0
    return (b * half) * jnp.minimum(half / u, most)


def _apply(kernel, v):
    """C v; exp(-shift) itself may be no float."""
    half = jnp.exp(-0.5 * kernel.shift)
    return v + half * (half * kernel.product(v))


def _pull(kernel, w, u, v):
    """The product v * C (w / u): no term of it exceeds its w."""
    half = jnp.exp(-0.5 * kernel.shift)
    return w * (v / u) + (v * half) * (half * kernel.product(w / u))


def _outer(kernel, w, u, v):
    """Sum over topics and documents of w / u (outer) v, times C."""
    half = jnp.exp(-0.5 * kernel.shift)
    off = kernel.outer_product(half * (w / u), half * v)
    return off * kernel.matrix + jnp.diag(jnp.sum(w * (v / u), axis=(1, 2)))
