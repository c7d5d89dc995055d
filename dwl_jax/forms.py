"""Which form the kernel has: dense, or by topics."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import blocks, kernel_topics
from dwl_jax.types import Config, Hyper

Array = jax.Array
DENSE_WORDS = 1_000  # up to here `choose` stays with the matrix
_TOLERANCE = 0.15  # of products


def distilled(X: Array, hyper: Hyper, cfg: Config) -> blocks.Ground:
    """The cost D^tau of the topics, for blocks."""
    return blocks.ground(
        X, hyper.tau, hyper.epsilon, squared=cfg.squared, scale=cfg.scale
    )


def undistilled(X: Array, hyper: Hyper, cfg: Config) -> blocks.Ground:
    """The cost D of the transports, for blocks."""
    return blocks.ground(
        X, 1.0, hyper.epsilon_transport, squared=cfg.squared, scale=cfg.scale
    )


def build(X: Array, hyper: Hyper, cfg: Config, log_B: Array, basis=None):
    """The kernel of D^tau by topics.

    Args:
      X: embeddings, [N, dim].
      hyper: traced numbers.
      cfg: static choices.
      log_B: topics, [K, N]: the kernel keeps the rows of their words.
      basis: of a kernel near it, to go on from.
    """
    ground, number = distilled(X, hyper, cfg), cfg.topic_words
    return kernel_topics.build(X, ground, log_B, number=number, basis=basis)


def sources(k: Any, B: Array, closest: Array) -> tuple[Array, Array]:
    """What a batch's transports start from, for `supports.pull`.

    Args:
      k: a kernel by topics.
      B: topics, [K, N].
      closest: the topic of each document, [s].

    Returns:
      Masses, [s, n], and the words they are of, [s, n].
    """
    words, mass = kernel_topics.stand_ins(k.basis, B)
    return mass[closest], words[closest]


def first(X: Array, hyper: Hyper, cfg: Config, log_B: Array) -> Any:
    """What the first kernel by topics of a run goes on from."""
    make = lambda X, hyper, log_B: build(X, hyper, cfg, log_B).next_basis
    return jax.jit(make)(X, hyper, log_B)


class Choice(NamedTuple):
    """What `choose` found."""

    cfg: Config  # with a kernel that is not `auto`, unless few words let it be
    error: float  # measured, of products; 0 for a dense kernel
    why: str


def choose(X: Any, hyper: Hyper, cfg: Config, log_B: Any = None) -> Choice:
    """Settles `Config.kernel` 'auto' by the number of words and measured errors.

    Args:
      X: embeddings that training starts from, [N, dim].
      hyper: traced numbers, known here.
      cfg: static choices; anything but 'auto' is left as it is.
      log_B: topics, [K, N], like those that will be learned.

    Returns:
      A Choice: by topics above 1,000 words if products are within 15 %, else dense.
    """
    N = np.shape(X)[0]
    if cfg.kernel != "auto":
        return Choice(cfg, 0.0, f"{cfg.kernel}, as asked")
    if N <= DENSE_WORDS:
        return Choice(cfg, 0.0, f"dense: {N:,} words are few")
    if cfg.step not in ("explicit", "none") or cfg.closest != "weight":
        return Choice(cfg, 0.0, "dense: step or closest needs the whole matrix")
    if log_B is None or cfg.loss == "sinkhorn":
        return Choice(cfg, 0.0, "dense: more than topics is multiplied")
    own = dataclasses.replace(cfg, kernel="topics")
    make = jax.jit(lambda X, log_B: build(X, hyper, own, log_B))
    k = make(jnp.asarray(X), jnp.asarray(log_B))
    error = float(k.error)
    if not bool(k.fits) or error > _TOLERANCE:
        return Choice(cfg, 0.0, f"dense: by topics products would be {error:.0%} off")
    why = f"topics, {own.topic_words} words each: products within {error:.2%}"
    return Choice(own, error, f"{why} at the start")
