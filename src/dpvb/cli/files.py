"""Files that commands read and write: checked before anything is spent, replaced only as a whole."""

from __future__ import annotations

import gzip
import math
import os
import secrets
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from dpvb.guards.errors import DataFormatError, ModelFileError, ParameterError, check_path
from dpvb.guards.file_ownership import locked, new_own, unlock

if TYPE_CHECKING:
    from dpvb.results.audit_report import Report
    from dpvb.results.statement import PrivacyStatement


def load_model(path: Path, *needed: str) -> Any:
    """A fitted model, of a kind that has one of these methods where there are any.

    Raises:
        ModelFileError: as `dpvb.load`, or for a model of another kind.
    """
    from dpvb.estimators import PrivateEstimator, load

    model = load(path)
    able = [
        name for name, kind in PrivateEstimator._registered.items() if any(hasattr(kind, method) for method in needed)
    ]
    if needed and type(model).__name__ not in able:
        raise ModelFileError(
            f"{path}: holds a fitted {type(model).__name__}; this command needs {' or '.join(able)}. Every model has "
            "`dpvb report` and `dpvb show`."
        )
    return model


def read_statement(path: Path) -> tuple[PrivacyStatement, Report | None]:
    """The privacy statement of a model file, checked, and the audit report that is attached, if any.

    The class of the model is not needed: an auditor who reads a statement runs no code of the model's author.

    Raises:
        ModelFileError: as `dpvb.load`, or for a statement that does not follow from its releases.
    """
    from dpvb.results import model_file
    from dpvb.results.audit_report import Report
    from dpvb.results.statement import PrivacyStatement

    facts = model_file.load(path).facts
    try:
        statement = PrivacyStatement.from_dict(facts["privacy"])
        report = Report.from_dict(facts["audit"]) if "audit" in facts else None
    except Exception:  # whatever a file of another program makes its reader raise
        raise model_file.inconsistent(path) from None
    statement.verify()
    return statement, report


def read_matrix(path: Path) -> Any:
    """An array of a .npy or idx file, or the sparse matrix or single array of a .npz file; nothing is unpickled.

    Each of them is a container: its header says how many bytes there are, and a file of any other form is refused as
    a whole. So is an array of Python objects, which NumPy makes where one cell is None: it is written as a pickle,
    and reading a pickle runs what its writer put there.

    Raises:
        DataFormatError: for any other file.
    """
    import numpy as np
    from scipy import sparse

    from dpvb.data.readable import check_there
    from dpvb.guards.suppress_output import silence

    check_there(path)
    try:
        with silence():
            if path.name.removesuffix(".gz").endswith("ubyte"):
                return _read_idx(path)
            loaded = np.load(path, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded
            with loaded:
                if "format" in loaded.files:
                    return sparse.load_npz(path)
                [name] = loaded.files
                return loaded[name]
    except Exception:  # whatever a damaged file makes its reader raise
        pass
    if _declared(path)[0]:
        raise DataFormatError(
            f"The file {str(path)!r} holds Python objects, which are never unpickled. Save numbers or text of fixed "
            "width: array.astype(float) makes NaN of None, array.astype(str) makes text of all."
        )
    raise DataFormatError(
        f"The file {str(path)!r} is not a matrix of numbers. Write it with numpy.save(path, X) or "
        "scipy.sparse.save_npz(path, X)."
    )


def matrix_width(path: Path) -> int:
    """Number of columns that the header of a file of `read_matrix` declares; no row is read.

    Raises:
        DataFormatError: for any other file.
    """
    if not path.is_file():
        raise DataFormatError(f"No such file: {str(path)!r}.")
    shape = _declared(path)[1]
    if len(shape) != 2:
        raise DataFormatError(
            f"The header of {str(path)!r} declares no rows and columns; write it with numpy.save(path, X) or "
            "scipy.sparse.save_npz(path, X)."
        )
    return shape[1]


def _declared(path: Path) -> tuple[bool, tuple[int, ...]]:
    """Return a header's facts: whether cells are Python objects, and the lengths of the axes; (): without a header."""
    import numpy as np

    from dpvb.data.documents.matrix_files import array_header

    with suppress(Exception):  # whatever a damaged header, or a file of another form, makes its reader raise
        if path.name.removesuffix(".gz").endswith("ubyte"):
            with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
                sizes = np.frombuffer(file.read(4 * file.read(4)[3]), ">u4").tolist()
                return False, tuple(sizes) if len(sizes) == 1 else (sizes[0], math.prod(sizes[1:]))
        if not zipfile.is_zipfile(path):
            with path.open("rb") as file:
                kind, shape = array_header(file)
                return bool(kind.hasobject), shape
        with zipfile.ZipFile(path) as archive:
            is_sparse = "shape.npy" in archive.namelist()
            with archive.open("shape.npy" if is_sparse else archive.namelist()[0]) as member:
                kind, shape = array_header(member)
                shape = tuple(np.frombuffer(member.read(), kind).tolist()) if is_sparse else shape
                return bool(kind.hasobject), shape
    return False, ()


def _read_idx(path: Path) -> Any:
    """Bytes of an idx file (LeCun's MNIST format), images as rows.

    Raises:
        ValueError: for any other file.
    """
    import numpy as np

    content = path.read_bytes()
    content = gzip.decompress(content) if path.name.endswith(".gz") else content
    if content[:3] != b"\0\0\x08" or not content[3:4] > b"\0":
        raise ValueError
    sizes = np.frombuffer(content, ">u4", count=content[3], offset=4).tolist()
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * len(sizes))
    return values.reshape(sizes[:1] if len(sizes) == 1 else (sizes[0], math.prod(sizes[1:])))


def check_target(path: Path, overwrite: bool, word: str = "--out") -> None:
    """Refuse a file that cannot be written, before anything is spent; `word` names it in an error."""
    if check_path(word, path).is_dir():
        raise ParameterError(f"{word} must name a file, got the folder {str(path)!r}.")
    if path.exists() and not overwrite:
        raise ParameterError(f"{word} {str(path)!r} is already there. Name another file, or add --overwrite.")
    if not path.parent.is_dir():
        raise ParameterError(f"{word}: there is no folder {str(path.parent)!r}. Make it first.")
    _check_writable(path.parent, word)


@contextmanager
def reserved(path: Path, overwrite: bool) -> Iterator[None]:
    """Keep other commands from writing a file, from before the charge until it is written.

    A lock in the same folder does it: a process that is killed leaves nothing that is in the way.

    Raises:
        ParameterError: as `check_target`, or if another command holds the file.
    """
    lock = path.with_name(f".{path.name}.lock")
    held = None
    check_target(path, overwrite)
    try:
        held = locked(lock)
    except BlockingIOError:
        pass
    except OSError as error:
        raise ParameterError(f"--out {str(path)!r} cannot be reserved: {error.strerror}. Name another file.") from error
    if held is None or not _is_at(held, lock):
        raise ParameterError(f"--out {str(path)!r} is being written by another command. Name another file.")
    try:
        check_target(path, overwrite)
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        unlock(held)


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def check_folder(folder: Path, word: str = "--out") -> None:
    """Make a folder that can be written, in one that exists; `word` names it in an error."""
    if not check_path(word, folder).is_dir():
        if folder.exists() or not folder.parent.is_dir():
            raise ParameterError(f"{word} must be a folder, or a new one in an existing folder, got {str(folder)!r}.")
        _check_writable(folder.parent, word)
        folder.mkdir()
    _check_writable(folder, word)


def _check_writable(folder: Path, word: str = "--out") -> None:
    probe = folder / f".dpvb-{secrets.token_hex(8)}.tmp"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise ParameterError(f"{word}: the folder {str(folder)!r} cannot be written: {error.strerror}.") from error


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


@contextmanager
def private(path: Path) -> Iterator[IO[bytes]]:
    """Write a file of private rows: only this user may read it, and it takes the path's place once it is whole."""
    try:
        with new_own(path) as file:
            yield file
    except OSError as error:
        raise DataFormatError(f"{path}: cannot be written ({error.strerror}); nothing was changed.") from error
