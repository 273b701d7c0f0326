"""Files that commands read and write: checked before anything is spent, replaced only as a whole."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dpvb.errors import ModelFileError, ParameterError


def load_model(path: Path) -> Any:
    """A fitted model."""
    import dpvb

    return dpvb.load(path)


def check_target(path: Path, overwrite: bool) -> None:
    """Refuse a file that cannot be written, before anything is spent."""
    if path.is_dir():
        raise ParameterError(f"--out must name a file, got the folder {str(path)!r}.")
    if path.exists() and not overwrite:
        raise ParameterError(f"--out {str(path)!r} is already there. Name another file, or add --overwrite.")
    if not path.parent.is_dir():
        raise ParameterError(f"--out: there is no folder {str(path.parent)!r}. Make it first.")
    _check_writable(path.parent)


def check_folder(folder: Path) -> None:
    """Make a folder that can be written, in one that exists."""
    if not folder.is_dir():
        if folder.exists() or not folder.parent.is_dir():
            raise ParameterError(f"--out must be a folder, or a new one in an existing folder, got {str(folder)!r}.")
        _check_writable(folder.parent)
        folder.mkdir()
    _check_writable(folder)


def _check_writable(folder: Path) -> None:
    probe = folder / f".dpvb-{secrets.token_hex(8)}.tmp"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise ParameterError(f"--out: the folder {str(folder)!r} cannot be written: {error.strerror}.") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file that takes the path's place once it is whole."""
    temporary = path.parent / f".dpvb-{secrets.token_hex(8)}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be written ({error.strerror}); nothing was changed.") from error
    finally:
        with suppress(OSError):
            temporary.unlink()
