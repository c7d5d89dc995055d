"""Opening what users give: plain, gzip or bzip2, checked against the file's name."""

import bz2
import contextlib
import csv
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import IO

_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
    b"PK\x05\x06": "zip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstandard",
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"%PDF": "PDF",
    b"\x89PNG": "PNG",
    b"\x89HDF": "HDF5",
    b"\x93NUMPY": "npy",
    b"SQLite format 3": "SQLite",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_BY_SUFFIX = {".gz": "gzip", ".bz2": "bzip2"}
_OPEN = {"plain": open, "gzip": gzip.open, "bzip2": bz2.open}


def content_kind(path: str | os.PathLike) -> str:
    """What the first bytes say: "plain" or one of the known formats."""
    with open(path, "rb") as handle:
        head = handle.read(16)
    for magic, kind in _MAGIC.items():
        if head.startswith(magic):
            return kind
    return "plain"


@contextlib.contextmanager
def open_bytes(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """Opens a plain, .gz or .bz2 file for reading.

    Raises:
      ValueError: if the content is not what the name says (a .gz that is no gzip, a
        .csv that is one, a zip, ...), or damaged, or if the path is a folder.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        raise ValueError(f"{path}: is a folder, expected a file.")
    found = content_kind(path)
    named = _BY_SUFFIX.get(os.path.splitext(path)[1].lower(), "plain")
    if os.path.getsize(path) == 0:
        raise ValueError(f"{path}: the file is empty.")
    if found != named:
        raise ValueError(
            f"{path}: not what its name says: the name means {named}, "
            f"the first bytes are {found}."
        )
    try:
        with _OPEN[named](path, "rb") as handle:
            yield handle
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: damaged {named} file: {error}") from error
    except OSError as error:
        if error.errno is not None:  # a true error of the disk
            raise
        raise ValueError(f"{path}: damaged {named} file: {error}") from error


@contextlib.contextmanager
def open_lines(
    path: str | os.PathLike, encoding: str = "utf-8"
) -> Iterator[Iterator[str]]:
    r"""Opens a text file as a stream of lines, without their \n or \r\n.

    Raises:
      ValueError: as `open_bytes`; for bytes that are not of the encoding, naming the
        line; for a NUL byte, which no text file has.
    """
    with open_bytes(path) as handle:
        yield _decoded(handle, os.fspath(path), encoding)


def _decoded(handle: IO[bytes], path: str, encoding: str) -> Iterator[str]:
    for number, raw in enumerate(handle, start=1):
        if number == 1 and raw.startswith(b"\xef\xbb\xbf"):
            raw = raw[3:]
        try:
            line = raw.decode(encoding)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}, line {number}: byte {raw[error.start]:#04x} is not "
                f"{encoding} text; name another encoding."
            ) from error
        except LookupError as error:
            raise ValueError(f"unknown encoding {encoding!r}.") from error
        if "\0" in line:
            raise ValueError(f"{path}, line {number}: has a NUL byte: not a text file.")
        yield line.rstrip("\r\n")


def read_table(
    path: str, columns: Sequence[str]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Streams (line, the wanted cells) of a csv file; column names in either case."""
    with open_lines(path) as lines:
        reader = csv.reader(lines, strict=True)
        try:
            header = [name.strip().lower() for name in next(reader, [])]
            missing = [name for name in columns if name not in header]
            if missing:
                # Not the row itself: without a header, it is a patient's.
                raise ValueError(
                    f"{path}, line 1: no column {missing[0]!r} among the "
                    f"{len(header)} names."
                )
            places = [header.index(name) for name in columns]
            for row in reader:
                if len(row) != len(header):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, where the "
                        f"header has {len(header)}."
                    )
                yield reader.line_num, tuple(row[place].strip() for place in places)
        except csv.Error as error:
            where = f"{path}, line {reader.line_num}"
            raise ValueError(f"{where}: not a csv row: {error}.") from error
