"""MIMIC-III v1.4 and MIMIC-IV (hosp) tables, .csv or .csv.gz, read as streams.

Words are `d_0389`, `p_0331` for ICD-9-CM and `d10_A419`, `p10_02HV33Z` for ICD-10, so
the versions of MIMIC-IV stay apart and ICD-9 words are those of every other source.
"""

import array
import os
import re
from collections import Counter
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dwl_jax.data import codes as codes_lib
from dwl_jax.data import files, selection
from dwl_jax.data.corpus import MISSING, Corpus, note

DIED = {"0": "alive", "1": "died", "": MISSING}
MIMIC3_TYPES = ("ELECTIVE", "EMERGENCY", "NEWBORN", "URGENT")
MIMIC4_TYPES = (
    "AMBULATORY OBSERVATION",
    "DIRECT EMER.",
    "DIRECT OBSERVATION",
    "ELECTIVE",
    "EU OBSERVATION",
    "EW EMER.",
    "OBSERVATION ADMIT",
    "SURGICAL SAME DAY ADMISSION",
    "URGENT",
)
_CODE = re.compile(r"[0-9A-Za-z]{2,8}")


class _Layout(NamedTuple):
    """What differs between the two releases."""

    name: str
    types: tuple[str, ...]
    code: str  # name of the code column
    versions: bool  # whether there is an icd_version column


_MIMIC3 = _Layout("MIMIC-III", MIMIC3_TYPES, "icd9_code", False)
_MIMIC4 = _Layout("MIMIC-IV", MIMIC4_TYPES, "icd_code", True)


def read_mimic3(
    folder: str | os.PathLike,
    *,
    codes: str = "all",
    min_diseases: int = 0,
    min_procedures: int = 0,
    unknown_codes: str = "keep",
    show_ids: bool = False,
) -> Corpus:
    """Reads ADMISSIONS, DIAGNOSES_ICD, PROCEDURES_ICD and the two D_ICD tables.

    A code counts once for an admission. Labels are `died` ("died", "alive", from
    HOSPITAL_EXPIRE_FLAG) and `admission_type` in lower case; an empty cell is missing.
    The id is HADM_ID. Rows with an empty code, rows of an admission that is not in
    ADMISSIONS and admissions without a code are skipped, counted and reported.

    Example:
      `read_mimic3(folder, codes="paper81", min_diseases=2, min_procedures=2)`

    Args:
      folder: holds the five tables, names in upper or lower case, .csv or .csv.gz.
      codes: "all", or "paper81" for the paper's 81 codes in its order.
      min_diseases: drop admissions with fewer distinct diseases (of the chosen codes).
      min_procedures: drop admissions with fewer distinct procedures.
      unknown_codes: what to do with a code that its D_ICD table lacks: "keep" it
        without a description (the real tables lack some), "drop" it, or raise "error".
      show_ids: name a HADM_ID in error messages; by default only its line is named.

    Raises:
      ValueError: for a missing column, a row with another number of fields, a label
        outside the known ones, a duplicate HADM_ID or a malformed code, naming file,
        line and value.
    """
    options = (codes, min_diseases, min_procedures, unknown_codes, show_ids)
    return _read(folder, _MIMIC3, *options)


def read_mimic4(
    folder: str | os.PathLike,
    *,
    codes: str = "all",
    min_diseases: int = 0,
    min_procedures: int = 0,
    unknown_codes: str = "keep",
    show_ids: bool = False,
) -> Corpus:
    """Reads the hosp tables of MIMIC-IV: as `read_mimic3`, with icd_version 9 and 10.

    Example:
      `read_mimic4("mimiciv/2.2/hosp")`, or the folder above it.

    Args:
      folder: holds admissions, diagnoses_icd, procedures_icd, d_icd_diagnoses and
        d_icd_procedures, or a folder `hosp` with them.
      codes: as `read_mimic3`; the paper's 81 codes are all of version 9.
      min_diseases: as `read_mimic3`.
      min_procedures: as `read_mimic3`.
      unknown_codes: as `read_mimic3`.
      show_ids: as `read_mimic3`.
    """
    inner = os.path.join(os.fspath(folder), "hosp")
    folder = inner if os.path.isdir(inner) else folder
    options = (codes, min_diseases, min_procedures, unknown_codes, show_ids)
    return _read(folder, _MIMIC4, *options)


def _read(folder, layout, codes, min_diseases, min_procedures, unknown, show_ids):
    """Both readers."""
    if codes not in ("all", "paper81"):
        raise ValueError(f'codes must be "all" or "paper81", got {codes!r}.')
    if unknown not in ("keep", "drop", "error"):
        raise ValueError(f'unknown_codes: "keep", "drop" or "error", got {unknown!r}.')
    admissions = _admissions(_find(folder, "admissions"), layout, show_ids)
    words, tally = {}, Counter()
    pairs = array.array("i"), array.array("i")  # admission, word
    for kind, name in (("disease", "diagnoses"), ("procedure", "procedures")):
        titles = _titles(_find(folder, f"d_icd_{name}"), layout)
        path = _find(folder, f"{name}_icd")
        events = _events(path, layout, admissions.rows, tally, show_ids)
        for line, row, version, code in events:
            title = titles.get((version, code))
            if title is None and unknown == "error":
                raise ValueError(f"{path}, line {line}: code {code!r} is in no table.")
            tally["in no table"] += title is None
            if title is None and unknown == "drop":
                continue
            key = (kind, version == "10", code)
            pairs[0].append(row)
            pairs[1].append(words.setdefault(key, (len(words), title))[0])
    corpus = _corpus(admissions, words, pairs, tally, unknown, layout)
    if codes == "paper81":
        corpus = selection.select_paper81(corpus)
    if min_diseases or min_procedures:
        corpus = selection.select_docs(
            corpus, min_diseases=min_diseases, min_procedures=min_procedures
        )
    return corpus


def _find(folder: str | os.PathLike, name: str) -> str:
    """The one file of a table, in either case, packed or not."""
    if not os.path.isdir(folder):
        raise ValueError(f"{folder}: expected the folder of the tables.")
    wanted = {f"{name}.csv", f"{name}.csv.gz"}
    found = sorted(entry for entry in os.listdir(folder) if entry.lower() in wanted)
    if not found:
        raise FileNotFoundError(f"{folder}: has no {name}.csv or {name}.csv.gz.")
    if len(found) > 1:
        raise ValueError(f"{folder}: which of {', '.join(found)} is meant?")
    return os.path.join(folder, found[0])


class _Admissions(NamedTuple):
    path: str
    rows: dict[str, int]  # HADM_ID to row
    died: list[str]
    types: list[str]


def _check_id(value: str, path: str, line: int, show_ids: bool) -> str:
    if not (value.isascii() and value.isdigit()):
        shown = repr(value) if show_ids and value else "empty" if not value else "other"
        raise ValueError(f"{path}, line {line}: hadm_id is no whole number: {shown}.")
    return value


def _admissions(path: str, layout: _Layout, show_ids: bool) -> _Admissions:
    """Ids and labels, in the order of the file."""
    known = {name: name.lower() for name in layout.types} | {"": MISSING}
    result = _Admissions(path, {}, [], [])
    first = {}
    columns = ("hadm_id", "admission_type", "hospital_expire_flag")
    for line, (hadm, kind, flag) in files.read_table(path, columns):
        _check_id(hadm, path, line, show_ids)
        if hadm in result.rows:
            shown = f" {hadm}" if show_ids else ""
            raise ValueError(
                f"{path}, line {line}: duplicate hadm_id{shown}, as in line "
                f"{first[hadm]}."
            )
        for name, value, table in zip(
            columns[1:], (kind, flag), (known, DIED), strict=True
        ):
            if value not in table:
                raise ValueError(
                    f"{path}, line {line}: {name} is {value!r}, not one of "
                    f"{[v for v in table if v]}."
                )
        first[hadm] = line
        result.rows[hadm] = len(result.rows)
        result.died.append(DIED[flag])
        result.types.append(known[kind])
    if not result.rows:
        raise ValueError(f"{path}: no admission after the header.")
    return result


def _code_columns(layout: _Layout, *others: str) -> tuple[str, ...]:
    return (layout.code, *others, *(["icd_version"] if layout.versions else []))


def _version(layout: _Layout, cells: tuple[str, ...], path: str, line: int) -> str:
    version = cells[-1] if layout.versions else "9"
    if version not in ("9", "10"):
        raise ValueError(f"{path}, line {line}: icd_version is {version!r}.")
    return version


def _titles(path: str, layout: _Layout) -> dict[tuple[str, str], str]:
    """(version, code) -> long title."""
    titles = {}
    for line, cells in files.read_table(path, _code_columns(layout, "long_title")):
        version = _version(layout, cells, path, line)
        titles.setdefault((version, cells[0]), cells[1])
    return titles


def _events(path, layout, rows, tally, show_ids):
    """Streams (line, admission row, version, code); counts what it skips."""
    for line, cells in files.read_table(path, _code_columns(layout, "hadm_id")):
        code, hadm = cells[:2]
        _check_id(hadm, path, line, show_ids)
        if not code:
            tally["with an empty code"] += 1
            continue
        if not _CODE.fullmatch(code):
            raise ValueError(
                f"{path}, line {line}: malformed code {code!r}; codes have no dot."
            )
        if hadm not in rows:
            tally["of an admission not in the admissions table"] += 1
            continue
        yield line, rows[hadm], _version(layout, cells, path, line), code


def _corpus(admissions, words, pairs, tally, unknown, layout) -> Corpus:
    """Sparse counts in a sorted vocabulary, and the report."""
    row, column = (np.frombuffer(p, dtype=np.int32) for p in pairs)
    if row.size == 0:
        raise ValueError(f"{admissions.path}: no admission has a code.")
    keys = sorted(words)
    place = np.empty(len(keys), dtype=np.int64)
    place[[words[key][0] for key in keys]] = np.arange(len(keys))
    shape = (len(admissions.rows), len(keys))
    ones = np.ones(row.size, np.int32)
    counts = sp.csr_array((ones, (row, place[column])), shape=shape)
    counts.sum_duplicates()
    repeated = row.size - counts.nnz
    counts.data[:] = 1
    keep = np.flatnonzero(np.diff(counts.indptr) > 0)
    prefix = lambda k: (codes_lib.PREFIX10 if k[1] else codes_lib.PREFIX)[k[0]] + k[2]
    lacking = [prefix(key) for key in keys if words[key][1] is None]
    no_table = tally.pop("in no table", 0)
    line = (
        f"{layout.name}: {shape[0]:,} admissions, kept {keep.size:,} over "
        f"{shape[1]:,} codes; dropped {shape[0] - keep.size:,} without a code; "
        f"{repeated:,} repeated codes counted once"
    )
    line += "".join(f"; skipped {n:,} rows {why}" for why, n in sorted(tally.items()))
    if no_table:
        how = "dropped" if unknown == "drop" else "kept without a description"
        line += f"; {no_table:,} rows with a code in no table {how}"
        line += f": {selection.name_some(lacking)}" if lacking else ""
    ids = np.array(list(admissions.rows))
    labels = {"died": admissions.died, "admission_type": admissions.types}
    return Corpus(
        counts=counts[keep],
        vocab=tuple(map(prefix, keys)),
        kinds=tuple(key[0] for key in keys),
        descriptions=tuple(words[key][1] or "" for key in keys),
        labels={name: np.array(values)[keep] for name, values in labels.items()},
        ids=ids[keep],
        history=note((), line),
    )
