"""The US National Hospital Discharge Survey, 2010 public-use layout, fixed width.

149 characters for each discharge, with 15 ICD-9-CM diagnoses and 8 procedures. Read as
bytes in blocks; only the codes and two labels are kept.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
import scipy.sparse as sp

from dwl_jax.data import codes as codes_lib
from dwl_jax.data import files, selection
from dwl_jax.data.corpus import MISSING, Corpus, note

WIDTH = 149
DIAGNOSES = (27, 15, 5)  # first column, number of fields, width
PROCEDURES = (102, 8, 4)
_NEWBORN, _SEX, _STATUS, _TYPE = 2, 6, 11, 141
DIED = dict.fromkeys("12345", "alive") | {"6": "died", "9": MISSING}
ADMISSION_TYPE = {
    "1": "emergency",
    "2": "urgent",
    "3": "elective",
    "4": "newborn",
    "5": "trauma",
    "9": MISSING,
}
_PROCEDURE_BIT = 1 << 40  # above the five bytes of a code
_BLOCK = 1 << 22


def read_nhds(
    path: str | os.PathLike,
    *,
    codes: str = "all",
    min_diseases: int = 0,
    min_procedures: int = 0,
    skip_bad: bool = False,
) -> Corpus:
    """Reads an NHDS file; with the right options, the paper's subset in one call.

    A code counts once for a discharge, however often its record repeats it. Words are
    `d_0389` and `p_0331`, diseases before procedures, each in order. Labels are `died`
    ("died", "alive") and `admission_type` ("emergency", "urgent", "elective",
    "newborn", "trauma"); "not stated" is missing. The id is the line number.

    Example:
      The paper's subset, its 81 codes and at least two of each kind:
      `read_nhds(path, codes="paper81", min_diseases=2, min_procedures=2)`

    Args:
      path: plain, .gz or .bz2.
      codes: "all", or "paper81" for the paper's 81 codes in its order.
      min_diseases: drop discharges with fewer distinct diseases (of the chosen codes).
      min_procedures: drop discharges with fewer distinct procedures.
      skip_bad: skip, count and report lines that break the layout instead of raising.

    Returns:
      A Corpus. Only the 81 codes have descriptions: NHDS comes without a code table.

    Raises:
      ValueError: naming file, line and value of the first line that breaks the layout,
        or for a file that is empty, damaged or not what its name says.
    """
    if codes not in ("all", "paper81"):
        raise ValueError(f'codes must be "all" or "paper81", got {codes!r}.')
    path = os.fspath(path)
    parts, bad, line = [], Counter(), 0
    with files.open_bytes(path) as handle:
        for block in _blocks(handle, path):
            records, problems, line = _parse(block, line)
            if problems and not skip_bad:
                where, reason, value = min(problems)
                raise ValueError(f"{path}, line {where}: {reason}: {value!r}.")
            bad.update(reason for _, reason, _ in problems)
            parts.append(records)
    if not parts:
        raise ValueError(f"{path}: the file is empty.")
    records = Records(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    corpus = _corpus(records, bad, os.path.basename(path), line)
    if codes == "paper81":
        corpus = selection.select_paper81(corpus)
    if min_diseases or min_procedures:
        corpus = selection.select_docs(
            corpus, min_diseases=min_diseases, min_procedures=min_procedures
        )
    return corpus


class Records(NamedTuple):
    """What is kept of good lines."""

    line: np.ndarray  # [n] line numbers, from 1
    keys: np.ndarray  # [n, 23] packed codes, 0 where blank
    status: np.ndarray  # [n] discharge status, a byte
    type: np.ndarray  # [n] type of admission, a byte


def _blocks(handle: IO[bytes], path: str) -> Iterator[bytes]:
    """The file in pieces that end at line ends."""
    rest = b""
    while chunk := handle.read(_BLOCK):
        data = rest + chunk
        cut = data.rfind(b"\n") + 1
        if cut == 0:
            raise ValueError(
                f"{path}: {len(data):,} bytes without a line end: not NHDS."
            )
        yield data[:cut]
        rest = data[cut:]
    if rest:
        yield rest + b"\n"


def _parse(block: bytes, line: int):
    """Good records of a block, problems as (line, reason, value), and the last line."""
    raw = np.frombuffer(block, dtype=np.uint8)
    end = np.flatnonzero(raw == ord("\n"))
    start = np.concatenate([[0], end[:-1] + 1])
    numbers = line + 1 + np.arange(end.size)
    end = end - ((end > start) & (raw[end - 1] == ord("\r")))
    length = end - start
    # Files from DOS may close with Ctrl-Z, others with blank lines: no records.
    blank = (length == 0) | ((length == 1) & (raw[start] == 0x1A))
    problems = [
        (int(numbers[i]), f"characters, where a record has {WIDTH}", int(length[i]))
        for i in np.flatnonzero(~blank & (length != WIDTH))
    ]
    good = np.flatnonzero(length == WIDTH)
    text = raw[start[good][:, None] + np.arange(WIDTH)]  # [n, 149]
    numbers = numbers[good]
    ok = np.ones(good.size, dtype=bool)
    for reason, wrong, where in _checks(text):
        for i in np.flatnonzero(ok & wrong):
            value = text[i, where(i)].tobytes().decode("ascii", "backslashreplace")
            problems.append((int(numbers[i]), reason, value))
        ok &= ~wrong
    keys = np.concatenate(
        [_pack(text, DIAGNOSES), _pack(text, PROCEDURES, _PROCEDURE_BIT)], axis=1
    )
    records = Records(numbers, keys, text[:, _STATUS], text[:, _TYPE])
    return Records(*(column[ok] for column in records)), problems, line + end.size


def _checks(text: np.ndarray):
    """(reason, [n] which lines break it, line -> the columns of the value)."""
    among = lambda column, known: np.isin(text[:, column], np.frombuffer(known, "u1"))
    one = lambda column: lambda i: slice(column, column + 1)
    outside = (text < 32) | (text > 126)
    yield (
        "not an ASCII character",
        outside.any(1),
        lambda i: slice(np.argmax(outside[i]), np.argmax(outside[i]) + 1),
    )
    yield "unknown newborn flag", ~among(_NEWBORN, b"12"), one(_NEWBORN)
    yield "unknown sex", ~among(_SEX, b"12"), one(_SEX)
    yield "unknown discharge status", ~among(_STATUS, _known(DIED)), one(_STATUS)
    yield "unknown type of admission", ~among(_TYPE, _known(ADMISSION_TYPE)), one(_TYPE)
    for name, layout in (("diagnosis", DIAGNOSES), ("procedure", PROCEDURES)):
        first, _, width = layout
        wrong = _malformed(_fields(text, layout))

        def where(i, wrong=wrong, first=first, width=width):
            at = first + width * np.argmax(wrong[i])
            return slice(at, at + width)

        yield f"malformed {name} code", wrong.any(axis=1), where


def _known(table: dict[str, str]) -> bytes:
    return "".join(table).encode("ascii")


def _fields(text: np.ndarray, layout) -> np.ndarray:
    """[n, fields, width] bytes."""
    first, number, width = layout
    columns = text[:, first : first + number * width]
    return columns.reshape(-1, number, width)


def _malformed(field: np.ndarray) -> np.ndarray:
    """[n, fields] bool: neither blank nor a code left-aligned and filled with '-'.

    A diagnosis is 3 to 5 places (V: 3 to 5, E: 4 or 5), a procedure 2 to 4 digits.
    """
    digit = (field >= ord("0")) & (field <= ord("9"))
    fill = field == ord("-")
    blank = (field == ord(" ")).all(axis=-1)
    head, least = digit[..., 0], 2
    if field.shape[-1] == DIAGNOSES[2]:
        letter_e = field[..., 0] == ord("E")
        head = head | (field[..., 0] == ord("V")) | letter_e
        least = np.where(letter_e, 4, 3)
    places = head + digit[..., 1:].sum(axis=-1)
    tail = (digit | fill)[..., 1:].all(axis=-1)
    gap = (fill[..., :-1] & digit[..., 1:]).any(axis=-1)
    return ~blank & ~(head & tail & ~gap & (places >= least))


def _pack(text: np.ndarray, layout, bit: int = 0) -> np.ndarray:
    """[n, fields] codes as whole numbers, 0 where blank."""
    field = _fields(text, layout).astype(np.uint64)
    key = np.zeros(field.shape[:2], dtype=np.uint64)
    for place in range(field.shape[2]):
        key = key * np.uint64(256) + field[..., place]
    blank = (field == ord(" ")).all(axis=-1)
    return np.where(blank, np.uint64(0), key | np.uint64(bit))


def _word(key: int) -> tuple[str, str]:
    """Kind and code of a packed key."""
    procedure = bool(key & _PROCEDURE_BIT)
    width = PROCEDURES[2] if procedure else DIAGNOSES[2]
    code = (key & (_PROCEDURE_BIT - 1)).to_bytes(width, "big").decode("ascii")
    return ("procedure" if procedure else "disease"), code.rstrip("-")


def _corpus(records: Records, bad: Counter, name: str, lines: int) -> Corpus:
    """Sparse counts over all codes that occur, and the report."""
    has_code = (records.keys != 0).any(axis=1)
    rows, places = np.nonzero(records.keys[has_code])
    if rows.size == 0:
        raise ValueError(f"{name}: no discharge with a code in {lines:,} lines.")
    found, columns = np.unique(
        records.keys[has_code][rows, places], return_inverse=True
    )
    named = [_word(int(key)) for key in found]
    vocab = tuple(codes_lib.PREFIX[kind] + code for kind, code in named)
    shape = (int(has_code.sum()), found.size)
    counts = sp.csr_array((np.ones(rows.size, np.int32), (rows, columns)), shape=shape)
    counts.sum_duplicates()
    repeated = rows.size - counts.nnz
    counts.data[:] = 1
    skipped = "".join(f"; skipped {n:,} lines: {why}" for why, n in sorted(bad.items()))
    line = (
        f"read_nhds {name}: {lines:,} lines, kept {shape[0]:,} discharges over "
        f"{shape[1]:,} codes; dropped {(~has_code).sum():,} without a code; "
        f"{repeated:,} repeated codes counted once{skipped}"
    )
    labels = {"died": DIED, "admission_type": ADMISSION_TYPE}
    raw = {"died": records.status, "admission_type": records.type}
    return Corpus(
        counts=counts,
        vocab=vocab,
        kinds=tuple(kind for kind, _ in named),
        descriptions=tuple(codes_lib.describe(word) for word in vocab),
        labels={k: _translate(raw[k][has_code], table) for k, table in labels.items()},
        ids=records.line[has_code],
        history=note((), line),
    )


def _translate(raw: np.ndarray, table: dict[str, str]) -> np.ndarray:
    """[n] bytes to label text; `_checks` has refused bytes outside the table."""
    by_byte = np.full(256, MISSING, dtype="U16")
    for symbol, text in table.items():
        by_byte[ord(symbol)] = text
    return by_byte[raw]
