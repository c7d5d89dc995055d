"""Settings that were taken away, and what to use instead: said to whoever names one."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Removed(NamedTuple):
    """A field of Config that is gone."""

    default: Any  # a file that holds this value loads as if the field were not there
    instead: str


_ONE_FORM = "nothing: the kernel of many words is held as a whole"

FIELDS = {
    "clip_norm": Removed(
        None, "pass an optax transformation, as optax.chain(optax.clip_by_global_norm("
        "1.0), optax.scale_by_adam()), as the optimizer"
    ),
    "debias": Removed(False, "nothing: debiased barycenters were never better"),
    "hold": Removed("none", "Hyper.anchor keeps embeddings near their start"),
    "hubs": Removed(128, _ONE_FORM),
    "inner_steps": Removed(5, "Config.step 'explicit' or 'proximal'"),
    "memory": Removed("store", "jax.checkpoint around `barycenter`"),
    "neighbours": Removed(32, _ONE_FORM),
    "rank": Removed(32, _ONE_FORM),
    "warm_start": Removed(False, "few cold iterations, which are as good"),
}  # fmt: skip

_PASS_OPTAX = "an optax transformation itself"
_SAME_MODEL = "'auto', which is right for the same topics and embeddings"

VALUES = {
    ("kernel", "fast"): _SAME_MODEL,
    ("kernel", "lowrank"): _SAME_MODEL,
    ("kernel", "neighbours"): _SAME_MODEL,
    ("kernel", "topics"): _SAME_MODEL,
    ("scale", "max"): "'mean', with epsilon in its unit",
    ("scale", "median"): "'mean', with epsilon in its unit",
    ("step", "inner"): "'explicit' or 'proximal'",
} | {
    (f"optimizer_{of}", name): _PASS_OPTAX
    for of in ("A", "R", "theta")
    for name in ("rmsprop", "yogi")
}


def sentence(name: str, value: Any = None) -> str | None:
    """What to tell someone who sets Config.`name` to `value`; None if it still is."""
    if name in FIELDS:
        return f"Config.{name} was removed; use instead: {FIELDS[name].instead}."
    if isinstance(value, str) and (name, value) in VALUES:
        return f"Config.{name} {value!r} was removed; use {VALUES[name, value]}."
    return None


def refuse(settings: Mapping[str, Any]) -> None:
    """ValueError for the first of these settings of Config that is gone."""
    for name, value in settings.items():
        if told := sentence(name, value):
            raise ValueError(told)


def without(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Stored settings without removed fields that had their default; others raise."""
    is_default = lambda name, value: name in FIELDS and value == FIELDS[name].default
    kept = {n: v for n, v in settings.items() if not is_default(n, v)}
    refuse(kept)
    return kept
