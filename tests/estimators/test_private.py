"""What `PrivateModel` refuses before anything is spent, what its files hold, and what a run of it is continued with."""

from __future__ import annotations

import json
import logging
import math
import sys
import types
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from planted import edit, kills

import dpvb
from dpvb.core.model import Schedule
from dpvb.errors import CheckpointError, DpvbWarning, ModelFileError, ParameterError
from dpvb.estimators.private import ModelRows
from dpvb.results import model_file

X = np.full((40, 2), 0.5)
BUDGET: dict[str, Any] = {"epsilon": 0.5, "delta": 1e-6, "max_row_norm": 1.0}
NO_NOISE: dict[str, Any] = {"epsilon": math.inf, "delta": 1e-6, "max_row_norm": 1.0}


@dataclass(frozen=True)
class Sum(dpvb.Model):
    """The sum of the rows; one of its members is broken in each class below."""

    power: float = 1.0
    prior: Any = None
    n_steps: int = 2
    score_range: ClassVar[Any] = (-1.0, 1.0)

    @property
    def blocks(self) -> Any:
        return {"s": dpvb.Block((2,), 1.0)}

    def init(self, rng: np.random.Generator) -> Any:
        return np.zeros(2)

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"s": dpvb.Rows(batch**self.power)}

    def m_step(self, s: dpvb.Estimate, q: Any) -> Any:
        return s.noisy("s")

    def score(self, q: Any, batch: Any) -> Any:
        return batch.sum(axis=1)


def broken(**members: Any) -> Sum:
    """A model with other members than `Sum`."""
    return type("Broken", (Sum,), members)()


def raising(*_: Any, **__: Any) -> Any:
    raise KeyError("mu")


def in_place(self: Any, q: Any, batch: Any, blocks: Any) -> Any:
    batch *= 0.5
    return {"s": dpvb.Rows(batch)}


@dataclass(frozen=True)
class Inner:
    b: Any


@dataclass(frozen=True)
class Clash:
    a: Inner
    a__b: Any


@dataclass(frozen=True)
class Computed:
    mean: Any
    size: int = field(init=False, default=2)


BROKEN: dict[str, tuple[Any, str]] = {
    "a matrix for a field": (Sum(prior=np.eye(2)), "prior is ndarray.*tuples"),
    "a dict for a field": (Sum(prior={"a": 1}), "prior is dict"),
    "NaN for a field": (Sum(prior=math.nan), "prior is float"),
    "a list for a field": (Sum(prior=[1, 2]), "prior is list"),
    "a function for a field": (Sum(prior=print), "prior is builtin_function.*method of the model"),
    "a field of another type": (Sum(power="high"), "power is of another type"),  # type: ignore[arg-type]
    "no blocks": (broken(blocks={}), "at least one block|at least one release"),
    "blocks that are none": (broken(blocks=[dpvb.Block((2,), 1.0)]), "its blocks gave AttributeError"),
    "a name that cannot be printed": (broken(blocks={"s\n": dpvb.Block((2,), 1.0)}), "must be printable, got 's"),
    "an e_step that raises": (broken(e_step=raising), "e_step on a row of zeros.*KeyError: 'mu'"),
    "an e_step that writes into rows": (broken(e_step=in_place), "e_step on a row of zeros.*read-only"),
    "no dict of forms": (broken(e_step=lambda self, q, x, blocks: dpvb.Rows(x)), "dict of forms, got Rows"),
    "no form": (broken(e_step=lambda self, q, x, blocks: {"s": x}), r"form.*block 's' of shape \(2,\), got ndarray"),
    "a block that is missing": (
        broken(e_step=lambda self, q, x, blocks: {"t": dpvb.Rows(x)}),
        r"returns block 's' of shape \(2,\); it returned \['t'\]",
    ),
    "another shape": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(np.zeros((len(x), 5)))}),
        r"block 's' of shape \(2,\).*Rows\(values \(1, 5\)\)",
    ),
    "a column for a block of two": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x[:, :1])}),
        r"block 's' of shape \(2,\).*Rows\(values \(1, 1\)\)",
    ),
    "one row too few": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x[1:])}),
        r"block 's'.*Rows\(values \(0, 2\)\)",
    ),
    "an e_step that fails without rows": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x - x.max())}),
        "e_step on no rows.*zero-size",
    ),
    "an e_step that fails for two rows": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x[: x.shape[0] + 1 - x.shape[0] ** 2 // 2])}),
        "e_step on two synthetic rows.*shape",
    ),
    "NaN for every row": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(np.full((len(x), 2), math.nan))}),
        "NaN or infinity for each of two",
    ),
    "statistics of the whole batch": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x - x.mean(axis=0) if len(x) else x)}),
        "the statistics of a row change with the other rows",
    ),
    "NaN replaced by numbers": (
        broken(e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(np.nan_to_num(x) + 0.1)}),
        "numbers for a row that is NaN throughout",
    ),
    "an init that raises": (broken(init=raising), "init gave KeyError"),
    "a start that is not finite": (broken(init=lambda self, rng: np.full(2, math.nan)), "q must be finite"),
    "an m_step that raises": (broken(m_step=raising), "m_step gave KeyError"),
    "an m_step that always gives NaN": (
        broken(m_step=lambda self, s, q: {"mean": q if isinstance(q, np.ndarray) else 0.0, "rate": math.nan}),
        r"m_step returned an invalid q.*q\.rate must be finite.*3 \* s\.noise_std",
    ),
    "an m_step that always divides by 0": (
        broken(m_step=lambda self, s, q: np.full(2, 1 // round(0 * s.noisy("s")[0]))),
        "m_step gave ZeroDivisionError",
    ),
    "an m_step that returns another q": (
        broken(
            e_step=lambda self, q, x, blocks: {"s": dpvb.Rows(x * q.mean())},
            m_step=lambda self, s, q: {"mean": s.noisy("s")},
        ),
        "e_step on a row of zeros.*no attribute 'mean'",
    ),
    "a q of a class that cannot be saved": (broken(m_step=lambda self, s, q: {1: q}), "key 1, which is not a name"),
    "a q of text": (broken(m_step=lambda self, s, q: "a"), "q is str"),
    "a q of truth values": (broken(m_step=lambda self, s, q: q > 0), "dtype"),
    "a q with two parts of one name": (broken(m_step=lambda self, s, q: Clash(Inner(q), q)), "q__a__b"),
    "a q with a computed field": (broken(m_step=lambda self, s, q: Computed(q)), "Computed.size"),
    "a column of scores": (broken(score=lambda self, q, x: x[:, :1]), r"score on a row of zeros.*shape \(1, 1\)"),
    "one score for all": (broken(score=lambda self, q, x: 0.5), r"score on a row of zeros.*shape \(\)"),
    "scores of text": (broken(score=lambda self, q, x: np.array(["a"] * len(x))), "score on a row of zeros.*dtype"),
    "a score that raises": (broken(score=raising), "score on a row of zeros.*KeyError"),
    "no step in the schedule": (broken(schedule=Schedule(())), "at least one step"),
    "a step size that raises": (broken(schedule=Schedule((1.0,), rho=raising)), "step size gave KeyError"),
}


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with dpvb.Ledger(tmp_path / "budget.db") as made:
        made.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.0, delta=1e-5)
        yield made


def test_rows_without_a_bound_are_refused_with_the_ways_out(ledger: Any) -> None:
    model = dpvb.PrivateModel(Sum(), epsilon=0.5, delta=1e-6)
    ways = r"^X needs public bounds on its numbers, max_row_norm, got none\. .*\(1\) max_row_norm=, .*private_range"
    for rows in (X, X.tolist(), 1000.0 * X):
        with pytest.raises(ParameterError, match=ways) as caught:
            model.fit(rows, run=dpvb.Run(ledger=ledger, dataset="people"))
        assert "\n" not in str(caught.value)
    assert len(ledger.entries()) == 1  # of the registration


@pytest.mark.parametrize(("model", "words"), BROKEN.values(), ids=BROKEN)
def test_a_public_fault_of_a_model_is_named_before_anything_is_spent(model: Any, words: str, ledger: Any) -> None:
    with pytest.raises(ParameterError, match=words):
        dpvb.PrivateModel(model, **BUDGET).fit(X, run=dpvb.Run(ledger=ledger, dataset="people"))
    assert len(ledger.entries()) == 1  # of the registration


def test_an_error_of_a_model_is_the_cause_of_its_refusal() -> None:
    with pytest.raises(ParameterError) as caught:
        dpvb.PrivateModel(broken(e_step=raising), **NO_NOISE).fit(X)
    assert isinstance(caught.value.__cause__, KeyError)


RANGES = [(1.0, -1.0), (0.0, 0.0), (math.nan, 1.0), (-math.inf, 1.0), (-1e308, 1e308), "ab", (1,), (-1, 1, 2)]


@pytest.mark.parametrize("ends", RANGES)
def test_a_range_of_scores_that_is_none_is_named_before_anything_is_spent(ends: Any, ledger: Any) -> None:
    estimator = dpvb.PrivateModel(broken(score_range=ends), **BUDGET)
    run = dpvb.Run(ledger=ledger, dataset="people")
    with pytest.raises(ParameterError, match="score_range"):
        dpvb.private_select(estimator, [{}], X, epsilon=0.5, delta=1e-6, run=run)
    assert len(ledger.entries()) == 1  # of the registration


@pytest.mark.parametrize("missing", [{"score_range": None}, {"score": dpvb.Model.score}])
def test_a_model_without_a_score_is_fitted_and_not_selected(missing: dict[str, Any], ledger: Any) -> None:
    estimator, run = dpvb.PrivateModel(broken(**missing), **BUDGET), dpvb.Run(ledger=ledger, dataset="people")
    with pytest.raises(
        ParameterError, match=r"define score\(q, batch\) and declare score_range: its rows have no scores"
    ):
        dpvb.private_select(estimator, [{}], X, epsilon=0.5, delta=1e-6, run=run)
    assert len(ledger.entries()) == 1  # of the registration
    estimator.fit(X, run=run)


SOUND: dict[str, dict[str, Any]] = {
    "shapes and bounds of NumPy": {"blocks": {"s": dpvb.Block([np.int64(2)], np.float32(1.0))}},  # type: ignore[arg-type]
    "a mean, which a sum of nothing has not": {"m_step": lambda self, s, q: s.noisy("s") / np.sign(s.noisy("s"))},
    "an m_step that needs units": {"m_step": lambda self, s, q: np.linalg.inv(np.diag(s.noisy("s")))},
    "a covariance that noise alone has not": {
        "blocks": {"s": dpvb.Block((2, 2), 1.0, "gram")},
        "e_step": lambda self, q, batch, blocks: {"s": dpvb.Gram(batch, np.ones(len(batch)) + 0 * batch[:, 0])},
        "m_step": lambda self, s, q: np.linalg.cholesky(s.noisy("s") + 1e-3 * np.eye(2)).diagonal(),
    },
    "an m_step that divides": {"m_step": lambda self, s, q: q + 1 / float(s.noisy("s")[0])},
}


@pytest.mark.parametrize("members", SOUND.values(), ids=SOUND)
def test_a_model_that_only_no_data_make_fail_is_fitted(members: dict[str, Any]) -> None:
    model = dpvb.PrivateModel(replace(broken(**members), n_steps=1), **NO_NOISE).fit(X)
    assert np.isfinite(model.q_).all()


@pytest.mark.guarantees("smoke tests")
@kills("leaks", "a tryout on the private rows")
@edit(
    "estimators/private.py",
    "return ModelRows(design, response is not None), nobody",
    "return ModelRows(design, response is not None), ModelRows(design, response is not None)",
)
def test_a_tryout_looks_at_no_row_of_the_data() -> None:
    def seen(rows: np.ndarray) -> list[bytes]:
        batches = []

        def e_step(self: Any, q: Any, batch: Any, blocks: Any) -> Any:
            batches.append(batch.tobytes())
            return {"s": dpvb.Rows(batch)}

        dpvb.PrivateModel(broken(e_step=e_step), **NO_NOISE)._task(rows, group=range(len(rows)))
        return batches

    assert seen(X)
    assert seen(X) == seen(X[::-1] / 2) == seen(X[:3])


def test_a_text_of_several_lines_is_told_in_one() -> None:
    model = dpvb.PrivateModel(Sum(prior="a\nb"), **NO_NOISE).fit(X)
    assert any(r"prior = 'a\nb'" in fact for fact in model.privacy_.public)


def test_num_steps_says_what_a_model_needs_for_it() -> None:
    @dataclass(frozen=True)
    class Fixed(Sum):
        n_steps: ClassVar[int] = 2

    with pytest.raises(ParameterError, match="declare `n_steps: int` in it"):
        dpvb.PrivateModel(Fixed(), n_steps=3, **NO_NOISE).fit(X)


@pytest.mark.parametrize("n_units", [0, -1, 2.5, "many"])
def test_a_number_of_examples_that_is_none_is_named_before_anything_is_spent(n_units: Any, ledger: Any) -> None:
    with pytest.raises(ParameterError, match="n_units"):
        dpvb.PrivateModel(Sum(), n_units=n_units, **BUDGET).fit(X, run=dpvb.Run(ledger=ledger, dataset="people"))
    assert len(ledger.entries()) == 1  # of the registration


@dataclass(frozen=True)
class Once(Sum):
    """A mean, released once: its number and its sum."""

    @property
    def blocks(self) -> Mapping[str, dpvb.Block]:
        return {"n": dpvb.Block((1,), 1.0, phase="first"), "s": dpvb.Block((2,), 1.0, phase="first")}

    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"n": dpvb.Rows(np.where(np.isnan(batch[:, :1]), np.nan, 1.0)), "s": dpvb.Rows(batch)}

    def started(self, s: dpvb.Estimate, q: Any) -> Any:
        return s.noisy("s") / np.maximum(s.noisy("n"), 1.0)


def test_a_statistic_that_is_released_once_takes_the_whole_budget() -> None:
    model = dpvb.PrivateModel(Once(), **NO_NOISE).fit(X)
    np.testing.assert_allclose(model.q_, [0.5, 0.5], rtol=1e-5)
    assert model.n_iter_ == 0
    plan = dpvb.PrivateModel(Once(), **BUDGET)._task(X).plan
    assert len(plan) == 1
    assert 0.49 < plan.epsilon(1e-6) <= 0.5


def test_joint_clipping_keeps_the_ratio_of_a_persons_sums() -> None:
    """A person of forty equal rows: the mean is theirs with one factor for both sums, and another with two."""
    group = np.zeros(len(X), dtype=int)
    jointly = dpvb.PrivateModel(Once(), clipping="joint", **NO_NOISE).fit(0.5 * X, group=group)
    apart = dpvb.PrivateModel(Once(), clipping="block", **NO_NOISE).fit(0.5 * X, group=group)
    assert "clipped jointly" in str(jointly.privacy_)
    assert "clipped jointly" not in str(apart.privacy_)
    number, total = (_sums(Once(), clip, group) for clip in ("joint", "block"))
    np.testing.assert_allclose(number["s"] / number["n"], 0.25, rtol=1e-5)
    assert (total["s"] / total["n"] > 0.6).all()
    assert jointly.q_.shape == apart.q_.shape
    with pytest.raises(ParameterError, match="clipping must be one of 'block', 'joint'"):
        dpvb.PrivateModel(Once(), clipping="all", **NO_NOISE).fit(X)  # type: ignore[arg-type]


class Households:
    """A source of somebody's own, of which nobody knows how many rows a unit has."""

    unit = "household"

    def __init__(self, design: Any) -> None:
        self._rows = ModelRows(design)

    def count(self) -> int:
        return self._rows.count()

    def chunks(self) -> Any:
        return self._rows.chunks()

    def empty(self) -> Any:
        return next(ModelRows(dpvb.data.Design(X[:0], max_row_norm=1.0)).chunks())


def test_units_of_several_rows_are_clipped_by_one_factor_unless_asked_otherwise() -> None:
    group, design = np.zeros(len(X), dtype=int), dpvb.data.Design(X, max_row_norm=1.0)
    for clip, data, given, found in [
        (None, X, None, "block"),
        (None, X, group, "joint"),
        (None, X, np.arange(len(X)), "joint"),  # Whether somebody has several rows is private.
        (None, Households(design), None, "joint"),
        ("block", X, group, "block"),
        ("block", Households(design), None, "block"),
        ("joint", X, None, "joint"),
    ]:
        private = dpvb.PrivateModel(Once(), clipping=clip, **NO_NOISE)  # type: ignore[arg-type]
        assert {release.clipping for release in private._task(data, group=given).plan} == {found}


@pytest.mark.guarantees("smoke tests")
@kills("leaks", "what a source says of its rows is told before the charge")
@edit(
    "estimators/private.py",
    "    with suppress(Exception), silence(logs=True):\n        empty = source",
    "    with said('empty()'):\n        empty = source",
)
@pytest.mark.parametrize("how", ["raises", "warns", "returns units"])
def test_what_a_source_of_ones_own_says_of_its_rows_is_not_told(
    how: str, recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    class Telling(Households):
        def empty(self) -> Any:
            if how == "raises":
                raise ValueError("income 123456")
            warnings.warn("income 123456", stacklevel=1)
            logging.getLogger("source").error("income 123456")
            return next(self.chunks()) if how == "returns units" else super().empty()

    private, source = dpvb.PrivateModel(Once(), **NO_NOISE), Telling(dpvb.data.Design(X, max_row_norm=1.0))
    if how == "warns":
        private._task(source)
    else:
        with pytest.raises(ParameterError, match="The reason is not shown") as caught:
            private._task(source)
        assert caught.value.__context__ is None
        assert "123456" not in str(caught.value)
    assert not [one for one in recwarn if "123456" in str(one.message)]
    assert not caplog.records


@dataclass(frozen=True)
class Visits:
    """q: the share of people's visits that can have no event, and the mean number of events of the others."""

    never: float
    mean: float


@dataclass(frozen=True)
class ZeroInflatedPoisson(dpvb.Model):
    """Numbers of events, of which zeros have two causes."""

    most: int = 15
    n_steps: int = 15

    @property
    def blocks(self) -> Mapping[str, dpvb.Block]:
        return {"visits": dpvb.Block((2,), 1.0, "nonnegative"), "events": dpvb.Block((1,), 1.0, "nonnegative")}

    def init(self, rng: Any) -> Visits:
        return Visits(0.5, 2.0)

    def e_step(self, q: Visits, batch: Any, blocks: Any) -> Any:
        never = q.never / (q.never + (1 - q.never) * math.exp(-q.mean))
        never_n = np.where(np.isnan(batch[:, 0]), np.nan, np.where(batch[:, 0] * self.most < 0.5, never, 0.0))
        events = (1 - never_n) * batch[:, 0]
        return {"visits": dpvb.Rows(np.column_stack([never_n, 1 - never_n])), "events": dpvb.Rows(events[:, None])}

    def m_step(self, s: dpvb.Estimate, q: Visits) -> Visits:
        never, others = np.maximum(s.project("visits"), 3 * s.noise_std("visits"))
        mean = float(s.project("events")[0]) * self.most / others
        return Visits(float(np.clip(never / (never + others), 0.01, 0.99)), float(np.clip(mean, 0.1, self.most)))


@pytest.mark.parametrize("epsilon", [4.0, math.inf])
def test_a_zero_inflated_poisson_of_people_with_several_visits_finds_its_mean(epsilon: float) -> None:
    """Of 4,000 people the noise of the mean is below 0.05 at epsilon = 4: the bound is 8 standard deviations away."""
    rng = np.random.default_rng(0)
    person = np.repeat(np.arange(4_000), rng.integers(1, 9, 4_000))
    count = np.where(rng.random(len(person)) < 0.3, 0, rng.poisson(3.06, len(person)))
    y, given = np.minimum(count, 15)[:, None].astype(float), {"max_row_norm": 15.0, "delta": 1e-6, "random_state": 0}
    model = dpvb.PrivateModel(ZeroInflatedPoisson(), epsilon=epsilon, **given).fit(y, group=person)  # type: ignore[arg-type]
    assert abs(model.q_.mean - 3.06) < 0.4
    assert abs(model.q_.never - 0.3) < 0.1
    assert "clipped jointly" in str(model.privacy_)
    apart = dpvb.PrivateModel(ZeroInflatedPoisson(), clipping="block", epsilon=epsilon, **given).fit(y, group=person)  # type: ignore[arg-type]
    assert apart.q_.mean > 6


def _sums(model: Any, clip: Any, group: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def started(self: Any, s: dpvb.Estimate, q: Any) -> Any:
        found.update({name: s.noisy(name) for name in ("n", "s")})
        return q

    kept = type("Kept", (Once,), {"started": started})()
    dpvb.PrivateModel(kept, clipping=clip, **NO_NOISE).fit(0.5 * X, group=group)
    return found


class StoppedError(Exception):
    pass


@dataclass(frozen=True)
class Other(Sum):
    def e_step(self, q: Any, batch: Any, blocks: Any) -> Any:
        return {"s": dpvb.Rows(-batch)}


@pytest.mark.guarantees("own model")
@kills("crashes", "a run continued with another model")
@edit("estimators/base.py", '"others": others, "learned": declared(model)}', '"others": {}, "learned": {}}')
@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"model": Other()}, "class"),
        ({"model": Sum(power=3.0)}, "power"),
        ({"model": Sum(prior=(1, (2.0, "a")))}, "prior"),
        ({"max_row_norm": 2.0}, "max_row_norm"),
    ],
)
def test_a_run_is_continued_and_read_with_its_own_model_alone(
    changed: dict[str, Any], name: str, ledger: Any, tmp_path: Path
) -> None:
    given = {"model": Sum(), **BUDGET}
    run = dpvb.Run(ledger=ledger, dataset="people", checkpoint=tmp_path / "run")

    def stop(step: int, plan: Any) -> None:
        raise StoppedError

    with pytest.raises(StoppedError):
        dpvb.PrivateModel(**given).fit(X, run=replace(run, progress=stop))
    with pytest.raises(CheckpointError, match=f"another .*{name}"):
        dpvb.PrivateModel(**given | changed).fit(X, run=run)
    fitted = dpvb.PrivateModel(**given).fit(X, run=run)
    with pytest.raises(CheckpointError, match=f"another .*{name}"):
        dpvb.PrivateModel(**given | changed).fit(X, run=replace(run, resume="load"))
    np.testing.assert_array_equal(dpvb.PrivateModel(**given).fit(X, run=replace(run, resume="load")).q_, fitted.q_)


def test_a_run_that_an_earlier_version_began_is_continued(ledger: Any, tmp_path: Path) -> None:
    given = {"model": Sum(), **BUDGET}
    run = dpvb.Run(ledger=ledger, dataset="people", checkpoint=tmp_path / "run")
    fitted = dpvb.PrivateModel(**given).fit(X, run=run)
    path = tmp_path / "run" / "run.json"
    kept = json.loads(path.read_text())
    kept["facts"] = {name: kept["facts"][name] for name in ("model", "params", "accountant")}
    path.write_text(json.dumps(kept))
    np.testing.assert_array_equal(dpvb.PrivateModel(**given).fit(X, run=replace(run, resume="load")).q_, fitted.q_)


class Pair(NamedTuple):
    mean: Any
    scale: float


@dataclass(frozen=True)
class Tree:
    rate: float
    count: int
    inner: Any


QS: dict[str, Any] = {
    "an array": np.arange(2.0),
    "single precision": np.arange(2, dtype=np.float32),
    "a number": 0.25,
    "a number of NumPy": np.float64(0.25),
    "a named tuple": Pair(np.ones(3), 2.0),
    "a data class": Tree(0.5, 3, Inner(np.eye(2))),
    "a dict": {"mean": np.ones(2), "rest": (1.0, [np.zeros(1), 2])},
    "no rows": np.zeros((0, 4)),
}


@dataclass(frozen=True)
class Constant(Sum):
    """A model of which q is what `name` says, whatever the rows are."""

    name: str = "an array"

    def init(self, rng: np.random.Generator) -> Any:
        return QS[self.name]

    def m_step(self, s: dpvb.Estimate, q: Any) -> Any:
        return q


@pytest.mark.parametrize("name", QS)
def test_every_form_of_q_goes_to_a_file_and_back(name: str, tmp_path: Path) -> None:
    dpvb.PrivateModel(Constant(name=name), **NO_NOISE).fit(X).save(tmp_path / "m.dpvb")
    assert _told(dpvb.load(tmp_path / "m.dpvb").q_) == _told(QS[name])


def _told(value: Any) -> Any:
    """A tree with its types, dtypes and numbers."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tolist()
    if isinstance(value, (tuple, list)):
        return type(value), [_told(part) for part in value]
    parts = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    return type(value), value if parts is None else {name: _told(part) for name, part in parts.items()}


def test_fields_of_a_model_come_back_without_types_of_numpy(tmp_path: Path) -> None:
    given = Sum(power=np.float64(2.0), prior=(1, (np.int64(2), "a\nb"), None, True))
    dpvb.PrivateModel(given, **NO_NOISE).fit(X).save(tmp_path / "m.dpvb")
    found = dpvb.load(tmp_path / "m.dpvb").model
    assert found == given
    assert type(found.power) is float


def test_a_class_that_no_reader_could_find_is_not_saved(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(Sum):
        pass

    with pytest.warns(DpvbWarning, match=r"Local is defined inside a function: its fits cannot be saved\..*local\.py"):
        fitted = dpvb.PrivateModel(Local(), **NO_NOISE).fit(X)
    with pytest.raises(ModelFileError, match="must be defined at the top level of a module"):
        fitted.save(tmp_path / "m.dpvb")
    assert not list(tmp_path.iterdir())


def test_a_class_of_a_script_is_told_before_the_charge_that_other_programs_cannot_load_it(ledger: Any) -> None:
    own = type("Own", (Sum,), {"__module__": "__main__"})()
    run = dpvb.Run(ledger=ledger, dataset="people")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DpvbWarning)
        with pytest.raises(DpvbWarning, match=r"Own is defined in this program .* module, such as own\.py"):
            dpvb.PrivateModel(own, **BUDGET).fit(X, run=run)
    assert len(ledger.entries()) == 1  # of the registration


@dataclass(frozen=True)
class Square(Sum):
    """A model whose start is as large as a file says."""

    k: int = 3

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return np.zeros((self.k, self.k))

    def m_step(self, s: dpvb.Estimate, q: Any) -> Any:
        return q


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> model_file.StoredModel:
    path = tmp_path_factory.mktemp("models") / "m.dpvb"
    dpvb.PrivateModel(Square(), **NO_NOISE).fit(X).save(path)
    return model_file.load(path)


def _again(stored: model_file.StoredModel, path: Path, **facts: Any) -> Any:
    """The model of a file with other facts, or other fields of what was learned."""
    learned = {**stored.facts["learned"]}
    learned |= {name: value for name, value in facts.items() if name in learned}
    others = {name: value for name, value in facts.items() if name not in learned}
    model_file.save(path, kind=stored.kind, arrays=stored.arrays, facts={**stored.facts, **others, "learned": learned})
    return dpvb.load(path)


@pytest.mark.guarantees("safe models")
@kills("code", "a start as large as a model file says")
@edit(
    "estimators/private.py", "        self.n_features", "        self._fitted_model.init(None)\n        self.n_features"
)
def test_a_file_makes_nothing_that_is_larger_than_itself(stored: Any, tmp_path: Path) -> None:
    """With a k of 10⁹ the model's own start would take 8·10¹⁸ bytes."""
    found = _again(stored, tmp_path / "m.dpvb", fields={**stored.facts["learned"]["fields"], "k": 10**9})
    assert found.q_.shape == (3, 3)


HOSTILE: dict[str, dict[str, Any]] = {
    "a text for a number": {"fields": {"k": "3"}},
    "half a number": {"fields": {"k": 2.5}},
    "nothing for a number": {"fields": {"k": None}},
    "another field": {"fields": {"seed": 3}},
    "no fields": {"fields": []},
    "steps of another type": {"steps": [1]},
    "too many steps": {"steps": 1e300},
    "a width of another type": {"width": {"a": 1}},
    "parameters of another type": {"params": {"epsilon": [], "delta": 1e-6}},
    "a parameter that is not": {"params": {"epsilon": 1.0, "delta": 1e-6, "self": 1}},
    "a model that is none": {"model": ["x"]},
    "a model without a name": {"model": ":"},
    "a model of another kind of class": {"model": f"{__name__}:Pair"},
    "an estimator that is none": {"class": f"{__name__}:Square"},
    "a form of a class that is none": {"q": {"class": f"{__name__}:StoppedError", "parts": {}}},
    "a form of a class with other parts": {"q": {"class": f"{__name__}:Pair", "parts": {"mean": "array"}}},
    "a form that leaves an array over": {"q": {"class": "dict", "parts": {}}},
    "a form of another number": {"q": "float"},
    "a form of no kind": {"q": 3},
}


@pytest.mark.parametrize("facts", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_file_of_a_model_is_refused_as_a_file(facts: dict[str, Any], stored: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError):
        _again(stored, tmp_path / "m.dpvb", **facts)


@dataclass(frozen=True)
class Refusing(Sum):
    """A model whose constructor raises what nobody foresaw."""

    def __post_init__(self) -> None:
        if self.prior == "raise":
            raise StoppedError
        if self.prior == "stop":
            raise KeyboardInterrupt


def test_what_a_class_of_others_raises_is_a_fault_of_the_file_and_who_stops_it_stops_it(tmp_path: Path) -> None:
    path = tmp_path / "m.dpvb"
    dpvb.PrivateModel(Refusing(), **NO_NOISE).fit(X).save(path)
    stored = model_file.load(path)
    with pytest.raises(ModelFileError):
        _again(stored, path, fields={"prior": "raise"})
    with pytest.raises(KeyboardInterrupt):
        _again(stored, path, fields={"prior": "stop"})


@pytest.mark.guarantees("safe models")
@kills("code", "a module asked for what a model file names")
@edit("guards/untrusted.py", "vars(sys.modules[module]).get(name) if", "getattr(sys.modules[module], name, None) if")
def test_no_module_runs_code_for_what_a_file_says(stored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lazy, asked = types.ModuleType("lazy"), []
    lazy.__getattr__ = asked.append  # type: ignore[method-assign,assignment]
    monkeypatch.setitem(sys.modules, "lazy", lazy)
    for facts in ({"model": "lazy:Model"}, {"class": "lazy:Kind"}, {"q": {"class": "lazy:Q", "parts": {}}}):
        with pytest.raises(ModelFileError):
            _again(stored, tmp_path / "m.dpvb", **facts)
    assert asked == []


def _module(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of somebody's with an estimator of that name."""
    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    made = type(kind, (dpvb.PrivateModel,), {"__module__": name, "__qualname__": kind})
    setattr(module, kind, made)
    return made


@pytest.mark.parametrize("kind", ["Hospital", "PrivateModel"])
def test_two_classes_of_one_name_stay_two(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = [_module(name, kind, monkeypatch) for name in ("theirs", "mine")]
    for own in (*made, dpvb.PrivateModel):
        own(Sum(), **NO_NOISE).fit(X).save(tmp_path / "m.dpvb", overwrite=True)
        assert type(dpvb.load(tmp_path / "m.dpvb")) is own
