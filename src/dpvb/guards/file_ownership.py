"""Files and folders that only this user can read, write or place.

A stranger who can put a file where a run looks for it chooses what the run believes, and that includes its noise. So
files read here have to be regular files of this user, closed to all others, and not links. Systems without
the owners and modes of POSIX are trusted to keep a user's folders.
"""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from dpvb.guards.errors import CheckpointError

_POSIX = os.name == "posix"
# A link is not followed, and a pipe in its place is not waited for.
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def state_folder() -> Path:
    """Return the folder of dpvb's state of this user: `$XDG_STATE_HOME/dpvb`, or `~/.local/state/dpvb`."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # The XDG specification: relative paths are ignored.
        state = os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(state, "dpvb")


def open_own(path: str | os.PathLike[str], *, secret: bool = True) -> IO[bytes]:
    """Open a file that only this user can use for reading.

    Args:
        path: a regular file and no link, owned by this process's effective user, without access for others.
        secret: False: others may read it, as long as they cannot write it.

    Raises:
        FileNotFoundError: if there is none.
        CheckpointError: if it is anything else, or cannot be read.
    """
    try:
        _refuse_link(path)
        descriptor = os.open(path, os.O_RDONLY | _CAREFULLY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{Path(path)}: cannot be read ({error.strerror}).") from error
    try:
        _check(path, os.fstat(descriptor), 0o077 if secret else 0o022, "a file")
    except CheckpointError:
        os.close(descriptor)
        raise
    return open(descriptor, "rb")


def read_own(path: str | os.PathLike[str], *, secret: bool = True, most: int = 2**24) -> bytes:
    """Return the bytes of a file that only this user can use.

    Args:
        path, secret: see `open_own`.
        most: how many bytes there may be.

    Raises:
        FileNotFoundError: if there is none.
        CheckpointError: if it is anything else, or cannot be read.
    """
    with open_own(path, secret=secret) as file:
        try:
            data = file.read(most + 1) if os.fstat(file.fileno()).st_size <= most else None
        except OSError as error:
            raise CheckpointError(f"{Path(path)}: cannot be read ({error.strerror}).") from error
    if data is None or len(data) > most:
        raise CheckpointError(f"{Path(path)}: has more than the {most} bytes that such a file can have.")
    return data


def check_own(path: str | os.PathLike[str]) -> None:
    """Refuse a file that others can use, without opening it: a database is opened by its own library only.

    Args:
        path: see `open_own`.

    Raises:
        FileNotFoundError: if there is none.
        CheckpointError: if it is anything else.
    """
    _check(path, os.lstat(path), 0o077, "a file")


def check_own_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder in which users other than this one could put a file.

    Args:
        path: a folder and no link, owned by this process's effective user, that others may not write.

    Raises:
        FileNotFoundError: if there is none.
        CheckpointError: if it is anything else.
    """
    try:
        _check(path, os.lstat(path), 0o022, "a folder")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise CheckpointError(f"{Path(path)}: cannot be read ({error.strerror}).") from error


def check_closed_folder(path: str | os.PathLike[str]) -> None:
    """Refuse a folder into which other users could put a file, or in whose place they could put another one.

    It and every folder above it belong to this user or to root, and others may not write them; a folder above it may
    be sticky, as `/tmp` is, where others cannot move what is not theirs. A link on the way is followed by these rules.

    Args:
        path: a folder.

    Raises:
        CheckpointError: if it is not such a folder, or cannot be looked at.
    """
    if not _POSIX:
        return
    here = Path(os.path.abspath(path))
    try:
        os.stat(here)  # Links in a circle end here.
        for place in (here, *here.parents):
            state = os.lstat(place)
            if stat.S_ISLNK(state.st_mode):
                check_closed_folder(place.parent / os.readlink(place))
            elif state.st_mode & 0o022 and (place == here or not state.st_mode & stat.S_ISVTX):
                raise CheckpointError(
                    f"{place}: has mode {stat.S_IMODE(state.st_mode):04o}, so that others may write to it. If no one "
                    "did, restrict it (chmod go-w). Otherwise remove it."
                )
            if state.st_uid not in (0, os.geteuid()):
                raise CheckpointError(
                    f"{place}: belongs to user {state.st_uid}, who may change it, and this process runs as user "
                    f"{os.geteuid()}. Name a folder of your own."
                )
    except OSError as error:
        raise CheckpointError(f"{here}: cannot be looked at ({error.strerror}).") from error


@contextmanager
def new_own(
    path: str | os.PathLike[str], *, new: bool = False, mode: int = 0o600, sync: bool = True
) -> Iterator[IO[bytes]]:
    """Write a file that only this user can use, whole or not at all.

    Args:
        path: the file; what is there gives way to it, a link included, once it is whole and on the disk.
        new: refuse to take the place of anything.
        mode: Mode of the file, from which the umask takes bits. 0o600 (default): only for this user.
        sync: Whether to wait until the file is on the disk. False: a power cut may leave an empty file.

    Raises:
        FileExistsError: if it must be new, and something is there.
        OSError: if it cannot be written; nothing half-written is left.
    """
    target = Path(path)
    temporary = target.with_name(f".dpvb-{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, mode), "wb+") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        if new:
            os.link(temporary, target)
        else:
            os.replace(temporary, target)
        if sync:
            sync_folder(target.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_own(path: str | os.PathLike[str], data: bytes, *, new: bool = False) -> None:
    """Write bytes into a file that only this user can use, whole or not at all.

    Args:
        path: see `new_own`.
        data: its contents.
        new: refuse to take the place of anything.

    Raises:
        FileExistsError: if it must be new, and something is there.
        OSError: if it cannot be written; nothing half-written is left.
    """
    with new_own(path, new=new) as file:
        file.write(data)


def locked(path: str | os.PathLike[str]) -> IO[bytes]:
    """Return a file that only this process holds until it closes it, or dies.

    Args:
        path: the file; made if it is missing, kept as it is otherwise.

    Raises:
        BlockingIOError: if another process holds it.
        CheckpointError: if it is not a regular file of this user, or is a link.
        OSError: if it cannot be opened.
    """
    _refuse_link(path)
    file = open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | _CAREFULLY, 0o600), "ab")  # noqa: SIM115
    try:
        # Earlier versions made locks that others may read; they say nothing.
        _check(path, os.fstat(file.fileno()), 0, "a file")
        if sys.platform == "win32":
            import msvcrt

            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError as error:
                raise BlockingIOError(error.errno, error.strerror) from error
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def unlock(file: IO[bytes]) -> None:
    """Release a file of `locked`, even if a forked child still has it open."""
    if sys.platform != "win32":
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable where folders can be synced."""
    if _POSIX:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refuse_link(path: str | os.PathLike[str]) -> None:
    """Say in words what opening a link would say by a number; opening it refuses one that comes in between."""
    if os.path.islink(path):
        raise CheckpointError(
            f"{Path(path)}: is a link, whose target another user may have chosen. Name the file itself."
        )


def _check(path: str | os.PathLike[str], found: os.stat_result, closed: int, what: str) -> None:
    """Refuse what is of another type or owner, or has one of the bits of its mode that must be closed."""
    right_kind = stat.S_ISDIR(found.st_mode) if what == "a folder" else stat.S_ISREG(found.st_mode)
    if not right_kind:
        raise CheckpointError(f"{Path(path)}: is not {what}, or is a link to one. Name {what} itself.")
    if not _POSIX:
        return
    if found.st_uid != os.geteuid():
        raise CheckpointError(
            f"{Path(path)}: belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}: files of "
            "other users are not trusted. Run as its owner, or use a new place of your own."
        )
    if found.st_mode & closed:
        others, bits = ("read or write it", "-rwx") if closed == 0o077 else ("write to it", "-w")
        raise CheckpointError(
            f"{Path(path)}: has mode {stat.S_IMODE(found.st_mode):04o}, so that others may {others}. If no one did, "
            f"restrict it (chmod go{bits}). Otherwise use a new place of your own."
        )
