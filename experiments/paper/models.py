"""The two models that figures and the explorer show: split 0, its whole training part.

Both are ordinary runs: models/MODE has checkpoints, metrics per step as JSON lines and
for TensorBoard, and the exports of experiments.train.
"""

import os
import shutil

import jax
import numpy as np

from dwl_jax import checkpoint, io, presets, runner, train
from experiments import baselines, results
from experiments.paper.run import Progress, Run

MODES = {"finetune": "DWL fine-tuned", "scratch": "DWL scratch"}


def load(run: Run, mode: str) -> io.SavedModel:
    """The model of a mode, trained if it is not there yet."""
    folder = run.path("models", mode, "")
    if not os.path.isdir(os.path.join(folder, "model")):
        _train(run, mode, folder)
    return io.load_model(os.path.join(folder, "model"))


def _train(run: Run, mode: str, folder: str) -> None:
    recipe, corpus = run.recipe(mode), run.problem.train_corpus
    vectors = None
    if mode == "finetune":
        X = baselines.word2vec(run.problem, "input", dim=recipe.cfg.dim)
        vectors = presets.starting_vectors(X, recipe.cfg, corpus.kinds)
    task = train.prepare(
        jax.random.key(0),
        corpus.documents(np.float64 if jax.config.jax_enable_x64 else np.float32),
        recipe.hyper,
        cfg=recipe.cfg,
        num_words=corpus.num_words,
        vectors=vectors,
    )
    metrics = runner.Metrics(folder)
    checkpoints = os.path.join(folder, "checkpoints")
    done = max(checkpoint.epochs(checkpoints), default=0)
    text = f"{MODES[mode]}, the model shown"
    with Progress(text, recipe.num_epochs, "epoch", done) as progress:

        def watch(epoch, info):
            metrics(epoch, info)
            progress.step(f"{mode}, epoch {epoch}: loss {info.loss.mean():.4f}")

        ended = runner.run(
            task,
            cfg=recipe.cfg,
            num_epochs=recipe.num_epochs,
            folder=checkpoints,
            resume=True,
            keep=1,
            watch=watch,
        )
    metrics.close()
    note = {"mode": mode, "epochs": recipe.num_epochs, "split_seed": 0}
    more = {"projector": True, "pyldavis": True}
    part = os.path.join(folder, "part")
    shutil.rmtree(part, ignore_errors=True)  # of a run that was stopped here
    results.write(part, ended.state, recipe, corpus, note, **more)
    for name in sorted(os.listdir(part), key=lambda name: name == "model"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        os.replace(os.path.join(part, name), os.path.join(folder, name))
    shutil.rmtree(part)
