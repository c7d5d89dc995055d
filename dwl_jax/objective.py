"""The objectives of Algorithm 1: L_tau(A, R) for topics, E(theta) for embeddings."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import (
    blocks,
    embedding,
    held,
    identity,
    kernel,
    losses,
    simplex,
    supports,
    transport,
)
from dwl_jax import cost as cost_lib
from dwl_jax.barycenter import barycenter
from dwl_jax.documents import Documents
from dwl_jax.types import FEW_WORDS, Config, Hyper

Array = jax.Array


class Batch(NamedTuple):
    """The documents of one step; places without a document have mask 0."""

    rows: Array  # [s] index into the corpus, M where there is no document
    mask: Array  # [s] 1 or 0
    y: Array  # [s, N]
    labels: Array | None  # [s] int, -1 where unknown
    docs: Documents | None = None  # the same as y, [s, S]; for plans on supports
    due: Array | bool = True  # [] bool, False if this step was done before


def ground_cost(X: Array, cfg: Config) -> Array:
    """D_theta in its unit: scaled distances between embeddings, [N, N]."""
    return cost_lib.scale(cost_lib.distance_matrix(X, squared=cfg.squared), cfg.scale)


def distilled_kernel(X: Array, hyper: Hyper, cfg: Config) -> kernel.Kernel:
    """The kernel of D_theta^tau that the topics are learned with."""
    if not cfg.transport:
        return identity.IdentityKernel(jnp.zeros((), X.dtype), X.shape[0])
    if cfg.kernel == "plain" and may_hold(cfg, X.shape[0]):
        return held.make(X, ground(X, hyper, cfg))
    cost = cost_lib.distill(ground_cost(X, cfg), hyper.tau)
    return kernel.build(cost, hyper.epsilon, form=cfg.kernel)


def may_hold(cfg: Config, num_words: int) -> bool:
    """Whether many words are multiplied by the topics' kernel, and once alone."""
    once = cfg.num_iters == 1 and cfg.loss != "sinkhorn"
    return once and num_words > FEW_WORDS


def ground(X: Array, hyper: Hyper, cfg: Config) -> blocks.Ground:
    """D_theta^tau over epsilon, for a kernel made by blocks."""
    choices = {"squared": cfg.squared, "scale": cfg.scale}
    return blocks.ground(X, hyper.tau, hyper.epsilon, **choices)


def document_loss(y: Array, log_y: Array, k: kernel.Kernel, hyper, cfg) -> Array:
    """L(y, y_hat) of each document, [..., N] -> [...], by the choice of `cfg.loss`."""
    if callable(cfg.loss):
        return cfg.loss(y, log_y)
    if cfg.loss == "sinkhorn":
        return losses.sinkhorn_divergence(
            y, log_y, k, hyper.epsilon, num_iters=cfg.num_iters
        )
    return {"kl": losses.kl, "squared": losses.squared}[cfg.loss](y, log_y)


def weight_penalty(A: Array, hyper: Hyper) -> Array:
    """Minus the log of a normal prior on the logits of lambda, [..., K] -> [...]."""
    centred = A - jnp.mean(A, axis=-1, keepdims=True)
    return 0.5 * hyper.prior * jnp.sum(centred**2, axis=-1)


def own_topics(labels: Array, K: int, num_labels: int) -> Array:
    """Which topics a label has: k serves label k mod num_labels. [s] -> bool [s, K]."""
    topic_label = jnp.arange(K) % num_labels
    return (labels[:, None] == topic_label[None, :]) | (labels[:, None] < 0)


def topic_loss(
    A_s: Array,
    R: Array,
    theta: Any,
    batch: Batch,
    features: Array | None,
    hyper: Hyper,
    k: Any = None,
    *,
    cfg: Config,
    num_labels: int = 0,
) -> tuple[Array, tuple[Array, Array, kernel.Kernel]]:
    """L_tau(A, R) of Eq. (11), summed over the batch.

    Args:
      A_s: logits of the batch's topic weights, [s, K].
      R: logits of the topics, [K, N].
      theta: of the embeddings; a gradient through it makes the joint update.
      batch: the documents.
      features: of the embedding map, [N, F], or None.
      hyper: traced numbers.
      k: a kernel that is held from an earlier step; made of theta if None.
      cfg: static choices.
      num_labels: 0, or how many labels the documents may have.

    Returns:
      The sum of losses, and (loss of each document [s], disagreement of its plans [s],
      kernel).
    """
    X = cfg.embedding.apply(theta, features)
    log_B = simplex.log_topics(R)
    if k is None:
        k = distilled_kernel(X, hyper, cfg)

    bary = barycenter(log_B, simplex.weights(A_s), k, num_iters=cfg.num_iters)
    loss = document_loss(batch.y, bary.log_y, k, hyper, cfg)
    total = jnp.sum(batch.mask * (loss + weight_penalty(A_s, hyper)))
    if num_labels:
        own = own_topics(batch.labels, A_s.shape[1], num_labels)
        log_lam = jax.nn.log_softmax(A_s, axis=-1)
        log_own = jax.nn.logsumexp(jnp.where(own, log_lam, -jnp.inf), axis=-1)
        total -= hyper.label_weight * jnp.sum(batch.mask * log_own)
        apart = losses.neighbours(batch.y @ X, batch.labels, batch.mask)
        total += hyper.metric_weight * jnp.sum(batch.mask) * apart
    return total, (loss, bary.error, k)


def closest_topic(
    lam: Array,
    log_B: Array,
    y: Array,
    k: kernel.Kernel | None,
    own: Array | None,
    cfg: Config,
) -> Array:
    """k_m of Eq. (6): the topic of largest weight or smallest distance, [s].

    Args:
      lam: topic weights, [s, K].
      log_B: topics, [K, N].
      y: documents, [s, N].
      k: kernel of D, if `cfg.closest` is `distance`.
      own: topics a document may choose from (supervised mode), [s, K], or None.
      cfg: static choices.
    """
    score = lam
    if cfg.closest == "distance":
        score = -transport.distances(log_B, y, k, num_iters=cfg.transport_iters)
    if own is not None:
        score = jnp.where(own, score, -jnp.inf)
    return jnp.argmax(score, axis=-1)


class Followed(NamedTuple):
    """Embeddings after a batch's transports."""

    theta: Any
    energy: Array | float  # [] Tr(X' L X) before
    error: Array  # [s] L1 error of each plan's document side
    outgrown: Array | bool  # the kernel's form cannot hold the plans


def follow_transports(
    theta: Any,
    theta_start: Any,
    A_s: Array,
    R: Array,
    batch: Batch,
    features: Array | None,
    hyper: Hyper,
    *,
    weight: Array,
    cfg: Config,
    num_labels: int = 0,
) -> Followed:
    """Theta on E(theta) of a batch's transports (Eqs. 6 and 7), and the protection.

    Many words take part where documents and topics have mass: a document on its words,
    a topic on its heaviest. Few take part all, by one kernel for the batch.

    Args:
      theta: of the embeddings.
      theta_start: what protects them.
      A_s: logits of the batch's topic weights, [s, K].
      R: logits of the topics, [K, N].
      batch: the documents.
      features: of the embedding map, [N, F], or None.
      hyper: traced numbers.
      weight: of each document in the sum of plans, [s].
      cfg: static choices.
      num_labels: 0, or how many labels the documents may have.

    Returns:
      A Followed.
    """
    args = (theta, theta_start, features)
    if cfg.step == "none":
        theta = embedding_step(*args, None, hyper, cfg)
        return Followed(theta, jnp.zeros((), R.dtype), jnp.zeros_like(weight), False)
    X = cfg.embedding.apply(theta, features)
    lam, log_B = simplex.weights(A_s), simplex.log_topics(R)
    own = None
    if num_labels:
        own = own_topics(batch.labels, cfg.num_topics, num_labels)
    how = {"num_iters": cfg.transport_iters, "weight": weight}
    if on_supports(cfg, X.shape[0]):
        nearest = closest_topic(lam, log_B, batch.y, None, own, cfg)
        words, b = supports.heaviest(log_B, cfg.topic_words)
        units = {"squared": cfg.squared, "scale": cfg.scale}
        cost = blocks.ground(X, 1.0, hyper.epsilon_transport, **units)
        plans = supports.pull(
            b[nearest], batch.docs, X, cost, words=words[nearest], **how
        )
        theta = pulled_step(*args, plans.LX, hyper, cfg)
        return Followed(theta, plans.energy, plans.error, False)
    k = kernel.build(
        ground_cost(X, cfg), hyper.epsilon_transport, form=cfg.transport_kernel
    )
    nearest = closest_topic(lam, log_B, batch.y, k, own, cfg)
    plans = transport.aggregate(log_B[nearest], batch.y, k, **how)
    L = embedding.laplacian(plans.T)
    theta = embedding_step(*args, L, hyper, cfg)
    energy = embedding.spread_energy(X, L)
    return Followed(theta, energy, plans.error, kernel.outgrown(k))


def on_supports(cfg: Config, num_words: int) -> bool:
    """Whether plans are between heaviest words: of many, if nothing asks for all."""
    asked = cfg.step != "explicit" or cfg.closest != "weight"
    return num_words > FEW_WORDS and not asked


def embedding_step(
    theta, theta_start, features, L: Array | None, hyper: Hyper, cfg: Config
) -> Any:
    """One update of theta on E(theta), with the chosen protection against collapse.

    L may be None if `cfg.step` is `none`: then only the protection acts.
    """
    embed = lambda theta: cfg.embedding.apply(theta, features)
    if cfg.step == "explicit":
        theta = embedding.explicit_step(
            theta, L, hyper.beta, hyper.rate_theta, embed=embed
        )
    elif cfg.step == "proximal":
        W = None if cfg.embedding is embedding.one_hot else features
        theta = embedding.proximal_step(theta, L, hyper.beta, features=W)
    return protect(theta, theta_start, hyper)


def pulled_step(theta, theta_start, features, LX: Array, hyper: Hyper, cfg: Config):
    """`embedding_step` of the explicit kind, from L X alone."""
    embed = lambda theta: cfg.embedding.apply(theta, features)
    grad = jax.vjp(embed, theta)[1](2.0 * LX)[0]
    theta = embedding.descend(theta, grad, hyper.rate_theta)
    return protect(theta, theta_start, hyper)


def protect(theta, theta_start, hyper: Hyper) -> Any:
    """The anchor, after a step."""
    return jax.tree.map(lambda x, x0: x + hyper.anchor * (x0 - x), theta, theta_start)
