"""Distilled Wasserstein Learning: topics and word embeddings learned together."""

from dwl_jax import (
    cost,
    data,
    embedding,
    kernel,
    losses,
    metrics,
    neighbors,
    presets,
    transport,
)
from dwl_jax.barycenter import Barycenter, barycenter
from dwl_jax.documents import Documents
from dwl_jax.infer import Inference, infer, infer_rows, topic_documents
from dwl_jax.train import epoch, fit, init, model, run_epochs, step
from dwl_jax.types import Config, Hyper, Info, Model, Params, State

__all__ = [
    "Barycenter",
    "Config",
    "Documents",
    "Hyper",
    "Inference",
    "Info",
    "Model",
    "Params",
    "State",
    "barycenter",
    "cost",
    "data",
    "embedding",
    "epoch",
    "fit",
    "infer",
    "infer_rows",
    "init",
    "kernel",
    "losses",
    "metrics",
    "model",
    "neighbors",
    "presets",
    "run_epochs",
    "step",
    "topic_documents",
    "transport",
]
