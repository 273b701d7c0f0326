"""How loops are compiled: without the interpreter's lock, and kept on disk where that is possible.

Numba unpickles the files in the folder of its cache: a user who can write there can run code in the process that holds
the rows. So a cache is used only where others cannot write: with the sources, from where Python itself takes compiled
code, or in a folder that is closed to others. In both, the cache's own files must be closed to other writers, too: a
folder that is closed to others may contain files that are open to them.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from dpvb.guards.errors import CheckpointError
from dpvb.guards.file_ownership import check_closed_folder
from dpvb.guards.imports import import_numba
from dpvb.guards.untrusted import say

# nnan and ninf are left out: a NaN must reach the clip.
FLAGS = {"contract", "reassoc", "nsz"}
_UMASK = threading.Lock()


def compiled(function: Callable[..., Any], fastmath: set[str] | bool = FLAGS) -> Any:
    """Compile with the on-disk cache, or without where no cache directory can be written, or others could write it."""
    numba = import_numba()
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        with _closed_to_writers():
            compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    # With NUMBA_DISABLE_JIT=1 it is the function itself.
    folder = compiled.stats.cache_path if hasattr(compiled, "stats") else ""
    beside = os.path.join(os.path.dirname(function.__code__.co_filename), "__pycache__")
    if folder == "":
        return compiled
    if not ((folder == beside or _is_closed(folder)) and _has_closed_files(folder)):
        return numba.njit(**options)(function)
    save = compiled._cache.save_overload

    def save_closed(*compilation: Any) -> None:
        """Numba writes when a loop is first called, with the mode that the umask leaves."""
        with _closed_to_writers():
            save(*compilation)

    compiled._cache.save_overload = save_closed
    return compiled


@contextmanager
def _closed_to_writers() -> Iterator[None]:
    """Files and folders that are made in this block are closed to other writers, whatever the umask is."""
    with _UMASK:
        before = os.umask(0o022)
        os.umask(before | 0o022)
        try:
            yield
        finally:
            os.umask(before)


@cache
def _is_closed(folder: str) -> bool:
    """Return whether only this user can put a file into a folder; otherwise warn once."""
    try:
        check_closed_folder(folder)
    except CheckpointError as error:
        say(f"the cache of numba is not used, so that each run compiles anew: others could put code into it. {error}")
        return False
    return True


@cache
def _has_closed_files(folder: str) -> bool:
    """Return whether only this user can write into a file of numba's cache in a folder; otherwise warn once."""
    if os.name != "posix":
        return True
    with os.scandir(folder) as places:
        for place in places:
            status = place.stat(follow_symlinks=False)
            if not place.name.endswith((".nbi", ".nbc")):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
                say(
                    f"the cache of numba is not used, so that each run compiles anew: others could put code into "
                    f"{place.path}. Remove the files of the cache (*.nbi, *.nbc) in that folder."
                )
                return False
    return True
