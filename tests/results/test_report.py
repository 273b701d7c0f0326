"""The privacy statement: its plain-meaning numbers are the closed forms, and it says all that it promises to say."""

import itertools
import json
import math
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted import edit, kills
from scipy.stats import norm

from dpvb import accounting
from dpvb.accounting import Event, rounded_down, rounded_up
from dpvb.core.blocks import Block
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FixedSize, FullBatch, Poisson
from dpvb.errors import ModelFileError, ParameterError, PrivacyError
from dpvb.results import model_file
from dpvb.results.statement import BlockFacts, ChargeFacts, PrivacyStatement, ReleaseFacts, percent

BLOCKS = {"counts": Block((7702, 50), 15.0, "nonnegative"), "length": Block((), 2.5)}
PUBLIC = ["the vocabulary, 7702 terms", "number of topics 50", "clip 0.03"]


def plan_of(sampler, noise=4.0, relation="add_or_remove_one", steps=20, unit="document", clip="block"):
    return Plan([Release(BLOCKS, Mechanism(sampler, noise), clipping=clip)] * steps, relation, unit)


def statement_of(plan, **changes):
    return PrivacyStatement.from_plan(
        plan, **{"delta": 1e-5, "private": True, "run_id": "3f2a", "public": PUBLIC, **changes}
    )


def bare(epsilon, delta, curve=()):
    """A statement of nothing but numbers: its release has no noise, so that none of them comes from that."""
    release = ReleaseFacts(Event("full_batch", 1.0, 0.0), None, "block", (BlockFacts("x", (), 1.0, 1.0),))
    return PrivacyStatement(
        unit="row",
        neighboring_relation="add_or_remove_one",
        epsilon=epsilon,
        delta=delta,
        curve=tuple(curve),
        releases=(release,),
        method="pld",
        tool="exact gaussian",
        secret_noise=True,
        public=(),
        n_units=None,
        run_id="r",
        plan_digest="0",
    )


def flat(text):
    """A text without its line breaks."""
    return " ".join(str(text).replace("!!!", " ").split())


SAMPLERS = [FullBatch(), Poisson(0.05), FixedSize(20_000, 400_000)]
RELATIONS = ["add_or_remove_one", "replace_one"]


# Numbers


def hardest_pair(epsilon, delta):
    """Output probabilities (absent, present) of the mechanism that every (ε, δ) mechanism can be computed from."""
    liar = (1 - delta) / (1 + math.exp(epsilon))
    honest = (1 - delta) - liar
    return [(delta, 0.0), (honest, liar), (liar, honest), (0.0, delta)]


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 0.001, 0.1])
def test_plain_meaning_is_that_of_the_hardest_mechanism(epsilon, delta):
    statement = bare(epsilon, delta)
    outputs = hardest_pair(epsilon, delta)
    # The most powerful test, by enumeration of its vertices: it says "present" on a set of outputs.
    vertices = [(0.0, 0.0)]
    for size in range(1, 5):
        for chosen in itertools.combinations(outputs, size):
            vertices.append(tuple(np.sum(chosen, axis=0)))
    right = max(0.5 * (1.0 - absent) + 0.5 * present for absent, present in vertices)
    assert statement.attack_accuracy == pytest.approx(right, rel=1e-12)
    for alarm in [0.001, 0.01, 0.05, 0.3, 0.9]:
        best = max(
            p[1] if p[0] == q[0] else p[1] + (q[1] - p[1]) * (alarm - p[0]) / (q[0] - p[0])
            for p in vertices
            for q in vertices
            if p[0] <= alarm <= q[0]
        )
        assert statement.true_positive_rate(alarm) == pytest.approx(best, rel=1e-9)


def test_plain_meaning_by_hand():
    assert bare(math.log(3), 0.1).attack_accuracy == pytest.approx(3.1 / 4)
    assert bare(math.log(3), 1e-5).true_positive_rate(0.01) == pytest.approx(0.03 + 1e-5)
    assert bare(math.log(3), 0.1).true_positive_rate(0.6) == pytest.approx(1 - 0.3 / 3)
    text = flat(bare(math.log(3), 1e-5))
    assert "guesses right from the result with a probability of at most 75.1 %." in text  # 75.0003 %, rounded up
    assert "is at most 3.1 %." in text  # 3.001 %, rounded up


@pytest.mark.parametrize("mu", [0.03, 0.24, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.01])
def test_posterior_odds_rarely_exceed_the_bound(mu, delta):
    """P(odds > e^(ε+c)) ≤ δ/(1 - e^-c), 1.6 δ at c = 1, as docs/how-to/epsilon.md has it; Gaussians μ apart."""
    epsilon = accounting.epsilon(noise_multiplier=1 / mu, n_steps=1, sampling_prob=1.0, delta=delta)
    # The log odds of a result of the data with the unit are N(μ²/2, μ²), since the prior odds are 1.
    assert norm.sf((epsilon + 1.0 - mu**2 / 2) / mu) <= delta / (1.0 - math.exp(-1.0)) <= 1.6 * delta


def test_the_curve_sharpens_the_power_and_stays_above_the_exact_one():
    plan = Plan([Release({"x": Block((3,), 1.0)}, Mechanism(FullBatch(), 1.0))])
    statement = statement_of(plan)
    for alarm in [0.001, 0.01, 0.1]:
        exact = norm.cdf(norm.ppf(alarm) + 1.0)
        alone = bare(statement.epsilon, statement.delta).true_positive_rate(alarm)
        assert exact <= statement.true_positive_rate(alarm) <= alone
    assert statement.true_positive_rate(0.01) < bare(statement.epsilon, 1e-5).true_positive_rate(0.01)
    fine = bare(
        statement.epsilon,
        statement.delta,
        accounting.curve(plan.events(), neighboring_relation="add_or_remove_one", deltas=np.geomspace(1e-6, 0.3, 200)),
    )
    assert fine.true_positive_rate(0.01) == pytest.approx(norm.cdf(norm.ppf(0.01) + 1.0), rel=1e-3)


@pytest.mark.parametrize("epsilon", [710.0, 1e300, math.inf])
@pytest.mark.parametrize("alarm", [0.0, 0.01, 1.0])
def test_huge_epsilon_promises_nothing(epsilon, alarm):
    statement = bare(epsilon, 1e-5, [(1e-3, epsilon)])
    assert statement.attack_accuracy == 1.0
    assert statement.true_positive_rate(alarm) == 1.0


@pytest.mark.parametrize("alarm", [-0.1, 1.1, math.nan, "1"])
def test_false_positive_rate_is_a_probability(alarm):
    with pytest.raises(ParameterError, match="false_positive_rate"):
        bare(1.0, 1e-5).true_positive_rate(alarm)


@given(st.floats(1e-12, 1e12))
def test_a_spent_epsilon_is_printed_rounded_up_and_one_that_is_left_rounded_down(value):
    assert value * (1 - 1.0001e-3) <= float(rounded_down(value)) <= value * (1 + 1e-8)
    assert value <= float(rounded_up(value)) <= value * (1 + 1.0001e-3)
    assert len(Decimal(rounded_up(value)).as_tuple().digits) <= 4


@given(st.floats(0, 1))
def test_printed_percentages_are_rounded_up(p):
    shown = float(percent(p).removesuffix(" %"))
    assert 100 * p <= shown + 1e-12
    assert shown <= 100 * p + 0.1 + 1e-9


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@pytest.mark.parametrize("relation", RELATIONS)
def test_numbers_are_the_accountants(sampler, relation):
    plan = plan_of(sampler, relation=relation)
    statement = statement_of(plan, delta=1e-6)
    assert statement.epsilon == plan.epsilon(1e-6)
    assert statement.delta == 1e-6
    for delta, epsilon in statement.curve:
        assert epsilon == plan.epsilon(delta)
    assert [release.event for release in statement.releases] == plan.events()
    assert statement_of(plan, delta=1e-6, epsilon_method="renyi").epsilon == plan.epsilon(1e-6, "renyi")
    with pytest.raises(ParameterError, match="epsilon_method"):
        statement_of(plan, epsilon_method="linear")


# Texts


@pytest.mark.parametrize(
    ("clip", "relation", "sampler"),
    [
        pytest.param(
            clip,
            relation,
            sampler,
            id=f"{clip}-{relation}-{sampler.name}",
            marks=[pytest.mark.slow] * (clip == "joint" and sampler.name != "full_batch"),
        )
        for clip in ("block", "joint")
        for relation in RELATIONS
        for sampler in SAMPLERS
    ],
)
def test_the_text_states_every_fact(sampler, relation, clip):
    plan = plan_of(sampler, relation=relation, unit="person", clip=clip)
    statement = statement_of(plan, n_units=400_000, delta=1e-7)
    text = flat(statement)
    for fact in [
        f"epsilon = {rounded_up(statement.epsilon)}, delta = 1e-07",
        f"({relation})",
        "one person",
        f"with a probability of at most {percent(statement.attack_accuracy)}.",
        f"true positive rate of an attacker is at most {percent(statement.true_positive_rate(0.01))}.",
        "false positive rate of 1 %",
        "20 releases",
        "noise multiplier 4.",
        f"counts (7702 x 50): clipped to norm 15, noise std {plan.releases[0].noise_std('counts'):.6g}",
        f"length (scalar): clipped to norm 2.5, noise std {plan.releases[0].noise_std('length'):.6g}",
        "Upper bound",
        "400000 persons; the number is public",
        *PUBLIC,
        "the running time, memory and power",
        "public arguments that were chosen from the data",
        "their epsilons and deltas add to these, and no ledger was used",
        "facts about several persons together",
        f"3f2a, plan {plan.digest.hex()}",
    ]:
        assert fact in text
    for delta, epsilon in statement.curve:
        assert f"{rounded_up(epsilon)} at {delta:g}" in text
    drawn = {
        "full_batch": "every person (full batch)",
        "poisson": "a Poisson batch (every person drawn independently with probability 0.05)",
        "fixed_size": "a fresh batch of 20000 persons drawn without replacement (rate 0.05)",
    }
    assert drawn[sampler.name] in text
    assert ("clipped jointly" in text) == (clip == "joint")
    assert "!!!" not in str(statement)
    assert statement.private
    assert max(map(len, str(statement).splitlines())) <= 110


def test_the_number_of_units_is_private_under_add_or_remove_only():
    assert "The number of documents is private." in flat(statement_of(plan_of(FullBatch())))
    assert "documents is private" not in flat(statement_of(plan_of(FullBatch(), relation="replace_one")))


def test_infinite_epsilon_is_said_loudly():
    statement = statement_of(plan_of(FullBatch(), noise=0.0))
    assert statement.epsilon == math.inf
    assert not statement.private
    text = flat(statement)
    assert str(statement).splitlines()[2].startswith("!!! NO PRIVACY: epsilon is infinite")
    assert "may reveal everything about any document" in text
    assert "NO NOISE" in text
    assert "% sure" not in text


def test_one_release_without_noise_is_no_privacy():
    noisy, clear = (Release(BLOCKS, Mechanism(FullBatch(), noise)) for noise in [5.0, 0.0])
    assert not statement_of(Plan([noisy, clear, noisy])).private


def test_noise_of_a_test_source_is_said_loudly():
    statement = statement_of(plan_of(FullBatch()), private=False)
    assert statement.epsilon < math.inf
    assert not statement.private
    assert statement.to_dict()["private"] is False
    assert str(statement).splitlines()[2].startswith("!!! NOT PRIVATE: the noise of this run came from a test source")
    assert "Guarantee None. With secret noise" in flat(statement)


def test_a_delta_that_lets_one_unit_be_published_is_called_weak():
    plan = plan_of(FullBatch())
    assert "WEAK: delta = 1e-05 is not below 1 in 100000" in flat(statement_of(plan, n_units=100_000))
    assert "WEAK" not in str(statement_of(plan, n_units=99_999))


def test_equal_releases_are_counted_together_and_long_schedules_are_short():
    noises = [3.0 + t for t in range(20)]
    plan = Plan([Release(BLOCKS, Mechanism(FullBatch(), noise)) for noise in [*noises, *noises]])
    statement = statement_of(plan)
    assert [release.event.n_steps for release in statement.releases] == [2] * 20
    text = str(statement)
    assert "40 sums were released, noise multipliers from 3 to 22" in flat(text)
    assert "and 14 more kinds of release" in text
    assert len(statement.to_dict()["releases"]) == 20
    assert len(text.splitlines()) < 60


def test_the_accountants_tool_is_named():
    assert "the exact privacy profile of the Gaussian mechanism" in flat(statement_of(plan_of(FullBatch())))
    assert "composition of privacy loss distributions" in flat(statement_of(plan_of(Poisson(0.1))))
    assert "composition of Rényi divergences" in flat(statement_of(plan_of(Poisson(0.1)), epsilon_method="renyi"))


# Dictionaries


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda s: s.name)
@pytest.mark.parametrize("noise", [0.0, 0.7, 1e9])
@pytest.mark.parametrize("private", [True, False])
def test_round_trip_through_strict_json_and_a_model_file(tmp_path, sampler, noise, private):
    statement = statement_of(plan_of(sampler, noise), private=private, n_units=400_000)
    facts = json.loads(json.dumps(statement.to_dict(), allow_nan=False))
    assert facts == statement.to_dict()
    again = PrivacyStatement.from_dict(facts)
    assert again == statement
    assert str(again) == str(statement)
    again.verify()
    model_file.save(tmp_path / "m", kind="LDA", arrays={}, facts={"privacy": statement.to_dict()})
    assert PrivacyStatement.from_dict(model_file.load(tmp_path / "m").facts["privacy"]) == statement


def test_a_statement_that_claims_too_little_is_found_out():
    facts = statement_of(plan_of(Poisson(0.05))).to_dict()
    facts["epsilon"] *= 0.99
    with pytest.raises(PrivacyError, match="Do not trust"):
        PrivacyStatement.from_dict(facts).verify()


@kills("strangers", "a curve that nobody accounts for anew")
@edit("results/statement.py", "for delta, said in self.points:", "for delta, said in self.points[:1]:")
@pytest.mark.parametrize("place", [0, -1])
def test_a_curve_that_claims_too_little_is_found_out(place):
    """By one point of a curve alone an attack would seem hopeless."""
    facts = statement_of(plan_of(Poisson(0.05))).to_dict()
    facts["curve"][place][1] = 1e-9
    forged = PrivacyStatement.from_dict(facts)
    assert forged.true_positive_rate(0.01) < 0.012
    with pytest.raises(PrivacyError, match=f"at delta = {facts['curve'][place][0]:g}, but its releases cost"):
        forged.verify()


WRONG = [None, "x", -1.0, math.nan, [], {}, [[]], [1], "\x1b[2J", {"a": 1}, 10**400, True]


def accepted(facts):
    """Whether the facts make a statement; any error but the one typed error fails the test."""
    try:
        PrivacyStatement.from_dict(facts)
    except ModelFileError:
        return False
    return True


def test_damaged_statements_give_one_error():
    charge = ChargeFacts("8f3c", 12, "aa", "notes")
    facts = replace(statement_of(plan_of(FixedSize(5, 10)), n_units=10), charge=charge).to_dict()
    release = facts["releases"][0]
    block, event = release["blocks"][0], release["event"]
    damaged = {
        **{(name, repr(wrong)): facts | {name: wrong} for name in facts for wrong in WRONG},
        **{(n, repr(wrong)): facts | {"releases": [release | {n: wrong}]} for n in release for wrong in WRONG},
        **{
            (f"block {n}", repr(wrong)): facts | {"releases": [release | {"blocks": [block | {n: wrong}]}]}
            for n in block
            for wrong in WRONG
        },
        **{
            (f"event {n}", repr(wrong)): facts | {"releases": [release | {"event": event | {n: wrong}}]}
            for n in event
            for wrong in WRONG
        },
        **{
            (f"charge {n}", repr(wrong)): facts | {"charge": facts["charge"] | {n: wrong}}
            for n in facts["charge"]
            for wrong in WRONG
        },
    }
    # What these words and values say is another statement, but it is a statement.
    sound = {
        *itertools.product(["unit", "run_id", "plan_digest", "against", "block name"], ["'x'"]),
        *itertools.product(["charge ledger", "charge hash", "charge dataset"], ["'x'"]),
        *itertools.product(["curve", "public", "remarks", "blocks", "block shape"], ["[]", "{}"]),
        *itertools.product(["private"], map(repr, WRONG)),
        *itertools.product(["n_units", "batch_size", "charge", "selection", "counts", "origin"], ["None"]),
        *itertools.product(["public", "remarks"], ["'x'", "{'a': 1}"]),
        *[("block shape", "[1]"), ("secret_noise", "True")],
        *[("epsilon", "True"), ("dry_run", "True")],
    }
    assert {key for key, changed in damaged.items() if accepted(changed)} == sound
    # What older files do not have.
    later = {"charge", "selection", "against", "counts", "dry_run", "remarks", "published", "origin"}
    for name in later:
        assert accepted({key: fact for key, fact in facts.items() if key != name})
    for name in facts.keys() - later - {"private"}:
        assert not accepted({key: value for key, value in facts.items() if key != name})
    for hopeless in [None, [], "x", 5]:
        assert not accepted(hopeless)


def test_a_statement_says_who_keeps_count():
    alone = statement_of(plan_of(FullBatch()))
    counted = replace(alone, charge=ChargeFacts("8f3c", 12, "aa55", "notes"))
    assert "no ledger was used" in " ".join(str(alone).split())
    assert "no ledger was used" not in " ".join(str(counted).split())
    assert "data set 'notes': entry 12 of ledger 8f3c, hash aa55" in str(counted)
    assert PrivacyStatement.from_dict(counted.to_dict()) == counted


def test_control_characters_never_reach_a_terminal():
    facts = statement_of(plan_of(FullBatch())).to_dict()
    for changed in [{"public": ["\x1b[2J"]}, {"unit": "row\n"}, {"run_id": "\x07"}, {"plan_digest": "\r"}]:
        with pytest.raises(ModelFileError):
            PrivacyStatement.from_dict(facts | changed)


def test_a_statement_cannot_be_changed():
    with pytest.raises(AttributeError):
        statement_of(plan_of(FullBatch())).epsilon = 0.0
