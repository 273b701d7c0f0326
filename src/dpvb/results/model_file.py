"""Model files: one zip of plain .npy arrays with a JSON manifest; reading one never runs code from it.

    members     manifest.json, then one NAME.npy for each array: stored, not compressed
    manifest    format, version of dpvb, kind, facts, and for each array its shape, dtype and SHA-256
    zip comment "dpvb model file sha256=" and the SHA-256 of every byte before it

`numpy.load` and any unzip program can read such a file. The hashes find damage: a flipped bit, a lost end, a
careless edit. They do not find a forger, who can compute them anew; for that sign the file, or keep its hash elsewhere.

Against hostile files the reader relies on structure, not on care. Nothing is compressed, so that the arrays cannot
be larger than the file. An array's header is not parsed but compared, byte by byte, with the one that the manifest
implies. Values are numbers of a few plain types, all finite. Memory stays below
100 MB plus a few times the file's size.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.errors import ModelFileError, ParameterError, check_path
from dpvb.guards.file_ownership import new_own
from dpvb.guards.untrusted import parsed_json, printable
from dpvb.guards.version import __version__

#: Version of the file format; a reader refuses all others. A fitted model is its parameters and one record of what it
#: learned (`results.trees`). Version 0.2.0 wrote format 1; 2 and 3 were never released.
FORMAT = 4

_DTYPES = ("<f8", "<f4", "<i8", "<i4", "|u1")
_MANIFEST = "manifest.json"
_COMMENT = b"dpvb model file sha256="
_DIGEST_LENGTH = 64
_END_RECORD = struct.Struct("<4s4H2IH")
_END_SIGNATURE = b"PK\x05\x06"
_ZIP64_SIGNATURE = b"PK\x06\x07"
_TRAILER = _END_RECORD.size + len(_COMMENT) + _DIGEST_LENGTH
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,73}")
# Room for a path of 1,000 steps of a model with 10 arrays; a zip file has 65,535 members at most.
_MAX_ARRAYS = 10_000
# Together with the largest manifest, this stays below the 2 GiB at which zip files change their form.
_MAX_BYTES = 3 * 2**29
_CHUNK = 2**20


@dataclass(frozen=True)
class StoredModel:
    """Contents of a model file.

    Attributes:
        kind: Class of the model.
        arrays: Finite arrays by name.
        facts: Plain JSON values.
    """

    kind: str
    arrays: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Any]


def save(
    path: str | os.PathLike[str], *, kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]
) -> None:
    """Write a model file atomically: an old file is kept until the new one is on the disk.

    Equal contents give equal files. The file has the permissions of new files of this user.

    Args:
        path: File to write; its folder must exist.
        kind: Plain name of at most 74 letters, digits and underscores.
        arrays: Finite numbers (float64, float32, int64, int32, uint8) under plain names, at most 1.5 GiB.
        facts: Plain JSON values with finite numbers.

    Raises:
        ParameterError: If the contents cannot be stored.
        ModelFileError: If the file cannot be written; no partial file is left.
    """
    members = _members(kind, arrays, facts)
    target = _target(check_path("path", path))
    try:
        with new_own(target, mode=0o666) as file:
            _write_zip(file, members)
    except OSError as error:
        raise ModelFileError(f"{target}: cannot be written ({error.strerror}); nothing was changed.") from error


def load(path: str | os.PathLike[str], *, kind: str | None = None) -> StoredModel:
    """Read a model file, without trusting its contents.

    Args:
        path: Model file.
        kind: Required class. None: any.

    Raises:
        ModelFileError: If the file is missing, not a model file, damaged, modified, or of another format or class.
    """
    found = check_path("path", path)
    with _refusing(found), open(_regular(found), "rb") as file:
        return _stored(file, kind)


def inconsistent(path: str | os.PathLike[str]) -> ModelFileError:
    """Return the error for an undamaged file whose contents are not those of a model."""
    return ModelFileError(f"{os.fspath(path)}: the parts of the file do not fit together. Fit or save the model again.")


def packed(*, kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    """Return the bytes of a model file; arguments and errors are those of `save`."""
    file = io.BytesIO()
    _write_zip(file, _members(kind, arrays, facts))
    return file.getvalue()


def unpacked(data: bytes, *, kind: str) -> StoredModel:
    """Read the bytes of a model file, without trusting them.

    Raises:
        ModelFileError: As `load`.
    """
    with _refusing(Path("bytes")):
        return _stored(io.BytesIO(data), kind)


def _stored(file: IO[bytes], kind: str | None) -> StoredModel:
    _check_digest(file)
    with zipfile.ZipFile(file) as archive:
        stored = _read(archive)
    if kind is not None and stored.kind != kind:
        raise ModelFileError(f"holds a model of kind {stored.kind!r}, not {kind!r}.")
    return stored


def _members(kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The parts of every member of a model file, if its contents may be stored."""
    if not _NAME.fullmatch(kind):
        raise ParameterError(f"kind must be a plain name, got {kind!r}.")
    if len(arrays) > _MAX_ARRAYS:
        raise ParameterError(f"A model file holds at most {_MAX_ARRAYS} arrays, got {len(arrays)}.")
    total = sum(np.asarray(array).nbytes for array in arrays.values())
    if total > _MAX_BYTES:
        raise ParameterError(
            f"A model file holds at most {_MAX_BYTES} bytes of arrays, got {total}. Store them as float32, or each "
            "with numpy.save."
        )
    plain = {name: _plain_array(name, array) for name, array in arrays.items()}
    manifest = _manifest(kind, plain, facts)
    if len(manifest) > _manifest_limit(total):
        raise ParameterError(
            f"facts must fit into {_manifest_limit(total)} bytes of JSON for these arrays, got {len(manifest)}. "
            "Keep long texts in a file of their own."
        )
    members = {f"{name}.npy": [_npy_header(a.dtype.str, a.shape), _bytes(a)] for name, a in plain.items()}
    return {_MANIFEST: [manifest], **members}


def _plain_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order and little-endian, if it may be stored."""
    if not _NAME.fullmatch(name):
        raise ParameterError(f"array names must be plain names, got {name!r}.")
    little = np.asarray(array).dtype.newbyteorder("<")
    if little.str not in _DTYPES:
        raise ParameterError(f"array {name!r} must have a dtype of {', '.join(_DTYPES)}, got {little.str!r}.")
    plain = np.asarray(array, dtype=little, order="C")
    if not np.isfinite(plain).all():
        raise ParameterError(f"array {name!r} must be finite, got NaN or infinity.")
    return plain


def _bytes(array: NDArray[Any]) -> memoryview:
    """The memory of an array in C order."""
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]


def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of version 1.0, which has one spelling here."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".encode("ascii")
    length = -(-(10 + len(text) + 1) // 64) * 64 - 10
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1) + b"\n"


def _manifest(kind: str, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> bytes:
    listed = {
        name: {"shape": array.shape, "dtype": array.dtype.str, "sha256": hashlib.sha256(_bytes(array)).hexdigest()}
        for name, array in arrays.items()
    }
    manifest = {"format": FORMAT, "dpvb": __version__, "kind": kind, "arrays": listed, "facts": facts}
    try:
        text = json.dumps(manifest, allow_nan=False).encode("ascii")
        parsed_json(text)  # A file that a reader would refuse is not written.
        return text
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            f"facts must be what JSON can hold, with finite numbers and whole characters: {error}."
        ) from error


def _manifest_limit(array_bytes: int) -> int:
    """Room for a long vocabulary, which comes with large arrays; parsed JSON takes up to 16 times its size."""
    return 2**22 + array_bytes // 4


def _target(path: Path) -> Path:
    """Where to write: a new or a regular file; a symbolic link stands for what it points to."""
    try:
        target = path.resolve()
        fits = target.is_file() or not target.exists()
    except (OSError, RuntimeError, ValueError) as error:
        raise ModelFileError(f"{path}: cannot be written ({error}).") from error
    if not fits:
        raise ModelFileError(f"{target}: is not a regular file; name a file in an existing folder.")
    return target


def _write_zip(file: IO[bytes], members: Mapping[str, list[Any]]) -> None:
    """Write stored members of fixed date and, as comment, the hash of all that stands before it."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, parts in members.items():
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, 0o644 << 16
            with archive.open(info, "w") as member:
                for part in parts:
                    member.write(part)
        archive.comment = _COMMENT + b"0" * _DIGEST_LENGTH
    size = file.seek(0, os.SEEK_END)
    digest = _digest(file, size - _DIGEST_LENGTH)
    file.seek(size - _DIGEST_LENGTH)
    file.write(digest)


def _digest(file: IO[bytes], length: int) -> bytes:
    """Hexadecimal SHA-256 of the first bytes of a file."""
    sha = hashlib.sha256()
    file.seek(0)
    while length > 0 and (chunk := file.read(min(length, _CHUNK))):
        sha.update(chunk)
        length -= len(chunk)
    return sha.hexdigest().encode("ascii")


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    """Turn whatever a parser says of a hostile file into one typed error that names the file."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from error
    except MemoryError:
        raise
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read ({error.strerror or error}).") from error
    except Exception as error:  # zipfile and json raise a dozen types on hostile bytes
        raise ModelFileError(f"{path}: damaged, or not a dpvb model file.") from error


def _regular(path: Path) -> Path:
    """The path, if it leads to a regular file; anything else could block or never end."""
    if not path.exists():
        raise ModelFileError("there is no such file.")
    if not path.is_file():
        raise ModelFileError("is not a regular file.")
    return path


def _check_digest(file: IO[bytes]) -> None:
    """Refuse a file whose bytes are not those that were written, and a directory too large to be one of ours."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TRAILER - 20))
    tail = file.read()
    trailer = tail[-_TRAILER:]
    comment = trailer[_END_RECORD.size :]
    if len(trailer) < _TRAILER or not comment.startswith(_COMMENT):
        raise ModelFileError("not a dpvb model file, or its end is missing; save the model again.")
    if _digest(file, size - _DIGEST_LENGTH) != comment[len(_COMMENT) :]:
        raise ModelFileError("damaged: its bytes do not match its hash; take a fresh copy or save the model again.")
    signature, *_, directory_size, _, comment_length = _END_RECORD.unpack(trailer[: _END_RECORD.size])
    lone = signature == _END_SIGNATURE and trailer.rfind(_END_SIGNATURE) == 0 and _ZIP64_SIGNATURE not in tail[:20]
    if not lone or comment_length != len(comment) or directory_size > 128 * (_MAX_ARRAYS + 1):
        raise ModelFileError("tampered with: its directory is not one that dpvb writes.")


def _read(archive: zipfile.ZipFile) -> StoredModel:
    """Check every member against the manifest, then read it."""
    members = {info.filename: info for info in archive.infolist()}
    if len(members) != len(archive.infolist()) or _MANIFEST not in members:
        raise ModelFileError("tampered with: it lacks a manifest, or holds a member twice.")
    if any(info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 for info in members.values()):
        raise ModelFileError("tampered with: dpvb neither compresses nor encrypts.")
    manifest_info = members.pop(_MANIFEST)
    array_bytes = sum(info.file_size for info in members.values())
    if array_bytes > archive.start_dir or manifest_info.file_size > _manifest_limit(array_bytes):
        raise ModelFileError("tampered with: its members claim more bytes than it has.")
    with archive.open(manifest_info) as member:
        manifest = _parse(member.read(manifest_info.file_size))
    listed = manifest["arrays"]
    if set(members) != {f"{name}.npy" for name in listed}:
        raise ModelFileError("tampered with: its members are not those that the manifest lists.")
    arrays = {name: _read_array(archive, members[f"{name}.npy"], name, entry) for name, entry in listed.items()}
    return StoredModel(manifest["kind"], arrays, manifest["facts"])


def _parse(text: bytes) -> dict[str, Any]:
    """The manifest, if it has the form that `save` gives it."""
    if text.count(b"{") + text.count(b"[") > 100_000:
        raise ModelFileError("tampered with: its manifest has more parts than memory should hold.")
    try:
        manifest = parsed_json(text.decode("ascii"))
    except ValueError as error:
        raise ModelFileError(
            f"tampered with: its manifest is none that dpvb writes ({printable(str(error))})."
        ) from error
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ModelFileError("tampered with: its manifest states no format.")
    if manifest["format"] > FORMAT:
        raise ModelFileError(
            f"written by a newer dpvb in format {manifest['format']}; this is {__version__}, which reads format "
            f"{FORMAT}. Upgrade dpvb."
        )
    if 1 <= manifest["format"] < FORMAT:
        raise ModelFileError(
            f"written by an earlier dpvb in format {manifest['format']}; this is {__version__}, which reads format "
            f"{FORMAT} only. Load it with the version of dpvb that wrote it; a new fit would spend a budget again."
        )
    types = {"kind": str, "arrays": dict, "facts": dict}
    if manifest["format"] < 1 or any(type(manifest.get(key)) is not t for key, t in types.items()):
        raise ModelFileError("tampered with: its manifest has not the form that dpvb writes.")
    if not all(_NAME.fullmatch(name) for name in [manifest["kind"], *manifest["arrays"]]):
        raise ModelFileError("tampered with: it uses names that dpvb does not write.")
    return manifest


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: str, entry: Mapping[str, Any]) -> NDArray[Any]:
    """One array, if header, size, hash and values are as they must be."""
    shape, dtype = tuple(entry["shape"]), entry["dtype"]
    if dtype not in _DTYPES or len(shape) > 32 or any(type(n) is not int or n < 0 for n in shape):
        raise ModelFileError(f"tampered with: array {name!r} has a dtype or shape that dpvb does not write.")
    header = _npy_header(dtype, shape)
    itemsize = np.dtype(dtype).itemsize
    fits = math.prod(max(n, 1) for n in shape) * itemsize <= _MAX_BYTES
    if not fits or info.file_size != len(header) + math.prod(shape) * itemsize:
        raise ModelFileError(f"tampered with: array {name!r} has not the size that its shape implies.")
    array = np.empty(shape, dtype)
    with archive.open(info) as member:
        if member.read(len(header)) != header:
            raise ModelFileError(f"tampered with: array {name!r} has another header than its shape implies.")
        for start in range(0, array.nbytes, _CHUNK):
            part = _bytes(array)[start : start + _CHUNK]
            part[:] = member.read(len(part))
    if hashlib.sha256(_bytes(array)).hexdigest() != entry["sha256"]:
        raise ModelFileError(f"damaged: array {name!r} does not match its hash.")
    if not np.isfinite(array).all():
        raise ModelFileError(f"tampered with: array {name!r} is not finite.")
    return array
