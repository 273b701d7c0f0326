"""Private Markov chains over sequences of public symbols, and sequences of people who do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpvb.core.model import PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data.sequences.content import Symbols
from dpvb.estimators.base import generator
from dpvb.estimators.input_types import Records
from dpvb.estimators.sequences import ChainModel
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_integer
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.guards.untrusted import printable
from dpvb.models.sequences import dynamics, markov_chain
from dpvb.models.sequences.windows import WindowModel
from dpvb.results import trees
from dpvb.results.figures import Figure, Grid
from dpvb.results.interval_table import IntervalTable, Line, reach_of


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class MarkovChain(ChainModel[markov_chain.MarkovChainModel, markov_chain.Chain]):
    """Fit a Markov chain of sequences of symbols, under (ε, δ)-differential privacy.

    Sequences are, for example, page visits or states of a disease. The next symbol depends on the last one or two
    symbols. X has private sequences: a list of lists or arrays; a matrix with a sequence per row; one array of all
    symbols with their lengths as y, like hmmlearn; or a long table, `dpvb.data.Events`, with a row per event. Without
    `group`, each sequence is a unit; with `group`, and always for events, a unit is a person with all sequences. A cell
    that is not a public symbol is a gap, which no window crosses. Other parameters are those of `PrivateEstimator`; the
    fit has no steps.

    Args:
        symbols: Public symbols, as a list or a text with commas; a number V means 0 to V - 1.
        order: Number of symbols on which the next one depends, 1 (default) or 2.
        max_length: Number of symbols of each sequence that are included, from its beginning. Default: 20.
        power: Exponent of the number of windows in the weight of a person, from 0.5 to 1. Default: 0.5. 1: all windows
            have the same weight, so frequencies are pooled.
        clip_norm: Bound on the norm of the windows of a person, in [0.001, 1e9]. Default: 1.5. None: the largest norm
            of one sequence of `max_length`, so that no person with one sequence is clipped; the noise is larger and the
            clipping bias is 0.
        prior_weight: Strength of the shrinkage of rows with few windows towards the chain of lower order, at least 0. 0
            disables it. Default: 10.
        estimate: "posterior" (default), for posterior means of the rows, or "map", for their modes. Intervals have the
            standard deviations of the means.

    Attributes:
        symbols_: Symbols in the order of the arrays below.
        initial_: Probabilities of the first symbol, (V,).
        transition_matrix_: P(b | a), (V, V), whose rows sum to 1; or P(c | a, b), (V, V, V), for order 2. The clipping
            bias is corrected.
        stationary_: Long-run shares of the symbols, (V,).
        expected_durations_: Expected number of repetitions of each symbol, (V,).
        windows_: Released and denoised numbers of first symbols and of pairs or triples,
            `dpvb.models.sequences.Windows`. Fitting other models to them uses no budget.
        privacy_, n_iter_, n_features_in_: Privacy statement, and numbers of steps (0) and symbols.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> visits = np.random.default_rng(0).choice(["home", "news"], (3000, 10))
        >>> model = dpvb.MarkovChain(["home", "news"], epsilon=1.0, delta=1e-6).fit(visits)
        >>> model.transition_matrix_.shape, model.forecast([["home"]], horizon=3).shape
        ((2, 2), (1, 3, 2))
    """

    symbols: int | str | Sequence[Any]
    _: KW_ONLY
    order: int = 1
    power: float = 0.5
    clip_norm: float | None = 1.5
    prior_weight: float = 10.0
    estimate: PosteriorOrMAP = "posterior"

    _command: ClassVar[str | None] = "markov-chain"
    _record_class: ClassVar[type] = markov_chain.Chain
    _example: ClassVar[str | None] = "--symbols front,news,sports --symbol-column page"

    def forecast(self, X: Records, lengths: Any = None, *, horizon: int = 1) -> Floats:
        """Return probabilities of the next symbols of each sequence, (sequences, horizon, V). They are as private as X.

        Args:
            X, lengths: As in `predict_next`.
            horizon: Number of symbols to forecast, at least 1. Default: 1.

        Raises:
            DataFormatError: If X contains undeclared symbols.
        """
        rows, steps = self._visible(X, lengths), check_integer("horizon", horizon, low=1, high=10**6)
        ends = rows.indptr[1:]
        tails = [tuple(rows.code[max(a, b - self.order) : b].tolist()) for a, b in zip(rows.indptr, ends, strict=False)]
        ahead_of = {tail: self._ahead(tail, steps) for tail in set(tails)}
        return np.array([ahead_of[tail] for tail in tails]).reshape(len(tails), steps, len(self.symbols_))

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> NDArray[Any]:
        """Draw n synthetic sequences, (n, length). They reveal no more than the released chain.

        Args:
            n: Public number of sequences.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
            length: Number of points per sequence. None (default): `max_length`. The model does not include the
                distribution of lengths.
        """
        number, long, draw = self._sequences_to_draw(n, rng, length)
        return np.array(self.symbols_)[dynamics.drawn(self.initial_, self._laws, number, long, draw)]

    def transition_intervals(self, level: float = 0.95, *, noise_aware: bool = True) -> IntervalTable:
        """Return `transition_matrix_` with intervals that include the privacy noise.

        The head of the table names the estimand. With `power=1`, the frequencies are pooled: each pair of the first
        `max_length` symbols has the same weight. Otherwise each of the M pairs of a person has the weight
        M^(power - 1), which differs if long sequences differ from short ones. For pooled frequencies, fit with
        `power=1` and `clip_norm=None`.

        If many people are clipped, according to the released numbers, the clipping bias of the fit is corrected. The
        correction assumes one sequence per person, the same transition probabilities for all people, and lengths that
        are independent of the symbols. If people differ, part of the bias remains, and intervals may be too short. The
        head of the table reports the share of clipped people.

        Args:
            level: Probability inside the interval, in (0, 1). Default: 0.95.
            noise_aware: Whether intervals include the privacy noise. Default: True. False is only for comparison: such
                intervals are too short.
        """
        self._check_fitted()
        model, q = replace(self._fitted_model, estimate="posterior"), self._record
        reach = reach_of(level)
        noise_std = q.windows_std if noise_aware else 0.0
        if self._shortened:
            std = model.corrected_deviations(q, generator("rng", 0), noise_std, self._shortened)
        else:
            weight = markov_chain.window_weight(float(q.windows.sum()), float(q.first_v.sum()), model.power)
            std = markov_chain.deviations(model.law(q), q.windows, model.prior_weight, weight, noise_std)
        lines = tuple(
            Line.within(before_it, str(self.symbols_[place]), mean, float(std[(*before, place)]), reach, (0.0, 1.0))
            for (*before, place), mean in np.ndenumerate(self.transition_matrix_)
            for before_it in [", ".join(str(self.symbols_[one]) for one in before)]
        )
        above = f"{self._head(len(lines), level, noise_aware)}\n{self._estimand}"
        return IntervalTable(lines, above, ("after", "comes"), "Transitions", name="transitions")

    @property
    def _estimand(self) -> str:
        """Return the frequencies of which the intervals are, as a sentence."""
        windows = "pairs" if self.order == 1 else "triples"
        included = f"the first {self.max_length} symbols of a sequence"
        if self.power == 1:
            return f"Estimand: pooled frequencies. All {windows} in {included} have the same weight."
        return (
            f"Estimand: weighted frequencies. If a person has M {windows} in {included}, each has "
            f"the weight M^{self.power - 1:g}. For pooled frequencies, use power=1 and clip_norm=None."
        )

    def transition_table(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Return names of the symbols, probabilities of the next symbol, (V, V), and expected repetitions, (V,)."""
        self._check_fitted()
        return tuple(map(str, self.symbols_)), self._laws[0], self.expected_durations_

    def _facts_for_report(self, level: float = 0.95, noise_aware: bool = True) -> Iterator[Figure]:
        """Yield the transition probabilities and the table of `transition_intervals`, with its arguments."""
        names, follows_vv, _ = self.transition_table()
        grid = Grid(
            name="transitions",
            title="Which symbol follows which",
            note="Probability of the symbol of a column after that of a row.",
            rows=names,
            columns=names,
            values=tuple(map(tuple, follows_vv.tolist())),
        )
        yield replace(self.transition_intervals(level, noise_aware=noise_aware), grid=grid)

    def summary(self) -> str:
        """Return the symbols in the order of their shares as text, with repetitions and next symbols."""
        self._check_fitted()
        follows_vv = self._laws[0]
        lines = [f"Markov chain of order {self.order} over {len(self.symbols_)} symbols", ""]
        lines += [f"{'symbol':<16}{'first':>8}{'share':>8}{'in a row':>10}  followed by"]
        for a in np.argsort(-self.stationary_, kind="stable"):
            likely = np.argsort(-follows_vv[a], kind="stable")[:3]
            then = ", ".join(f"{printable(str(self.symbols_[b]))} {follows_vv[a, b]:.3f}" for b in likely)
            lines.append(
                f"{printable(str(self.symbols_[a]))[:15]:<16}{self.initial_[a]:>8.3f}{self.stationary_[a]:>8.3f}"
                f"{self.expected_durations_[a]:>10.2f}  {then}"
            )
        return "\n".join(lines)

    def _deviation(self, model: markov_chain.MarkovChainModel, plan: Plan, n: float) -> tuple[int, float]:
        v, k = model.n_symbols, model.order + 1
        weight = markov_chain.expected_weight(n, model.max_length - model.order, v, k, model.power, model.bound)
        [noise] = plan.noise_stds("pairs" if model.order == 1 else "windows")
        return v, markov_chain.expected_deviation(v, model.order, weight, n, model.power, model.prior_weight, noise)

    def _content(self) -> Symbols:
        """Public symbols."""
        return Symbols(self.symbols)

    def _model(self) -> markov_chain.MarkovChainModel:
        """Return the model that the parameters specify."""
        return markov_chain.MarkovChainModel(
            len(self._content()),
            self.order,
            prior_weight=self.prior_weight,
            **self._shared(fields(WindowModel)),
        )

    def _ahead(self, tail: tuple[int, ...], steps: int) -> Floats:
        """Return distributions of the symbols after these last ones, (steps, V)."""
        laws = [self.initial_, *self._laws]
        laws_ahead: list[Floats] = []
        state = np.zeros((len(self.symbols_),) * len(tail))
        state[tail] = 1.0
        for _ in range(steps):
            law = laws[state.ndim]
            joint = state[..., None] * law
            laws_ahead.append(joint.reshape(-1, len(self.symbols_)).sum(axis=0))
            state = joint if joint.ndim <= self.order else joint.sum(axis=0)
        return np.array(laws_ahead)

    def _check(self, record: markov_chain.Chain) -> None:
        n_symbols = len(self._content())
        trees.check_lengths(record, v=n_symbols)
        if record.windows.shape != (n_symbols,) * (self.order + 1):
            raise ValueError("windows of another shape")
        self._show(record)
        self._check_laws(self.initial_, *self._laws)

    def _show(self, record: markov_chain.Chain) -> None:
        content, model = self._content(), self._model()
        self.symbols_, self.n_features_in_ = content.values, len(content)
        # One chain for predictions, tables and intervals: in the trials of `private_select`, before its correction.
        clipped = self._shortened
        chain = model.bias_corrected(record, generator("rng", 0), clipped).chain if clipped else record
        self._keep_model(model, chain)
        self.initial_, self.transition_matrix_ = model.initial(chain), model.law(chain)
        self.windows_ = model.released(record)
        self._laws = [model.law(chain, 1)] + ([self.transition_matrix_] if self.order == 2 else [])
        self.stationary_ = dynamics.symbol_shares(self.transition_matrix_)
        self.expected_durations_ = dynamics.durations(self.transition_matrix_)
