"""What the tests of the ledger ask of a ledger in a file, asked of one in PostgreSQL."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import test_ledger
from postgresql_server import Server

from dpvb.ledger import Ledger

pytest.importorskip("psycopg")


@pytest.fixture
def ledger(postgresql: Server) -> Iterator[Ledger]:
    with Ledger(postgresql.new_database()) as made:
        made.register("notes", **test_ledger.FACTS)
        yield made


# Here they find the fixture above; those that need a file stay where they are.
for _name, _test in inspect.getmembers(test_ledger, inspect.isfunction):
    if _name.startswith("test_") and "ledger" in inspect.signature(_test).parameters:
        globals()[_name] = _test


def test_there_are_such_tests() -> None:
    assert sum(name.startswith("test_") and name in dir(test_ledger) for name in globals()) > 12
