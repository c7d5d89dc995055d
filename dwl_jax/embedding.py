"""Word embeddings X = g_theta(W), and their update from the aggregate transport."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

Array = jax.Array
Theta = Any
_PAIRS = 1024


class EmbeddingMap(NamedTuple):
    """g_theta as an init/apply pair.

    `init(key, num_words, dim, features, vectors, dtype=)` gives theta: N(0, 1), or such
    that `apply` gives `vectors` (exactly, or as nearly as the map can).
    `apply(theta, features)` gives X, [N, dim], as the ground cost sees it (`ground`).
    """

    init: Callable[..., Theta]
    apply: Callable[[Theta, Array | None], Array]
    linear: bool  # X is linear in theta, so that E(theta) has an exact minimiser
    uses_features: bool = True
    given: int | None = None  # coordinates that `vectors` have; None: all of them
    share: float = 1.0  # of the given coordinates in the ground cost


def _one_hot_init(key, num_words, dim, features=None, vectors=None, *, dtype=None):
    del features
    if vectors is not None:
        return jnp.asarray(vectors, dtype)
    return jax.random.normal(key, (num_words, dim), dtype or jnp.float32)


one_hot = EmbeddingMap(
    _one_hot_init, lambda theta, features: theta, linear=True, uses_features=False
)
"""w_n is one-hot, so that theta is X itself, [N, dim]: the paper's experiments."""


def _linear_init(key, num_words, dim, features, vectors=None, *, dtype=None):
    del num_words
    features = jnp.asarray(features, dtype)
    if vectors is not None:
        return jnp.linalg.lstsq(features, jnp.asarray(vectors, features.dtype))[0]
    shape = (features.shape[1], dim)
    return jax.random.normal(key, shape, features.dtype)


linear = EmbeddingMap(
    _linear_init, lambda theta, features: features @ theta, linear=True
)
"""X = W theta for given word features W, [N, F]."""


@functools.cache
def mlp(hidden: int = 64) -> EmbeddingMap:
    """X = base + tanh(W theta_1 + b_1) theta_2: base is the given vectors, or 0."""

    def init(key, num_words, dim, features, vectors=None, *, dtype=None):
        features = jnp.asarray(features, dtype)
        keys = jax.random.split(key)
        shapes = (features.shape[1], hidden), (hidden, dim)
        first, second = (
            jax.random.normal(k, shape, features.dtype) / np.sqrt(shape[0])
            for k, shape in zip(keys, shapes, strict=True)
        )
        if vectors is None:
            base = jnp.zeros((num_words, dim), features.dtype)
            second = second * np.sqrt(hidden)
        else:
            base, second = jnp.asarray(vectors, features.dtype), 0.0 * second
        bias = jnp.zeros((hidden,), features.dtype)
        return {"first": first, "bias": bias, "second": second, "base": base}

    def apply(theta, features):
        inner = jnp.tanh(features @ theta["first"] + theta["bias"][None, :])
        return jax.lax.stop_gradient(theta["base"]) + inner @ theta["second"]

    return EmbeddingMap(init, apply, linear=False)


@functools.cache
def beside(given: int, share: float) -> EmbeddingMap:
    """X = [V, theta]: vectors V [N, given] that stay, and what is learned beside them.

    Squared distances are the sum of both parts': what is learned bends the geometry
    that was given, and cannot forget it. `share` scales V in the ground cost alone.
    Without vectors V is drawn like the rest.
    """

    def init(key, num_words, dim, features=None, vectors=None, *, dtype=None):
        drawn = _one_hot_init(key, num_words, dim, features, dtype=dtype)
        if vectors is None:
            return drawn
        return drawn.at[:, :given].set(jnp.asarray(vectors, drawn.dtype))

    def apply(theta, features):
        del features
        kept = share * jax.lax.stop_gradient(theta[:, :given])
        return jnp.concatenate([kept, theta[:, given:]], axis=1)

    return EmbeddingMap(init, apply, False, False, given, share)


def ground(X: Array, chosen: EmbeddingMap) -> Array:
    """Embeddings as the ground cost sees them: given coordinates count their share."""
    return X if chosen.given is None else X * _counts(X, chosen)


def shown(X: Array, chosen: EmbeddingMap) -> Array:
    """Embeddings as they are used by others: the inverse of `ground`."""
    return X if chosen.given is None else X / _counts(X, chosen)


def _counts(X: Array, chosen: EmbeddingMap) -> np.ndarray:
    """What each coordinate counts in the ground cost, [1, dim]."""
    given = np.arange(X.shape[1]) < chosen.given
    return np.where(given, chosen.share, 1.0).astype(X.dtype)[None, :]


def likeness(X: Array, Z: Array) -> Array:
    """Correlation of words' distances in X and in Z, [N, dim] each: [].

    Of at most 1,024 pairs of words, always the same; 0 where distances are all alike.
    """
    i, j = np.random.default_rng(0).integers(X.shape[0], size=(2, _PAIRS))
    distance = lambda x: jnp.linalg.norm(x[i[i != j]] - x[j[i != j]], axis=-1)
    x, z = (d - jnp.mean(d) for d in (distance(X), distance(Z)))
    size = jnp.sqrt(jnp.sum(x**2) * jnp.sum(z**2))
    return jnp.where(size > 0.0, jnp.sum(x * z) / jnp.where(size > 0.0, size, 1.0), 0.0)


def laplacian(T: Array) -> Array:
    """L = diag(S 1) - S of the symmetrised aggregate S = (T + T') / 2, [N, N]."""
    S = 0.5 * (T + T.T)
    return jnp.diag(jnp.sum(S, axis=1)) - S


def spread_energy(X: Array, L: Array) -> Array:
    """Tr(X' L X) = 1/2 sum_nn' s_nn' ||x_n - x_n'||^2: squared distances, halved."""
    return jnp.sum(X * (L @ X))


def energy(
    theta: Theta,
    theta_c: Theta,
    L: Array,
    beta: Array | float,
    *,
    embed: Callable[[Theta], Array],
) -> Array:
    """E(theta) = Tr(X' L X) + beta ||theta - theta_c||^2 (Eq. 7), L held fixed."""
    drift = jax.tree.map(lambda x, x_c: jnp.sum((x - x_c) ** 2), theta, theta_c)
    return spread_energy(embed(theta), L) + beta * sum(jax.tree.leaves(drift))


def explicit_step(theta, L, beta, rate, *, embed) -> Theta:
    """The paper's theta - rho grad E(theta): beta is inert, its gradient is 0 here."""
    grad = jax.grad(energy)(theta, theta, L, beta, embed=embed)
    return jax.tree.map(lambda x, g: x - rate * g, theta, grad)


def proximal_step(theta: Array, L: Array, beta, *, features: Array | None) -> Array:
    """Exact minimiser of E for a linear map: (W' L W + beta I) theta = beta theta_c.

    For one-hot words (features None) W is the identity.
    """
    G = L if features is None else features.T @ L @ features
    G = G + beta * jnp.eye(G.shape[0], dtype=G.dtype)
    return jax.scipy.linalg.solve(G, beta * theta, assume_a="pos")


def descend(params, direction, rate):
    """Moves params by -rate * direction, over any tree."""
    scaled = jax.tree.map(lambda d: -rate * d, direction)
    return optax.apply_updates(params, scaled)
