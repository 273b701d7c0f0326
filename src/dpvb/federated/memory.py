"""A client's persistent memory: offers that it accepted, the request of each release, and its answers.

With a folder all of it outlasts the process: every entry is whole on the disk before anything follows from it.

    lock                                one client at a time
    replies/DIGEST                      answer to the request with this SHA-256
    runs/DIGEST/answer                  answer to an offer, by the SHA-256 of the offer's bytes
    runs/DIGEST/offered                 an offer that is about to be charged
    runs/DIGEST/offer                   the same file, once the offer is accepted: it has only to be given its name
    runs/DIGEST/STEP-ATTEMPT.request    SHA-256 of the request that an attempt at a release was begun for
    runs/DIGEST/ended                   the run is over
    runs/DIGEST/released                checkpoint of the run (see `checkpoint`)

Without a folder answers to requests make room for newer ones; offers and the answers to them stay, and no more of them
are accepted when there are too many. So what was answered once gets the same bytes for ever, or is refused: nothing is
made anew because its answer is gone.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, final

from dpvb.core.forks import Origin
from dpvb.guards.errors import CheckpointError, FederationError, check_path
from dpvb.guards.file_ownership import check_own_folder, locked, read_own, sync_folder, unlock, write_own
from dpvb.runs.checkpoint import token_of

# Without a folder: bytes of answers to requests that are kept, the newest ones. 64 MiB holds the answers of a round.
_MOST_KEPT = 2**26
# Without a folder: number of accepted offers, and bytes of offers and their answers, above which an offer is refused.
_MOST_OFFERS, _MOST_OFFERED = 1000, 2**26
# Numbers of steps and attempts are below 2^53, see `messages`.
_REQUEST: Final = re.compile(r"(\d{1,16})-(\d{1,16})\.request")
_DIGEST: Final = re.compile("[0-9a-f]{64}")
# More than a message can have.
_MOST_BYTES = 2**31

#: Digests of the requests that attempts at releases were begun for: {step: {attempt: digest}}.
Begun = dict[int, dict[int, str]]


@final
class Memory:
    """A client's memory.

    Args:
        folder: where it lies; made if it is missing, its parent must exist. None: it ends with the process.

    Raises:
        CheckpointError: if the folder cannot be used.
        FederationError: if another client uses it.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._replies: dict[str, bytes] = {}
        self._offers: dict[str, bytes] = {}
        self._answers: dict[str, bytes] = {}
        self._begun: dict[str, Begun] = {}
        self._ended: set[str] = set()
        self._lock: IO[bytes] | None = None
        self._origin = Origin()
        self._path: Path | None = None
        if folder is not None:
            self._path = check_path("folder", folder).absolute()
            try:
                self._path.mkdir(mode=0o700, exist_ok=True)
                check_own_folder(self._path)
                self._lock = locked(self._path / "lock")
                for name in ("replies", "runs"):
                    (self._path / name).mkdir(mode=0o700, exist_ok=True)
                    check_own_folder(self._path / name)
                    for torn in (self._path / name).glob("**/.*.tmp"):
                        torn.unlink()
                sync_folder(self._path)
                self._read(self._path / "runs")
            except BlockingIOError as error:
                raise FederationError(
                    f"{self._path}: another client uses this folder. Wait for it, or give each client a folder of its "
                    "own."
                ) from error
            except OSError as error:
                self.close()
                raise CheckpointError(f"{self._path}: cannot hold a client's memory ({error.strerror}).") from error
            except CheckpointError:
                self.close()
                raise

    def close(self) -> None:
        """Let another client use the folder."""
        if self._lock is not None:
            unlock(self._lock)
            self._lock = None

    @property
    def lasting(self) -> bool:
        """Whether it outlasts the process."""
        return self._path is not None

    def offers(self) -> dict[str, bytes]:
        """Accepted offers, by their digests; the newest is the last."""
        return dict(self._offers)

    def ended(self, offer: str) -> bool:
        """Whether the run of an offer is over."""
        return offer in self._ended

    def begun(self, offer: str) -> Begun:
        """Requests that were begun in a run."""
        return self._begun.setdefault(offer, {})

    def check_room(self) -> None:
        """See whether another offer can be remembered for good.

        Raises:
            FederationError: if not.
        """
        held = sum(map(len, self._offers.values())) + sum(map(len, self._answers.values()))
        if self._path is None and (len(self._offers) >= _MOST_OFFERS or held >= _MOST_OFFERED):
            raise FederationError(
                f"This client has accepted {len(self._offers)} offers, and can remember no more of them without a "
                "folder. Give the client a folder, or start it anew."
            )

    def prepare(self, offer: str, data: bytes, answer: bytes) -> None:
        """Write what takes room of an offer and its answer, before the charge: a full disk then costs nothing."""
        if self._path is not None:
            room = self._room(offer)
            self._write(room / "answer", answer)
            self._write(room / "offered", data)

    def decline(self, offer: str) -> None:
        """Forget an offer that was prepared, and not charged."""
        if self._path is not None:
            with suppress(OSError):
                (self._room(offer) / "offered").unlink()

    def accept(self, offer: str, data: bytes, answer: bytes) -> None:
        """Remember an accepted offer and its answer for good, before that is given; with a folder it was prepared."""
        if self._path is None:
            self._answers[offer] = answer
        else:
            room = self._room(offer)
            try:
                os.replace(room / "offered", room / "offer")
                sync_folder(room)
            except OSError as error:
                raise CheckpointError(f"{self._path}: cannot be written ({error.strerror}).") from error
        self._offers[offer] = data

    def begin(self, offer: str, step: int, attempt: int, request: str) -> None:
        """Remember for which request an attempt at a release is begun; it serves no other."""
        if self._path is not None:
            self._write(self._path / "runs" / offer / f"{step}-{attempt}.request", request.encode("ascii"))
        self.begun(offer).setdefault(step, {})[attempt] = request

    def end(self, offer: str) -> None:
        """Remember that a run is over."""
        if self._path is not None:
            self._write(self._path / "runs" / offer / "ended", b"")
        self._ended.add(offer)

    def reply(self, digest: str) -> bytes | None:
        """The answer that a message got, if it is still known."""
        offered = digest in self._offers
        if self._path is None:
            return (self._answers if offered else self._replies).get(digest)
        place = self._path / "runs" / digest / "answer" if offered else self._path / "replies" / digest
        return _bytes(place)

    def keep(self, digest: str, reply: bytes) -> None:
        """Keep the answer to a request, before it is given; without a folder, the oldest make room for it."""
        if self._path is not None:
            self._write(self._path / "replies" / digest, reply)
            return
        excess = sum(map(len, self._replies.values())) + len(reply) - _MOST_KEPT
        for old in list(self._replies):
            if excess > 0:
                excess -= len(self._replies.pop(old))
        self._replies[digest] = reply

    def checkpoint(self, offer: str) -> Path | None:
        """The place of the checkpoint of a run; None: it has none."""
        return None if self._path is None else self._room(offer) / "released"

    def is_open(self, offer: str) -> bool:
        """Whether the checkpoint of a run still has its token."""
        return self._path is not None and token_of(self._path / "runs" / offer / "released").exists()

    def close_run(self, offer: str) -> None:
        """Delete the token of a run that is over."""
        if self._path is not None:
            with suppress(OSError):
                token_of(self._path / "runs" / offer / "released").unlink()

    def _room(self, offer: str) -> Path:
        assert self._path is not None
        room = self._path / "runs" / offer
        try:
            if not room.exists():
                room.mkdir(mode=0o700)
                sync_folder(room.parent)
            check_own_folder(room)
        except OSError as error:
            raise CheckpointError(f"{self._path}: cannot be written ({error.strerror}).") from error
        return room

    def _read(self, runs: Path) -> None:
        accepted = [room for room in runs.iterdir() if (room / "offer").exists()]  # Else killed before it was.
        for room in sorted(accepted, key=lambda room: (room / "offer").stat().st_mtime_ns):
            check_own_folder(room)
            self._offers[room.name] = _bytes(room / "offer") or b""
            for path in room.glob("*.request"):
                match, digest = _REQUEST.fullmatch(path.name), (_bytes(path) or b"").decode("ascii", "replace")
                if match is None or not _DIGEST.fullmatch(digest):
                    raise CheckpointError(f"{path}: damaged. Give the client a new folder.")
                self.begun(room.name).setdefault(int(match[1]), {})[int(match[2])] = digest
            if (room / "ended").exists():
                self._ended.add(room.name)

    def _write(self, path: Path, data: bytes) -> None:
        """Write a file whole or not at all, and be sure of it."""
        self._origin.check("this client's folder")
        try:
            write_own(path, data)
        except OSError as error:
            raise CheckpointError(f"{self._path}: cannot be written ({error.strerror}).") from error


def _bytes(path: Path) -> bytes | None:
    """Return the contents of a file that only this user could write; None if there is no file."""
    try:
        return read_own(path, secret=False, most=_MOST_BYTES)
    except FileNotFoundError:
        return None
