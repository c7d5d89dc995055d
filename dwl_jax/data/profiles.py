"""A mixture of patient profiles: the model behind the synthetic admissions.

A profile k draws the number of diseases and of procedures from tables of its own, then
which ones: a set S of that size has probability proportional to the product of the odds
p/(1-p) of its codes (a conditional Bernoulli draw). Death and admission type are drawn
given k. The normaliser of size n is the elementary symmetric polynomial e_n of odds.
"""

import csv
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dwl_jax.data import codes


class Profiles(NamedTuple):
    """K profiles over the paper's 81 codes; rows of tables sum to 1."""

    weight: np.ndarray  # [K] share of admissions
    codes: np.ndarray  # [K, 81] code probabilities, 56 diseases then 25 procedures
    num_diseases: np.ndarray  # [K, n] of having 0, 1, ..., n-1 diseases
    num_procedures: np.ndarray  # [K, n] of having 0, 1, ..., n-1 procedures
    died: np.ndarray  # [K] death rate
    types: np.ndarray  # [K, T] admission types
    type_names: tuple[str, ...]  # T


def symmetric(odds: np.ndarray, top: int) -> np.ndarray:
    """e_0 ... e_top of the last j odds, for every j.

    Args:
      odds: [K, J].
      top: largest size.

    Returns:
      [K, J + 1, top + 1]; place (k, j, n) is e_n of odds[k, j:].
    """
    K, J = odds.shape
    e = np.zeros((K, J + 1, top + 1))
    e[:, J, 0] = 1.0
    for j in range(J - 1, -1, -1):
        e[:, j] = e[:, j + 1]
        e[:, j, 1:] += odds[:, j, None] * e[:, j + 1, :-1]
    return e


def draw_codes(
    rng: np.random.Generator, odds: np.ndarray, profile: np.ndarray, size: np.ndarray
) -> np.ndarray:
    """Sets of given sizes, one for each admission, by conditional Bernoulli draws.

    Args:
      rng: source of randomness.
      odds: [K, J] of each code in each profile.
      profile: [M] profile of each admission.
      size: [M] number of codes wanted.

    Returns:
      [M, J] bool with row sums `size`.
    """
    e = symmetric(odds, int(size.max()))
    left = size.copy()
    chosen = np.zeros((profile.size, odds.shape[1]), dtype=bool)
    for j in range(odds.shape[1]):
        take = odds[profile, j] * e[profile, j + 1, np.maximum(left - 1, 0)]
        chance = np.where(left > 0, take / e[profile, j, left], 0.0)
        chosen[:, j] = rng.random(profile.size) < chance
        left -= chosen[:, j]
    return chosen


def draw_rows(rng: np.random.Generator, table: np.ndarray, row: np.ndarray):
    """[M] places drawn from table[row], whose rows sum to 1."""
    cumulative = np.cumsum(table, axis=1)
    cumulative /= cumulative[:, -1:]
    u = rng.random(row.size)
    return (u[:, None] >= cumulative[row]).sum(axis=1)


def odds_of(probability: np.ndarray) -> np.ndarray:
    """The odds p / (1 - p)."""
    return probability / (1.0 - probability)


def _columns(table: Profiles) -> list[tuple[str, np.ndarray]]:
    """Column names and values of the written table."""
    many = [(word, table.codes[:, j]) for j, word in enumerate(codes.paper81_words())]
    sizes = [(f"diseases={n}", column) for n, column in enumerate(table.num_diseases.T)]
    sizes += [
        (f"procedures={n}", column) for n, column in enumerate(table.num_procedures.T)
    ]
    types = [
        (f"type={t}", c) for t, c in zip(table.type_names, table.types.T, strict=True)
    ]
    return [("weight", table.weight), ("died", table.died), *types, *sizes, *many]


def write(table: Profiles, path: str | os.PathLike, digits: int = 4) -> None:
    """Writes one row for each profile, rounded to `digits` places."""
    names, columns = zip(*_columns(table), strict=True)
    with open(path, "w", encoding="ascii", newline="") as handle:
        out = csv.writer(handle, lineterminator="\n")
        out.writerow(names)
        for row in np.stack(columns, axis=1):
            out.writerow(
                [f"{value:.{digits}f}".rstrip("0").rstrip(".") for value in row]
            )


def read(path) -> Profiles:
    """Reads what `write` wrote; rows that should sum to 1 are made to, after rounding.

    Raises:
      ValueError: for other columns, or values that are not probabilities.
    """
    with path.open(encoding="ascii", newline="") as handle:
        names, *rows = csv.reader(handle)
    values = np.array(rows, dtype=np.float64)
    if values.shape[1:] != (len(names),) or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(f"{path}: not a table of probabilities.")
    pick = lambda start: [j for j, name in enumerate(names) if name.startswith(start)]
    norm = lambda x: x / x.sum(axis=-1, keepdims=True)
    words = _places(names, codes.paper81_words(), path)
    return Profiles(
        weight=norm(values[:, names.index("weight")]),
        codes=np.clip(values[:, words], 1e-6, 1 - 1e-4),
        num_diseases=norm(values[:, pick("diseases=")]),
        num_procedures=norm(values[:, pick("procedures=")]),
        died=values[:, names.index("died")],
        types=norm(values[:, pick("type=")]),
        type_names=tuple(names[j].removeprefix("type=") for j in pick("type=")),
    )


def _places(names: Sequence[str], words: Sequence[str], path) -> list[int]:
    missing = [word for word in words if word not in names]
    if missing:
        raise ValueError(f"{path}: no column {missing[0]!r}.")
    return [names.index(word) for word in words]
