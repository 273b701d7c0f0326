"""One owner, many processes: real ones, which are killed, and give the bits of one process."""

from __future__ import annotations

import importlib.util
import logging
import math
import operator
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_queries import (
    SECRET,
    Failing,
    Named,
    Scribbling,
    Unpackable,
    Unpicklable,
    Waiting,
    added_after_waiting,
    ones,
    powers,
)
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from scipy import sparse

import dpvb
from dpvb import DPVI, LDA, Ledger, LogisticRegression, SigmoidBeliefNetwork, cluster
from dpvb.cluster import LocalPool, spread
from dpvb.cluster.dask import DaskEngine
from dpvb.cluster.distributed_source import DistributedSource
from dpvb.cluster.engine import Answered, PartMissing, Reduction, added, map_reduce, shared_out
from dpvb.core import loop
from dpvb.core.blocks import Block
from dpvb.core.clipped_sums import Work
from dpvb.core.forms import Rows
from dpvb.core.grids import grids_of
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, BinaryMatrix, Design, Schema, Table, Target, open_documents
from dpvb.data.tables.design import binary_rows
from dpvb.data.tables.ranged import Numeric
from dpvb.errors import DataFormatError, OutOfMemoryError, ParameterError, PrivateComputationError
from dpvb.estimators.base import Task
from dpvb.estimators.generalized_linear import BinomialRegression
from dpvb.guards.version import __version__

RNG = np.random.default_rng(0)
WIDTH, NUMBER = 12, 203
COUNTS = sparse.csr_array(RNG.poisson(0.6, (NUMBER, WIDTH)).astype(float))
X = RNG.uniform(-0.4, 0.4, (NUMBER, 3))
X[5] = np.nan
Y = (X[:, 0] + 0.2 * RNG.standard_normal(NUMBER) > 0).astype(int)
PERSON = RNG.integers(0, 60, NUMBER)
ACCOUNT: dict[str, Any] = {
    "unit": "row",
    "neighboring_relation": "add_or_remove_one",
    "epsilon": 5.0,
    "delta": 1e-4,
}
SAMPLERS = {"full": {}, "poisson": {"sampling_prob": 0.3}, "fixed": {"batch_size": 40, "n_units": NUMBER}}


def task_of(kind: type, *data: Any, sampler: str = "full", group: Any = None, **params: Any) -> Task:
    """What the fit of an estimator would do, in three steps."""
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 3, **SAMPLERS[sampler], **params}
    x, y = (*data, None)[:2]
    return kind(**given)._task(x, y, group=group)


def lda(sampler: str = "full", group: Any = None) -> Task:
    return task_of(LDA, COUNTS, public_vocabulary=True, sampler=sampler, group=group, n_components=3)


def logistic(sampler: str = "full", group: Any = None, **params: Any) -> Task:
    return task_of(LogisticRegression, X, Y, sampler=sampler, group=group, max_row_norm=1.0, **params)


TASKS: dict[str, Any] = {
    "documents": lda,
    "documents of persons": partial(lda, group=PERSON),
    "logistic": logistic,
    "logistic, persons": partial(logistic, group=PERSON),
    "logistic, diagonal": partial(logistic, covariance="diagonal"),
    "binomial": lambda sampler: BinomialRegression(
        epsilon=1.0, delta=1e-5, n_steps=3, max_trials=4, max_row_norm=1.0, **SAMPLERS[sampler]
    )._task(X, Y, trials=np.full(NUMBER, 3)),
    "network": lambda sampler: task_of(
        SigmoidBeliefNetwork, (X > 0).astype(np.int8), sampler=sampler, n_components=2, clip_scale=1.0
    ),
}


class Recorded:
    """Keeps what a wall charges and records."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.totals: list[Mapping[str, Any]] = []

    def recorded(self, step: int) -> None:
        return None

    def begin(self, step: int) -> None:
        self.begun.append(step)

    def record(self, step: int, total: Mapping[str, Any]) -> None:
        self.totals.append({name: np.array(value) for name, value in total.items()})


def released(task: Task, engine: Any = None, model: Any = None) -> list[Mapping[str, Any]]:
    """Every release of a fit with noise that is the same in each: on one process, or on a cluster."""
    model, journal = task.model if model is None else model, Recorded()
    with spread(task.source, model, engine) as source:
        wall: Wall[Any] = Wall(source, task.relative, noise=InsecureNoise(7), n_units=NUMBER, journal=journal)
        rng = np.random.default_rng(1)
        loop.fit(model, wall, task.relative, rho=task.rho, rng=rng)
    assert journal.begun == list(range(len(task.relative)))
    return journal.totals


def assert_same_bits(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> None:
    assert len(one) == len(other) > 0
    for a, b in zip(one, other, strict=True):
        assert set(a) == set(b)
        for name in a:
            assert np.array_equal(a[name], b[name])
            assert np.any(a[name] != 0)


@pytest.fixture(scope="module")
def two() -> Iterator[LocalPool]:
    with LocalPool(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def four() -> Iterator[LocalPool]:
    with LocalPool(4) as pool:
        yield pool


#: No dashboard, and a port of its own for what is left of it.
DASK: dict[str, Any] = {
    "threads_per_worker": 1,
    "processes": True,
    "dashboard_address": None,
    "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    options = {**DASK, "silence_logs": logging.INFO}
    with distributed.LocalCluster(n_workers=2, **options) as workers, distributed.Client(workers) as found:
        yield found


# --- the same bits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", TASKS)
def test_two_and_four_processes_release_the_bits_of_one(name: str, sampler: str, two: Any, four: Any) -> None:
    task = TASKS[name](sampler)
    alone = released(task)
    assert_same_bits(alone, released(task, two))
    assert_same_bits(alone, released(task, four))


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["documents", "documents of persons", "logistic"])
def test_workers_of_dask_release_the_bits_of_one(name: str, sampler: str, client: Any) -> None:
    task = TASKS[name](sampler)
    assert_same_bits(released(task), released(task, client))
    deadline = time.monotonic() + 200
    while any(client.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(client.has_what().values())  # Neither data nor sums are left with the workers.


def test_an_estimator_takes_a_cluster(two: Any) -> None:
    """Without noise and with the full batch two fits of one data set are equal."""
    for model in (
        LDA(3, public_vocabulary=True, epsilon=np.inf, delta=1e-5, n_steps=2, random_state=0),
        LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=2, max_row_norm=1.0),
        SigmoidBeliefNetwork(2, epsilon=np.inf, delta=1e-5, n_steps=2, random_state=0),
    ):
        data = {LDA: (COUNTS,), LogisticRegression: (X, Y)}.get(type(model), ((X > 0).astype(np.int8),))
        alone = [np.array(value) for value in (model.fit(*data).privacy_.epsilon, _fitted(model))]
        assert np.array_equal(_fitted(model.fit(*data, run=dpvb.Run(cluster=two))), alone[1])
    assert np.array_equal(_fitted(model.fit(*data, run=dpvb.Run(cluster="local:1"))), alone[1])


def _fitted(model: Any) -> Any:
    return model.components_ if hasattr(model, "components_") else model.coef_


@pytest.mark.slow
def test_private_gradients_are_the_same_bits_and_are_compiled_once(two: LocalPool) -> None:
    """A density of the caller's own goes by value, and a process compiles it at its first step alone."""
    jax = pytest.importorskip("jax")

    def density(theta: Any, x: Any, y: Any) -> Any:
        return y * (x @ theta) - jax.numpy.logaddexp(0.0, x @ theta)

    given = {"epsilon": 1.0, "delta": 1e-5, "n_steps": 8, "parameters": 3, "sampling_prob": 0.5}
    task = DPVI(density, **given)._task(X, Y)
    times = [time.monotonic()]
    with spread(task.source, task.model, two) as source:
        journal = Recorded()
        wall: Wall[Any] = Wall(source, task.relative, noise=InsecureNoise(7), n_units=NUMBER, journal=journal)
        rng, note = np.random.default_rng(1), lambda t, q: times.append(time.monotonic())
        loop.fit(task.model, wall, task.relative, rho=task.rho, rng=rng, on_step=note)
    assert_same_bits(released(task), journal.totals)
    first, *others = np.diff(times)
    assert np.median(others) < first / 2


@given(
    number=st.integers(0, 12),
    parts=st.integers(1, 20),
    persons=st.none() | st.lists(st.integers(0, 4), min_size=12, max_size=12),
)
def test_parts_are_the_units_in_order(number: int, parts: int, persons: list[int] | None) -> None:
    """However a source is cut: every unit once, whole, in place; so any draw by place meets the same units."""
    x = np.arange(1.0, 25.0).reshape(12, 2)[:number] % 2
    group = None if persons is None else persons[:number]
    sources: list[Any] = [
        BagOfWords(x, group=group),
        BinaryMatrix(x, group=group),
        Design(x, x[:, 0], intercept=0.4, group=group),
        Design(sparse.csr_array(x), x[:, 0], sparse_rows=True, group=group),
    ]
    for source in sources:
        pieces = source.parts(parts)
        assert 1 <= len(pieces) <= parts
        assert [unit for piece in pieces for unit in _units(piece)] == _units(source)
        assert sum(piece.count() for piece in pieces) == source.count()


def _units(source: Any) -> list[str]:
    """Every unit with its rows, as text."""
    found = []
    for chunk in source.chunks():
        for unit in range(chunk.num_units):
            one = chunk.select(np.arange(chunk.num_units) == unit)
            rows = one.rows
            parts = vars(rows) if hasattr(rows, "__dict__") else {"rows": rows}
            found.append(repr([(name, np.array(value).tolist()) for name, value in sorted(parts.items())]))
            assert one.unit_of_row is None or not one.unit_of_row.any()
    return found


# --- deaths -------------------------------------------------------------------------------------------------


def kill_at_work(flag: Path, others: Sequence[int] = ()) -> threading.Thread:
    """Kill the process that waits in the middle of its step, as soon as it says so, and with it others."""

    def kill() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            text = flag.read_text() if flag.exists() else ""
            if text.endswith("\n"):
                for process in {int(text), *others}:
                    os.kill(process, signal.SIGKILL)
                return
            time.sleep(0.01)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("make", "sampler"),
    [
        (lda, "poisson"),
        (logistic, "full"),
        (logistic, "fixed"),
        pytest.param(lda, "full", marks=SLOW),
        pytest.param(lda, "fixed", marks=SLOW),
        pytest.param(partial(lda, group=PERSON), "poisson", marks=SLOW),
        pytest.param(logistic, "poisson", marks=SLOW),
    ],
)
def test_a_process_killed_in_mid_step_costs_time_alone(
    make: Any, sampler: str, four: LocalPool, tmp_path: Path
) -> None:
    task, before = make(sampler), four.process_ids
    killer = kill_at_work(tmp_path / "flag")
    found = released(task, four, Waiting(task.model, tmp_path / "flag", os.getpid()))
    killer.join()
    killed = int((tmp_path / "flag").read_text())
    assert killed in before
    assert len(set(before) - set(four.process_ids)) == 1
    assert_same_bits(released(task), found)


@pytest.mark.parametrize("make", [pytest.param(lda, marks=SLOW), logistic])
def test_a_worker_of_dask_killed_in_mid_step_costs_time_alone(make: Any, client: Any, tmp_path: Path) -> None:
    task = make("poisson")
    killer = kill_at_work(tmp_path / "flag")
    found = released(task, client, Waiting(task.model, tmp_path / "flag", os.getpid()))
    killer.join()
    assert_same_bits(released(task), found)
    client.wait_for_workers(1)  # Under load Dask does not always replace the one that died.


@pytest.mark.slow
def test_a_cluster_whose_only_worker_is_killed_goes_on_with_the_next(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=1, **DASK) as workers, distributed.Client(workers) as client:
        task = logistic("poisson")
        killer = kill_at_work(tmp_path / "flag")
        found = released(task, client, Waiting(task.model, tmp_path / "flag", os.getpid()))
        killer.join()
        assert_same_bits(released(task), found)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "sampler"), [(lda, "poisson"), (logistic, "fixed")])
def test_four_workers_of_dask_of_which_one_is_killed(make: Any, sampler: str, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=4, **DASK) as workers, distributed.Client(workers) as client:
        assert len(client.nthreads()) == 4
        task = make(sampler)
        killer = kill_at_work(tmp_path / "flag")
        found = released(task, client, Waiting(task.model, tmp_path / "flag", os.getpid()))
        killer.join()
        assert_same_bits(released(task), found)


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 3])
def test_workers_that_are_killed_while_they_add_answers_cost_time_alone(others: int, tmp_path: Path) -> None:
    """Each part is a power of two: one that counted twice, or not at all, would show in the total."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=6, **DASK) as workers, distributed.Client(workers) as client:
        engine = DaskEngine(client)
        engine.hold([None] * 24, None)
        killer = kill_at_work(tmp_path / "flag", [*client.run(os.getpid).values()][:others])
        reduction = Reduction(powers, added_after_waiting)
        found = map_reduce(reduction, 24, tmp_path / "flag", [None] * 24, "key", engine=engine)
        killer.join()
        assert (tmp_path / "flag").exists()
        assert found[1].tolist() == [2**24 - 1]


def test_a_task_done_again_draws_the_same_batch(two: LocalPool) -> None:
    """The sums of a Poisson batch count who was drawn: the same units in another process and in another run."""
    release = Release({"one": Block((NUMBER,), 1.0)}, Mechanism(Poisson(0.3), 1.0))
    noise = InsecureNoise(5)
    expected = noise.words(step=2, purpose="sampling")(NUMBER) < np.uint64(int(0.3 * 2**64))
    work: Work[Any] = Work(Named(X[:, 0]), release, grids_of(release, None), noise.words(step=2, purpose="sampling"))
    for _ in range(2):
        with spread(Design(X, Y), None, two) as source:
            assert isinstance(source, DistributedSource)
            for step in (2, 3):
                chosen = source.sums(work, step)["one"] != 0
                assert np.array_equal(chosen, expected & np.isfinite(X[:, 0]))


# --- failures -----------------------------------------------------------------------------------------------

PLAN = Plan([Release({"a": Block((1,), 1.0)}, Mechanism(FullBatch(), 1.0))])


@pytest.mark.parametrize(
    ("how", "engine"),
    [
        *((how, engine) for how in ("chained", "memory", "shape") for engine in ("two", "client")),
        pytest.param("exit", "two", marks=SLOW),
    ],
)
def test_a_part_that_fails_ends_the_release_and_says_nothing(
    how: str, engine: str, request: Any, capfd: Any, caplog: Any
) -> None:
    journal = Recorded()
    with spread(Design(X, Y), None, request.getfixturevalue(engine)) as source, caplog.at_level(logging.DEBUG):
        wall: Wall[Any] = Wall(source, PLAN, noise=InsecureNoise(1), journal=journal)
        with pytest.raises(OutOfMemoryError if how == "memory" else PrivateComputationError) as caught:
            wall.release(Failing(how), PLAN.releases[0])
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert journal.begun == [0]  # The charge stands,
    assert journal.totals == []  # and nothing is released.
    assert_silent(capfd, caplog, request, engine)


def assert_silent(capfd: Any, caplog: Any, request: Any, engine: str) -> None:
    written = capfd.readouterr()
    told = [written.out, written.err, caplog.text]
    if engine == "client":
        found = request.getfixturevalue("client")
        told += [str(found.get_worker_logs()), str(found.get_scheduler_logs())]
    for text in told:
        for private in (SECRET, repr(X[0, 0]), "CountRows", "x_nd"):
            assert private not in text


@pytest.mark.slow
def test_a_cluster_whose_workers_always_die_ends_the_release(monkeypatch: Any) -> None:
    """Whether Dask gives the task up, or its nannies their workers."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr("dpvb.cluster.dask.PATIENCE", 3.0)
    options = {**DASK, "silence_logs": logging.CRITICAL}
    with distributed.LocalCluster(n_workers=1, **options) as workers, distributed.Client(workers) as client:  # noqa: SIM117
        with spread(Design(X, Y), None, client) as source, pytest.raises(PrivateComputationError):
            Wall(source, PLAN, noise=InsecureNoise(1)).release(Failing("exit"), PLAN.releases[0])


def test_the_pool_goes_on_after_a_failure(two: LocalPool) -> None:
    task = logistic()
    assert_same_bits(released(task), released(task, two))


@kills("crashes", "a pool that ends by an answer that is none")
@edit("cluster/local.py", "except Exception:  # It died", "except (OSError, EOFError):  # It died")
@pytest.mark.parametrize("written", [b"\xff" * 8, (4).to_bytes(8, "little") + b"none"], ids=["length", "pickle"])
def test_a_process_that_answers_in_another_form_is_replaced(written: bytes, two: LocalPool, tmp_path: Path) -> None:
    totals = []
    for engine in (None, two):
        query = Scribbling(tmp_path / "flag", written, os.getpid())
        with spread(Design(X, Y, max_row_norm=1.0), None, engine) as source:
            totals.append(Wall(source, PLAN, noise=InsecureNoise(1)).release(query, PLAN.releases[0]).total["a"])
    assert (tmp_path / "flag").exists()
    assert np.array_equal(*totals)


ONES = Reduction(lambda parts, told, own: 1.0, operator.add)


class Answers:
    """An engine whose processes answer for the parts that they are told to."""

    num_workers = 2

    def __init__(self, answered: Any = None) -> None:
        self.answered = answered

    def hold(self, parts: Any) -> None: ...

    def run(self, task: Any, told: bytes, own: Any, key: str) -> Any:
        return self.answered

    def close(self) -> None: ...


@kills("releases", "an answer to an earlier step, which a worker kept, as that of this step")
@edit("cluster/engine.py", "list(range(num_parts)) or total.key != key:", "list(range(num_parts)):")
@pytest.mark.parametrize(
    "answered",
    [
        Answered((0, 1), 1.0, "key"),
        Answered((0, 1, 1, 2), 2.0, "key"),
        Answered((0, 1, 2), None, "key"),
        Answered((0, 1, 2, 3), 1.0, "key"),
        Answered((), None, "key"),
        Answered((0, 1, 2), 1.0, "earlier key"),
        Answered((0, 1, 2), 1.0),
        "no answer",
        Answered(3, 1.0, "key"),  # type: ignore[arg-type]
        Answered((0, 1, None), 1.0, "key"),  # type: ignore[arg-type]
        Answered((0.0, 1.0, 2.0), 1.0, "key"),  # type: ignore[arg-type]
    ],
)
def test_every_part_counts_exactly_once(answered: Any) -> None:
    with pytest.raises(PartMissing):
        map_reduce(ONES, 3, None, [None] * 3, "key", engine=Answers(answered))
    assert map_reduce(ONES, 3, None, [None] * 3, "key", engine=Answers(Answered((0, 2, 1), 3.0, "key"))) == 3.0


@kills("releases", "sums of two steps that are added")
@edit("cluster/engine.py", "one.answer is None or total.key != one.key:", "one.answer is None:")
def test_a_total_speaks_of_all_its_parts_and_a_failed_answer_spoils_it() -> None:
    sound, failed = Answered((0, 2), 1.0, "key"), Answered((1,), None, "key")
    assert added(ONES, sound, Answered((1,), 2.0, "key")) == Answered((0, 2, 1), 3.0, "key")
    assert added(ONES, added(ONES, sound, failed), sound).answer is None
    assert added(ONES, sound, Answered((1,), "text", "key")).answer is None
    assert added(ONES, sound, Answered((1,), 2.0, "earlier key")).answer is None


class Told(Answers):
    """An engine whose processes load the model, and then say what they like of their units."""

    def __init__(self, version: Any, counts: Any) -> None:
        super().__init__()
        self.said = {"start": version, "count": counts}

    def hold(self, parts: Any, model: Any = None) -> None: ...

    def run(self, task: Any, told: bytes, own: Any, key: str) -> Any:
        return Answered(tuple(range(len(own))), self.said[key.rpartition("-")[2]], key)


class Deaf(np.ndarray[Any, np.dtype[np.int64]]):
    """An array to which nothing can be added."""

    def __iadd__(self, other: Any) -> Any:
        return self


OF_FOUR = Plan([Release({"a": Block((4,), 1.0)}, Mechanism(FullBatch(), 1.0))])
SUMS: dict[str, Any] = {
    "masked": lambda sum_n: np.ma.array(sum_n, mask=True),
    "of a class": lambda sum_n: sum_n.view(Deaf),
    "floats": lambda sum_n: sum_n.astype(float),
    "objects": lambda sum_n: sum_n.astype(object),
    "other bytes": lambda sum_n: sum_n.astype(">i8"),
    "another shape": lambda sum_n: sum_n[None],
    "no array": lambda sum_n: sum_n.tolist(),
}


@kills("sums", "a masked array as the sum of a cluster, to which no noise is added")
@edit(
    "cluster/distributed_source.py",
    "return type(value) is np.ndarray and value.dtype == np.int64",
    "return isinstance(value, np.ndarray) and value.dtype == np.int64",
)
@pytest.mark.parametrize("form", SUMS)
def test_a_sum_in_another_form_is_not_released(form: str) -> None:
    engine = Told({__version__}, dict.fromkeys(range(8), 1))
    source = DistributedSource(logistic().source, None, engine)
    engine.said["0"] = {"a": SUMS[form](np.zeros(4, np.int64))}
    wall: Wall[Any] = Wall(source, OF_FOUR, noise=InsecureNoise(1))
    with pytest.raises(PrivateComputationError, match="its reason stays private"):
        wall.release(lambda rows: {}, OF_FOUR.releases[0])


@kills("sums", "noise that is added to entries that share a place in memory")
@edit("cluster/distributed_source.py", "name: value.copy() for", "name: value for")
def test_noise_is_added_to_a_copy_of_the_sum_of_a_cluster() -> None:
    engine, held = Told({__version__}, dict.fromkeys(range(8), 1)), np.zeros(1, np.int64)
    source = DistributedSource(logistic().source, None, engine)
    engine.said["0"] = {"a": np.lib.stride_tricks.as_strided(held, (4,), (0,))}
    wall: Wall[Any] = Wall(source, OF_FOUR, noise=InsecureNoise(1))
    total = wall.release(lambda rows: {}, OF_FOUR.releases[0]).total["a"]
    assert held[0] == 0
    assert len({*total.tolist()}) == 4


def test_a_process_without_memory_for_its_part_is_said_before_the_charge() -> None:
    with pytest.raises(OutOfMemoryError, match="nothing was spent"):
        DistributedSource(logistic().source, None, Told({__version__}, "out of memory"))


FORMS: list[Any] = [0, "x", [], [[1]], {}, {"a": 1}, {None: 1}, ()]
NUMBERS: list[Any] = [None, "1", True, 1.0, math.nan, -1, 10**30, [1]]


@pytest.mark.guarantees("checked before charge")
@kills("crashes", "a fit that is charged for units that no process can have")
@edit("cluster/distributed_source.py", "not _are_counts(counts)", "not isinstance(counts, dict)")
@pytest.mark.parametrize("counts", [*FORMS, *(dict.fromkeys(range(8), one) for one in NUMBERS)])
def test_what_processes_say_in_another_form_is_refused_before_the_charge(counts: Any) -> None:
    task = logistic()
    with pytest.raises(DataFormatError, match="nothing was spent"):
        DistributedSource(task.source, task.model, Told({__version__}, counts))


@pytest.mark.parametrize("version", [*FORMS, np.array(["1", "2"]), __version__, {"0"}, {"0", __version__}, {1}, set()])
def test_a_version_in_another_form_is_refused_before_the_charge(version: Any) -> None:
    task = logistic()
    with pytest.raises(ParameterError, match="cannot load the model"):
        DistributedSource(task.source, task.model, Told(version, {}))


@given(parts=st.integers(0, 50), workers=st.integers(1, 12))
def test_parts_are_shared_out_evenly(parts: int, workers: int) -> None:
    dealt = shared_out(parts, workers)
    assert sorted(part for one in dealt for part in one) == list(range(parts))
    assert len(dealt) <= workers
    assert not dealt or max(map(len, dealt)) - min(map(len, dealt)) <= 1


@pytest.mark.parametrize("name", ["local:0", "local:1025", "local:", "local:-1", "local:2.0", "dask", "", "local: 2"])
def test_a_cluster_that_is_none_is_refused_before_anything_is_spent(name: str, tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.register("people", **ACCOUNT)
        model = LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=2, max_row_norm=1.0)
        with pytest.raises(ParameterError, match="local:2"):
            model.fit(X, Y, run=dpvb.Run(cluster=name, ledger=ledger, dataset="people"))
        with pytest.raises(ParameterError, match="local:2"):
            model.fit(X, Y, run=dpvb.Run(cluster=4, ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


def test_what_cannot_go_to_a_process_is_refused(two: LocalPool, capfd: Any) -> None:
    class Undivided:
        def chunks(self) -> Any:
            return Design(X, Y).chunks()

        def count(self) -> int:
            return NUMBER

    for source, model in ((Undivided(), None), (Design(X, Y), Unpicklable()), (Design(X, Y), Unpackable())):
        with pytest.raises(ParameterError) as caught, spread(source, model, two):
            pass
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None or SECRET not in str(caught.value.__context__)
    with LocalPool(1) as ended:
        pass
    with pytest.raises(ParameterError, match="ended"), spread(Design(X, Y), None, ended):
        pass
    with pytest.raises(ParameterError, match="num_workers"):
        LocalPool(0)
    written = capfd.readouterr()
    assert SECRET not in written.out + written.err


def test_a_dask_client_that_cannot_work_is_refused(client: Any) -> None:
    from distributed import Client

    with Client(client.scheduler.address) as closed:
        pass
    with pytest.raises(ParameterError, match="connected"), spread(Design(X, Y), None, closed):
        pass


def spilled(folder: Path) -> dict[Path, bytes]:
    """What a worker that takes its memory for full writes of a fit; it looks at its memory now and then."""
    for _ in range(1000):
        if found := {path: path.read_bytes() for path in folder.rglob("dpvb-*-part-*") if path.is_file()}:
            return found
        time.sleep(0.02)
    raise AssertionError("nothing was spilled")


@pytest.mark.guarantees("Dask")
@kills("names", "rows that a worker of Dask spills for all to read")
@edit("cluster/dask.py", "                os.umask(0o077)", "                os.umask(0o022)")
@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_what_workers_of_dask_spill_is_their_users_alone(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    rows = (np.random.default_rng(1).random((20_000, 100)) > 0.5).astype(np.int8)
    full = {f"distributed.worker.memory.{name}": 1e-3 for name in ("target", "spill")}
    full |= {"distributed.worker.memory.monitor-interval": "20ms", "temporary-directory": str(tmp_path)}
    before = os.umask(0)
    try:
        with (
            dask.config.set(full),
            distributed.LocalCluster(n_workers=1, memory_limit="2GB", **DASK) as workers,
            distributed.Client(workers) as client,
        ):
            for folder in tmp_path.rglob("storage"):
                folder.parent.chmod(0o777)
            with spread(BinaryMatrix(rows), None, client):
                found = spilled(tmp_path)
                written = b"".join(found.values())
                assert any(rows[start : start + 10].tobytes() in written for start in range(0, 20_000, 100))
                for path in found:
                    assert path.stat().st_mode & 0o777 == 0o600
                    assert path.parent.stat().st_mode & 0o777 == 0o700
                    assert path.parent.parent.stat().st_mode & 0o777 == 0o700
            client.restart()  # Workers that come later keep the rule.
            with spread(BinaryMatrix(rows), None, client):
                assert {path.stat().st_mode & 0o777 for path in spilled(tmp_path)} == {0o600}
    finally:
        os.umask(before)


@pytest.mark.guarantees("dependencies")
@kills("names", "a worker of Dask whose folder others may replace")
@edit("cluster/dask.py", "            check_closed_folder(worker.local_directory)\n", "")
@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_a_worker_whose_folder_others_may_write_is_refused(tmp_path: Path) -> None:
    """A worker unpickles what it has spilled: who can put another folder in its place runs code there."""
    distributed = pytest.importorskip("distributed")
    dask = pytest.importorskip("dask")
    (tmp_path / "of all").mkdir()
    (tmp_path / "of all").chmod(0o777)
    with (
        dask.config.set({"temporary-directory": str(tmp_path / "of all")}),
        distributed.LocalCluster(n_workers=1, **DASK) as workers,
        distributed.Client(workers) as client,
        pytest.raises(ParameterError, match="others may write to it"),
        spread(Design(X, Y), None, client),
    ):
        pass


@pytest.mark.guarantees("Dask")
@kills("names", "a cluster that whoever reaches it can read")
@edit("cluster/dask.py", 'if protocol not in ("tls", "inproc") and', 'if protocol not in ("tls", "tcp", "inproc") and')
@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_cluster_that_strangers_could_reach_is_refused(host: str, secure: bool) -> None:
    distributed = pytest.importorskip("distributed")
    options = {
        "n_workers": 1,
        "processes": False,
        "protocol": "tls" if secure else "tcp",
        "host": host,
        "security": distributed.Security.temporary() if secure else distributed.Security(),
        "dashboard_address": None,
        "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"},
    }
    with distributed.LocalCluster(**options) as workers, distributed.Client(workers) as client:
        if secure or host == "127.0.0.1":
            with spread(Design(X, Y), None, client) as source:
                assert source.count() == NUMBER
        else:
            with pytest.raises(ParameterError, match="without TLS"), spread(Design(X, Y), None, client):
                pass


@pytest.mark.parametrize("page", ["127.0.0.1:0", ":0"])
def test_pages_of_dask_that_strangers_could_see_are_said(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(LogisticRegression, "_said", set())
    options = {"n_workers": 1, "processes": False, "dashboard_address": page, "worker_dashboard_address": "127.0.0.1:0"}
    model = LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=1, max_row_norm=1.0)
    with (
        distributed.LocalCluster(**options) as workers,
        distributed.Client(workers) as client,
        warnings.catch_warnings(record=True) as said,
    ):
        warnings.simplefilter("always")
        model.fit(X, Y, run=dpvb.Run(cluster=client))
    assert any("from other machines" in str(one.message) for one in said) is (page == ":0")


PLANTED = """
import os, sys
with open(os.path.join({folder!r}, "ran"), "a") as file:
    file.write({name!r})
os._exit(1)
"""
BESIDE_THE_DATA = """
import sys
import dpvb, dpvb.audit
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
import numpy as np
sys.path += ["", ".", "folder"]
if __name__ == "__main__":
    model = dpvb.LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=2, low=0, high=1)
    with dpvb.cluster.LocalPool(2) as pool:
        model.fit(np.eye(4), [0, 1, 1, 0], run=dpvb.Run(cluster=pool))
        places = [Path(f"/proc/{number}/cmdline") for number in pool.process_ids]
        started = [place.read_text().rstrip("\\0").split("\\0") for place in places]
    with dpvb.audit._processes(1) as pool:
        print(model.coef_.shape[-1], pool.submit(abs, -7).result(), *{"", ".", "folder"}.intersection(*started))
"""


@pytest.mark.guarantees("workers")
@kills("names", "code beside the data in worker processes")
@edit("cluster/local.py", "*filter(os.path.isabs, sys.path)", "*sys.path")
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at what processes were started with")
def test_worker_processes_run_no_code_of_the_current_folder(tmp_path: Path) -> None:
    """Whatever a module there is called: its place is on nobody's path, as it is not on the installed program's."""
    names = {"cloudpickle", "numpy", "numba", "scipy", "dpvb", "sklearn", *sys.stdlib_module_names}
    names = {name for name in names if name != "__main__" and importlib.util.find_spec(name)}
    for name in names | {"sitecustomize", "usercustomize"}:
        (tmp_path / f"{name}.py").write_text(PLANTED.format(folder=str(tmp_path), name=name))
    path = os.pathsep.join([str(Path(dpvb.__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    done = subprocess.run(
        [sys.executable, "-P", "-c", BESIDE_THE_DATA],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path.strip(os.pathsep)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "4 7\n", done.stderr
    assert not (tmp_path / "ran").exists()
    alone = subprocess.run([sys.executable, "-c", "import secrets"], cwd=tmp_path, check=False)
    assert alone.returncode == 1
    assert (tmp_path / "ran").exists()


def test_processes_end_with_their_pool() -> None:
    with LocalPool(2) as pool:
        numbers = pool.process_ids
        assert all(Path(f"/proc/{number}").exists() or os.name != "posix" for number in numbers)
    for number in numbers:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


# --- files --------------------------------------------------------------------------------------------------

WORDS = tuple("abcdefghijklmnopqrstuvwxyz"[v] * 2 for v in range(WIDTH))


def npz_shards(folder: Path) -> list[Path]:
    paths = [folder / f"part-{p}.npz" for p in range(3)]
    for path, rows in zip(paths, (slice(0, 90), slice(90, 90), slice(90, NUMBER)), strict=True):
        sparse.save_npz(path, COUNTS[rows].tocsr())
    return paths


def text_shards(folder: Path, persons: Any) -> list[Path]:
    """Parquet files of texts with persons, cut at row 90."""
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    dense = COUNTS.toarray().astype(int)
    texts = [" ".join(word for word, n in zip(WORDS, row, strict=True) for _ in range(n)) for row in dense]
    paths = [folder / f"texts-{p}.parquet" for p in range(2)]
    for path, rows in zip(paths, (slice(0, 90), slice(90, NUMBER)), strict=True):
        parquet.write_table(arrow.table({"text": texts[rows], "who": persons[rows]}), path)
    return paths


def table_shards(folder: Path, persons: Any = None, rows: Any = True) -> list[Path]:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    paths = [folder / f"table-{p}.parquet" for p in range(2)]
    numbers = np.arange(NUMBER)[np.broadcast_to(rows, NUMBER)]
    for path, rows in zip(paths, (numbers[:90], numbers[90:]), strict=True):
        columns = {"a": X[rows, 0], "b": X[rows, 1], "y": Y[rows]}
        columns |= {} if persons is None else {"who": persons[rows]}
        parquet.write_table(arrow.table(columns), path)
    return paths


def schema(group: str | None = None) -> Schema:
    columns = (Numeric("a", low=-0.5, high=0.5), Numeric("b", low=-0.5, high=0.5))
    return Schema(columns, target=Target("y", kind="logistic"), group=group)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_files_of_binary_rows_are_the_rows_in_memory(sampler: str, two: Any, tmp_path: Path) -> None:
    binary = (X > 0).astype(np.int8)
    paths = [tmp_path / f"{p}.npz" for p in range(2)]
    for path, rows in zip(paths, (slice(0, 90), slice(90, NUMBER)), strict=True):
        sparse.save_npz(path, sparse.csr_array(binary[rows]))
    whole, files = (
        task_of(SigmoidBeliefNetwork, x, sampler=sampler, n_components=2, clip_scale=1.0) for x in (binary, paths)
    )
    alone = released(whole)
    assert_same_bits(alone, released(files))
    assert_same_bits(alone, released(files, two))
    with pytest.raises(ParameterError, match="group"):
        binary_rows(paths, group=PERSON)
    sparse.save_npz(paths[0], sparse.csr_array((4, 7)))
    with pytest.raises(DataFormatError, match="different numbers of columns"):
        binary_rows(paths)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_files_of_documents_are_the_documents_in_memory(sampler: str, two: Any, client: Any, tmp_path: Path) -> None:
    paths = npz_shards(tmp_path)
    whole, files = (
        lda(sampler),
        task_of(LDA, open_documents(paths), public_vocabulary=True, sampler=sampler, n_components=3),
    )
    folder = task_of(LDA, open_documents(tmp_path), public_vocabulary=True, sampler=sampler, n_components=3)
    for task, engine in ((files, None), (files, two), (files, client), (folder, two)):
        assert_same_bits(released(whole), released(task, engine))


def test_files_of_persons_are_the_persons_in_memory(two: Any, tmp_path: Path) -> None:
    persons = np.where(np.arange(NUMBER) < 90, PERSON, PERSON + 1000)
    texts = open_documents(text_shards(tmp_path, persons), vocabulary=WORDS, group_column="who")
    assert texts.unit == "person"
    whole = lda("poisson", persons)
    assert_same_bits(released(whole), released(task_of(LDA, texts, sampler="poisson", n_components=3), two))
    table = Table(table_shards(tmp_path, persons), schema("who"))
    one = Table({"a": X[:, 0], "b": X[:, 1], "y": Y, "who": persons}, schema("who"))
    for sampler in SAMPLERS:
        alone = released(task_of(LogisticRegression, one, sampler=sampler))
        task = task_of(LogisticRegression, table, sampler=sampler)
        assert_same_bits(alone, released(task, two))
        assert_same_bits(alone, released(task))


def test_a_fit_reads_a_table_in_files(two: Any, tmp_path: Path) -> None:
    table = Table(table_shards(tmp_path), schema())
    one = Table({"a": X[:, 0], "b": X[:, 1], "y": Y}, schema())
    model = LogisticRegression(epsilon=np.inf, delta=1e-5, n_steps=2, max_row_norm=1.0)
    alone = model.fit(one).coef_
    assert np.array_equal(model.fit(table, run=dpvb.Run(cluster=two)).coef_, alone)
    usable = np.arange(NUMBER) > 5
    with pytest.raises(DataFormatError, match="NaN"):
        model.predict_proba(table)
    assert np.array_equal(
        model.predict_proba(Table(table_shards(tmp_path, rows=usable), schema())),
        model.predict_proba(Table({"a": X[usable, 0], "b": X[usable, 1]}, schema())),
    )
    for wrong in ({"y": Y}, {"group": PERSON}):
        with pytest.raises(ParameterError, match="of several files"):
            table.design(**wrong)


def test_all_rows_of_a_person_in_two_files_count_in_every_process(two: Any, tmp_path: Path) -> None:
    persons = np.where(np.arange(NUMBER) < 90, PERSON, PERSON + 1000)
    persons[-1] = persons[0]
    texts = open_documents(text_shards(tmp_path, persons), vocabulary=WORDS, group_column="who")
    alone = released(lda("poisson", persons))
    assert_same_bits(alone, released(task_of(LDA, texts, sampler="poisson", n_components=3), two))
    assert_same_bits(alone, released(task_of(LDA, texts, sampler="poisson", n_components=3)))
    table = Table(table_shards(tmp_path, persons), schema("who"))
    one = Table({"a": X[:, 0], "b": X[:, 1], "y": Y, "who": persons}, schema("who"))
    alone = released(task_of(LogisticRegression, one, sampler="poisson"))
    assert_same_bits(alone, released(task_of(LogisticRegression, table, sampler="poisson"), two))
    assert texts.count() == table.design().count() == one.design().count()


def test_a_missing_file_is_refused_before_anything_is_spent(two: Any, client: Any, tmp_path: Path) -> None:
    paths = npz_shards(tmp_path)
    with pytest.raises(DataFormatError, match="gone"):
        open_documents([*paths, tmp_path / "gone.npz"])
    with pytest.raises(DataFormatError, match="twice"):
        open_documents([*paths, paths[0]])
    with pytest.raises(DataFormatError, match="at least one"):
        open_documents([])
    sparse.save_npz(tmp_path / "wide.npz", sparse.csr_array((2, WIDTH + 1)))
    with pytest.raises(DataFormatError, match="different numbers of columns"):
        open_documents([*paths, tmp_path / "wide.npz"])
    source = open_documents(paths)
    paths[2].unlink()
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.register("people", **{**ACCOUNT, "unit": "document"})
        for engine in (two, client):
            model = LDA(3, public_vocabulary=True, epsilon=1.0, delta=1e-5, n_steps=2)
            with pytest.raises(DataFormatError, match=r"cannot read its part|part-2\.npz' was changed"):
                model.fit(source, run=dpvb.Run(cluster=engine, ledger=ledger, dataset="people"))
        assert ledger.remaining("people").num_charges == 0


def test_a_file_that_is_gone_in_mid_run_ends_it(two: LocalPool, tmp_path: Path) -> None:
    """The process that holds it dies; the next one cannot read it again; the sum of the rest is not released."""
    paths = npz_shards(tmp_path)
    task = task_of(LDA, open_documents(paths), public_vocabulary=True, n_components=3)
    with spread(task.source, task.model, two) as source:
        wall: Wall[Any] = Wall(source, task.relative, noise=InsecureNoise(7))
        for path in paths:
            path.unlink()
        os.kill(two.process_ids[1], signal.SIGKILL)
        query = partial(task.model.e_step, task.model.init(np.random.default_rng(0)), blocks=task.model.blocks)
        with pytest.raises(PrivateComputationError):
            wall.release(query, task.relative.releases[0])


def test_a_file_that_changed_does_not_meet_the_words_of_others(two: LocalPool, tmp_path: Path) -> None:
    paths = npz_shards(tmp_path)
    with spread(open_documents(paths), None, two) as source:
        sparse.save_npz(paths[0], COUNTS[:50].tocsr())
        os.kill(two.process_ids[0], signal.SIGKILL)
        with pytest.raises(PrivateComputationError):
            Wall(source, PLAN, noise=InsecureNoise(1)).release(ones, PLAN.releases[0])


# --- runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [("local:2", None), (None, "local:2")])
def test_a_run_goes_on_with_or_without_a_cluster(first: Any, second: Any, tmp_path: Path) -> None:
    """The data are the same by their digest, wherever they lie, so that an interrupted step costs nothing again."""
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.register("people", **ACCOUNT)
        model = LogisticRegression(epsilon=1.0, delta=1e-5, n_steps=4, max_row_norm=1.0)

        def stop(step: int, plan: Plan) -> None:
            if step == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            model.fit(
                X,
                Y,
                run=dpvb.Run(
                    cluster=first, progress=stop, ledger=ledger, dataset="people", checkpoint=tmp_path / "run"
                ),
            )
        spent = ledger.remaining("people").epsilon
        model.fit(X, Y, run=dpvb.Run(cluster=second, ledger=ledger, dataset="people", checkpoint=tmp_path / "run"))
        assert ledger.remaining("people").epsilon == spent


def test_work_is_a_function_of_its_arguments() -> None:
    """Sums of any cut add up to the sums of the whole, drawn by place."""
    release = Release({"a": Block((1,), 1.0)}, Mechanism(Poisson(0.5), 1.0))
    design = Design(X, Y)
    work: Work[Any] = Work(_first, release, grids_of(release, None), InsecureNoise(1).words(step=3, purpose="sampling"))
    draw = work.draw(design, design.count)
    whole = work.sums(design.chunks(), draw)["a"]
    for number in (1, 2, 7, NUMBER):
        start, total = 0, np.zeros(1, dtype=np.int64)
        for part in design.parts(number):
            total += work.sums(part.chunks(), draw, start)["a"]
            start += part.count()
        assert np.array_equal(total, whole)
        assert whole != 0


def _first(rows: Any) -> Any:
    return {"a": Rows(rows.x_nd[:, :1])}


def test_fixed_size_batches_have_their_size_on_a_cluster(two: LocalPool) -> None:
    """The driver draws over all parts: never a share of each."""
    release = Release({"a": Block((1,), 1.0)}, Mechanism(FixedSize(17, NUMBER), 1e-9))
    plan = Plan([release] * 5)
    with spread(BagOfWords(COUNTS), None, two) as source:
        wall: Wall[Any] = Wall(source, plan, noise=InsecureNoise(2), n_units=NUMBER)
        sizes = [float(wall.release(ones, release).total["a"][0]) for _ in plan]
    assert np.allclose(sizes, 17, rtol=1e-4)


def test_the_cluster_is_offered_by_name() -> None:
    assert cluster.LocalPool is LocalPool
