"""What all tests share: repeatable property tests, one thread unless a test asks for more, one database server."""

from __future__ import annotations

import os
from collections.abc import Iterator

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from postgresql_server import Server, programs, running  # noqa: E402

settings.register_profile("everyday", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("everyday")


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A real server, started for the first test that asks for it."""
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed: setup/debian.sh")
    with running() as server:
        yield server
