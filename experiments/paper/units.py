"""Trials and splits: everything learned anew for each, in processes of one core.

A unit is one trial (a random part of the training admissions of split 0, the paper's
kind) or one random split. It gives all rows of Tables 1 and 2 and is written to
parts/KIND-NUMBER.json when it is done, so that a run that was stopped goes on with the
units that are missing.
"""

import concurrent.futures
import json
import logging as std_logging
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable

import jax
import threadpoolctl
from absl import logging

from dwl_jax import data, presets
from experiments import baselines, evaluate, protocol, study, tables
from experiments.paper.run import Progress, Run, cores, write_json

std_logging.getLogger("gensim").setLevel(std_logging.ERROR)  # its hint about tags


def rows(problem: protocol.Problem, changes: dict, num_steps: int) -> dict:
    """Every row of Tables 1 and 2, learned from the training part of a Problem."""
    learned = ("tfidf", "lda", "doc2vec")
    makers = {name: baselines.ALL[name] for name in (*baselines.CONTROLS, *learned)}
    out = baselines.rows(problem, makers)
    dim = presets.default(problem.train_corpus, **changes).cfg.dim
    X = {
        "Word2Vec input": baselines.word2vec(problem, "input", dim=dim),
        "Word2Vec sum": baselines.word2vec(problem, "sum", dim=dim),
        "GloVe": baselines.glove(problem, dim=dim),
    }
    for name, vectors in X.items():
        out |= baselines.embedding_rows(name, problem, vectors)
    for mode in ("scratch", "finetune", *study.CHANGES):
        vectors = X["Word2Vec input"] if mode == "finetune" else None
        model, recipe = study.train(problem, mode, changes, vectors)
        settings = {"cfg": recipe.cfg, "num_steps": num_steps}
        made = evaluate.of_topics if mode in study.CHANGES else evaluate.model_rows
        out |= made(study.NAMES[mode], problem, model, recipe.hyper, **settings)
    # Topics on Word2Vec's geometry as it is: Schmitz et al. (2018).
    fixed = changes | {"learn_embeddings": False}
    model, recipe = study.train(problem, "scratch", fixed, X["Word2Vec input"])
    settings = {"cfg": recipe.cfg, "num_steps": num_steps}
    name, hyper = "Word2Vec input", recipe.hyper
    return out | evaluate.of_topics(name, problem, model, hyper, **settings)


def problem_of(corpus: data.Corpus, kind: str, number: int) -> protocol.Problem:
    """The Problem of a unit."""
    if kind == "trial":
        return protocol.problem(corpus, 0, trial=number)
    return protocol.problem(corpus, number)


def spread(
    run: Run, names: Iterable[str], task: Callable, arguments: Callable, text: str
) -> dict[str, dict]:
    """Results of tasks by name, from files or computed in processes of a core each.

    Args:
      run: whose `parts` hold the files.
      names: of the units, in order.
      task: a function of a module, called with `arguments(name)`; gives a dict.
      arguments: name -> tuple; must be picklable.
      text: beside the progress bar.

    Returns:
      name -> what the task gave.
    """
    names = list(names)
    file = lambda name: run.path("parts", f"{name}.json")
    missing = [name for name in names if not os.path.exists(file(name))]
    if missing:
        done = len(names) - len(missing)
        with Progress(text, len(names), "unit", done) as progress:
            for name, found in _computed(run, missing, task, arguments):
                write_json(file(name), found)
                progress.step(f"{name} is done")
    out = {}
    for name in names:
        with open(file(name), encoding="utf-8") as handle:
            out[name] = json.load(handle)
    return out


def _computed(run: Run, names: list[str], task: Callable, arguments: Callable):
    """Pairs of name and result, as they come."""
    jobs = min(run.jobs, len(names)) if jax.default_backend() == "cpu" else 1
    if jobs == 1:
        yield from ((name, task(*arguments(name))) for name in names)
        return
    context = multiprocessing.get_context("spawn")
    places = context.Queue()
    for place in range(jobs):
        places.put(cores()[place % len(cores())])
    pool = concurrent.futures.ProcessPoolExecutor(
        jobs,
        mp_context=context,
        initializer=_begin,
        initargs=(places, jax.config.jax_enable_x64, run.path("compiled", "")),
    )
    try:
        futures = {pool.submit(task, *arguments(name)): name for name in names}
        for future in concurrent.futures.as_completed(futures):
            yield futures[future], future.result()
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()
        raise


def _begin(places, x64: bool, compiled: str) -> None:
    """Of a process: a core of its own, quiet, and signals left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {places.get()})
    threadpoolctl.threadpool_limits(1)
    jax.config.update("jax_enable_x64", x64)
    jax.config.update("jax_compilation_cache_dir", compiled)
    logging.set_verbosity(logging.ERROR)


def unit(corpus: data.Corpus, kind: str, number: int, changes: dict, steps: int):
    """One trial or split: row -> cell -> value."""
    return rows(problem_of(corpus, kind, number), changes, steps)


def results(run: Run) -> tuple[tables.Results, tables.Results]:
    """All rows over the trials and over the splits; computes what is missing."""
    numbers = {"trial": run.trials, "split": run.splits}
    units = {f"{k}-{n:02d}": (k, n) for k, m in numbers.items() for n in range(m)}
    # In turn: one process compiles what trials share, another what splits share.
    in_turn = sorted(units, key=lambda name: units[name][1])
    arguments = lambda name: (run.corpus, *units[name], run.changes, run.steps)
    found = spread(run, in_turn, unit, arguments, "Tables 1 and 2: trials and splits")
    titles = {
        "trial": f"test part of split 0, {run.trials} random 80 % of its training part",
        "split": f"test parts of {run.splits} random 50/25/25 splits",
    }
    out = []
    for kind, title in titles.items():
        rows = tables.Results(f"{run.corpus.num_docs:,} admissions, {title}")
        for name in (name for name in units if units[name][0] == kind):
            rows.add(found[name])
        rows.write(run.path("tables", ""), f"{kind}s")
        out.append(rows)
    return tuple(out)
