"""The Sinkhorn barycenter y_S(B, lambda; D^tau) and its gradient (Algorithm 2).

With C the kernel and scal_k the paper's beta_k:

    u_k   = C scal_k
    phi_k = C' (b_k / u_k)
    y     = prod_k phi_k ^ lambda_k
    scal_k <- y / phi_k

Outside everything is a log. Inside the loop masses are what the kernel's form takes,
numbers or logs, and words come first, [N, K, s]: documents, the longest axis, then run
in whole vectors, and a kernel is applied by one matrix product.

From a cold start the scalings are 1 for all documents, and they share the products of
the first iteration, [N, K, 1].

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
from dwl_jax import masses, topicwise

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
      log_B: log topic distributions, [K, N]; -inf where a topic has no mass.
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
    K, N = log_B.shape
    batch, rows = lam.shape[:-1], K + debias
    if lam.shape[-1] != K:
        raise ValueError(f"lam has {lam.shape[-1]} weights for {K} topics.")
    if kernel.num_words != N:
        raise ValueError(f"topics have {N} words, the kernel {kernel.num_words}.")
    if num_iters < 1:
        raise ValueError(f"num_iters must be at least 1, got {num_iters}.")
    if memory not in ("store", "recompute"):
        raise ValueError(f"memory must be store or recompute, got {memory!r}.")
    lam, h = lam.reshape(-1, K), None
    if log_scal is not None:
        if log_scal.shape != (*batch, rows, N):
            raise ValueError(
                f"log_scal must be {(*batch, rows, N)}, got {log_scal.shape}."
            )
        h = log_scal.reshape(-1, rows, N)
    if kernel.form == "topics":
        if debias:
            raise ValueError("debias: kernel 'topics' multiplies nothing but topics.")
        log_y, h, error = topicwise.barycenter(log_B, lam, kernel, h, num_iters)
        return Barycenter(
            log_y.reshape(*batch, N), h.reshape(*batch, K, N), error.reshape(batch)
        )
    kernel = kernel_lib.admit(kernel, log_B, h)
    solve = functools.partial(_solve, log_B, lam, kernel)
    if memory == "recompute":
        solve = jax.checkpoint(solve, static_argnums=(1, 2))
        length = math.isqrt(num_iters)
        segments, first = divmod(num_iters - 1, length)
        advance = lambda out, _: (solve(out[1], rows, length), None)
        out = jax.lax.scan(advance, solve(h, rows, first + 1), length=segments)[0]
    else:
        out = solve(h, rows, num_iters)
    log_y, h, error = out
    return Barycenter(
        log_y.reshape(*batch, N),
        h.reshape(*batch, rows, N),
        jax.lax.stop_gradient(error).reshape(batch),
    )


class _Trace(NamedTuple):
    """What the gradient needs of an iteration; masses. s is 1 if documents share it."""

    phi: Array  # [N, K (+ 1), s]; y / d for the row of debiasing
    y: Array  # [N, s]
    u: Array  # [N, K (+ 1), s]
    aux: tuple  # what the kernel wants to see again of its two products


def _iterate(kernel, B, lam, scal):
    """One pass of Algorithm 2's forward loop: new scalings, log_y and the trace.

    Documents that start from the same scalings, [N, K (+ 1), 1], share both products.
    """
    K, debias = B.shape[1], scal.shape[1] > B.shape[1]
    phi, u, aux = kernel_lib.products(kernel, B, scal)
    log_y = _log_mean(kernel, lam, phi)
    if debias:
        log_d, log_u_d = (masses.leave(kernel, x[:, K:]) for x in (scal, u))
        log_y = log_y + log_d[:, 0]
        # As if of a topic, so that y / phi is the new d, sqrt(d y / u).
        phi_d = masses.enter(kernel, 0.5 * (log_y[:, None, :] - log_d + log_u_d))
        phi = jnp.broadcast_to(phi, (*phi.shape[:2], phi_d.shape[2]))
        phi = jnp.concatenate([phi, phi_d], axis=1)
    y = masses.enter(kernel, log_y)
    new = masses.ratio(kernel, y[:, None, :], phi)
    return new, log_y, _Trace(phi, y, u, aux)


def _log_mean(kernel, lam, phi):
    """Sum of lam log phi over topics, [N, K, s] -> [N, s], as XLA likes it best."""
    log_phi = masses.leave(kernel, phi)
    if kernel.form != "plain" or lam.shape[1] > 64:
        return jnp.sum(jnp.where(lam > 0.0, lam * log_phi, 0.0), axis=1)
    return functools.reduce(jnp.add, jnp.unstack(lam * log_phi, axis=1))


def _disagreement(kernel, lam, scal, new, y):
    """L1 gap between y and the document side of each topic's plan, weighted by lam."""
    K = lam.shape[1]
    sides = masses.ratio(kernel, scal[:, :K], new[:, :K])  # over y
    y, sides = (masses.number(kernel, x) for x in (y[:, None, :], sides))
    return jnp.sum(lam[0] * jnp.sum(y * jnp.abs(sides - 1.0), axis=0), axis=0)


def _words_first(kernel, log_B, lam, log_scal, rows):
    """The loop's own view: kernel, B [N, K, 1], lam [1, K, s], scal [N, rows, s].

    Without scalings to start from all documents share those of 1: scal [N, rows, 1].
    """
    if log_scal is None:
        log_scal = jnp.zeros((log_B.shape[1], rows, 1), log_B.dtype)
    else:
        log_scal = log_scal.transpose(2, 1, 0)
    B, scal = (masses.enter(kernel, x) for x in (log_B.T[:, :, None], log_scal))
    return kernel_lib.words_first(kernel), B, lam.T[None], scal


def _settle(kernel, run, scaled):
    """Runs the loop in the form that is exact; debiasing has no scaled one."""
    return kernel_lib.resolve(kernel, run, plain=True, scaled=scaled)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def _solve(log_B, lam, kernel, log_scal, rows, num_iters):
    """`num_iters` iterations from given scalings: log_y, new scalings, error."""

    def run(kernel):
        kernel, B, w, scal = _words_first(kernel, log_B, lam, log_scal, rows)
        step = lambda scal, _: (_iterate(kernel, B, w, scal)[0], None)
        if num_iters > 1:
            cold = log_scal is None
            scal = step(scal, None)[0] if cold else scal
            scal, _ = jax.lax.scan(step, scal, length=num_iters - 1 - cold)
        new, log_y, trace = _iterate(kernel, B, w, scal)
        error = _disagreement(kernel, w, scal, new, trace.y)
        return log_y, masses.leave(kernel, new), error

    log_y, h, error = _settle(kernel, run, rows == len(log_B))
    return log_y.T, h.transpose(2, 1, 0), error


class _Loop(NamedTuple):
    """The traces of iterations that documents do not share, L of them."""

    phi: Array  # [1 + L, N, K (+ 1), s]: scalings before iteration l are y[l] / phi[l]
    y: Array  # [1 + L, N, s]
    u: Array  # [L, N, K (+ 1), s]
    aux: tuple  # [L, ...]

    def scal(self, kernel, l):
        """The scalings that iteration l found."""
        return masses.ratio(kernel, self.y[l][:, None, :], self.phi[l])

    def trace(self, l):
        """The trace of iteration l."""
        u, aux = jax.tree.map(lambda rows: rows[l], (self.u, self.aux))
        return _Trace(self.phi[l + 1], self.y[l + 1], u, aux)

    def keep(self, l, trace):
        """With the trace of iteration l written down."""
        write = lambda rows, row, l: rows.at[l].set(row)
        return _Loop(
            write(self.phi, trace.phi, l + 1),
            write(self.y, trace.y, l + 1),
            write(self.u, trace.u, l),
            jax.tree.map(functools.partial(write, l=l), self.aux, trace.aux),
        )


def _room(kernel, step, scal, first, length):
    """A _Loop of given length with row 0 alone, from scalings or the trace before."""
    shapes = jax.eval_shape(step, scal)[2]
    # Two fills: of two equal arrays XLA would make one as a copy of the other.
    room = lambda x, rows, fill=0: jnp.full((rows, *x.shape), fill, x.dtype)
    y = masses.enter(kernel, jnp.zeros(shapes.y.shape, shapes.y.dtype))
    phi = masses.ratio(kernel, y[:, None, :], scal)
    if first is not None:
        phi, y = first.phi, first.y
    return _Loop(
        room(shapes.phi, 1 + length).at[0].set(phi),
        room(shapes.y, 1 + length).at[0].set(y),
        room(shapes.u, length, 1),
        jax.tree.map(lambda x: room(x, length), shapes.aux),
    )


def _solve_fwd(log_B, lam, kernel, log_scal, rows, num_iters):
    learn_cost = any(leaf.perturbed for leaf in jax.tree.leaves(kernel))
    log_B, lam, kernel, log_scal = jax.tree.map(
        lambda leaf: leaf.value, (log_B, lam, kernel, log_scal)
    )
    length = num_iters - (log_scal is None)

    def run(kernel):
        kernel, B, w, last = _words_first(kernel, log_B, lam, log_scal, rows)
        step = functools.partial(_iterate, kernel, B, w)
        first, loop, scal = None, None, last
        if log_scal is None:
            scal, log_y, first = step(scal)
            y = first.y
        if length:
            loop = _room(kernel, step, scal, first, length)

            def body(l, carry):
                new, log_y, trace = step(carry[0])
                return new, log_y, carry[2].keep(l, trace)

            start = (scal, jnp.zeros_like(loop.y[0]), loop)
            scal, log_y, loop = jax.lax.fori_loop(0, length, body, start)
            y, last = loop.y[-1], loop.scal(kernel, length - 1)
        error = _disagreement(kernel, w, last, scal, y)
        return log_y, masses.leave(kernel, scal), error, first, loop

    log_y, h, error, *traces = _settle(kernel, run, rows == len(log_B))
    residuals = (log_B, lam, kernel, log_scal, traces, (jnp.zeros(()),) * learn_cost)
    return (log_y.T, h.transpose(2, 1, 0), error), residuals


class _Adjoint(NamedTuple):
    """Cotangents that the backward loop carries."""

    scal: Array  # [N, K (+ 1), s] of log_scal
    y: Array  # [N, s] of log_y from outside: 0 but for the last iteration
    lam: Array  # [K, s] summed over iterations
    log_B: Array  # [N, K] summed over iterations
    kernel: Any  # of log C, summed over iterations; None if nobody asked


def _iterate_back(kernel, B, lam, adjoint, scal, trace):
    """One pass of Algorithm 2's backward loops, both at once."""
    K, (phi, _, u, aux) = B.shape[1], trace
    of_all = lambda x: _sum_to(x, u.shape[2])  # what documents share, they move at once
    phi = phi[:, :K, : u.shape[2]]
    h_bar, d_bar = adjoint.scal[:, :K], adjoint.scal[:, K:]
    y_bar = adjoint.y + jnp.sum(h_bar, axis=1) + 0.5 * jnp.sum(d_bar, axis=1)
    y_bar = y_bar[:, None, :]
    q_bar, scal_bar, C_bar = kernel_lib.products_back(
        kernel,
        B,
        of_all(lam * y_bar - h_bar),
        of_all(-0.5 * d_bar),
        phi,
        u,
        scal,
        aux,
        learn_cost=adjoint.kernel is not None,
    )
    if d_bar.shape[1]:  # debiased: log_d also enters log_y and its own update as it is
        scal_bar = scal_bar.at[:, K:].add(of_all(y_bar + 0.5 * d_bar))
    log_phi = masses.leave(kernel, phi)
    return _Adjoint(
        scal=scal_bar,
        y=jnp.zeros_like(adjoint.y),
        lam=adjoint.lam + jnp.sum(log_phi * y_bar, axis=0),
        log_B=adjoint.log_B + jnp.sum(q_bar, axis=2),
        kernel=None if C_bar is None else adjoint.kernel + C_bar,
    )


def _sum_to(x, size):
    """x, or its sum over the last axis if that is to have size 1."""
    return x if x.shape[-1] == size else jnp.sum(x, axis=-1, keepdims=True)


def _solve_bwd(rows, num_iters, residuals, cotangents):
    log_B, lam, kernel, log_scal, (first, loop), learn_cost = residuals
    s, K, N = *lam.shape, log_B.shape[1]
    length = num_iters - (first is not None)
    zeros = lambda *shape: jnp.zeros(shape, log_B.dtype)
    of_y, of_scal, _ = cotangents  # the error carries no gradient
    given = lambda c, *shape: zeros(*shape) if isinstance(c, SymbolicZero) else c.T

    def run(kernel):
        adjoint = _Adjoint(
            scal=given(of_scal, N, rows, s),
            y=given(of_y, N, s),
            lam=zeros(K, s),
            log_B=zeros(N, K),
            kernel=kernel.nothing() if learn_cost else None,
        )
        kernel, B, w, start = _words_first(kernel, log_B, lam, log_scal, rows)
        back = functools.partial(_iterate_back, kernel, B, w)

        def body(step, adjoint):
            l = length - 1 - step
            return back(adjoint, loop.scal(kernel, l), loop.trace(l))

        if loop is not None:
            adjoint = jax.lax.fori_loop(0, length, body, adjoint)
        if first is not None:
            adjoint = back(adjoint, start, first)
        return adjoint if log_scal is not None else adjoint._replace(scal=None)

    end = _settle(kernel, run, rows == len(log_B))
    scal_bar = None if log_scal is None else end.scal.T
    return end.log_B.T, end.lam.T, kernel.cotangent(end.kernel), scal_bar


_solve.defvjp(_solve_fwd, _solve_bwd, symbolic_zeros=True)
