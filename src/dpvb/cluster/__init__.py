"""One owner, many processes: the batch pass of a fit, spread over this machine or over a cluster of Dask.

`dpvb.Run(cluster="local:4")` uses four processes of this machine, `dpvb.Run(cluster=client)` the workers of a
`distributed.Client`. The released values are the same, bit for bit, on one process and on any number, even if a
worker was killed on the way. Noise is added once, here, after the sum; a part that is missing ends the fit.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from dpvb.cluster.dask import DaskEngine, shows_pages
from dpvb.cluster.distributed_source import DistributedSource
from dpvb.cluster.engine import Engine
from dpvb.cluster.local import LocalPool
from dpvb.core.source import Source
from dpvb.guards.errors import ParameterError

__all__ = ["LocalPool", "is_on_show", "spread"]


class DaskClient(Protocol):
    """A `distributed.Client`, as far as its type tells."""

    @property
    def status(self) -> str:
        """Description of its connection."""

    def nthreads(self) -> Mapping[str, int]:
        """Threads of each worker."""


Cluster: TypeAlias = str | Engine | DaskClient | None


@contextmanager
def spread(source: Source[Any], model: object, cluster: object) -> Iterator[Source[Any]]:
    """The source as the wall is to have it: itself without a cluster, spread over its processes with one.

    Args:
        source: private data.
        model: what will be asked of them.
        cluster: None, "local:N" for N processes of this machine, an engine (a LocalPool), or a `distributed.Client`.

    Raises:
        ParameterError: for another cluster, or data or a model that cannot go there.
        DataFormatError: if a process cannot read its part of the data.
    """
    if cluster is None:
        yield source
    elif isinstance(cluster, str):
        with _pool(cluster) as pool:
            yield DistributedSource(source, model, pool)
    else:
        engine = _engine(cluster)
        try:
            yield DistributedSource(source, model, engine)
        finally:
            engine.close()


def is_on_show(cluster: object) -> bool:
    """Return whether a cluster has pages that show the size of the data to others on the network."""
    return hasattr(cluster, "scheduler_info") and shows_pages(cluster)


def _pool(name: str) -> LocalPool:
    found = re.fullmatch(r"local:([0-9]{1,4})", name)
    if found is None or not 1 <= int(found[1]) <= 1024:
        raise ParameterError(
            f"cluster must be None, 'local:N' with N from 1 to 1024 processes (as in 'local:2'), a LocalPool, or a "
            f"distributed.Client, got {name!r}."
        )
    return LocalPool(int(found[1]))


def _engine(cluster: object) -> Engine:
    if isinstance(cluster, Engine):
        return cluster
    distributed = sys.modules.get("distributed")  # A caller with a client has imported it.
    if distributed is None or not isinstance(cluster, distributed.Client):
        raise ParameterError(
            f"cluster must be None, 'local:N' (as in 'local:2'), a LocalPool, or a distributed.Client, which "
            f"pip install '.[cluster]' in dpvb's source folder brings, got {type(cluster).__name__}."
        )
    return DaskEngine(cluster)
