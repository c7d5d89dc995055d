"""k-NN inside one labelled set: nobody is its own neighbour; k by cross-validation."""

import numpy as np

from dwl_jax import metrics
from experiments import protocol


def without_self(near: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Neighbours [Q, k + 1] less the query itself, [Q, k].

    Args:
      near: places in the set, nearest first.
      own: place of each query in the set, [Q]. Where it is not among `near`, twins
        came before it, and the last neighbour goes instead.
    """
    mine = near == own[:, None]
    mine[~mine.any(axis=1), -1] = True
    return near[~mine].reshape(len(near), -1)


def accuracy(labels: np.ndarray, near: np.ndarray, true: np.ndarray, k: int) -> float:
    """Share of queries whose k nearest vote for their label."""
    return metrics.accuracy(protocol.vote(labels[near[:, :k]]), true)


def choose(labels, near: np.ndarray, true: np.ndarray, candidates) -> int:
    """The k that tells most queries right; the larger one of equals is smoother."""
    return max(candidates, key=lambda k: (accuracy(labels, near, true, k), k))
