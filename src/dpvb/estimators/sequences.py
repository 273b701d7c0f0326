"""Common parts of models of people's sequences: public symbols, readers of private sequences, and scores."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpvb.core.plan import Plan
from dpvb.data.sequences.content import Points, Symbols
from dpvb.data.sequences.events import Events
from dpvb.estimators.base import ONE_UNIT, PrivateEstimator, Q, Task, if_fitted, unbounded
from dpvb.estimators.input_types import Records, Responses
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.sequences.hidden_cells import HiddenCells
from dpvb.models.sequences.hidden_markov import HiddenMarkov
from dpvb.models.sequences.linear_dynamical import LinearDynamical
from dpvb.models.sequences.markov_chain import MarkovChainModel
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.interval_table import head

# Nats above a uniform guess, for each column of numbers, at which a score is cut when settings are chosen.
_ABOVE_UNIFORM = 3.0
# Standard deviation of a uniform probability, as of one of which a fit finds nothing.
_UNIFORM_STD = 12**-0.5


def source_of(content: Any, X: Records, lengths: Any, group: Iterable[object] | None) -> Any:
    """Return private sequences of this content, in any of the forms of `fit`.

    Raises:
        ParameterError: If lengths or groups are given together with events.
        DataFormatError: If X has none of the forms.
    """
    if not isinstance(X, Events):
        return content.sequences(X, lengths, group)
    if lengths is not None or group is not None:
        raise ParameterError("lengths and group must be None with events, which have a column of persons.")
    return X.sequences(content)


def of_a_place(score_n: Floats, rows: Any) -> Floats:
    """Return the mean score per place of each sequence; NaN for one without places."""
    length_n = np.diff(rows.indptr)
    return np.where(length_n > 0, score_n / np.maximum(length_n, 1), np.nan)


def numbers_of(columns: int | str | Sequence[str] | None, low: Any, high: Any, max_row_norm: float | None) -> Points:
    """Return columns of numbers with their public bounds.

    Raises:
        ParameterError: If there are no columns or no bounds.
    """
    if columns is None:
        raise ParameterError("columns must be given: the names of the columns of numbers, or how many there are.")
    if low is None and high is None and max_row_norm is None:
        way = "low= and high=, the range of each column that you know without looking at the data"
        raise unbounded("low and high or max_row_norm", "none", way, ONE_UNIT)
    return Points(columns, low, high, max_row_norm)


def range_of_numbers(n_columns: int) -> tuple[float, float]:
    """Return limits of a score of numbers: that of a uniform guess, and 3 nats per column above it."""
    return -math.log(2) * n_columns, (_ABOVE_UNIFORM - math.log(2)) * n_columns


# A public fact of a fit, in its statement.
_SEVERAL = "a column that separates the sequences of a person"

#: Models of sequences, and among them those of windows.
Sequential = TypeVar("Sequential", bound=MarkovChainModel | HiddenMarkov | HiddenCells | LinearDynamical)
Windowed = TypeVar("Windowed", bound=MarkovChainModel | HiddenMarkov | HiddenCells)


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(PrivateEstimator[Sequential, Q]):
    """Base class of models of sequences.

    X has private sequences: a list of lists or arrays; a matrix with a sequence per row; one array of all places with
    the lengths as y, like hmmlearn; or a long table, `dpvb.data.Events`, with a row per event. Without `group`, each
    sequence is a unit; with `group`, and always for events, a unit is a person with all sequences. A cell that is not a
    public symbol, or not a number, is a gap.

    Args:
        max_length: Number of places of each sequence that are included, from its beginning. Default: 20.
    """

    max_length: int = 20

    _reads: ClassVar[str | None] = "sequences"

    @property
    def _named_columns(self) -> tuple[str, ...] | None:
        """Return names of the columns of bits or numbers; None for symbols."""
        content = self._content()
        return content.names if isinstance(content, Points) else None

    @abstractmethod
    def _content(self) -> Symbols | Points:
        """Content of the sequences."""

    @abstractmethod
    def _model(self) -> Sequential:
        """Return the model that the parameters specify."""

    def _score_rows(self, rows: Any) -> Floats:
        """Return the log-probability of each sequence, (n,), as the model reads its places."""
        q: Any = self._q
        return self._fitted_model.score(q, rows)

    def _keep_model(self, model: Sequential, q: Q) -> None:
        self._fitted_model: Sequential = model
        self._q: Q = q

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[Sequential]:
        """Return the task of a fit to private sequences; y: the lengths of concatenated sequences in X."""
        content, model = self._content(), self._model()
        source = source_of(content, X, y, group)
        names, what = (content.values, "symbols") if isinstance(content, Symbols) else (content.names, "columns")
        public = {
            what: f"{len(content)} {what}",
            "max_length": f"the first {model.max_length} {content.things} of a sequence",
            "parameters": "the plan and all other parameters",
        }
        if isinstance(X, Events) and X.sequence is not None:
            public["sequence"] = _SEVERAL
        return self._planned_task(model, source, model.schedule, public, {"symbols": names})

    def _learned(self, task: Task[Sequential], q: Q) -> Any:
        return q

    def _no_rows(self, *, schema: Any, vocabulary: Any, width: int | None) -> dict[str, Any]:
        """Return arguments without sequences, for a number of symbols."""
        content = self._content()
        if width not in (None, len(content)):
            what = "symbols" if isinstance(content, Symbols) else "columns"
            raise ParameterError(f"width must be the number of {what}, {len(content)}, got {width}.")
        return {"X": []}

    def _quality(self, rows: Any) -> Floats:
        """Return the mean log-probability per symbol of each sequence."""
        return of_a_place(self._score_rows(rows), rows)

    def score_samples(self, X: Records, lengths: Any = None, *, public: bool = False) -> Floats:
        """Return the log-probability of each public sequence, (sequences,), in nats.

        Args:
            X, lengths: Public sequences, as in `fit`.
            public: True states that the sequences are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If X contains undeclared symbols.
        """
        self._check_public(public)
        return self._scores(self._visible(X, lengths))

    @if_fitted
    def score(self, X: Records, lengths: Any = None, *, public: bool = False) -> float:
        """Log-probability of public sequences, or of public `Events`, per symbol, in nats; higher is better.

        Raises:
            PrivacyError, DataFormatError: as `score_samples`.
        """
        self._check_public(public)
        rows = self._of_table(X) if isinstance(X, Events) and lengths is None else self._visible(X, lengths)
        return float(self._scores(rows).sum()) / max(int(rows.indptr[-1]), 1)

    def evaluate(self, X: Records, lengths: Any = None, *, public: bool = False) -> dict[str, float]:
        """`score`, and of symbols the perplexity.

        Raises:
            PrivacyError, DataFormatError: as `score_samples`.
        """
        score = self.score(X, lengths, public=public)
        if self._named_columns is not None:
            return {"log_likelihood_of_a_point": score}
        return {"log_likelihood_of_a_symbol": score, "perplexity": float(np.exp(-score))}

    def _sequences_to_draw(self, n: int, rng: Any, length: int | None) -> tuple[int, int, np.random.Generator]:
        """Return how many sequences are asked for, how long they are, and what draws them; all public."""
        number, draw = self._to_draw(n, rng)
        return number, check_integer("length", self.max_length if length is None else length, low=1, high=10**6), draw

    def _scores(self, rows: Any) -> Floats:
        """Log-probability of each sequence, in units of the columns."""
        score_n, content = self._score_rows(rows), self._public_content()
        if isinstance(content, Symbols):
            return score_n
        row_t = np.repeat(np.arange(len(score_n)), np.diff(rows.indptr))
        in_units_t = ~np.isnan(rows.value_td) @ np.log(content.unit_d)
        return np.asarray(score_n - np.bincount(row_t, weights=in_units_t, minlength=len(score_n)))

    def _visible(self, X: Records, lengths: Any) -> Any:
        """Sequences that the caller may see."""
        self._check_fitted()
        if isinstance(X, Events):
            raise DataFormatError("X must be sequences, as a list or with lengths: events have no order of persons.")
        if lengths is None and isinstance(X, (list, tuple)) and any(map(np.isscalar, X)):
            raise DataFormatError("X must be sequences, got single symbols: pass [X], or lengths.")
        return self._sound(self._public_content().rows(X, lengths))

    def _of_table(self, events: Events) -> Any:
        """Sequences of a public long table."""
        if events.sequence is None and any(fact.startswith(_SEVERAL) for fact in self.privacy_.public):
            raise ParameterError(
                "sequence (--sequence-column) must name the column that separates the sequences of a person, as in "
                "the fit, got None: the score of joined sequences is another number."
            )
        return self._sound(of_events(events, self._public_content()))

    def _public_content(self) -> Symbols | Points:
        """Content of the sequences of the fit."""
        content = self._content()
        return content if isinstance(content, Points) else Symbols(self.symbols_)

    def _sound(self, rows: Any) -> Any:
        """Sequences that the caller may see, of only public symbols."""
        if hasattr(rows, "code") and (rows.code < 0).any():
            raise DataFormatError(f"X has cells that are none of the symbols {[*self.symbols_][:8]}.")
        return rows


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class ChainModel(SequenceModel[Windowed, Q]):
    """A chain of symbols, or of hidden states: probabilities of what follows what, with intervals."""

    # The result is informative where the standard deviation without data is this multiple of that of the fit.
    _informative: ClassVar[float] = 2.0

    @property
    def _why_no_intervals(self) -> str:
        """Why `transition_intervals` cannot be had, in a sentence; empty: they can."""
        return ""

    def _shared(self, declared: tuple[Field[Any], ...]) -> dict[str, Any]:
        """Return the parameters that a model of windows declares as fields, by name."""
        return {field.name: getattr(self, field.name) for field in declared}

    @abstractmethod
    def _deviation(self, model: Windowed, plan: Plan, n: float) -> tuple[int, float]:
        """Number of outcomes of a distribution, and the standard deviation of one of its probabilities."""

    def _expected_accuracy(self, task: Task[Windowed], plan: Plan, n: float) -> ExpectedAccuracy:
        number, std = self._deviation(task.model, plan, n)
        # The same if all distributions over the symbols or states are as likely.
        unknown = math.sqrt((number - 1) / (number + 1)) / number if number > 1 else 1.0
        return ExpectedAccuracy(
            "standard deviation of a transition probability",
            min(std, _UNIFORM_STD),
            unknown / self._informative,
            unknown,
        )

    def _quality_range(self, model: Windowed) -> tuple[float, float]:
        """Return limits of the score: that of a uniform guess, and 0."""
        return -float(np.log(model.n_symbols)), 0.0

    @abstractmethod
    def transition_table(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names of symbols or states, transition probabilities, (V, V), and expected repetitions, (V,)."""

    def _head(self, number: int, level: float, noise_aware: bool) -> str:
        """Return the text above a table of transitions."""
        above = head(number, "transitions", level, noise_aware)
        if not self._shortened:
            return above
        most = replace(self._model(), clip_norm=None).bound
        return (
            f"{above}\nclip_norm={self._model().clip_norm:g} clipped {self._shortened:.0%} of the "
            f"{self.privacy_.unit}s. The correction of this bias assumes one sequence per person, the same "
            "transition probabilities for all, and lengths independent of the symbols. Otherwise part of the "
            f"bias remains, and intervals are too short. With clip_norm=None, here {most:.3g}, no person with one "
            "sequence is clipped."
        )

    @property
    def _shortened(self) -> float:
        """Share of units that were clipped, from the released numbers; 0 if it is not distinguishable from 0."""
        statement: Any = vars(self).get("privacy_")
        if self._model().clip_norm is None or statement is None or statement.counts is None:
            return 0.0
        return float(statement.counts.share_clipped)

    def predict_next(self, X: Records, lengths: Any = None) -> Floats:
        """Return the probabilities of `forecast` for the next place of each sequence, (sequences, V): as private as X.

        Raises:
            DataFormatError: as `forecast`.
        """
        return np.asarray(self.forecast(X, lengths)[:, 0])

    @abstractmethod
    def forecast(self, X: Records, lengths: Any = None, *, horizon: int = 1) -> Floats:
        """Probabilities of the symbols 1 to `horizon` places on, (sequences, horizon, V): as private as X."""

    @staticmethod
    def _check_laws(*laws: Floats) -> None:
        """Check that rows of probabilities of a file sum to 1."""
        if not all(np.allclose(law.sum(axis=-1), 1.0) for law in laws):
            raise ValueError("Probabilities do not sum to 1.")


def of_events(events: Events, content: Any) -> Any:
    """Return public sequences of a long table, without their persons."""
    parts: list[Any] = [chunk.rows for chunk in events.sequences(content).chunks()]
    length_n = np.concatenate([np.zeros(0, np.int64), *(np.diff(part.indptr) for part in parts)])
    held = [part.value_td if isinstance(content, Points) else part.code for part in parts]
    return content.made(np.append(0, np.cumsum(length_n)), np.concatenate([content.encoded([]), *held]))
