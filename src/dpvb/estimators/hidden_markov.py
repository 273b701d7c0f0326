"""Private hidden Markov models of sequences of symbols, counts, bits or numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpvb.core.model import PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data.sequences.content import Points, Symbols
from dpvb.estimators.base import PrivateEstimator, Task, generator
from dpvb.estimators.input_types import Records
from dpvb.estimators.sequences import ChainModel, numbers_of, range_of_numbers
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.guards.untrusted import printable
from dpvb.models.sequences import dynamics, hidden_markov, markov_chain, passes
from dpvb.models.sequences.emissions import BernoulliEmissions, GaussianEmissions, PoissonEmissions, Values
from dpvb.models.sequences.hidden_cells import HiddenCells, HiddenCellsPosterior
from dpvb.models.sequences.hidden_chain import HiddenChain
from dpvb.models.sequences.hidden_markov import Emitted, HiddenMarkovPosterior
from dpvb.models.sequences.windows import HiddenWindowModel
from dpvb.results import trees
from dpvb.results.figures import Figure, Grid
from dpvb.results.interval_table import IntervalTable, Line, reach_of
from dpvb.rows import NumberRows, SequenceRows

# Most columns of bits: a block has a number for each pair of patterns.
_MOST_BITS = 9
# Steps over whole sequences, where public facts say that they pay.
_STEPS = 4
# A public number of units from which on steps over whole sequences pay. With 17 symbols and 34 states they were better
# for 800,000 users and worse for 100,000 (`python -m benchmarks hidden_markov`).
_VERY_MANY = 800_000

Model = TypeVar("Model", hidden_markov.HiddenMarkov, HiddenCells)
Posterior = TypeVar("Posterior", HiddenMarkovPosterior, HiddenCellsPosterior)


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class HiddenStates(ChainModel[Model, Posterior]):
    """Base class of hidden Markov models of symbols and of numbers.

    Args:
        n_states: Number of states K, at least 1.
        columns: Columns of bits or numbers: their names, as a list or a text with commas, or their number. None
            (default): there are none.
        estimate: "posterior" (default, variational Bayes) or "map" (MAP estimate by expectation maximisation).
        n_init: Number of starting points, at least 1; the best fit to the released windows is kept. Default: 5.
        power: Exponent of the number of windows in the weight of a person, from 0.5 to 1; a window of numbers is a pair
            of points. Default: 1.
        clip_norm: Bound on the norm of the windows of a person, in [0.001, 1e9]. Default: 2. None: the largest norm of
            one sequence of `max_length`, so that no person with one sequence is clipped; the noise is larger and the
            clipping bias is 0.

    Attributes:
        initial_: Probabilities of the first state, (K,). States are ordered by their shares, largest first.
        transition_matrix_: Probabilities of the next state, (K, K); rows sum to 1.
        stationary_: Long-run shares of the states, (K,).
        expected_durations_: Expected number of steps in each state, (K,).
    """

    n_states: int
    _: KW_ONLY
    columns: int | str | Sequence[str] | None = None
    estimate: PosteriorOrMAP = "posterior"
    n_init: int = 5
    power: float = 1.0
    clip_norm: float | None = 2.0

    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_states": "states"}
    _size_parameter: ClassVar[str | None] = "n_states"
    # At 2 fewer fits told the states apart (`python -m benchmarks forecasts`).
    _informative: ClassVar[float] = 4.0
    #: Note of a report on the means of emissions.
    _grid_note: ClassVar[str] = "Probabilities."

    def predict(self, X: Records, lengths: Any = None) -> list[Ints]:
        """Return the most probable state path of each sequence (Viterbi). It is as private as X.

        Args:
            X: Sequences, as in `fit`.
            lengths: Lengths of the sequences in one array. None (default): X contains single sequences.

        Raises:
            DataFormatError: If X contains undeclared symbols.
        """
        rows = self._visible(X, lengths)
        state_t = passes.most_probable(self._q.chain, rows.indptr, self._values(rows))
        return np.split(state_t, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def predict_proba(self, X: Records, lengths: Any = None) -> list[Floats]:
        """Return posterior probabilities of the states at each place, (places, K). They are as private as X.

        Args:
            X, lengths: As in `predict`.

        Raises:
            DataFormatError: As in `predict`.
        """
        rows = self._visible(X, lengths)
        state_tk = passes.smoothed(self._q.chain, rows.indptr, self._values(rows))
        return np.split(state_tk, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def forecast(self, X: Records, lengths: Any = None, *, horizon: int = 1) -> Floats:
        """Return probabilities of the next symbols of each sequence, (sequences, horizon, V). They are as private as X.

        For bits, the result has probabilities of ones, and for numbers, means: (sequences, horizon, D).

        Args:
            X, lengths: As in `predict`.
            horizon: Number of places to forecast, at least 1. Default: 1.

        Raises:
            DataFormatError: As in `predict`.
        """
        rows, steps = self._visible(X, lengths), check_integer("horizon", horizon, low=1, high=10**6)
        state_nk = passes.last_states(self._q.chain, rows.indptr, self._values(rows))
        is_empty_n = np.diff(rows.indptr) == 0
        ahead_ntv = np.empty((len(state_nk), steps, len(self.symbols_)))
        for step in range(steps):
            # Before a first symbol no step has been made.
            ahead_nk = state_nk @ self.transition_matrix_
            state_nk = np.where(is_empty_n[:, None], state_nk, ahead_nk) if step == 0 else ahead_nk
            ahead_ntv[:, step] = state_nk @ self._shown
        return ahead_ntv

    @abstractmethod
    def _values(self, rows: Any) -> Values:
        """Content of sequences that states emit."""

    @abstractmethod
    def _show_emissions(self, chain: HiddenChain) -> Floats:
        """Set what the states show as attributes, and return its means, (K, symbols or columns)."""

    @abstractmethod
    def _with_one_start(self, q: Posterior) -> Posterior:
        """Return a posterior with one start: starts are public, and no part of what was learned."""

    def _deviation(self, model: Model, plan: Plan, n: float) -> tuple[int, float]:
        v, length = model.n_symbols, model.length
        weight = markov_chain.expected_weight(n, model.max_length - length + 1, v, length, model.power, model.bound)
        [noise] = plan.noise_stds(model.name)
        return model.n_states, markov_chain.expected_hidden_deviation(
            model.n_states, v, length, weight, n, model.power, noise
        )

    def _drawn_states(self, n: int, rng: Any, length: int | None) -> tuple[Ints, Any]:
        """States of n synthetic sequences, (n, length), and the generator that draws their emissions."""
        number, long, draw = self._sequences_to_draw(n, rng, length)
        return dynamics.drawn(self.initial_, [self.transition_matrix_], number, long, draw), draw

    def transition_intervals(self, level: float = 0.95, *, noise_aware: bool = True) -> IntervalTable:
        """Return `transition_matrix_` with intervals that include the privacy noise.

        The fit corrects the clipping bias. The effects of clipping and sampling are estimated from synthetic people
        drawn from the model, each with one sequence whose length is independent of its content. Where least squares of
        the released windows would move an estimate, its interval is wider by this distance.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.

        Raises:
            ParameterError: For more than 40 symbols: pairs of symbols do not identify states and emissions separately.
        """
        self._check_fitted()
        reach = reach_of(level)
        if self._why_no_intervals:
            raise ParameterError(self._why_no_intervals)
        q: Any = self._q
        std_kk = self._fitted_model.step_errors(q, generator("rng", 0), self._shortened, noise_aware=noise_aware)
        lines = tuple(
            Line.within(str(i), str(j), float(step), float(std_kk[i, j]), reach, (0.0, 1.0))
            for (i, j), step in np.ndenumerate(self.transition_matrix_)
        )
        above = self._head(len(lines), level, noise_aware)
        return IntervalTable(lines, above, ("after", "comes"), "Transitions of states", name="transitions")

    def transition_table(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names of the states, probabilities of the next state, (K, K), and expected durations, (K,)."""
        self._check_fitted()
        return tuple(f"state {k}" for k in range(self.n_states)), self.transition_matrix_, self.expected_durations_

    def _facts_for_report(self, level: float = 0.95, noise_aware: bool = True) -> Iterator[Figure]:
        """Transitions of each state, and its emissions; arguments as in `transition_intervals`."""
        states, names = tuple(f"state {k}" for k in range(self.n_states)), tuple(map(str, self.symbols_))
        grids = [
            Grid(
                name=name, title=title, note=note, rows=states, columns=columns, values=tuple(map(tuple, law.tolist()))
            )
            for name, title, note, columns, law in (
                ("transitions", "What follows each state", "Probabilities.", states, self.transition_matrix_),
                ("emissions", "What each state shows", self._grid_note, names, self._shown),
            )
        ]
        if not self._why_no_intervals:
            yield replace(self.transition_intervals(level, noise_aware=noise_aware), grid=grids.pop(0))
        yield from grids

    def summary(self) -> str:
        """Return the states in the order of their shares as text, with durations, emissions and transitions."""
        self._check_fitted()
        what = "symbols" if isinstance(self._content(), Symbols) else "columns"
        lines = [f"Hidden Markov model, states: {self.n_states}, {what}: {len(self.symbols_)}", ""]
        lines += [f"{'state':<8}{'first':>8}{'share':>8}{'lasts':>8}  {'followed by':<27}{self._heading}"]
        for k in range(self.n_states):
            then = ", ".join(f"{j} {self.transition_matrix_[k, j]:.3f}" for j in _largest(self.transition_matrix_[k]))
            numbers = f"{self.initial_[k]:>8.3f}{self.stationary_[k]:>8.3f}{self.expected_durations_[k]:>8.2f}"
            lines.append(f"{k:<8}{numbers}  {then:<27}{self._shown_by(k)}")
        return "\n".join(lines)

    @property
    def _heading(self) -> str:
        """The column of a summary that says what states show."""
        return "shows"

    def _shown_by(self, k: int) -> str:
        """Emissions of a state, in a cell of a summary: the first columns, or the most probable symbols."""
        law_v = self._shown[k]
        places = _largest(law_v) if isinstance(self._content(), Symbols) else range(min(3, len(law_v)))
        return ", ".join(f"{printable(str(self.symbols_[v]))} {law_v[v]:.3g}" for v in places)

    def _learned(self, task: Task[Model], q: Posterior) -> Posterior:
        share_k = dynamics.symbol_shares(q.chain.laws(expected=False).step_kk)
        return self._with_one_start(replace(q, chain=q.chain.permuted(np.argsort(-share_k, kind="stable"))))

    def _check(self, record: Posterior) -> None:
        model = self._model()
        trees.check_lengths(record, k=self.n_states, v=model.n_symbols)
        like = replace(model, n_init=1).init(generator("random_state", 0))
        if trees.shapes(record) != trees.shapes(like) or _constants(record) != _constants(like):
            raise ValueError("a model of another shape")
        self._show(record)
        self._check_laws(self.initial_, self.transition_matrix_, *self._shown_laws())

    def _show(self, record: Posterior) -> None:
        content, model = self._content(), self._model()
        self.symbols_ = content.values if isinstance(content, Symbols) else content.names
        self.n_features_in_ = len(content)
        self._keep_model(model, record)
        self.initial_, _, self.transition_matrix_ = record.chain.laws(expected=False)
        self._shown = self._show_emissions(record.chain)
        self.stationary_ = dynamics.symbol_shares(self.transition_matrix_)
        self.expected_durations_ = dynamics.durations(self.transition_matrix_)

    def _shown_laws(self) -> Iterator[Floats]:
        """Yield the probabilities that states show, if they show any."""
        yield from ()


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class HiddenMarkovModel(HiddenStates[hidden_markov.HiddenMarkov, HiddenMarkovPosterior]):
    """Fit a hidden Markov model of sequences of symbols, counts or bits, under (ε, δ)-differential privacy.

    `SequenceModel` documents the forms of X; sequences of bits are arrays (points, columns), or `dpvb.data.Events` with
    their columns as values. Windows of three symbols (of two, for more than 40 symbols) are released once, and the
    model is fitted to them: more starts or iterations use no budget. Use this model to estimate hidden states; for
    prediction, a `MarkovChain` of order 2 is as good. Other parameters are those of `PrivateEstimator`.

    `n_steps` is the number of steps over whole sequences after the windows, which use 0.4 of the budget. None
    (default): 4 if there are more than 40 symbols or patterns of bits, or if `n_units` is at least 800,000; otherwise
    0.

    Args:
        symbols: Public symbols, as a list or a text with commas; a number V means 0 to V - 1. None (default): `columns`
            are given.
        columns: Columns of bits: their names, as a list or a text with commas, or their number. None (default):
            `symbols` are given.
        emissions: Distribution of the emissions: "categorical" (default) for symbols; "poisson" for counts 0 to V - 1,
            the last of which means V - 1 or more; "bernoulli" for up to 9 columns of bits.

    Attributes:
        symbols_: Symbols in the order of the arrays below; for bits, names of the columns.
        emission_probabilities_: Probabilities of the symbols in each state, (K, V), or of ones in each column, (K, D).
        rates_: Mean counts of the states, (K,), with emissions="poisson".
        privacy_, n_iter_, n_features_in_: Privacy statement, and numbers of steps and symbols.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> days = np.random.default_rng(0).choice(["rest", "run"], (3000, 10))
        >>> model = dpvb.HiddenMarkovModel(2, symbols="rest,run", epsilon=1.0, delta=1e-6, random_state=0).fit(days)
        >>> model.transition_matrix_.shape
        (2, 2)
    """

    _: KW_ONLY
    symbols: int | str | Sequence[Any] | None = None
    emissions: Emitted = "categorical"

    _record_class: ClassVar[type] = HiddenMarkovPosterior
    _command: ClassVar[str | None] = "hidden-markov"
    _example: ClassVar[str | None] = "--states 3 --symbols front,news,sports --symbol-column page"
    _least_steps: ClassVar[int] = 0

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> tuple[NDArray[Any], Ints]:
        """Draw n synthetic sequences, (n, length), or (n, length, D) for bits, and their states.

        They reveal no more than the released model.

        Args:
            n: Public number of sequences.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            length: Number of points per sequence. None (default): `max_length`. The model does not include the
                distribution of lengths.
        """
        state_nt, draw = self._drawn_states(n, rng, length)
        if isinstance(self._content(), Symbols):
            return np.array(self.symbols_)[dynamics.shown(state_nt, self.emission_probabilities_, draw)], state_nt
        on_ntd = self.emission_probabilities_[state_nt]
        return (draw.random(on_ntd.shape) < on_ntd).astype(np.int64), state_nt

    @property
    def _why_no_intervals(self) -> str:
        """Reason why there are no `transition_intervals`, in a sentence; empty if there are."""
        self._check_fitted()
        if self._fitted_model.length < 3:
            return (
                f"symbols must be at most 40 for intervals, got {self._fitted_model.n_symbols}: the released pairs do "
                "not identify states and emissions separately. Merge similar symbols."
            )
        return ""

    def _with_one_start(self, q: HiddenMarkovPosterior) -> HiddenMarkovPosterior:
        return replace(q, tilt_rkw=q.tilt_rkw[:1])

    def _content(self) -> Symbols | Points:
        """The public symbols, or the columns of bits."""
        kind = check_choice("emissions", self.emissions, hidden_markov.KINDS)
        if kind == "bernoulli":
            if self.columns is None or self.symbols is not None:
                raise ParameterError(
                    "columns must be given, and symbols be None, with emissions='bernoulli', got "
                    f"{self.columns!r} and {self.symbols!r}."
                )
            return Points(self.columns)
        if self.symbols is None or self.columns is not None:
            way_out = (
                ""
                if self.columns is None
                else " Columns of 0 and 1 need emissions='bernoulli', and columns of "
                "numbers a GaussianHiddenMarkovModel."
            )
            raise ParameterError(
                f"symbols must be given, not columns, with emissions={kind!r}, got {self.symbols!r} and "
                f"{self.columns!r}.{way_out}"
            )
        return Symbols(self.symbols)

    def _model(self) -> hidden_markov.HiddenMarkov:
        """The model that the parameters name."""
        content = self._content()
        n_symbols = len(content)
        if isinstance(content, Points):
            if n_symbols > _MOST_BITS:
                raise ParameterError(
                    f"columns must be at most {_MOST_BITS} with emissions='bernoulli', got {n_symbols}: pairs of "
                    "all patterns are counted. Join columns that are alike."
                )
            n_symbols = 2**n_symbols
        elif self.emissions == "poisson" and [*map(str, content.values)] != [*map(str, range(n_symbols))]:
            raise ParameterError(
                f"symbols must be the counts 0, 1, .. with emissions='poisson', got {[*content.values][:8]}: give "
                "their number, symbols=21 for counts up to 20 and more."
            )
        model = hidden_markov.HiddenMarkov(
            n_symbols, self.n_states, self.emissions, **self._shared(fields(HiddenWindowModel))
        )
        if self.n_steps is not None:
            return replace(model, n_steps=self.n_steps)
        pays = model.length < 3 or (self.n_units or 0) >= _VERY_MANY
        return replace(model, n_steps=_STEPS) if pays else model

    def _values(self, rows: SequenceRows | NumberRows) -> Values:
        return self._fitted_model.alphabet.values(rows)

    def _sound(self, rows: Any) -> Any:
        rows = super()._sound(rows)
        if isinstance(self._content(), Points):
            is_bit_td = np.isnan(rows.value_td) | (rows.value_td == 0) | (rows.value_td == 1)
            if not is_bit_td.all():
                raise DataFormatError("X must hold bits, 0 and 1, and NaN for what is missing; it has other numbers.")
        return rows

    def _show_emissions(self, chain: HiddenChain) -> Floats:
        shown = chain.emissions
        if isinstance(shown, BernoulliEmissions):
            self.emission_probabilities_: Floats = (shown.on_dk / (shown.on_dk + shown.off_dk)).T
        else:
            self.emission_probabilities_ = self._fitted_model.shown_kv(chain)
        if isinstance(shown, PoissonEmissions):
            self.rates_: Floats = shown.mean_dk[0]
        return self.emission_probabilities_

    @property
    def _heading(self) -> str:
        return "rate" if self.emissions == "poisson" else super()._heading

    def _shown_by(self, k: int) -> str:
        return f"{self.rates_[k]:.2f}" if self.emissions == "poisson" else super()._shown_by(k)

    def _shown_laws(self) -> Iterator[Floats]:
        shown = self.emission_probabilities_
        yield shown if isinstance(self._content(), Symbols) else np.stack([shown, 1 - shown], axis=-1)


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class GaussianHiddenMarkovModel(HiddenStates[HiddenCells, HiddenCellsPosterior]):
    """Fit a hidden Markov model of sequences of numbers, under (ε, δ)-differential privacy.

    Emissions are up to 4 columns of numbers, independent and normal within a state. `SequenceModel` documents the forms
    of X; sequences are arrays (points, columns), or `dpvb.data.Events` with their columns as values. Points are
    assigned to cells of a public grid. Pairs of cells are released once, with count, mean and variance within each
    cell, and the model is fitted to them: more starts or iterations use no budget. Other parameters are those of
    `PrivateEstimator`; the fit has no steps.

    Args:
        columns: Columns of numbers: their names, as a list or a text with commas, or their number, at most 4. Default:
            (), which raises an error.
        low, high: Public range of each column: numbers or arrays of shape (D,), in units of the column. Values outside
            are clipped. None (default): `max_row_norm` is given.
        max_row_norm: Public upper bound on the Euclidean norm of a point, instead of `low` and `high`. None (default):
            not used.

    Attributes:
        symbols_: Names of the columns in the order of the arrays below.
        means_, variances_: Means and variances of the numbers in each state, (K, D).
        privacy_, n_iter_, n_features_in_: Privacy statement, and numbers of steps (0) and columns.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> x = np.random.default_rng(0).normal(0, 1, (2000, 10, 1))
        >>> model = dpvb.GaussianHiddenMarkovModel(2, columns=1, low=-4, high=4, epsilon=1.0, delta=1e-6)
        >>> model.fit(x).means_.shape
        (2, 1)
    """

    _: KW_ONLY
    low: float | Sequence[float] | NDArray[Any] | None = None
    high: float | Sequence[float] | NDArray[Any] | None = None
    max_row_norm: float | None = None

    _record_class: ClassVar[type] = HiddenCellsPosterior
    _command: ClassVar[str | None] = "gaussian-hidden-markov"
    _example: ClassVar[str | None] = "--states 2 --columns x,y --low 0 --high 100"
    _grid_note: ClassVar[str] = "Means."

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> tuple[Floats, Ints]:
        """Draw n synthetic sequences, (n, length, D), within the public ranges, and their states.

        They reveal no more than the released model.

        Args:
            n: Public number of sequences.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            length: Number of points per sequence. None (default): `max_length`. The model does not include the
                distribution of lengths.
        """
        state_nt, draw = self._drawn_states(n, rng, length)
        content, shown = self._content(), self._gaussian(self._q.chain)
        x_ntd = draw.normal(shown.mean_dk.T[state_nt], np.sqrt(shown.variance_dk.T[state_nt]))
        return content.centre_d + content.unit_d * np.clip(x_ntd, -1.0, 1.0), state_nt

    def _quality_range(self, model: HiddenCells) -> tuple[float, float]:
        """From the score of a uniform guess to 3 nats per column above it."""
        return range_of_numbers(model.n_columns)

    def _content(self) -> Points:
        return numbers_of(self.columns, self.low, self.high, self.max_row_norm)

    def _model(self) -> HiddenCells:
        """The model that the parameters name."""
        return HiddenCells(len(self._content()), self.n_states, **self._shared(fields(HiddenWindowModel)))

    def _values(self, rows: NumberRows) -> Values:
        return rows.value_td

    def _show_emissions(self, chain: HiddenChain) -> Floats:
        content, shown = self._content(), self._gaussian(chain)
        self.means_: Floats = content.centre_d + content.unit_d * shown.mean_dk.T
        self.variances_: Floats = content.unit_d**2 * shown.variance_dk.T
        return self.means_

    @staticmethod
    def _gaussian(chain: HiddenChain) -> GaussianEmissions:
        """Emissions of the states."""
        assert isinstance(chain.emissions, GaussianEmissions)
        return chain.emissions

    def _with_one_start(self, q: HiddenCellsPosterior) -> HiddenCellsPosterior:
        return replace(q, chance_rk=q.chance_rk[:1])


def _constants(q: HiddenMarkovPosterior | HiddenCellsPosterior) -> list[Any]:
    """The class of what states show, and the numbers of the priors."""
    parts = (vars(q.chain), vars(q.chain.emissions))
    return [type(q.chain.emissions), *(value for part in parts for value in part.values() if np.isscalar(value))]


def _largest(law: Floats) -> Ints:
    """The places of the three most probable."""
    return np.argsort(-law, kind="stable")[:3]
