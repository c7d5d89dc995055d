"""Optimal transport between documents and topics: plans, costs, and their aggregate.

Two ways, for two uses. The embedding update needs only the sum of a batch's plans, so
`aggregate` runs all documents through the shared kernel at once and no plan of a single
document exists. To look at one pair, `plan` solves it to convergence on its support.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from dwl_jax import kernel as kernel_lib
from dwl_jax import masses
from dwl_jax.documents import Documents

Array = jax.Array
Kernel = kernel_lib.Kernel


class Plan(NamedTuple):
    """Entropic optimal transport between two distributions on n and m places."""

    T: Array  # [n, m], sums to 1
    cost: Array  # [] Tr(T' D)
    error: Array  # [] L1 error of the marginals


def plan(
    u: Array,
    v: Array,
    D: Array,
    epsilon: Array | float,
    *,
    max_iters: int = 2_000,
    tolerance: float = 1e-4,
) -> Plan:
    """Sinkhorn plan of one pair, to convergence, in the log domain by OTT (Eq. 10).

    Args:
      u: masses, [n]; zeros allowed, their rows of the plan are 0.
      v: masses, [m].
      D: cost between the places, [n, m].
      epsilon: entropic weight in the unit of D.
      max_iters: at most so many Sinkhorn iterations.
      tolerance: stop at this L1 error of the marginals.

    Returns:
      A Plan; differentiable (implicitly) with respect to u, v and D.
    """
    from ott.geometry import geometry  # here: it takes as long to load as all else
    from ott.solvers import linear

    chex.assert_shape(D, (u.shape[0], v.shape[0]))
    with jax.numpy_rank_promotion("allow"):
        geom = geometry.Geometry(cost_matrix=D, epsilon=epsilon)
        out = linear.solve(
            geom, a=u, b=v, threshold=tolerance, max_iterations=max_iters
        )
        T = out.matrix
    error = jnp.sum(jnp.abs(T.sum(1) - u)) + jnp.sum(jnp.abs(T.sum(0) - v))
    return Plan(T, jnp.sum(T * D), error)


def plan_between(
    doc_a: Documents, doc_b: Documents, D: Array, epsilon: Array | float, **kwargs
) -> Plan:
    """Plan between two documents on their supports, [S_a, S_b]."""
    block = D[doc_a.words][:, doc_b.words]
    return plan(doc_a.mass, doc_b.mass, block, epsilon, **kwargs)


class Aggregate(NamedTuple):
    """The sum of a batch's transports."""

    T: Array  # [N, N] rows topic, columns document
    error: Array  # [s] L1 error of each plan's document side; its topic side is exact


def aggregate(
    log_b: Array,
    y: Array,
    kernel: Kernel,
    *,
    num_iters: int,
    weight: Array | None = None,
) -> Aggregate:
    """Sum over documents of T_{k_m m}, the transports to their closest topics (Eq. 6).

    Args:
      log_b: log distribution of each document's closest topic, [s, N].
      y: documents, [s, N]; the columns of words outside a document are exactly 0.
      kernel: of the cost D, N words.
      num_iters: Sinkhorn iterations; static.
      weight: of each document in the sum, [s]; 1 if not given.

    Returns:
      The Aggregate. Nothing in it depends on the batch size but `error`.
    """
    s, N = y.shape
    chex.assert_shape(log_b, (s, N))
    weight = jnp.ones((s,), y.dtype) if weight is None else weight
    b = jnp.exp(log_b)

    def run(kernel):
        g = _scalings(log_b, _log(y), kernel, num_iters)
        u = kernel.forward(g)
        T = kernel.outer(weight[:, None] * b, u, g)
        column = kernel.pull(b, u, g)
        return Aggregate(T, jnp.sum(jnp.abs(column - y), axis=-1))

    return kernel_lib.resolve(kernel, run)


def distances(log_B: Array, y: Array, kernel: Kernel, *, num_iters: int) -> Array:
    """Entropic distance of every document to every topic, in units of epsilon.

    Args:
      log_B: log topics, [K, N].
      y: documents, [s, N].
      kernel: of the cost D, N words.
      num_iters: Sinkhorn iterations; static.

    Returns:
      (<T, D> + epsilon KL(T | b y')) / epsilon at the optimum, [s, K].
    """
    log_y = _log(y)[:, None, :]

    def run(kernel):
        g = _scalings(log_B[None, :, :], log_y, kernel, num_iters)
        log_u, log_g = (masses.leave(kernel, x) for x in (kernel.forward(g), g))
        log_f = -log_u  # relative to b: plan = b f C g
        on_words = y[:, None, :] > 0.0
        dual_y = jnp.where(on_words, log_g - log_y, 0.0)
        return jnp.sum(jnp.exp(log_B)[None] * log_f, axis=-1) + jnp.sum(
            y[:, None, :] * dual_y, axis=-1
        )

    return kernel_lib.resolve(kernel, run)


def _scalings(log_b, log_y, kernel, num_iters):
    """The document-side scalings g, as masses, after `num_iters` iterations."""
    b, y = (masses.enter(kernel, x) for x in (log_b, log_y))

    def body(g, _):
        f = masses.ratio(kernel, b, kernel.forward(g))
        return masses.ratio(kernel, y, kernel.forward(f)), None

    start = jnp.broadcast_to(y, jnp.broadcast_shapes(b.shape, y.shape))
    return jax.lax.scan(body, start, length=num_iters)[0]


def _log(y: Array) -> Array:
    """Log of masses, -inf where a word is absent."""
    present = y > 0.0
    return jnp.where(present, jnp.log(jnp.where(present, y, 1.0)), -jnp.inf)
