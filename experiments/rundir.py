"""Run directories: ours or refused, made with these settings or refused."""

import json
import os
import tempfile
from typing import Any

import jax

from dwl_jax import io, parallel

FORMAT = "dwl_jax.run/1"
_SETTINGS = "settings.json"
_ENVIRONMENT = ("format", "versions", "devices", "finished")  # may differ on resume


def read(path: str | os.PathLike) -> dict[str, Any]:
    """The settings of a run directory."""
    file = os.path.join(path, _SETTINGS)
    try:
        with open(file, encoding="utf-8") as handle:
            found = json.load(handle)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a run directory: {error}") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: not a run directory: no {FORMAT} in {_SETTINGS}.")
    return found


def open_model(path: str | os.PathLike) -> io.SavedModel:
    """The model at a path, or of the run at a path."""
    inner = os.path.join(path, "model")
    try:
        return io.load_model(inner if os.path.isdir(inner) else path)
    except ValueError as error:
        raise ValueError(f"--model: {error}") from error


def check(path: str | os.PathLike, *, resume: bool) -> None:
    """ValueError, before any work, for a directory that cannot be used."""
    path = os.path.abspath(path)
    if os.path.exists(path) and not os.path.isdir(path):
        raise ValueError(f"--out={path}: is a file.")
    if os.path.isdir(path) and os.listdir(path):
        try:
            read(path)
        except ValueError as error:
            raise ValueError(f"--out: will not write into it. {error}") from None
        if not resume:
            raise ValueError(
                f"--out={path}: holds a run. --resume goes on with it; otherwise name "
                "another directory."
            )
    parallel.wait("run directory seen")  # by every process, before any writes into it
    try:
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"x")
    except OSError as error:
        raise ValueError(f"--out={path}: cannot be written: {error}") from error
    parallel.wait("run directory checked")


def begin(path, note: dict[str, Any], versions: dict, *, resume: bool) -> str:
    """Writes settings.json, or compares with the one that is there. Gives the path."""
    path = os.path.abspath(path)
    note = json.loads(json.dumps(note))
    if resume and os.path.exists(os.path.join(path, _SETTINGS)):
        before = read(path)
        differ = _differences(before, note)
        if differ:
            raise ValueError(
                f"--out: the run in {path} was made with other settings: "
                + "; ".join(differ[:6])
            )
    elif parallel.is_first():
        _write(path, note, versions, finished=False)
    parallel.wait("run begins")
    return path


def finish(path: str) -> None:
    """Notes that the run is complete."""
    note = read(path)
    _write(path, note, note["versions"], finished=True)


def _write(path: str, note, versions, *, finished: bool) -> None:
    devices = jax.devices()
    full = note | {
        "format": FORMAT,
        "versions": versions,
        "devices": [len(devices), devices[0].platform],
        "finished": finished,
    }
    file = os.path.join(path, _SETTINGS)
    with open(f"{file}.part", "w", encoding="ascii") as handle:
        json.dump(full, handle, indent=1)
    os.replace(f"{file}.part", file)


def _differences(before: dict, now: dict, prefix: str = "") -> list[str]:
    """Names and values of settings that differ."""
    out = []
    for key in sorted(set(before) | set(now)):
        if not prefix and key in _ENVIRONMENT:
            continue
        a, b = before.get(key), now.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            out += _differences(a, b, f"{prefix}{key}.")
        elif a != b and key != "path":  # the same data may have moved
            out.append(f"{prefix}{key} was {a!r}, now {b!r}")
    return out
