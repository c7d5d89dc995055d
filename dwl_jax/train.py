"""Algorithm 1: init, step, epoch, fit."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax

from dwl_jax import checks, embedding, kernel, simplex, transport
from dwl_jax.documents import Documents, dense
from dwl_jax.objective import (
    Batch,
    closest_topic,
    embedding_step,
    ground_cost,
    own_topics,
    topic_loss,
)
from dwl_jax.types import (
    Config,
    Hyper,
    Info,
    Model,
    Params,
    State,
    optimizer,
)

Array = jax.Array


def update_rows(opt, A: Array, opt_A: Any, grad_s: Array, rows: Array, rate):
    """An optax update of the rows of A that the batch touched; row M is nobody's."""
    take = lambda x: x.at[rows].get(mode="clip")
    put = lambda x, x_s: x.at[rows].set(x_s, mode="drop")
    A_s, state_s = take(A), jax.tree.map(take, opt_A)
    delta, state_s = jax.vmap(opt.update)(grad_s, state_s, A_s)
    A_s = embedding.descend(A_s, delta, rate)
    return put(A, A_s), jax.tree.map(put, opt_A, state_s)


def init(
    key: Array,
    num_docs: int,
    num_words: int,
    *,
    cfg: Config,
    vectors: Array | None = None,
    features: Array | None = None,
    dtype: Any = None,
) -> State:
    """A, R, theta ~ N(0, 1), or theta from given vectors (Alg. 1, line 3).

    Args:
      key: a `jax.random.key`.
      num_docs: M.
      num_words: N.
      cfg: static choices.
      vectors: embeddings to start from, [N, dim].
      features: word features W of the embedding map, [N, F].
      dtype: float type of everything; float32 unless 64 bit is enabled and asked for.

    Returns:
      The State before the first batch.
    """
    dtype = jnp.dtype(dtype or jnp.float32)
    key_A, key_R, key_theta = jax.random.split(key, 3)
    A = jax.random.normal(key_A, (num_docs, cfg.num_topics), dtype)
    R = jax.random.normal(key_R, (cfg.num_topics, num_words), dtype)
    cast = lambda x: None if x is None else jnp.asarray(x, dtype)
    features, vectors = cast(features), cast(vectors)
    theta = cfg.embedding.init(key_theta, num_words, cfg.dim, features, vectors)
    theta = jax.tree.map(lambda x: x.astype(dtype), theta)
    rows = cfg.num_topics + cfg.debias
    return State(
        params=Params(A, R, theta),
        opt_A=jax.vmap(optimizer(cfg.optimizer_A).init)(A),
        opt_R=optimizer(cfg.optimizer_R).init(R),
        opt_theta=optimizer(cfg.optimizer_theta).init(theta),
        theta_start=theta,
        log_scal=jnp.zeros((num_docs, rows, num_words), dtype)
        if cfg.warm_start
        else None,
        features=features,
        epoch=jnp.zeros((), jnp.int32),
    )


def step(
    state: State, batch: Batch, hyper: Hyper, *, cfg: Config, num_labels: int = 0
) -> tuple[State, Info]:
    """One batch of Algorithm 1: topics and weights, then embeddings (lines 6 to 8)."""
    params, features = state.params, state.features
    take = lambda x: x.at[batch.rows].get(mode="clip")
    log_scal = None if state.log_scal is None else take(state.log_scal)
    loss_fn = jax.value_and_grad(
        functools.partial(topic_loss, cfg=cfg, num_labels=num_labels),
        argnums=(0, 1, 2) if cfg.joint else (0, 1),
        has_aux=True,
    )
    (_, (loss, bary, k)), (grad_A, grad_R, *grad_theta) = loss_fn(
        take(params.A), params.R, params.theta, batch, log_scal, features, hyper
    )
    count = jnp.sum(batch.mask)
    share = 1.0 / count if cfg.reduction == "mean" else 1.0
    grad_R = share * grad_R

    A, opt_A = update_rows(
        optimizer(cfg.optimizer_A),
        params.A,
        state.opt_A,
        grad_A,
        batch.rows,
        hyper.rate_A,
    )
    delta, opt_R = optimizer(cfg.optimizer_R).update(grad_R, state.opt_R, params.R)
    R = embedding.descend(params.R, delta, hyper.rate_R)
    theta, opt_theta = params.theta, state.opt_theta
    if cfg.joint:
        grad = jax.tree.map(lambda g: share * g, grad_theta[0])
        delta, opt_theta = optimizer(cfg.optimizer_theta).update(grad, opt_theta, theta)
        theta = embedding.descend(theta, delta, hyper.rate_joint)

    energy = transport_error = jnp.zeros((), R.dtype)
    if cfg.step != "none":
        X = cfg.embedding.apply(theta, features)
        k_D = kernel.build(
            ground_cost(X, cfg), hyper.epsilon_transport, form=cfg.kernel
        )
        lam, log_B = simplex.weights(take(A)), simplex.log_topics(R)
        own = None
        if num_labels:
            own = own_topics(batch.labels, cfg.num_topics, num_labels)
        nearest = closest_topic(lam, log_B, batch.y, k_D, own, cfg)
        total = transport.aggregate(
            log_B[nearest],
            batch.y,
            k_D,
            num_iters=cfg.transport_iters,
            weight=share * batch.mask,
        )
        L = embedding.laplacian(total.T)
        energy = embedding.spread_energy(X, L)
        transport_error = jnp.sum(batch.mask * total.error) / count
        theta = embedding_step(theta, state.theta_start, features, L, hyper, cfg)

    if state.log_scal is not None:
        put = state.log_scal.at[batch.rows]
        log_scal = put.set(jax.lax.stop_gradient(bary.log_scal), mode="drop")
    info = Info(
        loss=jnp.sum(batch.mask * loss) / count,
        energy=energy,
        error=jnp.sum(batch.mask * bary.error) / count,
        transport_error=transport_error,
        fast=k.fits if cfg.kernel == "auto" else jnp.asarray(cfg.kernel == "fast"),
        grad_norm=optax.global_norm(grad_R),
    )
    return state._replace(
        params=Params(A, R, theta),
        opt_A=opt_A,
        opt_R=opt_R,
        opt_theta=opt_theta,
        log_scal=log_scal,
    ), info


def epoch(
    key: Array,
    state: State,
    docs: Documents,
    hyper: Hyper,
    *,
    cfg: Config,
    labels: Array | None = None,
    num_labels: int = 0,
) -> tuple[State, Info]:
    """One shuffled pass over all documents; the last batch is filled up and masked.

    Args:
      key: a `jax.random.key`; the epoch's number is folded in, so that a resumed run
        and an uninterrupted one shuffle alike.
      state: before the epoch.
      docs: the corpus, M documents.
      hyper: traced numbers.
      cfg: static choices.
      labels: [M] int, -1 where unknown (supervised mode), or None.
      num_labels: how many labels there are; 0 without labels.

    Returns:
      The State after the epoch, and Info with one entry per batch.
    """
    M, N = docs.mass.shape[0], state.params.R.shape[1]
    s = min(cfg.batch_size, M)
    num_batches = -(-M // s)
    order = jax.random.permutation(jax.random.fold_in(key, state.epoch), M)
    order = jnp.concatenate([order, jnp.full((num_batches * s - M,), M)])

    def body(state, rows):
        take = lambda x: x.at[rows].get(mode="clip")
        batch = Batch(
            rows=rows,
            mask=(rows < M).astype(docs.mass.dtype),
            y=dense(jax.tree.map(take, docs), N),
            labels=None if labels is None else take(labels),
        )
        return step(state, batch, hyper, cfg=cfg, num_labels=num_labels)

    state, info = jax.lax.scan(body, state, order.reshape(num_batches, s))
    return state._replace(epoch=state.epoch + 1), info


@functools.partial(jax.jit, static_argnames=("cfg", "num_epochs", "num_labels"))
def run_epochs(
    key: Array,
    state: State,
    docs: Documents,
    hyper: Hyper,
    labels: Array | None = None,
    *,
    cfg: Config,
    num_epochs: int,
    num_labels: int = 0,
) -> tuple[State, Info]:
    """`num_epochs` epochs from a given State, compiled as one scan."""
    body = lambda s, _: epoch(
        key, s, docs, hyper, cfg=cfg, labels=labels, num_labels=num_labels
    )
    return jax.lax.scan(body, state, length=num_epochs)


def fit(
    key: Array,
    docs: Documents | Any,
    hyper: Hyper = Hyper(),  # noqa: B008 - a tuple of numbers
    *,
    cfg: Config = Config(),  # noqa: B008 - frozen
    num_epochs: int,
    num_words: int | None = None,
    vectors: Any | None = None,
    features: Any | None = None,
    labels: Any | None = None,
) -> tuple[State, Info]:
    """Distilled Wasserstein learning, Algorithm 1, from data to the final State.

    Args:
      key: a `jax.random.key`; the result depends on it and the arguments alone.
      docs: Documents, or counts [M, N] as an array or scipy sparse matrix.
      hyper: traced numbers; sweep any of them with `jax.vmap`.
      cfg: static sizes and choices.
      num_epochs: passes over the corpus.
      num_words: N; needed if docs are Documents and neither vectors nor features tell.
      vectors: embeddings to fine-tune, [N, dim]; from scratch if None.
      features: word features W for `embedding.linear` and `embedding.mlp`, [N, F].
      labels: supervised mode: label of each document, [M] ints from 0, -1 for unknown.

    Returns:
      The final State, and Info stacked as [num_epochs, batches].

    Raises:
      ValueError: naming the document or argument that is wrong.
    """
    docs, num_words = checks.documents(docs, num_words, vectors, features)
    checks.words(cfg, num_words, vectors, features)
    checks.hyper(hyper, cfg)
    if num_epochs < 1:
        raise ValueError(f"num_epochs must be at least 1, got {num_epochs}.")
    labels, num_labels = checks.labels(labels, docs.num_docs, cfg)
    key_init, key_run = jax.random.split(key)
    dtype = docs.mass.dtype
    state = init(
        key_init,
        docs.num_docs,
        num_words,
        cfg=cfg,
        vectors=vectors,
        features=features,
        dtype=dtype,
    )
    hyper = jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)
    return run_epochs(
        key_run,
        state,
        docs,
        hyper,
        labels,
        cfg=cfg,
        num_epochs=num_epochs,
        num_labels=num_labels,
    )


def model(state: State, cfg: Config) -> Model:
    """Topics and embeddings of a trained state."""
    X = cfg.embedding.apply(state.params.theta, state.features)
    return Model(simplex.log_topics(state.params.R), X)
