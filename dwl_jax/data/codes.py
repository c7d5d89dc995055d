"""The paper's 81 ICD-9-CM codes with their right labels (56 diseases, 25 procedures).

The paper prints codes that lost their leading zeros: its d_389 is 038.9 and its p_331
is 03.31. Here a code is text, and its word is `d_` or `p_` and the real code.
"""

import csv
import functools
import importlib.resources
from typing import NamedTuple

PREFIX = {"disease": "d_", "procedure": "p_"}
PREFIX10 = {"disease": "d10_", "procedure": "p10_"}


class Code(NamedTuple):
    """One row of tables/icd81.csv."""

    paper_code: str  # as the paper prints it: d_389
    kind: str  # disease or procedure
    code: str  # as it really is, no dot: 0389
    label: str

    @property
    def word(self) -> str:
        """Its name in a vocabulary: d_0389."""
        return PREFIX[self.kind] + self.code


@functools.cache
def paper81() -> tuple[Code, ...]:
    """The 81 codes in the order of the paper's table: diseases, then procedures."""
    path = importlib.resources.files("dwl_jax.data") / "tables" / "icd81.csv"
    with path.open(encoding="utf-8", newline="") as handle:
        rows = list(csv.DictReader(handle))
    return tuple(
        Code(r["paper_code"], r["kind"], r["icd9_code"], r["label"]) for r in rows
    )


@functools.cache
def paper81_words() -> tuple[str, ...]:
    """The 81 vocabulary words, real codes: d_4019, ..., p_4513."""
    return tuple(code.word for code in paper81())


def describe(word: str) -> str:
    """The label of one of the 81 words, "" for any other."""
    return _labels().get(word, "")


@functools.cache
def _labels() -> dict[str, str]:
    return {code.word: code.label for code in paper81()}
