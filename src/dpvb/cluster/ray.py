"""Ray as the engine: an actor for each worker, which Ray starts again with the same parts if it dies."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, final

from dpvb.cluster.engine import Answered, Parcel, Reduction, added, answered, opened, packed, shared_out
from dpvb.guards.errors import ParameterError, check_integer

# How often an actor is started again, and a task repeated: as often as a process of a LocalPool.
_RESTARTS = 3
# Answers that one actor adds at a time: a convention; memory and time of a step hardly depend on it.
_FAN_IN = 4


@final
class RayPool:
    """A pool of Ray actors for `dpvb.Run(cluster=pool)`.

    Actors read private data and are inside the privacy boundary. The program connects to Ray first (`ray.init`). Ray
    listens beyond its machine, and other users can read the folders that it makes. So the connection must have TLS and
    tokens, and `_temp_dir` must be in a folder that no other user can enter.

    Args:
        num_workers: Number of actors, at least 1; public.

    Attributes:
        num_workers: Number of actors.

    Raises:
        ParameterError: For another number, and if Ray is not connected, or open to others. Nothing was charged.
    """

    def __init__(self, num_workers: int) -> None:
        self.num_workers: Final = check_integer("num_workers", num_workers, low=1, high=1024)
        _check_connection()
        self._dealt: list[tuple[int, ...]] = []
        self._actors: list[Any] = []
        # An actor that starts again fetches its parts again.
        self._held: list[Any] = []

    def __repr__(self) -> str:
        return f"RayPool({self.num_workers})"

    def hold(self, parts: Sequence[Any], model: object) -> None:
        """Bring each part to its actor, and the model to all.

        Raises:
            ParameterError: if other users can read what Ray writes.
        """
        import ray

        self.close()
        self._dealt = shared_out(len(parts), self.num_workers)
        started = ray.remote(max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(_Actor)
        shared = ray.put(Parcel(packed(model)))
        for dealt in self._dealt:
            held = {part: ray.put(Parcel(packed(parts[part]))) for part in dealt}
            self._held += [shared, *held.values()]
            self._actors.append(started.remote(shared, held))
        with suppress(ray.exceptions.RayError):  # An actor that cannot start gives no answer to a step.
            if not all(ray.get([actor.is_closed.remote() for actor in self._actors])):
                raise ParameterError(
                    "Other users can read the folder that Ray writes to. Start Ray with _temp_dir in a folder with "
                    "mode 0700."
                )

    def run(self, reduction: Reduction, told: bytes, own: Sequence[Any], key: str) -> Answered:
        """Have every actor do a task on its parts; actors add each other's answers, and one total comes here."""
        import ray

        with suppress(ray.exceptions.RayError):  # An actor that kept dying: its parts are missing.
            common = ray.put(Parcel(told))
            level = [
                (actor, actor.answer.remote(reduction, common, Parcel({part: own[part] for part in dealt})))
                for actor, dealt in zip(self._actors, self._dealt, strict=True)
            ]
            while len(level) > 1:
                groups = [level[first : first + _FAN_IN] for first in range(0, len(level), _FAN_IN)]
                level = [
                    (group[0][0], group[0][0].total.remote(reduction, *(answer for _, answer in group)))
                    for group in groups
                ]
            if level:
                total: Answered = ray.get(level[0][1]).content
                return total
        return Answered((), None)

    def close(self) -> None:
        """End all actors, and let go of all parts."""
        import ray

        for actor in self._actors:
            with suppress(Exception):  # Ray may have ended before.
                ray.kill(actor)
        self._dealt, self._actors, self._held = [], [], []


class _Actor:
    """A worker process, which holds a model and parts.

    Args:
        model: packed.
        parts: references to packed parts, by number.
    """

    def __init__(self, model: Parcel, parts: dict[int, Any]) -> None:
        import ray

        os.umask(0o077)
        self._model = opened(model.content)
        self._parts = {part: opened(ray.get(parcel).content) for part, parcel in parts.items()}

    def is_closed(self) -> bool:
        """Whether no other user of this machine can enter the folder that Ray writes to; Ray opens its own folder."""
        import ray

        folder = Path(ray.get_runtime_context().get_temp_dir()).resolve()
        return os.name != "posix" or any(_is_closed(place) for place in (folder, *folder.parents))

    def answer(self, reduction: Reduction, told: Parcel, own: Parcel) -> Parcel:
        """Return the results of `answered`."""
        return Parcel(answered(reduction, told.content, own.content, self._parts, self._model))

    def total(self, reduction: Reduction, first: Parcel, *others: Parcel) -> Parcel:
        """Return the total of some answers, which Ray shares with other processes: they stay as they are."""
        total: Answered = deepcopy(first.content)
        for one in others:
            total = added(reduction, total, one.content)
        return Parcel(total)


def _is_closed(folder: Path) -> bool:
    state = folder.stat()
    return state.st_uid == os.geteuid() and not state.st_mode & 0o077


def _check_connection() -> None:
    """Refuse to send private data through a Ray that others could reach.

    Raises:
        ParameterError: if there is no connection, or it has no TLS or no token.
    """
    try:
        import ray
    except ImportError as error:
        raise ParameterError("RayPool needs Ray: pip install '.[ray]' in dpvb's source folder.") from error
    if not ray.is_initialized():
        raise ParameterError("RayPool needs a connection to Ray: call ray.init(...) first.")
    if os.environ.get("RAY_USE_TLS") != "1" or os.environ.get("RAY_AUTH_MODE") != "token":
        raise ParameterError(
            "Ray listens beyond its machine: anyone who can connect to it can read the data. Set RAY_USE_TLS=1 with "
            "its certificates and RAY_AUTH_MODE=token before Python imports ray."
        )
