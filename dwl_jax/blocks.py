"""The kernel of many words, made a block of rows at a time.

Squared distances come from a matrix product here, which puts coinciding words up to
1e-3 of a unit apart in float32.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax.cost import Scale

Array = jax.Array
_ENTRIES = 3 << 18  # of a block: what stays in a processor's caches
_SAMPLE = 1024  # words by which a unit is measured that has no closed form


class Ground(NamedTuple):
    """log C = -(||x - x'||^2 / unit)^power / epsilon, between words that differ."""

    unit: Array  # [] a squared distance
    power: Array | float  # tau, or tau / 2 if distances are not squared
    epsilon: Array  # []

    def exponent(self, D2: Array) -> Array:
        """-log C of squared distances; 0, with gradient 0, where they are 0."""
        if isinstance(self.power, float) and self.power == 1.0:
            return D2 / (self.unit * self.epsilon)
        apart = D2 > 0.0
        ratio = jnp.where(apart, D2 / self.unit, 1.0)
        power = jnp.exp(self.power * jnp.log(ratio))  # twice as fast as ** on a CPU
        return jnp.where(apart, power, 0.0) / self.epsilon

    def fall(self, C: Array, D2: Array) -> Array:
        """-dC / dD2 = power C log(1 / C) / D2; 0 where words coincide but for rounding.

        One logarithm, where C made again would take two exponentials as well.
        """
        apart = (8.0 * jnp.finfo(D2.dtype).eps * self.unit < D2) & (C > 0.0)
        slope = -self.power * C * jnp.log(jnp.where(apart, C, 1.0))
        return slope / jnp.where(apart, D2, 1.0)


def ground(
    X: Array, tau, epsilon, *, squared: bool = False, scale: Scale = "mean"
) -> Ground:
    """The cost that `cost.distance_matrix`, `scale` and `distill` make, as numbers.

    The mean of squared distances is exact. Any other unit is that of at most 1,024
    words, evenly spread over the vocabulary: exact for so few.
    """
    N = X.shape[0]
    X = jax.lax.stop_gradient(X)
    if scale == "none" or N == 1:
        unit = jnp.ones((), X.dtype)
    elif scale == "mean" and squared:
        unit = 2.0 * jnp.sum((X - jnp.mean(X, axis=0, keepdims=True)) ** 2) / (N - 1)
    else:
        few = X[:: -(-N // _SAMPLE)]
        apart = ~jnp.eye(few.shape[0], dtype=bool)
        D = squared_distances(few, few)
        D = jnp.where(apart, D if squared else jnp.sqrt(D), jnp.nan)
        unit = jnp.nanmean(D)
        unit = unit if squared else unit**2
    unit = jnp.where(unit > 0.0, unit, 1.0)
    return Ground(unit, tau * (1.0 if squared else 0.5), jnp.asarray(epsilon))


def squared_distances(X: Array, Z: Array) -> Array:
    """||x - z||^2, [n, m], by a matrix product of centred vectors."""
    centre = jax.lax.stop_gradient(jnp.mean(Z, axis=0, keepdims=True))
    X, Z = X - centre, Z - centre
    size = jnp.sum(X**2, axis=-1)[:, None] + jnp.sum(Z**2, axis=-1)[None, :]
    return jnp.maximum(size - 2.0 * (X @ Z.T), 0.0)


def between(X: Array, block: tuple[Array, int]) -> Array:
    """Squared distances from a block of words to all, [n, N]; 0 from each to itself."""
    begin, size = block
    D2 = squared_distances(jax.lax.dynamic_slice_in_dim(X, begin, size), X)
    own = begin + jnp.arange(size)[:, None] == jnp.arange(X.shape[0])[None, :]
    return jnp.where(own, 0.0, D2)


def scan_rows(fn, carry):
    """fn(carry, (first row, number of rows)) over blocks of the rows of an array.

    Args:
      fn: gives the carry and something to stack; the last block begins early enough to
        be whole, so that some rows come twice.
      carry: with a row for each word.

    Returns:
      The carry and what was stacked, as `jax.lax.scan`.
    """
    N = carry.shape[0]
    size = max(1, min(N, _ENTRIES // N))
    begins = jnp.minimum(jnp.arange(-(-N // size)) * size, N - size)
    return jax.lax.scan(lambda c, begin: fn(c, (begin, size)), carry, begins)
