"""Topic weights of unseen documents, with topics and embeddings held fixed."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dwl_jax import checks, simplex
from dwl_jax.barycenter import barycenter
from dwl_jax.documents import Documents, dense
from dwl_jax.objective import distilled_kernel, document_loss
from dwl_jax.types import Config, Hyper, Model, optimizer

Array = jax.Array


class Inference(NamedTuple):
    """What a trained model says of new documents."""

    lam: Array  # [M, K] topic weights
    loss: Array  # [M] reconstruction loss at these weights
    log_y: Array  # [M, N] log reconstruction


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

    Deterministic, and independent from document to document. The best of all steps is
    given back, not the last.

    Args:
      docs: Documents over the model's words, or counts [M, N].
      model: topics and embeddings.
      hyper: as in training; `rate_A` is the first rate, it falls to 0 as a cosine.
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
    checks.hyper(hyper, cfg)
    if num_steps < 1:
        raise ValueError(f"num_steps must be at least 1, got {num_steps}.")
    if observed is not None and jnp.shape(observed) != (N,):
        raise ValueError(f"observed must be [{N}], got {jnp.shape(observed)}.")
    model = jax.tree.map(jnp.asarray, model)
    cast = lambda x: jnp.asarray(x, model.X.dtype)  # the model's precision decides
    docs, hyper = docs._replace(mass=cast(docs.mass)), jax.tree.map(cast, hyper)
    return _infer(docs, model, hyper, observed, cfg=cfg, num_steps=num_steps)


@functools.partial(jax.jit, static_argnames=("cfg", "num_steps"))
def _infer(docs, model, hyper, observed, *, cfg, num_steps):
    N = model.X.shape[0]
    k = distilled_kernel(model.X, hyper, cfg)
    opt = optimizer(cfg.optimizer_A, cfg.clip_norm)

    def evaluate(A, y):
        lam = simplex.weights(A)
        log_y = barycenter(
            model.log_B, lam, k, num_iters=cfg.num_iters, debias=cfg.debias
        ).log_y
        seen = log_y
        if observed is not None:
            seen = jnp.where(observed[None, :], log_y, -jnp.inf)
            seen = jax.nn.log_softmax(seen, axis=-1)
        return document_loss(y, seen, k, hyper, cfg), log_y

    def batch(docs_s):
        y = dense(docs_s, N)
        total = lambda A: (lambda loss, log_y: (loss.sum(), loss))(*evaluate(A, y))
        grad_fn = jax.grad(total, has_aux=True)

        def body(carry, rate):
            A, opt_state, best_A, best = carry
            grad, loss = grad_fn(A)
            better = loss < best
            best_A = jnp.where(better[:, None], A, best_A)
            delta, opt_state = jax.vmap(opt.update)(grad, opt_state, A)
            A = A - rate * delta
            return (A, opt_state, best_A, jnp.where(better, loss, best)), None

        A = jnp.zeros((y.shape[0], model.log_B.shape[0]), y.dtype)
        turn = jnp.arange(num_steps, dtype=y.dtype) * (jnp.pi / num_steps)
        rates = hyper.rate_A * 0.5 * (1.0 + jnp.cos(turn))
        worst = jnp.full((y.shape[0],), jnp.inf, y.dtype)
        start = (A, jax.vmap(opt.init)(A), A, worst)
        (A, _, best_A, best), _ = jax.lax.scan(body, start, rates)
        last, _ = evaluate(A, y)
        A = jnp.where((last < best)[:, None], A, best_A)
        loss, log_y = evaluate(A, y)
        return Inference(simplex.weights(A), loss, log_y)

    return map_batches(batch, docs, cfg.batch_size)


def map_batches(fn, docs: Documents, batch_size: int):
    """Maps `fn` over batches of documents; the last one is filled with document 0."""
    M = docs.mass.shape[0]
    s = min(batch_size, M)
    num_batches = -(-M // s)
    rows = jnp.arange(num_batches * s)
    rows = jnp.where(rows < M, rows, 0).reshape(num_batches, s)
    out = jax.lax.map(lambda r: fn(jax.tree.map(lambda x: x[r], docs)), rows)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:M], out)
