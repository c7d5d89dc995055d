"""Algorithm 1: init, step, epoch, fit."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dwl_jax import (
    blur,
    checks,
    choose,
    embedding,
    kernel,
    mesh,
    simplex,
    start,
)
from dwl_jax.documents import Documents, dense, sparse
from dwl_jax.mesh import put, take
from dwl_jax.objective import (
    Batch,
    Followed,
    follow_transports,
    own_topics,
    topic_loss,
)
from dwl_jax.spectral import spectral
from dwl_jax.types import (
    UNHELD,
    Config,
    Hyper,
    Info,
    Model,
    Params,
    State,
    optimizer,
)

Array = jax.Array


def optimizers(cfg: Config) -> tuple[optax.GradientTransformation, ...]:
    """Of A (for one row), R and theta."""
    choices = (cfg.optimizer_A, cfg.optimizer_R, cfg.optimizer_theta)
    return tuple(optimizer(choice) for choice in choices)


def init(
    key: Array,
    num_docs: int,
    num_words: int,
    *,
    cfg: Config,
    vectors: Array | None = None,
    features: Array | None = None,
    topics: tuple[Array, Array] | None = None,
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
      topics: logits A [M, K] and R [K, N] to start from.
      dtype: float type of everything; float32 unless 64 bit is enabled and asked for.

    Returns:
      The State before the first batch.
    """
    dtype = jnp.dtype(dtype or jnp.float32)
    key_A, key_R, key_theta = jax.random.split(key, 3)
    cast = lambda x: None if x is None else jnp.asarray(x, dtype)
    if topics is None:
        A = jax.random.normal(key_A, (num_docs, cfg.num_topics), dtype)
        R = jax.random.normal(key_R, (cfg.num_topics, num_words), dtype)
    else:
        A, R = map(cast, topics)
    features, vectors = cast(features), cast(vectors)
    theta = cfg.embedding.init(
        key_theta, num_words, cfg.dim, features, vectors, dtype=dtype
    )
    opt_A, opt_R, opt_theta = optimizers(cfg)
    return State(
        params=Params(A, R, theta),
        opt_A=jax.vmap(opt_A.init)(A),
        opt_R=opt_R.init(R),
        opt_theta=opt_theta.init(theta),
        theta_start=theta,
        features=features,
        epoch=jnp.zeros((), jnp.int32),
        batch=jnp.zeros((), jnp.int32),
        finite=jnp.ones((), bool),
    )


def decayed(hyper: Hyper, epoch: Array) -> Hyper:
    """Hyper with its rates at a given epoch: they fall as a cosine, if at all."""
    done = epoch / jnp.maximum(hyper.decay_epochs, 1.0)
    falling = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(done, 1.0)))
    factor = jnp.where(hyper.decay_epochs > 0.0, falling, 1.0)
    rates = ("rate_A", "rate_R", "rate_joint", "rate_theta")
    return hyper._replace(**{name: factor * getattr(hyper, name) for name in rates})


def step(
    state: State, batch: Batch, hyper: Hyper, *, cfg: Config, num_labels: int = 0
) -> tuple[State, Info]:
    """One batch of Algorithm 1: topics and weights, then embeddings (lines 6 to 8).

    A step that meets a number that is not finite, or that the kernel's form cannot
    hold, changes nothing, nor does any step after it: the State stays the last good
    one, and `Info.fault` says what it was. With `Config.kernel` 'auto' all forms are
    compiled, and one branch runs; `fit` compiles the one that the numbers need.

    The kernel is made of theta, whatever `Config.renew` says: see `advance`.
    """
    return advance(state, batch, hyper, cfg=cfg, num_labels=num_labels)[:2]


def advance(
    state: State,
    batch: Batch,
    hyper: Hyper,
    k: Any = None,
    *,
    cfg: Config,
    num_labels: int = 0,
    lasts: int = 1,
) -> tuple[State, Info, Any]:
    """`step` with a kernel that an earlier step made, or None to make it of theta.

    Theta moves in steps that make the kernel, and in no others; its transports then
    stand for those of all `lasts` steps that share the kernel.

    Returns:
      The State, Info, and the kernel.
    """
    params, features = state.params, state.features
    hyper = decayed(hyper.at(state.epsilon), state.epoch)
    moving = k is None
    joint = cfg.joint and moving
    rows_s = take((params.A, state.opt_A), batch.rows)
    A_s, opt_A_s = rows_s
    loss_fn = jax.value_and_grad(
        functools.partial(topic_loss, cfg=cfg, num_labels=num_labels),
        argnums=(0, 1, 2) if joint else (0, 1),
        has_aux=True,
    )
    (total, (loss, error, k)), (grad_A, grad_R, *grad_theta) = loss_fn(
        A_s, params.R, params.theta, batch, features, hyper, k
    )
    count = jnp.sum(batch.mask)
    share = 1.0 / count if cfg.reduction == "mean" else 1.0
    grad_R, grad_theta = jax.tree.map(lambda g: share * g, (grad_R, grad_theta))

    opt_A, opt_R, opt_theta = optimizers(cfg)
    delta, opt_A_s = jax.vmap(opt_A.update)(grad_A, opt_A_s, A_s)
    A_s = embedding.descend(A_s, delta, hyper.rate_A)
    delta, state_R = opt_R.update(grad_R, state.opt_R, params.R)
    R = embedding.descend(params.R, delta, hyper.rate_R)
    theta, state_theta = params.theta, state.opt_theta
    if joint:
        delta, state_theta = opt_theta.update(grad_theta[0], state_theta, theta)
        theta = embedding.descend(theta, delta, hyper.rate_joint)
    joint_theta = theta

    pulled = Followed(theta, jnp.zeros((), R.dtype), jnp.zeros_like(loss), False)
    if moving:
        of_all = hyper._replace(
            rate_theta=lasts * hyper.rate_theta,
            anchor=1.0 - (1.0 - hyper.anchor) ** lasts,
        )
        pulled = follow_transports(
            theta, state.theta_start, A_s, R, batch, features, of_all,
            weight=share * batch.mask, cfg=cfg, num_labels=num_labels,
        )  # fmt: skip
    theta = pulled.theta

    fault = checks.faults(
        total, (grad_A, A_s), (grad_R, R), (grad_theta, joint_theta), theta
    )
    outgrown = kernel.outgrown(k, simplex.log_topics(params.R)) | pulled.outgrown
    fault = jnp.where(outgrown, UNHELD, fault)  # then the other numbers say nothing
    fault = jnp.where(batch.due, fault, 0)
    moves = state.finite & batch.due & (fault == 0)
    pick = lambda new, old: jnp.where(moves, new, old)
    rows_s = jax.tree.map(pick, (A_s, opt_A_s), rows_s)
    A, opt_A = put((params.A, state.opt_A), batch.rows, rows_s)
    R, opt_R, theta, opt_theta = jax.tree.map(
        pick,
        (R, state_R, theta, state_theta),
        (params.R, state.opt_R, params.theta, state.opt_theta),
    )
    info = Info(
        loss=jnp.sum(batch.mask * loss) / count,
        energy=pulled.energy,
        error=jnp.sum(batch.mask * error) / count,
        transport_error=jnp.sum(batch.mask * pulled.error) / count,
        blur=jnp.median(jax.lax.stop_gradient(k).row_sums()),
        likeness=embedding.likeness(
            *(cfg.embedding.apply(x, features) for x in (theta, state.theta_start))
        ),
        fast=kernel.multiplied(k, simplex.log_topics(params.R)),
        grad_norm=jnp.linalg.norm(grad_R),
        fault=fault,
    )
    state = state._replace(
        params=Params(A, R, theta),
        opt_A=opt_A,
        opt_R=opt_R,
        opt_theta=opt_theta,
        batch=state.batch + moves,
        finite=state.finite & (fault == 0),
    )
    return state, info, k


def turn(num_batches: int, cfg: Config) -> int:
    """Steps that share a kernel: `Config.renew`, or fewer so that all turns are alike.

    An epoch begins with a new kernel, so that nothing of it goes from one to the next.
    """
    turns = -(-num_batches // cfg.renew)
    return -(-num_batches // turns)


def shared(infos: Info, first: Info) -> Info:
    """Info of a turn's other steps, with what its first one says of all transports."""
    like = lambda name: jnp.full_like(getattr(infos, name), getattr(first, name))
    return infos._replace(
        energy=like("energy"), transport_error=like("transport_error")
    )


def epoch(
    key: Array,
    state: State,
    docs: Documents,
    hyper: Hyper,
    *,
    cfg: Config,
    labels: Array | None = None,
    num_labels: int = 0,
    num_docs: int | None = None,
) -> tuple[State, Info]:
    """One shuffled pass over all documents; the last batch is filled up and masked.

    Args:
      key: a `jax.random.key`; the epoch's number is folded in, so that a resumed run
        and an uninterrupted one shuffle alike.
      state: before the epoch; one that a fault ended goes on from `state.batch`.
      docs: the corpus, M documents.
      hyper: traced numbers.
      cfg: static choices.
      labels: [M] int, -1 where unknown (supervised mode), or None.
      num_labels: how many labels there are; 0 without labels.
      num_docs: M, if the arrays have more rows (so that devices get equal shares).

    Returns:
      The State after the epoch, and Info with one entry per batch.
    """
    num_rows, N = docs.mass.shape[0], state.params.R.shape[1]
    M = num_rows if num_docs is None else num_docs
    s = min(cfg.batch_size, M)
    num_batches = -(-M // s)
    steps = turn(num_batches, cfg)
    places = -(-num_batches // steps) * steps  # those after the last batch are empty
    order = jax.random.permutation(jax.random.fold_in(key, state.epoch), M)
    order = jnp.concatenate([order, jnp.full((places * s - M,), num_rows)])

    begin = state.batch

    def body(state, index_and_rows, k=None):
        index, rows = index_and_rows
        docs_s, labels_s = take((docs, labels), rows)
        mask = (rows < M).astype(docs.mass.dtype)
        y, mask = dense(docs_s, N), mesh.split(mask)
        due = (index >= begin) & (index < num_batches)
        batch = Batch(rows, mask, y, labels_s, docs_s, due)
        how = {"cfg": cfg, "num_labels": num_labels, "lasts": steps}
        return advance(state, batch, hyper, k, **how)

    def one_turn(state, batches):
        state, info, k = body(state, jax.tree.map(lambda x: x[0], batches))
        others = jax.tree.map(lambda x: x[1:], batches)
        state, infos = jax.lax.scan(lambda *now: body(*now, k)[:2], state, others)
        infos = shared(infos, info)
        join = lambda x, rest: jnp.concatenate([x[None], rest])
        return state, jax.tree.map(join, info, infos)

    batches = jnp.arange(places), order.reshape(places, s)
    if steps == 1:
        state, info = jax.lax.scan(lambda *now: body(*now)[:2], state, batches)
        return completed(state), info
    turns = jax.tree.map(lambda x: x.reshape(-1, steps, *x.shape[1:]), batches)
    state, infos = jax.lax.scan(one_turn, state, turns)
    info = jax.tree.map(lambda x: x.reshape(places, *x.shape[2:])[:num_batches], infos)
    return completed(state), info


def completed(state: State) -> State:
    """After an epoch's last batch: the next one begins, unless a step failed."""
    batch = jnp.where(state.finite, 0, state.batch)
    return state._replace(epoch=state.epoch + state.finite, batch=batch)


@functools.partial(
    jax.jit, static_argnames=("cfg", "num_epochs", "num_labels", "num_docs")
)
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
    num_docs: int | None = None,
) -> tuple[State, Info]:
    """`num_epochs` epochs from a given State, compiled as one scan; see `epoch`."""
    sizes = {"cfg": cfg, "num_labels": num_labels, "num_docs": num_docs}

    def run(key, state, docs, hyper, labels):
        body = lambda s, _: epoch(key, s, docs, hyper, labels=labels, **sizes)
        return jax.lax.scan(body, state, length=num_epochs)

    if jax.default_backend() == "cpu":  # what one run keeps fits the caches
        run = jax.custom_batching.sequential_vmap(run)
    return run(key, state, docs, hyper, labels)


class Task(NamedTuple):
    """A checked corpus with all that `run_epochs` needs to learn from it."""

    key: Array
    state: State
    docs: Documents
    hyper: Hyper
    labels: Array | None
    num_labels: int


def prepare(
    key: Array,
    docs: Documents | Any,
    hyper: Hyper = Hyper(),  # noqa: B008 - a tuple of numbers
    *,
    cfg: Config = Config(),  # noqa: B008 - frozen
    num_words: int | None = None,
    vectors: Any | None = None,
    features: Any | None = None,
    labels: Any | None = None,
) -> Task:
    """Checks what `fit` is given and draws the first State; see there."""
    docs, num_words = checks.documents(docs, num_words, vectors, features)
    checks.words(cfg, num_words, vectors, features)
    checks.hyper(hyper, cfg, docs.mass.dtype)
    labels, num_labels = checks.labels(labels, docs.num_docs, cfg)
    key_init, key_run = jax.random.split(key)
    dtype = docs.mass.dtype
    topics, K = None, cfg.num_topics
    sizes = {"num_words": num_words, "num_topics": K}
    own = own_topics(labels, K, num_labels) if num_labels else None
    if cfg.start == "documents":
        topics = start.from_documents(key_init, docs, own, **sizes)
    elif cfg.start == "spectral":
        checks.known(docs, vectors)
        if vectors is None:
            vectors = spectral(docs, num_words, cfg.embedding.given or cfg.dim)
        Z = start.pooled(sparse(docs, num_words), np.asarray(vectors)).astype(dtype)
        topics = start.from_pooled(key_init, docs, Z, own, **sizes)
    state = init(
        key_init,
        docs.num_docs,
        num_words,
        cfg=cfg,
        vectors=vectors,
        features=features,
        topics=topics,
        dtype=dtype,
    )
    if cfg.transport and (isinstance(hyper.blur, jax.core.Tracer) or hyper.blur > 0.0):
        X = cfg.embedding.apply(state.params.theta, state.features)
        how = {"squared": cfg.squared, "scale": cfg.scale}
        found = blur.epsilon_for(X, hyper.tau, hyper.blur, **how)
        state = state._replace(epsilon=found)
    hyper = jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)
    return Task(key_run, state, docs, hyper, labels, num_labels)


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
      NonFiniteError: naming epoch, batch and quantity; it holds the last good State.
    """
    if num_epochs < 1:
        raise ValueError(f"num_epochs must be at least 1, got {num_epochs}.")
    *task, num_labels = prepare(
        key,
        docs,
        hyper,
        cfg=cfg,
        num_words=num_words,
        vectors=vectors,
        features=features,
        labels=labels,
    )
    key, state, *rest = task

    def run(state, cfg, num_epochs):
        sizes = {"num_epochs": num_epochs, "num_labels": num_labels}
        return run_epochs(key, state, *rest, cfg=cfg, **sizes)

    state, info = choose.train(run, state, hyper, cfg, num_epochs)
    checks.finite(state, info, hyper, cfg)
    checks.blurs(info, hyper.at(state.epsilon), cfg)
    return state, info


def model(state: State, cfg: Config) -> Model:
    """Topics and embeddings of a trained state."""
    X = cfg.embedding.apply(state.params.theta, state.features)
    X = embedding.shown(X, cfg.embedding)
    return Model(simplex.log_topics(state.params.R), X, state.epsilon)
