"""Imports of dependencies that would take settings from the current folder, which may hold data of others.

Three dependencies look there before they look anywhere else. Numba reads `.numba_config.yaml` when it is imported, and
again whenever it compiles: the file names the folder of its cache, whose files it unpickles, so that these settings are
code. Matplotlib reads `matplotlibrc` and ArviZ reads `arvizrc` when they are imported.
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
from contextlib import chdir, nullcontext
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

from dpvb.guards.errors import ParameterError

NUMBA_SETTINGS: Final = ".numba_config.yaml"
_LOCK = threading.Lock()
_deaf_to_files = False


def import_numba() -> Any:
    """Import numba so that it reads no settings file, now or later; environment variables (NUMBA_*) hold as ever.

    Numba reads the file if it can import PyYAML, and asks that once, while it is imported.
    """
    global _deaf_to_files
    with _LOCK:
        if "numba" not in sys.modules:
            yaml = sys.modules.get("yaml")
            sys.modules["yaml"] = None  # type: ignore[assignment]  # As documented: an import of it fails.
            try:
                # Numba would advise to install PyYAML where there is such a file.
                warnings.filterwarnings("ignore", "A Numba config file is found", UserWarning)
                import_module("numba")
                _deaf_to_files = True
            finally:
                del sys.modules["yaml"]
                if yaml is not None:
                    sys.modules["yaml"] = yaml
        return import_module("numba")


def check_numba() -> None:
    """Refuse to go on where numba takes settings from the current folder.

    Raises:
        ParameterError: if something else than this package has imported numba, and the current folder has such a file.
    """
    if "numba" in sys.modules and not _deaf_to_files and os.path.lexists(NUMBA_SETTINGS):
        raise ParameterError(
            f"The current folder has a file {NUMBA_SETTINGS}, from which numba takes settings and code, and numba was "
            "imported before dpvb could keep it from that. Nothing was charged. Remove the file, and give numba's "
            "settings as environment variables (NUMBA_*); or fit before numba is imported."
        )


def import_own(name: str) -> None:
    """Import a module that the user has named: an installed one, or else NAME.py of the current folder.

    The current folder is not put on the path: no other module is taken from it, and an installed module of this name
    comes first.

    Args:
        name: of the module.

    Raises:
        ParameterError: if there is no such module, or importing it fails.
    """
    file = Path.cwd() / f"{name}.py"
    if not all(part.isidentifier() for part in name.split(".")):
        raise ParameterError(
            f"--import must be the name of a module, such as my_models for my_models.py, got {name!r}."
        )
    try:
        if name in sys.modules or find_spec(name) is not None:
            import_module(name)
        elif file.is_file() and (spec := spec_from_file_location(name, file)) is not None and spec.loader is not None:
            sys.modules[name] = module = module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            raise ModuleNotFoundError(f"no module of this name is installed, and no {file.name} is in this folder")
    except Exception as error:
        sys.modules.pop(name, None)
        raise ParameterError(
            f"--import {name} failed: {type(error).__name__}: {error}. Nothing was charged."
        ) from error


def import_apart(name: str) -> Any:
    """Import a module that reads settings when it is imported, without a file of the current folder.

    While it is imported for the first time, the process stands in another folder.

    Args:
        name: a module; one that is imported already stays as it is.
    """
    if name in sys.modules:
        return import_module(name)
    with _LOCK:
        try:
            os.chdir(os.getcwd())
            place: Any = chdir(sys.prefix)  # As trusted as this Python itself.
        except OSError:  # The folder is gone, or may not be entered: neither may its files, nor is there a way back.
            place = nullcontext()
        with place:
            return import_module(name)
