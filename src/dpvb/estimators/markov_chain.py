"""Private Markov chains over sequences of public symbols, and sequences of people who do not exist."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpvb.core.model import PosteriorOrMode
from dpvb.core.plan import Plan
from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.base import generator
from dpvb.estimators.given import Records
from dpvb.estimators.sequences import ChainModel
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import check_integer
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.guards.strangers import printable
from dpvb.models.sequences import dynamics, markov_chain
from dpvb.models.sequences.windows import WindowModel
from dpvb.results import trees
from dpvb.results.figures import Figure, Grid
from dpvb.results.groups import GroupTable, Line, reach_of


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class MarkovChain(ChainModel[markov_chain.MarkovChainModel, markov_chain.Chain]):
    """Which symbol follows which in people's sequences, under (ε, δ)-differential privacy.

    Visits of pages, states of a life, tags of words: the next symbol depends on the last one, or on the last two. `fit`
    takes private sequences: a list with a list or array for each; a matrix with a row for each; one array of all
    symbols and then their lengths, as hmmlearn has them; or a long table, `dpvb.data.Events`, a row for each event.
    Without group= each sequence is a unit; with it, and of events always, a person with all of theirs. A cell that is
    no public symbol is a gap, which no window crosses, silently. The parameters of the budget and the ledger are those
    of `PrivateEstimator`; all is released at once, so that there are no steps.

    Args:
        symbols: the public symbols, as a list, or one text with commas between; a number V stands for 0 to V - 1.
        order: symbols on which the next one depends, 1 or 2.
        max_length: the first so many symbols of each sequence count.
        power: how much persons with many windows of symbols weigh, from 0.5 (as the root of their number) to 1 (as it).
        clip_norm: bound on what a person's windows add; None: what one sequence of max_length can reach: nobody with
            one is then shortened, the noise is larger, and intervals are those of the whole.
        prior_weight: weight of the chain of lower order, to which a row of few windows is drawn; 0: none.
        estimate: "posterior", means of the rows, or "mode", their most probable values; intervals are about means.

    Attributes:
        symbols_: the symbols, in the order of all that follows.
        initial_: probability of the first symbol, (V,).
        transition_matrix_: P(b | a), (V, V), rows sum to 1; or P(c | a, b), (V, V, V), for order 2.
        stationary_: shares of the symbols in the long run, (V,).
        expected_durations_: how many times each symbol comes in a row, (V,).
        windows_: what was released, as it is read from noise, `dpvb.models.sequences.Windows`: first symbols, and pairs
            or windows of three. Whatever is fitted to them costs nothing more.
        privacy_, n_iter_, n_features_in_: the privacy statement, number of steps (0), of symbols.
    """

    symbols: int | str | Sequence[Any]
    _: KW_ONLY
    order: int = 1
    power: float = 0.5
    clip_norm: float | None = 1.5
    prior_weight: float = 10.0
    estimate: PosteriorOrMode = "posterior"

    _command: ClassVar[str | None] = "markov-chain"
    _record_class: ClassVar[type] = markov_chain.Chain
    _example: ClassVar[str | None] = "--symbols front,news,sports --symbol-column page"

    def forecast(self, X: Records, lengths: Any = None, *, horizon: int = 1) -> Floats:
        """Probabilities of the symbols 1 to `horizon` places on, (sequences, horizon, V): as private as X.

        Raises:
            DataFormatError: for symbols that are none of the public ones.
        """
        rows, steps = self._visible(X, lengths), check_integer("horizon", horizon, low=1, high=10**6)
        ends = rows.indptr[1:]
        tails = [tuple(rows.code[max(a, b - self.order) : b].tolist()) for a, b in zip(rows.indptr, ends, strict=False)]
        ahead_of = {tail: self._ahead(tail, steps) for tail in set(tails)}
        return np.array([ahead_of[tail] for tail in tails]).reshape(len(tails), steps, len(self.symbols_))

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> NDArray[Any]:
        """Draw n sequences of nobody, (n, length); they tell no more than the chain does.

        Args:
            n: number of sequences; public.
            rng: a seed, a NumPy generator or None.
            length: symbols of each; None: max_length. A chain says nothing of how long sequences are.
        """
        number, long, draw = self._sequences_to_draw(n, rng, length)
        return np.array(self.symbols_)[dynamics.drawn(self.initial_, self._laws, number, long, draw)]

    def transition_intervals(self, level: float = 0.95, *, noise_aware: bool = True, rng: Any = 0) -> GroupTable:
        """Every transition probability with an interval that counts the privacy noise in.

        The intervals take lengths to be independent of symbols. Where clip shortened many, as it was released, what it
        bends is counted in, and the estimates are not those of `transition_matrix_`: as it shortens people who are
        drawn from the chain, each with one sequence, all of one length. The head of the table says so.

        Args:
            level: probability inside an interval, in (0, 1).
            noise_aware: False leaves the privacy noise out of account; for comparison only.
            rng: a seed, a NumPy generator or None; for the people who are drawn.
        """
        self._check_fitted()
        model, q = replace(self._fitted_model, estimate="posterior"), self._q
        reach = reach_of(level)
        noise_std = q.windows_std if noise_aware else 0.0
        if self._shortened:
            law, std = model.corrected_law(q, generator("rng", rng), noise_std)
        else:
            weight = markov_chain.window_weight(float(q.windows.sum()), float(q.first_v.sum()), model.power)
            law = model.law(q)
            std = markov_chain.deviations(law, q.windows, model.prior_weight, weight, noise_std)
        lines = tuple(
            Line.within(before_it, str(self.symbols_[place]), mean, float(std[(*before, place)]), reach, (0.0, 1.0))
            for (*before, place), mean in np.ndenumerate(law)
            for before_it in [", ".join(str(self.symbols_[one]) for one in before)]
        )
        above = self._head(len(lines), level, noise_aware)
        return GroupTable(lines, above, ("after", "comes"), "Transitions", name="transitions")

    def transition_table(self) -> tuple[tuple[str, ...], Floats, Floats]:
        """Names of the symbols, what follows each, (V, V), and how many times each comes in a row, (V,).

        They are those of `transition_intervals`, without what the clip bends.
        """
        self._check_fitted()
        pair_vv, law = self._unbent()
        return tuple(map(str, self.symbols_)), pair_vv, dynamics.durations(law)

    def _facts_for_report(self, level: float = 0.95, noise_aware: bool = True) -> Iterator[Figure]:
        """Which symbol follows which, and the table of `transition_intervals`, whose arguments these are."""
        names, follows_vv, _ = self.transition_table()
        yield Grid(
            name="steps",
            title="Which symbol follows which",
            note="Probability of the symbol of a column after that of a row.",
            rows=names,
            columns=names,
            values=tuple(map(tuple, follows_vv.tolist())),
        )
        yield self.transition_intervals(level, noise_aware=noise_aware)

    def _unbent(self) -> tuple[Floats, Floats]:
        """What follows each symbol, (V, V), and the law of the chain's order, as the table of intervals has them."""
        model, q = replace(self._fitted_model, estimate="posterior"), self._q
        corrected = model.bias_corrected(q, generator("rng", 0)).chain if self._shortened else q
        return model.law(corrected, 1), model.law(corrected)

    def summary(self) -> str:
        """The symbols in the order of their shares: how often, how many times in a row, and what follows.

        The numbers are those of `transition_intervals`, without what the clip bends.
        """
        self._check_fitted()
        follows_vv, law = self._unbent()
        share_v, lasts_v = dynamics.symbol_shares(law), dynamics.durations(law)
        lines = [f"Markov chain of order {self.order} over {len(self.symbols_)} symbols", ""]
        lines += [f"{'symbol':<16}{'first':>8}{'share':>8}{'in a row':>10}  followed by"]
        for a in np.argsort(-share_v, kind="stable"):
            likely = np.argsort(-follows_vv[a], kind="stable")[:3]
            then = ", ".join(f"{printable(str(self.symbols_[b]))} {follows_vv[a, b]:.3f}" for b in likely)
            lines.append(
                f"{printable(str(self.symbols_[a]))[:15]:<16}{self.initial_[a]:>8.3f}{share_v[a]:>8.3f}"
                f"{lasts_v[a]:>10.2f}  {then}"
            )
        return "\n".join(lines)

    def _deviation(self, model: markov_chain.MarkovChainModel, plan: Plan, n: float) -> tuple[int, float]:
        v, k = model.n_symbols, model.order + 1
        weight = markov_chain.expected_weight(n, model.max_length - model.order, v, k, model.power, model.bound)
        [noise] = plan.noise_stds("pairs" if model.order == 1 else "windows")
        return v, markov_chain.expected_deviation(v, model.order, weight, n, model.power, model.prior_weight, noise)

    def _content(self) -> Symbols:
        """The public symbols."""
        return Symbols(self.symbols)

    def _model(self) -> markov_chain.MarkovChainModel:
        """The model that the parameters name."""
        return markov_chain.MarkovChainModel(
            len(self._content()),
            self.order,
            prior_weight=self.prior_weight,
            **self._shared(fields(WindowModel)),
        )

    def _ahead(self, tail: tuple[int, ...], steps: int) -> Floats:
        """Laws of the symbols after these last ones, (steps, V)."""
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
        self._keep_model(model, record)
        self.initial_, self.transition_matrix_ = model.initial(record), model.law(record)
        self.windows_ = model.released(record)
        self._laws = [model.law(record, 1)] + ([self.transition_matrix_] if self.order == 2 else [])
        self.stationary_ = dynamics.symbol_shares(self.transition_matrix_)
        self.expected_durations_ = dynamics.durations(self.transition_matrix_)
