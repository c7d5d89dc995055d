"""What a training leaves behind: the model, its exports, numbers on the way."""

import jax
import numpy as np
import tqdm
from absl import logging

from dwl_jax import export, io, metrics, parallel, runner, topic_documents, types
from dwl_jax import train as train_lib
from dwl_jax.data import Corpus

_FIRST = 10  # words of a topic, by which it is told from others


def save(path: str, state, recipe, corpus: Corpus, note: dict) -> types.Model:
    """Writes the model of a state."""
    model = train_lib.model(state, recipe.cfg)
    io.save_model(
        path,
        model,
        cfg=recipe.cfg,
        hyper=recipe.hyper,
        vocab=corpus.vocab,
        kinds=corpus.kinds,
        descriptions=corpus.descriptions,
        extra=note,
    )
    return model


def write(
    out: str,
    state,
    recipe,
    corpus: Corpus,
    note: dict,
    *,
    projector: bool = False,
    pyldavis: bool = False,
) -> None:
    """The model and its exports."""
    model = save(f"{out}/model", state, recipe, corpus, note)
    words = {"kinds": corpus.kinds, "descriptions": corpus.descriptions}
    export.write_word2vec(f"{out}/embeddings.txt", model.X, corpus.vocab)
    log_y = topic_documents(model, recipe.hyper, cfg=recipe.cfg)
    for pair in metrics.near_duplicates(metrics.own_words(log_y, _FIRST)):
        logging.warning("topics %d and %d are nearly the same.", *pair)
    export.write_topics(f"{out}/topics.csv", log_y, corpus.vocab, **words)
    if projector:
        export.write_projector(f"{out}/projector", model.X, corpus.vocab, **words)
    if pyldavis:
        lam = jax.nn.softmax(state.params.A, axis=-1)
        export.write_pyldavis(f"{out}/pyldavis.json", model, lam, corpus)


def reporter(metrics: runner.Metrics, bar: tqdm.tqdm):
    """Called after each epoch: numbers to files, progress to stderr."""

    def watch(epoch, info):
        if not parallel.is_first():
            return
        metrics(epoch, info)
        bar.update(epoch + 1 - bar.n)
        bar.set_postfix(loss=f"{info.loss.mean():.4f}")
        if bar.disable:  # no terminal: a line for each epoch
            logging.info("epoch %d: loss %.4f", epoch, info.loss.mean())

    return watch


def batch_reporter(bar: tqdm.tqdm):
    """Called after each batch: the bar moves within an epoch."""

    def watch(done, batches):
        at = np.floor(bar.n) + done / batches
        if done < batches:  # the last one is the epoch's own report
            bar.update(at - bar.n)

    return watch
