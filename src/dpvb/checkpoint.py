"""A folder that holds the releases of a run, so that another process can go on where one was killed.

It holds released values and public facts alone: whoever may see the model may see the folder. A model's M-steps are
functions of the releases, so that nothing else need be kept. Secrets lie elsewhere (see runs).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import numpy as np

from dpvb import storage
from dpvb.errors import CheckpointError, ModelFileError
from dpvb.journal import Sums

#: Version of the folder's form; a reader refuses another one.
FORMAT = 1


def digest_of(total: Sums) -> str:
    """SHA-256 of released sums, as hexadecimal text: equal for equal bits alone."""
    sha = hashlib.sha256()
    for name, values in sorted(total.items()):
        plain = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        kind = "" if plain.dtype == np.float64 else f"{plain.dtype.str} "
        sha.update(f"{name} {values.shape} {kind}".encode() + plain.tobytes())
    return sha.hexdigest()


@final
class Checkpoint:
    """One run's folder.

    Args:
        path: the folder; made if it is missing, its parent must exist.

    Raises:
        CheckpointError: if it cannot be made, or is not a checkpoint's folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._manifest_path = self.path / "run.json"
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            strangers = [name for name in os.listdir(self.path) if name not in ("run.json", "command.json")]
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot hold a checkpoint ({error.strerror}).") from error
        if strangers and not self._manifest_path.exists():
            raise CheckpointError(
                f"{self.path}: holds other files, and no checkpoint. Name an empty or a new folder as checkpoint."
            )

    @property
    def secret_path(self) -> Path:
        """Where the run's secret lies while the run goes on: beside the folder, never in it."""
        return self.path.with_name(self.path.name + ".secret")

    def manifest(self) -> dict[str, Any] | None:
        """What the folder says of its run, or None if it is new.

        Raises:
            CheckpointError: if it is damaged or of another version.
        """
        try:
            found = json.loads(self._manifest_path.read_bytes()) if self._manifest_path.exists() else None
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{self._manifest_path}: damaged; the run cannot be continued.") from error
        if found is not None and (not isinstance(found, dict) or found.get("format") != FORMAT):
            raise CheckpointError(f"{self._manifest_path}: not a checkpoint of format {FORMAT}.")
        return found

    def write_manifest(self, facts: Mapping[str, Any], *, new: bool = False) -> None:
        """Write the manifest, whole or not at all.

        Raises:
            CheckpointError: if it cannot be written; if `new`, also if there is one.
        """
        temporary = self.path / f".run-{secrets.token_hex(8)}.tmp"
        try:
            with open(temporary, "x", encoding="ascii") as file:
                json.dump({"format": FORMAT, **facts}, file, allow_nan=False, indent=1)
                file.flush()
                os.fsync(file.fileno())
            if new:
                os.link(temporary, self._manifest_path)
            else:
                os.replace(temporary, self._manifest_path)
        except FileExistsError as error:
            raise CheckpointError(f"{self.path}: another process has just begun a run here.") from error
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be written ({error.strerror}).") from error
        finally:
            with suppress(OSError):
                temporary.unlink()

    def prepare(self, step: int, total: Sums) -> None:
        """Write a release to the disk; it counts only once it is published."""
        try:
            storage.save(self._file(step, "part"), kind="Release", arrays=total, facts={"step": step})
        except ModelFileError as error:
            raise CheckpointError(str(error)) from error

    def publish(self, step: int) -> None:
        """Give a prepared release its name."""
        try:
            os.replace(self._file(step, "part"), self._file(step))
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be written ({error.strerror}).") from error

    def release(self, step: int, digest: str) -> Sums | None:
        """The release of a step, if a file with this digest is there, published or only prepared."""
        for path in (self._file(step), self._file(step, "part")):
            with suppress(ModelFileError):
                total = storage.load(path, kind="Release").arrays
                if digest_of(total) == digest:
                    return total
        return None

    def prepared(self, step: int) -> Sums | None:
        """A release that was written whole and not published, if there is one."""
        with suppress(ModelFileError):
            return storage.load(self._file(step, "part"), kind="Release").arrays
        return None

    def discard_torn(self) -> bool:
        """Remove what was being written when a process died; return whether a release was among it."""
        torn = [path for path in self.path.glob(".*.tmp") if path.is_file()]
        for path in torn:
            with suppress(OSError):
                path.unlink()
        return any(not path.name.startswith(".run-") for path in torn)

    def _file(self, step: int, ending: str = "dpvb") -> Path:
        return self.path / f"release-{step:05d}.{ending}"
