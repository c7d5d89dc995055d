"""Algorithm 2 one topic at a time, with rows of C for the words of each topic alone.

With b_k on the topic's own words apart from the rest of it, C the rows of its own words
and scal_k = y / phi_k, an iteration is

    u_k   = C scal_k                                     at the topic's own words
    phi_k = C' (b_k / u_k) + rest_k / (scal_k + row) + tail_k

and log y = sum_k lambda_k log phi_k: see `kernel_topics.py` for row and tail. Nothing
of size K N is held for a document but phi. From a cold start the scalings are 1 for all
documents, and they share the first iteration. Everything is a number here, no log: C is
at least exp(-60), so that no product is 0. Words come first, documents last.
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


def send(rows: Array, own: Array, rest: Array, row: Array, tail: Array, scal: Array):
    """Both products for one topic: scal [N, s] -> phi [N, s], and u [m, s].

    Args:
      rows: of C for the topic's own words, [m, N].
      own: their masses in the topic, [m].
      rest: masses of all other words, [N], 0 for its own.
      row: sums of C without its diagonal, [N].
      tail: what the topic's other words give to others, [N].
      scal: [N, s].
    """
    u = rows @ scal
    given = rows.T @ (own[:, None] / u)
    phi = given + rest[:, None] / (scal + row[:, None]) + tail[:, None]
    return jnp.maximum(phi, _TINY), u


def first(kernel: Kernel, B: Array) -> Array:
    """phi of the first iteration, at scalings of 1, for all documents, [K, N, 1]."""
    words, row, tail = kernel.words, kernel.basis.row, kernel.basis.tail
    ones = jnp.ones((B.shape[1], 1), B.dtype)
    alone = lambda *topic: send(*topic[:3], row, topic[3], ones)[0]
    return jax.vmap(alone)(kernel.rows, own(B, words), rest(B, words), tail)


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
    B, lam, basis = jnp.exp(log_B), lam.T, kernel.basis
    N, s = B.shape[1], lam.shape[1]
    topics = (kernel.rows, own(B, kernel.words), rest(B, kernel.words), basis.tail)
    again = lambda log_y, phi: _iterate(*topics, basis.row, lam, jnp.exp(log_y), phi)
    if log_scal is None:
        before = jnp.zeros((N, 1), B.dtype), jnp.ones((*B.shape, 1), B.dtype)
        phi = first(kernel, B)
        now = jnp.tensordot(jnp.log(phi[..., 0]), lam, axes=((0,), (0,))), phi
        left = num_iters - 1
        if left > 1:  # from here on each document has a phi of its own
            now, left = again(*now), left - 1
    else:
        before, left = None, num_iters
        now = jnp.zeros((N, s), B.dtype), jnp.exp(-log_scal.transpose(1, 2, 0))
    if left:
        more = lambda now, _: (again(*now), None)
        before = jax.lax.scan(more, now, length=left - 1)[0] if left > 1 else now
        now = again(*before)
    log_y, phi = now
    error = _disagreement(*jax.lax.stop_gradient((lam, *before, log_y, phi)))
    return log_y.T, (log_y[None] - jnp.log(phi)).transpose(2, 0, 1), error


def _disagreement(lam, log_y_before, phi_before, log_y, phi):
    """L1 gap between y and the document side of each topic's plan, weighted by lam."""
    y_before, y = jnp.exp(log_y_before), jnp.exp(log_y)

    def topic(total, args):
        lam, phi_before, phi = args
        gap = jnp.abs(y_before / phi_before * phi - y)
        return total + lam * (jnp.ones(gap.shape[0], gap.dtype) @ gap), None

    return jax.lax.scan(topic, jnp.zeros_like(lam[0]), (lam, phi_before, phi))[0]


@jax.custom_vjp
def _iterate(rows, own, rest, tail, row, lam, y, phi):
    """One iteration of all documents: log_y [N, s] and phi [K, N, s].

    From y [N, s] and phi [K, N, s], or [K, N, 1] if documents share it; no gradient
    goes to row and tail.
    """
    return _by_topics(rows, own, rest, tail, row, lam, y, phi)[:2]


def _by_topics(rows, own, rest, tail, row, lam, y, phi):
    """log_y, phi, and the topics' own u, [K, m, s]."""

    def topic(log_y, args):
        rows, own, rest, tail, lam, phi = args
        new, u = send(rows, own, rest, row, tail, y / phi)
        return log_y + lam[None, :] * jnp.log(new), (new, u)

    topics = (rows, own, rest, tail, lam, phi)
    log_y, (new, u) = jax.lax.scan(topic, jnp.zeros_like(y), topics)
    return log_y, new, u


def _iterate_fwd(*args):
    args = tuple(arg.value for arg in args)
    log_y, new, u = _by_topics(*args)
    return (log_y, new), (args, new, u)


def _iterate_back(residuals, cotangents):
    """Its transpose, a topic at a time as well."""
    (rows, own, rest, tail, row, lam, y, phi), new, u = residuals
    of_log_y, of_new = cotangents
    nobody = isinstance(of_new, SymbolicZero)
    if isinstance(of_log_y, SymbolicZero):
        of_log_y = jnp.zeros_like(y)

    # Sums as products with ones: XLA adds numbers of a row one after the other.
    of_docs, of_words = jnp.ones(y.shape[1], y.dtype), jnp.ones(y.shape[0], y.dtype)

    def topic(y_bar, args):
        rows, own, rest, lam, phi, new, u, *of_new = args
        scal = y / phi
        q = own[:, None] / u
        other = 1.0 / (scal + row[:, None])
        lam_bar = of_words @ (jnp.log(new) * of_log_y)
        new_bar = lam[None, :] * of_log_y / new
        if of_new:
            new_bar += of_new[0]
        q_bar = rows @ new_bar
        u_bar = -q_bar * q / u
        by_other = new_bar * other
        scal_bar = rows.T @ u_bar - by_other * rest[:, None] * other
        rows_bar = q @ new_bar.T + u_bar @ scal.T
        more = scal_bar / phi
        phi_bar = -more * scal
        if phi.shape[1] == 1:
            phi_bar = (phi_bar @ of_docs)[:, None]
        own_bar, rest_bar = (q_bar / u) @ of_docs, by_other @ of_docs
        return y_bar + more, (rows_bar, own_bar, rest_bar, lam_bar, phi_bar)

    args = (rows, own, rest, lam, phi, new, u) + (() if nobody else (of_new,))
    y_bar, bars = jax.lax.scan(topic, jnp.zeros_like(y), args)
    rows_bar, own_bar, rest_bar, lam_bar, phi_bar = bars
    return rows_bar, own_bar, rest_bar, None, None, lam_bar, y_bar, phi_bar


_iterate.defvjp(_iterate_fwd, _iterate_back, symbolic_zeros=True)
