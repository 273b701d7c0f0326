"""Run records: which files a run read, for the user who started the run, and for no release.

    $XDG_STATE_HOME/dpvb/runs/RUN.json    the record of a run that a ledger counts, under the run's public name
    $XDG_STATE_HOME/dpvb/key              the key of all digests (0600)

A privacy statement names its run, and this user finds here what the run was given. Sizes, times and digests of private
files are exact functions of the data. So they stay out of models, statements and ledgers. A digest needs the key: a
record that is copied elsewhere confirms no guess of a file's content.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, final

from dpvb.guards.errors import CheckpointError
from dpvb.guards.file_ownership import read_own, state_folder, write_own
from dpvb.guards.untrusted import parsed_json, say
from dpvb.guards.version import version_with_commit
from dpvb.guards.watched import Watched

#: Version of the form of a record; other ones are left out with a remark.
FORMAT = 1
_NAME = re.compile("[0-9a-f]{32}")
_CHUNK = 2**20
# Room for the states of a million files.
_MOST = 2**28
_KEY_BYTES = 32
_said: set[str] = set()

#: How far a run has come: "open" is running, or was interrupted and resumes; the others have ended.
State = Literal["open", "finished", "abandoned"]


@final
@dataclass(frozen=True)
class RunRecord:
    """Private record of one run.

    Attributes:
        run: public name of the run, as in its privacy statement.
        began, ended: times in UTC; ended is None as long as the run is open.
        state: "open", "finished" or "abandoned".
        ledger: place of the ledger, without a password.
        dataset: name of the data set in the ledger.
        model: class of the model; empty for a release that is not a fit.
        version: of dpvb, with its commit.
        checkpoint: folder of the run. None: it has none.
        files: name, size, time of modification and keyed digest of each file; private. A digest is None where the file
            could not be read.
    """

    run: str
    began: str
    ended: str | None
    state: State
    ledger: str
    dataset: str
    model: str
    version: str
    checkpoint: str | None
    files: tuple[tuple[str, int, int, str | None], ...] = ()

    @classmethod
    def begin(
        cls, run: str, *, ledger: str, dataset: str, model: str, checkpoint: Path | None, files: Watched
    ) -> RunRecord:
        """Write the record of a run that was charged, or that goes on; a failure is a remark, and the run goes on."""
        folder = None if checkpoint is None else str(checkpoint)
        record = cls(run, _now(), None, "open", ledger, dataset, model, version_with_commit(), folder)
        with _remarked():
            key, states = _key(), dict(zip(files.paths, files.states, strict=False))
            read = tuple((*state, _digest(path, key)) for path, state in states.items())
            before = record_of(run)
            record = replace(record, files=read, began=record.began if before is None else before.began)
            record._write()
        return record

    def end(self, state: State) -> None:
        """Write how the run ended."""
        with _remarked():
            replace(self, state=state, ended=_now())._write()

    def to_dict(self) -> dict[str, Any]:
        """Return the record as JSON holds it."""
        names = ("name", "size", "modified", "digest")
        return asdict(self) | {"files": [dict(zip(names, one, strict=True)) for one in self.files]}

    def _write(self) -> None:
        path = _path(self.run)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        text = json.dumps({"format": FORMAT, **self.to_dict()}, indent=1)
        write_own(path, text.encode("ascii"))


def record_of(run: str) -> RunRecord | None:
    """Return the record of a run; None where there is none."""
    return next(iter(_read(_path(run))), None) if _NAME.fullmatch(run) else None


def records() -> list[RunRecord]:
    """Return all records of this user, the oldest run first."""
    with suppress(OSError):
        paths = [path for path in _folder().iterdir() if path.suffix == ".json"]
        return sorted((one for path in paths for one in _read(path)), key=lambda one: one.began)
    return []


def _read(path: Path) -> Iterator[RunRecord]:
    """Yield the record of a file; one that cannot be read is left out with a remark."""
    try:
        facts = parsed_json(read_own(path, most=_MOST))
        if facts.pop("format") != FORMAT:
            say(f"{path}: is a record of another version of dpvb, and is left out.")
            return
        names = ("name", "size", "modified", "digest")
        files = tuple(tuple(one[name] for name in names) for one in facts.pop("files"))
        yield RunRecord(**facts, files=files)
    except FileNotFoundError:
        return
    except (CheckpointError, ValueError, TypeError, KeyError, AttributeError):
        say(f"{path}: is damaged, and is left out.")


def _folder() -> Path:
    return state_folder() / "runs"


def _path(run: str) -> Path:
    return _folder() / f"{run}.json"


def _key() -> bytes:
    """Return the key of this user's digests, which is drawn once."""
    path = state_folder() / "key"
    with suppress(FileNotFoundError):
        return read_own(path, most=_KEY_BYTES)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):  # Another process has just drawn it.
        write_own(path, secrets.token_bytes(_KEY_BYTES), new=True)
    return read_own(path, most=_KEY_BYTES)


def _digest(path: Path, key: bytes) -> str | None:
    """Return the keyed digest of a file (BLAKE2b); None where it cannot be read."""
    digest = hashlib.blake2b(key=key, digest_size=32)
    try:
        with path.open("rb") as file:
            while piece := file.read(_CHUNK):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@contextmanager
def _remarked() -> Iterator[None]:
    """A block whose failure to write is said once per process, and stops nothing."""
    try:
        yield
    except (OSError, CheckpointError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if not _said:
            _said.add(reason or "")
            say(f"{_folder()}: runs leave no record for their owner ({reason}). Point XDG_STATE_HOME elsewhere.")
