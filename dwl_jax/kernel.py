"""The kernel C = exp(-D^tau / epsilon), and how a Sinkhorn loop applies it in logs.

Every form of the kernel answers three questions, all in logs and over any leading axes:

* `forward(log_v)`: log(C v), and what the form wants to see again afterwards;
* `pull(w, log_u, log_v, aux)`: w pulled back through that log, the cotangent of log_v;
* `outer(w, log_u, log_v, aux)`: sum over the leading axes of
  w exp(-log_u) (outer) exp(log_v), times C. This is the cotangent of log C when w is
  the one of log_u, and the aggregate transport plan when w is the topic's mass.

`DenseKernel` is C as a matrix. Its fast form is exact where a plain float32 kernel
underflows: C has a unit diagonal, which is handled in logs and never rounds, and the
off-diagonal part is shifted by its smallest exponent before one matrix product. That
holds while the spread of the off-diagonal D^tau / epsilon fits the float's exponent.
The log domain holds always and costs an exponential per entry of C.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

Array = jax.Array
Form = Literal["auto", "fast", "log"]

# exp underflows below -87.3 (float32) and -708.4 (float64). What remains above the
# spread is the relative error that a lost term may have: e^-23 and e^-36.
_MAX_SPREAD = {"float32": 64.0, "float64": 672.0}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DenseKernel:
    """C as a symmetric matrix with unit diagonal; gradients flow through `log_C`."""

    log_C: Array  # [N, N] -cost / epsilon
    off: Array  # [N, N] exp(log_C + shift), zero diagonal
    shift: Array  # [] smallest off-diagonal cost / epsilon
    reach: Array  # [] largest cost / epsilon
    fits: Array  # [] bool: the fast form is exact
    form: Form = dataclasses.field(metadata={"static": True}, default="auto")

    @property
    def num_words(self) -> int:
        """N."""
        return self.log_C.shape[-1]

    @property
    def spread(self) -> Array:
        """Spread of the off-diagonal cost / epsilon: what the fast form must hold."""
        return self.reach - self.shift

    def forward(self, log_v: Array) -> tuple[Array, Array]:
        """log(C v) over the last axis, [..., N], and the maxima of log_v, [..., 1]."""
        top = jnp.max(log_v, axis=-1, keepdims=True)
        top = jnp.where(jnp.isfinite(top), top, 0.0)
        if self.form == "log":
            return _logsumexp_rows(self.log_C, log_v), top
        off = jnp.exp(log_v - top) @ self.off
        base = top - self.shift
        gap = log_v - base
        small = jnp.exp(-jnp.abs(gap))
        total = jnp.where(gap > 0.0, 1.0 + off * small, small + off)
        return jnp.maximum(log_v, base) + jnp.log(total), top

    def pull(self, w: Array, log_u: Array, log_v: Array, top: Array) -> Array:
        """exp(log_v) * C (w exp(-log_u)), [..., N]: no term of it exceeds its w."""
        if self.form == "log":
            return _pull_rows(self.log_C, w, log_u, log_v)
        # log_u >= top - reach, so that no exponent here is positive ...
        lift = self.reach - top
        off = (w * jnp.exp(-lift - log_u)) @ self.off
        # ... nor larger than reach - shift, the spread, here.
        return w * jnp.exp(log_v - log_u) + off * jnp.exp(log_v + (lift - self.shift))

    def outer(self, w: Array, log_u: Array, log_v: Array, top: Array) -> Array:
        """Sum over leading axes of w exp(-log_u) (outer) exp(log_v), times C."""
        flat = lambda x: jnp.broadcast_to(x, log_v.shape).reshape(-1, self.num_words)
        if self.form == "log":
            return _outer_rows(self.log_C, flat(w), flat(log_u), flat(log_v))
        left = flat(w * jnp.exp(top - self.reach - log_u))
        right = flat(jnp.exp(log_v - top))
        off = (left.T @ right) * (self.off * jnp.exp(self.reach - self.shift))
        diagonal = jnp.sum(flat(w * jnp.exp(log_v - log_u)), axis=0)
        return off + jnp.diag(diagonal)

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.log_C)

    def cotangent(self, log_C_bar: Array) -> Any:
        """A gradient for `log_C` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("off", "shift", "reach", "fits"))
        return dataclasses.replace(self, log_C=log_C_bar, **none)


Kernel = DenseKernel


def build(cost: Array, epsilon: Array | float, *, form: Form = "auto") -> DenseKernel:
    """The kernel of a ground cost.

    Args:
      cost: D^tau, symmetric with zero diagonal, [N, N].
      epsilon: entropic weight, positive; traced.
      form: `fast` (one matrix product, exact while the spread of cost / epsilon fits
        the float), `log` (always exact, slow), or `auto`: fast where exact, else log.

    Returns:
      The kernel; differentiable with respect to cost and epsilon.
    """
    if form not in ("auto", "fast", "log"):
        raise ValueError(f"form must be auto, fast or log, got {form!r}.")
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise ValueError(f"cost must be square, got {cost.shape}.")
    _check(cost, epsilon)
    log_C = -cost / epsilon
    exponent = -jax.lax.stop_gradient(log_C)
    diagonal = jnp.eye(cost.shape[0], dtype=bool)
    shift = jnp.min(jnp.where(diagonal, jnp.inf, exponent))
    shift = jnp.where(jnp.isfinite(shift), shift, 0.0)  # a single word
    reach = jnp.max(exponent)
    off = jnp.where(diagonal, 0.0, jnp.exp(shift - exponent))
    fits = _everywhere(reach - shift <= _MAX_SPREAD[log_C.dtype.name])
    return DenseKernel(log_C, off, shift, reach, fits, form)


def _check(cost: Array, epsilon: Array | float) -> None:
    """ValueError for values that are no ground cost, unless they are traced."""
    if not isinstance(epsilon, jax.core.Tracer) and not 0.0 < epsilon < jnp.inf:
        raise ValueError(f"epsilon must be in (0, inf), got {epsilon}.")
    if isinstance(cost, jax.core.Tracer):
        return
    cost = np.asarray(cost)
    if not (cost >= 0.0).all() or np.diagonal(cost).any():
        raise ValueError("cost must be finite and not negative, with a zero diagonal.")
    if not np.allclose(cost, cost.T, rtol=1e-4, atol=1e-6 * cost.max(initial=0.0)):
        raise ValueError("cost must be symmetric.")


def resolve(kernel: Kernel, fn: Callable[[Kernel], Any]) -> Any:
    """Calls `fn` with a kernel whose form is settled: `auto` becomes fast or log.

    One branch runs, under `jit` and under `vmap` (a batch of kernels of which one needs
    the log domain runs in the log domain).
    """
    if kernel.form != "auto":
        return fn(kernel)
    settled = lambda form: lambda: fn(dataclasses.replace(kernel, form=form))
    return jax.lax.cond(kernel.fits, settled("fast"), settled("log"))


@jax.custom_vjp
def apply_log(kernel: Kernel, log_v: Array) -> Array:
    """log(C v) over the last axis of log_v, [..., N]; differentiable in both."""
    return resolve(kernel, lambda k: k.forward(log_v)[0])


def _apply_log_fwd(kernel, log_v):
    log_u, top = resolve(kernel, lambda k: k.forward(log_v))
    return log_u, (kernel, log_u, log_v, top)


def _apply_log_bwd(residuals, w):
    kernel, *args = residuals
    both = lambda k: (k.outer(w, *args), k.pull(w, *args))
    log_C_bar, log_v_bar = resolve(kernel, both)
    return kernel.cotangent(log_C_bar), log_v_bar


apply_log.defvjp(_apply_log_fwd, _apply_log_bwd)


@jax.custom_batching.custom_vmap
def _everywhere(condition: Array) -> Array:
    """A condition that all lanes of a `vmap` share, so that a `cond` stays a `cond`."""
    return condition


@_everywhere.def_vmap
def _everywhere_vmap(axis_size, in_batched, condition):
    del axis_size, in_batched
    return _everywhere(jnp.all(condition, axis=0)), False


def _logsumexp_rows(log_C: Array, log_v: Array) -> Array:
    """log(C v) in the log domain, a word at a time: memory stays that of log_v."""
    one = lambda row: jax.nn.logsumexp(
        log_v + jnp.broadcast_to(row, log_v.shape), axis=-1
    )
    return jnp.moveaxis(jax.lax.map(one, log_C), 0, -1)


def _pull_rows(log_C: Array, w: Array, log_u: Array, log_v: Array) -> Array:
    """`DenseKernel.pull` in the log domain, a word at a time."""

    def one(row_and_v):
        row, v = row_and_v
        row = jnp.broadcast_to(row, w.shape)
        return jnp.sum(w * jnp.exp(v[..., None] + row - log_u), axis=-1)

    pulled = jax.lax.map(one, (log_C, jnp.moveaxis(log_v, -1, 0)))
    return jnp.moveaxis(pulled, 0, -1)


def _outer_rows(log_C: Array, w: Array, log_u: Array, log_v: Array) -> Array:
    """`DenseKernel.outer` in the log domain, for arrays of shape [rows, N]."""

    def one(row_w_u):
        row, w_i, u_i = row_w_u
        return w_i @ jnp.exp(log_v + row[None, :] - u_i[:, None])

    return jax.lax.map(one, (log_C, w.T, log_u.T))
