"""Trust models: the noise of each client, what integers cost, and which plans are granted.

The proof in `dpvb.federated.trust` is followed number by number in high precision. All tests are deterministic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import mpmath
import numpy as np
import pytest
from each import each
from planted import edit, kills
from small_models import NAMES, TOYS_FIRST, Case

from dpvb.core.blocks import Block, swap_ratio
from dpvb.core.grids import grids_of
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.errors import ParameterError, PrivacyError
from dpvb.federated.trust import TRUST, Trust

DELTA = 1e-5


def plan_of(size: int = 3, steps: int = 4, noise: float = 1.0, sampler: Any = None, relation: Any = None) -> Plan:
    mechanism = Mechanism(FullBatch() if sampler is None else sampler, noise)
    release = Release({"a": Block((size,), 1.0)}, mechanism)
    return Plan([release] * steps, neighboring_relation=relation or "add_or_remove_one")


# --- the proof ----------------------------------------------------------------------------------------------


def _log_rounded(k: int, tau: Any) -> Any:
    """log P(R = k), R a rounded normal number of deviation tau."""
    root = mpmath.sqrt(2) * tau
    upper, lower = ((2 * abs(k) + sign) / (2 * root) for sign in (-1, 1))
    if k == 0:
        return mpmath.log(mpmath.erf(lower))
    return mpmath.log((mpmath.erfc(upper) - mpmath.erfc(lower)) / 2)


def _log_discrete(k: int, tau: Any) -> Any:
    """log P(D = k), D a discrete normal number."""
    total = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * tau**2))) if tau < 50 else mpmath.sqrt(2 * mpmath.pi) * tau
    return -(mpmath.mpf(k) ** 2) / (2 * tau**2) - mpmath.log(total)


@pytest.mark.guarantees("integers")
@pytest.mark.parametrize("tau", [40, 1000, 2**20, 2**27 + 12345, 2**34])
def test_rounded_and_discrete_normals_differ_as_little_as_stated(tau: int) -> None:
    """|log P(R = k)/P(D = k)| ≤ 191/τ² up to |k| = 39 τ + 1; a third of it is reached at the end.

    For τ ≥ 40 the sum Σ φ(k) is √(2π) τ to within exp(-2π²τ²), far below the precision of 60 digits kept here.
    """
    with mpmath.workdps(60):
        last = 39 * tau + 1
        places = sorted({0, 1, 2, tau // 2, *(m * tau + 1 for m in range(1, 39)), last - 1, last})
        gaps = [abs(_log_rounded(k, mpmath.mpf(tau)) - _log_discrete(k, mpmath.mpf(tau))) * tau**2 for k in places]
        assert max(gaps) <= 191
        assert 60 <= gaps[-1] <= 70  # ∫ cosh(kt/τ²) dt - 1 ≈ 39²/24


def test_no_draw_is_beyond_39_deviations() -> None:
    """What is cut off has a probability below 10⁻³³⁰."""
    with mpmath.workdps(50):
        assert mpmath.erfc(39 / mpmath.sqrt(2)) < mpmath.mpf(10) ** -330


@pytest.mark.parametrize("num_clients", [2, 3, 7])
@pytest.mark.parametrize("tau", [3.0, 40.0])
def test_a_sum_of_rounded_normals_is_as_private_as_the_proof_says(num_clients: int, tau: float) -> None:
    """Rényi divergence of the summed masses themselves, shifted by a whole number, at six orders.

    At most a Δ²/(2Mτ²) + A (2a - 1)/(a - 1), A = 191 M/τ²; and for τ = 40 within a thousandth of the first term.
    """
    k = np.arange(-int(12 * tau) - 1, int(12 * tau) + 2)
    edges = np.array([math.erfc((j - 0.5) / (math.sqrt(2) * tau)) / 2 for j in [*np.abs(k), int(12 * tau) + 2]])
    masses = np.array([math.erf(0.5 / (math.sqrt(2) * tau)) if j == 0 else edges[i] for i, j in enumerate(k)])
    inside = k != 0
    upper = np.array([math.erfc((abs(j) + 0.5) / (math.sqrt(2) * tau)) / 2 for j in k])
    masses[inside] = edges[:-1][inside] - upper[inside]
    total = masses
    for _ in range(num_clients - 1):
        total = np.convolve(total, masses)
    shift = max(1, round(tau))
    p, q = np.pad(total, (shift, 0)), np.pad(total, (0, shift))
    used = (p > 1e-18) & (q > 1e-18)
    for order in (1.001, 1.1, 1.5, 2.0, 4.0, 8.0):
        divergence = math.log(float((p[used] ** order * q[used] ** (1 - order)).sum())) / (order - 1)
        gaussian = order * shift**2 / (2 * num_clients * tau**2)
        slack = 191 * num_clients / tau**2 * (2 * order - 1) / (order - 1)
        assert divergence <= gaussian + slack
        if tau == 40.0 and order >= 1.5:
            assert divergence == pytest.approx(gaussian, rel=1e-3)


@pytest.mark.guarantees("integers")
def test_a_thousandth_of_noise_pays_for_the_integers() -> None:
    """ρa/(1 + s)² + A (2a - 1)/(a - 1) ≤ ρa at every order from 1.01 on, where A = 0.01 s ρ."""
    s = 1e-3
    with mpmath.workdps(40):
        for order in [mpmath.mpf(101) / 100, *(1 + mpmath.mpf(10) ** k for k in np.linspace(-1.99, 8, 60))]:
            factor = (2 * order - 1) / (order - 1)
            assert factor <= 102 * order
            assert 1 / mpmath.mpf(1 + s) ** 2 + mpmath.mpf(s) / 100 * factor / order <= 1


@pytest.mark.parametrize("cost", [1e-6, 1e-3, 1.0, 1e2, 1e4])
@pytest.mark.parametrize("delta", [1e-300, 1e-12, 1e-5, 0.1])
def test_the_best_order_is_one_for_which_the_proof_holds(cost: float, delta: float) -> None:
    """ε is a minimum over orders, and the best one is above 1.01."""
    orders = 1 + np.logspace(-6, 9, 200_001)
    epsilon = cost * orders + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)
    assert orders[np.argmin(epsilon)] >= 1.01


@pytest.mark.guarantees("integers")
@pytest.mark.parametrize("case", TOYS_FIRST, ids=NAMES)
@pytest.mark.parametrize(
    ("num_clients", "max_missing", "max_colluding"), [(2, 0, 0), (2, 0, 1), (10, 3, 0), (10, 1, 8), (200, 0, 1)]
)
def test_a_granted_plan_keeps_the_proofs_condition(
    case: Case, num_clients: int, max_missing: int, max_colluding: int
) -> None:
    """A = Σ 191 M/τ² over the numbers of a release, by its own grids, is at most 10⁻⁵ ρ; fewer shares have less."""
    trust = Trust("secure_aggregation", num_clients, max_missing=max_missing, max_colluding=max_colluding)
    plan = trust.planned(case.plan(noise=1.0, steps=3), epsilon=0.7, delta=DELTA)
    for release in plan:
        grids = grids_of(release, None, trust.party)
        apart = 0.0
        for name, block in release.blocks.items():
            for part, ratio in block.noise_parts():
                deviation = trust.party.noise_share * release.noise_std(name) / grids[name].step * ratio
                apart += 191 * num_clients * np.zeros(block.packed_shape)[part].size / deviation**2
                assert deviation * math.sqrt(2) >= 2**20
        ratio = swap_ratio(release.blocks) if plan.neighboring_relation == "replace_one" else 1.0
        assert apart <= 1e-5 * ratio**2 / (2 * release.mechanism.noise_multiplier**2)


# --- which noise --------------------------------------------------------------------------------------------


@kills("parties", "a client's share of noise one in M")
@edit("federated/trust.py", "/ math.sqrt(self._honest))", "/ self._honest)")
@pytest.mark.parametrize(
    ("num_clients", "max_missing", "max_colluding"),
    [(2, 0, 0), (2, 0, 1), (3, 1, 1), (3, 0, 1), (10, 0, 0), (10, 5, 3), (1000, 17, 20)],
)
def test_shares_of_secure_aggregation(num_clients: int, max_missing: int, max_colluding: int) -> None:
    """Those who remain have σ together, a thousandth more, and nothing else."""
    trust = Trust("secure_aggregation", num_clients, max_missing=max_missing, max_colluding=max_colluding)
    assert trust.party.num_parties == num_clients
    assert trust.least == num_clients - max_missing
    honest = num_clients - max_missing - max_colluding
    assert trust.party.noise_share * math.sqrt(honest) == pytest.approx(1.001, rel=1e-12)


def subsets(names: Iterable[int], most: int) -> Iterator[frozenset[int]]:
    """All of at most so many."""
    names = tuple(names)
    for size in range(most + 1):
        yield from map(frozenset, itertools.combinations(names, size))


@pytest.mark.guarantees("max_colluding")
@kills("parties", "as many max_colluding as take part, and nobody's noise left")
@edit("federated/trust.py", "if self.secure and self._honest < 1:", "if self.secure and self._honest < 0:")
@kills("parties", "the noise of colluding clients counted on")
@edit(
    "federated/trust.py",
    "return self.num_clients - self.max_missing - self.max_colluding",
    "return self.num_clients - max(self.max_missing, self.max_colluding)",
)
@pytest.mark.parametrize("num_clients", [3, 4, 5, 6])
def test_the_noise_suffices_whoever_is_missing_and_whoever_colludes(num_clients: int) -> None:
    """Every F and C, every F clients that a server leaves out, and every C that work with it: σ, and no more than σ.

    What is unknown to the server are the shares of those who were asked, two at least, and do not work with it.
    """
    every, granted = range(num_clients), 0
    for max_missing, max_colluding in itertools.product(range(num_clients), repeat=2):
        if num_clients - max_missing < 2 or num_clients - max_missing - max_colluding < 1:
            wrong = "max_missing" if num_clients - max_missing < 2 else "max_colluding"
            with pytest.raises(ParameterError, match=f"{wrong} must be at most"):
                Trust("secure_aggregation", num_clients, max_missing, max_colluding)
            continue
        trust = Trust("secure_aggregation", num_clients, max_missing, max_colluding)
        unknown = [
            frozenset(every) - missing - turned
            for missing in subsets(every, num_clients - trust.least)
            for turned in subsets(every, max_colluding)
        ]
        variances = [len(shares) * trust.party.noise_share**2 for shares in unknown]
        assert min(variances) == pytest.approx(1.001**2, rel=1e-12)
        assert min(map(len, unknown)) >= 1
        assert trust.least >= 2
        granted += 1
    assert granted == sum(num_clients - max_missing for max_missing in range(num_clients - 1))


@pytest.mark.parametrize("num_clients", [1, 2, 200])
def test_shares_of_the_other_trust_models(num_clients: int) -> None:
    assert Trust("none", num_clients).party.noise_share == 1.0
    assert Trust("none", num_clients).party.num_parties == 1
    trusted = Trust("trusted_server", num_clients).party
    assert trusted.gathers_noise
    assert trusted.num_parties == num_clients


@pytest.mark.parametrize("name", TRUST)
@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
def test_noise_of_a_client_meets_its_budget(name: str, relation: str) -> None:
    """Whoever adds it: every client has the noise of a fit of its own."""
    trust = Trust(name, 5)
    found = trust.planned(plan_of(relation=relation), epsilon=0.8, delta=DELTA)
    assert 0.75 < found.epsilon(DELTA, trust.method) <= 0.8
    alone = Trust("none", 1).planned(plan_of(relation=relation), epsilon=0.8, delta=DELTA, method=trust.method)
    assert [r.mechanism for r in found] == [r.mechanism for r in alone]
    assert trust.method == ("renyi" if name == "secure_aggregation" else "pld")


def test_no_noise_where_none_is_asked_for() -> None:
    for name in TRUST:
        found = Trust(name, 4).planned(plan_of(), epsilon=math.inf, delta=DELTA)
        assert all(release.mechanism.noise_multiplier == 0 for release in found)


# --- what is refused ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampler", [Poisson(0.5), FixedSize(5, 10)])
def test_sampled_batches_are_refused_under_secure_aggregation(sampler: Any) -> None:
    plan = plan_of(sampler=sampler)
    trust = Trust("secure_aggregation", 4)
    with pytest.raises(ParameterError, match="sampling_prob and batch_size must be None under secure aggregation"):
        trust.planned(plan, epsilon=1.0, delta=DELTA)
    with pytest.raises(ParameterError, match="sampling_prob and batch_size must be None"):
        trust.adopted(plan, [10.0] * 4, epsilon=1.0, delta=DELTA)
    mixed = Plan([*plan_of(), *plan])
    with pytest.raises(ParameterError, match="sampling_prob"):
        trust.planned(mixed, epsilon=1.0, delta=DELTA)
    for name in ("none", "trusted_server"):
        assert Trust(name, 4).planned(plan, epsilon=1.0, delta=DELTA).epsilon(DELTA) <= 1.0


def test_plans_for_which_integers_are_too_coarse_are_refused() -> None:
    """Many clients, many numbers, much noise; the way out is any of the three."""
    wide, narrow = plan_of(size=20_000, steps=20), plan_of(size=200, steps=20)
    with pytest.raises(ParameterError, match="2000 clients and 20000 numbers a release are too many"):
        Trust("secure_aggregation", 2000).planned(wide, epsilon=0.002, delta=DELTA)
    Trust("secure_aggregation", 5).planned(wide, epsilon=0.1, delta=DELTA)
    Trust("secure_aggregation", 300).planned(narrow, epsilon=0.5, delta=DELTA)
    for name in ("none", "trusted_server"):
        Trust(name, 2000).planned(wide, epsilon=0.1, delta=DELTA)


def test_the_grids_of_so_many_public_units_are_the_ones_that_count() -> None:
    """A larger public number of units makes the grid coarser: what was fine enough is not any more."""
    trust, plan = Trust("secure_aggregation", 20), plan_of(size=2000, steps=1)
    noise = [10.0]
    trust.adopted(plan, noise, epsilon=1.0, delta=DELTA)
    trust.adopted(plan, noise, epsilon=1.0, delta=DELTA, n_units=10**6)
    with pytest.raises(ParameterError, match="too many for integer noise"):
        trust.adopted(plan, noise, epsilon=1.0, delta=DELTA, n_units=2**34)


@pytest.mark.parametrize("delta", [0.0, 0.2, 1.0, math.nan, -1e-5, "1e-5"])
def test_deltas_that_the_proof_does_not_cover(delta: Any) -> None:
    with pytest.raises(ParameterError, match="delta"):
        Trust("secure_aggregation", 4).planned(plan_of(), epsilon=1.0, delta=delta)


def test_hardly_any_noise_is_refused() -> None:
    trust = Trust("secure_aggregation", 2)
    with pytest.raises(ParameterError, match="epsilon must be smaller under secure aggregation, or infinite"):
        trust.adopted(plan_of(), [5e-4] * 4, epsilon=math.inf, delta=DELTA)


@pytest.mark.parametrize("name", TRUST)
def test_proposed_noise_is_adopted_within_the_budget_alone(name: str) -> None:
    trust = Trust(name, 5)
    found = trust.planned(plan_of(), epsilon=0.8, delta=DELTA)
    own = [release.mechanism.noise_multiplier for release in found]
    adopted = trust.adopted(plan_of(), own, epsilon=0.8, delta=DELTA)
    assert adopted.digest == found.digest
    for scale, one in ((0.98, range(4)), (0.5, [2]), (0.0, [0])):
        less = [m * scale if i in one else m for i, m in enumerate(own)]
        with pytest.raises(PrivacyError, match=r"epsilon"):
            trust.adopted(plan_of(), less, epsilon=0.8, delta=DELTA)
    more = trust.adopted(plan_of(), [2 * m for m in own], epsilon=0.8, delta=DELTA)
    assert more.epsilon(DELTA) < 0.5
    with pytest.raises(PrivacyError):
        trust.adopted(plan_of(), [0.0] * 4, epsilon=0.8, delta=DELTA)


@each("name", TRUST)
@each("multipliers", [[], [5.0] * 3, [5.0] * 5, [math.nan] * 4, [-1.0] * 4, [math.inf] * 4, ["5"] * 4, [1e13] * 4])
def test_proposals_that_are_no_noise_multipliers(name: str, multipliers: Any) -> None:
    with pytest.raises(ParameterError, match="noise"):
        Trust(name, 5).adopted(plan_of(), multipliers, epsilon=0.8, delta=DELTA)


def test_equal_releases_stay_one() -> None:
    """A plan of many equal releases is not copied release by release: the wall knows them by identity."""
    trust = Trust("none", 2)
    plan = plan_of(steps=50)
    adopted = trust.adopted(plan, [20.0] * 50, epsilon=math.inf, delta=DELTA)
    assert len({id(release) for release in adopted}) == 1
    mixed = trust.adopted(plan, [20.0, 30.0] * 25, epsilon=math.inf, delta=DELTA)
    assert len({id(release) for release in mixed}) == 2


@pytest.mark.parametrize("given", ["None", "secure", "", None, 1, ("none",)])
def test_unknown_trust_models(given: Any) -> None:
    with pytest.raises(ParameterError, match="trust must be"):
        Trust(given, 3)


@pytest.mark.parametrize("given", [0, -1, 10**5 + 1, 2.5, "3", None, True])
def test_bad_numbers_of_clients(given: Any) -> None:
    with pytest.raises(ParameterError, match="num_clients"):
        Trust("none", given)


@each("given", [-1, 5, 6, 1.5, "1", True, math.nan])
@each("name", ["max_missing", "max_colluding"])
def test_bad_numbers_of_clients_that_are_missing_or_collude(name: str, given: Any) -> None:
    with pytest.raises(ParameterError, match=name):
        Trust("secure_aggregation", 5, **{name: given})


@pytest.mark.parametrize("num_clients", [2, 3, 7])
def test_one_client_is_taken_to_collude_unless_it_is_said(num_clients: int) -> None:
    """A client knows its own noise. Without secure aggregation nobody counts on another's."""
    for name, max_colluding in (("none", 0), ("secure_aggregation", 1), ("trusted_server", 0)):
        for max_missing in range(num_clients - 1):
            found = Trust(name, num_clients, max_missing)
            assert found == Trust(name, num_clients, max_missing, max_colluding)
            assert found.max_colluding == max_colluding
            assert f"max_colluding={max_colluding}" in repr(found)


def test_parameters_of_trust_that_do_not_go_together() -> None:
    with pytest.raises(ParameterError, match="at least 2 for secure aggregation"):
        Trust("secure_aggregation", 1)
    for name in ("none", "trusted_server"):
        assert Trust(name, 5, 4).party == Trust(name, 5).party  # Who fails takes no noise of the others' away.
        with pytest.raises(ParameterError, match=f"max_colluding must be 0 with trust='{name}', got 1"):
            Trust(name, 5, max_colluding=1)
    with pytest.raises(
        ParameterError, match=r"max_missing must be at most 3 of 5 .* got 4: .* trust='none' needs no others"
    ):
        Trust("secure_aggregation", 5, 4)
    with pytest.raises(
        ParameterError, match=r"max_colluding must be at most 2 where 3 of 5 .* got 3: .* or trust='none'"
    ):
        Trust("secure_aggregation", 5, 2, 3)
    assert Trust("secure_aggregation", 5, 2, 1).party.noise_share < 1


def test_what_a_client_is_told() -> None:
    assert "all parties, including the server and the other clients" in Trust("none", 5).against()
    trusted = Trust("trusted_server", 5).against()
    assert "all parties except the server" in trusted
    assert "all 5 clients" in trusted
    secure = Trust("secure_aggregation", 7, max_missing=1, max_colluding=2).against()
    assert "sums over at least 6 of 7 clients" in secure
    assert "std 1/sqrt(4) of the whole" in secure
    assert "At most 1 of the clients may be missing" in secure
    assert "and at most 2 of the others may collude" in secure
    assert "and at most 1 of the others may collude" in Trust("secure_aggregation", 5).against()
    strict = Trust("secure_aggregation", 5, max_colluding=0).against()
    assert "None of the clients may be missing" in strict
    assert "and none of the others may collude" in strict
