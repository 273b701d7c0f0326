"""Mechanisms: what is drawn, what it is charged as, and what a plan fixes.

Statistical tests run on fixed seeds and so always give the same answer; their false-alarm rate, had the seed been
free, is at most 1e-6 each.
"""

from __future__ import annotations

import itertools
import math
import tracemalloc
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from small_models import table

from dpvb.core.blocks import Block
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Mechanism, Plan, Release, calibrated, check_budget, phased
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler, Words, _limit
from dpvb.core.wall import Wall
from dpvb.errors import ParameterError, PrivacyError

FALSE_ALARM = 1e-6
BLOCKS = {"a": Block((2,), 1.0, "nonnegative")}


def stream(seed: int) -> Words:
    return InsecureNoise(seed).words(step=0, purpose="sampling")


def listed(words: Any) -> Words:
    """The stream that begins with these words."""
    return lambda count, start=0: np.array(words[start : start + count], dtype=np.uint64)


def draws(sampler: Sampler, n: int, steps: int, seed: int = 0) -> np.ndarray:
    """Inclusion of n units at each step, drawn in uneven chunks from the noise's own stream, as the wall does."""
    source = InsecureNoise(seed)
    included = np.empty((steps, n), dtype=bool)
    for step in range(steps):
        draw = sampler.draw(source.words(step=step, purpose="sampling"), lambda: n)
        included[step] = np.concatenate([draw(0, n // 3), draw(n // 3, n - n // 3)])
    return included


# --- Poisson ------------------------------------------------------------------------------------------------


@pytest.mark.guarantees("sampling")
@kills("rate", "Poisson threshold rounded up")
@edit(
    "core/sampling.py",
    "math.floor(math.ldexp(self.sampling_prob, 64))",
    "math.floor(math.ldexp(self.sampling_prob, 64)) + 1",
)
@given(st.floats(2.0**-64, 1.0, exclude_max=True))
def test_poisson_rate_is_never_above_q(q: float) -> None:
    """Exactly: words below ⌊q·2⁶⁴⌋ are in, the others out, and ⌊q·2⁶⁴⌋/2⁶⁴ ≤ q."""
    threshold = math.floor(Fraction(q) * 2**64)
    assert Fraction(threshold, 2**64) <= Fraction(q)
    got = Poisson(q).draw(listed([max(threshold - 1, 0), threshold, 2**64 - 1, 0]), lambda: 0)(0, 4)
    assert got.tolist() == [threshold > 0, False, False, threshold > 0]


def test_poisson_at_the_ends() -> None:
    assert Poisson(1.0).draw(stream(0), lambda: 5)(0, 5).all()
    assert not Poisson(1e-30).draw(listed([0] * 5), lambda: 5)(0, 5).any()


def check_counts(trials: int, piece: int) -> None:
    for seed, q in enumerate((1e-12, 1e-9, 1e-6, 0.01)):
        draw = Poisson(q).draw(stream(seed), lambda: trials)
        count = sum(int(draw(start, piece).sum()) for start in range(0, trials, piece))
        tail = FALSE_ALARM / 8
        assert scipy.stats.binom.isf(1 - tail, trials, q) <= count <= scipy.stats.binom.isf(tail, trials, q)


def test_poisson_counts() -> None:
    """Counts within their exact 1e-6 binomial range, over 2·10⁶ trials."""
    check_counts(2_000_000, 500_000)


@pytest.mark.slow
def test_poisson_counts_of_many_trials() -> None:
    check_counts(10**8, 10**6)


# --- fixed size ---------------------------------------------------------------------------------------------


@pytest.mark.guarantees("sampling")
@kills("sampler", "fixed-size batches of fewer units where two words are equal")
@edit("core/sampling.py", "None if last[place - 1] == last[place] else int(last[place])", "int(last[place])")
@kills("sampler", "fixed-size batches prefer a place")
@edit("core/sampling.py", "last[place - 1] == last[place]", "last[0] == last[-1]")
@pytest.mark.parametrize("alphabet", [range(4), [0, 5, 2**52 - 1, 2**52, 2**52 + 7], [0, 2**63, 2**64 - 1]])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_every_set_is_drawn_by_equally_many_words(n: int, alphabet: Any) -> None:
    """Over all sequences of n words of an alphabet, of one bucket or of several: the law is uniform, exactly."""
    for size in range(1, n + 1):
        drawn: Counter[tuple[int, ...]] = Counter()
        for words in itertools.product(alphabet, repeat=n):
            low = sorted(words)
            if size < n and low[size - 1] == low[size]:  # No limit has this many words below it: fresh words follow.
                assert _limit(listed(words), 0, n, size) is None
                continue
            drawn[tuple(np.flatnonzero(FixedSize(size, n).draw(listed(words), lambda: n)(0, n)).tolist())] += 1
        assert drawn.keys() == set(itertools.combinations(range(n), size))
        assert len(set(drawn.values())) == 1


@pytest.mark.guarantees("sampling")
def test_fixed_size_draws_the_smallest_words_of_many_blocks() -> None:
    n, size, words = 200_003, 1_234, stream(5)
    draw = FixedSize(size, n).draw(words, lambda: n)
    assert set(np.flatnonzero(draw(0, n))) == set(np.argsort(words(n))[:size])


def test_a_draw_of_a_fixed_size_holds_no_word_of_each_unit() -> None:
    """The limit of 4,000,000 units is found in 4 MB, where their words alone are 32."""
    n = 4_000_000
    tracemalloc.start()
    draw = FixedSize(1_000, n).draw(stream(6), lambda: n)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4e6
    assert sum(int(draw(start, 8192).sum()) for start in range(0, n, 8192)) in (1_000, 1_001)


@kills("rate", "fixed-size batches drawn above their rate")
@edit("core/sampling.py", "places = max(self.n_units, count())", "places = max(self.batch_size, count())")
def test_fixed_size_pads_and_never_exceeds_its_rate() -> None:
    """N ≤ N₀ leaves empty places, N > N₀ draws from all N: in both cases every unit has probability S/max(N, N₀)."""
    rng = np.random.default_rng(9)
    for n, places in ((3, 8), (8, 8), (12, 12)):
        trials = 6000
        included = np.zeros((trials, n), dtype=bool)
        for t in range(trials):
            words = listed(rng.integers(0, 2**64, places, dtype=np.uint64))
            included[t] = FixedSize(4, 8).draw(words, lambda n=n: n)(0, n)
        assert included.sum(axis=1).max() <= 4
        if n >= 8:
            assert (included.sum(axis=1) == 4).all()
        prob = 4 / places
        assert prob <= FixedSize(4, 8).sampling_prob
        spread = math.sqrt(prob * (1 - prob) / trials)
        assert np.abs(included.mean(axis=0) - prob).max() < 5.5 * spread  # 12 means: 5e-7


def test_fixed_size_draws_again_while_the_limit_passes_between_equal_words() -> None:
    """Words 1 to 4 and 5 to 8 give no two smallest ones; words 9 to 12 do, though two of them are equal."""
    draw = FixedSize(2, 4).draw(listed([3, 1, 3, 3, 7, 7, 7, 7, 9, 4, 4, 8]), lambda: 4)
    assert draw(0, 4).tolist() == [False, True, True, False]
    assert draw(1, 2).tolist() == [True, True]


def test_chunks_do_not_matter() -> None:
    for sampler in (Poisson(0.3), FixedSize(11, 40), FullBatch()):
        draw = sampler.draw(stream(4), lambda: 40)
        assert np.array_equal(np.concatenate([draw(0, 1), draw(1, 0), draw(1, 17), draw(18, 22)]), draw(0, 40))


# --- fresh batches ------------------------------------------------------------------------------------------

N, Q, STEPS = 1000, 0.05, 2000


class Shuffle:
    """Epochs over a shuffled order: what must never be accounted as Poisson; here the tests' own control."""

    def table(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        included = np.zeros((STEPS, N), dtype=bool)
        size = int(N * Q)
        for step in range(STEPS):
            place = step % (N // size)
            if place == 0:
                order = rng.permutation(N)
            included[step, order[place * size : (place + 1) * size]] = True
        return included


def freshness(included: np.ndarray) -> dict[str, float]:
    """Z-scores of what independent batches must show."""
    per_unit, repeated = included.sum(axis=0), (included[1:] & included[:-1]).sum()
    # mean of squared standardised counts: 1, with spread √(2/N)
    dispersion = ((per_unit - STEPS * Q) ** 2).mean() / (STEPS * Q * (1 - Q))
    expected = (STEPS - 1) * N * Q**2
    return {
        "dispersion": (dispersion - 1) / math.sqrt(2 / N),
        "repeats": (repeated - expected) / math.sqrt(expected),
    }


@pytest.mark.guarantees("sampling")
@kills("sampler", "shuffled epochs accounted as Poisson", "poisson")
@edit(
    "core/sampling.py",
    "return Below(words, math.floor(math.ldexp(self.sampling_prob, 64)))",
    "turn, period = next(_TURNS), round(1 / self.sampling_prob)\n"
    "        return lambda start, m: (np.arange(start, start + m) + turn) % period == 0\n",
)
@edit("core/sampling.py", "#: Says which of the", "_TURNS = iter(range(10**9))\n#: Says which of the")
@pytest.mark.parametrize("sampler", [Poisson(Q), FixedSize(int(N * Q), N)], ids=["poisson", "fixed_size"])
def test_batches_are_fresh(sampler: Sampler) -> None:
    """Inclusion counts spread as independent draws do, and one batch says nothing of the next."""
    included = draws(sampler, N, STEPS)
    scores = freshness(included)
    assert abs(scores["dispersion"]) < 5
    assert abs(scores["repeats"]) < 5
    sizes = included.sum(axis=1)
    if isinstance(sampler, Poisson):
        spread = ((sizes - N * Q) ** 2).mean() / (N * Q * (1 - Q))
        assert abs(spread - 1) < 5 * math.sqrt(2 / STEPS)
        pairs = (included[:, ::2] & included[:, 1::2]).sum()
        expected = STEPS * N / 2 * Q**2
        assert abs(pairs - expected) < 5 * math.sqrt(expected)
    else:
        assert (sizes == int(N * Q)).all()


def test_the_test_of_freshness_sees_shuffled_epochs() -> None:
    scores = freshness(Shuffle().table())
    assert scores["dispersion"] < -20
    assert scores["repeats"] < -20


def test_a_step_and_a_run_have_their_own_draws() -> None:
    again = draws(Poisson(0.5), 400, 2, seed=1)
    assert np.array_equal(again, draws(Poisson(0.5), 400, 2, seed=1))
    for one, other in ((again[0], again[1]), (again[0], draws(Poisson(0.5), 400, 1, seed=2)[0])):
        assert 100 < (one != other).sum() < 300  # 200 ± 10 by chance


# --- sensitivity and events ---------------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", [math.sqrt(2), 2.0])
def test_sensitivity_of_each_sampler_and_relation(ratio: float) -> None:
    """The table of METHOD section 2, in units of C."""
    for sampler, relation, expected in [
        (FullBatch(), "add_or_remove_one", 1.0),
        (FullBatch(), "replace_one", ratio),
        (Poisson(0.1), "add_or_remove_one", 1.0),
        (Poisson(0.1), "replace_one", ratio),
        (FixedSize(5, 50), "add_or_remove_one", ratio),
        (FixedSize(5, 50), "replace_one", ratio),
    ]:
        assert Mechanism(sampler, 1.0).sensitivity(relation, ratio) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("domain", "ratio"), [("real", 2.0), ("nonnegative", math.sqrt(2))])
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1), FixedSize(5, 50)])
def test_the_event_says_what_the_sampler_does(sampler: Sampler, domain: Any, ratio: float) -> None:
    event = Release({"a": Block((2,), 1.0, domain)}, Mechanism(sampler, 1.7)).event()
    assert event.sampler == {FullBatch: "full_batch", Poisson: "poisson", FixedSize: "fixed_size"}[type(sampler)]
    assert event.sampling_prob == sampler.sampling_prob == {FullBatch: 1.0}.get(type(sampler), 0.1)
    assert (event.noise_multiplier, event.swap_ratio, event.n_steps) == (1.7, ratio, 1)


def test_events_of_a_plan_are_counted() -> None:
    one, two = (Release(BLOCKS, Mechanism(Poisson(0.1), sigma)) for sigma in (1.0, 2.0))
    first = Release(BLOCKS, Mechanism(FullBatch(), 2.0))
    plan = Plan([first, one, two, one, one])
    counts = Counter({(e.sampler, e.noise_multiplier): e.n_steps for e in plan.events()})
    assert counts == {("full_batch", 2.0): 1, ("poisson", 1.0): 3, ("poisson", 2.0): 1}
    assert len(plan) == 5
    assert list(plan) == [first, one, two, one, one]


# --- releases -----------------------------------------------------------------------------------------------


@kills("factor", "noise of a block forgets the block's weight")
@edit("core/plan.py", "self.blocks[name].bound / self.weights[name]", "self.blocks[name].bound")
def test_noise_is_shared_by_the_weights() -> None:
    blocks = {"a": Block((2,), 3.0), "b": Block((4,), 0.5)}
    even = Release(blocks, Mechanism(FullBatch(), 2.0))
    assert even.noise_std("a") == pytest.approx(2 * 3 * math.sqrt(2), rel=1e-15)
    uneven = Release(blocks, Mechanism(FullBatch(), 2.0), {"a": 0.6, "b": 0.8})
    assert uneven.noise_std("b") == pytest.approx(2 * 0.5 / 0.8, rel=1e-15)
    # In scaled units, both blocks together: the sensitivity is 1 and the noise is the multiplier.
    for release in (even, uneven):
        sigma = release.mechanism.noise_multiplier
        assert sum((sigma * b.bound / release.noise_std(n)) ** 2 for n, b in blocks.items()) <= 1 + 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"weights": {"a": 1.0}},
        {"weights": {"a": 0.9, "b": 0.9}},
        {"weights": {"a": 0.0, "b": 1.0}},
        {"weights": {"a": -0.6, "b": 0.8}},
        {"weights": {"a": math.nan, "b": 0.8}},
        {"clipping": "none"},
        {"blocks": {}},
    ],
)
def test_bad_releases_are_refused(options: dict[str, Any]) -> None:
    fields = {"blocks": {"a": Block((2,), 3.0), "b": Block((4,), 0.5)}, "mechanism": Mechanism(FullBatch(), 2.0)}
    with pytest.raises(ParameterError):
        Release(**{**fields, **options})


@pytest.mark.parametrize("value", [0.0, -0.1, 1.1, math.nan, math.inf, "x", None])
def test_bad_rates_are_refused(value: Any) -> None:
    with pytest.raises(ParameterError, match="sampling_prob"):
        Poisson(value)


@pytest.mark.parametrize(("size", "n"), [(0, 5), (6, 5), (2.5, 5), (1, 0), (math.nan, 5)])
def test_bad_fixed_sizes_are_refused(size: Any, n: Any) -> None:
    with pytest.raises(ParameterError):
        FixedSize(size, n)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "1"])
def test_bad_noise_is_refused(value: Any) -> None:
    with pytest.raises(ParameterError, match="noise_multiplier"):
        Mechanism(FullBatch(), value)


# --- plans --------------------------------------------------------------------------------------------------


def test_the_digest_changes_with_everything_public() -> None:
    release = Release({"a": Block((2,), 1.0), "b": Block((2, 2), 1.0)}, Mechanism(Poisson(0.1), 1.0))
    a, b = release.blocks["a"], release.blocks["b"]
    other_releases = [
        replace(release, blocks=blocks)
        for blocks in (
            {"a": replace(a, bound=1.1), "b": b},
            {"a": replace(a, shape=(3,)), "b": b},
            {"a": replace(a, domain="nonnegative"), "b": b},
            {"a": replace(a, phase="first"), "b": b},
            {"a": replace(a, average=False), "b": b},
            {"a": a, "b": replace(b, domain="psd")},
        )
    ]
    other_releases += [
        replace(release, weights={"a": 0.6, "b": 0.8}),
        replace(release, clipping="joint"),
        replace(release, mechanism=Mechanism(Poisson(0.1), 1.01)),
        replace(release, mechanism=Mechanism(Poisson(0.11), 1.0)),
        replace(release, mechanism=Mechanism(FullBatch(), 1.0)),
        replace(release, mechanism=Mechanism(FixedSize(1, 10), 1.0)),
        replace(release, mechanism=Mechanism(FixedSize(10, 100), 1.0)),
        Release({"a": a, "c": b}, release.mechanism),
    ]
    plans = [Plan([release]), Plan([release, release]), Plan([release], "replace_one"), Plan([release], unit="person")]
    plans += [Plan([other]) for other in other_releases]
    plans += [Plan([release, other_releases[0]]), Plan([other_releases[0], release])]
    assert len({plan.digest for plan in plans}) == len(plans)
    assert Plan([replace(release)]).digest == plans[0].digest


def test_bad_plans_are_refused() -> None:
    release = Release(BLOCKS, Mechanism(FullBatch(), 1.0))
    with pytest.raises(ParameterError, match="at least one"):
        Plan([])
    with pytest.raises(ParameterError, match="neighboring_relation"):
        Plan([release], "add_one")  # type: ignore[arg-type]


@pytest.mark.parametrize("bound", [1e-320, 1e-310, 1e305, 1.7e308])
def test_a_bound_without_a_grid_is_refused_before_the_run(bound: float) -> None:

    def start() -> None:
        Wall(table(np.zeros((1, 3))), Plan([Release({"a": Block((2,), bound)}, Mechanism(FullBatch(), 1.0))]))

    with pytest.raises(ParameterError):
        start()


# --- calibration --------------------------------------------------------------------------------------------


def test_phases_lay_out_a_plan() -> None:
    blocks = {
        "count": Block((1,), 1.0, phase="first"),
        "score": Block((3,), 1.0, average=False),
        "curvature": Block((3, 3), 1.0, "psd", phase="last"),
    }
    shares = {"first": 0.2, "last": 0.05}
    plan = phased(blocks, Poisson(0.1), [2.0, 1.0, 2.0], shares=shares, neighboring_relation="replace_one", unit="row")
    assert [[*release.asked] for release in plan] == [["count"], ["score"], ["score"], ["score"], ["curvature"]]
    assert all({*release.blocks} == {*release.asked, "included", "clipped"} for release in plan)
    assert [release.mechanism.noise_multiplier for release in plan][1:4] == [2.0, 1.0, 2.0]
    cost = [(r.mechanism.sampler.sampling_prob / r.mechanism.noise_multiplier) ** 2 for r in plan]
    np.testing.assert_allclose(np.array([cost[0], sum(cost[1:4]), cost[4]]) / sum(cost), [0.2, 0.75, 0.05], rtol=1e-12)
    assert [release.mechanism.sampler.name for release in plan] == ["full_batch", *["poisson"] * 3, "full_batch"]
    assert (plan.neighboring_relation, plan.unit) == ("replace_one", "row")
    assert [r.mechanism.noise_multiplier for r in plan.scaled(3.0)][1:4] == [6.0, 3.0, 6.0]
    assert len(phased(BLOCKS, FullBatch(), [1.0, 1.0])) == 2
    with pytest.raises(ParameterError, match="leave something"):
        phased(blocks, FullBatch(), [1.0], shares={"first": 0.7, "last": 0.3})


def test_weights_follow_the_blocks() -> None:
    """noise_std = noise_multiplier · bound / w with w in proportion to the blocks' weights and Σ w² = 1."""
    blocks = {"a": Block((1,), 2.0, weight=3.0), "b": Block((1,), 5.0, weight=4.0)}
    release = Release(blocks, Mechanism(FullBatch(), 1.5))
    assert release.weights == pytest.approx({"a": 0.6, "b": 0.8})
    assert release.noise_std("a") == pytest.approx(1.5 * 2.0 / 0.6)


@pytest.mark.guarantees("calibration")
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1), FixedSize(10, 100)])
def test_a_calibrated_plan_meets_its_target(sampler: Sampler, relation: Any) -> None:
    relative = phased(BLOCKS, sampler, [1.0] * 5, neighboring_relation=relation)
    plan = calibrated(relative, epsilon=1.5, delta=1e-5)
    assert 0.995 * 1.5 <= plan.epsilon(1e-5) <= 1.5
    assert len(plan) == 5
    assert plan.neighboring_relation == relation


@kills("neighbours", "add/remove factor used under replace-one")
@edit("accounting/events.py", 'return relation == "replace_one" or self.sampler', "return self.sampler")
def test_full_batch_calibration_is_the_gaussian_one() -> None:
    """J steps of Δ = √2 at σ cost the analytic Gaussian mechanism at μ = √(2J)/σ (Balle & Wang 2018)."""
    relative = phased(BLOCKS, FullBatch(), [1.0] * 8, neighboring_relation="replace_one")
    plan = calibrated(relative, epsilon=2.0, delta=1e-6)
    mu = math.sqrt(2 * 8) / plan.releases[0].mechanism.noise_multiplier
    ndtr = scipy.stats.norm.cdf
    delta = ndtr(mu / 2 - 2.0 / mu) - math.exp(2.0) * ndtr(-mu / 2 - 2.0 / mu)
    assert delta <= 1e-6 * (1 + 1e-9)
    assert delta > 0.97e-6


def test_a_schedule_keeps_its_ratios_and_the_target() -> None:
    schedule = [3.0, 3.0, 1.0, 2.0]
    plan = calibrated(phased(BLOCKS, Poisson(0.2), schedule), epsilon=1.0, delta=1e-5)
    sigma = np.array([release.mechanism.noise_multiplier for release in plan])
    np.testing.assert_allclose(sigma / sigma[2], schedule, rtol=1e-12)
    assert 0.995 <= plan.epsilon(1e-5) <= 1.0


def test_no_noise_is_a_plan_like_any_other() -> None:
    plan = calibrated(phased(BLOCKS, FullBatch(), [1.0] * 3), epsilon=math.inf, delta=1e-5)
    assert [release.mechanism.noise_multiplier for release in plan] == [0.0] * 3
    assert plan.epsilon(1e-5) == math.inf
    assert check_budget(plan, epsilon=math.inf, delta=1e-5) is plan


def test_too_little_noise_is_refused() -> None:
    plan = phased(BLOCKS, Poisson(0.05), [1.24] * 20)
    with pytest.raises(PrivacyError, match="not met"):
        check_budget(plan, epsilon=0.5, delta=1e-5)
    assert check_budget(plan, epsilon=2.0, delta=1e-5) is plan


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"delta": math.nan},
        {"accountant": "magic"},
    ],
)
def test_bad_targets_are_refused(options: dict[str, Any]) -> None:
    plan = phased(BLOCKS, FullBatch(), [1.0, 1.0])
    with pytest.raises(ParameterError):
        calibrated(plan, **{"epsilon": 1.0, "delta": 1e-5, **options})
