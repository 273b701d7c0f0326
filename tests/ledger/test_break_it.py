"""A small part of `make break-it`: what the tests of ledgers and runs do to a file, done to a server."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from postgresql_server import Server

from benchmarks import break_it

pytest.importorskip("psycopg")


@pytest.fixture
def place(postgresql: Server, tmp_path: Path) -> break_it.Place:
    return break_it.Place(tmp_path, postgresql)


ATTACKS = {
    "killed at named points": partial(break_it.killed_at_named_points, size=1),
    "killed at random times": partial(break_it.killed_at_random_times, size=4),
    "flipped bits": partial(break_it.flipped_bits, size=12),
    "same release again": partial(break_it.same_release_again, size=8),
    "raced": partial(break_it.raced, sizes=(8,)),
    "changed rows": break_it.changed_rows,
    "restored backup": break_it.restored_backup,
    "objects and processes": partial(break_it.objects_and_processes, size=2),
    "hostile refunds": partial(break_it.hostile_refunds, size=6),
    "odd caps and costs": break_it.odd_caps_and_costs,
    "another reader": break_it.another_reader,
    "older dumps": partial(break_it.older_dumps, size=1),
    "standby": partial(break_it.standby, size=1),
    "hostile appenders": partial(break_it.hostile_appenders, size=60),
    "hostile folders": partial(break_it.hostile_folders, size=1),
    "restored client folders": partial(break_it.restored_client_folders, size=4),
}


SLOW = ("standby",)


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in ATTACKS])
def test_survived(name: str, place: break_it.Place) -> None:
    tally = break_it.attacked(ATTACKS[name], place)
    assert tally.survived, tally
