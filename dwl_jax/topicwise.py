"""Algorithm 2 one topic at a time, with rows of C for the words of each topic alone.

With b_k on the topic's own words apart from the rest of it, C the rows of its own words
and scal_k = y / phi_k, an iteration is

    u_k   = C scal_k                                     at the topic's own words
    phi_k = C' (b_k / u_k) + rest_k / (scal_k + row) + tail_k

and log y = sum_k lambda_k log phi_k: see `kernel_topics.py` for row and tail. From a
cold start the scalings are 1 for all documents, and they share the first iteration.
Products are plain numbers: C is at least exp(-60), so that none is 0. What is carried
and kept for the gradient is log phi, found once: a logarithm takes longer than to read
it again. Words come first, documents last.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

Array = jax.Array
Kernel = Any  # with words [K, m], their rows [K, m, N], a basis with row and tail
_TINY = 1e-30  # least phi


def own(B: Array, words: Array) -> Array:
    """Masses of the topics' own words, [K, N] -> [K, m]."""
    return jnp.take_along_axis(B, words, axis=1)


def rest(B: Array, words: Array) -> Array:
    """Masses of all other words, [K, N]."""
    return B.at[jnp.arange(B.shape[0])[:, None], words].set(0.0)


def send(rows: Array, own: Array, rest: Array, tail: Array, row: Array, scal: Array):
    """Both products for one topic: scal [N, s] -> phi [N, s], and u [m, s].

    Args:
      rows: of C for the topic's own words, [m, N].
      own: their masses in the topic, [m].
      rest: masses of all other words, [N], 0 for its own.
      tail: what the topic's other words give to others, [N].
      row: sums of C without its diagonal, [N].
      scal: [N, s].
    """
    u = rows @ scal
    phi = rows.T @ (own[:, None] / u) + rest[:, None] / (scal + row[:, None])
    return jnp.maximum(phi + tail[:, None], _TINY), u


def first(kernel: Kernel, B: Array) -> Array:
    """The first iteration, at scalings of 1, for all documents: log phi [K, N, 1]."""
    ones = jnp.ones((B.shape[1], 1), B.dtype)
    alone = lambda *topic: jnp.log(send(*topic, kernel.basis.row, ones)[0])
    return jax.vmap(alone)(*_topics(kernel, B))


def barycenter(
    log_B: Array, lam: Array, kernel: Kernel, log_scal: Array | None, num_iters: int
) -> tuple[Array, Array, Array]:
    """Barycenters of s documents; see `barycenter.barycenter`.

    Args:
      log_B: log topics, [K, N].
      lam: weights, [s, K].
      kernel: a TopicKernel.
      log_scal: scalings to start from, [s, K, N], or None.
      num_iters: static.

    Returns:
      log_y [s, N], new scalings [s, K, N] and disagreement [s], without gradient.
    """
    B, lam, row = jnp.exp(log_B), lam.T, kernel.basis.row
    topics = _topics(kernel, B)
    again = lambda log_y, log_phi: _iterate(*topics, row, lam, log_y, log_phi)
    if log_scal is None:
        before = jnp.zeros((B.shape[1], 1), B.dtype), jnp.zeros((*B.shape, 1), B.dtype)
        log_phi = first(kernel, B)
        log_y = jnp.tensordot(log_phi[..., 0], lam, axes=((0,), (0,)))
        left = num_iters - 1
        if left > 1:  # from here on each document has a phi of its own
            log_y, log_phi = again(log_y, log_phi)
            left -= 1
    else:
        log_y, left = jnp.zeros((B.shape[1], lam.shape[1]), B.dtype), num_iters
        log_phi = -log_scal.transpose(1, 2, 0)
    if left > 1:
        more = lambda now, _: (again(*now), None)
        log_y, log_phi = jax.lax.scan(more, (log_y, log_phi), length=left - 1)[0]
    if left:
        before = log_y, log_phi
        log_y, log_phi = again(*before)
    error = _disagreement(*jax.lax.stop_gradient((lam, *before, log_y, log_phi)))
    return log_y.T, (log_y[None] - log_phi).transpose(2, 0, 1), error


def _topics(kernel, B):
    """What each topic has: rows, own and other masses, tail."""
    words = kernel.words
    return kernel.rows, own(B, words), rest(B, words), kernel.basis.tail


def _disagreement(lam, log_y_before, log_phi_before, log_y, log_phi):
    """L1 gap between y and the document side of each topic's plan, weighted by lam."""
    y_before, y = jnp.exp(log_y_before), jnp.exp(log_y)

    def topic(total, args):
        lam, log_phi_before, log_phi = args
        gap = jnp.abs(y_before * jnp.exp(log_phi - log_phi_before) - y)
        return total + lam * (jnp.ones(gap.shape[0], gap.dtype) @ gap), None

    every = (lam, log_phi_before, log_phi)
    return jax.lax.scan(topic, jnp.zeros_like(lam[0]), every)[0]


@jax.custom_vjp
def _iterate(rows, own, rest, tail, row, lam, log_y, log_phi):
    """One iteration of all documents: log_y [N, s] and log_phi [K, N, s].

    From log_y [N, s] and log_phi [K, N, s], or [K, N, 1] if documents share it. No
    gradient goes to row and tail.
    """
    return _forward(rows, own, rest, tail, row, lam, log_y, log_phi)[0]


def _forward(rows, own, rest, tail, row, lam, log_y, log_phi):
    """`_iterate`, and what its transpose needs."""
    y = jnp.exp(log_y)

    def topic(log_y, args):
        *topic, lam, log_phi = args
        new, u = send(*topic, row, y * jnp.exp(-log_phi))
        log_new = jnp.log(new)
        return log_y + lam[None, :] * log_new, (log_new, u)

    every = (rows, own, rest, tail, lam, log_phi)
    log_y, (log_new, u) = jax.lax.scan(topic, jnp.zeros_like(y), every)
    return (log_y, log_new), (rows, own, rest, row, lam, y, log_phi, log_new, u)


def _backward(residuals, cotangents):
    """The transpose of `_iterate`, a topic at a time as well."""
    rows, own, rest, row, lam, y, log_phi, log_new, u = residuals
    of_log_y, *of_log_new = cotangents
    if isinstance(of_log_y, SymbolicZero):
        of_log_y = jnp.zeros_like(y)
    if isinstance(of_log_new[0], SymbolicZero):  # nobody asked for the new phi
        of_log_new = []
    # Sums as products with ones: XLA adds the numbers of a row one after the other.
    of_docs, of_words = jnp.ones(y.shape[1], y.dtype), jnp.ones(y.shape[0], y.dtype)

    def topic(y_bar, args):
        rows, own, rest, lam, log_phi, log_new, u, *of_log_new = args
        away = jnp.exp(-log_phi)
        scal = y * away
        among = 1.0 / (scal + row[:, None])
        new_bar = sum(of_log_new, lam[None, :] * of_log_y) * jnp.exp(-log_new)
        lam_bar = of_words @ (log_new * of_log_y)
        rest_bar = new_bar * among
        q, q_bar = own[:, None] / u, rows @ new_bar
        u_bar = -q_bar * q / u
        scal_bar = rows.T @ u_bar - rest[:, None] * rest_bar * among
        rows_bar = q @ new_bar.T + u_bar @ scal.T
        log_phi_bar = -scal_bar * scal
        if log_phi.shape[1] == 1:
            log_phi_bar = (log_phi_bar @ of_docs)[:, None]
        bars = (rows_bar, (q_bar / u) @ of_docs, rest_bar @ of_docs, lam_bar)
        return y_bar + scal_bar * away, (*bars, log_phi_bar)

    every = (rows, own, rest, lam, log_phi, log_new, u, *of_log_new)
    y_bar, bars = jax.lax.scan(topic, jnp.zeros_like(y), every)
    rows_bar, own_bar, rest_bar, lam_bar, log_phi_bar = bars
    return rows_bar, own_bar, rest_bar, None, None, lam_bar, y * y_bar, log_phi_bar


_iterate.defvjp(
    lambda *args: _forward(*(arg.value for arg in args)), _backward, symbolic_zeros=True
)
