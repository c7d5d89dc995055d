"""Which form the kernel has: dense, or by topics, of low rank, or of neighbours."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import blocks, kernel_lowrank, kernel_neighbours, kernel_topics
from dwl_jax.types import FACTORED, Config, Hyper

Array = jax.Array
DENSE_WORDS = 1_000  # up to here `choose` stays with the matrix
_RANKS = (32, 64, 128)
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


def build(X: Array, hyper: Hyper, cfg: Config, log_B: Array | None = None, basis=None):
    """The kernel of D^tau in the factored form that `cfg.kernel` names.

    Args:
      X: embeddings, [N, dim].
      hyper: traced numbers.
      cfg: static choices.
      log_B: topics, [K, N]: the kernel is nearest where they have their mass. The
        form `topics` cannot do without.
      basis: of a kernel near it, to go on from.
    """
    ground = distilled(X, hyper, cfg)
    if cfg.kernel == "topics":
        number = cfg.topic_words
        return kernel_topics.build(X, ground, log_B, number=number, basis=basis)
    if cfg.kernel == "lowrank":
        share = None if log_B is None else jnp.mean(jnp.exp(log_B), axis=0)
        sizes = {"rank": cfg.rank, "hubs": cfg.hubs}
        return kernel_lowrank.build(X, ground, basis=basis, share=share, **sizes)
    return kernel_neighbours.build(X, ground, neighbours=cfg.neighbours, basis=basis)


def sources(k: Any, B: Array, closest: Array) -> tuple[Array, Array | None]:
    """What a batch's transports start from, for `supports.pull`.

    Args:
      k: a factored kernel.
      B: topics, [K, N].
      closest: the topic of each document, [s].

    Returns:
      Masses, [s, n], and the words they are of, [s, n], or None for all of them.
    """
    if k.form != "topics":
        return B[closest], None
    words, mass = kernel_topics.stand_ins(k.basis, B)
    return mass[closest], words[closest]


def first(X: Array, hyper: Hyper, cfg: Config, log_B: Array) -> Any:
    """What the first kernel of a run goes on from; None for a dense one."""
    if cfg.kernel not in FACTORED:
        return None
    make = lambda X, hyper, log_B: build(X, hyper, cfg, log_B).next_basis
    return jax.jit(make)(X, hyper, log_B)


def look_again(X: Array, hyper: Hyper, cfg: Config) -> Any:
    """The basis of a neighbour kernel at the start of an epoch: who is near now."""
    return kernel_neighbours.find(X, distilled(X, hyper, cfg), cfg.neighbours)


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
      log_B: topics, [K, N], like those that will be learned; without them, or where a
        choice of cfg multiplies more than topics, the form `topics` is not tried.

    Returns:
      A Choice: dense up to 1,000 words or where a choice of cfg needs it; else by
      topics if products are within 15 %; else the smallest rank for which they are;
      else neighbours if they are nearer than the largest rank.
    """
    N = np.shape(X)[0]
    if cfg.kernel != "auto":
        return Choice(cfg, 0.0, f"{cfg.kernel}, as asked")
    if N <= DENSE_WORDS:
        return Choice(cfg, 0.0, f"dense: {N:,} words are few")
    if cfg.step not in ("explicit", "none") or cfg.closest != "weight":
        return Choice(cfg, 0.0, "dense: step or closest needs the whole matrix")
    X, found = jnp.asarray(X), []
    if log_B is not None and not cfg.debias and cfg.loss != "sinkhorn":
        own = dataclasses.replace(cfg, kernel="topics")
        k = jax.jit(lambda X, log_B: build(X, hyper, own, log_B))(X, jnp.asarray(log_B))
        if bool(k.fits) and float(k.error) <= _TOLERANCE:
            why = f"topics, {own.topic_words} words each"
            return Choice(own, *_said(why, float(k.error)))
    for rank in _RANKS:
        low = dataclasses.replace(cfg, kernel="lowrank", rank=rank)
        k = jax.jit(lambda X, low=low: build(X, hyper, low))(X)
        if not bool(k.fits):
            break
        found.append((float(k.error), low, f"lowrank, rank {rank}"))
        if found[-1][0] <= _TOLERANCE:
            break
    if not found or found[-1][0] > _TOLERANCE:
        near = dataclasses.replace(cfg, kernel="neighbours")
        k = jax.jit(lambda X: build(X, hyper, near))(X)
        found.append((float(k.error), near, f"neighbours, {near.neighbours} a word"))
    error, cfg, why = min(found, key=lambda f: f[0])
    return Choice(cfg, *_said(why, error))


def _said(why: str, error: float) -> tuple[float, str]:
    return error, f"{why}: products within {error:.2%} at the start"
