"""The ground cost: D_theta from embeddings, its scale, and the distilled D^tau."""

from typing import Literal

import jax
import jax.numpy as jnp

Array = jax.Array
Scale = Literal["mean", "none"]

# Up to this many differences x_n - x_n' are formed at once, above it a word at a time.
# Never by the Gram matrix: in float32 it puts coinciding words 1e-3 apart.
_AT_ONCE = 1 << 24


def distance_matrix(X: Array, *, squared: bool = False) -> Array:
    """D_theta, the Euclidean distances between embeddings (Sec. 2.2).

    The gradient is finite everywhere: 0 on the diagonal and at coinciding words.

    Args:
      X: embeddings, [N, dim].
      squared: give ||x - x'||^2, as in the paper's Eq. (6), instead of ||x - x'||.

    Returns:
      D, [N, N], symmetric with zero diagonal.
    """
    N, dim = X.shape
    row = lambda x: jnp.sum((x[None, :] - X) ** 2, axis=-1)
    if N * N * dim <= _AT_ONCE:
        D2 = jax.vmap(row)(X)
    else:
        D2 = jax.lax.map(jax.checkpoint(row), X)
    # By itself x - x is not 0 where XLA fuses what makes x into one of both.
    D2 = jnp.where(jnp.eye(N, dtype=bool), 0.0, D2)
    if squared:
        return D2
    positive = D2 > 0.0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, D2, 1.0)), 0.0)


def scale(D: Array, how: Scale = "mean") -> Array:
    """Divides D by the mean of its off-diagonal entries, so that epsilon has a unit.

    No gradient flows through the mean: stretching all embeddings does nothing.

    Args:
      D: distances, [N, N].
      how: `mean`, or `none` to leave D as it is.

    Returns:
      Scaled distances, [N, N]; D itself when all words coincide.
    """
    N = D.shape[0]
    if how == "none" or N == 1:
        return D
    if how != "mean":
        raise ValueError(f"scale must be mean or none, got {how!r}.")
    unit = jnp.sum(jax.lax.stop_gradient(D)) / (N * (N - 1))
    return D / jnp.where(unit > 0.0, unit, 1.0)


def distill(D: Array, tau: Array | float) -> Array:
    """Smooths the teacher's distances: D^tau elementwise (Sec. 3.2), 0 kept at 0.

    Args:
      D: distances, [N, N].
      tau: the distillation power, in (0, 1]; traced.

    Returns:
      D^tau, [N, N]. Its gradient at 0 is 0.
    """
    if not isinstance(tau, jax.core.Tracer) and not 0.0 < float(tau) <= 1.0:
        raise ValueError(f"tau must be in (0, 1], got {tau}.")
    positive = D > 0.0
    return jnp.where(positive, jnp.where(positive, D, 1.0) ** tau, 0.0)
