"""Means with their t intervals, and paired differences."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats


class Interval(NamedTuple):
    """A mean and its t interval."""

    mean: float
    low: float
    high: float
    sd: float  # of the single values
    n: int

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.high - self.low) / 2

    @property
    def excludes_zero(self) -> bool:
        """Whether the difference that it describes is beyond the interval."""
        return self.low > 0.0 or self.high < 0.0


def interval(
    values: Sequence[float], level: float = 0.9, *, overlap: float = 0.0
) -> Interval:
    """Mean with its two-sided Student t interval.

    Args:
      values: one for each trial or split.
      level: of the interval.
      overlap: size of the evaluated over the training part. Random splits of one corpus
        share documents, so the plain interval (0.0) is too narrow; 0.5 is the
        correction of Nadeau and Bengio (2003) for 50/25/25.

    Returns:
      An Interval; of infinite width for a single value.
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or x.size == 0:
        raise ValueError(f"values must be a list of numbers, got shape {x.shape}.")
    if x.size == 1:
        return Interval(float(x[0]), -np.inf, np.inf, np.nan, 1)
    sd = float(x.std(ddof=1))
    half = stats.t.ppf((1 + level) / 2, x.size - 1) * sd * (1 / x.size + overlap) ** 0.5
    mean = float(x.mean())
    return Interval(mean, mean - half, mean + half, sd, x.size)


def paired(
    a: Sequence[float], b: Sequence[float], level: float = 0.9, **kwargs
) -> Interval:
    """Interval of a - b; both lists hold the same splits in the same order."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        raise ValueError(f"{a.shape} values against {b.shape}: not paired.")
    return interval(a - b, level, **kwargs)
