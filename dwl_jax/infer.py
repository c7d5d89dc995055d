"""Topic weights of unseen documents, with topics and embeddings held fixed."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.sparse as sp

from dwl_jax import checks, choose, embedding, simplex
from dwl_jax.barycenter import barycenter
from dwl_jax.documents import Documents, dense
from dwl_jax.kernel import Kernel
from dwl_jax.objective import (
    distilled_kernel,
    document_loss,
    weight_penalty,
)
from dwl_jax.types import Config, Hyper, Model, reading

Array = jax.Array
_RATE = 0.3  # of Adam on the weights; it falls to 0 as a cosine
_ROWS = 4096  # documents that `infer_rows` gives to the device at once
_ONE_TOPIC = 4.0  # logit of the one topic in a start from it


class Inference(NamedTuple):
    """What a trained model says of new documents."""

    lam: Array  # [M, K] topic weights
    loss: Array  # [M] reconstruction loss at these weights
    log_y: Array | None  # [M, N] log reconstruction


def infer(
    docs: Documents | Any,
    model: Model,
    hyper: Hyper,
    *,
    cfg: Config,
    num_steps: int = 100,
    observed: Array | None = None,
) -> Inference:
    """Minimises the reconstruction loss over each document's weights, from uniform.

    Deterministic, and independent from document to document. There are two starts,
    uniform weights and the one topic that reconstructs a document best, because the
    loss has more than one minimum; the best of all steps is given back, not the last.
    A training document gets its own loss back or a better one.

    Barycenters of one iteration are geometric means of the topics' documents, at K N
    for a document, and all steps are on those.

    Args:
      docs: Documents over the model's words, or counts [M, N].
      model: topics and embeddings.
      hyper: as in training.
      cfg: as in training.
      num_steps: optimiser steps.
      observed: which words can be observed at all, bool [N]: the reconstruction is
        judged on those (say: on diseases, to rank procedures by `log_y`). All if None.

    Returns:
      An Inference for the M documents.
    """
    N = model.X.shape[0]
    docs, num_words = checks.documents(docs, N if isinstance(docs, Documents) else None)
    if num_words != N:
        raise ValueError(f"documents have {num_words} words, the model {N}.")
    checks.hyper(hyper, cfg, model.X.dtype)
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
    observed = checks.observed(observed, docs, N)
    model, hyper = jax.tree.map(jnp.asarray, model), hyper.at(model.epsilon)
    cast = lambda x: jnp.asarray(x, model.X.dtype)  # the model's precision decides
    docs, hyper = docs._replace(mass=cast(docs.mass)), jax.tree.map(cast, hyper)
    X = embedding.ground(model.X, cfg.embedding)  # here: all maps share what compiles
    cfg = choose.settle(reading(cfg), X, model.log_B, hyper)
    static = {"cfg": cfg, "num_steps": num_steps}
    return _infer(docs, model.log_B, X, hyper, observed, **static)


def infer_rows(counts: Any, model: Model, hyper: Hyper, **choices) -> Inference:
    """`infer` for many documents: some at a time, and their reconstructions not kept.

    Args:
      counts: [M, N], an array or a scipy sparse matrix; it stays on the host.
      model: topics and embeddings.
      hyper: as in training.
      **choices: as for `infer`.

    Returns:
      An Inference of numpy arrays, with None for log_y.
    """
    counts = sp.csr_array(counts)
    found = []
    for begin in range(0, counts.shape[0], _ROWS):
        some = infer(counts[begin : begin + _ROWS], model, hyper, **choices)
        found.append((np.asarray(some.lam), np.asarray(some.loss)))
    lam, loss = map(np.concatenate, zip(*found, strict=True))
    return Inference(lam, loss, None)


def topic_documents(model: Model, hyper: Hyper, *, cfg: Config) -> Array:
    """The document each topic makes alone: log barycenters at lambda = e_k, [K, N].

    This is what to read when a topic is to be named. B itself is sharper: it is what
    becomes the topic's documents after the kernel's blur.
    """
    X, hyper = embedding.ground(model.X, cfg.embedding), hyper.at(model.epsilon)
    cfg = choose.settle(reading(cfg), X, model.log_B, hyper)
    return _documents(model.log_B, X, hyper, cfg=cfg)


@functools.partial(jax.jit, static_argnames="cfg")
def _documents(log_B, X, hyper, *, cfg):
    log_y = _alone(log_B, distilled_kernel(X, hyper, cfg), cfg)
    return jax.nn.log_softmax(log_y, axis=-1)


def _alone(log_B: Array, k: Kernel, cfg: Config) -> Array:
    """Log barycenters at lambda = e_k, not normalised, [K, N]."""
    each = jnp.eye(log_B.shape[0], dtype=log_B.dtype)
    return barycenter(log_B, each, k, num_iters=cfg.num_iters).log_y


@functools.partial(jax.jit, static_argnames=("cfg", "num_steps"))
def _infer(docs, log_B, X, hyper, observed, *, cfg, num_steps):
    K, N = log_B.shape
    k = distilled_kernel(X, hyper, cfg)
    opt = optax.scale_by_adam()  # whatever trained the model

    def evaluate(A, y, num_iters, log_scal=None):
        lam = simplex.weights(A)
        if cfg.num_iters == 1:
            log_y = lam @ alone
        else:
            log_y, log_scal, _ = barycenter(
                log_B, lam, k, num_iters=num_iters, log_scal=log_scal
            )
        return document_loss(y, judged(log_y), k, hyper, cfg), log_y, log_scal

    def judged(log_y):
        if observed is None:
            return log_y
        seen = jnp.where(jnp.broadcast_to(observed, log_y.shape), log_y, -jnp.inf)
        return jax.nn.log_softmax(seen, axis=-1)

    def descend(A, opt_state, y, rates, num_iters, warm):
        """Adam on the weights: where it ends, and the best place it saw."""

        def total(A, log_scal):
            loss, _, found = evaluate(A, y, num_iters, log_scal)
            loss = loss + weight_penalty(A, hyper)
            return jnp.sum(loss), (loss, found if warm else log_scal)

        def body(carry, rate):
            A, opt_state, log_scal, best_A, best = carry
            grad, (loss, log_scal) = jax.grad(total, has_aux=True)(A, log_scal)
            best_A = jnp.where((loss < best)[:, None], A, best_A)
            delta, opt_state = jax.vmap(opt.update)(grad, opt_state)
            best = jnp.minimum(loss, best)
            return (A - rate * delta, opt_state, log_scal, best_A, best), None

        log_scal = jnp.zeros((len(y), K, N), y.dtype) if warm else None
        worst = jnp.full((len(y),), jnp.inf, y.dtype)
        start = (A, opt_state, log_scal, A, worst)
        (A, opt_state, _, best_A, _), _ = jax.lax.scan(body, start, rates)
        return A, opt_state, best_A

    def outcomes(A, y):
        """Of two logits for each document, [2 s, K]: both halves."""
        loss, log_y, _ = evaluate(A, y, cfg.num_iters)
        found = Inference(simplex.weights(A), loss, log_y)
        return halves((found, loss + weight_penalty(A, hyper)))

    def better(one, other):
        return pick(one[1] <= other[1], one, other)

    alone = _alone(log_B, k, cfg)
    quick = (3 * num_steps) // 4

    def batch(docs_s):
        y = dense(docs_s, N)
        one = jax.vmap(
            lambda v: document_loss(
                y, judged(jnp.broadcast_to(v, y.shape)), k, hyper, cfg
            )
        )(jax.nn.log_softmax(alone, axis=-1))
        from_one = _ONE_TOPIC * jax.nn.one_hot(jnp.argmin(one, 0), K, dtype=y.dtype)
        A = jnp.concatenate([jnp.zeros_like(from_one), from_one])
        turn = jnp.arange(num_steps, dtype=y.dtype) * (jnp.pi / num_steps)
        rates, twice = _RATE * 0.5 * (1.0 + jnp.cos(turn)), jnp.concatenate([y, y])
        # Going on from the scalings of the step before, few iterations do ...
        both = descend(
            A,
            jax.vmap(opt.init)(A),
            twice,
            rates[:quick],
            max(1, cfg.num_iters // 4),
            warm=cfg.num_iters > 1,
        )
        # ... but they are judged as training is, and so is the end.
        found = outcomes(both[2], twice)
        A, opt_state, _ = pick(found[0][1] <= found[1][1], *halves(both))
        A, _, best_A = descend(
            A, opt_state, y, rates[quick:], cfg.num_iters, warm=False
        )
        found += outcomes(jnp.concatenate([A, best_A]), twice)
        return functools.reduce(better, found)[0]

    return map_batches(batch, docs, cfg.batch_size)


def pick(first: Array, one: Any, other: Any) -> Any:
    """A tree with the rows of `one` where first, [M], and of `other` elsewhere."""
    choose = lambda x, z: jnp.where(first.reshape(-1, *[1] * (x.ndim - 1)), x, z)
    return jax.tree.map(choose, one, other)


def halves(tree: Any) -> list[Any]:
    """A tree with the first half of all rows, and one with the second."""
    half = lambda i: jax.tree.map(lambda x: jnp.split(x, 2)[i], tree)
    return [half(0), half(1)]


def map_batches(fn, docs: Documents, batch_size: int):
    """Maps `fn` over batches of documents; the last one is filled with document 0."""
    M = docs.mass.shape[0]
    s = min(batch_size, M)
    num_batches = -(-M // s)
    rows = jnp.arange(num_batches * s)
    rows = jnp.where(rows < M, rows, 0).reshape(num_batches, s)
    out = jax.lax.map(lambda r: fn(jax.tree.map(lambda x: x[r], docs)), rows)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:M], out)
