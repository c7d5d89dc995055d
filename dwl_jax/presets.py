"""Named settings: the paper's, read literally, and those that were found to learn."""

import dataclasses
from typing import NamedTuple

from dwl_jax.types import Config, Hyper


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


def default(**changes) -> Preset:
    """Settings that learn: KL loss, mean-scaled distances, Adam, the joint update.

    Args:
      **changes: any field of Config or Hyper, or num_epochs.

    Returns:
      A Preset.
    """
    return _change(Preset(Config(), Hyper(), 20), changes)


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
