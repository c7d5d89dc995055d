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
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from dwl_jax import kernel as kernel_lib
from dwl_jax import masses

Array = jax.Array
Kernel = kernel_lib.Kernel


class Barycenter(NamedTuple):
    """What Algorithm 2 computes forward, for documents with any leading axes."""

    log_y: Array  # [..., N] log of the barycenter; sums to 1 only at convergence
    log_scal: Array  # [..., K, N] final scalings
    error: Array  # [...] how far the K plans disagree about y: weighted L1; no gradient


def barycenter(
    log_B: Array,
    lam: Array,
    kernel: Kernel,
    *,
    num_iters: int,
    log_scal: Array | None = None,
) -> Barycenter:
    """Sinkhorn barycenters of K topics for documents that share a kernel (Alg. 2).

    Args:
      log_B: log topic distributions, [K, N]; -inf where a topic has no mass.
      lam: topic weights on the simplex, [..., K].
      kernel: of the distilled cost D^tau, N words.
      num_iters: Sinkhorn iterations, the paper's L; static.
      log_scal: scalings to start from (those an earlier call gave back), or None for 1.

    Returns:
      A Barycenter. Differentiable once, in reverse mode, with respect to log_B, lam,
      kernel and log_scal.
    """
    K, N = log_B.shape
    batch = lam.shape[:-1]
    if lam.shape[-1] != K:
        raise ValueError(f"lam has {lam.shape[-1]} weights for {K} topics.")
    if kernel.num_words != N:
        raise ValueError(f"topics have {N} words, the kernel {kernel.num_words}.")
    if num_iters < 1:
        raise ValueError(f"num_iters must be at least 1, got {num_iters}.")
    lam, h = lam.reshape(-1, K), None
    if log_scal is not None:
        if log_scal.shape != (*batch, K, N):
            raise ValueError(
                f"log_scal must be {(*batch, K, N)}, got {log_scal.shape}."
            )
        h = log_scal.reshape(-1, K, N)
    if kernel.form in ("held", "identity"):
        if num_iters > 1 or log_scal is not None:
            raise ValueError(
                f"a kernel that is {kernel.form} is for one iteration from scalings of "
                "1: build another."
            )
        log_y, h, error = _once(log_B, lam, kernel)
    else:
        log_y, h, error = _solve(log_B, lam, kernel, h, num_iters)
    return Barycenter(
        log_y.reshape(*batch, N),
        h.reshape(*batch, K, N),
        jax.lax.stop_gradient(error).reshape(batch),
    )


def _once(log_B, lam, kernel):
    """One iteration from scalings of 1, by the topics' own documents."""
    v = kernel.vertices(log_B)
    log_y = lam @ v
    y, phi = jax.tree.map(jnp.exp, jax.lax.stop_gradient((log_y, v)))
    apart = lambda phi: jnp.sum(jnp.abs(phi[None, :] - y), axis=-1)
    error = jnp.sum(lam * jax.lax.map(apart, phi).T, axis=-1)
    return log_y, log_y[:, None, :] - v[None, :, :], error


class _Trace(NamedTuple):
    """What the gradient needs of an iteration; masses. s is 1 if documents share it."""

    phi: Array  # [N, K, s]
    y: Array  # [N, s]
    u: Array  # [N, K, s]
    aux: tuple  # what the kernel wants to see again of its two products


def _iterate(kernel, B, lam, scal):
    """One pass of Algorithm 2's forward loop: new scalings, log_y and the trace.

    Documents that start from the same scalings, [N, K, 1], share both products.
    """
    phi, u, aux = kernel_lib.products(kernel, B, scal)
    log_y = _log_mean(kernel, lam, phi)
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
    sides = masses.ratio(kernel, scal, new)  # over y
    y, sides = (masses.number(kernel, x) for x in (y[:, None, :], sides))
    return jnp.sum(lam[0] * jnp.sum(y * jnp.abs(sides - 1.0), axis=0), axis=0)


def _words_first(kernel, log_B, lam, log_scal):
    """The loop's own view: kernel, B [N, K, 1], lam [1, K, s], scal [N, K, s].

    Without scalings to start from all documents share those of 1: scal [N, K, 1].
    """
    if log_scal is None:
        log_scal = jnp.zeros((*log_B.T.shape, 1), log_B.dtype)
    else:
        log_scal = log_scal.transpose(2, 1, 0)
    B, scal = (masses.enter(kernel, x) for x in (log_B.T[:, :, None], log_scal))
    return kernel_lib.words_first(kernel), B, lam.T[None], scal


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _solve(log_B, lam, kernel, log_scal, num_iters):
    """`num_iters` iterations from given scalings: log_y, new scalings, error."""

    def run(kernel):
        kernel, B, w, scal = _words_first(kernel, log_B, lam, log_scal)
        step = lambda scal, _: (_iterate(kernel, B, w, scal)[0], None)
        if num_iters > 1:
            cold = log_scal is None
            scal = step(scal, None)[0] if cold else scal
            scal, _ = jax.lax.scan(step, scal, length=num_iters - 1 - cold)
        new, log_y, trace = _iterate(kernel, B, w, scal)
        error = _disagreement(kernel, w, scal, new, trace.y)
        return log_y, masses.leave(kernel, new), error

    log_y, h, error = kernel_lib.resolve(kernel, run, log_B, log_scal)
    return log_y.T, h.transpose(2, 1, 0), error


class _Loop(NamedTuple):
    """The traces of iterations that documents do not share, L of them."""

    phi: Array  # [1 + L, N, K, s]: scalings before iteration l are y[l] / phi[l]
    y: Array  # [1 + L, N, s]
    u: Array  # [L, N, K, s]
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


def _solve_fwd(log_B, lam, kernel, log_scal, num_iters):
    learn_cost = any(leaf.perturbed for leaf in jax.tree.leaves(kernel))
    log_B, lam, kernel, log_scal = jax.tree.map(
        lambda leaf: leaf.value, (log_B, lam, kernel, log_scal)
    )
    length = num_iters - (log_scal is None)

    def run(kernel):
        kernel, B, w, last = _words_first(kernel, log_B, lam, log_scal)
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

    log_y, h, error, *traces = kernel_lib.resolve(kernel, run, log_B, log_scal)
    residuals = (log_B, lam, kernel, log_scal, traces, (jnp.zeros(()),) * learn_cost)
    return (log_y.T, h.transpose(2, 1, 0), error), residuals


class _Adjoint(NamedTuple):
    """Cotangents that the backward loop carries."""

    scal: Array  # [N, K, s] of log_scal
    y: Array  # [N, s] of log_y from outside: 0 but for the last iteration
    lam: Array  # [K, s] summed over iterations
    log_B: Array  # [N, K] summed over iterations
    kernel: Any  # of log C, summed over iterations; None if nobody asked


def _iterate_back(kernel, B, lam, adjoint, scal, trace):
    """One pass of Algorithm 2's backward loops, both at once."""
    phi, _, u, aux = trace
    phi = phi[..., : u.shape[2]]
    y_bar = (adjoint.y + jnp.sum(adjoint.scal, axis=1))[:, None, :]
    phi_bar = lam * y_bar - adjoint.scal
    if phi_bar.shape[2] != u.shape[2]:  # what documents share, they move at once
        phi_bar = jnp.sum(phi_bar, axis=2, keepdims=True)
    q_bar, scal_bar, C_bar = kernel_lib.products_back(
        kernel,
        B,
        phi_bar,
        phi,
        u,
        scal,
        aux,
        learn_cost=adjoint.kernel is not None,
    )
    log_phi = masses.leave(kernel, phi)
    return _Adjoint(
        scal=scal_bar,
        y=jnp.zeros_like(adjoint.y),
        lam=adjoint.lam + jnp.sum(log_phi * y_bar, axis=0),
        log_B=adjoint.log_B + jnp.sum(q_bar, axis=2),
        kernel=None if C_bar is None else adjoint.kernel + C_bar,
    )


def _solve_bwd(num_iters, residuals, cotangents):
    log_B, lam, kernel, log_scal, (first, loop), learn_cost = residuals
    s, K, N = *lam.shape, log_B.shape[1]
    length = num_iters - (first is not None)
    zeros = lambda *shape: jnp.zeros(shape, log_B.dtype)
    of_y, of_scal, _ = cotangents  # the error carries no gradient
    given = lambda c, *shape: zeros(*shape) if isinstance(c, SymbolicZero) else c.T

    def run(kernel):
        adjoint = _Adjoint(
            scal=given(of_scal, N, K, s),
            y=given(of_y, N, s),
            lam=zeros(K, s),
            log_B=zeros(N, K),
            kernel=kernel.nothing() if learn_cost else None,
        )
        kernel, B, w, start = _words_first(kernel, log_B, lam, log_scal)
        back = functools.partial(_iterate_back, kernel, B, w)

        def body(step, adjoint):
            l = length - 1 - step
            return back(adjoint, loop.scal(kernel, l), loop.trace(l))

        if loop is not None:
            adjoint = jax.lax.fori_loop(0, length, body, adjoint)
        if first is not None:
            adjoint = back(adjoint, start, first)
        return adjoint if log_scal is not None else adjoint._replace(scal=None)

    end = kernel_lib.resolve(kernel, run, log_B, log_scal)
    scal_bar = None if log_scal is None else end.scal.T
    return end.log_B.T, end.lam.T, kernel.cotangent(end.kernel), scal_bar


_solve.defvjp(_solve_fwd, _solve_bwd, symbolic_zeros=True)
