"""The blur of a kernel, what a row of C sums to off its diagonal, and its epsilon.

Epsilon alone says little: the same number moves nothing among N(0, 1) draws and all
mass among embeddings with neighbours. The blur says how much of a word's mass its
neighbours get: 0 is the identity, 1 is as much as the word keeps.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import blocks
from dwl_jax import cost as cost_lib
from dwl_jax.cost import Scale

Array = jax.Array
_SAMPLE = 1024  # words whose rows are looked at, evenly spread over the vocabulary
_LOW, _HIGH = 1e-5, 1e3  # of epsilon, in units of the scaled D^tau
_HALVINGS = 27  # of the logs between: to 1e-7


def epsilon_for(
    X: Array, tau: Array | float, blur: Array | float, *, squared: bool, scale: Scale
) -> Array:
    """The epsilon at which the median row of C sums to `blur` off its diagonal.

    Args:
      X: embeddings, [N, dim].
      tau: distillation power; traced.
      blur: positive; traced.
      squared: as in Config.
      scale: as in Config.

    Returns:
      epsilon, [].

    Raises:
      ValueError: where no epsilon gives the blur, unless something is traced: fewer
        words than it asks for, or most of them in one place.
    """
    N, X = X.shape[0], jax.lax.stop_gradient(X)
    rows = jnp.arange(0, N, -(-N // _SAMPLE))
    if rows.size == N:
        D = cost_lib.scale(cost_lib.distance_matrix(X, squared=squared), scale)
        cost = cost_lib.distill(D, tau)
    else:
        unit = blocks.ground(X, tau, 1.0, squared=squared, scale=scale)
        cost = unit.exponent(blocks.squared_distances(X[rows], X))
    cost = jnp.where(rows[:, None] == jnp.arange(N)[None, :], jnp.inf, cost)
    blurred = lambda epsilon: jnp.median(jnp.sum(jnp.exp(-cost / epsilon), axis=1))

    def halve(_, ends):
        low, high = ends
        middle = jnp.sqrt(low * high)
        less = blurred(middle) < blur
        return jnp.where(less, middle, low), jnp.where(less, high, middle)

    ends = jnp.asarray(_LOW, X.dtype), jnp.asarray(_HIGH, X.dtype)
    low, high = jax.lax.fori_loop(0, _HALVINGS, halve, ends)
    epsilon = jnp.sqrt(low * high)
    found = blurred(epsilon)
    known = not isinstance(found * blur, jax.core.Tracer)
    if known and not np.isclose(float(found), float(blur), rtol=1e-2):
        raise ValueError(
            f"no epsilon gives a blur of {float(blur):g} among these {N} words: the "
            f"nearest is {float(found):.2g}. A blur is below N - 1, and words that "
            "coincide blur whatever epsilon is; set epsilon instead."
        )
    return epsilon
