"""Sums over states from private passes: against the plain passes, their bounds, and bits that are a person's own."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.state_sums import expected_counts
from planted import edit, kills
from sklearn.mixture import GaussianMixture

from dpvb.core import loop
from dpvb.core.blocks import Block, Grid
from dpvb.core.plan import phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.data.sequences.content import Sequences, taken
from dpvb.guards.arrays import Floats, Ints
from dpvb.models.sequences import emissions, passes
from dpvb.models.sequences.emissions import CategoricalEmissions, GaussianEmissions, Shown
from dpvb.models.sequences.hidden_chain import HiddenChain, Laws
from dpvb.models.sequences.hidden_markov import HiddenMarkov, HiddenMarkovPosterior
from dpvb.models.sequences.passes import StateSums, Walk
from dpvb.rows import NumberRows, SequenceRows

KINDS = {"categorical": 4, "poisson": 5, "bernoulli": 8}
FINE = Grid(2.0**-40, 1e3)
BLOCKS = {"initial", "transitions", "emissions"}


def model(kind: str = "categorical", k: int = 3, **more: Any) -> HiddenMarkov:
    return HiddenMarkov(KINDS[kind], k, kind, n_steps=4, **more)


def steps_of(own: HiddenMarkov) -> dict[str, Block]:
    """The blocks of a step."""
    return {name: block for name, block in own.blocks.items() if name in BLOCKS}


def drawn(own: HiddenMarkov, rng: np.random.Generator) -> HiddenMarkovPosterior:
    """A posterior whose states differ by chance."""
    q, (v, k) = own.init(rng), (own.n_symbols, own.n_states)
    emissions = CategoricalEmissions(q.chain.prior + v * rng.exponential(size=(v, k)), q.chain.prior)
    chain = replace(q.chain, step_kk=q.chain.step_kk + k * rng.exponential(size=(k, k)), emissions=emissions)
    return replace(q, chain=replace(chain, emissions=own.alphabet.started(chain)))


def rows(kind: str, rng: np.random.Generator, lengths: list[int], *, gaps: bool = True) -> Any:
    """Sequences of codes, or of bits, with gaps."""
    at = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    code_t = rng.integers(0, KINDS[kind], at[-1])
    code_t[rng.random(at[-1]) < 0.1 * gaps] = -1
    if kind != "bernoulli":
        return SequenceRows(at, code_t.astype(np.int32))
    bit_td = ((code_t[:, None] >> np.arange(3)[::-1]) & 1).astype(np.float64)
    bit_td[code_t < 0, 1] = np.nan
    return NumberRows(at, bit_td)


def sums_of(own: Any, weights: Floats | None = None) -> dict[str, Floats]:
    """Sums in units, of all persons or with these weights."""
    found = {}
    for name in BLOCKS & own.keys():
        form = own[name]
        weight_n = np.ones(len(form.norms())) if weights is None else weights
        out = np.zeros(form.shape, np.int64)
        form.accumulate(weight_n, FINE, out)
        found[name] = FINE.units(out)
    return found


@kills("records", "sums over states that go on from one person to the next")
@edit("models/sequences/passes_numba.py", "sum_vk[v, k] = 0.0\n", "sum_vk[v, k] *= 0.5\n")
@kills("rows", "each of a person's sequences passed as a person of its own")
@edit(
    "models/sequences/passes.py",
    "self._of = unit_of_row, replace(self, units=by_unit(unit_of_row, num_units),",
    "self._of = unit_of_row, replace(self, units=None,",
)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimate", ["posterior", "map"])
def test_a_persons_sums_are_those_of_the_plain_passes(kind: str, estimate: str) -> None:
    """Each weighed as the head of the file says; a gap counts for steps alone, and a sequence of gaps for nothing."""
    rng, own = np.random.default_rng(1), model(kind, estimate=estimate, max_length=6)
    data, q = rows(kind, rng, [5, 1, 9, 0, 6]), drawn(own, rng)
    alphabet = own.alphabet
    code_t = alphabet.coded(data).code
    ends = np.minimum(data.indptr[1:], data.indptr[:-1] + 6)
    for s, unit in enumerate([[0], [1], [2], [3], [4], [0, 2, 4]]):
        parts = [np.arange(data.indptr[n], ends[n]) for n in (unit if s == 5 else [s])]
        whole = own.e_step(q, data, steps_of(own))
        weights = np.zeros(5)
        weights[s % 5] = 1.0
        if s == 5:
            group = np.array([0, 1, 0, 2, 0])
            whole = {name: form.grouped(group, 3) for name, form in whole.items()}  # type: ignore[attr-defined]
            weights = np.array([1.0, 0.0, 0.0])
        found = sums_of(whole, weights)
        used = [part for part in parts if (code_t[part] >= 0).any()]
        at = np.concatenate([[0], np.cumsum([len(part) for part in used])]).astype(np.int64)
        place_t = np.concatenate([*used, np.empty(0, np.int64)]).astype(np.int64)
        value_t = alphabet.meant(code_t[place_t])
        expected = estimate == "posterior"
        counts, _, _ = expected_counts(q.chain, at, value_t, np.ones(len(used)), expected=expected)
        pairs, seen = len(place_t) - len(used), int((code_t[place_t] >= 0).sum())
        shown_vk = np.zeros((KINDS[kind], 3))
        gamma_tk, _ = passes._passed(q.chain, at, value_t, np.ones(len(used)), expected=expected)
        known_t = code_t[place_t] >= 0
        np.add.at(shown_vk, code_t[place_t][known_t], gamma_tk[known_t])
        near = partial(np.testing.assert_allclose, rtol=1e-9, atol=1e-10)
        near(found["initial"], counts.start_k / max(len(used), 1))
        near(found["transitions"], counts.step_kk / max(pairs, 1) ** 0.5)
        near(found["emissions"], shown_vk / max(seen, 1) ** 0.5)
        for name, form in whole.items():
            norm = form.norms()[weights > 0]
            assert norm == pytest.approx(np.linalg.norm(found[name]), rel=1e-7, abs=1e-9)


def walk_of(chain: HiddenChain, at: Ints, value_td: Floats) -> Walk:
    """Passes over numbers: each position shows its own."""

    def show(place_t: Ints) -> Shown:
        shown_td = value_td[place_t]
        likelihood_tk, _ = emissions.likelihoods(chain.emissions, shown_td, expected=False)
        zeros_t = np.zeros((len(place_t), 1), np.int64)
        return Shown(likelihood_tk, np.arange(len(place_t)), zeros_t, np.ones((len(place_t), 1)))

    return Walk(at, 100, chain.laws(expected=False), show)


def gaussian(rng: np.random.Generator, k: int) -> HiddenChain:
    one, two = 0.5 + rng.random((2, 2, k))
    return HiddenChain(
        *(0.5 + rng.random((2, k))),
        0.5 + rng.random((k, k)),
        GaussianEmissions(rng.standard_normal((2, k)), 1 + one, 2 + two, one),
    )


def test_sequences_of_one_point_are_a_mixture() -> None:
    """First states are then the responsibilities of scikit-learn's mixture with the same parameters."""
    rng = np.random.default_rng(2)
    chain, x_nd = gaussian(rng, 3), rng.standard_normal((20, 2))
    found = StateSums(walk_of(chain, np.arange(21), x_nd), "firsts", (3,), 0.5)
    mixture, shown = GaussianMixture(3, covariance_type="diag"), chain.emissions
    assert isinstance(shown, GaussianEmissions)
    mixture.weights_, mixture.means_ = chain.laws(expected=False).start_k, shown.mean_dk.T
    mixture.precisions_cholesky_ = shown.variance_dk.T**-0.5
    for n in range(20):
        own = sums_of({"initial": found}, np.eye(20)[n])["initial"]
        np.testing.assert_allclose(own, mixture.predict_proba(x_nd[n : n + 1])[0], rtol=1e-9, atol=1e-11)
    log_n = passes.log_likelihood(chain, np.arange(21), x_nd)
    np.testing.assert_allclose(log_n, mixture.score_samples(x_nd), rtol=1e-12)


def test_one_state_shows_independent_draws() -> None:
    """Then sums are counts: of sequences, of pairs, of symbols."""
    own, data = model(k=1), SequenceRows(np.array([0, 3]), np.array([2, 0, 2], np.int32))
    found = sums_of(own.e_step(own.init(np.random.default_rng(3)), data, steps_of(own)))
    np.testing.assert_allclose(found["initial"], [1.0])
    np.testing.assert_allclose(found["transitions"], [[2 / 2**0.5]])
    np.testing.assert_allclose(found["emissions"][:, 0], np.array([1, 0, 2, 0]) / 3**0.5)


def test_a_chain_read_backwards_has_transposed_sums_of_pairs() -> None:
    rng = np.random.default_rng(4)
    law_kk = rng.random((3, 3))
    step_kk = law_kk / law_kk.sum(axis=1, keepdims=True)
    law_k = np.linalg.matrix_power(step_kk, 200)[0]
    back_kk = (law_k[:, None] * step_kk).T / law_k[:, None]
    likelihood_rk, symbol_t = rng.random((4, 3)), rng.integers(0, 4, 12)

    def pairs(laws: Laws, row_t: Ints) -> Floats:
        walk = Walk(np.array([0, 12]), 12, laws, lambda at: Shown(likelihood_rk, row_t[at], row_t[at, None], ones))
        return sums_of({"transitions": StateSums(walk, "pairs", (3, 3), 1.0)})["transitions"]

    ones = np.ones((12, 1))
    forth, back = pairs(Laws(law_k, law_k, step_kk), symbol_t), pairs(Laws(law_k, law_k, back_kk), symbol_t[::-1])
    np.testing.assert_allclose(back, forth.T, rtol=1e-9)


def test_the_order_of_states_is_a_name() -> None:
    rng, own = np.random.default_rng(5), model()
    data, q, order = rows("categorical", rng, [7, 4]), drawn(own, rng), np.array([2, 0, 1])
    moved = replace(q, chain=q.chain.permuted(order))
    one, two = (sums_of(own.e_step(each, data, steps_of(own))) for each in (q, moved))
    np.testing.assert_allclose(two["initial"], one["initial"][order], rtol=1e-9)
    np.testing.assert_allclose(two["transitions"], one["transitions"][np.ix_(order, order)], rtol=1e-9)
    np.testing.assert_allclose(two["emissions"], one["emissions"][:, order], rtol=1e-9)


def test_an_impossible_sequence_adds_nothing_and_touches_no_other() -> None:
    likelihood_rk = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])  # no state shows the third symbol
    half, at, code_t = np.full(2, 0.5), np.array([0, 3, 3, 5]), np.array([0, 2, 1, 0, 1])
    laws = Laws(half, half, np.full((2, 2), 0.5))
    walk = Walk(at, 10, laws, lambda t: Shown(likelihood_rk, code_t[t], code_t[t, None], np.ones((len(t), 1))))
    for kind, shape, norm in (("firsts", (2,), 1.0), ("pairs", (2, 2), 1.0), ("shown", (3, 2), 1.0)):
        form = StateSums(walk, kind, shape, 0.5)  # type: ignore[arg-type]
        np.testing.assert_allclose(form.norms(), [0.0, 0.0, norm], rtol=1e-7)
        out = np.zeros(shape, np.int64)
        form.accumulate(np.array([1.0, 1.0, 0.0]), FINE, out)
        assert not out.any()


def test_a_long_sequence_of_many_states_stays_finite() -> None:
    rng, own = np.random.default_rng(6), model(k=100, max_length=10_000)
    whole = own.e_step(drawn(own, rng), rows("categorical", rng, [10_000]), steps_of(own))
    for name, form in whole.items():
        assert 0 < form.norms()[0] < np.inf, name
    assert sums_of(whole)["transitions"].sum() == pytest.approx(9_999**0.5, rel=1e-6)


@kills("norms", "pairs of states that are added without the weight that their norm has")
@edit(
    "models/sequences/passes_numba.py",
    "scale = weight_u[u] * share_u[u] / step\n",
    "scale = weight_u[u] / step\n",
)
@settings(max_examples=40, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    seed=st.integers(0, 2**20),
    kind=st.sampled_from(sorted(KINDS)),
    longest=st.integers(3, 12),
)
def test_no_person_reaches_beyond_the_proven_bounds(lengths: list[int], seed: int, kind: str, longest: int) -> None:
    """1, M^p and T^p, of one sequence or several; what is added is never longer than its norm."""
    rng, own = np.random.default_rng(seed), model(kind, max_length=longest)
    q = drawn(own, rng)
    whole = own.e_step(q, rows(kind, rng, lengths), steps_of(own))
    person = {n: form.grouped(np.zeros(len(lengths), np.int64), 1) for n, form in whole.items()}  # type: ignore[attr-defined]
    cut = np.minimum(lengths, longest)
    most = {"initial": 1.0, "transitions": np.maximum(cut - 1, 0).sum() ** 0.5, "emissions": cut.sum() ** 0.5}
    for name, found in sums_of(person).items():
        norm = float(person[name].norms()[0])
        assert norm <= most[name] * (1 + 1e-6)
        assert np.linalg.norm(found) <= norm
        assert norm <= (1 + 1e-5) * np.linalg.norm(found) + 1e-9


@kills("queries", "passes over sequences with probabilities below zero")
@edit("models/sequences/passes.py", "Laws(*(np.maximum(law, 0.0) for law in self.laws))", "self.laws")
def test_at_laws_below_zero_no_sum_is_negative() -> None:
    """No M-step makes such a q. Behind its refusal two persons are no farther apart than √2, as is accounted."""
    rng, own = np.random.default_rng(10), model(estimate="map")
    data, q = rows("categorical", rng, [8] * 12), drawn(own, rng)
    least, most = 0.0, 0.0
    for _ in range(20):
        laws = {name: rng.standard_normal(np.shape(getattr(q.chain, name))) for name in ("start_k", "step_kk")}
        with np.errstate(all="ignore"):
            whole = own.e_step(replace(q, chain=replace(q.chain, **laws)), data, steps_of(own))
            found = [one for unit in np.eye(12) for one in sums_of(whole, unit).values()]
        least, most = min(least, *(one.min() for one in found)), max(most, *(one.max() for one in found))
    assert least == 0.0 < most


@pytest.mark.parametrize("length", [1, 2, 9])
def test_a_constant_sequence_of_one_certain_state_attains_the_bounds(length: int) -> None:
    own = model(max_length=9, clip_norm=None)
    certain = CategoricalEmissions(np.where(np.eye(4)[:, :3] > 0, 1e9, 1e-9), 1e-9)
    chain = HiddenChain(np.ones(3), np.ones(3), np.ones((3, 3)), certain, 1e-9)
    q = HiddenMarkovPosterior(chain, np.ones((1, 3, 4)), np.zeros((5, 5)), np.zeros((4, 4, 4)))
    data = SequenceRows(np.array([0, length]), np.full(length, 1, np.int32))
    whole = own.e_step(q, data, steps_of(own))
    reached = {name: float(form.norms()[0]) for name, form in whole.items()}
    assert reached["initial"] == pytest.approx(1.0, rel=1e-6)
    assert reached["transitions"] == pytest.approx((length - 1) ** 0.5, rel=1e-6, abs=1e-9)
    assert reached["emissions"] == pytest.approx(length**0.5, rel=1e-6)
    if length == 9:
        for name, block in steps_of(own).items():
            assert reached[name] == pytest.approx(block.bound, rel=1e-6)


@kills("records", "pairs of states that stay in a lane for the next sequence")
@edit(
    "models/sequences/passes_numba.py",
    "        pair_kkn[:] = 0.0\n",
    "        if begin == 0:\n            pair_kkn[:] = 0.0\n",
)
def test_sums_are_the_same_bits_in_any_order_and_any_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, own = np.random.default_rng(7), model()
    data, q = rows("categorical", rng, [*rng.integers(0, 9, 150)]), drawn(own, rng)

    def integers(which: Ints) -> list[Ints]:
        form = own.e_step(q, taken(data, which), steps_of(own))
        outs = []
        for name in sorted(form):
            out = np.zeros(own.blocks[name].shape, np.int64)
            form[name].accumulate(np.full(len(which), 0.7), Grid(2.0**-30, 10.0), out)
            outs.append(out)
        return outs

    whole = integers(np.arange(150))
    shuffled, halves = integers(rng.permutation(150)), [integers(np.arange(75)), integers(np.arange(75, 150))]
    monkeypatch.setattr(passes, "_ENTRIES", 40)
    monkeypatch.setattr(passes, "_KEPT", 2)
    in_parts = integers(np.arange(150))
    for place, total in enumerate(whole):
        assert total.any()
        np.testing.assert_array_equal(shuffled[place], total)
        np.testing.assert_array_equal(halves[0][place] + halves[1][place], total)
        np.testing.assert_array_equal(in_parts[place], total)


def test_persons_of_several_sequences_are_the_same_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, own = np.random.default_rng(8), model()
    data, q, group = rows("categorical", rng, [4, 7, 2, 9, 1, 5]), drawn(own, rng), np.array([0, 0, 1, 1, 1, 3])

    def norms() -> list[list[float]]:
        whole = own.e_step(q, data, steps_of(own))
        return [form.grouped(group, 4).norms().tolist() for form in whole.values()]  # type: ignore[attr-defined]

    found = norms()
    monkeypatch.setattr(passes, "_ENTRIES", 12)
    assert norms() == found
    assert all(one[2] == 0 for one in found)  # nobody's


def fitted(own: HiddenMarkov, data: SequenceRows, seed: int = 0) -> list[HiddenMarkovPosterior]:
    """What a fit without noise comes through."""
    plan = phased(own.blocks, FullBatch(), own.schedule.noise, shares=own.schedule.budget).scaled(0.0)
    wall: Wall[Any] = Wall(Sequences(data), plan)
    seen: list[HiddenMarkovPosterior] = []
    rho, rng = own.schedule.rho, np.random.default_rng(seed)
    loop.fit(own, wall, plan, rho=rho, rng=rng, on_step=lambda t, q: seen.append(q))
    return seen


def simulated(n: int, length: int) -> SequenceRows:
    rng = np.random.default_rng(9)
    step_kk, shown_kv = np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.6]])
    state_n, code_nt = rng.integers(0, 2, n), np.empty((n, length), np.int32)
    for t in range(length):
        code_nt[:, t] = (rng.random((n, 1)) >= np.cumsum(shown_kv, axis=1)[state_n]).sum(axis=1)
        state_n = (rng.random(n) >= step_kk[state_n, 0]).astype(np.int64)
    return SequenceRows(length * np.arange(n + 1), code_nt.ravel())


def test_steps_without_noise_are_steps_of_em() -> None:
    """People of one length that no clip shortens, all counts at the newest q: the likelihood rises and rises."""
    data = simulated(300, 8)
    own = HiddenMarkov(4, 2, estimate="map", clip_norm=None, max_length=8, n_steps=6)
    scores = [own.score(q, data).mean() for q in fitted(own, data)]
    # The prior's counts, 1 beside 300, may take a little; averages over old steps may lag, but not fall.
    assert all(later > earlier - 2e-3 for earlier, later in itertools.pairwise(scores[1:]))
    assert scores[-1] >= scores[0] - 2e-3


def test_a_first_step_is_the_plain_e_step() -> None:
    """Without noise and clip the posterior after a step has the counts of the plain passes, over √M and √T."""
    data = simulated(200, 6)
    own = HiddenMarkov(4, 2, clip_norm=None, max_length=6, n_steps=1)
    first, q = fitted(own, data)
    start = first.chain
    counts, _, _ = expected_counts(start, data.indptr, data.code, np.ones(200), expected=True)
    np.testing.assert_allclose(q.chain.start_k, start.prior + counts.start_k, rtol=1e-5)
    np.testing.assert_allclose(q.chain.step_kk, start.prior + counts.step_kk / 5**0.5, rtol=1e-5)
    shown = q.chain.emissions
    assert isinstance(shown, CategoricalEmissions)
    np.testing.assert_allclose(shown.count_vk, start.prior + counts.state_rk[1:] / 6**0.5, rtol=1e-5)
