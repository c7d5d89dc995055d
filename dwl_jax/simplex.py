"""Free parameters to the simplex: A -> Lambda and R -> log B (Eq. 8)."""

import jax

Array = jax.Array


def weights(A: Array) -> Array:
    """Lambda(A): topic weights of each document, softmax over [..., K]."""
    return jax.nn.softmax(A, axis=-1)


def log_topics(R: Array) -> Array:
    """Log B(R): log word distribution of each topic, [K, N]."""
    return jax.nn.log_softmax(R, axis=-1)
