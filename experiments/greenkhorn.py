"""Greenkhorn (Altschuler et al. 2017): Sinkhorn that mends one row or column at a time.

The row or column whose sum is furthest from its marginal is scaled to it; all sums are
then updated, which costs n + m where a Sinkhorn iteration costs 2 n m. The paper names
it as future work. It is slower than Sinkhorn here (docs/large.md); nothing uses it.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array


class Greenkhorn(NamedTuple):
    """An entropic plan."""

    T: Array  # [n, m]
    error: Array  # [] L1 error of both marginals
    steps: Array  # [] int32, rows and columns mended


def greenkhorn(
    u: Array,
    v: Array,
    D: Array,
    epsilon: Array | float,
    *,
    tolerance: float = 1e-4,
    max_steps: int = 100_000,
) -> Greenkhorn:
    """Entropic plan between masses u and v, until both marginals hold.

    Args:
      u: masses, [n]; zeros allowed.
      v: masses, [m]; zeros allowed.
      D: cost, [n, m]. D / epsilon must fit the float's exponent.
      epsilon: entropic weight in the unit of D.
      tolerance: stop at this L1 error of the marginals.
      max_steps: at most so many rows and columns are mended.

    Returns:
      A Greenkhorn.
    """
    if D.shape != (u.shape[0], v.shape[0]):
        raise ValueError(f"D must be {(u.shape[0], v.shape[0])}, got {D.shape}.")
    C = jnp.exp((jnp.min(D) - D) / epsilon)
    C = C / jnp.sum(C)

    def gain(target, now):
        """Bregman's distance from a marginal: what mending it would win."""
        safe = jnp.where(target > 0.0, target, 1.0)
        log = jnp.log(jnp.where(target > 0.0, safe / jnp.maximum(now, 1e-30), 1.0))
        return now - target + target * log

    def body(carry):
        f, g, rows, cols, step = carry
        worst_row, worst_col = gain(u, rows), gain(v, cols)
        i, j = jnp.argmax(worst_row), jnp.argmax(worst_col)

        def mend_row():
            new = f[i] * u[i] / jnp.maximum(rows[i], 1e-30)
            change = (new - f[i]) * C[i] * g
            return f.at[i].set(new), g, rows.at[i].set(u[i]), cols + change

        def mend_col():
            new = g[j] * v[j] / jnp.maximum(cols[j], 1e-30)
            change = (new - g[j]) * C[:, j] * f
            return f, g.at[j].set(new), rows + change, cols.at[j].set(v[j])

        mended = jax.lax.cond(worst_row[i] >= worst_col[j], mend_row, mend_col)
        return *mended, step + 1

    def unmet(carry):
        _, _, rows, cols, step = carry
        return (_gap(u, v, rows, cols) > tolerance) & (step < max_steps)

    start = (
        jnp.ones_like(u),
        jnp.ones_like(v),
        jnp.sum(C, axis=1),
        jnp.sum(C, axis=0),
        jnp.zeros((), jnp.int32),
    )
    f, g, _, _, steps = jax.lax.while_loop(unmet, body, start)
    T = f[:, None] * C * g[None, :]
    return Greenkhorn(T, _gap(u, v, T.sum(axis=1), T.sum(axis=0)), steps)


def _gap(u, v, rows, cols):
    return jnp.sum(jnp.abs(rows - u)) + jnp.sum(jnp.abs(cols - v))
