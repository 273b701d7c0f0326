"""Private hidden Markov models over sequences of public symbols, counts, bits or numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpvb.core.plan import Plan
from dpvb.data.sequences.numbers import Numbers
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.base import PrivateEstimator, Task, generator
from dpvb.estimators.given import Records
from dpvb.estimators.noise_of_means import stds_of
from dpvb.estimators.sequences import SequenceModel, to_draw
from dpvb.guards import domains
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.strangers import printable
from dpvb.models.sequences import dynamics, errors, foreseen, hidden_markov, passes
from dpvb.models.sequences.emissions import Bernoulli, Gaussian, Poisson
from dpvb.models.sequences.hidden_cells import HiddenCells
from dpvb.models.sequences.hidden_markov import IteratedHiddenMarkov
from dpvb.results.figures import Figure, Grid, Intervals
from dpvb.results.forecast import Forecast, two_digits
from dpvb.results.groups import GroupTable, Line


@dataclass(eq=False, repr=False)
class HiddenMarkovModel(SequenceModel):
    """Hidden states behind people's sequences, under (ε, δ)-differential privacy.

    Each state shows symbols, counts, bits or numbers in its own way, and states follow one another as a Markov chain.
    What `fit` takes is said in `SequenceModel`; sequences of bits or numbers are arrays (points, columns), or
    `dpvb.data.Events` with their columns as values. Windows of three symbols are released once (of two, for more than
    40 symbols, and of numbers, which fall into cells), and the model is fitted to them: more starts or iterations cost
    no privacy. A hidden Markov model is for hidden structure; where likelihood alone counts, a `MarkovChain` of order 2
    is as good. The parameters of the budget and the ledger are those of `PrivateEstimator`; num_steps=None: 4 steps
    after windows, 20 from a random start.

    Args:
        n_states: number of states K.
        symbols: the public symbols, as a list, or one text with commas between; a number V stands for 0 to V - 1.
        emissions: what a state shows: "categorical", any symbols; "poisson", where the symbols are the counts 0 to V -
            1, and the last one stands for so many or more; "bernoulli", up to 9 columns of 0 and 1; or "gaussian", up
            to 4 columns of numbers, independent within a state.
        columns: names of the columns of bits or numbers, as a list or one text with commas between, or how many.
        low, high: public range of each column of numbers: values outside are brought to its ends.
        row_norm: in their place, a public bound on the norm of a point.
        estimate: "posterior" (variational Bayes) or "mode" (expectation maximisation).
        n_init: how many starts are tried; the best by the released windows is kept.
        solver: "windows"; "refined", steps over whole sequences after them, which need very many people; or "iterated",
            such steps from a random start, for comparison.
        power: how much persons with many windows of symbols weigh, from 0.5 (as the root of their number) to 1 (as it).
        clip: bound on what a person's windows add; None: what one sequence of max_length can reach: nobody with one
            is then shortened, the noise is larger, and the laws of the states are those of the whole.

    Attributes:
        symbols_: the symbols, in the order of all that follows; for bits and numbers the names of the columns.
        initial_: probabilities of the first state, (K,); states are in the order of their shares, largest first.
        transition_matrix_: probabilities of the next state, (K, K), rows sum to 1.
        emission_probabilities_: probabilities of the symbols in every state, (K, V), or of ones in each column, (K, D).
        rates_: mean counts of the states, (K,), with emissions="poisson".
        means_, variances_: of every state's numbers, (K, D), with emissions="gaussian".
        stationary_: shares of the states in the long run, (K,).
        expected_durations_: how many steps each state lasts, (K,).
        privacy_, n_iter_, n_features_in_: the privacy statement, number of steps, of symbols.
    """

    n_states: int
    _: KW_ONLY
    symbols: int | str | Sequence[Any] | None = None  # type: ignore[assignment]
    columns: int | str | Sequence[str] | None = None
    low: float | Sequence[float] | NDArray[Any] | None = None
    high: float | Sequence[float] | NDArray[Any] | None = None
    row_norm: float | None = None
    emissions: str = "categorical"
    estimate: str = "posterior"
    n_init: int = 5
    solver: str = "windows"
    power: float = 1.0
    clip: float | None = 2.0

    command: ClassVar[str | None] = "hidden-markov"
    example: ClassVar[str | None] = "--states 3 --symbols front,news,sports --symbol-column page"
    spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator.spelled, "n_states": "states"}

    def predict(self, X: Records, lengths: Any = None) -> list[Ints]:
        """The most probable states of each sequence together (Viterbi): as private as X, without any guarantee.

        Raises:
            DataFormatError: for symbols that are none of the public ones.
        """
        rows = self._visible(X, lengths)
        state_t = passes.most_probable(self._q.chain, rows.indptr, self._values(rows))
        return np.split(state_t, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def predict_proba(self, X: Records, lengths: Any = None) -> list[Floats]:
        """Probabilities of the states at each place of each sequence, (symbols, K): as private as X.

        Raises:
            DataFormatError: as in `predict`.
        """
        rows = self._visible(X, lengths)
        state_tk = passes.smoothed(self._q.chain, rows.indptr, self._values(rows))
        return np.split(state_tk, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def predict_next(self, X: Records, lengths: Any = None) -> Floats:
        """Probabilities of the next symbol of each sequence, (sequences, V), or as `forecast` says: as private as X.

        Raises:
            DataFormatError: as in `predict`.
        """
        return np.asarray(self.forecast(X, lengths)[:, 0])

    def forecast(self, X: Records, lengths: Any = None, *, steps: int = 1) -> Floats:
        """Probabilities of the symbols 1 to `steps` places on, (sequences, steps, V): as private as X.

        Of bits they are the probabilities of ones, and of numbers the means, (sequences, steps, D).

        Raises:
            DataFormatError: as in `predict`.
        """
        rows, steps = self._visible(X, lengths), check_integer("steps", steps, low=1, high=10**6)
        state_nk = passes.last_states(self._q.chain, rows.indptr, self._values(rows))
        is_empty_n = np.diff(rows.indptr) == 0
        made = np.empty((len(state_nk), steps, len(self.symbols_)))
        for step in range(steps):
            # Before a first symbol no step has been made.
            ahead_nk = state_nk @ self.transition_matrix_
            state_nk = np.where(is_empty_n[:, None], state_nk, ahead_nk) if step == 0 else ahead_nk
            made[:, step] = state_nk @ self._shown
        return made

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> tuple[NDArray[Any], Ints]:
        """Draw n sequences of nobody, (n, length), and their states; they tell no more than the model does.

        Sequences of bits and numbers are (n, length, D); numbers stay within the public ranges.

        Args:
            n: number of sequences; public.
            rng: a seed, a NumPy generator or None.
            length: symbols of each; None: max_length. The model says nothing of how long sequences are.
        """
        self._check_fitted()
        number, long, draw = to_draw(n, length, self.max_length, rng)
        state_nt = dynamics.drawn(self.initial_, [self.transition_matrix_], number, long, draw)
        content, shown = self._content(), self._q.chain.emissions
        if isinstance(content, Symbols):
            return np.array(self.symbols_)[dynamics.shown(state_nt, self.emission_probabilities_, draw)], state_nt
        if not isinstance(shown, Gaussian):
            return (draw.random((*state_nt.shape, len(content))) < self._shown[state_nt]).astype(np.int64), state_nt
        x_ntd = draw.normal(shown.mean_dk.T[state_nt], np.sqrt(shown.variance_dk.T[state_nt]))
        return content.centre_d + content.unit_d * np.clip(x_ntd, -1.0, 1.0), state_nt

    def transition_intervals(self, level: float = 0.95, *, noise_aware: bool = True, rng: Any = 0) -> GroupTable:
        """Every transition probability with an interval that counts the privacy noise in.

        The released windows are read again by least squares, without priors, which would draw them together: so the
        estimates are not those of `transition_matrix_`, which predicts better. What clip shortens is counted in, as it
        shortens people who are drawn from the model. Each is taken to have one sequence, and all sequences to be of one
        length. Of numbers the whole fit is made again for drawn people, noise and all: what it bends on average is put
        back, and how much the fits differ is the deviation. This takes some seconds.

        Args:
            level: probability inside an interval, in (0, 1).
            noise_aware: False leaves the privacy noise out of account; for comparison only.
            rng: a seed, a NumPy generator or None; for the people who are drawn.

        Raises:
            ParameterError: for steps from a random start, and for more than 40 symbols: windows of two tell states from
                what states show in part alone.
        """
        self._check_fitted()
        level, draw = check_number("level", level, low=0, high=1, closed="neither"), generator("rng", rng)
        if self.why_no_intervals:
            raise ParameterError(self.why_no_intervals)
        numbers = self.emissions == "gaussian"
        spread: Any = errors.number_errors if numbers else errors.symbol_errors
        found = spread(self._fitted_model, self._q, draw, noise_aware=noise_aware)
        reach = float(ndtri(0.5 + level / 2))
        lines = tuple(
            Line.within(str(i), str(j), float(np.clip(step, 0.0, 1.0)), float(found.std_kk[i, j]), reach, (0.0, 1.0))
            for (i, j), step in np.ndenumerate(found.step_kk)
        )
        head = self._head(len(lines), level, noise_aware)
        read = "have back what noise, cells and clip bend" if numbers else "are read without priors"
        own = f"These {read}: the model's own{'' if numbers else ', which predict better,'} may be other numbers."
        return GroupTable(lines, f"{head}\n{own}", ("after", "comes"))

    @property
    def why_no_intervals(self) -> str:
        """Why `transition_intervals` cannot be had, in a sentence; empty: they can."""
        self._check_fitted()
        if self.emissions == "gaussian":
            return ""
        if self.solver == "iterated":
            return "intervals are made of windows: solver must be 'windows' or 'refined', got 'iterated'."
        if self._fitted_model.length < 3:
            return (
                f"symbols must be at most 40 for intervals, got {self._fitted_model.n_symbols}: windows of two, which "
                "were released, tell states from what states show in part alone. Join symbols that are alike."
            )
        return ""

    def steps(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Names of the states, what follows each, (K, K), and how many steps each lasts, (K,)."""
        self._check_fitted()
        return tuple(f"state {k}" for k in range(self.n_states)), self.transition_matrix_, self.expected_durations_

    def facts_for_report(self) -> Iterator[Figure]:
        """What follows each state, and what it shows."""
        states, names = tuple(f"state {k}" for k in range(self.n_states)), tuple(map(str, self.symbols_))
        note = "Probabilities, as they predict best."
        given = [("What follows each state", note, states, self.transition_matrix_)]
        note = "Means." if self.emissions == "gaussian" else "Probabilities."
        given += [("What each state shows", note, names, self._shown)]
        for title, note, columns, law in given:
            values = tuple(map(tuple, law.tolist()))
            yield Grid(title=title, note=note, rows=states, columns=columns, values=values)
        if not self.why_no_intervals:
            table = self.transition_intervals()
            yield Intervals(
                title="Transitions of states",
                note=table.head.replace("\n", "; "),
                rows=tuple((f"{one.group} → {one.name}", one.mean, one.low, one.high, "") for one in table),
            )

    def summary(self) -> str:
        """The states in the order of their shares: how long they last, what they show, and what follows."""
        self._check_fitted()
        shown = "rate" if self.emissions == "poisson" else "shows"
        what = "symbols" if isinstance(self._content(), Symbols) else "columns"
        lines = [f"Hidden Markov model, states: {self.n_states}, {what}: {len(self.symbols_)}", ""]
        lines += [f"{'state':<8}{'first':>8}{'share':>8}{'lasts':>8}  {'followed by':<27}{shown}"]
        for k in range(self.n_states):
            then = ", ".join(f"{j} {self.transition_matrix_[k, j]:.3f}" for j in _largest(self.transition_matrix_[k]))
            law_v = self._shown[k]
            first = range(min(3, len(law_v))) if what == "columns" else _largest(law_v)
            shows = ", ".join(f"{printable(str(self.symbols_[v]))} {law_v[v]:.3g}" for v in first)
            shows = f"{self.rates_[k]:.2f}" if self.emissions == "poisson" else shows
            numbers = f"{self.initial_[k]:>8.3f}{self.stationary_[k]:>8.3f}{self.expected_durations_[k]:>8.2f}"
            lines.append(f"{k:<8}{numbers}  {then:<27}{shows}")
        return "\n".join(lines)

    def _forecast(self, task: Task, plan: Plan, n: float) -> Forecast:
        refined, model = self.solver == "refined", task.model
        found = self._of_steps(model if self.solver == "windows" else model.windows, task.plan.unit, plan, n)
        if isinstance(model, HiddenCells):
            found = replace(found, facts=f"{model.n_columns} columns, {model.n_states} states")
        if not refined:
            return found
        weight, noise = self._of_passes(model.windows, plan, n)
        share = noise * self.n_states**2 / weight
        said = f"{found.expected}; noise of {two_digits(100 * share)} % in what steps after windows add to an even one"
        strength = _PAYS / share if share > 0 else math.inf
        then = "steps after windows can pay"
        return replace(found, expected=said, strength=strength, then=then, affordable=found.parts * strength**0.5)

    def _deviation(self, model: Any, plan: Plan, n: float) -> tuple[int, float]:
        if self.solver == "iterated":
            weight, noise = self._of_passes(model, plan, n)
            return model.n_states, noise * model.n_states / weight
        v, k = model.n_symbols, model.length
        weight = foreseen.total(n, model.max_length - k + 1, v, k, model.power, model.bound)
        [noise] = stds_of(plan, model.name)
        return model.n_states, foreseen.hidden(model.n_states, v, k, weight, n, model.power, noise)

    @staticmethod
    def _of_passes(windows: hidden_markov.HiddenMarkov, plan: Plan, n: float) -> tuple[float, float]:
        """Expected weight of all pairs in the passes over n persons, and the noise in the mean of it over steps."""
        noises = stds_of(plan, "transitions")
        bound = next(release.blocks["transitions"].bound for release in plan if "transitions" in release.blocks)
        weight = foreseen.total(n, windows.max_length - 1, windows.n_states, 2, 0.5, bound)
        return weight, math.sqrt(math.fsum(noise**2 for noise in noises)) / len(noises)

    def quality_range(self, model: Any) -> tuple[float, float]:
        """From the score of a uniform guess to certainty, or of numbers to 3 nats a column above it."""
        if self.emissions == "gaussian":
            return -math.log(2) * model.n_columns, (_ABOVE_UNIFORM - math.log(2)) * model.n_columns
        return super().quality_range(model if self.solver == "windows" else model.windows)

    def take(self, task: Task, q: Any) -> None:
        """Keep the model."""
        super().take(task, q)
        self.n_iter_ = task.notes["steps"]

    def _content(self) -> Symbols | Numbers:
        kind = check_choice("emissions", self.emissions, ("categorical", "poisson", "bernoulli", "gaussian"))
        numbers, bounds = kind in ("bernoulli", "gaussian"), (self.low, self.high, self.row_norm)
        if (self.symbols is None) != numbers or (self.columns is None) == numbers:
            needed = "columns must be given, and symbols be None," if numbers else "symbols must be given, not columns,"
            way_out = (
                ""
                if numbers or self.columns is None
                else (" Columns of numbers need emissions='gaussian', columns of 0 and 1 emissions='bernoulli'.")
            )
            raise ParameterError(
                f"{needed} with emissions={kind!r}, got {self.symbols!r} and {self.columns!r}.{way_out}"
            )
        if (kind == "gaussian") == all(end is None for end in bounds):
            needed = "be given" if kind == "gaussian" else "be None"
            raise ParameterError(f"low and high, or row_norm, must {needed} with emissions={kind!r}, got {bounds}.")
        return Numbers(self.columns, *bounds) if numbers else Symbols(self.symbols)

    def _sound(self, rows: Any) -> Any:
        rows = super()._sound(rows)
        if self.emissions == "bernoulli" and not np.isin(rows.value_td[~np.isnan(rows.value_td)], (0, 1)).all():
            raise DataFormatError("X must hold bits, 0 and 1, and NaN for what is missing; it has other numbers.")
        return rows

    def _values(self, rows: Any) -> Any:
        """What states show."""
        return rows.value_td if self.emissions == "gaussian" else self._fitted_model.alphabet.values(rows)

    def _scores(self, rows: Any) -> Floats:
        found, content = super()._scores(rows), self._content()
        if self.emissions != "gaussian" or isinstance(content, Symbols):
            return found
        row_t = np.repeat(np.arange(len(found)), np.diff(rows.indptr))
        in_units_t = (~np.isnan(rows.value_td)) @ np.log(content.unit_d)
        return np.asarray(found - np.bincount(row_t, weights=in_units_t, minlength=len(found)))

    def _model(self, content: Any) -> Any:
        windows = self._windows(content)
        if check_choice("solver", self.solver, tuple(_STEPS)) == "windows":
            return windows
        if self.emissions == "gaussian":
            raise ParameterError(f"solver must be 'windows' with emissions='gaussian', got {self.solver!r}.")
        steps = _STEPS[self.solver] if self.num_steps is None else self.num_steps
        return IteratedHiddenMarkov(windows, steps, self.solver == "refined")

    def _windows(self, content: Any) -> Any:
        """The model of windows."""
        given = self.n_states, self.estimate, self.n_init, self.power, self.clip, self.max_length
        if self.emissions == "gaussian":
            return HiddenCells(len(content), *given)
        if self.emissions == "bernoulli":
            if len(content) > _MOST_BITS:
                raise ParameterError(
                    f"columns must be at most {_MOST_BITS} with emissions='bernoulli', got {len(content)}: pairs of "
                    "all patterns are counted. Join columns that are alike."
                )
            return hidden_markov.HiddenMarkov(2 ** len(content), self.n_states, "bernoulli", *given[1:])
        counts = [*range(len(content))]
        if self.emissions == "poisson" and [*map(str, content.values)] != [*map(str, counts)]:
            raise ParameterError(
                f"symbols must be the counts 0, 1, .. with emissions='poisson', got {[*content.values][:8]}: give "
                "their number, symbols=21 for counts up to 20 and more."
            )
        return hidden_markov.HiddenMarkov(len(content), self.n_states, self.emissions, *given[1:])

    def _set(self, symbols: Sequence[Any], q: Any) -> None:
        self.symbols_, self.n_iter_, self.n_features_in_ = tuple(symbols), 0, len(symbols)
        content: Any = self._content()
        self._fitted_model = self._windows(content)
        share_k = dynamics.symbol_shares(q.chain.laws(expected=False).step_kk)
        self._q = q = replace(q, chain=q.chain.permuted(np.argsort(-share_k, kind="stable")))
        self.initial_, _, self.transition_matrix_ = q.chain.laws(expected=False)
        shown = q.chain.emissions
        if isinstance(shown, Gaussian):
            self.means_ = self._shown = content.centre_d + content.unit_d * shown.mean_dk.T
            self.variances_ = content.unit_d**2 * shown.variance_dk.T
        elif isinstance(shown, Bernoulli):
            self.emission_probabilities_ = self._shown = (shown.on_dk / (shown.on_dk + shown.off_dk)).T
        else:
            self.emission_probabilities_ = self._shown = self._fitted_model.shown_kv(q.chain)
        if isinstance(shown, Poisson):
            self.rates_ = shown.mean_dk[0]
        self.stationary_ = dynamics.symbol_shares(self.transition_matrix_)
        self.expected_durations_ = dynamics.durations(self.transition_matrix_)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        chain, q = self._q.chain, self._q
        own = {name: np.asarray(value) for name, value in vars(chain.emissions).items() if np.ndim(value) == 2}
        arrays = {"start_k": chain.start_k, "pooled_k": chain.pooled_k, "step_kk": chain.step_kk, **own}
        released = {name: np.asarray(getattr(q, name)) for name in _RELEASED if hasattr(q, name)}
        ends = {name: getattr(self, name) for name in ("low", "high", "row_norm")}
        ends = {name: None if end is None else np.asarray(end, dtype=np.float64).tolist() for name, end in ends.items()}
        return {**arrays, **released}, {"symbols": [*self.symbols_], "steps": self.n_iter_, **ends}

    @np.errstate(all="ignore")  # `_check_laws` finds what overflows
    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        names = "columns" if self.emissions in ("bernoulli", "gaussian") else "symbols"
        setattr(self, names, facts["symbols"])
        if self.emissions == "gaussian":
            self.low, self.high, self.row_norm = (facts[name] for name in ("low", "high", "row_norm"))
        content = self._content()
        # Factors of starts are no part of a file, and one of them is small whatever the file says.
        q = replace(self._windows(content), n_init=1).init(generator("random_state", 0))
        chain = self._taken(q.chain, arrays)
        q = self._taken(q, {name: arrays[name] for name in _RELEASED if hasattr(q, name)})
        chain = replace(chain, emissions=self._taken(q.chain.emissions, arrays))
        self._set(
            content.values if isinstance(content, Symbols) else content.names, domains.checked(replace(q, chain=chain))
        )
        self.n_iter_ = check_integer("steps", facts["steps"], low=0)
        laws = [self.initial_, self.transition_matrix_]
        shown = np.stack([self._shown, 1 - self._shown], axis=-1) if self.emissions == "bernoulli" else self._shown
        self._check_laws(*laws, *([] if self.emissions == "gaussian" else [shown]))

    @staticmethod
    def _taken(like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """A part of q with the arrays of its own names, of its own shapes."""
        own = {name: arrays[name].astype(np.float64, casting="same_kind") for name in vars(like) if name in arrays}
        if any(np.shape(array) != np.shape(getattr(like, name)) for name, array in own.items()):
            raise ValueError("a model of another shape")
        return replace(like, **{name: array if array.ndim else float(array) for name, array in own.items()})


# Nats above a uniform guess, for each column of numbers, at which a score is cut when settings are chosen.
_ABOVE_UNIFORM = 3.0
# Most columns of bits: a block has a number for each pair of patterns.
_MOST_BITS = 9
# Noise in an even step, as a share of its weight, up to which steps after windows can pay (visits of pages).
_PAYS = 0.05
# Steps of each solver where their number is not given.
_STEPS = {"windows": 0, "refined": 4, "iterated": 20}
# What q has beside the chain, of symbols or of numbers.
_RELEASED = ("start_ww", "pooled", "start_std", "pooled_std", "noise_b")


def _largest(law: Floats) -> Ints:
    """The places of the three most probable."""
    return np.argsort(-law, kind="stable")[:3]
