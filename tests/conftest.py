"""What all tests share: repeatable property tests, one thread unless a test asks for more, one database server."""

from __future__ import annotations

import fcntl
import gc
import itertools
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

# Or each process that tests start would compile all sources of the package anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts what it runs in the background with Ctrl-C ignored, and so would be what the tests stop by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    with suppress(ValueError):  # not in a process's main thread
        signal.signal(signal.SIGINT, signal.default_int_handler)

# A search for cycles of objects is seldom: at Python's own 700 new objects for each of them, searches were a quarter of
# what collecting the tests takes, and a third of tests that read the source.
gc.set_threshold(20_000, *gc.get_threshold()[1:])

# What was seen of ledgers is remembered apart for each test; and for fixtures that several tests share.
_states = tempfile.TemporaryDirectory(prefix="dpvb-state-")
_numbers = itertools.count()
os.environ["XDG_STATE_HOME"] = _states.name

# What JAX compiles is kept for the session, for all its processes: those of xdist and those that tests start.
_compiled = tempfile.TemporaryDirectory(prefix="dpvb-jax-")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", _compiled.name)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from postgresql_server import Server, programs, running  # noqa: E402

# No clock decides: neither a deadline, nor how long examples take to draw on a slow machine.
settings.register_profile(
    "everyday",
    deadline=None,
    derandomize=True,
    max_examples=25,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("everyday")


#: Addresses of all cases that pytest has read, those that are left to `make test-slow` too.
CASES = pytest.StashKey[set[str]]()


def pytest_collection_finish() -> None:
    """What collection has made stays to the end: searches for cycles pass it over."""
    gc.collect()
    gc.freeze()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep the address of each case, by which marks of planted bugs name it."""
    item.config.stash.setdefault(CASES, set()).add(f"{item.path}::{item.name}")


@pytest.fixture(autouse=True, scope="session")
def _compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes of one session compile a loop once: the first has its lock, the others load what is cached."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.dispatcher import Dispatcher

    locks = tmp_path_factory.getbasetemp().parent / "loops"
    locks.mkdir(exist_ok=True)
    compile_loop = Dispatcher.compile
    compiling: list[str] = []

    def compile_once(self: Any, signature: Any) -> Any:
        # The lock of threads comes first, and a process holds one file's lock at most: no two wait for each other.
        with global_compiler_lock:
            if compiling or not getattr(self._cache, "cache_path", None):
                return compile_loop(self, signature)
            compiling.append(f"{self.py_func.__module__}.{self.py_func.__qualname__}")
            try:
                with (locks / compiling[0]).open("w") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    try:
                        return compile_loop(self, signature)
                    finally:
                        fcntl.flock(lock, fcntl.LOCK_UN)  # A process that was forked meanwhile has the file open.
            finally:
                compiling.clear()

    Dispatcher.compile = compile_once
    yield
    Dispatcher.compile = compile_loop


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", os.path.join(_states.name, str(next(_numbers))))


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A real server, started for the first test that asks for it."""
    if programs() is None:
        pytest.skip("no PostgreSQL server is installed: setup/debian.sh")
    with running() as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with a data set for each of three clients, of cap 4 at delta = 1e-5."""
    from dpvb.ledger import Ledger

    with Ledger(tmp_path / "budget.db") as made:
        for name in "abc":
            made.register(name, unit="row", neighboring_relation="add_or_remove_one", epsilon=4.0, delta=1e-5)
    return tmp_path / "budget.db"


@pytest.fixture(scope="session")
def two_processes() -> Iterator[Any]:
    """A cluster of two processes of this machine, which fits of many tests share: each starts in two seconds."""
    from dpvb.cluster import LocalPool

    with LocalPool(2) as pool:
        yield pool


@pytest.fixture
def few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear dynamical system is found in a few iterations on released moments, whose number decides no law."""
    monkeypatch.setattr("dpvb.models.sequences.linear_dynamical._ROUNDS", 3)
    monkeypatch.setattr("dpvb.models.sequences.linear_moments._FIRST_ROUNDS", 2)
