"""Names that nobody has listed: what one unit can do to them, and what leaves.

Statistical tests run on fixed seeds; their false-alarm rate, had the seed been free, is at most 1e-6 each.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
from each import each
from planted import edit, kills

from dpvb.core import names
from dpvb.core.blocks import Block, Grid
from dpvb.core.grids import Party
from dpvb.core.journal import Begun, Unrecorded
from dpvb.core.names import Found, Threshold, release_of, totals
from dpvb.core.noise import InsecureNoise, SecureNoise, Words
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch, Poisson
from dpvb.core.wall import Wall
from dpvb.data.documents.bag_of_words import Texts
from dpvb.errors import CheckpointError, ParameterError, PrivacyError, PrivateComputationError

FALSE_ALARM = 1e-6
FINE = Grid(2.0**-30, 1.0)


def words(seed: int = 0) -> Words:
    return InsecureNoise(seed).words(step=0, purpose="names")


def added(texts: list[str], *, most: int = 100, group: Any = None, grid: Grid = FINE) -> dict[str, int]:
    """Total weight of each name, in steps of the grid."""
    source = Texts(texts, group=group)
    found = totals(source, len(source.names), most, grid, words())
    return dict(zip(source.names, found.tolist(), strict=True))


def alone(t: int, place: int = 0) -> str:
    """A text of t words that no other place has."""
    letters = "abcdefghij"
    spelled = "".join(letters[int(digit)] for digit in f"{place:06d}")
    return " ".join(f"{spelled}x{letters[n % 10]}{letters[n // 10 % 10]}{letters[n // 100]}" for n in range(t))


# --- what a unit adds ---------------------------------------------------------------------------------------


@pytest.mark.guarantees("private words")
@kills("norms", "all names of a unit count, however many there are")
@edit("core/names.py", "counted = order[np.arange(len(unit)) - first_n[unit] < most]", "counted = order")
@pytest.mark.parametrize("t", [1, 2, 3, 7, 99, 100, 101, 300])
def test_the_names_of_a_unit_have_norm_one_at_most_and_a_hundred_at_most_count(t: int) -> None:
    weights = [weight for weight in added([alone(t)]).values() if weight]
    assert len(weights) == min(t, 100)
    assert len(set(weights)) == 1
    one = 2**30
    assert one**2 * (1 - 1e-6) < sum(weight**2 for weight in weights) <= one**2


@kills("rows", "a person's name counts once for each row that has it")
@edit(
    "core/names.py",
    "np.divmod(np.unique(unit * num_names + rows.indices), num_names)",
    "np.divmod(np.sort(unit * num_names + rows.indices), num_names)",
)
def test_a_person_gives_a_name_once() -> None:
    many = added(["cat dog", "cat", "cat cat", "dog"], group=["a"] * 4)
    assert many == added(["cat dog"])
    assert added(["cat", "cat"], group=["a", "b"])["cat"] == 2 * 2**30
    assert added(["cat", "cat"], group=["a", None]) == {"cat": 2**30}


@pytest.mark.guarantees("word totals")
@pytest.mark.parametrize("grouped", [False, True])
def test_one_unit_more_changes_the_totals_by_its_own_weights_and_those_alone(grouped: bool) -> None:
    """Record and replay: the draws of all others stay, as the new unit is the last one."""
    rng = np.random.default_rng(5)
    pool = np.array(alone(400).split())
    for t in (1, 50, 100, 250):
        others = [" ".join(rng.choice(pool[:300], size, replace=False)) for size in (3, 120, 299, 10)]
        unit = [" ".join(part) for part in np.array_split(rng.choice(pool, t, replace=False), 1 + 2 * grouped)]
        group = [*"abcd", *["e"] * len(unit)] if grouped else None
        before = added(others, group=None if group is None else group[:4])
        after = added(others + unit, group=group)
        change = {name: weight - before.get(name, 0) for name, weight in after.items()}
        given = [weight for weight in change.values() if weight]
        assert len(given) == min(t, 100)
        assert set(given) == {math.isqrt(2**60 // min(t, 100))}
        assert sum(weight**2 for weight in given) <= 2**60


@pytest.mark.guarantees("private words")
@kills("records", "the names that units give are drawn for all of them at once")
@edit(
    "core/names.py",
    "order = np.lexsort((words(len(unit), used), unit))",
    "order = np.lexsort((words(num_names)[name], unit))",
)
def test_units_draw_their_names_apart() -> None:
    """Two units with the same 300 names: the same hundred by chance with probability 1e-82."""
    found = added([alone(300)] * 2)
    assert sorted(set(found.values())) == [0, math.isqrt(2**60 // 100), 2 * math.isqrt(2**60 // 100)]


def test_names_are_drawn_uniformly() -> None:
    """3,000 units, 5 of 12 names each: every name's count is binomial."""
    source = Texts([alone(12)] * 3_000)
    count_v = totals(source, 12, 5, FINE, words(1)) / math.isqrt(2**60 // 5)
    assert count_v.sum() == pytest.approx(15_000)
    deviation = np.abs(count_v - 1_250) / math.sqrt(3_000 * 5 / 12 * 7 / 12)
    assert deviation.max() < scipy.stats.norm.isf(FALSE_ALARM / 12 / 2)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [alone(3 + n % 5, n % 7) for n in range(50)]
    whole = added(texts)
    monkeypatch.setattr("dpvb.kernels.spans.MAX_ROWS", 4)
    assert added(texts) == whole


# --- what leaves --------------------------------------------------------------------------------------------


def passes(mechanism: Threshold, grid: Grid, t: int, s: int) -> float:
    """Chance that any of s names leaves which a unit of t names alone has, by the law of the rounded noise."""
    weight = math.isqrt(int(1 / grid.step) ** 2 // t)
    if mechanism.noise_multiplier == 0:
        return float(weight > mechanism.least(grid))
    # weight + round(z) exceeds the whole number `least` where z is at least least + 1/2 - weight.
    reach = (mechanism.least(grid) + 0.5 - weight) * grid.step / mechanism.noise_multiplier
    return float(-np.expm1(s * scipy.stats.norm.logcdf(reach)))


@pytest.mark.guarantees("private words")
@kills("factor", "a threshold for the one name of a unit that gives one, and not for its hundred")
@edit("core/names.py", "t = np.arange(1.0, self.most_names + 1)", "t = np.ones(1)")
@kills("low bits", "a threshold for names that forgets that the noise is rounded")
@edit("core/names.py", "return math.ceil(self.threshold", "return math.floor(self.threshold")
@each("step", [2.0**-36, 2.0**-3, 2.0**-1, 1.0])
@each("delta", [1e-9, 5e-7, 0.01, 0.3])
@each("noise", [0.0, 0.3, 0.9, 4.0, 30.0])
def test_no_pattern_of_a_units_own_names_passes_more_often_than_it_may(noise: float, delta: float, step: float) -> None:
    """Every number of names that a unit gives, and of those that it alone has, on fine grids and on coarse ones."""
    mechanism, grid = Threshold(FullBatch(), noise, 100, delta), Grid(step, 1.0)
    worst = max(passes(mechanism, grid, t, s) for t in range(1, 101) for s in {1, t // 2 or 1, t})
    assert worst <= delta * (1 + 1e-9)
    if step < 1e-6 and noise > 0:  # And the threshold is no higher than it has to be.
        assert worst > 0.999 * delta


@pytest.mark.guarantees("private words")
@pytest.mark.parametrize(("noise", "t"), [(0.3, 1), (5.0, 100), (1.0, 3)])
def test_names_that_a_unit_alone_has_leave_as_seldom_as_is_charged(noise: float, t: int) -> None:
    """100,000 units in one data set, each with names of its own: the number of those of whom one leaves is binomial."""
    units, delta = 100_000 // t, 0.01
    release = release_of(noise, added_delta=delta, most_names=t)
    found = Wall(Texts([alone(t, n) for n in range(units)]), Plan([release])).names(release)
    shown = len({name[:6] for name in found.names})
    assert shown <= scipy.stats.binom.isf(FALSE_ALARM / 2, units, delta)
    if t == 100 or noise == 0.3:  # The pattern for which the threshold is made.
        assert shown >= scipy.stats.binom.ppf(FALSE_ALARM / 2, units, delta)


@pytest.mark.guarantees("word totals")
@kills("public facts", "names leave in the order of the data")
@edit(
    "core/names.py", "sorted(np.flatnonzero(total).tolist(), key=names.__getitem__)", "np.flatnonzero(total).tolist()"
)
def test_names_leave_in_the_order_of_the_alphabet_whatever_the_order_of_the_data() -> None:
    texts = ["pear apple", "apple fig", "fig pear date"] * 40
    release = release_of(1.0, added_delta=1e-6)
    found = [
        Wall(Texts(order), Plan([release]), noise=InsecureNoise(3)).names(release)
        for order in (texts, texts[::-1], texts[40:] + texts[:40])
    ]
    assert found[0].names == ("apple", "date", "fig", "pear")
    for other in found[1:]:
        assert other.names == found[0].names
        np.testing.assert_array_equal(other.total, found[0].total)


def test_the_totals_are_those_of_the_data_plus_noise() -> None:
    release = release_of(2.0, added_delta=1e-6)
    found = Wall(Texts(["cat dog"] * 900), Plan([release])).names(release)
    assert found.names == ("cat", "dog")
    limit = 2.0 * scipy.stats.norm.isf(FALSE_ALARM / 4)
    assert (np.abs(found.total - 900 / math.sqrt(2)) < limit).all()
    silent = release_of(0.0, added_delta=1e-6)
    found = Wall(Texts(["cat dog"] * 2 + ["dog"]), Plan([silent])).names(silent)
    assert found.names == ("cat", "dog")  # Without noise a name leaves that weighs more than one unit's.
    np.testing.assert_allclose(found.total, [math.sqrt(2), math.sqrt(2) + 1], rtol=1e-6)


def test_nothing_leaves_of_no_data() -> None:
    release = release_of(1.0, added_delta=1e-6)
    found = Wall(Texts([]), Plan([release])).names(release)
    assert found.names == ()
    assert found.total.shape == (0,)


# --- the door -----------------------------------------------------------------------------------------------


def test_names_leave_by_their_own_door_alone() -> None:
    named, plain = release_of(1.0, added_delta=1e-6), Release({"a": Block((1,), 1.0)}, Mechanism(FullBatch(), 1.0))
    wall: Wall[Any] = Wall(Texts(["cat"]), Plan([named, plain, named]))
    with pytest.raises(PrivacyError, match="are released only by a release with a threshold"):
        wall.names(plain)
    with pytest.raises(PrivacyError, match="released only by `names`"):
        wall.release(lambda rows: {}, named)  # It takes its place in the plan, and reads nothing.
    with pytest.raises(PrivacyError, match="not its next"):
        wall.names(named)
    party: Wall[Any] = Wall(Texts(["cat"]), Plan([named]), party=Party(2))
    with pytest.raises(PrivacyError, match="agree on names beforehand"):
        party.names(named)


@dataclass(frozen=True)
class Faulty:
    """A source whose fault speaks of somebody's words."""

    names: tuple[str, ...] = ("secret",)

    def chunks(self) -> Any:
        raise RuntimeError("secret")


def test_no_fault_says_a_word(capfd: pytest.CaptureFixture[str]) -> None:
    release = release_of(1.0, added_delta=1e-6)
    with pytest.raises(PrivateComputationError) as found:
        Wall(Faulty(), Plan([release])).names(release)  # type: ignore[arg-type]
    assert "secret" not in str(found.value)
    assert found.value.__cause__ is None
    assert found.value.__context__ is None
    assert capfd.readouterr() == ("", "")


def test_what_was_found_before_an_interruption_is_given_out_again() -> None:
    release = release_of(1.0, added_delta=1e-6)
    plan = Plan([release])
    made = names.found(Texts(["cat"] * 90), release, FINE, SecureNoise(), step=0, plan=plan)
    again = Found.of(made, FINE)
    assert again.names == ("cat",)
    for damage in (
        {},
        {**made, "names": made["names"][:-1]},
        {**made, "words": made["words"][:0]},
        {**made, "words": made["words"].astype(float)},
        {**made, "names": np.frombuffer(b"[1]", np.uint8).astype(np.int64)},
    ):
        with pytest.raises(CheckpointError, match="names of another form"):
            Found.of(damage, FINE)


def test_a_journal_that_has_begun_gives_out_its_first_release() -> None:
    total = {"a": np.array([secrets.randbits(20) + 0.5])}
    release = Release({"a": Block((1,), 1.0)}, Mechanism(FullBatch(), 1.0))
    wall: Wall[Any] = Wall(Faulty(), Plan([release, release]), journal=Begun(Unrecorded(), total))  # type: ignore[arg-type]
    assert wall.release(lambda rows: {}, release).total == total
    with pytest.raises(PrivateComputationError):
        wall.release(lambda rows: {}, release)


@pytest.mark.parametrize("given", [{"most_names": 0}, {"added_delta": 0.0}, {"added_delta": 1.0}])
def test_a_threshold_out_of_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(given))):
        Threshold(FullBatch(), 1.0, **given)


def laid_otherwise() -> list[Plan]:
    """Plans with releases of names of which the proof says nothing."""
    usual = release_of(2.0, added_delta=1e-3)
    block, rule = usual.blocks[names.WORDS], Threshold(FullBatch(), 2.0, added_delta=1e-3)
    other = Block((1,), 1.0)
    return [
        Plan([usual], neighboring_relation="replace_one"),
        Plan([replace(usual, mechanism=Threshold(Poisson(0.01), 2.0, added_delta=1e-3))]),
        Plan([Release({names.WORDS: block, "other": other}, rule)]),
        Plan([Release({names.WORDS: replace(block, bound=0.1)}, rule)]),
        Plan([Release({names.WORDS: block}, rule, weights={names.WORDS: 0.5})]),
        Plan([Release({"other": other}, rule)]),
    ]


@kills("sampler", "names of all units leave by a release that is charged as one of a batch")
@edit("core/names.py", 'if release != covered or plan.neighboring_relation != "add_or_remove_one":', "if False:")
@pytest.mark.parametrize("place", range(6))
def test_names_leave_only_as_the_proof_has_it(place: int) -> None:
    """A sampled batch would be charged less than all units, and less noise than the threshold's would let more pass."""
    plan = laid_otherwise()[place]
    wall = Wall(Texts(["waa"] * 20), plan)
    for _ in range(2):  # Nothing is charged either: the plan's first release is still its next one.
        with pytest.raises(PrivacyError, match="only these have a proof"):
            wall.names(plan.releases[0])
    assert repr(wall) == "Wall(step 0 of 1)"
