"""A folder that holds the releases of a run, so that another process can go on where one was killed.

    run.json                     facts of the run, and the states of the files that its data were read from
    token                        what the run was charged with, until it has ended (see `ledger`)
    release-STEP-ATTEMPT.sealed  a release, encrypted
    lock                         one process at a time

A release is written before it is on record, and it cannot be read until it is: its key is drawn only for it, stays in
memory, and is put on record with the SHA-256 of the sealed bytes. So a record that is durable always has its bytes; and
a process that dies before leaves only noise without a key. Releases on record are as public as the
model. A model's M-steps are functions of the releases, so that nothing else need be kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from dpvb.core.journal import Sums
from dpvb.guards import file_ownership
from dpvb.guards.errors import CheckpointError, DataFormatError, ModelFileError, check_path
from dpvb.guards.untrusted import parsed_json
from dpvb.guards.watched import changed
from dpvb.results import model_file

#: Version of the folder's form; a reader refuses another one.
FORMAT = 2
_NAMES = ("run.json", "token", "lock")
_FACTS = {"run": str, "seed": int, "ledger": str, "dataset": str, "plan": str, "facts": dict}
# The run's id, and its token.
_NAME = re.compile("[0-9a-f]{32}")
# More than a model file can hold.
_MOST = 2**31
# Room for the states of a million files.
_MOST_FACTS = 2**28
# A key seals one release, once.
_NONCE = bytes(12)


class Seal(NamedTuple):
    """Record of a release: it opens the sealed bytes, and says nothing of them before.

    Attributes:
        digest: SHA-256 of the sealed bytes.
        key: of only this release; both as hexadecimal text.
    """

    digest: str
    key: str


def token_of(path: Path) -> Path:
    """Where a checkpoint keeps the token of its run, until that has ended."""
    return path / "token"


@final
class Checkpoint:
    """One run's folder.

    Args:
        path: the folder; made if it is missing, its parent must exist.

    Raises:
        CheckpointError: if it cannot be made, is another user's, or is not a checkpoint's folder.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = check_path("checkpoint", path).absolute()
        self._manifest_path, self._token_path = self.path / "run.json", token_of(self.path)
        self._lock: IO[bytes] | None = None
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            file_ownership.check_own_folder(self.path)
            strangers = [name for name in os.listdir(self.path) if name not in _NAMES]
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot hold a checkpoint ({error.strerror}).") from error
        if any(not name.endswith(".tmp") for name in strangers) and not self._manifest_path.exists():
            raise CheckpointError(
                f"{self.path}: holds other files, and no checkpoint. Name an empty or a new folder as checkpoint."
            )

    def hold(self) -> None:
        """Keep other processes out until `close`.

        Raises:
            CheckpointError: if one is there.
        """
        try:
            self._lock = file_ownership.locked(self.path / "lock")
        except BlockingIOError as error:
            raise CheckpointError(
                f"{self.path}: another process is at work on the run that is kept here. Wait until it has ended; or "
                "name a new folder as checkpoint for another run."
            ) from error
        except OSError as error:
            raise self._unwritable(error) from error
        with suppress(OSError):  # Files that are in the way of no release are left.
            for torn in self.path.glob(".*.tmp"):
                torn.unlink()

    def close(self) -> None:
        """Let another process hold the folder."""
        if self._lock is not None:
            file_ownership.unlock(self._lock)
            self._lock = None

    def manifest(self) -> dict[str, Any] | None:
        """The run of the folder, or None if it is new.

        Raises:
            CheckpointError: if it is damaged, another user's, or of another version.
        """
        try:
            found = parsed_json(file_ownership.read_own(self._manifest_path, most=_MOST_FACTS))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CheckpointError(f"{self._manifest_path}: damaged; the run cannot be continued.") from error
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise CheckpointError(
                f"{self._manifest_path}: not a checkpoint of format {FORMAT}. If an earlier version of dpvb began its "
                "run, end it with that version; for a new run name a new folder as checkpoint."
            )
        fits = all(type(found.get(name)) is kind for name, kind in _FACTS.items())
        if not fits or not _NAME.fullmatch(found["run"]):
            raise CheckpointError(f"{self._manifest_path}: damaged; the run cannot be continued.")
        return found

    def check_files(self, files: Sequence[Sequence[Any]]) -> None:
        """Refuse files that are not as they were when the run of this folder began.

        Args:
            files: their states now, see `guards.watched`.

        Raises:
            DataFormatError: naming a file.
            CheckpointError: as in `manifest`.
        """
        found = self.manifest()
        kept = None if found is None else found.get("files")
        if kept is None or not token_of(self.path).exists():
            return
        sound = isinstance(kept, list) and all(isinstance(one, list) and len(one) == 3 for one in kept)
        if not sound:
            raise CheckpointError(f"{self._manifest_path}: damaged; the run cannot be continued.")
        if (name := changed(kept, files)) is not None:
            raise DataFormatError(
                f"The file {name!r} was changed, added or removed since the run in {str(self.path)!r} began, and a run "
                "has one data set. Put the files back with their times of modification, and the same call resumes. Or "
                "name a new folder as checkpoint: a new run is charged anew. Nothing was read or charged now."
            )

    def begin(self, facts: Mapping[str, Any], token: str) -> None:
        """Write the token of a new run, then its facts.

        Raises:
            CheckpointError: if they cannot be written, or there is a run.
        """
        text = json.dumps({"format": FORMAT, **facts}, allow_nan=False, indent=1)
        try:
            file_ownership.write_own(self._token_path, token.encode("ascii"))
            file_ownership.write_own(self._manifest_path, text.encode("ascii"), new=True)
        except FileExistsError as error:
            raise CheckpointError(f"{self.path}: another process has just begun a run here.") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def token(self) -> str:
        """The token of the run.

        Raises:
            CheckpointError: if it is gone, or could be another user's.
        """
        try:
            token = file_ownership.read_own(self._token_path).decode("ascii", "replace")
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{self._token_path}: is gone, and with it the right to go on with this run or to take back what it "
                "never started. Begin a new run in a new folder."
            ) from error
        if _NAME.fullmatch(token) is None:
            raise CheckpointError(f"{self._token_path}: damaged; the run cannot be continued.")
        return token

    def end(self) -> None:
        """Forget the token of a run that has ended."""
        with suppress(OSError):
            self._token_path.unlink()

    def withdraw(self) -> None:
        """Forget a run that nothing was charged for."""
        with suppress(OSError):
            self._manifest_path.unlink()
        self.end()

    def remove(self) -> None:
        """Remove the folder of a run that has ended; its model can then no longer be read from it.

        Raises:
            CheckpointError: if the run has not ended, if another process holds the folder, or if it cannot be removed.
        """
        self.hold()
        try:
            if self._token_path.exists():
                raise CheckpointError(f"{self.path}: its run has not ended. Resume it, or remove the folder by hand.")
            for path in self.path.glob("release-*.sealed"):
                path.unlink()
            self._manifest_path.unlink(missing_ok=True)
            (self.path / "lock").unlink(missing_ok=True)
            self.path.rmdir()
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be removed ({error.strerror}).") from error
        finally:
            self.close()

    def seal(self, step: int, attempt: int, total: Sums) -> Seal:
        """Write a release to the disk, unreadable without the key.

        Raises:
            CheckpointError: if it cannot be written.
        """
        key = AESGCM.generate_key(256)
        packed = model_file.packed(kind="Release", arrays=total, facts={"step": step})
        sealed = AESGCM(key).encrypt(_NONCE, packed, None)
        try:
            file_ownership.write_own(self._file(step, attempt), sealed)
        except OSError as error:
            raise self._unwritable(error) from error
        return Seal(hashlib.sha256(sealed).hexdigest(), key.hex())

    def release(self, step: int, attempt: int, seal: Seal) -> Sums | None:
        """The release of a step that is on record with this seal; None where its bytes are gone.

        Raises:
            CheckpointError: if they are there and cannot be read.
        """
        with suppress(FileNotFoundError, ModelFileError, InvalidTag, ValueError):
            sealed = file_ownership.read_own(self._file(step, attempt), most=_MOST)
            if hashlib.sha256(sealed).hexdigest() == seal.digest:
                return model_file.unpacked(
                    AESGCM(bytes.fromhex(seal.key)).decrypt(_NONCE, sealed, None), kind="Release"
                ).arrays
        return None

    def _file(self, step: int, attempt: int) -> Path:
        return self.path / f"release-{step:05d}-{attempt}.sealed"

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(f"{self.path}: cannot be written ({error.strerror}).")
