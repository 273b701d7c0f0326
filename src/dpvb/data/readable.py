"""Bytes from files, plain or gzipped, in bounded memory.

An error of a file as a whole (missing, not permitted, a damaged archive) is public and said before
anything is spent. An error inside one line is private and is never reported.

No line reaches another: where a line begins in a piece of the file decides nothing, nor does the size of a piece. A
gzip file is a container: one that does not unpack to its end is refused as a whole.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

from dpvb.guards.errors import DataFormatError, reason_of

MAX_DOCUMENT_BYTES = 2**24
BLOCK_BYTES = 2**18
#: Byte order mark of UTF-8.
BOM = b"\xef\xbb\xbf"

# Stands for a line that is too long to hold: it is not UTF-8, so every reader takes it for an empty document.
UNREADABLE = b"\xff"


def open_binary(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, which only its name decides: first bytes may be private."""
    if is_gzip(path):
        return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


def is_gzip(path: Path) -> bool:
    """Return whether the name says that the file is gzipped."""
    return path.name.lower().endswith(".gz")


def check_readable(path: Path, read_through: Callable[[Path], None] | None = None, *, any_start: bool = False) -> None:
    """Read a packed file to its end (a plain one not at all), so that damage shows before the first charge.

    Args:
        path: the file; public.
        read_through: another way to check the whole file, for other archives.
        any_start: whether a file of its format has no header and begins with a record, which may be any bytes, also
            those of gzip.

    Raises:
        DataFormatError: naming the file and the kind of failure; it keeps no trace of the content.
    """
    # Raised outside the except block: a chained exception would carry the buffers of private bytes along.
    reason = _reason_unreadable(path, read_through or partial(_read_through, any_start=any_start))
    if reason:
        raise DataFormatError(f"The file {os.fspath(path)!r} cannot be read: {reason}.")


def check_there(path: Path) -> None:
    """Refuse the name of a file that is not there, before anything else is said of the name.

    Raises:
        DataFormatError: naming the file.
    """
    if not os.path.exists(path):
        raise DataFormatError(f"The file {os.fspath(path)!r} cannot be read: there is no such file.")


def pieces(file: BinaryIO) -> Iterator[bytes]:
    """Yield all bytes, about BLOCK_BYTES at a time."""
    while piece := file.read(BLOCK_BYTES):
        yield piece


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield whole lines, several at a time; a line that is too long to be held becomes UNREADABLE."""
    rest, is_dropping = b"", False
    for piece in pieces(file):
        if is_dropping:
            end = piece.find(b"\n")
            if end < 0:
                continue
            piece, is_dropping = piece[end:], False
        text = rest + piece
        end = text.rfind(b"\n") + 1
        if end:
            yield text[:end]
        rest = text[end:]
        if len(rest) > MAX_DOCUMENT_BYTES:
            rest, is_dropping = UNREADABLE, True
    if rest:
        yield rest


def lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines without their ends (LF, or CR LF); one beyond MAX_DOCUMENT_BYTES becomes UNREADABLE."""
    for block in blocks(file):
        for line in block.removesuffix(b"\n").split(b"\n"):
            yield line.removesuffix(b"\r") if len(line) <= MAX_DOCUMENT_BYTES else UNREADABLE


def _read_through(path: Path, any_start: bool) -> None:
    with path.open("rb") as file:
        if not is_gzip(path) and not any_start and file.read(2) == b"\x1f\x8b":
            raise OSError(0, "it is gzipped; let its name end with .gz")
    if is_gzip(path):
        with open_binary(path) as file:
            for _ in pieces(file):
                pass


def _reason_unreadable(path: Path, read_through: Callable[[Path], None]) -> str:
    # Whatever a damaged archive makes its reader raise may speak of what is in it.
    try:
        read_through(path)
    except OSError as error:
        return reason_of(error) or "the archive is damaged"
    except Exception:
        return "the archive is damaged"
    return ""
