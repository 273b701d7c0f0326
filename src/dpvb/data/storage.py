"""Bytes from files, plain or gzipped, in bounded memory.

What is wrong with a file as a whole (missing, not permitted, a damaged archive) is public and said before
anything is spent. What is wrong inside one line belongs to somebody and is never said.
"""

from __future__ import annotations

import gzip
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from dpvb.errors import DataFormatError

MAX_DOCUMENT_BYTES = 2**24
BLOCK_BYTES = 2**21

# Stands for a line that is too long to hold: it is not UTF-8, so every reader takes it for an empty document.
UNREADABLE = b"\xff"


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, which its first two bytes tell."""
    if is_gzip(path):
        return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


def is_gzip(path: Path) -> bool:
    """Return whether the file is gzipped."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def check_readable(path: Path, read_through: Callable[[Path], None] | None = None) -> None:
    """Read a packed file to its end (a plain one not at all), so that damage shows before the first charge.

    Args:
        path: the file; public.
        read_through: another way to check the whole file, for other archives.

    Raises:
        DataFormatError: naming the file and the kind of failure; it keeps no trace of the content.
    """
    # Raised outside the except block: a chained exception would carry the buffers of private bytes along.
    reason = _reason_unreadable(path, read_through or _read_through)
    if reason:
        raise DataFormatError(f"The file {os.fspath(path)!r} cannot be read: {reason}.")


def lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines with their ends; one beyond MAX_DOCUMENT_BYTES becomes UNREADABLE."""
    while line := file.readline(MAX_DOCUMENT_BYTES):
        if len(line) == MAX_DOCUMENT_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = file.readline(MAX_DOCUMENT_BYTES)
            line = UNREADABLE + b"\n"
        yield line


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, about BLOCK_BYTES at a time; of a longer line only an end is kept."""
    rest = b""
    while piece := file.read(BLOCK_BYTES):
        rest += piece
        end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
        elif len(rest) > BLOCK_BYTES:
            rest = UNREADABLE
    if rest:
        yield rest


def _read_through(path: Path) -> None:
    if not is_gzip(path):
        return
    with open_binary(path) as file:
        while file.read(BLOCK_BYTES):
            pass


def _reason_unreadable(path: Path, read_through: Callable[[Path], None]) -> str:
    try:
        read_through(path)
    except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        return getattr(error, "strerror", None) or "the archive is damaged"
    return ""
