"""How loops are compiled: without the interpreter's lock, and kept on disk where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba

# nnan and ninf are left out: a NaN must reach the clip.
FLAGS = {"contract", "reassoc", "nsz"}


def compiled(function: Callable[..., Any], fastmath: set[str] | bool = FLAGS) -> Any:
    """Compile with the on-disk cache, or without where no cache directory can be written."""
    options: dict[str, Any] = {"nogil": True, "fastmath": fastmath, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
