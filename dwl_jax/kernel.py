"""The kernel C = exp(-D^tau / epsilon), and how a Sinkhorn loop applies it.

A kernel answers three questions over any further axes. Masses v are given as logs, or
as they are in the `plain` form (see `masses.py`):

* `forward(v)`: u = C v;
* `pull(w, u, v)`: w pulled back through log u, the cotangent of log v;
* `outer(w, u, v)`: sum over the further axes of w / u (outer) v, times C. This is the
  cotangent of log C when w is the one of log u, and the aggregate transport plan when w
  is the topic's mass.

`DenseKernel` is C as a matrix, in one of three forms.

* `plain`: scalings and one matrix product. Exact while D^tau / epsilon is small.
* `scaled`: the barycenter's two products by numbers beside a log for each column, see
  `scaled.py`; all else as `log`. Exact while D^tau / epsilon fits the float twice.
* `log`: holds always and costs an exponential per entry of C.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import logdomain, masses, scaled

Array = jax.Array
Form = Literal["auto", "plain", "scaled", "log"]

# exp underflows below -87.3 (float32) and -708.4 (float64). What remains above the
# spread is the relative error that a lost term may have: e^-23 and e^-36.
_MAX_SPREAD = {"float32": 64.0, "float64": 672.0}
# With r the largest exponent, logs of scalings differ by at most 2 r from word to word:
# masses between exp(-2 r) and exp(2 r) are held with room for N and for small topics.
_MAX_REACH = {"float32": 32.0, "float64": 300.0}
# The same for columns that have a log of their own, and for the masses of a topic.
_MAX_SCALED = {"float32": 120.0, "float64": 1200.0}
_MAX_TOPIC = {"float32": 64.0, "float64": 200.0}


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class DenseKernel:
    """C as a symmetric matrix with unit diagonal; gradients flow through `log_C`."""

    log_C: Array  # [N, N] -cost / epsilon
    matrix: Array  # [N, N] exp(log_C + shift), zero diagonal; C itself when plain
    shift: Array  # [] smallest off-diagonal cost / epsilon
    reach: Array  # [] largest cost / epsilon
    form: Form = dataclasses.field(metadata={"static": True}, default="auto")
    axis: Literal[0, -1] = dataclasses.field(metadata={"static": True}, default=-1)

    @property
    def num_words(self) -> int:
        """N."""
        return self.log_C.shape[-1]

    def row_sums(self) -> Array:
        """Of C off its diagonal, [N]."""
        return jnp.sum(jnp.exp(self.log_C), axis=-1) - 1.0

    def settle(self, form: Form) -> "DenseKernel":
        """This kernel in a given form."""
        matrix = jnp.exp(self.log_C) if form == "plain" else self.matrix
        return dataclasses.replace(self, form=form, matrix=matrix)

    def forward(self, v: Array) -> Array:
        """C v over the axis of the words."""
        if self.form == "plain":
            return self.product(v)
        return self._in_rows(logdomain.logsumexp, v)

    def pull(self, w: Array, u: Array, v: Array) -> Array:
        """The product v * C (w / u): no term of it exceeds its w."""
        if self.form == "plain":
            return v * self.product(w / u)
        return self._in_rows(logdomain.pull, w, u, v)

    def outer(self, w: Array, u: Array, v: Array) -> Array:
        """Sum over all axes but the words' of w / u (outer) v, times C."""
        if self.form == "plain":
            return self.outer_product(w / u, v) * self.matrix
        flat = lambda x: jnp.moveaxis(x, self.axis, -1).reshape(-1, self.num_words)
        return logdomain.outer(self.log_C, flat(w), flat(u), flat(v))

    def nothing(self) -> Array:
        """What `outer` gives for no rows at all."""
        return jnp.zeros_like(self.log_C)

    def cotangent(self, log_C_bar: Array) -> Any:
        """A gradient for `log_C` in the shape that a custom_vjp gives back."""
        none = dict.fromkeys(("matrix", "shift", "reach"))
        return dataclasses.replace(self, log_C=log_C_bar, **none)

    def product(self, v: Array) -> Array:
        """`matrix` times v over the axis of the words."""
        if self.axis == 0:
            return jnp.tensordot(self.matrix, v, axes=1)
        return v @ self.matrix

    def outer_product(self, left: Array, right: Array) -> Array:
        """Sum over all axes but the words' of left (outer) right."""
        if self.axis == 0:  # as one product of matrices: tensordot would transpose both
            flat = lambda x: x.reshape(self.num_words, -1)
            return flat(left) @ flat(right).T
        others = [i for i in range(right.ndim) if i != self.axis % right.ndim]
        return jnp.tensordot(left, right, axes=(others, others))

    def _in_rows(self, fn, *args):
        args = (jnp.moveaxis(x, self.axis, -1) for x in args)
        return jnp.moveaxis(fn(self.log_C, *args), -1, self.axis)


Kernel = DenseKernel


def build(cost: Array, epsilon: Array | float, *, form: Form = "auto") -> DenseKernel:
    """The kernel of a ground cost.

    Args:
      cost: D^tau, symmetric with zero diagonal, [N, N].
      epsilon: entropic weight, positive; traced.
      form: `plain` (one matrix product, exact while cost / epsilon is small), `scaled`
        (the same with a log for each column, exact a while longer), `log` (always
        exact, slow), or `auto`: the first of these that is exact.

    Returns:
      The kernel; differentiable with respect to cost and epsilon.
    """
    if form not in get_args(Form):
        raise ValueError(f"form must be one of {get_args(Form)}, got {form!r}.")
    if cost.ndim != 2 or cost.shape[0] != cost.shape[1]:
        raise ValueError(f"cost must be square, got {cost.shape}.")
    _check(cost, epsilon)
    log_C = -cost / epsilon
    exponent = -jax.lax.stop_gradient(log_C)
    diagonal = jnp.eye(cost.shape[0], dtype=bool)
    shift = jnp.min(jnp.where(diagonal, jnp.inf, exponent))
    shift = jnp.where(jnp.isfinite(shift), shift, 0.0)  # a single word
    off = jnp.where(diagonal, 0.0, jnp.exp(shift - exponent))
    return DenseKernel(log_C, off, shift, jnp.max(exponent)).settle(form)


def _check(cost: Array, epsilon: Array | float) -> None:
    """ValueError for values that are no ground cost, unless they are traced."""
    if not isinstance(epsilon, jax.core.Tracer) and not 0.0 < float(epsilon) < jnp.inf:
        raise ValueError(f"epsilon must be in (0, inf), got {epsilon}.")
    if isinstance(cost, jax.core.Tracer):
        return
    cost = np.asarray(cost)
    if not (cost >= 0.0).all() or np.diagonal(cost).any():
        raise ValueError("cost must be finite and not negative, with a zero diagonal.")
    if not np.allclose(cost, cost.T, rtol=1e-4, atol=1e-6 * cost.max(initial=0.0)):
        raise ValueError("cost must be symmetric.")


def form_for(
    reach: float, shift: float, span: float, dtype: Any, *, once: bool = False
) -> Form:
    """The cheapest form for numbers that are known, a little inside its limits.

    Args:
      reach: largest cost / epsilon.
      shift: smallest cost / epsilon off the diagonal.
      span: of the logs of a topic's masses, see `span`.
      dtype: of the numbers.
      once: for one iteration, by a kernel that is held.
    """
    name, margin = jnp.dtype(dtype).name, 1.01
    near = (reach - shift) * margin, reach * margin, span * margin
    if once and (near[1] <= _MAX_SPREAD[name] or near[2] <= _MAX_TOPIC[name]):
        return "plain"
    if near[1] <= _MAX_REACH[name]:
        return "plain"
    return "scaled" if _near(*near, name) else "log"


def span(log_B: Array) -> Array:
    """How far the logs of a topic's masses lie apart, the largest of [..., N]."""
    xp = np if isinstance(log_B, np.ndarray) else jnp
    below = xp.max(log_B, axis=-1, keepdims=True) - log_B
    return xp.max(xp.where(xp.isfinite(below), below, 0.0))


def _near(spread, reach, span, name):
    """Whether the scaled form holds these numbers."""
    fits = (spread <= _MAX_SPREAD[name]) & (reach <= _MAX_SCALED[name])
    return fits & (span <= _MAX_TOPIC[name])


def holds(
    kernel: Kernel, form: Form, log_B: Array | None = None, log_scal: Any = None
) -> Array:
    """Whether a form is exact for this kernel: bool []; `auto` and `log` always are.

    Args:
      kernel: any kernel.
      form: any form.
      log_B: topics that `scaled` is to hold, [K, N].
      log_scal: scalings that `plain` is to start from, or None for 1.
    """
    name = kernel.reach.dtype.name
    if form == "held":
        near = kernel.reach <= _MAX_SPREAD[name]  # then all of C is there
        return near | (span(log_B) <= _MAX_TOPIC[name])
    if form == "plain":
        small = kernel.reach <= _MAX_REACH[name]
        if log_scal is not None:
            small &= jnp.max(jnp.abs(log_scal)) <= _MAX_REACH[name]
        return small
    if form == "scaled":
        return _near(kernel.reach - kernel.shift, kernel.reach, span(log_B), name)
    return jnp.ones((), bool)


def outgrown(kernel: Kernel, log_B: Array | None = None) -> Array:
    """Whether finite numbers are too large for the form of the kernel: bool []."""
    return ~holds(kernel, kernel.form, log_B) & jnp.isfinite(kernel.reach)


def multiplied(kernel: Kernel, log_B: Array) -> Array:
    """Whether the barycenter of these topics is outside the log domain: bool []."""
    if kernel.form != "auto":
        return jnp.asarray(kernel.form != "log")
    return holds(kernel, "plain") | holds(kernel, "scaled", log_B)


def resolve(
    kernel: Kernel,
    fn: Callable[[Kernel], Any],
    log_B: Array | None = None,
    log_scal: Array | None = None,
) -> Any:
    """Calls `fn` with a kernel whose form is settled: `auto` becomes one that `holds`.

    Where the numbers are known, that form alone is compiled. Where they are traced, all
    are, and one branch runs, under `jit` and under `vmap` (a batch of kernels of which
    one needs the log domain runs in the log domain).

    Args:
      kernel: any kernel.
      fn: what to do with it.
      log_B: topics, [K, N], of a loop that has a `scaled` way.
      log_scal: scalings that the loop starts from, or None for 1.
    """
    if kernel.form != "auto":
        return fn(kernel)
    forms = ("plain", "log") if log_B is None else ("plain", "scaled", "log")
    exact = [holds(kernel, form, log_B, log_scal) for form in forms]
    if not any(isinstance(each, jax.core.Tracer) for each in exact):
        return fn(kernel.settle(forms[[bool(each) for each in exact].index(True)]))
    settled = lambda form: lambda: fn(kernel.settle(form))
    first = _of_all(jnp.argmax(jnp.stack(exact)))
    return jax.lax.switch(first, [settled(form) for form in forms])


def products(kernel: Kernel, B: Array, scal: Array) -> tuple[Array, Array, tuple]:
    """Both products of an iteration, phi = C (B / u) with u = C scal: phi, u, aux.

    Masses [N, K, 1] and [N, K, s]; u and aux are for `products_back` alone.
    """
    if kernel.form == "scaled":
        return scaled.products(kernel, B, scal)
    u, none = kernel.forward(scal), jnp.zeros_like(scal[:1])
    return kernel.forward(masses.ratio(kernel, B, u)), u, (none, none)


def products_back(
    kernel: Kernel,
    B: Array,
    phi_bar: Array,
    phi: Array,
    u: Array,
    scal: Array,
    aux: tuple,
    *,
    learn_cost: bool,
) -> tuple[Array, Array, Any]:
    """`products` transposed: cotangents of log B for each column, log scal, log C."""
    if kernel.form == "scaled":
        args = (kernel, B, phi_bar, phi, u, scal, aux)
        return scaled.products_back(*args, learn_cost=learn_cost)
    phi_args = (phi_bar, phi, masses.ratio(kernel, B, u))
    q_bar = kernel.pull(*phi_args)
    u_args = (-q_bar, u, scal)
    C_bar = kernel.outer(*phi_args) + kernel.outer(*u_args) if learn_cost else None
    return q_bar, kernel.pull(*u_args), C_bar


def words_first(kernel: Kernel) -> Kernel:
    """A settled kernel for masses [N, ...]: the long axes run in whole vectors."""
    return dataclasses.replace(kernel, axis=0)


@jax.custom_vjp
def apply_log(kernel: Kernel, log_v: Array) -> Array:
    """log(C v) over the last axis of log_v, [..., N]; differentiable in both."""
    return _apply_log_fwd(kernel, log_v)[0]


def _apply_log_fwd(kernel, log_v):
    top = jnp.max(log_v, axis=-1, keepdims=True)  # so that plain numbers hold any v
    top = jnp.where(jnp.isfinite(top), top, 0.0)

    def run(k):
        base = top if k.form == "plain" else 0.0
        return masses.leave(k, k.forward(masses.enter(k, log_v - base))) + base

    log_u = resolve(kernel, run)
    return log_u, (kernel, log_u, log_v, top)


def _apply_log_bwd(residuals, w):
    kernel, log_u, log_v, top = residuals

    def run(k):
        base = top if k.form == "plain" else 0.0
        args = (w, masses.enter(k, log_u - base), masses.enter(k, log_v - base))
        return k.outer(*args), k.pull(*args)

    log_C_bar, log_v_bar = resolve(kernel, run)
    return kernel.cotangent(log_C_bar), log_v_bar


apply_log.defvjp(_apply_log_fwd, _apply_log_bwd)


@jax.custom_batching.custom_vmap
def _of_all(place: Array) -> Array:
    """The largest of all lanes of a `vmap`, so that a `switch` stays a `switch`."""
    return place


@_of_all.def_vmap
def _of_all_vmap(axis_size, in_batched, place):
    del axis_size, in_batched
    return _of_all(jnp.max(place, axis=0)), False
