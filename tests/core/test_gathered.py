"""Sums of several parties: what each lets go, what is gathered, and what they have together.

Statistical tests run on fixed seeds; their false-alarm rate, had the seed been free, is at most 1e-6 each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.stats
from planted import edit, kills
from small_models import NAMES, TOYS_FIRST, Case, D, Table, difference, squared, table

from dpvb.audit.integers import same
from dpvb.core.blocks import Block
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.grids import Party, grids_of
from dpvb.core.noise import InsecureNoise, SecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch, Poisson
from dpvb.core.source import Nobody
from dpvb.core.wall import Conceal, Wall, gathered
from dpvb.errors import ParameterError, PrivacyError
from dpvb.federated.keys import Identity
from dpvb.federated.masks import Masks
from dpvb.federated.trust import Trust
from dpvb.guards.arrays import Ints

FALSE_ALARM = 1e-6
EVERY_MODEL = pytest.mark.parametrize("case", TOYS_FIRST, ids=NAMES)
NUM_PARTIES = 4
Sums = Mapping[str, Ints]


def bare(sums: Sums) -> Sums:
    """Nothing conceals them."""
    return sums


def plain(size: int = 1, noise: float = 1.0, bound: float = 1.0) -> Plan:
    return Plan([Release({"a": Block((size,), bound)}, Mechanism(FullBatch(), noise))])


def concealed(num_parties: int, digest: bytes = bytes(32)) -> list[Conceal]:
    """What masks the sums of each of so many parties in one request."""
    identities = [Identity.generate(f"party-{m}") for m in range(num_parties)]
    participants = {identity.name: identity.public for identity in identities}
    return [partial(Masks(identity, participants).conceal, digest) for identity in identities]


def shared(
    case: Case, parts: list[Any], plan: Plan, party: Party, *, q: Any, conceals: list[Conceal] | None = None
) -> list[Sums]:
    """The first share of every party; each has repeatable noise of its own."""
    release = plan.releases[0]
    query = partial(case.model.e_step, q, blocks=release.asked)
    made = []
    for m, part in enumerate(parts):
        wall: Wall[Any] = Wall(case.source(part), plan, noise=InsecureNoise(m), party=party)
        made.append(wall.share(query, release, bare if conceals is None else conceals[m])[0])
    return made


def added(shares: list[Sums]) -> Sums:
    """Sums modulo 2⁶⁴, in Python's integers, between -2⁶³ and 2⁶³."""
    result = {}
    for name in shares[0]:
        total = sum(share[name].astype(object) for share in shares)
        result[name] = np.asarray((total + 2**63) % 2**64 - 2**63, dtype=np.int64)
    return result


def empty_walls(plan: Plan, party: Party, count: int, secure: bool = False) -> list[Sums]:
    """Shares of parties without data: noise alone."""
    sources: list[Any] = [Nobody()] * count
    noise = [SecureNoise() if secure else InsecureNoise(m) for m in range(count)]
    walls: list[Wall[Any]] = [Wall(s, plan, noise=n, party=party) for s, n in zip(sources, noise, strict=True)]
    return [wall.share(lambda rows: {}, plan.releases[0], bare)[0] for wall in walls]


# --- exact sums ---------------------------------------------------------------------------------------------


@pytest.mark.guarantees("masks")
@kills("parties", "masks added by both of a pair", "location")
@edit("federated/masks.py", "part -= _sum_of_next(self._subtracted", "part += _sum_of_next(self._subtracted")
@EVERY_MODEL
def test_shares_without_noise_add_up_to_the_sums_of_all_data(case: Case) -> None:
    """Any split, an empty party among them, masked or not: every bit of the sums of one wall with all records."""
    rng = np.random.default_rng(51)
    plan, party, q = case.plan(noise=0.0), Party(NUM_PARTIES), case.start()
    matrix = case.some(rng, 23)
    [pooled] = shared(case, [matrix], plan, party, q=q)
    for cuts in ([5, 6, 20], [0, 11, 11]):
        parts = np.split(matrix, cuts)
        assert same(added(shared(case, parts, plan, party, q=q)), pooled)
        assert same(added(shared(case, parts, plan, party, q=q, conceals=concealed(NUM_PARTIES))), pooled)


@EVERY_MODEL
def test_what_is_gathered_is_the_sum_in_the_blocks_units(case: Case) -> None:
    rng = np.random.default_rng(52)
    plan, party, q = case.plan(noise=2.0), Party(NUM_PARTIES, 0.5), case.start()
    shares = shared(case, np.split(case.some(rng, 20), NUM_PARTIES), plan, party, q=q)
    release = plan.releases[0]
    released = gathered(shares, release, plan=plan, step=0, party=party, run="run", private=True)
    grids, total = grids_of(release, None, party), added(shares)
    for name, block in release.blocks.items():
        assert released.total[name].shape == block.packed_shape
        assert np.array_equal(released.total[name], total[name].astype(np.float64) * grids[name].step)
        assert released.noise_std[name] == pytest.approx(release.noise_std(name), rel=1e-15)  # √4 · 1/2
    assert released.receipt.plan_digest == plan.digest.hex()
    assert (released.receipt.run, released.receipt.step, released.receipt.private) == ("run", 0, True)
    assert released.sampling_prob == 1.0


@pytest.mark.guarantees("one client")
@EVERY_MODEL
@pytest.mark.parametrize("masked", [False, True], ids=["bare", "masked"])
def test_a_record_at_one_party_moves_the_gathered_sum_by_itself_alone(case: Case, masked: bool) -> None:
    """The same noise and masks, one record more at one of four parties: the sum moves by clip(s(x)), bit for bit."""
    rng = np.random.default_rng(53)
    plan, q = case.plan(noise=3.0), case.start()
    party = Party(NUM_PARTIES, 1 / math.sqrt(NUM_PARTIES))
    conceals = [concealed(NUM_PARTIES) for _ in range(2)] if masked else [None, None]
    nothing = np.zeros((0, case.width))
    parts = np.split(case.some(rng, 12), NUM_PARTIES)
    without = added(shared(case, parts, plan, party, q=q, conceals=conceals[0]))
    for trial, record in enumerate(case.some(rng, 4)):
        [alone], [none] = (shared(case, [rows], plan, party, q=q) for rows in (record[None], nothing))
        parts_with = [np.vstack([part, record]) if m == trial else part for m, part in enumerate(parts)]
        fresh = concealed(NUM_PARTIES) if masked else None
        change = difference(added(shared(case, parts_with, plan, party, q=q, conceals=fresh)), without)
        assert same(change, difference(alone, none))
        for name, grid in grids_of(plan.releases[0], None, party).items():
            length = squared(change[name], plan.releases[0].blocks[name]) * Fraction(grid.step) ** 2
            assert length <= Fraction(grid.bound) ** 2


@EVERY_MODEL
def test_other_parties_do_not_move_a_partys_share(case: Case) -> None:
    """What a party lets go is a function of its own records, noise and keys."""
    rng = np.random.default_rng(54)
    plan, party, q = case.plan(noise=1.0), Party(NUM_PARTIES, 0.5), case.start()
    parts = np.split(case.some(rng, 12), NUM_PARTIES)
    conceals = concealed(NUM_PARTIES)
    shares = shared(case, parts, plan, party, q=q, conceals=conceals)
    others = shared(case, [parts[0], *parts[2:], parts[1]], plan, party, q=q, conceals=[conceals[0], *concealed(3)])
    assert same(shares[0], others[0])


# --- noise --------------------------------------------------------------------------------------------------

_COUNT = 100_000
# 1.2 % of the deviation of 100,000 numbers is 5.4 standard deviations; false alarm below 1e-7 for each of them.
_WITHIN = 0.012


@pytest.mark.guarantees("noise shares")
@kills("parties", "the noise of missing clients counted on")
@edit(
    "federated/trust.py",
    "return self.num_clients - self.max_missing - self.max_colluding",
    "return self.num_clients - self.max_colluding",
)
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_noise_of_a_sum_under_secure_aggregation(missing: int) -> None:
    """Five clients, of whom one may be missing and one collude: σ is left without two, and it is what is stated."""
    trust = Trust("secure_aggregation", 5, max_missing=1, max_colluding=1)
    plan = plain(_COUNT, 1.7, 3.0)
    release = plan.releases[0]
    shares = empty_walls(plan, trust.party, 5 - missing)
    released = gathered(shares, release, plan=plan, step=0, party=trust.party, run="run", private=False)
    stated = released.noise_std["a"]
    assert stated == pytest.approx(1.001 * math.sqrt((5 - missing) / 3) * release.noise_std("a"), rel=1e-12)
    assert stated >= release.noise_std("a") == 1.7 * 3.0
    noise = released.total["a"] / stated
    assert abs(noise.std() - 1) < _WITHIN
    assert abs(noise.mean()) < 5 / math.sqrt(_COUNT)
    assert scipy.stats.kstest(noise, "norm").pvalue > FALSE_ALARM


@pytest.mark.guarantees("noise shares")
@kills("parties", "no noise of a client that trusts nobody")
@edit(
    "core/wall.py",
    "else self.__party.noise_share\n",
    "else self.__party.noise_share * (self.__party.num_parties > 1)\n",
)
def test_noise_of_a_sum_without_trust() -> None:
    """Each client's sum has all of the noise, and the sum of five √5 times as much."""
    trust = Trust("none", 5)
    plan = plain(_COUNT, 1.7, 3.0)
    release = plan.releases[0]
    blocks, estimates = release.blocks, []
    for share in empty_walls(plan, trust.party, 5):
        released = gathered([share], release, plan=plan, step=0, party=trust.party, run="run", private=False)
        assert released.noise_std == {"a": 1.7 * 3.0}
        assert abs(released.total["a"].std() / (1.7 * 3.0) - 1) < _WITHIN
        estimates.append(Estimate.empty(blocks).update(released, 1.0))
    total = Estimate.total(estimates)
    assert total.noise_std("a") == pytest.approx(math.sqrt(5) * 1.7 * 3.0, rel=1e-12)
    assert abs(total.noisy("a").std() / total.noise_std("a") - 1) < _WITHIN


@pytest.mark.guarantees("noise shares")
@kills("parties", "a trusted server that forgets its noise")
@edit("core/wall.py", "sums if noise is None else _with_noise(noise, sums, release, step, plan, grids, 1.0)", "sums")
def test_noise_of_a_sum_at_a_trusted_server() -> None:
    """Clients add none, the server adds σ, whatever their number."""
    trust = Trust("trusted_server", 5)
    plan = plain(_COUNT, 1.7, 3.0)
    shares = empty_walls(plan, trust.party, 5, secure=True)
    assert not any(share["a"].any() for share in shares)
    released = gathered(
        shares,
        plan.releases[0],
        plan=plan,
        step=0,
        party=trust.party,
        run="run",
        private=True,
        noise=InsecureNoise(1),
    )
    assert released.noise_std == {"a": 1.7 * 3.0}
    assert abs(released.total["a"].std() / (1.7 * 3.0) - 1) < _WITHIN
    assert scipy.stats.kstest(released.total["a"] / (1.7 * 3.0), "norm").pvalue > FALSE_ALARM
    assert not released.receipt.private  # the noise is the server's, and a test's


def test_parties_have_noise_of_their_own() -> None:
    plan, count = plain(20_000), 3
    shares = [share["a"] for share in empty_walls(plan, Party(count, 0.5), count, secure=True)]
    correlations = np.corrcoef(np.array(shares, dtype=np.float64))[np.triu_indices(count, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(20_000)


def test_noise_is_added_by_one_side_alone() -> None:
    plan = plain()
    release = plan.releases[0]
    tell: dict[str, Any] = {"plan": plan, "step": 0, "run": "run", "private": True}
    shares: list[Sums] = [{"a": np.zeros(1, dtype=np.int64)}] * 2
    with pytest.raises(PrivacyError, match="must add it"):
        gathered(shares, release, party=Party(2, 0.0), **tell)
    for share in (0.5, 1.0):
        with pytest.raises(PrivacyError, match="no other party may"):
            gathered(shares, release, party=Party(2, share), noise=SecureNoise(), **tell)


def test_a_party_has_a_door_of_its_own() -> None:
    """A wall with a part of the noise never releases by itself, and one that is alone has nothing to share."""
    plan = plain(D)
    release, query = plan.releases[0], lambda rows: {"a": Rows(rows)}
    for share in (0.0, 0.5, 1.0):
        party: Wall[Any] = Wall(table(np.ones((2, D))), plan, party=Party(2, share))
        with pytest.raises(PrivacyError, match="Use share"):
            party.release(query, release)
        assert repr(party) == "Wall(step 0 of 1)"
    alone: Wall[Any] = Wall(table(np.ones((2, D))), plan)
    with pytest.raises(PrivacyError, match="use release"):
        alone.share(query, release, bare)
    assert repr(alone) == "Wall(step 0 of 1)"


def test_what_is_passed_over_is_spent() -> None:
    release = plain(D).releases[0]
    plan = Plan([release] * 3)
    wall: Wall[Any] = Wall(table(np.ones((2, D))), plan, party=Party(2))
    wall.forgo(release)
    wall.forgo(release)
    share, private = wall.share(lambda rows: {"a": Rows(rows)}, release, bare)
    assert private
    assert share["a"].dtype == np.int64
    for spend in (wall.forgo, lambda last: wall.share(lambda rows: {}, last, bare)):
        with pytest.raises(PrivacyError, match="3 are spent"):
            spend(release)


# --- what the server sees -----------------------------------------------------------------------------------


@pytest.mark.guarantees("masks")
def test_the_server_sees_uniform_words_of_each_party() -> None:
    """Shares of 40,000 numbers that are nearly constant: each of their 8 bytes is uniform, for every party.

    24 chi-square tests of 255 degrees of freedom at 1e-8 each; keys are fresh.
    """
    size, num_parties = 40_000, 3
    plan, party = plain(size, 1e-3), Party(num_parties, 0.6)
    release = plan.releases[0]
    for m, conceal in enumerate(concealed(num_parties)):
        wall: Wall[Any] = Wall(table(np.ones((5, D))), plan, noise=InsecureNoise(m), party=party)
        share, _ = wall.share(lambda rows: {"a": Rows(np.full((len(rows), size), 0.001))}, release, conceal)
        octets = share["a"].view(np.uint8).reshape(size, 8)
        for place in range(8):
            counts = np.bincount(octets[:, place], minlength=256)
            assert scipy.stats.chisquare(counts).pvalue > 1e-8


def test_a_share_under_other_masks_tells_nothing_of_the_first() -> None:
    """The same sums for two requests: their difference is uniform as well; 8 chi-square tests at 1e-8."""
    size, plan, party = 40_000, plain(40_000), Party(2, 0.8)
    identities = [Identity.generate(f"party-{m}") for m in range(2)]
    masks = Masks(identities[0], {identity.name: identity.public for identity in identities})
    shares = []
    for request in (bytes(32), bytes(31) + b"\1"):
        wall: Wall[Any] = Wall(Nobody(), plan, noise=InsecureNoise(0), party=party)
        conceal = partial(masks.conceal, request)
        shares.append(wall.share(lambda rows: {}, plan.releases[0], conceal)[0]["a"])
    octets = (shares[0] - shares[1]).view(np.uint8).reshape(size, 8)
    for place in range(8):
        assert scipy.stats.chisquare(np.bincount(octets[:, place], minlength=256)).pvalue > 1e-8


# --- grids --------------------------------------------------------------------------------------------------


@pytest.mark.guarantees("no wrap")
@pytest.mark.parametrize("n_units", [None, 1, 10**6])
@pytest.mark.parametrize("num_parties", [2, 64, 1000])
def test_the_integers_have_room_for_all_parties(num_parties: int, n_units: int | None) -> None:
    """The largest sum of all parties, of 2³⁰ records where no number is public, and 12 deviations stay below 2⁶³."""
    for noise in (0.0, 2.0, 1e6):
        party = Party(num_parties, 1.001 / math.sqrt(num_parties // 2 + 1))
        release = plain(noise=noise, bound=0.3).releases[0]
        step = Fraction(grids_of(release, n_units, party)["a"].step)
        units = num_parties * (2**26 if n_units is None else max(2**16, 4 * n_units))
        largest = (min(units, 2**30) if n_units is None else units) * Fraction(0.3) / step
        deviation = Fraction(release.noise_std("a")) * Fraction(party.noise_share) * math.isqrt(num_parties) / step
        assert largest + 12 * (deviation + 1) < 2**63


@pytest.mark.guarantees("no wrap")
@kills("parties", "room for one party's sums alone")
@edit("core/grids.py", "capacity = parties * (_CAPACITY if", "capacity = (_CAPACITY if")
def test_the_largest_sums_of_all_parties_do_not_wrap() -> None:
    """64 parties with 2¹⁶ records at the bound each, and a public number of that size: the very sum comes out."""
    num_parties, units = 64, 2**16
    plan, party = plain(noise=0.0), Party(num_parties)
    release = plan.releases[0]
    wall: Wall[Any] = Wall(table(np.ones((units, 1))), plan, n_units=units // 4, party=party)
    share, _ = wall.share(lambda rows: {"a": Rows(rows)}, release, bare)
    tell: dict[str, Any] = {"plan": plan, "step": 0, "run": "run", "private": True}
    released = gathered([share] * num_parties, release, party=party, n_units=units // 4, **tell)
    assert released.total["a"][0] == pytest.approx(num_parties * units, rel=1e-5)


def test_a_share_too_small_for_integers_is_refused() -> None:
    release = plain(noise=1e-3).releases[0]
    grids_of(release, None, Party(2, 0.7))
    with pytest.raises(ParameterError, match=r"noise_multiplier = 0\.001 shared by 1000 parties is too little"):
        grids_of(release, None, Party(1000, 0.03))
    grids_of(release, 1000, Party(1000, 0.03))  # with a public number of examples the grid is finer
    grids_of(release, None, Party(1000, 0.0))  # nobody adds a share
    for share in (0.5, 0.03):
        step = grids_of(plain(noise=1.0).releases[0], None, Party(1000, share))["a"].step
        assert share / step >= 2**20


def test_too_many_parties_for_so_many_units_are_refused() -> None:
    release = plain().releases[0]
    grids_of(release, 2**30, Party(2**10))
    with pytest.raises(ParameterError, match="n_units must be at most"):
        grids_of(release, 2**40, Party(2**10))


@pytest.mark.parametrize("num_parties", [0, -1, 2**20 + 1, 1.5, True, "2", None, math.nan])
def test_bad_numbers_of_parties(num_parties: Any) -> None:
    with pytest.raises(ParameterError, match="num_parties"):
        Party(num_parties)


@pytest.mark.parametrize("noise_share", [-0.1, 1.1, math.nan, math.inf, "1", None])
def test_bad_shares(noise_share: Any) -> None:
    with pytest.raises(ParameterError, match="noise_share"):
        Party(2, noise_share)


def test_sampled_batches_are_shared_like_any_other() -> None:
    """Each party draws its own units, at the plan's rate; the gathered release knows it."""
    release = Release({"a": Block((400,), 1.0)}, Mechanism(Poisson(0.25), 0.0))
    plan, party = Plan([release]), Party(2)
    query: Callable[[Any], Any] = lambda rows: {"a": Rows(rows)}  # noqa: E731
    drawn = []
    for m in range(2):
        wall: Wall[Any] = Wall(Table(np.eye(400)), plan, noise=InsecureNoise(m), party=party)
        drawn.append(wall.share(query, release, bare)[0])
    taken = [share["a"] > 0 for share in drawn]
    for one in taken:
        assert 55 <= one.sum() <= 145  # 100 ± 5.2 standard deviations
    assert (taken[0] != taken[1]).any()
    released = gathered(drawn, release, plan=plan, step=0, party=party, run="run", private=False)
    assert released.sampling_prob == 0.25
    estimate = Estimate.empty(release.blocks).update(released, 1.0)
    np.testing.assert_allclose(estimate.noisy("a"), 4.0 * (taken[0].astype(float) + taken[1]), rtol=1e-5)


# --- estimates ----------------------------------------------------------------------------------------------


def test_the_total_of_estimates_is_the_estimate_of_the_total() -> None:
    """Three parties over five steps with decreasing step sizes: sums, and noise of independent parts."""
    blocks = {"a": Block((6,), 1.0), "score": Block((4,), 1.0, average=False)}
    release = Release(blocks, Mechanism(FullBatch(), 1.3))
    plan, party = Plan([release] * 5), Party(1)
    rng = np.random.default_rng(55)
    walls: list[Wall[Any]] = [Wall(table(np.ones((3, D))), plan, noise=InsecureNoise(m), party=party) for m in range(3)]
    parts, pooled = [Estimate.empty(blocks)] * 3, {name: np.zeros(0) for name in blocks}
    for t in range(5):
        rho, totals = 1 / (t + 2), []
        for m, wall in enumerate(walls):
            rows = {name: rng.standard_normal((3, block.shape[0])) for name, block in blocks.items()}
            query = lambda batch, rows=rows: {name: Rows(values[: len(batch)]) for name, values in rows.items()}  # noqa: E731
            share, private = wall.share(query, release, bare)
            tell: dict[str, Any] = {"plan": plan, "step": t, "run": "run", "private": private}
            released = gathered([share], release, party=party, **tell)
            parts[m] = parts[m].update(released, rho)
            totals.append(released.total)
        fresh = {name: sum(total[name] for total in totals) for name in blocks}
        old = pooled if t else dict.fromkeys(blocks, 0.0)
        pooled = {name: rho * fresh[name] + (1 - rho) * old[name] for name in blocks}
    mass = 1 - math.prod(1 - 1 / (t + 2) for t in range(5))
    total = Estimate.total(parts)
    np.testing.assert_allclose(total.noisy("a"), pooled["a"] / mass, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(total.noisy("score"), fresh["score"], rtol=1e-12, atol=1e-12)
    for name in blocks:
        assert total.noise_std(name) == pytest.approx(math.sqrt(3) * parts[0].noise_std(name), rel=1e-12)
    assert total.names == set(blocks)


def test_a_total_has_the_blocks_that_every_part_has() -> None:
    blocks = {"a": Block((2,), 1.0), "b": Block((2,), 1.0)}
    mechanism = Mechanism(FullBatch(), 0.0)
    releases = [Release({name: blocks[name]}, mechanism) for name in blocks]
    plan, party = Plan(releases), Party(1)
    made = []
    for step, release in enumerate(releases):
        share: Sums = {name: np.ones(2, dtype=np.int64) for name in release.blocks}
        made.append(gathered([share], release, plan=plan, step=step, party=party, run="run", private=True))
    one = Estimate.empty(blocks).update(made[0], 1.0)
    both = one.update(made[1], 1.0)
    assert Estimate.total([both, one]).names == {"a"}
    assert Estimate.total([both, both]).names == {"a", "b"}
