"""What must not leave the wall: errors, logs, attributes, seeds, shapes, work.

Each test plants something private and recognisable, runs the real estimator or loop, and looks for it everywhere.
"""

from __future__ import annotations

import inspect
import json
import logging
import math
import os
import pickle
import random
import struct
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks.public_facts import check_estimator
from each import each
from planted import edit, kills
from scipy import sparse
from small_models import CASES, Case, table

import dpvb
from benchmarks.float64 import Float64Topics
from dpvb.accounting.events import NeighboringRelation
from dpvb.audit import kinds
from dpvb.audit.kinds import NAMES as AUDITED
from dpvb.core import loop
from dpvb.core.blocks import Block, Contributions
from dpvb.core.clipped_sums import Work
from dpvb.core.forms import Rows
from dpvb.core.model import constant
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, Chunk
from dpvb.errors import (
    FewUnitsWarning,
    LostInNoiseWarning,
    NotRecordedWarning,
    NotSettledWarning,
    PrivateComputationError,
)
from dpvb.models.topics import kernel_numba, lda

CANARY = 0.1234567890123
WIDTH = 12
PACKAGE = str(Path(dpvb.__file__).parent)


def documents(seed: int = 0, n: int = 30) -> np.ndarray:
    return np.random.default_rng(seed).poisson(1.0, (n, WIDTH)).astype(np.float64)


def estimator(**options: Any) -> Any:
    settings: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-5,
        "n_steps": 2,
        "random_state": 0,
        "max_iter": 10,
        "public_vocabulary": True,
    }
    return dpvb.LDA(3, **{**settings, **options})


@pytest.fixture(scope="module")
def _compiled() -> None:
    """Compile the kernels on public data first: the compiler logs, once a process."""
    estimator(sampling_prob=0.3).fit(sparse.csr_array(documents(seed=99)))


# --- errors -------------------------------------------------------------------------------------------------


class Secret(Exception):  # noqa: N818
    """An error that carries private data in its text, its arguments and its attributes."""


def spill(kind: str) -> None:
    text = f"row 17 is {CANARY!r}"
    if kind == "value":
        raise ValueError(text)
    if kind == "own":
        error = Secret(text, np.array([CANARY]))
        error.add_note(text)
        raise error
    if kind == "chained":
        try:
            raise KeyError(CANARY)
        except KeyError as error:
            raise Secret(text) from error
    if kind == "warning":
        warnings.warn(text, stacklevel=1)
        np.float64(CANARY) / np.float64(0.0)
        raise RuntimeWarning(text)
    if kind == "assertion":
        assert CANARY == 0.0, text
    raise BufferError(text)


class LeakyRows:
    def __init__(self, kind: str, place: str) -> None:
        self.kind, self.place = kind, place

    def __len__(self) -> int:
        if self.place == "rows":
            spill(self.kind)
        return 2


class LeakyContribution:
    def __init__(self, kind: str, place: str) -> None:
        self.kind, self.place = kind, place

    def of_block(self, block: Any, num_rows: int) -> Any:
        return self

    def norms(self) -> Any:
        if self.place == "norms":
            spill(self.kind)
        return np.full(2, CANARY)

    def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
        out += int(CANARY / grid.step)
        if self.place == "accumulate":
            spill(self.kind)


@dataclass
class LeakySource:
    """Fails in one of its methods with private data in hand."""

    kind: str
    place: str

    def count(self) -> int:
        if self.place == "count":
            spill(self.kind)
        return 2

    def chunks(self) -> Iterator[Chunk[LeakyRows]]:
        if self.place == "chunks":
            spill(self.kind)
        yield Chunk(slice(0, 2), None, 2, lambda _: LeakyRows(self.kind, self.place))
        if self.place == "after":
            spill(self.kind)


def leaky_query(rows: Any, kind: str, place: str) -> Contributions:
    len(rows)
    if place == "e_step":
        spill(kind)
    return {"a": LeakyContribution(kind, place)}


def frames_of(error: BaseException) -> Iterator[Any]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame
        trace = trace.tb_next


def reachable(value: Any, depth: int = 3) -> Iterator[Any]:
    """A value and what its attributes, items and closures hold."""
    yield value
    if depth == 0 or isinstance(value, (str, bytes, int, float, type(None))):
        return
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set)):
        inner = list(value)
    elif isinstance(value, BaseException):
        inner = [*value.args, value.__cause__, value.__context__, getattr(value, "__notes__", None)]
    for item in inner:
        yield from reachable(item, depth - 1)


@pytest.mark.guarantees("silence")
@kills("leaks", "the text of an exception comes out")
@edit(
    "core/wall.py",
    "        end = next((kind() for kind in STOPS if isinstance(error, kind)), end)\n",
    "        raise PrivateComputationError(str(error))\n",
)
@each("kind", ["value", "own", "chained", "warning", "assertion", "memory"])
@each("place", ["count", "chunks", "after", "rows", "e_step", "norms", "accumulate"])
def test_no_error_behind_the_wall_speaks(place: str, kind: str, caplog: Any, capfd: Any) -> None:
    sampler = FixedSize(2, 2) if place == "count" else FullBatch()
    plan = Plan([Release({"a": Block((1,), 1.0)}, Mechanism(sampler, 1.0))])
    source = LeakySource(kind, place)
    wall: Wall[Any] = Wall(source, plan)
    del source
    query = partial(leaky_query, kind=kind, place=place)
    if place == "rows":
        query = partial(lambda rows, **options: leaky_query(rows, **options), kind=kind, place=place)
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(PrivateComputationError) as caught:
            wall.release(query, plan.releases[0])
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None
    assert not hasattr(error, "__notes__")
    own_frames = [frame for frame in frames_of(error) if frame.f_code.co_filename.startswith(PACKAGE)]
    # No frame that saw data hangs on the error.
    assert [frame.f_code.co_name for frame in own_frames] == ["release", "_noised", "_behind"]
    held = own_frames[0].f_locals
    for value in reachable(held):
        assert not isinstance(value, (np.ndarray, BaseException, Chunk))
        assert "0.12345" not in repr(value)
    text = "".join(traceback.format_exception(error)) + caplog.text + "".join(capfd.readouterr())
    text += repr(error) + repr(error.args) + "".join(str(w.message) for w in warned)
    assert "0.12345" not in text
    assert "row 17" not in text
    assert sys.exc_info() == (None, None, None)


# --- models and logs ----------------------------------------------------------------------------------------


def traces(value: float) -> list[bytes]:
    """Bytes by which a float would show: raw in both precisions and byte orders, and as text."""
    raw = [struct.pack(code, value) for code in ("<d", ">d", "<f", ">f")]
    return [*raw, repr(value)[:9].encode()]


def topics(counts: np.ndarray, **options: Any) -> Any:
    return estimator(**options).fit(sparse.csr_array(counts))


def regression(x_nd: np.ndarray, **options: Any) -> Any:
    return dpvb.LogisticRegression(max_row_norm=4.0, epsilon=1.0, delta=1e-5, **options).fit(x_nd, x_nd[:, 0] > 1)


@pytest.mark.guarantees("models")
@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(
    ("fit", "options"),
    [
        (topics, {}),
        (topics, {"sampling_prob": 0.5}),
        (topics, {"batch_size": 5, "n_units": 40}),
        (regression, {}),
        (regression, {"covariance": "diagonal"}),
    ],
)
def test_a_fitted_model_holds_nothing_of_the_data(
    fit: Any, options: dict[str, Any], tmp_path: Path, caplog: Any, capfd: Any
) -> None:
    """A canary in every form, also rescaled, and every un-noised sum: nowhere in pickle, file, log or repr."""
    rows = documents()
    rows[3] = 0.0
    rows[3, 5:7] = CANARY, 1.0
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        # The first three speak of noisy numbers, and the last has one text for all fits.
        for category in (LostInNoiseWarning, FewUnitsWarning, NotSettledWarning, NotRecordedWarning):
            warnings.simplefilter("ignore", category)
        model = fit(rows, **options)
    model.save(tmp_path / "model.dpvb")
    everything = pickle.dumps(model) + (tmp_path / "model.dpvb").read_bytes() + repr(model).encode()
    everything += str(model.privacy_).encode() + json.dumps(model.privacy_.to_dict()).encode()
    everything += caplog.text.encode() + "".join(capfd.readouterr()).encode()
    scale, norm = 500.0 / (1.0 + CANARY), float(np.linalg.norm(rows[3]))
    sums = [float(rows.sum()), 500.0 * len(rows), *rows.sum(axis=0).tolist(), *(rows.T @ (rows[:, 0] > 1)).tolist()]
    for value in (CANARY, CANARY * scale, scale, CANARY / 4, norm, *(value for value in sums if value > 40)):
        for trace in traces(value):
            assert trace not in everything, value
    assert not warned
    assert caplog.text == ""


def neighbours() -> dict[str, Any]:
    """Data sets that differ from `documents()` in one record that strains a bound, a vocabulary or a type."""
    base = documents()
    beyond = sparse.csr_array(base)
    beyond.indices = beyond.indices.copy()
    beyond.indices[-1] = 10**6
    rows = {
        "longest": np.full(WIDTH, 1e9),
        "empty": np.zeros(WIDTH),
        "missing": np.full(WIDTH, math.nan),
        "negative": np.full(WIDTH, -3.0),
        "infinite": np.full(WIDTH, math.inf),
        "fractional": np.full(WIDTH, 0.1),
    }
    made: dict[str, Any] = {name: sparse.csr_array(np.vstack([base, row])) for name, row in rows.items()}
    return {**made, "word beyond the width": beyond, "nobody": sparse.csr_array((0, WIDTH))}


@pytest.mark.guarantees("nothing inferred")
def test_the_width_is_declared_and_not_found() -> None:
    assert {BagOfWords(data).width for data in neighbours().values()} == {WIDTH}


@pytest.mark.guarantees("nothing inferred")
@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize(
    ("name", "relation"),
    [
        *((name, "add_or_remove_one") for name in AUDITED),
        *(
            pytest.param(name, "replace_one", marks=[pytest.mark.slow] * (name != "LogisticRegression"))
            for name in AUDITED
        ),
    ],
)
def test_everything_but_the_noisy_numbers_is_the_same_on_neighbours(name: str, relation: NeighboringRelation) -> None:
    """Attributes, shapes, types, plan, statement, file, words, logs and warnings on D and D'.

    Whatever is the same with a record more is the same with another record: that is asked of one kind every day.
    """
    case = kinds.shipped(name)[0]
    for check in check_estimator(case, [relation]):
        assert check.passed, check.measured


# --- compiled code and work ---------------------------------------------------------------------------------


def test_nothing_is_compiled_because_of_the_data() -> None:

    def compiled() -> dict[str, list[Any]]:
        return {
            name: list(value.signatures) for name, value in vars(kernel_numba).items() if hasattr(value, "signatures")
        }

    estimator().fit(sparse.csr_array(documents()))
    before = compiled()
    assert before
    for data in neighbours().values():
        estimator().fit(data)
        estimator(sampling_prob=0.2).fit(data)
    assert compiled() == before


@kills("work", "fixed work that stops at convergence")
@edit(
    "models/topics/kernel_numba.py", "change < tol * num_topics and not fixed_iterations", "change < tol * num_topics"
)
def test_fixed_work_runs_every_document_to_the_same_iteration() -> None:
    """With fixed work the result is that of never stopping (tol = 0), also for documents that settle at once."""
    counts = np.vstack([documents(n=10), np.eye(WIDTH)[:3] * 7, np.full((1, WIDTH), 1e6)])
    batch = next(iter(BagOfWords(counts).chunks())).rows
    stopped_early = 0
    for max_iter in (10, 20, 40):
        fixed, never, early = (
            Float64Topics(3, WIDTH, doc_topic_prior=0.5, tol=tol, fixed_iterations=work)
            for tol, work in ((9e-5, True), (0.0, False), (9e-5, False))
        )
        q = fixed.init(np.random.default_rng(0))
        gamma = [model.local(q, batch, batch.counts, max_iter)[3] for model in (fixed, never, early)]
        assert np.array_equal(gamma[0], gamma[1])
        stopped_early += not np.array_equal(gamma[0], gamma[2])
    assert stopped_early


# --- taint --------------------------------------------------------------------------------------------------

_INSIDE = {Wall._sums.__code__, Work.sums.__code__}


def check_inside() -> None:
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code in _INSIDE:
            return
        frame = frame.f_back  # type: ignore[assignment]
    raise AssertionError("private data were read outside the wall")


class Guarded:
    """Any object whose every attribute raises when it is read outside the wall."""

    def __init__(self, value: Any, *, public: frozenset[str] = frozenset()) -> None:
        object.__setattr__(self, "_value", value)
        object.__setattr__(self, "_public", public)

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, "_value")
        if name in object.__getattribute__(self, "_public"):
            return getattr(value, name)
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        check_inside()
        inner = getattr(value, name)
        if name == "rows":
            return Guarded(inner)
        if name == "select":
            return lambda units: Guarded(inner(units))
        return inner


class GuardedSource:
    """A source of guarded chunks; only its public facts may be read anywhere."""

    def __init__(self, counts: np.ndarray) -> None:
        self._held = BagOfWords(counts)
        self.width, self.vocabulary, self.unit = self._held.width, None, "document"
        self.looks = 0

    def count(self) -> int:
        check_inside()
        self.looks += 1
        return self._held.count()

    def chunks(self) -> Iterator[Any]:
        check_inside()
        self.looks += 1
        for chunk in self._held.chunks():
            yield Guarded(chunk)


class GuardedContribution:
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def of_block(self, block: Any, num_rows: int) -> Any:
        return self

    def norms(self) -> Any:
        check_inside()
        return self._inner.norms()

    def accumulate(self, weights: Any, grid: Any, out: Any) -> None:
        check_inside()
        self._inner.accumulate(weights, grid, out)


@pytest.mark.guarantees("boundary")
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"sampling_prob": 0.5},
        {"batch_size": 5, "n_units": 40},
        {"length_rule": "resample"},
    ],
)
def test_data_and_statistics_are_read_inside_the_wall_alone(options: dict[str, Any], monkeypatch: Any) -> None:
    real = lda.LDAModel.e_step

    def guarded(self: Any, q: Any, batch: Any, blocks: Any) -> Any:
        return {name: GuardedContribution(part) for name, part in real(self, q, batch, blocks).items()}

    monkeypatch.setattr(lda.LDAModel, "e_step", guarded)
    source = GuardedSource(documents())
    calls: list[Any] = []
    model = estimator(**options).fit(source, run=dpvb.Run(progress=lambda *args: calls.append(args)))
    assert np.isfinite(model.components_).all()
    samplers = [release.mechanism.sampler.name for release in calls[-1][1]]
    assert len(calls) == len(samplers)
    assert source.looks == len(samplers) + samplers.count("fixed_size")  # as often as the plan says, on any data


@pytest.mark.guarantees("planted bugs")
def test_the_guard_of_this_test_bites() -> None:
    source = GuardedSource(documents())
    with pytest.raises(AssertionError, match="outside the wall"):
        next(source.chunks())
    with pytest.raises(AssertionError, match="outside the wall"):
        _ = Guarded(next(iter(BagOfWords(documents()).chunks()))).num_units


# --- randomness ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GivenStart:
    """A model with its start given, so that no public randomness is drawn; nor by M-steps that draw."""

    inner: Any
    start: Any
    draws: bool = False

    @property
    def blocks(self) -> Any:
        return self.inner.blocks

    def init(self, rng: Any) -> Any:
        return self.start

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return self.inner.e_step(q, batch, blocks)

    def started(self, s: Any, q: Any) -> Any:
        return q if self.draws else self.inner.started(s, q)

    def m_step(self, s: Any, q: Any) -> Any:
        return q if self.draws else self.inner.m_step(s, q)

    def finished(self, s: Any, q: Any) -> Any:
        return q if self.draws else self.inner.finished(s, q)


@pytest.mark.guarantees("generator")
@pytest.mark.parametrize(
    ("sampler", "case"),
    [
        # The wall draws batches, whatever the model is: drawn ones are asked of two models every day.
        pytest.param(sampler, case, id=f"{name}-{case.name}", marks=[pytest.mark.slow] * (name != "full" and place > 1))
        for name, sampler in {"full": FullBatch(), "poisson": Poisson(0.5), "fixed": FixedSize(3, 20)}.items()
        for place, case in enumerate([CASES[0], CASES[1], CASES[3], *(one for one in CASES if one.phase == "step")])
    ],
)
def test_private_randomness_comes_from_the_cryptographic_source_alone(
    case: Case, sampler: Any, monkeypatch: Any
) -> None:
    """NumPy's and Python's generators raise; sampling and noise still run."""
    start, rng = case.start(), np.random.default_rng(0)
    matrix = case.records(rng, 20)

    plan = case.whole(sampler, noise=[1.0, 2.0])
    wall: Wall[Any] = Wall(case.source(matrix), plan)
    # Gradients and hidden Markov models draw with a public, fixed seed after a release.
    draws = type(case.model).__module__.startswith(("dpvb.models.gradients", "dpvb.models.sequences.hidden_markov"))
    model = GivenStart(case.model, start, draws=draws)
    loop.fit(model, wall, plan, rho=constant(0.5), rng=None)  # type: ignore[arg-type]  # compiles and tries kernels

    def forbidden(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("a generator that is not cryptographic was used")

    for name in ("default_rng", "random", "normal", "standard_normal", "rand", "seed", "RandomState", "Generator"):
        monkeypatch.setattr(np.random, name, forbidden)
    for name in ("random", "gauss", "randint", "getrandbits", "shuffle", "seed", "Random"):
        monkeypatch.setattr(random, name, forbidden)
    wall = Wall(case.source(matrix), plan)
    _, estimate = loop.fit(model, wall, plan, rho=constant(0.5), rng=None)  # type: ignore[arg-type]
    assert estimate.receipt is not None
    assert estimate.receipt.private


def test_random_state_moves_the_start_and_never_the_noise() -> None:
    data = sparse.csr_array(documents())
    noiseless = [estimator(epsilon=math.inf, random_state=seed).fit(data).components_ for seed in (1, 1, 2)]
    assert np.array_equal(noiseless[0], noiseless[1])
    assert not np.array_equal(noiseless[0], noiseless[2])
    private = [estimator(random_state=1).fit(data) for _ in range(2)]
    assert not np.array_equal(private[0].components_, private[1].components_)
    state = np.random.get_state()[1].copy()  # type: ignore[index, union-attr]  # noqa: NPY002
    estimator(random_state=1).fit(data)
    assert np.array_equal(np.random.get_state()[1], state)  # type: ignore[index]  # noqa: NPY002


@pytest.mark.guarantees("generator")
def test_no_parameter_seeds_the_noise() -> None:
    """The private random bits depend on no argument: equal arguments give independent bits."""
    names = set(inspect.signature(dpvb.LDA).parameters) | set(inspect.signature(dpvb.LDA.fit).parameters)
    assert {name for name in names if "seed" in name or "noise" in name or "random" in name} == {
        "noise_multiplier",
        "random_state",
    }
    plan = Plan([Release({"a": Block((5000,), 1.0)}, Mechanism(Poisson(0.5), 1.0))])
    draws = []
    for _ in range(2):
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        os.environ["PYTHONHASHSEED"] = "1"
        wall: Wall[Any] = Wall(table(np.zeros((0, 1))), plan)
        draws.append(wall.release(lambda rows: {"a": Rows(np.zeros((len(rows), 5000)))}, plan.releases[0]).total["a"])
    assert abs(np.corrcoef(draws)[0, 1]) < 5 / math.sqrt(5000)
