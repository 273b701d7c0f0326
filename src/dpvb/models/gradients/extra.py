"""The optional packages, imported when they are first needed."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from dpvb.guards.errors import ParameterError


def optional(name: str) -> Any:
    """Import JAX, NumPyro or a part of theirs.

    Raises:
        ParameterError: if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        missing = name.split(".")[0]
    raise ParameterError(f"DPVI needs {missing}, which is not installed: pip install '.[jax]' in dpvb's source folder.")
