"""Private linear dynamical systems over people's sequences of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpvb.core.plan import Plan
from dpvb.data.sequences.content import Points
from dpvb.data.sequences.events import Events
from dpvb.estimators.base import PrivateEstimator, Task, generator, if_fitted
from dpvb.estimators.input_types import Records
from dpvb.estimators.sequences import SequenceModel, numbers_of, range_of_numbers
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_integer, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.guards.untrusted import printable
from dpvb.models.sequences import kalman, linear_dynamical
from dpvb.models.sequences.kalman import LinearSystem
from dpvb.models.sequences.linear_dynamical import LinearPosterior
from dpvb.results import trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Curves, Figure, Grid, Intervals
from dpvb.results.interval_table import IntervalTable, Line, head, reach_of
from dpvb.rows import NumberRows

# Points, synthetic sequences and columns in a report; systems of the posterior that bands are made of.
_DRAWN_POINTS, _DRAWN, _MOST_COLUMNS, _OF_BANDS = 100, 5, 12, 25


class Bands(NamedTuple):
    """Prediction bands, each (sequences, horizon, D), in units of the columns.

    Attributes:
        mean: Expected numbers.
        low, high: Limits of the band of each number.

    Examples:
        >>> import numpy as np
        >>> from dpvb.estimators.linear_dynamical import Bands
        >>> mean = np.zeros((1, 5, 2))  # One sequence, five points ahead, two columns.
        >>> bands = Bands(mean, mean - 0.5, mean + 0.5)
        >>> float((bands.high - bands.low).max())
        1.0
    """

    mean: Floats
    low: Floats
    high: Floats


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class LinearDynamicalSystem(SequenceModel[linear_dynamical.LinearDynamical, LinearPosterior]):
    """Fit a linear dynamical system to sequences of numbers, under (ε, δ)-differential privacy.

    The hidden state follows z' = A z + noise, and a point is x = C z + d + noise; applications are gait, pen strokes,
    weights or sensors. X has private sequences: a list of arrays (points, D); an array (sequences, points, D); one
    array of all points with the lengths as y, like hmmlearn; or a long table, `dpvb.data.Events` with `values`. Without
    `group`, each sequence is a unit; with `group`, and always for events, a unit is a person with all sequences. NaN,
    or a value that is not a number, is missing. Scales of the columns are released once, then moments of windows, to
    which the system is fitted: the fit has no steps. Other parameters are those of `PrivateEstimator`.

    Args:
        n_states: Dimension K of the hidden state, at least 1.
        columns: Columns of a point: their names, as a list or a text with commas, or their number.
        low, high: Public range of each column: numbers or arrays of shape (D,), in units of the column. Values outside
            are clipped. None (default): `max_row_norm` is given.
        max_row_norm: Public upper bound on the Euclidean norm of a point, instead of `low` and `high`; longer points
            are scaled down. None (default): not used.
        window: Number of points of a window, at least 2. Longer windows capture slower motion and contain more noise.
            Default: 6.
        max_length: Number of points of each sequence that are included, from its beginning. Default: 50.
        clip_scale: Bound on the norm of the windows of a person, as a multiple of that of average windows, in [0.001,
            1e9]. Default: 0.75.

    Attributes:
        columns_: Names of the columns.
        transition_matrix_, transition_noise_: A, and the covariance of its noise, (K, K). Over all windows, states have
            variance 1 and no covariance; the first has the largest effect on the columns.
        loadings_, offset_, noise_variance_: C, (K, D), d and the variances of the noise, (D,), in units of the columns.
        initial_mean_, initial_covariance_: Distribution of the first state, (K,) and (K, K).
        privacy_, n_iter_, n_features_in_: Privacy statement, and numbers of steps (0) and columns.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> x = np.random.default_rng(0).normal(0, 0.2, (2000, 20, 1)).cumsum(axis=1)
        >>> model = dpvb.LinearDynamicalSystem(1, columns=1, low=-4, high=4, epsilon=2.0, delta=1e-6).fit(x)
        >>> model.forecast(x[:2], horizon=5).mean.shape
        (2, 5, 1)
    """

    n_states: int
    _: KW_ONLY
    columns: int | str | Sequence[str]
    low: float | Sequence[float] | NDArray[Any] | None = None
    high: float | Sequence[float] | NDArray[Any] | None = None
    max_row_norm: float | None = None
    window: int = 6
    max_length: int = 50
    clip_scale: float = 0.75

    _command: ClassVar[str | None] = "linear-dynamical"
    _record_class: ClassVar[type] = LinearPosterior
    _example: ClassVar[str | None] = "--states 2 --columns x,y --low 0 --high 100"
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_states": "states"}

    def _learned(self, task: Task[linear_dynamical.LinearDynamical], q: LinearPosterior) -> LinearPosterior:
        return replace(q, system=kalman.in_order(q.system))

    def _expected_accuracy(
        self, task: Task[linear_dynamical.LinearDynamical], plan: Plan, n: float
    ) -> ExpectedAccuracy:
        return replace(
            ExpectedAccuracy.of_means(plan, n, task.rho), name="noise of the moments of windows, over a person's bound"
        )

    def _quality_range(self, model: linear_dynamical.LinearDynamical) -> tuple[float, float]:
        """Return limits of the score: that of a uniform guess, and 3 nats per column above it."""
        return range_of_numbers(model.n_features)

    def predict(self, X: Records, lengths: Any = None) -> list[Floats]:
        """Return expected states at each point given the whole sequence, (points, K). They are as private as X.

        Args:
            X: Sequences, as in `fit`.
            lengths: Lengths of the sequences in one array. None (default): X contains single sequences.

        Raises:
            DataFormatError: If X does not contain sequences.
        """
        rows = self._visible(X, lengths)
        state_tk = np.empty((len(rows.value_td), self.n_states))
        for places, x_ntd in kalman.in_blocks(rows.indptr, self._moved(rows)):
            mean_ntk = kalman.smoothed(self._system, x_ntd).mean_ntk
            for row, mean_tk in zip(places, mean_ntk, strict=True):
                start, stop = rows.indptr[row : row + 2]
                state_tk[start:stop] = mean_tk[: stop - start]
        return np.split(state_tk, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def forecast(self, X: Records, lengths: Any = None, *, horizon: int = 1, level: float = 0.95) -> Bands:
        """Return forecasts of each sequence, with bands. They are as private as X.

        A band contains each single number with probability `level`, and includes the uncertainty of the system.

        Args:
            X, lengths: As in `predict`.
            horizon: Number of points to forecast, at least 1. Default: 1.
            level: Probability inside a band, in (0, 1). Default: 0.95.

        Raises:
            DataFormatError: If X does not contain sequences.
        """
        rows, steps = self._visible(X, lengths), check_integer("horizon", horizon, low=1, high=10**6)
        reach = reach_of(level)
        mean_ntd, variance_ntd = self._ahead(self._system, rows, steps)
        draws = self._draws(_OF_BANDS)
        away = (self._ahead(one, rows, steps)[0] - mean_ntd for one in draws)
        variance_ntd = variance_ntd + sum((one**2 for one in away), np.zeros_like(mean_ntd)) / len(draws)
        centre = mean_ntd * self._scale_d + self._mean_d
        margin = reach * np.sqrt(variance_ntd) * self._scale_d
        return Bands(centre, centre - margin, centre + margin)

    def intervals(self, level: float = 0.95) -> IntervalTable:
        """Return parameters of columns and modes of the motion, with intervals that include privacy noise and sampling.

        For a column: its offset, and the standard deviations due to states and noise. For a mode: its factor per step,
        and its period if it rotates.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
        """
        self._check_fitted()
        level = check_number("level", level, low=0, high=1, closed="neither")
        draws, lines = self._draws(), []
        drawn_of = {what: np.array([number_of(one) for one in draws]) for what, number_of in self._columns.items()}
        for d, name in enumerate(self.columns_):
            for what, number_of in self._columns.items():
                lines.append(_line(name, what, float(number_of(self._system)[d]), drawn_of[what][:, d], level))
        mode_k = kalman.modes(self._system.step_kk)
        value_sk = kalman.modes_of_draws(np.array([one.step_kk for one in draws]), mode_k)
        for place, k in enumerate(np.flatnonzero(mode_k.imag >= 0)):
            name = f"mode {place}"
            lines.append(_line(name, "each step times", float(np.abs(mode_k[k])), np.abs(value_sk[:, k]), level))
            if mode_k[k].imag > 0:
                lines.append(_line(name, "period", float(_periods(mode_k[k])), _periods(value_sk[:, k]), level))
        return IntervalTable(tuple(lines), head(len(lines), "numbers", level, True), ("of", "what"))

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> Floats:
        """Draw n synthetic sequences, (n, length, D). They reveal no more than the released system.

        Args:
            n: Public number of sequences.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            length: Number of points per sequence. None (default): `max_length`. The model does not include the
                distribution of lengths.
        """
        number, long, draw = self._sequences_to_draw(n, rng, length)
        return kalman.drawn(self._system, number, long, draw) * self._scale_d + self._mean_d

    def marginal_bands(self, horizon: int | None = None, *, level: float = 0.95) -> Bands:
        """Return distributions of the first points of a sequence, (horizon, D), with bands.

        Args:
            horizon: Number of points, at least 1. None (default): `max_length`.
            level: Probability inside a band, in (0, 1). Default: 0.95.
        """
        self._check_fitted()
        number = check_integer("horizon", self.max_length if horizon is None else horizon, low=1, high=10**6)
        return Bands(*(end[0] for end in self.forecast([[]], horizon=number, level=level)))

    @if_fitted
    def score(self, X: Records, lengths: Any = None, *, public: bool = False) -> float:
        """Return the log-density of public sequences per point, in nats, in units of the columns.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: As in `score_samples`.
        """
        self._check_public(public)
        rows = self._of_table(X) if isinstance(X, Events) and lengths is None else self._visible(X, lengths)
        seen_t = ~np.isnan(rows.value_td).all(axis=1)
        return float(self._scores(rows).sum()) / max(int(np.count_nonzero(seen_t)), 1)

    def _facts_for_report(self, level: float = 0.95) -> Iterator[Figure]:
        """Yield loadings, motion with intervals, and the first points of sequences.

        Args:
            level: Probability inside an interval.
        """
        states = tuple(f"state {k}" for k in range(self.n_states))
        yield Grid(
            name="loadings",
            title="What each state adds to the columns",
            note="Change per standard deviation of the state, in units of the columns.",
            rows=states,
            columns=self.columns_,
            values=tuple(map(tuple, self.loadings_.tolist())),
        )
        yield Grid(
            name="transitions",
            title="How states move",
            note="Effect of one unit of the state in the column on the state in the row, one step later.",
            rows=states,
            columns=states,
            values=tuple(map(tuple, self.transition_matrix_.tolist())),
        )
        steps = min(self.max_length, _DRAWN_POINTS)
        bands, some_ntd = self.marginal_bands(steps, level=level), self.sample(_DRAWN, 0, length=steps)
        for d, column in enumerate(self.columns_[:_MOST_COLUMNS]):
            curves = [("expected", np.stack([end[:, d] for end in bands], axis=1))]
            curves += [
                (f"synthetic {n}", np.repeat(some_td[:, d, None], 3, axis=1)) for n, some_td in enumerate(some_ntd, 1)
            ]
            yield Curves(
                name="motion",
                title=f"How sequences begin: {column}",
                note=f"Thick: expected values with their {level:.0%} band. Thin: {_DRAWN} synthetic sequences.",
                x="point of a sequence",
                at=tuple(map(float, range(1, steps + 1))),
                lines=tuple((name, tuple(map(tuple, points.tolist()))) for name, points in curves),
            )
        table = self.intervals(level)
        for what in dict.fromkeys(line.name for line in table):
            lines = [line for line in table if line.name == what and math.isfinite(line.high)]
            if lines:
                rows = tuple((str(line.part), line.mean, line.low, line.high, "") for line in lines)
                yield Intervals(name="intervals", title=what.capitalize(), note=table.head + ".", rows=rows)

    def summary(self) -> str:
        """Return the columns and the modes of the motion as text, with factors, periods and half-lives."""
        self._check_fitted()
        lines = [f"Linear dynamical system, states: {self.n_states}, columns: {len(self.columns_)}", ""]
        table = {(line.part, line.name): line for line in self.intervals()}

        def shown(group: str, what: str, value: float) -> str:
            line = table.get((group, what))
            ends = "" if line is None else f" ({line.low:.3g} to {line.high:.3g})"
            said = f"{value:.4g}" if math.isfinite(value) else "none"
            return f"  {said + ends:<32}"

        lines += [f"{'column':<16}" + "".join(f"  {what:<32}" for what in self._columns)]
        for d, name in enumerate(self.columns_):
            cells = [shown(name, what, float(number_of(self._system)[d])) for what, number_of in self._columns.items()]
            lines.append(f"{printable(name)[:15]:<16}" + "".join(cells))
        lines += ["", f"{'mode':<16}  {'each step times':<32}  {'period':<32}  halves in  (steps)"]
        mode_k = kalman.modes(self._system.step_kk)
        for place, value in enumerate(mode_k[mode_k.imag >= 0]):
            size, name = float(np.abs(value)), f"mode {place}"
            halves = f"{math.log(0.5) / math.log(size):.1f}" if 0 < size < 1 else ("never" if size >= 1 else "at once")
            cells = [shown(name, "each step times", size), shown(name, "period", float(_periods(value)))]
            lines.append(f"{name:<16}" + "".join(cells) + f"  {halves}")
        lines += ["", "In brackets: 95 % intervals that include the privacy noise."]
        return "\n".join(line.rstrip() for line in lines)

    def _content(self) -> Points:
        return numbers_of(self.columns, self.low, self.high, self.max_row_norm)

    def _model(self) -> linear_dynamical.LinearDynamical:
        """Return the model that the parameters specify."""
        numbers = self._content()
        return linear_dynamical.LinearDynamical(
            len(numbers), self.n_states, self.window, self.clip_scale, self.max_length, numbers.reach
        )

    def _public_content(self) -> Points:
        return self._numbers_

    @property
    def _columns(self) -> Mapping[str, Callable[[LinearSystem], Floats]]:
        """Return the parameters of each column, in its units, for a system."""
        return {
            "offset": lambda system: system.shown_d * self._scale_d + self._mean_d,
            "states std": lambda system: np.linalg.norm(system.shown_dk, axis=1) * self._scale_d,
            "noise std": lambda system: np.sqrt(system.noise_d) * self._scale_d,
        }

    def _draws(self, most: int | None = None) -> list[LinearSystem]:
        """Return draws of systems from the posterior."""
        return [self._fitted_model.shape.system(vector_p) for vector_p in self._q.drawn_sp[:most]]

    def _ahead(self, system: LinearSystem, rows: NumberRows, steps: int) -> tuple[Floats, Floats]:
        """Return means and variances of the next points of each sequence, (n, steps, D), in units of the system."""
        number, d = len(rows.indptr) - 1, len(self.columns_)
        mean_ntd, variance_ntd = np.empty((number, steps, d)), np.empty((number, steps, d))
        for places, x_ntd in kalman.in_blocks(rows.indptr, self._moved(rows)):
            states = kalman.filtered(system, x_ntd)
            last_n = np.diff(rows.indptr)[places] - 1
            for place in np.unique(last_n):
                which = last_n == place
                laws = states.mean_ntk[which, place], states.cov_ntkk[which, place]
                if place < 0:  # Before a first point no step has been made.
                    laws_ahead = self._ahead_of_all(system, int(which.sum()), steps)
                else:
                    laws_ahead = kalman.forecast(system, *laws, steps)
                mean_ntd[places[which]], variance_ntd[places[which]] = laws_ahead
        return mean_ntd, variance_ntd

    def _moved(self, rows: NumberRows) -> Floats:
        """Return points in units of the system."""
        reach = self._fitted_model.reach
        return np.asarray((rows.value_td - self._q.mean_d * reach) / (self._q.scale_d * reach))

    def _ahead_of_all(self, system: LinearSystem, number: int, steps: int) -> tuple[Floats, Floats]:
        """Return distributions of the first points of sequences."""
        mean_nk, cov_nkk = np.tile(system.start_k, (number, 1)), np.tile(system.start_kk, (number, 1, 1))
        still = replace(system, step_kk=np.eye(self.n_states), step_noise_kk=0.0 * system.step_noise_kk)
        first = kalman.forecast(still, mean_nk, cov_nkk, 1)
        if steps == 1:
            return first
        after = kalman.forecast(system, mean_nk, cov_nkk, steps - 1)
        return np.concatenate([first[0], after[0]], axis=1), np.concatenate([first[1], after[1]], axis=1)

    def _check(self, record: LinearPosterior) -> None:
        trees.check_lengths(record, d=len(self._content()), k=self.n_states)
        if trees.shapes(record) != trees.shapes(self._model().init(generator("random_state", 0))):
            raise ValueError("a system of another shape")
        self._show(record)
        laws = (record.system.step_noise_kk, record.system.start_kk, record.system.pooled_kk)
        if not all(np.linalg.eigvalsh(law)[0] >= -1e-9 * np.abs(law).max() for law in laws):
            raise ValueError("numbers that make no covariances")
        shown = [self.loadings_, self.offset_, self.noise_variance_]
        for one in self._draws():
            shown += [one.step_kk, one.step_noise_kk, *(number_of(one) for number_of in self._columns.values())]
        if not all(np.isfinite(values).all() for values in shown):
            raise ValueError("numbers that make no system")

    def _show(self, record: LinearPosterior) -> None:
        numbers, model, system = self._content(), self._model(), record.system
        self._keep_model(model, record)
        self._numbers_, self.columns_ = numbers, numbers.names
        self._system, self.n_features_in_ = system, len(numbers)
        self._scale_d = record.scale_d * model.reach * numbers.unit_d
        self._mean_d = record.mean_d * model.reach * numbers.unit_d + numbers.centre_d
        self.transition_matrix_, self.transition_noise_ = system.step_kk, system.step_noise_kk
        self.loadings_ = (system.shown_dk * self._scale_d[:, None]).T
        self.offset_ = system.shown_d * self._scale_d + self._mean_d
        self.noise_variance_ = system.noise_d * self._scale_d**2
        self.initial_mean_, self.initial_covariance_ = system.start_k, system.start_kk


def _line(group: str, what: str, value: float, drawn_s: Floats, level: float) -> Line:
    """Return a number with the median of its draws."""
    low, high = np.quantile(drawn_s, [0.5 - level / 2, 0.5 + level / 2], method="nearest")
    spread = float(np.std(drawn_s)) if np.isfinite(drawn_s).all() else math.inf
    return Line(group, what, value, spread, min(float(low), value), max(float(high), value))


def _periods(value: Any) -> Floats:
    """Return periods in steps; inf for a mode that does not rotate."""
    angle = np.abs(np.angle(value))
    with np.errstate(divide="ignore"):
        return np.asarray(2 * math.pi / angle)
