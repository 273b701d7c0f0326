"""What models of people's sequences share: public symbols, how private sequences are read, and scores."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from dpvb.data.sequences.events import Events
from dpvb.data.sequences.rows import SequenceRows
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.base import PrivateEstimator, Task, fitted_only
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError


@dataclass(kw_only=True, eq=False, repr=False)
class SequenceModel(PrivateEstimator):
    """A model of sequences of public symbols.

    `fit` takes private sequences: a list with a list or array for each; a matrix with a row for each; one array of all
    symbols and then their lengths, as hmmlearn has them; or a long table, `dpvb.data.Events`, a row for each event.
    Without group= each sequence is a unit; with it, and of events always, a person with all of theirs. A cell that is
    no public symbol is a gap, silently. All is released at once, so that there are no steps.

    Args:
        symbols: the public symbols, as a list, or one text with commas between; a number V stands for 0 to V - 1.
        max_length: the first so many symbols of each sequence count.

    Attributes:
        symbols_: the symbols, in the order of all that follows.
        privacy_, n_iter_, n_features_in_: the privacy statement, number of steps (0), of symbols.
    """

    symbols: int | str | Sequence[Any]
    max_length: int = 20

    reads: ClassVar[str | None] = "sequences"

    @abstractmethod
    def _model(self, symbols: Symbols) -> Any:
        """The model that the parameters name."""

    @abstractmethod
    def _set(self, symbols: Sequence[Any], q: Any) -> None:
        """Keep q, and show it; `_fitted_model` and `_q` are what scores need."""

    def task(self, X: Any, y: Any = None, *, group: Iterable[object] | None = None) -> Task:
        """What a fit to private sequences would do; y: the lengths of sequences that X has after one another."""
        symbols = Symbols(self.symbols)
        model = self._model(symbols)
        if isinstance(X, Events):
            if y is not None or group is not None:
                raise ParameterError("lengths and group must be None with events, which have a column of persons.")
            source: Any = X.sequences(symbols)
        else:
            source = symbols.sequences(X, y, group)
        public = {
            "symbols": f"{len(symbols)} symbols",
            "max_length": f"the first {model.max_length} symbols of a sequence",
            "parameters": "the plan and all other parameters",
        }
        return self._task(model, source, model.schedule, public, {"symbols": symbols.values})

    def take(self, task: Task, q: Any) -> None:
        """Keep the model."""
        self._set(task.notes["symbols"], q)

    def no_rows(self, *, schema: Any, vocabulary: Any, width: int | None) -> dict[str, Any]:
        """No sequences of so many symbols."""
        if width not in (None, len(Symbols(self.symbols))):
            raise ParameterError(f"width must be the number of symbols, {len(Symbols(self.symbols))}, got {width}.")
        return {"X": []}

    def quality(self, rows: Any) -> Floats:
        """Log-probability of a symbol, the mean of each sequence."""
        length_n = np.diff(rows.indptr)
        return np.where(length_n > 0, self._fitted_model.score(self._q, rows) / np.maximum(length_n, 1), np.nan)

    def quality_range(self, model: Any) -> tuple[float, float]:
        """From the score of a uniform guess to certainty."""
        return -float(np.log(model.n_symbols)), 0.0

    def score_samples(self, X: Any, lengths: Any = None, *, public: bool = False) -> Floats:
        """Log-probability of each public sequence, (sequences,), in nats.

        Raises:
            PrivacyError: unless public=True says that X is not private.
            DataFormatError: for symbols that are none of the public ones.
        """
        self._check_public(public)
        scores: Floats = self._fitted_model.score(self._q, self._visible(X, lengths))
        return scores

    @fitted_only
    def score(self, X: Any, lengths: Any = None, *, public: bool = False) -> float:
        """Log-probability of public sequences per symbol, in nats; higher is better.

        Raises:
            PrivacyError, DataFormatError: as `score_samples`.
        """
        self._check_public(public)
        rows = self._visible(X, lengths)
        return float(self._fitted_model.score(self._q, rows).sum()) / max(len(rows.code), 1)

    @property
    def _bent(self) -> str:
        """What the released counts say of the clip; nothing where it shortened hardly anybody."""
        counts, model = self.privacy_.counts, self._fitted_model
        if model.clip is None or counts is None or counts.shortened <= 3 * counts.shortened_std:
            return ""
        share, most = min(counts.shortened / max(counts.counted, 1.0), 1.0), replace(model, clip=None).bound
        return (
            f"clip={model.clip:g} shortened {share:.0%} of the {self.privacy_.unit}s, which bends all rows; intervals "
            f"leave that out. clip=None, here {most:.3g}, shortens nobody who has one sequence."
        )

    def _visible(self, X: Any, lengths: Any) -> SequenceRows:
        """Sequences that the caller may see."""
        self._check_fitted()
        if isinstance(X, Events):
            raise DataFormatError("X must be sequences, as a list or with lengths: events have no order of persons.")
        if lengths is None and isinstance(X, (list, tuple)) and any(map(np.isscalar, X)):
            raise DataFormatError("X must hold sequences, got symbols: give [X], or lengths.")
        rows = Symbols(self.symbols_).rows(X, lengths)
        if (rows.code < 0).any():
            raise DataFormatError(f"X has cells that are none of the symbols {[*self.symbols_][:8]}.")
        return rows

    @staticmethod
    def _check_laws(*laws: Floats) -> None:
        """Check that rows of probabilities sum to 1; those of a file whose sums overflow do not."""
        if not all(np.allclose(law.sum(axis=-1), 1.0) for law in laws):
            raise ValueError("numbers that make no probabilities")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags
