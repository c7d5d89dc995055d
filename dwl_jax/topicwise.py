"""Algorithm 2 one topic at a time, with rows of C for the words of each topic alone.

With b_k on the topic's own words apart from the rest of it, C the rows of its own words
and scal_k = y / phi_k, an iteration is

    u_k   = C scal_k                                     at the topic's own words
    phi_k = C' (b_k / u_k) + rest_k / (scal_k + row) + tail_k

and log y = sum_k lambda_k log phi_k: see `kernel_topics.py` for row and tail. From a
cold start the scalings are 1 for all documents, and they share the first iteration.
Of the last iteration nothing of size K N is kept for a document: to write phi down
takes longer than to find it again. Everything is a number here, no log: C is at least
exp(-60), so that no product is 0. Words come first, documents last.
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
    return give(rows, own, rest, tail, row, scal, u), u


def give(rows, own, rest, tail, row, scal, u):
    """The second product alone, phi [N, s]."""
    phi = rows.T @ (own[:, None] / u) + rest[:, None] / (scal + row[:, None])
    return jnp.maximum(phi + tail[:, None], _TINY)


def first(kernel: Kernel, B: Array) -> tuple[Array, Array]:
    """The first iteration, at scalings of 1, for all documents: phi [K, N, 1] and u."""
    ones = jnp.ones((B.shape[1], 1), B.dtype)
    alone = lambda *topic: send(*topic, kernel.basis.row, ones)
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
    again = lambda log_y, phi: _iterate(*topics, row, lam, jnp.exp(log_y), phi)
    if log_scal is None:
        before = jnp.zeros((B.shape[1], 1), B.dtype), jnp.ones((*B.shape, 1), B.dtype)
        phi, u = first(kernel, B)
        log_y = jnp.tensordot(jnp.log(phi[..., 0]), lam, axes=((0,), (0,)))
        left = num_iters - 1
        if left > 1:  # from here on each document has a phi of its own
            log_y, phi, _ = again(log_y, phi)
            left -= 1
    else:
        log_y, left = jnp.zeros((B.shape[1], lam.shape[1]), B.dtype), num_iters
        phi = jnp.exp(-log_scal.transpose(1, 2, 0))
    if left > 1:
        more = lambda now, _: (again(*now)[:2], None)
        log_y, phi = jax.lax.scan(more, (log_y, phi), length=left - 1)[0]
    if left:
        before = log_y, phi
        log_y, phi, u = again(*before)
    args = (topics, row, lam, before, u, log_y)
    error = _disagreement(*jax.lax.stop_gradient(args))
    return log_y.T, (log_y[None] - jnp.log(phi)).transpose(2, 0, 1), error


def _topics(kernel, B):
    """What each topic has: rows, own and other masses, tail."""
    words = kernel.words
    return kernel.rows, own(B, words), rest(B, words), kernel.basis.tail


def _disagreement(topics, row, lam, before, u, log_y):
    """L1 gap between y and the document side of each topic's plan, weighted by lam."""
    y_before, y = jnp.exp(before[0]), jnp.exp(log_y)

    def topic(total, args):
        *topic, lam, phi_before, u = args
        scal = y_before / phi_before
        gap = jnp.abs(scal * give(*topic, row, scal, u) - y)
        return total + lam * (jnp.ones(gap.shape[0], gap.dtype) @ gap), None

    every = (*topics, lam, before[1], u)
    return jax.lax.scan(topic, jnp.zeros_like(lam[0]), every)[0]


@jax.custom_vjp
def _iterate(rows, own, rest, tail, row, lam, y, phi):
    """One iteration of all documents: log_y [N, s], phi [K, N, s], u [K, m, s].

    From y [N, s] and phi [K, N, s], or [K, N, 1] if documents share it. No gradient
    goes to row and tail, and none comes from u.
    """

    def topic(log_y, args):
        *topic, lam, phi = args
        new, u = send(*topic, row, y / phi)
        return log_y + lam[None, :] * jnp.log(new), (new, u)

    every = (rows, own, rest, tail, lam, phi)
    log_y, (new, u) = jax.lax.scan(topic, jnp.zeros_like(y), every)
    return log_y, new, u


def _iterate_fwd(*args):
    args = tuple(arg.value for arg in args)
    out = _iterate(*args)
    return out, (args, out[2])


def _iterate_back(residuals, cotangents):
    """Its transpose, a topic at a time as well."""
    (rows, own, rest, tail, row, lam, y, phi), u = residuals
    of_log_y, of_new, _ = cotangents
    if isinstance(of_log_y, SymbolicZero):
        of_log_y = jnp.zeros_like(y)
    of_new = () if isinstance(of_new, SymbolicZero) else (of_new,)
    # Sums as products with ones: XLA adds the numbers of a row one after the other.
    of_docs, of_words = jnp.ones(y.shape[1], y.dtype), jnp.ones(y.shape[0], y.dtype)

    def topic(y_bar, args):
        rows, own, rest, tail, lam, phi, u, *of_new = args
        away = 1.0 / phi
        scal = y * away
        new = give(rows, own, rest, tail, row, scal, u)
        lam_bar = of_words @ (jnp.log(new) * of_log_y)
        new_bar = sum(of_new, lam[None, :] * of_log_y / new)
        by_rest = new_bar / (scal + row[:, None])
        q, q_bar = own[:, None] / u, rows @ new_bar
        u_bar = -q_bar * q / u
        rest_scal_bar = by_rest * rest[:, None] / (scal + row[:, None])
        scal_bar = rows.T @ u_bar - rest_scal_bar
        rows_bar = q @ new_bar.T + u_bar @ scal.T
        scal_bar = scal_bar * away
        phi_bar = -scal_bar * scal
        if phi.shape[1] == 1:
            phi_bar = (phi_bar @ of_docs)[:, None]
        bars = (rows_bar, (q_bar / u) @ of_docs, by_rest @ of_docs, lam_bar, phi_bar)
        return y_bar + scal_bar, bars

    every = (rows, own, rest, tail, lam, phi, u, *of_new)
    y_bar, bars = jax.lax.scan(topic, jnp.zeros_like(y), every)
    rows_bar, own_bar, rest_bar, lam_bar, phi_bar = bars
    return rows_bar, own_bar, rest_bar, None, None, lam_bar, y_bar, phi_bar


_iterate.defvjp(_iterate_fwd, _iterate_back, symbolic_zeros=True)
