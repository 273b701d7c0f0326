"""Private hidden Markov models over sequences of public symbols or counts."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dpvb.data.sequences.symbols import Symbols
from dpvb.estimators.base import PrivateEstimator, generator
from dpvb.estimators.sequences import SequenceModel
from dpvb.guards import domains
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import DpvbWarning, ParameterError, check_integer, check_number
from dpvb.models.sequences import bootstrap, dynamics, forward_backward, hidden_markov
from dpvb.models.sequences.discrete_emissions import Categorical
from dpvb.models.sequences.numeric_emissions import Poisson
from dpvb.results.figures import Figure, Grid
from dpvb.results.groups import GroupTable, Line


@dataclass(eq=False, repr=False)
class HiddenMarkovModel(SequenceModel):
    """Hidden states behind people's sequences, under (ε, δ)-differential privacy.

    Each state shows symbols, or counts, with probabilities of its own, and states follow one another as a Markov chain.
    What `fit` takes is said in `SequenceModel`. Windows of three symbols are released once (of two, for more than 40
    symbols), and the model is fitted to them: more starts or iterations cost no privacy. A hidden Markov model is for
    hidden structure; where likelihood alone counts, a `MarkovChain` of order 2 is as good. The parameters of the budget
    and the ledger are those of `PrivateEstimator`.

    Args:
        n_states: number of states K.
        emissions: what a state shows: "categorical", any symbols, or "poisson", where the symbols are the counts 0 to V
            - 1, and the last one stands for so many or more.
        estimate: "posterior" (variational Bayes) or "mode" (expectation maximisation).
        n_init: how many starts are tried; the best by the released windows is kept.
        power: how much persons with many windows of symbols weigh, from 0.5 (as the root of their number) to 1 (as it).
        clip: bound on what a person's windows add; None: what one sequence of max_length can reach: nobody with one
            is then shortened, the noise is larger, and the laws of the states are those of the whole.

    Attributes:
        symbols_: the symbols, in the order of all that follows.
        initial_: probabilities of the first state, (K,); states are in the order of their shares, largest first.
        transition_matrix_: probabilities of the next state, (K, K), rows sum to 1.
        emission_probabilities_: probabilities of the symbols in every state, (K, V).
        rates_: mean counts of the states, (K,), with emissions="poisson".
        stationary_: shares of the states in the long run, (K,).
        expected_durations_: how many steps each state lasts, (K,).
        privacy_, n_iter_, n_features_in_: the privacy statement, number of steps (0), of symbols.
    """

    n_states: int
    _: KW_ONLY
    emissions: str = "categorical"
    estimate: str = "posterior"
    n_init: int = 5
    power: float = 1.0
    clip: float | None = 2.0

    command: ClassVar[str | None] = "hidden-markov"
    spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator.spelled, "n_states": "states"}

    def predict(self, X: Any, lengths: Any = None) -> list[Ints]:
        """The most probable states of each sequence together (Viterbi): as private as X, without any guarantee.

        Raises:
            DataFormatError: for symbols that are none of the public ones.
        """
        rows = self._visible(X, lengths)
        state_t = forward_backward.most_probable(self._q.chain, rows.indptr, self._fitted_model.values(rows))
        return np.split(state_t, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def predict_proba(self, X: Any, lengths: Any = None) -> list[Floats]:
        """Probabilities of the states at each place of each sequence, (symbols, K): as private as X.

        Raises:
            DataFormatError: as in `predict`.
        """
        rows = self._visible(X, lengths)
        state_tk = forward_backward.smoothed(self._q.chain, rows.indptr, self._fitted_model.values(rows))
        return np.split(state_tk, rows.indptr[1:-1])[: len(rows.indptr) - 1]

    def predict_next(self, X: Any, lengths: Any = None) -> Floats:
        """Probabilities of the next symbol of each sequence, (sequences, V): as private as X.

        Raises:
            DataFormatError: as in `predict`.
        """
        return np.asarray(self.forecast(X, lengths)[:, 0])

    def forecast(self, X: Any, lengths: Any = None, *, steps: int = 1) -> Floats:
        """Probabilities of the symbols 1 to `steps` places on, (sequences, steps, V): as private as X.

        Raises:
            DataFormatError: as in `predict`.
        """
        rows, steps = self._visible(X, lengths), check_integer("steps", steps, low=1, high=10**6)
        state_nk = forward_backward.last_states(self._q.chain, rows.indptr, self._fitted_model.values(rows))
        is_empty_n = np.diff(rows.indptr) == 0
        made = np.empty((len(state_nk), steps, len(self.symbols_)))
        for step in range(steps):
            # Before a first symbol no step has been made.
            ahead_nk = state_nk @ self.transition_matrix_
            state_nk = np.where(is_empty_n[:, None], state_nk, ahead_nk) if step == 0 else ahead_nk
            made[:, step] = state_nk @ self.emission_probabilities_
        return made

    def sample(self, n: int = 1, rng: Any = None, *, length: int | None = None) -> tuple[NDArray[Any], Ints]:
        """Draw n sequences of nobody, (n, length), and their states; they tell no more than the model does.

        Args:
            n: number of sequences; public.
            rng: a seed, a NumPy generator or None.
            length: symbols of each; None: max_length. The model says nothing of how long sequences are.
        """
        self._check_fitted()
        number, draw = check_integer("n", n, low=0, high=10**9), generator("rng", rng)
        long = check_integer("length", self.max_length if length is None else length, low=1, high=10**6)
        state_nt = dynamics.drawn(self.initial_, [self.transition_matrix_], number, long, draw)
        code_nt = dynamics.shown(state_nt, self.emission_probabilities_, draw)
        return np.array(self.symbols_)[code_nt], state_nt

    def transition_intervals(
        self, level: float = 0.95, *, noise_aware: bool = True, draws: int = 30, rng: Any = 0
    ) -> GroupTable:
        """Every transition probability with an interval that counts the privacy noise in.

        The released windows are fitted without a prior that draws them to a chain of symbols. So are those of people
        who are drawn from that fit, with the same noise: their spread is the interval's, and what they miss on average
        is taken off its middle. So the estimates are not those of `transition_matrix_`, which predicts better. All
        sequences are taken to be of one length. clip=None is for intervals: what a clip bends is known in part alone;
        a warning says where it shortened many.

        Args:
            level: probability inside an interval, in (0, 1).
            noise_aware: False leaves the privacy noise out of account; for comparison only.
            draws: how many times people are drawn.
            rng: a seed, a NumPy generator or None.
        """
        self._check_fitted()
        level = check_number("level", level, low=0, high=1, closed="neither")
        number, draw = check_integer("draws", draws, low=2, high=10**6), generator("rng", rng)
        found = bootstrap.spread(self._fitted_model, self._q, number, draw, noise_aware=noise_aware)
        reach = float(stdtrit(number - 1, 0.5 + level / 2)) * math.sqrt(1 + 1 / number)
        lines = tuple(
            Line(str(i), str(j), mean, own, max(mean - reach * own, 0.0), min(mean + reach * own, 1.0))
            for (i, j), corrected in np.ndenumerate(found.step_kk)
            for mean, own in [(float(np.clip(corrected, 0.0, 1.0)), float(found.std_kk[i, j]))]
        )
        aware = "noise counted in" if noise_aware else "privacy noise left out"
        head = f"{len(lines)} transitions, {level:.0%} intervals, {aware}"
        if bent := self._bent:
            warnings.warn(bent, DpvbWarning, stacklevel=2)
            head += f"\n{bent}"
        return GroupTable(lines, head, ("after", "comes"))

    def facts_for_report(self) -> Iterator[Figure]:
        """What follows each state, and what it shows."""
        states, names = tuple(f"state {k}" for k in range(self.n_states)), tuple(map(str, self.symbols_))
        given = [("What follows each state", states, self.transition_matrix_)]
        given += [("What each state shows", names, self.emission_probabilities_)]
        for title, columns, law in given:
            values = tuple(map(tuple, law.tolist()))
            yield Grid(title=title, note="Probabilities.", rows=states, columns=columns, values=values)

    def summary(self) -> str:
        """The states in the order of their shares: how long they last, what they show, and what follows."""
        self._check_fitted()
        shown = "rate" if self.emissions == "poisson" else "shows"
        lines = [f"Hidden Markov model, states: {self.n_states}, symbols: {len(self.symbols_)}", ""]
        lines += [f"{'state':<8}{'first':>8}{'share':>8}{'lasts':>8}  {'followed by':<27}{shown}"]
        for k in range(self.n_states):
            then = ", ".join(f"{j} {self.transition_matrix_[k, j]:.3f}" for j in _largest(self.transition_matrix_[k]))
            law_v = self.emission_probabilities_[k]
            shows = ", ".join(f"{self.symbols_[v]} {law_v[v]:.3f}" for v in _largest(law_v))
            shows = f"{self.rates_[k]:.2f}" if self.emissions == "poisson" else shows
            numbers = f"{self.initial_[k]:>8.3f}{self.stationary_[k]:>8.3f}{self.expected_durations_[k]:>8.2f}"
            lines.append(f"{k:<8}{numbers}  {then:<27}{shows}")
        return "\n".join(lines)

    def _model(self, symbols: Symbols) -> hidden_markov.HiddenMarkov:
        counts = [*range(len(symbols))]
        if self.emissions == "poisson" and [*map(str, symbols.values)] != [*map(str, counts)]:
            raise ParameterError(
                f"symbols must be the counts 0, 1, .. with emissions='poisson', got {[*symbols.values][:8]}: give "
                "their number, symbols=21 for counts up to 20 and more."
            )
        given = self.emissions, self.estimate, self.n_init, self.power, self.clip, self.max_length
        return hidden_markov.HiddenMarkov(len(symbols), self.n_states, *given)

    def _set(self, symbols: Sequence[Any], q: hidden_markov.HiddenMarkovPosterior) -> None:
        self.symbols_, self.n_iter_, self.n_features_in_ = tuple(symbols), 0, len(symbols)
        self._fitted_model = self._model(Symbols(self.symbols_))
        share_k = dynamics.symbol_shares(q.chain.laws(expected=False).step_kk)
        self._q = q = replace(q, chain=q.chain.permuted(np.argsort(-share_k, kind="stable")))
        self.initial_, _, self.transition_matrix_ = q.chain.laws(expected=False)
        self.emission_probabilities_ = self._fitted_model.shown_kv(q.chain)
        if isinstance(q.chain.emissions, Poisson):
            self.rates_ = q.chain.emissions.mean_dk[0]
        self.stationary_ = dynamics.symbol_shares(self.transition_matrix_)
        self.expected_durations_ = dynamics.durations(self.transition_matrix_)

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        chain, q = self._q.chain, self._q
        shown = chain.emissions
        own = {"count_vk": shown.count_vk} if isinstance(shown, Categorical) else {}
        if isinstance(shown, Poisson):
            own = {"shape_dk": shown.shape_dk, "rate_dk": shown.rate_dk}
        arrays = {"start_k": chain.start_k, "pooled_k": chain.pooled_k, "step_kk": chain.step_kk, **own}
        released = {name: np.asarray(getattr(q, name)) for name in _RELEASED}
        return {**arrays, **released}, {"symbols": [*self.symbols_]}

    @np.errstate(all="ignore")  # `_check_laws` finds what overflows
    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        self.symbols = facts["symbols"]
        symbols = Symbols(self.symbols)
        # Factors of starts are no part of a file, and one of them is small whatever the file says.
        q = replace(self._model(symbols), n_init=1).init(generator("random_state", 0))
        chain, released = self._taken(q.chain, arrays), self._taken(q, {name: arrays[name] for name in _RELEASED})
        chain = replace(chain, emissions=self._taken(q.chain.emissions, arrays))
        self._set(symbols.values, domains.checked(replace(released, chain=chain)))
        self._check_laws(self.initial_, self.transition_matrix_, self.emission_probabilities_)

    @staticmethod
    def _taken(like: Any, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """A part of q with the arrays of its own names, of its own shapes."""
        own = {name: arrays[name].astype(np.float64, casting="same_kind") for name in vars(like) if name in arrays}
        if any(np.shape(array) != np.shape(getattr(like, name)) for name, array in own.items()):
            raise ValueError("a model of another shape")
        return replace(like, **{name: array if array.ndim else float(array) for name, array in own.items()})


_RELEASED = ("start_ww", "pooled", "start_std", "pooled_std")


def _largest(law: Floats) -> Ints:
    """The places of the three most probable."""
    return np.argsort(-law, kind="stable")[:3]
