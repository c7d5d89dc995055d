"""Named settings: the paper's, read literally, and those that were found to learn."""

import dataclasses
from typing import Literal, NamedTuple, get_args

import numpy as np

from dwl_jax.types import Config, Hyper

Mode = Literal["scratch", "finetune", "supervised"]


class Preset(NamedTuple):
    """Settings of a run."""

    cfg: Config
    hyper: Hyper
    num_epochs: int


def paper(*, pretrained: bool = False, **changes) -> Preset:
    """The published settings (Sec. 5): they do not learn, see BUILD_NOTES.md.

    Squared loss, unscaled distances, plain gradient steps of rate 0.05 on sums over
    batches of 256, epsilon = beta = 0.01, tau = 0.5, 50 epochs (5 when pretrained).

    Args:
      pretrained: embeddings start from given vectors.
      **changes: any field of Config or Hyper.

    Returns:
      A Preset.
    """
    cfg = Config(
        num_iters=20,
        transport_iters=20,
        loss="squared",
        scale="none",
        step="explicit",
        joint=False,
        reduction="sum",
        optimizer_A="sgd",
        optimizer_R="sgd",
        optimizer_theta="sgd",
    )
    hyper = Hyper(
        tau=0.5,
        epsilon=0.01,
        epsilon_transport=0.01,
        beta=0.01,
        rate_A=0.05,
        rate_R=0.05,
        rate_joint=0.0,
        rate_theta=0.05,
    )
    return _change(Preset(cfg, hyper, 5 if pretrained else 50), changes)


def default(*, mode: Mode = "scratch", **changes) -> Preset:
    """Settings that learn, chosen on validation data: the table is in BUILD_NOTES.md.

    KL loss, squared distances divided by their mean, topics that start as clusters of
    documents, a weak prior on their weights, Adam, the joint update beside the paper's
    Laplacian step, all rates falling to 0 over the epochs.

    Args:
      mode: `scratch`; `finetune`, from vectors scaled by `starting_vectors`; or
        `supervised`, in which topic weights are also pulled to the label's topics.
      **changes: any field of Config or Hyper, or num_epochs. `decay_epochs` is
        num_epochs unless given.

    Returns:
      A Preset.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"mode must be one of {get_args(Mode)}, got {mode!r}.")
    cfg = Config(squared=True, start="documents", num_iters=3)
    hyper = Hyper(tau=0.75, epsilon=0.15, rate_A=1.0, rate_theta=0.6, prior=0.02)
    if mode == "finetune":
        hyper = hyper._replace(
            epsilon=0.12,
            rate_A=0.5,
            rate_joint=0.1,
            rate_theta=1.5,
            prior=0.005,
            anchor=0.004,
        )
    elif mode == "supervised":
        hyper = hyper._replace(label_weight=1.0, metric_weight=2.0)
    found = _change(Preset(cfg, hyper, 20), changes)
    if "decay_epochs" in changes:
        return found
    decay = found.hyper._replace(decay_epochs=float(found.num_epochs))
    return found._replace(hyper=decay)


def large(*, mode: Mode = "scratch", **changes) -> Preset:
    """`default` for more than 1,000 words: what docs/large.md measures.

    The more words, the more of them blur a topic: at the default's epsilon, thousands
    leave it no shape of its own. Two Sinkhorn iterations, of which documents share the
    first, smaller batches, five epochs.

    Args:
      mode: as for `default`.
      **changes: as for `default`.

    Returns:
      A Preset.
    """
    few = {
        "epsilon": 0.07,
        "batch_size": 128,
        "num_iters": 2,
        "transport_iters": 2,
        "num_epochs": 5,
    }
    return default(mode=mode, **(few | changes))


def starting_vectors(vectors: np.ndarray, *, power: float = 0.5) -> np.ndarray:
    """Vectors to fine-tune: centred, their spectrum flattened, scaled, [N, dim].

    A few directions hold most of what Word2Vec's vectors are; with singular values to
    the power 0.5 the others have a say in the distances as well. The ground cost has no
    scale, but Adam's steps have: vectors as small as Word2Vec's would be forgotten
    within an epoch, so that the root mean square of a coordinate becomes 2.

    Args:
      vectors: [N, dim].
      power: of the singular values; 1 leaves the shape as it is.
    """
    vectors = np.asarray(vectors, np.float64)
    if not np.isfinite(vectors).all():
        raise ValueError("vectors must be finite.")
    U, size, Vt = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    if not size.max() > 1e-12 * np.abs(vectors).max(initial=1e-300):
        raise ValueError("vectors must not all be the same.")
    flat = (U * size**power) @ Vt
    return flat * (2.0 / np.sqrt(np.mean(flat**2)))


def _change(preset: Preset, changes: dict) -> Preset:
    """A preset with some fields of its Config, Hyper or num_epochs replaced."""
    in_cfg = {f.name for f in dataclasses.fields(Config)}
    unknown = set(changes) - in_cfg - set(Hyper._fields) - {"num_epochs"}
    if unknown:
        raise ValueError(f"no such setting: {', '.join(sorted(unknown))}.")
    pick = lambda names: {k: v for k, v in changes.items() if k in names}
    return Preset(
        dataclasses.replace(preset.cfg, **pick(in_cfg)),
        preset.hyper._replace(**pick(Hyper._fields)),
        changes.get("num_epochs", preset.num_epochs),
    )
