"""Training: an epoch and its parts, time to quality, a sweep in one compilation."""

import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from dwl_jax import (
    data,
    embedding,
    infer,
    kernel,
    model,
    objective,
    presets,
    simplex,
    train,
    transport,
)
from dwl_jax.documents import Documents, dense
from experiments.bench_timing import Size, best, compiled

MANY_ITERS, FEW_ITERS = 50, 5  # of time to quality
MORE_EPOCHS = 1.2  # of the run with few iterations, over those of the other


def corpus(size: Size):
    """Synthetic admissions, over the paper's 81 codes."""
    return data.synthetic_admissions(size.num_docs + size.num_queries, seed=size.seed)


def rows(docs: Documents, start: int, stop: int) -> Documents:
    """Some of the documents."""
    return Documents(docs.words[start:stop], docs.mass[start:stop])


def recipe(size: Size, **changes):
    """The default recipe at the benchmark's size and loop length."""
    sizes = {
        "num_topics": size.num_topics,
        "dim": size.dim,
        "batch_size": size.batch_size,
        "num_iters": size.num_iters,
        "transport_iters": size.num_iters,
    }
    return presets.default(**(sizes | changes))


def task(size: Size, preset, docs: Documents, num_words: int):
    """What `train.run_epochs` is called with, by position."""
    key = jax.random.key(size.seed)
    return train.prepare(key, docs, preset.hyper, cfg=preset.cfg, num_words=num_words)[
        :-1
    ]


def epoch(size: Size, log) -> dict:
    """Whole epochs, with and without the joint update, over their batch gradients."""
    words = corpus(size)
    docs = rows(words.documents(), 0, size.num_docs)
    batches = -(-size.num_docs // size.batch_size)
    runs, out = {}, {}
    for joint in (False, True):
        log(f"epoch: joint={joint}")
        preset = recipe(size, joint=joint)
        args = task(size, preset, docs, words.num_words)
        fit = functools.partial(train.run_epochs, cfg=preset.cfg, num_epochs=1)
        runs[f"epoch, joint={joint}"], out[f"compile seconds, joint={joint}"], _ = (
            compiled(fit, *args)
        )
        runs |= _parts(size, preset, args, joint)
    found = best(runs, rounds=size.rounds, seconds=3.0 * size.seconds)
    for joint in (False, True):
        whole = batches * found[f"batch gradient, joint={joint}"]
        out[f"ratio, joint={joint}"] = found[f"epoch, joint={joint}"] / whole
    log("epoch: compile time of fit with the default recipe")
    preset = presets.default()
    args = task(size, preset, docs, words.num_words)
    fit = functools.partial(train.run_epochs, cfg=preset.cfg, num_epochs=2)
    out["compile seconds of fit"] = compiled(fit, *args)[1]
    return {"seconds": found, "batches": batches, **out}


def _parts(size: Size, preset, args, joint: bool) -> dict:
    """The parts of one step, each compiled alone."""
    _, state, docs, hyper, _ = args
    cfg, params = preset.cfg, state.params
    s = min(size.batch_size, docs.num_docs)
    some = rows(docs, 0, s)
    y = dense(Documents(*map(jnp.asarray, some)), params.R.shape[1])
    A, opt_A = jax.tree.map(lambda x: x[:s], (params.A, state.opt_A))
    R, theta = params.R, params.theta

    def gradient(A, R, theta, y, hyper):
        batch = objective.Batch(jnp.arange(s), jnp.ones(s), y, None)
        fn = lambda A, R, theta: objective.topic_loss(
            A, R, theta, batch, None, hyper, cfg=cfg
        )[0]
        places = (0, 1, 2) if joint else (0, 1)
        return jax.value_and_grad(fn, argnums=places)(A, R, theta)

    whole = compiled(gradient, A, R, theta, y, hyper)[0]
    runs = {f"batch gradient, joint={joint}": whole}
    if joint:
        return runs

    def cost(theta, hyper):
        return objective.distilled_kernel(theta, hyper, cfg).matrix

    def plans(A, R, theta, y, hyper):
        k = kernel.build(objective.ground_cost(theta, cfg), hyper.epsilon_transport)
        log_b = simplex.log_topics(R)[jnp.argmax(A, axis=-1)]
        return transport.aggregate(log_b, y, k, num_iters=cfg.transport_iters)

    def embed(theta, T, hyper):
        L = embedding.laplacian(T)
        return objective.embedding_step(theta, theta, None, L, hyper, cfg)

    def optimise(A, opt_A):
        return jax.vmap(train.optimizers(cfg)[0].update)(A, opt_A, A)

    T = jnp.full((R.shape[1],) * 2, 1.0 / s)
    return runs | {
        "cost": compiled(cost, theta, hyper)[0],
        "transport": compiled(plans, A, R, theta, y, hyper)[0],
        "embedding step": compiled(embed, theta, T, hyper)[0],
        "optimiser": compiled(optimise, A, opt_A)[0],
    }


def quality(size: Size, log, num_epochs: int = 10) -> dict:
    """Seconds until the validation loss that a run of 50 iterations ends at.

    Each run has its own number of epochs, fixed beforehand, and its rates fall to 0
    over them: that of 50 iterations `num_epochs`, that of few a fifth more.
    """
    words = corpus(size)
    docs = words.documents()
    valid = rows(docs, size.num_docs, size.num_docs + size.batch_size)
    docs = rows(docs, 0, size.num_docs)
    judge = recipe(size, num_iters=MANY_ITERS, num_epochs=num_epochs)

    def judged(state, cfg):
        out = infer(valid, model(state, cfg), judge.hyper, cfg=judge.cfg, num_steps=20)
        return float(out.loss.mean())

    curves = {}
    more = round(MORE_EPOCHS * num_epochs)
    kinds = {"many": (MANY_ITERS, num_epochs), "few": (FEW_ITERS, more)}
    for name, (iters, epochs) in kinds.items():
        log(f"time to quality: {name}, {iters} iterations, {epochs} epochs")
        preset = recipe(size, num_iters=iters, num_epochs=epochs)
        key, state, *rest = task(size, preset, docs, words.num_words)
        fit = functools.partial(train.run_epochs, cfg=preset.cfg, num_epochs=1)
        ready = jax.jit(fit).lower(key, state, *rest).compile()
        spent, curve = 0.0, []
        for _ in range(epochs):
            start = time.perf_counter()
            state, _ = jax.block_until_ready(ready(key, state, *rest))
            spent += time.perf_counter() - start
            curve.append((spent, judged(state, preset.cfg)))
        curves[name] = curve
    many, target = curves["many"][-1]
    reached = lambda curve: next((t for t, v in curve if v <= target), None)
    out = {"validation loss": target, "curves": curves}
    out["seconds"] = {name: reached(curve) for name, curve in curves.items()}
    few = out["seconds"]["few"]
    out["ratio"] = None if few is None else few / many
    return out


def sweep(size: Size, log) -> dict:
    """Five tau in one vmap over five single runs, a few batches each."""
    log("sweep over tau")
    words = corpus(size._replace(num_docs=4 * size.batch_size, num_queries=0))
    preset = recipe(size)
    key, state, docs, hyper, labels = task(
        size, preset, words.documents(), words.num_words
    )
    taus = jnp.linspace(0.2, 1.0, 5)
    traces = []

    def run(tau, *rest):
        traces.append(tau)
        key, state, docs, hyper, labels = rest
        args = (key, state, docs, hyper._replace(tau=tau), labels)
        return train.run_epochs(*args, cfg=preset.cfg, num_epochs=1)[1].loss

    args = (key, state, docs, hyper, labels)
    together = compiled(jax.vmap(run, (0, *[None] * len(args))), taus, *args)[0]
    swept = len(traces)
    ready = jax.jit(run)
    one = lambda tau: ready(tau, *args)
    jax.block_until_ready(one(taus[0]))
    found = best(
        {"together": together, "one by one": lambda: [one(tau) for tau in taus]},
        rounds=size.rounds,
        seconds=3.0 * size.seconds,
    )
    ratio = found["together"] / found["one by one"]
    difference = np.abs(together() - np.stack([one(tau) for tau in taus])).max()
    return {
        "seconds": found,
        "ratio": ratio,
        "traces of the sweep": swept,
        "largest difference": float(difference),
    }
