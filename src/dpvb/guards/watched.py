"""Files that private rows are read from: the same files at every pass of a fit, and when a run resumes.

A fit of two data sets has no guarantee for either of them in one statement. So the names, sizes and times of
modification of the files are kept before they are read, and compared later. They are functions of the data: a
checkpoint keeps them only for its owner, and no message has more of them than the name of a file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from dpvb.guards.errors import DataFormatError


class FileState(NamedTuple):
    """The facts by which a file is compared; private.

    Attributes:
        name: without its folder.
        size: in bytes.
        modified: time of the last modification, in nanoseconds.
    """

    name: str
    size: int
    modified: int


@dataclass(frozen=True)
class Watched:
    """Some files as they were before they were read.

    Attributes:
        paths: of the files.
        states: of the files; private.
        is_read_again: whether each pass reads the files anew.
    """

    paths: tuple[Path, ...] = ()
    states: tuple[FileState, ...] = field(default=(), repr=False)
    is_read_again: bool = False

    @classmethod
    def of(cls, paths: Iterable[Path], *, is_read_again: bool = False) -> Watched:
        """Return some files as they are now."""
        files = tuple(paths)
        return cls(files, _states(files), is_read_again)

    def __add__(self, other: Watched) -> Watched:
        """Return the files of both."""
        is_read_again = self.is_read_again or other.is_read_again
        return Watched((*self.paths, *other.paths), (*self.states, *other.states), is_read_again)

    def check(self) -> None:
        """Refuse files that each pass reads anew and that are not as they were.

        Raises:
            DataFormatError: naming the file.
        """
        if self.is_read_again and (name := changed(self.states, _states(self.paths))) is not None:
            raise DataFormatError(
                f"The file {name!r} was changed while the fit read it, so that later releases would be of other data. "
                "Do not write to files that a fit reads: make a copy first. Begin a new run with the new files."
            )


def watched(*data: object) -> Watched:
    """Return the files that some data were read from, and those of the `watching` block."""
    found = (getattr(one, "watched", None) for one in data)
    return sum((*_around.get(), *(one for one in found if isinstance(one, Watched))), Watched())


@contextmanager
def watching(paths: Iterable[Path]) -> Iterator[Watched]:
    """Watch files that are read into arrays, which do not show where they came from."""
    files = Watched.of(paths)
    before = _around.set((*_around.get(), files))
    try:
        yield files
    finally:
        _around.reset(before)


def changed(kept: Sequence[Sequence[Any]], now: Sequence[Sequence[Any]]) -> str | None:
    """Return the name of a file that differs, is missing or was added; None if all are as they were."""
    differing = {tuple(one) for one in kept} ^ {tuple(one) for one in now}
    return min((str(one[0]) for one in differing), default=None)


_around: ContextVar[tuple[Watched, ...]] = ContextVar("dpvb_files", default=())


def _states(paths: Iterable[Path]) -> tuple[FileState, ...]:
    """The facts by which files are compared; a missing file has none."""
    states = []
    for path in paths:
        with suppress(OSError):
            found = path.stat()
            states.append(FileState(path.name, found.st_size, found.st_mtime_ns))
    return tuple(states)
