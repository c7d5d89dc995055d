"""Which form each kernel has, decided on the host where the numbers are known.

What is traced has to be compiled for every form; what is known needs one. So whoever
calls the compiled loop settles `Config` first, and goes on in another form from a step
whose numbers have outgrown theirs: such a step has changed nothing.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import logging

from dwl_jax import kernel, objective
from dwl_jax.types import UNHELD, Config, Hyper, Info, State

Array = jax.Array
Run = Callable[[State, Config, int], tuple[State, Info]]
_ROWS = 1024  # of the distances that are looked at together


def settle(cfg: Config, X: Any, log_B: Any, hyper: Hyper) -> Config:
    """`cfg` with a form in place of each `auto`; as it is if anything is traced.

    Args:
      cfg: static choices.
      X: embeddings as the ground cost sees them, [N, dim].
      log_B: topics, [K, N].
      hyper: numbers.
    """
    if "auto" not in (cfg.kernel, cfg.transport_kernel):
        return cfg
    if _traced((X, log_B, hyper)):
        return cfg
    if not cfg.transport:
        return dataclasses.replace(cfg, kernel="plain", transport_kernel="plain")
    X, log_B = np.asarray(X), np.asarray(log_B)
    least, most = extent(X, cfg)
    tau, epsilon = float(hyper.tau), float(hyper.epsilon)
    topics = most**tau / epsilon, least**tau / epsilon, float(kernel.span(log_B))
    reach = most / float(hyper.epsilon_transport)
    plans = reach, 0.0, np.inf  # which have no scaled form
    chosen = {
        "kernel": kernel.form_for(
            *topics, X.dtype, once=objective.may_hold(cfg, len(X))
        ),
        "transport_kernel": kernel.form_for(*plans, X.dtype),
    }
    auto = {name: form for name, form in chosen.items() if getattr(cfg, name) == "auto"}
    return dataclasses.replace(cfg, **auto)


def extent(X: np.ndarray, cfg: Config) -> tuple[float, float]:
    """Least and largest ground cost between two words, in its unit."""
    N, X = len(X), np.asarray(X, np.float64)
    if N == 1:
        return 0.0, 0.0
    least, most, total, size = np.inf, 0.0, 0.0, np.sum(X**2, axis=1)
    for begin in range(0, N, _ROWS):
        rows = slice(begin, min(begin + _ROWS, N))
        D = size[rows, None] + size[None, :] - 2.0 * (X[rows] @ X.T)
        D = np.maximum(D, 0.0) if cfg.squared else np.sqrt(np.maximum(D, 0.0))
        own = np.arange(begin, rows.stop)
        D[own - begin, own] = 0.0
        most, total = max(most, D.max()), total + D.sum()
        D[own - begin, own] = np.inf
        least = min(least, D.min())
    unit = total / (N * (N - 1)) if cfg.scale == "mean" else 1.0
    unit = unit if unit > 0.0 else 1.0
    return float(least / unit), float(most / unit)


def of_state(cfg: Config, state: State, hyper: Hyper) -> Config:
    """`settle` for what a State holds."""
    X = cfg.embedding.apply(state.params.theta, state.features)
    hyper = hyper.at(state.epsilon)
    return settle(cfg, X, state.params.R, hyper)  # logits span what their logs do


def higher(now: Config, cfg: Config, chosen: Config) -> Config:
    """What comes after forms that could not hold a step, never below them.

    Those chosen for its state; or, as a step may outgrow its form by its own first
    half, the next ones. Nothing is above `log` and what is given in `cfg`.
    """
    rank = ("plain", "scaled", "log").index
    names = [n for n in ("kernel", "transport_kernel") if getattr(cfg, n) == "auto"]
    most = lambda n: max(getattr(now, n), getattr(chosen, n), key=rank)
    after = dataclasses.replace(now, **{n: most(n) for n in names})
    if after != now:
        return after
    up = {"kernel": {"plain": "scaled"}.get(now.kernel, "log")}
    up["transport_kernel"] = "log"
    return dataclasses.replace(now, **{n: up[n] for n in names})


def train(
    run: Run, state: State, hyper: Hyper, cfg: Config, num_epochs: int
) -> tuple[State, Info]:
    """Epochs of a compiled loop, in one form after the other.

    Args:
      run: `run(state, cfg, num_epochs)` gives a State and Info [num_epochs, batches].
      state: to begin with.
      hyper: numbers.
      cfg: static choices; `auto` forms are settled here, unless something is traced.
      num_epochs: how many.

    Returns:
      The last State and Info [num_epochs, batches], as one call of `run` would.
    """
    if _traced(state):
        return run(state, cfg, num_epochs)
    begin, infos, now = int(state.epoch), [], of_state(cfg, state, hyper)
    while True:
        skip = int(state.batch) if infos else 0
        state, info = run(state, now, num_epochs - (int(state.epoch) - begin))
        if _traced(state):
            return state, info
        flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1), info)
        fault = np.flatnonzero(flat.fault)[:1]
        outgrown = fault.size and flat.fault[fault[0]] & UNHELD
        after = higher(now, cfg, of_state(cfg, state, hyper)) if outgrown else now
        if after == now:
            break
        logging.info(
            "epoch %d, batch %d: kernels %s and %s cannot hold its numbers; going on "
            "from there in another form.",
            state.epoch, state.batch, now.kernel, now.transport_kernel,
        )  # fmt: skip
        infos.append(jax.tree.map(lambda x: x[skip : fault[0]], flat))  # noqa: B023
        state, now = state._replace(finite=state.finite | True), after
    if not infos:
        return state, info
    infos.append(jax.tree.map(lambda x: x[skip:], flat))
    whole = jax.tree.map(lambda *x: np.concatenate(x).reshape(num_epochs, -1), *infos)
    return state, whole


def _traced(tree: Any) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(tree))
