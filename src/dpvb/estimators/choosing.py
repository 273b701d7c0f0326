"""Releases that choose: a model among several settings (`select`), and a column's range (`private_range`).

Settings are chosen by random stopping and noisy scores, at one charge (Liu & Talwar 2019; Papernot & Steinke 2022). A
secret coin for each unit says, once for the whole selection, whether it is fitted or scored. Then K times, K drawn from
a distribution that does not depend on the data: a candidate drawn at random is fitted privately, and its score on the
other units released with noise. Only the best run leaves; of the others nothing does, not even how many there were.

**Why a run costs the dearer of its two parts, not their sum.** Neighbouring data sets differ in one unit (more or
less, or another in its place); couple their coins so that the others' are equal. Given all coins, that unit is fitted
or it is scored. If it is fitted, the fit costs the accountant's epsilon, and the score is computed from its result
and from units that both data sets share: post-processing. If it is scored, both fits are the same, and the score
release costs what it costs. The coins do not depend on what the unit holds, so the run is a mixture of the two cases
with equal weights in both data sets, and Rényi divergence is quasi-convex: the larger cost bounds it. The same
argument covers the candidates' draw, and all K runs, which share their coins. It holds under "replace_one" as well:
the unit in another's place is given the other's coin.

**Why a failure tells nothing more.** A run that fails counts as better than every other: it ends the selection with
one error that is always the same, and the theorem allows any order of outcomes.

A range for a numeric column is chosen by one small private release.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from dpvb.accounting import budget_warnings
from dpvb.accounting.costs import Composition
from dpvb.accounting.selection import NumberOfRuns, Selection, selection_scale
from dpvb.core import loop
from dpvb.core.blocks import Block, Contributions
from dpvb.core.counting import Counts
from dpvb.core.forms import Rows, SparseRows
from dpvb.core.noise import NoiseSource, SecureNoise, Words
from dpvb.core.plan import Mechanism, Plan, Release, calibrated
from dpvb.core.sampling import FullBatch
from dpvb.core.source import ChunkOfUnits, Source
from dpvb.core.wall import Wall
from dpvb.data.slabs import Which
from dpvb.data.spelling import as_numbers
from dpvb.data.tables.matrices import column
from dpvb.data.units import Chunk, Held, Units
from dpvb.estimators.base import PrivateEstimator, Task, generator
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.private_words import check_known
from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import (
    LedgerError,
    OutOfMemoryError,
    ParameterError,
    PrivateComputationError,
    check_choice,
    check_integer,
    check_number,
)
from dpvb.guards.missing_arguments import says_what_lacks
from dpvb.guards.suppress_output import silence
from dpvb.results.statement import ChargeFacts, PrivacyStatement, SelectionFacts
from dpvb.runs.run import Run

# Each with its inverse.
_TRANSFORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "none": (np.positive, np.positive),
    "log1p": (np.log1p, np.expm1),
    "asinh": (np.arcsinh, np.sinh),
}


@dataclass(frozen=True)
class PrivateRange:
    """Released range; public.

    Attributes:
        low, high: Limits that contain the chosen share of the values, on the grid.
        privacy: Privacy statement of the release. Its ε and δ add to those of other releases of the same data.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> ages = np.random.default_rng(0).uniform(18, 90, 20_000)
        >>> low, high = dpvb.private_range(ages, low=0.0, high=128.0, epsilon=1.0, delta=1e-6)
        >>> low < 30 and high > 80
        True
    """

    low: float
    high: float
    privacy: PrivacyStatement

    def __iter__(self) -> Iterator[float]:
        """So that `low, high = private_range(...)`."""
        return iter((self.low, self.high))


@says_what_lacks
def private_range(
    values: object,
    *,
    low: float,
    high: float,
    epsilon: float,
    delta: float,
    share: float = 0.99,
    transform: Literal["log1p", "asinh"] | None = None,
    num_cells: int = 256,
    group: Iterable[object] | None = None,
    neighboring_relation: str = "add_or_remove_one",
    run: Run | None = None,
) -> PrivateRange:
    """Return a range that contains the central part of the values of a column, from noisy counts over a public grid.

    Each row adds 1 to its cell. Counts below the noise level are set to 0, so that many empty cells of a wide grid do
    not hide the others. The range extends from quantile (1 - share)/2 to 1 - (1 - share)/2. If no count exceeds the
    noise level, it is the whole grid.

    Args:
        values: Private column, 1-D, of numbers or their texts. NaN and values that are not numbers are ignored; values
            outside the grid are included in its first or last cell.
        low, high: Public limits of a grid that is certainly wide enough, finite numbers, low below high.
        epsilon: Privacy budget ε of this release, in (0, inf]. `inf` means no noise and no privacy.
        delta: Parameter δ of the guarantee, in (0, 1), for example 1e-6; much smaller than 1/n for n units.
        share: Share of the values inside the range, in (0, 1). Default: 0.99.
        transform: None (default) for cells of equal width; "log1p" or "asinh" for cells that are equal after the
            transform, for a wide range.
        num_cells: Number of cells, at least 2. Default: 256.
        group: Private person ID of each value; the values of a person are then one unit, clipped to norm 1. None
            (default): each value is a unit.
        neighboring_relation: "add_or_remove_one" (default) or "replace_one".
        run: `dpvb.Run` whose ledger is charged. None (default): the run of the surrounding block, or of the
            environment.

    Returns:
        Range with its privacy statement.

    Raises:
        ParameterError: If a public argument is outside its range. No budget was spent.
        BudgetError, LedgerError: If the data set cannot be charged. No budget was spent, and no data were read.
        DataFormatError: If values are not one-dimensional, or group has another length.
        PrivateComputationError: If the computation on private values failed. The budget was spent.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> ages = np.random.default_rng(0).uniform(18, 90, 20_000)
        >>> found = dpvb.private_range(ages, low=0.0, high=1000.0, epsilon=1.0, delta=1e-6)
        >>> 0 <= found.low < found.high <= 1000
        True
    """
    check_choice("transform", "none" if transform is None else transform, tuple(_TRANSFORMS))
    low = check_number("low", low, low=-1.0 if transform == "log1p" else -1e300, high=1e300, closed="right")
    high = check_number("high", high, low=low, high=1e300, closed="right")
    check_number("share", share, low=0, high=1, closed="neither")
    cells = check_integer("num_cells", num_cells, low=1, high=10**6)
    source = _Column(values, group)
    histogram = _Histogram(low, high, cells, "none" if transform is None else transform)
    release = Release(histogram.blocks, Mechanism(FullBatch(), 1.0))
    relative = Plan([release], neighboring_relation, source.unit)  # type: ignore[arg-type]
    with replace(Run.current(run), checkpoint=None, resume=None).opened() as run:
        method = run.method("pld", relative.events())
        plan = calibrated(relative, epsilon=epsilon, delta=delta, accountant=method)
        budget_warnings.warn(epsilon, delta, unit=plan.unit, events=plan.events(), stacklevel=4)
        budget_warnings.warn_of_ranges([("low", low), ("high", high)], stacklevel=4)
        with run.journal(plan, epsilon=epsilon, delta=delta) as journal:
            released = Wall(source, plan, journal=journal).release(histogram.e_step, plan.releases[0])
    ends = histogram.quantiles(released.total["counts"], released.noise_std["counts"], (1.0 - share) / 2)
    statement = PrivacyStatement.from_plan(
        plan,
        delta=delta,
        private=released.receipt.private,
        run_id=released.receipt.run if journal is None else journal.name,
        public=[f"a grid of {cells} cells from {low:g} to {high:g}, the share {share:g} that the range is to hold"],
        n_units=None,
        charge=None if journal is None else journal.charge,
    )
    return PrivateRange(*ends, statement)


class _Column(Held):
    """Private column of numbers."""

    def __init__(self, values: object, group: Iterable[object] | None) -> None:
        self._value_n = as_numbers(column("values", values, None))
        self._units = Units(np.arange(len(self._value_n) + 1, dtype=np.int64), group)

    def chunks(self) -> Iterator[Chunk[Floats]]:
        return self._units.chunks(self._rows)

    def _rows(self, which: Which) -> Floats:
        return self._value_n[which]

    def _keep(self, which: Which) -> None:
        self._value_n = self._value_n[which]


@dataclass(frozen=True)
class _Histogram:
    """Counts of values over a public grid; one call of the wall."""

    low: float
    high: float
    num_cells: int
    transform: str

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"counts": Block((self.num_cells,), 1.0, "nonnegative")}

    @property
    def edges(self) -> Floats:
        """Edges of the cells, (num_cells + 1,)."""
        forward, back = _TRANSFORMS[self.transform]
        edges = np.asarray(back(np.linspace(forward(self.low), forward(self.high), self.num_cells + 1)))
        edges[[0, -1]] = self.low, self.high
        return edges

    def e_step(self, value_n: Floats) -> Contributions:
        """Return 1 in the cell of each value."""
        finite = np.isfinite(value_n)
        cell = np.searchsorted(self.edges[1:-1], value_n[finite], side="right")
        indptr = np.concatenate([[0], np.cumsum(finite)])
        return {"counts": SparseRows(indptr, cell.astype(np.int32), np.ones(len(cell)))}

    def quantiles(self, count_c: Floats, noise_std: float, tail: float) -> tuple[float, float]:
        """Return edges of the cells of the quantiles `tail` and 1 - `tail`."""
        # The noise of some cell exceeds this with probability 10⁻⁷ at most.
        reach = noise_std * math.sqrt(2.0 * math.log(0.5e7 * self.num_cells))
        total_c = np.cumsum(np.where(count_c > reach, count_c, 0.0))
        if total_c[-1] <= 0.0:
            return self.low, self.high
        first = int(np.searchsorted(total_c, tail * total_c[-1], side="right"))
        last = int(np.searchsorted(total_c, (1.0 - tail) * total_c[-1], side="left"))
        edges = self.edges
        return float(edges[first]), float(edges[last + 1])


#: η of the distributions of K that are offered.
DISTRIBUTIONS: Mapping[str, float] = {"geometric": 1.0, "logarithmic": 0.0}
# Expected runs for each candidate: a given one is never drawn with a probability of about 1/6 (geometric).
_RUNS_EACH = 5
# Parameters that a selection sets for all candidates together.
_OWN = ("epsilon", "delta", "noise_multiplier", "accountant", "neighboring_relation")

_Estimator = TypeVar("_Estimator", bound=PrivateEstimator)
#: Scores of clean rows under a fitted model; NaN where there is nothing to score.
Score = Callable[[Any], Floats]


@says_what_lacks
def private_select(
    estimator: _Estimator,
    candidates: Sequence[Mapping[str, Any]],
    X: Records,
    y: Responses = None,
    *,
    epsilon: float,
    delta: float,
    run: Run | None = None,
    expected_runs: float | None = None,
    distribution: Literal["geometric", "logarithmic"] = "geometric",
    holdout: float = 0.25,
    score_range: tuple[float, float] | None = None,
    group: Iterable[object] | None = None,
    trials: Any = None,
    exposure: Any = None,
    offset: Any = None,
    weights: Any = None,
) -> _Estimator:
    """Fit the best of several settings, all of it for one (ε, δ).

    The result is fitted to the units that are not held out, with noise such that the whole selection meets the budget.
    The guarantee covers which setting won. The running time reveals the number of runs and is not covered.

    Args:
        estimator: Estimator whose rows have scores (`LDA`, a regression, `SigmoidBeliefNetwork`, ...), with the
            parameters that candidates do not set. Its own epsilon, delta and accountant are not used.
        candidates: Public list of settings, each a dict of parameters of the estimator.
        X: Private rows, as in `fit` of the estimator.
        y, group, trials, exposure, offset, weights: Private arguments of `fit` of the estimator. None (default): not
            used, as in `fit` of the estimator.
        epsilon: Privacy budget ε of the whole selection, in (0, inf]. `inf` means no noise and no privacy.
        delta: Parameter δ of the guarantee, in (0, 1), for example 1e-6; much smaller than 1/n for n units.
        run: `dpvb.Run` whose ledger is charged once for the whole selection, before any data are read. None (default):
            the run of the surrounding block, or of the environment. A selection has no checkpoint.
        expected_runs: Expected number of runs E[K], at least 1. None (default): five per candidate, so that a given
            candidate is not tried with a probability of about 1/6 (geometric).
        distribution: Distribution of K: "geometric" (default), or "logarithmic", which is less expensive but often
            stops after one run.
        holdout: Probability that a unit is scored instead of fitted, in (0, 1). Default: 0.25.
        score_range: Public limits to which scores of units are clipped, in nats; the noise is proportional to their
            distance. The score of a person is the mean of the rows. None (default): specified by the estimator: for
            `LDA`, the bound per word, from 3/2 to 1/2 of -log V; for belief networks, the bound of a row, from that of
            a uniform guess to 0; for regressions, the log-likelihood at the posterior mean, from four times that of a
            uniform guess to 0.

    Returns:
        Fitted copy of the estimator with the winning settings; its `privacy_` covers the selection.

    Raises:
        ParameterError, DataFormatError: If public facts or any candidate are invalid. No budget was spent.
        BudgetError, LedgerError: If the data set cannot be charged. No budget was spent, and no data were read.
        PrivateComputationError: If a run failed. The budget of the whole selection was spent.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> y = (X[:, 0] > 0).astype(int)
        >>> model = dpvb.LogisticRegression(low=-1.0, high=1.0, epsilon=1.0, delta=1e-6)
        >>> candidates = [{"alpha": 1.0}, {"alpha": 4.0}]
        >>> best = dpvb.private_select(model, candidates, X, y, epsilon=2.0, delta=1e-6, expected_runs=2)
        >>> best.alpha in (1.0, 4.0)
        True
    """
    beside = {"trials": trials, "exposure": exposure, "offset": offset, "weights": weights}
    beside = {name: column for name, column in beside.items() if column is not None}
    data = {"X": X, "y": y, "group": group, **beside}
    run = Run.current(run)
    if run.checkpoint is not None:
        raise ParameterError("checkpoint must be None: a selection is not resumed.")
    choice = _fixed(
        estimator,
        candidates,
        data,
        epsilon=epsilon,
        delta=delta,
        holdout=holdout,
        distribution=distribution,
        expected_runs=expected_runs,
        score_range=score_range,
    )
    budget_warnings.warn(epsilon, delta, unit=choice.scoring.unit, num_units=estimator.n_units, stacklevel=4)
    for c in range(len(choice.settings)):
        choice.winner(c)._warn_of_computed_bounds(X, stacklevel=4)
    winner: _Estimator = _charged(choice, data, SecureNoise, run)
    return winner


def _tried(kind: type, params: Mapping[str, Any], data: Mapping[str, Any]) -> tuple[Plan, tuple[float, float]]:
    """Return the relative plan of a candidate's fit, and the range of its scores.

    Raises:
        ParameterError, DataFormatError: As the fit would.
    """
    trial = kind(**params)
    with Run().isolated():  # The whole selection is charged, and no fit of it by itself.
        task: Task = check_known(trial._task(**data), "in a selection")
    generator("random_state", params["random_state"])
    Wall(task.source, task.relative, n_units=params["n_units"])
    return task.relative, trial._quality_range(task.model)


@dataclass(frozen=True)
class _Choice:
    """Public facts about a selection, fixed before any data are read.

    Attributes:
        kind: Class of the estimator.
        settings: Complete parameters of each candidate.
        plans: Releases of a run of each candidate.
        scoring: Release of the score of a run.
        cost: Privacy cost of the selection.
        score_range: Limits of the score of a unit.
        holdout: Probability that a unit is scored.
        epsilon, delta: Privacy budget.
        run_epsilon: Epsilon of one run, by which candidates plan.
    """

    kind: type
    settings: Sequence[Mapping[str, Any]]
    plans: Sequence[Plan]
    scoring: Plan
    cost: Selection
    score_range: tuple[float, float]
    holdout: float
    epsilon: float
    delta: float
    run_epsilon: float

    @property
    def digest(self) -> str:
        """SHA-256 of everything that the selection may release."""
        plans = [plan.digest.hex() for plan in (*self.plans, self.scoring)]
        facts = {"plans": plans, "cost": self.cost.to_dict(), "holdout": self.holdout}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def params(self, c: int) -> dict[str, Any]:
        """A candidate's parameters in a run."""
        return _run_params(self.settings[c], self.holdout, self.run_epsilon, self.delta)

    def winner(self, c: int) -> Any:
        """An estimator with a candidate's settings, not fitted."""
        return self.kind(**{**self.settings[c], "epsilon": self.epsilon, "delta": self.delta})


def _complete(estimator: Any, candidates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Complete parameters of each candidate.

    Raises:
        ParameterError: for an estimator of another kind, or a candidate that is not a dict of its parameters.
    """
    if not isinstance(estimator, PrivateEstimator):
        raise ParameterError(f"estimator must be one of this package's, got {type(estimator).__name__}.")
    if estimator.noise_multiplier is not None:
        raise ParameterError("noise_multiplier must be None: a selection sets the noise itself.")
    if isinstance(candidates, (str, Mapping)) or not isinstance(candidates, Sequence) or not candidates:
        raise ParameterError("candidates must be a list of dicts of the estimator's parameters, at least one.")
    complete = []
    for candidate in candidates:
        params = estimator.get_params(deep=False)
        if not isinstance(candidate, Mapping) or not set(candidate) <= set(params):
            raise ParameterError(f"candidates must be dicts of parameters of {type(estimator).__name__}.")
        if decided := sorted(set(_OWN) & set(candidate)):
            raise ParameterError(f"candidates must leave out {', '.join(decided)}: decided once for all of them.")
        complete.append({**params, **candidate})
    return complete


def _run_params(setting: Mapping[str, Any], holdout: float, epsilon: float, delta: float) -> dict[str, Any]:
    """A candidate's parameters for a fit to the units that are not held out."""
    params = {**setting, "epsilon": epsilon, "delta": delta}
    # A generator's state would count the runs.
    params["random_state"] = deepcopy(params["random_state"])
    if params["n_units"] is not None:
        number = check_integer("n_units", params["n_units"], low=1)
        batch = 1 if params["batch_size"] is None else check_integer("batch_size", params["batch_size"], low=1)
        params["n_units"] = max(round((1.0 - holdout) * number), batch)
    return params


def _fixed(
    estimator: Any,
    candidates: Sequence[Mapping[str, Any]],
    data: Mapping[str, Any],
    *,
    epsilon: float,
    delta: float,
    holdout: float = 0.25,
    distribution: Literal["geometric", "logarithmic"] = "geometric",
    expected_runs: float | None = None,
    score_range: tuple[float, float] | None = None,
) -> _Choice:
    """Dry-run every candidate, and scale all noise so that the selection meets (epsilon, delta)."""
    kind, settings = type(estimator), _complete(estimator, candidates)
    if any(isinstance(column, Iterator) for column in data.values()):
        raise ParameterError(
            "X, y, group and other row arguments must be readable more than once, which iterators are not."
        )
    check_choice("distribution", distribution, tuple(DISTRIBUTIONS))
    check_number("holdout", holdout, low=0, high=1, closed="neither")
    mean = float(_RUNS_EACH * len(settings)) if expected_runs is None else expected_runs
    law = NumberOfRuns.expecting(mean, DISTRIBUTIONS[distribution])
    relation = settings[0]["neighboring_relation"]

    def scaled(*plans: Plan) -> list[Plan]:
        cost = Selection([Composition(plan.events(), relation) for plan in plans], law)
        scale = selection_scale(cost, epsilon=epsilon, delta=delta)
        return [plan.scaled(scale) for plan in plans]

    # Largest cost of a run, spent on one release: candidates plan by its epsilon.
    one = Plan([Release({"score": Block((1,), 1.0)}, Mechanism(FullBatch(), 1.0))], relation)
    run_epsilon = scaled(one)[0].epsilon(delta)
    tried = [_tried(kind, _run_params(setting, holdout, run_epsilon, delta), data) for setting in settings]
    low, high = _checked_range(score_range, [usual for _, usual in tried])
    block = Block((1,), (high - low) / 2)
    scoring = Plan([Release({"score": block}, Mechanism(FullBatch(), 1.0))], relation, tried[0][0].unit)
    # Each may cost as much as a run may; then all of them a little less, as their curves differ.
    *plans, scoring = scaled(*(scaled(plan)[0] for plan in (*(plan for plan, _ in tried), scoring)))
    cost = Selection([Composition(plan.events(), relation) for plan in (*plans, scoring)], law)
    return _Choice(kind, settings, plans, scoring, cost, (low, high), holdout, epsilon, delta, run_epsilon)


def _charged(choice: _Choice, data: Mapping[str, Any], make_noise: Callable[[], NoiseSource], run: Run) -> Any:
    """Charge the selection, then run it."""
    noise = make_noise()
    with run.opened() as run:
        book: Any = run.ledger
        if book is None or (dataset := run.dataset) is None:
            # This reports that no ledger is used.
            with run.journal(choice.scoring, epsilon=choice.epsilon, delta=choice.delta):
                return _selected(choice, data, noise, make_noise, None)
        receipt = book.charge(
            dataset,
            choice.cost,
            run=noise.run_id,
            plan_digest=choice.digest,
            unit=choice.scoring.unit,
            payload={"candidates": len(choice.settings)},
        )
        charge = ChargeFacts(receipt.ledger, receipt.seq, receipt.hash, dataset)
        try:
            winner = _selected(choice, data, noise, make_noise, charge)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                error.add_note(
                    f"{dataset!r} was charged for the whole selection, which shows nothing and cannot go on."
                )
            with suppress(LedgerError):
                book.append(noise.run_id, attempt=0, state="abandoned")
            raise
        book.append(noise.run_id, attempt=0, state="finished")
        return winner


def _selected(
    choice: _Choice,
    data: Mapping[str, Any],
    noise: NoiseSource,
    make_noise: Callable[[], NoiseSource],
    charge: ChargeFacts | None,
) -> Any:
    """Return the best of K runs, or raise one error without details.

    Ties go to the earlier run; this is equivalent to a coin, since the order of runs is random.
    """
    word, coins = _words(noise), noise.words(step=0, purpose="holdout")
    best: _Trial | None = None
    is_short = False
    with silence(logs=True), one_blas_thread():  # Neither warnings nor logs may count the runs.
        try:
            for _ in range(choice.cost.runs.draw(word)):
                run = _run(choice, _uniform(word, len(choice.plans)), data, coins, make_noise)
                best = run if best is None or run.score > best.score else best
        except MemoryError:
            best, is_short = None, True
        except Exception:  # Whichever run it was, and why, stays here.
            best = None
    if is_short:
        raise OutOfMemoryError(
            "there is not enough memory for the selection; all of it stays charged. Raise the limit."
        )
    if best is None:
        raise PrivateComputationError("A run of the selection failed; all of it stays charged, and the reason private.")
    winner = choice.winner(best.candidate)
    m = len(choice.settings)
    statement = PrivacyStatement.from_plan(
        Plan([*choice.plans[best.candidate], *choice.scoring], choice.cost.neighboring_relation, choice.scoring.unit),
        selection=SelectionFacts(choice.cost, m, choice.holdout),
        delta=choice.delta,
        private=best.private and noise.private,
        run_id=noise.run_id,
        plan_digest=choice.digest,
        public=[
            *best.task.public,
            f"the {m} candidate settings",
            f"scores from {choice.score_range[0]:.4g} to {choice.score_range[1]:.4g} nats",
        ],
        n_units=winner.n_units,
        charge=charge,
        counts=best.counts,
    )
    winner._set_statement(statement, best.task.notes)
    with one_blas_thread():
        winner._take(best.task, best.q)
    return winner


# Scores of private units behind the wall: bounded, each only from its own unit.


class Side:
    """The units that are scored, or those that are fitted, according to their random bits."""

    def __init__(self, source: Source[Any], coins: Words, holdout: float, *, scored: bool) -> None:
        self._source, self._coins, self._scored = source, coins, scored
        self._threshold = np.uint64(math.floor(math.ldexp(holdout, 64)))

    def count(self) -> int:
        """Number of units on this side; private."""
        return int(np.count_nonzero(self._chosen(0, self._source.count())))

    def chunks(self) -> Iterator[ChunkOfUnits[Any]]:
        """Yield chunks of this side, in the order of the source; scored chunks keep their persons."""
        start = 0
        for chunk in self._source.chunks():
            chosen = chunk.select(self._chosen(start, chunk.num_units))
            start += chunk.num_units
            yield UnitRows(chosen) if self._scored else chosen

    def _chosen(self, start: int, number: int) -> Bools:
        return np.asarray((self._coins(number, start) < self._threshold) == self._scored)


@dataclass(frozen=True)
class UnitRows:
    """View of a chunk as one row per unit, so that the rows of a person can be averaged."""

    rows: ChunkOfUnits[Any]
    unit_of_row: None = None

    @property
    def num_units(self) -> int:
        """Number of units in the chunk."""
        return self.rows.num_units

    def select(self, units: Bools) -> UnitRows:
        """Only the chosen units."""
        return UnitRows(self.rows.select(units))


def contributions(score: Score, score_range: tuple[float, float], chunk: ChunkOfUnits[Any]) -> Contributions:
    """Return the clipped score of each unit, minus the centre of the range; NaN, which the wall drops, without a score.

    All candidates are scored on the same units, so the centre changes no comparison, and it halves the norm.
    """
    low, high = score_range
    value_n = np.clip(score(chunk.rows), low, high) - (low + high) / 2
    if chunk.unit_of_row is not None:
        sound = np.isfinite(value_n)
        unit, units = chunk.unit_of_row[sound], chunk.num_units
        with np.errstate(invalid="ignore"):
            total = np.bincount(unit, weights=value_n[sound], minlength=units)
            value_n = total / np.bincount(unit, minlength=units)
    return {"score": Rows(value_n[:, None])}


class _Trial(NamedTuple):
    """One run: candidate, released score, fit and numbers of units, and whether its noise was secret."""

    candidate: int
    score: float
    task: Task
    q: Any
    counts: Counts | None
    private: bool


def _run(
    choice: _Choice, c: int, data: Mapping[str, Any], coins: Words, make_noise: Callable[[], NoiseSource]
) -> _Trial:
    """Fit a candidate, and release its score."""
    params = choice.params(c)
    trial = choice.kind(**params)
    with Run().isolated():
        task = trial._task(**data)
    fitted = Side(task.source, coins, choice.holdout, scored=False)
    wall = Wall(fitted, choice.plans[c], noise=make_noise(), n_units=params["n_units"])
    rng = generator("random_state", params["random_state"])
    q, estimate = loop.fit(task.model, wall, choice.plans[c], rho=task.rho, rng=rng)
    trial._take(task, q)
    scored = Side(task.source, coins, choice.holdout, scored=True)
    wall = Wall(scored, choice.scoring, noise=make_noise(), n_units=choice.settings[c]["n_units"])
    query = partial(contributions, trial._quality, choice.score_range)
    released = wall.release(query, choice.scoring.releases[0])
    return _Trial(c, float(released.total["score"][0]), task, q, estimate.counts, released.receipt.private)


def _words(noise: NoiseSource) -> Callable[[], int]:
    """Return the next uniform 64-bit word of the selection's own stream."""
    words, place = noise.words(step=0, purpose="runs"), count()
    return lambda: int(words(1, next(place))[0])


def _uniform(word: Callable[[], int], m: int) -> int:
    """Return a uniform integer below m."""
    while (drawn := word()) >= 2**64 - 2**64 % m:
        pass
    return drawn % m


def _checked_range(given: Any, usual: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the given range, or one that contains those of all candidates.

    Raises:
        ParameterError: If a range is invalid.
    """
    if given is None:
        ranges = [_checked_range(declared, ()) for declared in usual]
        return min(low for low, _ in ranges), max(high for _, high in ranges)
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ParameterError(f"score_range must be a pair (low, high), in nats, got {given!r}.")
    low = check_number("score_range[0]", given[0], low=-1e100, high=1e100)
    high = check_number("score_range[1]", given[1], low=-1e100, high=1e100)
    if not low < high:
        raise ParameterError(f"score_range must begin below its end, got {given!r}.")
    return low, high
