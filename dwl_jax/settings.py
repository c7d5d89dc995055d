"""Config and Hyper as plain JSON, and back, for runs and models that are stored."""

import dataclasses
import inspect
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from dwl_jax import embedding, removed
from dwl_jax.types import Config, Hyper

_MAX_LOOP = 100_000  # what a file may ask of whoever loads it, in sizes and iterations


def config_to_json(cfg: Config) -> dict[str, Any]:
    """A Config as plain JSON; ValueError for a caller's own function."""
    out = {}
    for field in dataclasses.fields(Config):
        value = getattr(cfg, field.name)
        if field.name == "embedding":
            value = _map_name(value)
        elif isinstance(value, np.integer):
            value = int(value)
        elif not isinstance(value, str | int | float | None):
            raise ValueError(
                f"Config.{field.name} is a function of your own, and code is not "
                "saved: use a named one, or save the arrays yourself."
            )
        out[field.name] = value
    return out


def config_from_json(values: Mapping[str, Any]) -> Config:
    """The Config of `config_to_json`; fields that are absent have their defaults."""
    values, defaults = removed.without(values), config_to_json(Config())
    unknown = sorted(set(values) - set(defaults))
    if unknown:
        raise ValueError(f"config has fields this version does not know: {unknown}.")
    for name, value in values.items():
        if type(value) is not type(defaults[name]):
            raise ValueError(f"config {name} must not be {value!r}.")
        if type(value) is int and value > _MAX_LOOP and name != "batch_size":
            raise ValueError(f"config {name} is {value}, above {_MAX_LOOP}.")
    changed = dict(values)
    if "embedding" in changed:
        changed["embedding"] = _map_of(changed["embedding"])
    return Config(**changed)


def _map_name(chosen: embedding.EmbeddingMap) -> str:
    names = {"one_hot": embedding.one_hot, "linear": embedding.linear}
    for name, known in names.items():
        if chosen is known:
            return name
    if chosen.given is not None and chosen == embedding.beside(*chosen[-2:]):
        return f"beside({chosen.given}, {chosen.share})"
    hidden = inspect.getclosurevars(chosen.init).nonlocals.get("hidden")
    if isinstance(hidden, int) and chosen == embedding.mlp(hidden):
        return f"mlp({hidden})"
    raise ValueError("Config.embedding is a map of your own, and code is not saved.")


def _map_of(name: str) -> embedding.EmbeddingMap:
    if name in ("one_hot", "linear"):
        return getattr(embedding, name)
    if found := re.fullmatch(r"mlp\((\d{1,9})\)", name, re.ASCII):
        return embedding.mlp(min(int(found[1]), _MAX_LOOP))
    number = r"(\d{1,9}(?:\.\d{1,17})?)"
    if found := re.fullmatch(rf"beside\((\d{{1,9}}), {number}\)", name, re.ASCII):
        return embedding.beside(min(int(found[1]), _MAX_LOOP), float(found[2]))
    raise ValueError(f"config embedding {name[:40]!r} is not known.")


def hyper_to_json(hyper: Hyper) -> dict[str, Any]:
    """A Hyper as plain JSON; a number that is an array keeps its dtype."""
    out = {}
    for name, value in hyper._asdict().items():
        if np.ndim(value) != 0:
            raise ValueError(f"Hyper.{name} has shape {np.shape(value)}: no scalar.")
        out[name] = float(value)
        if not isinstance(value, float | int):
            dtype = np.asarray(value).dtype.name
            out[name] = {"value": float(value), "dtype": dtype}
    return out


def hyper_from_json(values: Mapping[str, Any]) -> Hyper:
    """The Hyper of `hyper_to_json`; fields that are absent have their defaults."""
    unknown = sorted(set(values) - set(Hyper._fields))
    if unknown:
        raise ValueError(f"hyper has fields this version does not know: {unknown}.")
    out = {}
    for name, value in values.items():
        if isinstance(value, dict) and set(value) == {"value", "dtype"}:
            if value["dtype"] not in ("float32", "float64"):
                raise ValueError(f"hyper {name} has dtype {value['dtype']!r:.40}.")
            out[name] = np.asarray(_number(name, value["value"]), value["dtype"])
        else:
            out[name] = _number(name, value)
    return Hyper(**out)


def _number(name: str, value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"hyper {name} must be a number, got {value!r:.40}.")
    return float(value)
