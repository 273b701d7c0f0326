"""Dask.distributed as the engine: every part, step and answer has a key of its own, by which it is made again."""

from __future__ import annotations

import ipaddress
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any, final

from dpvb.cluster.engine import Answered, Parcel, PartMissing, Reduction, added, answered, opened, packed, shared_out
from dpvb.guards.errors import DpvbError, ParameterError
from dpvb.guards.file_ownership import check_closed_folder
from dpvb.guards.imports import check_numba

# The data of a fit are larger than what Dask thinks wise to send; saying so would tell how large.
_SETTINGS = {"distributed.admin.large-graph-warning-threshold": "1 PB"}
#: Seconds that a step waits for a cluster that does nothing, having lost its workers, say.
PATIENCE = 60.0
_LOOK_EACH = 5.0
# Answers that one worker adds at a time: a convention; memory and time of a step hardly depend on it.
_FAN_IN = 4


@final
class DaskEngine:
    """The workers of a Dask client, which is the caller's; a worker has one task in a step.

    Parts that are sent lie with the scheduler too, from where a worker that takes over gets them; files are read by the
    those workers. Sums come straight from the workers, unless the client says `direct_to_workers=False`. Files that a
    worker spills to its disk are readable only by its user. The whole cluster is inside the wall: what crosses it are
    sums without noise. It must be one owner's, with TLS (`distributed.Security`) wherever it listens beyond a machine,
    and `dashboard_address=None`: a page of Dask's that is open beyond the machine shows how large data are (see
    `shows_pages`).

    Raises:
        ParameterError: for a client that is closed, asynchronous, or without workers, and for a cluster that listens
            beyond a machine without TLS.
    """

    def __init__(self, client: Any) -> None:
        if client.status != "running" or client.asynchronous:
            raise ParameterError("cluster must be a Dask client that is connected, and not asynchronous.")
        self._client = client
        self._direct = client.direct_to_workers is not False
        self._addresses = sorted(client.nthreads())
        if not self._addresses:
            raise ParameterError("The Dask client of cluster has no workers; start some, or use cluster='local:2'.")
        _check_doors(client)
        try:
            client.register_plugin(_closed_spills(), name="dpvb-closed-spills")
        except DpvbError as error:
            raise ParameterError(f"A worker of cluster cannot be used. {error}") from error
        self._dealt: list[tuple[int, ...]] = []
        self._parts: dict[int, Any] = {}
        self._model: Any = None

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return len(self._addresses)

    def hold(self, parts: Sequence[Any], model: object) -> None:
        """Bring each part to its worker, and the model to one; the others fetch it, and keep it.

        Once a part is there, it is bound to its worker no longer: bound ones are never made again where all workers
        have died before others came.
        """
        name = secrets.token_hex(8)
        self.close()
        self._dealt = shared_out(len(parts), self.num_workers)
        self._model = self._submit(_held, Parcel(packed(model)), key=f"dpvb-{name}-model")
        for address, dealt in zip(self._addresses, self._dealt, strict=False):
            for part in dealt:
                parcel = Parcel(packed(parts[part]))
                self._parts[part] = self._submit(_held, parcel, key=f"dpvb-{name}-part-{part}", worker=address)
        with suppress(Exception):  # As in a step: what is missing is missed there.
            self._wait(list(self._parts.values()))
            free = dict.fromkeys(part.key for part in self._parts.values())
            self._client.sync(self._client.scheduler.set_restrictions, worker=free)

    def run(self, reduction: Reduction, told: bytes, own: Sequence[Any], key: str) -> Answered:
        """Have every worker do a task on its parts; workers add each other's answers, and one total comes here."""
        common = self._submit(_same, Parcel(told), key=f"dpvb-{key}")
        futures = []
        for address, dealt in zip(self._addresses, self._dealt, strict=False):
            private = Parcel({part: own[part] for part in dealt})
            sources = [self._parts[part] for part in dealt]
            name = f"dpvb-{key}-parts-" + "-".join(map(str, dealt))
            futures.append(
                self._submit(_done, reduction, common, private, self._model, *sources, key=name, worker=address)
            )
        level, sent = futures, [common, *futures]
        while len(level) > 1:
            groups = [level[first : first + _FAN_IN] for first in range(0, len(level), _FAN_IN)]
            height = f"dpvb-{key}-total-{len(groups)}"
            level = [self._submit(_total, reduction, *group, key=f"{height}-{n}") for n, group in enumerate(groups)]
            sent += level
        try:
            with suppress(Exception):  # A worker that kept dying, a scheduler that is gone: the parts are missing.
                self._wait(level)
                (total,) = self._client.gather(level, errors="skip", direct=self._direct)
                answer: Answered = total.content
                return answer
            return Answered((), None)
        finally:
            _release(*sent)

    def _wait(self, futures: Sequence[Any]) -> None:
        """Wait for answers while a worker is at work.

        Raises:
            PartMissing: if no worker has done anything for a while.
        """
        from distributed import wait

        seen = time.monotonic()
        while True:
            with suppress(TimeoutError):
                wait(futures, timeout=_LOOK_EACH)  # type: ignore[no-untyped-call]
                return
            if any(self._client.processing().values()):
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE:
                raise PartMissing

    def close(self) -> None:
        """Let go of all parts."""
        _release(*self._parts.values(), *([] if self._model is None else [self._model]))
        self._parts, self._model = {}, None

    def _submit(self, function: Any, *arguments: Any, key: str, worker: str | None = None) -> Any:
        import dask

        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        with dask.config.set(_SETTINGS):
            return self._client.submit(function, *arguments, key=key, pure=False, retries=0, **where)


def shows_pages(client: Any) -> bool:
    """Whether pages of a cluster can be seen beyond its machine, as it tells; they show how large the data are."""
    return not client.asynchronous and not all(map(_is_loopback, _doors(client)[1]))


def _check_doors(client: Any) -> None:
    """Refuse a cluster that strangers could reach.

    Raises:
        ParameterError: naming an address.
    """
    known = client.scheduler_info(n_workers=-1)
    listening = [known["address"], *known["workers"], *(worker["nanny"] for worker in known["workers"].values())]
    for address in filter(None, [*listening, *_doors(client)[0]]):
        protocol, _, place = address.partition("://")
        if protocol not in ("tls", "inproc") and not _is_loopback(place.rpartition(":")[0].strip("[]")):
            raise ParameterError(
                f"cluster listens at {address} without TLS: anyone who can connect to it can read the data. Give "
                "scheduler, workers and client a distributed.Security with require_encryption=True; or have all of "
                "them listen on 127.0.0.1."
            )


def _doors(client: Any) -> tuple[list[str], list[str]]:
    """Addresses at which scheduler and workers listen, and those of their pages."""

    # It goes to processes that need not have this package, so it is not a function of this module.
    def doors(dask_scheduler: Any = None, dask_worker: Any = None) -> tuple[list[str], list[str]]:
        server = dask_worker if dask_scheduler is None else dask_scheduler
        pages = getattr(getattr(server, "http_server", None), "_sockets", {}).values()
        return [one.listen_address for one in server.listeners], [page.getsockname()[0] for page in pages]

    found = []
    with suppress(Exception):  # A scheduler may run no functions.
        found = [client.run_on_scheduler(doors), *client.run(doors).values()]
    return [one for own, _ in found for one in own], [one for _, pages in found for one in pages]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _closed_spills() -> Any:
    """A plugin that keeps what workers write from other users of their machines; also what later workers write.

    A worker unpickles the files that it has spilled: only its user may write to their folder.
    """
    from distributed import WorkerPlugin

    driver = os.getpid()

    class ClosedSpills(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            check_numba()
            _close(os.path.dirname(worker.local_directory))
            for folder, _, _ in os.walk(worker.local_directory):
                os.chmod(folder, 0o700)
            check_closed_folder(worker.local_directory)
            if os.getpid() != driver:  # A worker in the caller's own process would take the caller's files with it.
                os.umask(0o077)

    return ClosedSpills()


def _close(folder: str) -> None:
    """Close this user's folder of workers to other writers, as it is after a umask that is open."""
    found = os.stat(folder)
    if hasattr(os, "geteuid") and found.st_uid == os.geteuid() and not found.st_mode & stat.S_ISVTX:
        os.chmod(folder, stat.S_IMODE(found.st_mode) & ~0o022)


def _release(*futures: Any) -> None:
    """Have the workers forget, now: an error that still refers to a future would keep it there."""
    for future in futures:
        with suppress(Exception):
            future.release()


def _held(part: Parcel) -> Parcel:
    return Parcel(opened(part.content))


def _same(told: Parcel) -> Parcel:
    return told


def _done(reduction: Reduction, told: Parcel, own: Parcel, model: Parcel, *sources: Parcel) -> Parcel:
    """Return the results of `answered`, for sources in the order of their numbers."""
    places: Mapping[int, Any] = own.content
    parts = {part: source.content for part, source in zip(places, sources, strict=True)}
    return Parcel(answered(reduction, told.content, places, parts, model.content))


def _total(reduction: Reduction, first: Parcel, *others: Parcel) -> Parcel:
    """The total of some answers; they stay as they are, since Dask may need them again."""
    total: Answered = deepcopy(first.content)
    for one in others:
        total = added(reduction, total, one.content)
    return Parcel(total)
