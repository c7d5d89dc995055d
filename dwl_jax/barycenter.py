"""The Sinkhorn barycenter y_S(B, lambda; D^tau) and its gradient (Algorithm 2).

The loop works on logs. With C the kernel and log_scal the paper's log beta_k:

    log_u_k   = log C beta_k
    log_phi_k = log C' (b_k / C beta_k)
    log_y     = sum_k lambda_k log_phi_k
    log_scal_k <- log_y - log_phi_k

Its gradient is the paper's backward loop, run from the last iteration to the first, and
right for every input at once: topics, weights, first scalings and the kernel.
"""

import functools
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from dwl_jax import kernel as kernel_lib

Array = jax.Array
Kernel = kernel_lib.Kernel
Memory = Literal["store", "recompute"]


class Barycenter(NamedTuple):
    """What Algorithm 2 computes forward, for documents with any leading axes."""

    log_y: Array  # [..., N] log of the barycenter; sums to 1 only at convergence
    log_scal: Array  # [..., K, N] final scalings; [..., K + 1, N] when debiased
    error: Array  # [...] how far the K plans disagree about y: weighted L1; no gradient


def barycenter(
    log_B: Array,
    lam: Array,
    kernel: Kernel,
    *,
    num_iters: int,
    log_scal: Array | None = None,
    debias: bool = False,
    memory: Memory = "store",
) -> Barycenter:
    """Sinkhorn barycenters of K topics for documents that share a kernel (Alg. 2).

    Args:
      log_B: log topic distributions, [K, N], or each document's own, [..., K, N]; -inf
        where a topic has no mass.
      lam: topic weights on the simplex, [..., K].
      kernel: of the distilled cost D^tau, N words.
      num_iters: Sinkhorn iterations, the paper's L; static.
      log_scal: scalings to start from (those an earlier call gave back), or None for 1.
      debias: remove the entropic blur (Janati et al., 2020).
      memory: `store` keeps 2 arrays per iteration for the gradient; `recompute` keeps
        about sqrt(num_iters) of them and runs the loop forward once more.

    Returns:
      A Barycenter. Differentiable once, in reverse mode, with respect to log_B, lam,
      kernel and log_scal.
    """
    K, N = log_B.shape[-2:]
    batch, rows = lam.shape[:-1], K + debias
    if lam.shape[-1] != K:
        raise ValueError(f"lam has {lam.shape[-1]} weights for {K} topics.")
    if kernel.num_words != N:
        raise ValueError(f"topics have {N} words, the kernel {kernel.num_words}.")
    if num_iters < 1:
        raise ValueError(f"num_iters must be at least 1, got {num_iters}.")
    if memory not in ("store", "recompute"):
        raise ValueError(f"memory must be store or recompute, got {memory!r}.")
    if log_scal is None:
        log_scal = jnp.zeros((*batch, rows, N), log_B.dtype)
    if log_scal.shape != (*batch, rows, N):
        raise ValueError(f"log_scal must be {(*batch, rows, N)}, got {log_scal.shape}.")

    if log_B.ndim > 2 and log_B.shape[:-2] != batch:
        raise ValueError(f"lam has batch {batch}, the topics {log_B.shape[:-2]}.")
    log_B = log_B.reshape(-1, K, N)  # one for all documents, or one for each
    lam, h = lam.reshape(-1, K), log_scal.reshape(-1, rows, N)
    if memory == "recompute":
        segment = jax.checkpoint(_solve, static_argnums=(4,))
        length = math.isqrt(num_iters)
        inner, rest = divmod(num_iters - length, length)
        advance = lambda h, _: (segment(log_B, lam, kernel, h, length)[1], None)
        if rest:
            h = segment(log_B, lam, kernel, h, rest)[1]
        h, _ = jax.lax.scan(advance, h, length=inner)
        log_y, h, error = segment(log_B, lam, kernel, h, length)
    else:
        log_y, h, error = _solve(log_B, lam, kernel, h, num_iters)
    return Barycenter(
        log_y.reshape(*batch, N),
        h.reshape(*batch, rows, N),
        jax.lax.stop_gradient(error).reshape(batch),
    )


class _Trace(NamedTuple):
    """What one iteration leaves for the gradient."""

    log_scal: Array  # [s, K (+ 1), N] as the iteration found them
    log_u: Array  # [s, K (+ 1), N]
    log_y: Array  # [s, N]
    aux: tuple  # what the kernel wants to see again, for each of its two products


def _iterate(kernel, log_B, lam, log_scal):
    """One pass of Algorithm 2's forward loop: new scalings, log_phi and the trace."""
    K = log_B.shape[1]
    log_u, aux_u = kernel.forward(log_scal)
    log_q = log_B - log_u[:, :K]
    log_phi, aux_phi = kernel.forward(log_q)
    log_y = jnp.sum(lam[..., None] * log_phi, axis=1)
    log_d = log_scal[:, K:]  # one row when debiased, else none
    log_y = log_y + jnp.sum(log_d, axis=1)
    new_d = 0.5 * (log_d + log_y[:, None, :] - log_u[:, K:])
    new = jnp.concatenate([log_y[:, None, :] - log_phi, new_d], axis=1)
    return new, log_phi, _Trace(log_scal, log_u, log_y, (aux_u, aux_phi))


def _disagreement(lam, log_phi, trace):
    """L1 gap between y and the document side of each topic's plan, weighted by lam."""
    K = log_phi.shape[-2]
    sides = jnp.exp(trace.log_scal[:, :K] + log_phi)
    gap = jnp.abs(sides - jnp.exp(trace.log_y)[:, None, :])
    return jnp.sum(lam * jnp.sum(gap, axis=-1), axis=-1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _solve(log_B, lam, kernel, log_scal, num_iters):
    """`num_iters` iterations from given scalings: log_y, new scalings, error."""

    def run(kernel):
        step = lambda h, _: (_iterate(kernel, log_B, lam, h)[0], None)
        h, _ = jax.lax.scan(step, log_scal, length=num_iters - 1)
        h, log_phi, trace = _iterate(kernel, log_B, lam, h)
        return trace.log_y, h, _disagreement(lam, log_phi, trace)

    return kernel_lib.resolve(kernel, run)


def _solve_fwd(log_B, lam, kernel, log_scal, num_iters):
    learn_cost = any(leaf.perturbed for leaf in jax.tree.leaves(kernel))
    log_B, lam, kernel, log_scal = jax.tree.map(
        lambda leaf: leaf.value, (log_B, lam, kernel, log_scal)
    )

    def run(kernel):
        def step(h, _):
            new, _, trace = _iterate(kernel, log_B, lam, h)
            return new, trace

        h, traces = jax.lax.scan(step, log_scal, length=num_iters)
        last = jax.tree.map(lambda x: x[-1], traces)
        log_phi = last.log_y[:, None, :] - h[:, : log_B.shape[1]]
        return h, _disagreement(lam, log_phi, last), traces

    h, error, traces = kernel_lib.resolve(kernel, run)
    residuals = (log_B, lam, kernel, h, traces, (jnp.zeros(()),) * learn_cost)
    return (traces.log_y[-1], h, error), residuals


class _Adjoint(NamedTuple):
    """What the backward loop carries: cotangents, and the scalings it came from."""

    log_scal: Array  # [s, K (+ 1), N] as the iteration left them
    scal_bar: Array  # [s, K (+ 1), N]
    y_bar: Array  # [s, N] from the caller: the last iteration's alone
    lam_bar: Array  # [s, K] summed over iterations
    q_bar: Array  # [s, K, N] summed over iterations: the cotangent of log_B
    kernel_bar: Any  # of log C, summed over iterations; None if nobody asked


def _iterate_back(kernel, log_B, lam, adjoint, trace):
    """One pass of Algorithm 2's backward loops, both at once."""
    K = log_B.shape[1]
    h_bar, d_bar = adjoint.scal_bar[:, :K], adjoint.scal_bar[:, K:]
    log_phi = trace.log_y[:, None, :] - adjoint.log_scal[:, :K]
    log_q = log_B - trace.log_u[:, :K]
    y_bar = adjoint.y_bar + jnp.sum(h_bar, axis=1) + 0.5 * jnp.sum(d_bar, axis=1)
    phi_bar = lam[..., None] * y_bar[:, None, :] - h_bar
    phi_args = (phi_bar, log_phi, log_q, trace.aux[1])
    q_bar = kernel.pull(*phi_args)
    u_bar = jnp.concatenate([-q_bar, -0.5 * d_bar], axis=1)
    u_args = (u_bar, trace.log_u, trace.log_scal, trace.aux[0])
    scal_bar = kernel.pull(*u_args)
    if d_bar.shape[-2]:  # debiased: log_d also enters log_y and its own update as it is
        scal_bar = scal_bar.at[:, K:].add(y_bar[:, None, :] + 0.5 * d_bar)
    kernel_bar = adjoint.kernel_bar
    if kernel_bar is not None:
        kernel_bar = kernel_bar + kernel.outer(*phi_args) + kernel.outer(*u_args)
    return _Adjoint(
        log_scal=trace.log_scal,
        scal_bar=scal_bar,
        y_bar=jnp.zeros_like(y_bar),
        lam_bar=adjoint.lam_bar + jnp.sum(log_phi * y_bar[:, None, :], axis=-1),
        q_bar=adjoint.q_bar + q_bar,
        kernel_bar=kernel_bar,
    )


def _solve_bwd(num_iters, residuals, cotangents):
    del num_iters
    log_B, lam, kernel, log_scal, traces, learn_cost = residuals
    y_bar, scal_bar, _ = (  # the error carries no gradient
        jnp.zeros(c.shape, c.dtype) if isinstance(c, SymbolicZero) else c
        for c in cotangents
    )
    N = log_B.shape[2]
    start = _Adjoint(
        log_scal=log_scal,
        scal_bar=scal_bar,
        y_bar=y_bar,
        lam_bar=jnp.zeros_like(lam),
        q_bar=jnp.zeros((*lam.shape, N), log_B.dtype),
        kernel_bar=kernel.nothing() if learn_cost else None,
    )

    def run(kernel):
        back = lambda adj, trace: (_iterate_back(kernel, log_B, lam, adj, trace), None)
        return jax.lax.scan(back, start, traces, reverse=True)[0]

    end = kernel_lib.resolve(kernel, run)
    log_B_bar = end.q_bar
    if len(log_B) == 1:  # shared by all documents
        log_B_bar = jnp.sum(log_B_bar, axis=0, keepdims=True)
    return log_B_bar, end.lam_bar, kernel.cotangent(end.kernel_bar), end.scal_bar


_solve.defvjp(_solve_fwd, _solve_bwd, symbolic_zeros=True)
