"""A client of a federated run: what it answers, what it refuses, what it pays for, and what it does after a crash."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import killed_client
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_client import MARKS, killed, script
from planted import edit, kills
from scipy.stats import chi2
from small_models import NAMES, TOYS_FIRST, D, Location, table
from wire import decode, encode, offered

from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import ORDERS, add, cost_units
from dpvb.core.blocks import Block, Contributions
from dpvb.core.clipped_sums import Work
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Rows
from dpvb.core.grids import grids_of
from dpvb.core.model import constant, e_step_q, updated
from dpvb.core.noise import InsecureNoise
from dpvb.core.plan import Plan, phased
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import gathered
from dpvb.data import BagOfWords
from dpvb.errors import CheckpointError, FederationError, NotRecordedWarning, ParameterError, PrivacyError
from dpvb.estimators.base import Task
from dpvb.federated.agreement import Federation
from dpvb.federated.client import Client, _fits, _form
from dpvb.federated.keys import Identity
from dpvb.federated.masks import Masks
from dpvb.federated.memory import Memory
from dpvb.federated.messages import Accepted, Farewell, Offer, Refusal, Request, Share, digest
from dpvb.federated.shared import Shared
from dpvb.federated.trust import Trust
from dpvb.guards.version import __version__
from dpvb.ledger import Ledger
from dpvb.models.topics.lda import LDAModel
from dpvb.results.declared import declared
from dpvb.runs.checkpoint import Checkpoint, Seal

STEPS = 4
Q = np.full(D, 0.25)
NO_WORDS: Any = None  # A full batch draws none.


def task_of(rows: Any, model: Any = None, steps: int = STEPS, source: Callable[..., Any] = table) -> Task:
    """A fit of a small model, whose every release costs the same."""
    model = Location() if model is None else model
    plan = phased(model.blocks, FullBatch(), [1.0] * steps, unit="row")
    return Task(model, source(rows), plan, constant(1.0), [], {}, lambda plan: plan)


def rows_of(m: int) -> np.ndarray:
    return np.random.default_rng(m).uniform(-0.5, 0.5, (20 + m, D))


@dataclass
class Party:
    """Everything around the clients of one run."""

    federation: Federation
    identities: Mapping[str, Identity]
    tasks: Mapping[str, Task]

    def client(self, name: str = "a", **options: Any) -> Client:
        federation = options.pop("federation", self.federation)
        return Client(name, self.tasks[name], federation, identity=self.identities.get(name), **options)

    def offer(self, run: str = "run", **changes: Any) -> Offer:
        federation, task = self.federation, self.tasks["a"]
        plan = federation.trust.planned(task.relative, epsilon=federation.epsilon, delta=federation.delta)
        found = offered(federation, task.model, plan, run, n_units=federation.n_units)
        return replace(found, **changes)

    @property
    def plan(self) -> Plan:
        federation = self.federation
        return federation.trust.planned(self.tasks["a"].relative, epsilon=federation.epsilon, delta=federation.delta)


def party(
    trust: str = "none",
    *,
    epsilon: float = 1.0,
    clients: str = "abc",
    max_missing: int = 0,
    max_colluding: int | None = None,
    n_units: int | None = None,
    tasks: Mapping[str, Task] | None = None,
) -> Party:
    identities = {name: Identity.generate(name) for name in clients} if trust == "secure_aggregation" else {}
    federation = Federation(
        kind="Location",
        columns="four columns",
        trust=Trust(trust, len(clients), max_missing, max_colluding),
        epsilon=epsilon,
        delta=1e-5,
        participants={name: identities[name].public if identities else b"" for name in clients},
        n_units=n_units,
    )
    found = {name: task_of(rows_of(m)) for m, name in enumerate(clients)} if tasks is None else tasks
    return Party(federation, identities, found)


#: What clients drew, by the digest of an offer and their names.
NONCES: dict[str, dict[str, bytes]] = {}


def tell(client: Client, message: Any) -> Any:
    answer = decode(client.answer(encode(message)))
    if isinstance(answer, Accepted):
        NONCES.setdefault(answer.offer, {})[answer.client] = answer.nonce
    return answer


def begun(client: Client, made: Party, **changes: Any) -> str:
    """Digest of an offer that the client has accepted."""
    offer = made.offer(**changes)
    answer = tell(client, offer)
    assert isinstance(answer, Accepted), answer
    assert answer.offer == digest(encode(offer))
    return answer.offer


def asked(offer: str, step: int, attempt: int = 0, names: str = "abc", q: Any = Q) -> Request:
    drawn = {name: nonce for name, nonce in NONCES.get(offer, {}).items() if name in names}
    return Request(offer, step, attempt, tuple(names), q, drawn)


def reason(answer: Any) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.reason


def share(answer: Any) -> Mapping[str, np.ndarray]:
    assert isinstance(answer, Share), answer
    return answer.arrays


def spent(ledger: Path, dataset: str = "a") -> tuple[int, ...]:
    """Totals of a data set, in the ledger's whole units; none if nothing was charged."""
    with Ledger(ledger) as found:
        found.verify()
        charges = [entry for entry in found.entries() if entry.dataset == dataset and entry.kind in ("charge", "sole")]
    return tuple(decoded(charges[-1].totals)) if charges else ()


def decoded(totals: str) -> list[int]:
    return [int(part) for part in totals.strip("[]").split(",")][: len(ORDERS)]


def num_charges(ledger: Path, dataset: str = "a") -> int:
    with Ledger(ledger) as found:
        return sum(entry.dataset == dataset and entry.kind in ("charge", "sole") for entry in found.entries())


def costs(plan: Plan, again: Sequence[int] = ()) -> tuple[int, ...]:
    """Counted by hand: the whole plan, and these releases once more, each in whole units."""
    total = cost_units(Composition(plan.events(), plan.neighboring_relation))
    for step in again:
        total = add(total, cost_units(Composition([plan.releases[step].event()], plan.neighboring_relation)))
    return total


# --- sums ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", ["none", "secure_aggregation", "trusted_server"])
@pytest.mark.parametrize("case", TOYS_FIRST, ids=NAMES)
def test_without_noise_the_shares_add_up_to_the_pooled_integers(case: Any, trust: str) -> None:
    """Masks cancel exactly, and parts of the rows add up to all rows."""
    rng = np.random.default_rng(1)
    parts = [case.records(rng, 5 + m) for m in range(3)]
    tasks = {name: task_of(part, case.model, 2, case.source) for name, part in zip("abc", parts, strict=True)}
    made = party(trust, epsilon=math.inf, tasks=tasks)
    clients = {name: made.client(name) for name in "abc"}
    offers = {begun(client, made) for client in clients.values()}
    (offer,) = offers
    q, s, plan = case.model.init(rng), Estimate.empty(case.model.blocks), made.plan
    for step, release in enumerate(plan):
        part = e_step_q(case.model, q, release.asked)
        answers = {name: share(tell(client, asked(offer, step, q=part))) for name, client in clients.items()}
        grids = grids_of(release, None, made.federation.trust.party)
        work = Work(partial(case.model.e_step, q, blocks=release.asked), release, grids, NO_WORDS)
        pooled = work.sums(case.source(np.vstack(parts)).chunks(), work.draw(None, lambda: 0))
        for name in release.blocks:
            total = np.zeros_like(pooled[name])
            for answer in answers.values():
                total += answer[name]
            np.testing.assert_array_equal(total, pooled[name])
            own = work.sums(tasks["a"].source.chunks(), work.draw(None, lambda: 0))[name]
            assert (answers["a"][name] == own).all() == (trust != "secure_aggregation")
        noise = InsecureNoise(0) if trust == "trusted_server" else None
        given = [answers[name] for name in "abc"]
        whole = made.federation.trust.party
        if trust == "none":
            estimates = [
                s.update(gathered([one], release, plan=plan, step=step, party=whole, run="", private=True), 1.0)
                for one in given
            ]
            s = Estimate.total(estimates)
        else:
            released = gathered(given, release, plan=plan, step=step, party=whole, run="", private=True, noise=noise)
            s = s.update(released, 1.0)
        q = updated(case.model, s, q)


@dataclass(frozen=True)
class Silent:
    """Contributes nothing: what a client gives is its noise."""

    @property
    def blocks(self) -> Mapping[str, Block]:
        return {"a": Block((2000,), 1.0)}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        return np.zeros(1)

    def e_step(self, q: np.ndarray, batch: np.ndarray, blocks: Mapping[str, Block]) -> Contributions:
        return {"a": Rows(np.zeros((len(batch), 2000)))}

    def m_step(self, s: Estimate, q: np.ndarray) -> np.ndarray:
        return q


@pytest.mark.parametrize(
    ("trust", "away"),
    [
        ("none", {}),
        ("secure_aggregation", {}),
        ("secure_aggregation", {"max_missing": 1}),
        ("secure_aggregation", {"max_colluding": 0}),
        ("secure_aggregation", {"max_colluding": 2}),
        ("secure_aggregation", {"max_missing": 1, "max_colluding": 0}),
    ],
)
def test_the_noise_of_the_sum_is_what_it_says(trust: str, away: dict[str, int]) -> None:
    """Σ z²/std² of 4,000 numbers: a false alarm has probability below 1e-7; every draw is fresh."""
    made = party(trust, **away, tasks={name: task_of(rows_of(1), Silent(), 2) for name in "abc"})
    clients = {name: made.client(name) for name in "abc"}
    (offer,) = {begun(client, made) for client in clients.values()}
    plan, square = made.plan, 0.0
    lost = 0 if trust == "none" else away.get("max_missing", 0) + away.get("max_colluding", 1)
    for step, release in enumerate(plan):
        given = [share(tell(client, asked(offer, step, q=np.zeros(1)))) for client in clients.values()]
        whole = made.federation.trust.party
        released = gathered(given, release, plan=plan, step=step, party=whole, run="", private=True)
        std = released.noise_std["a"]
        assert std == pytest.approx(release.noise_std("a") * math.sqrt(3) * whole.noise_share)
        assert std >= release.noise_std("a") * math.sqrt(3 if trust == "none" else 3 / (3 - lost))
        square += float(np.sum((released.total["a"] / std) ** 2))
    low, high = np.asarray(chi2.ppf([5e-8, 1 - 5e-8], 2 * 2000))
    assert low < square < high


def test_fewer_clients_than_planned_still_have_the_claimed_noise() -> None:
    """One of three is lost and may be: what the other two add is the plan's noise; false alarm below 1e-7."""
    tasks = {name: task_of(rows_of(1), Silent(), 2) for name in "abc"}
    made = party("secure_aggregation", max_missing=1, max_colluding=0, tasks=tasks)
    clients = {name: made.client(name) for name in "ab"}
    (offer,) = {begun(client, made) for client in clients.values()}
    plan, square = made.plan, 0.0
    for step, release in enumerate(plan):
        given = [share(tell(client, asked(offer, step, names="ab", q=np.zeros(1)))) for client in clients.values()]
        whole = made.federation.trust.party
        released = gathered(given, release, plan=plan, step=step, party=whole, run="", private=True)
        square += float(np.sum((released.total["a"] / release.noise_std("a")) ** 2))
    low, high = np.array([1.0, 1.003]) * chi2.ppf([5e-8, 1 - 5e-8], 2 * 2000)  # A thousandth more noise than planned.
    assert low < square < high
    assert chi2.ppf(1 - 5e-8, 4000) / 1.5 < low  # With a third of the noise missing it would be seen.


@pytest.mark.guarantees("max_colluding")
@kills("parties", "requests with any number of participants")
@edit("federated/client.py", "if trust.secure and len(request.participants) < trust.least:", "if False:")
@kills("parties", "a server that leaves out as many as may be missing or collude")
@edit(
    "federated/client.py",
    "len(request.participants) < trust.least:",
    "len(request.participants) < trust.least - (trust.max_colluding or 0):",
)
@pytest.mark.parametrize("num_clients", [3, 4, 5, pytest.param(6, marks=pytest.mark.slow)])
def test_whomever_a_server_leaves_out_enough_noise_is_asked_for(num_clients: int) -> None:
    """Every F and C, and every set of participants: a client answers those alone that leave out F at most."""
    names = "abcdef"[:num_clients]
    asked_for = [
        others for size in range(num_clients) for others in itertools.combinations(names[1:], size)
    ]  # with "a", who answers
    tasks = dict.fromkeys(names, task_of(rows_of(1), steps=len(asked_for)))
    for max_missing, max_colluding in itertools.product(range(num_clients - 1), range(num_clients)):
        if max_missing + max_colluding > num_clients - 1:
            continue
        made = party(
            "secure_aggregation", clients=names, max_missing=max_missing, max_colluding=max_colluding, tasks=tasks
        )
        client = made.client()
        offer = begun(client, made)
        for step, others in enumerate(asked_for):
            answer = tell(client, asked(offer, step, names="".join(("a", *others))))
            if 1 + len(others) >= num_clients - max_missing:
                share(answer)
            else:
                assert f"at least {num_clients - max_missing} must take part" in reason(answer)


@pytest.mark.guarantees("max_colluding")
@kills("parties", "no client taken to collude where nothing is said")
@edit(
    "federated/trust.py",
    'return int(trust == "secure_aggregation") if max_colluding is None else max_colluding',
    "return max_colluding or 0",
)
@pytest.mark.parametrize(("every", "present"), [("ab", "ab"), ("abc", "ab"), ("abc", "abc"), ("abcd", "abc")])
def test_a_server_that_leaves_one_out_and_works_with_another_finds_the_promised_noise(every: str, present: str) -> None:
    """The last one present adds no noise, and who is not is not asked: the others' noise is the plan's, by default.

    A false alarm has probability below 1e-7.
    """
    tasks = {name: task_of(rows_of(1), Silent(), 2) for name in every}
    made = party("secure_aggregation", clients=every, max_missing=len(every) - len(present), tasks=tasks)
    clients = {name: made.client(name) for name in present}
    (offer,) = {begun(client, made) for client in clients.values()}
    publics = {name: made.federation.participants[name] for name in present}
    masks, square = Masks(made.identities[present[-1]], publics), 0.0
    for step, release in enumerate(made.plan):
        request = encode(asked(offer, step, names=present, q=np.zeros(1)))
        given = [share(decode(clients[name].answer(request)))["a"] for name in present[:-1]]
        zero = {name: np.zeros(block.packed_shape, dtype=np.int64) for name, block in release.blocks.items()}
        bare = masks.conceal(bytes.fromhex(digest(request)), zero)["a"]
        seen = grids_of(release, None, made.federation.trust.party)["a"].units(sum(given) + bare)
        square += float(np.sum((seen / release.noise_std("a")) ** 2))
    low, high = np.array([1.0, 1.003]) * chi2.ppf([5e-8, 1 - 5e-8], 2 * 2000)  # A thousandth more noise than planned.
    assert low < square < high
    assert chi2.ppf(1 - 5e-8, 4000) / 1.5 < low  # With a third of the noise missing it would be seen.


# --- offers -------------------------------------------------------------------------------------------------------


def test_an_offer_is_accepted_once_and_charged_once(ledger: Path) -> None:
    made = party()
    with made.client(ledger=ledger, dataset="a") as client:
        with pytest.raises(PrivacyError, match="No offer was accepted"):
            _ = client.statement
        offer = encode(made.offer())
        first = client.answer(offer)
        assert client.answer(offer) == first
        answer = decode(first)
        assert isinstance(answer, Accepted)
        assert answer.client == "a"
        assert answer.facts["multipliers"] == made.offer().multipliers
        assert answer.facts["plan"] == made.plan.digest.hex()
        assert (num_charges(ledger), spent(ledger)) == (1, costs(made.plan))
        found = client.statement
        assert found.epsilon <= 1.0
        assert found.private
        assert found.unit == "row"
        assert found.against == made.federation.trust.against()
        assert found.charge is not None
        assert found.charge.dataset == "a"
        assert found.plan_digest == made.plan.digest.hex()


def test_each_client_has_a_budget_of_its_own() -> None:
    """Without trust, a client's own epsilon counts, and it says how much noise that is."""
    made = party()
    own = replace(made.federation, epsilon=0.3)
    client = made.client(federation=own)
    answer = tell(client, made.offer())
    assert isinstance(answer, Accepted)
    assert answer.facts["multipliers"][0] > 2.5 * made.offer().multipliers[0]
    assert client.statement.epsilon <= 0.3


CHANGES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "version": ({"version": "0.0.1"}, ["0.0.1", __version__]),
    "estimator": ({"kind": "LDA"}, ["LDA", "Location"]),
    "model": ({"model": {**declared(Location()), "scale": "2.0"}}, ["scale of the model", "2.0", "1.0"]),
    "class of the model": ({"model": {**declared(Location()), "class": "Place"}}, ["Place", "Location"]),
    "fields of the model": ({"model": {**declared(Location()), "place": "1"}}, ["place", "scale"]),
    "columns": ({"columns": "five columns"}, ["five columns", "four columns"]),
    "unit": ({"unit": "person"}, ["person", "row"]),
    "neighboring relation": ({"neighboring_relation": "replace_one"}, ["replace_one", "add_or_remove_one"]),
    "trust model": ({"trust": "none"}, ["none", "secure_aggregation"]),
    "max_missing": ({"max_missing": 1}, ["1", "0"]),
    "max_colluding": ({"max_colluding": 0}, ["0", "1"]),
    "number of examples": ({"n_units": 50}, ["50", "None"]),
    "number of releases": ({"multipliers": (9.0,)}, ["1", "4"]),
}


@pytest.mark.parametrize("item", CHANGES)
def test_an_offer_that_differs_is_refused_and_costs_nothing(item: str, ledger: Path) -> None:
    changes, said = CHANGES[item]
    made = party("secure_aggregation")
    with made.client(ledger=ledger, dataset="a") as client:
        told = reason(tell(client, made.offer(**changes)))
        assert all(part in told for part in [item, *said]), told
        assert num_charges(ledger) == 0
        assert isinstance(tell(client, made.offer()), Accepted)  # It can still take part.


def test_participants_and_their_keys_are_the_configured_ones() -> None:
    made = party("secure_aggregation")
    client = made.client()
    known = dict(made.federation.participants)
    stranger = Identity.generate("b").public
    told = reason(tell(client, made.offer(participants={**known, "b": stranger})))
    assert "'b'" in told
    assert stranger.hex() in told
    assert known["b"].hex() in told
    told = reason(tell(client, made.offer(participants={**known, "d": stranger})))
    assert "participants" in told
    assert "'d'" in told
    told = reason(tell(client, made.offer(participants={name: known[name] for name in "ab"})))
    assert "participants" in told


@pytest.mark.parametrize("trust", ["secure_aggregation", "trusted_server"])
def test_noise_that_breaks_the_budget_is_refused(trust: str, ledger: Path) -> None:
    made = party(trust)
    less = tuple(0.9 * multiplier for multiplier in made.offer().multipliers)
    with made.client(ledger=ledger, dataset="a") as client:
        assert "epsilon = 1 is not met" in reason(tell(client, made.offer(multipliers=less)))
        assert "epsilon = 1 is not met" in reason(tell(client, made.offer(multipliers=(0.0,) * STEPS)))
        assert num_charges(ledger) == 0
        more = tuple(1.5 * multiplier for multiplier in made.offer().multipliers)
        assert isinstance(tell(client, made.offer(multipliers=more)), Accepted)


@pytest.mark.parametrize("lasting", [False, True])
def test_an_exhausted_ledger_refuses_and_nothing_is_spent(ledger: Path, tmp_path: Path, lasting: bool) -> None:
    made = party("secure_aggregation", epsilon=6.0)
    folder = tmp_path / "memory" if lasting else None
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        assert "epsilon" in (told := reason(tell(client, made.offer())))
        assert "'a'" in told
        assert reason(tell(client, made.offer())) == told
        assert num_charges(ledger) == 0
        with pytest.raises(PrivacyError, match="No offer was accepted"):
            _ = client.statement
    less = replace(made.federation, epsilon=1.0)
    smaller = Party(less, made.identities, made.tasks)
    with smaller.client(ledger=ledger, dataset="a", folder=folder) as client:
        assert isinstance(tell(client, smaller.offer()), Accepted)
    assert spent(ledger) == costs(smaller.plan)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_run_that_never_asked_gives_its_charge_back(tmp_path: Path, ledger: Path, restarted: bool) -> None:
    """Others refused: this client has shown nothing, and owes nothing; one release begun, and all stays charged."""
    made, folder = party(), tmp_path / "memory"
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        first = begun(client, made)
        assert spent(ledger) == costs(made.plan)
        if not restarted:
            assert isinstance(tell(client, Farewell(first, "others refused")), Farewell)
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        assert isinstance(tell(client, Farewell(first, "others refused")), Farewell)
        whole = left(ledger)
        second = begun(client, made, run="second")
        assert isinstance(tell(client, asked(second, 0)), Share)
        assert isinstance(tell(client, Farewell(second, "broken off")), Farewell)
    assert whole == pytest.approx(4.0, abs=0.01)
    assert left(ledger) < 3.0


def left(ledger: Path) -> float:
    """Epsilon that a data set has left, refunds counted."""
    with Ledger(ledger) as found:
        found.verify()
        return found.remaining("a").epsilon


def test_one_run_at_a_time_and_each_name_once(tmp_path: Path, ledger: Path) -> None:
    made = party()
    with made.client(ledger=ledger, dataset="a", folder=tmp_path / "memory") as client:
        first = begun(client, made)
        assert "not over" in reason(tell(client, made.offer("other")))
        same_name = replace(made.offer(), multipliers=(1.0,) * STEPS)
        assert "before, with other contents" in reason(tell(client, same_name))
        assert isinstance(tell(client, Farewell(first, "bye")), Farewell)
        assert "before, with other contents" in reason(tell(client, same_name))
        assert isinstance(tell(client, made.offer("other")), Accepted)
        assert "no offer" in reason(tell(client, asked(first, 0)))
        assert num_charges(ledger) == 2
        client.leave()
        assert "is over" in reason(tell(client, asked(digest(encode(made.offer("other"))), 0)))
        assert isinstance(tell(client, made.offer("third")), Accepted)


def test_infinite_epsilon_has_no_place_in_a_ledger(ledger: Path, recwarn: pytest.WarningsRecorder) -> None:
    made = party(epsilon=math.inf)
    with made.client(ledger=ledger, dataset="a") as client:
        assert "cost must be positive and finite" in reason(tell(client, made.offer()))
    client = made.client()
    share(tell(client, asked(begun(client, made), 0)))
    assert not client.statement.private
    assert client.statement.epsilon == math.inf
    assert not [warning for warning in recwarn if warning.category is NotRecordedWarning]


def test_a_client_without_a_ledger_warns_once() -> None:
    """Clients that share what is calculated once warn once together."""
    made = party(epsilon=0.7312)
    shared = Shared()
    for names, times in (([("a", shared), ("b", shared), ("c", shared)], 1), ([("a", Shared()), ("b", Shared())], 2)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", NotRecordedWarning)
            for name, one in names:
                begun(made.client(name, shared=one), made)
        assert [warning.category for warning in told] == [NotRecordedWarning] * times


def test_a_configuration_that_cannot_work_is_refused() -> None:
    made = party("secure_aggregation")
    with pytest.raises(ParameterError, match="name must be one of"):
        Client("z", made.tasks["a"], made.federation)
    with pytest.raises(ParameterError, match="identity is needed"):
        Client("a", made.tasks["a"], made.federation)
    for other in (made.identities["b"], Identity.generate("a")):
        with pytest.raises(ParameterError, match="identity must be that of 'a'"):
            Client("a", made.tasks["a"], made.federation, identity=other)
    with pytest.raises(ParameterError, match="ledger and dataset belong together"):
        made.client(dataset="a")
    with pytest.raises(PrivacyError, match="cannot be pickled"):
        made.client().__reduce__()


# --- requests -----------------------------------------------------------------------------------------------------


def test_the_same_request_gets_the_same_bytes_in_any_order(ledger: Path) -> None:
    made = party("secure_aggregation")
    with made.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, made)
        requests = [encode(asked(offer, step, q=Q + step)) for step in range(STEPS)]
        answers = [client.answer(data) for data in requests]
        assert all(isinstance(decode(answer), Share) for answer in answers)
        rng = np.random.default_rng(0)
        for number in rng.integers(0, STEPS, 20):
            assert client.answer(requests[number]) == answers[number]
        assert len({tuple(share(decode(answer))["pull"]) for answer in answers}) == STEPS
        assert (num_charges(ledger), spent(ledger)) == (1, costs(made.plan))


def test_a_request_that_differs_for_a_given_release_is_refused(ledger: Path) -> None:
    made = party("secure_aggregation")
    with made.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, made)
        for step in (0, 1):
            share(tell(client, asked(offer, step)))
        for different in (
            asked(offer, 1, q=Q + 1e-9),
            asked(offer, 1, q=-Q),
            asked(offer, 0, 1),
            asked(offer, 0, 5, q=-Q),
        ):
            assert "was given for another request" in reason(tell(client, different))
        assert "belongs to no offer" in reason(tell(client, asked(digest(b"another"), 2)))
        assert "releases" in reason(tell(client, asked(offer, STEPS)))
        assert "not a participant" in reason(tell(client, asked(offer, 2, names="abcd")))
        assert "not for 'a'" in reason(tell(client, asked(offer, 2, names="bc")))
        assert spent(ledger) == costs(made.plan)
        share(tell(client, asked(offer, 2)))


def test_releases_that_are_passed_over_are_forgone() -> None:
    made = party()
    client = made.client()
    offer = begun(client, made)
    share(tell(client, asked(offer, 2)))
    for step in (0, 1):
        assert "passed over" in reason(tell(client, asked(offer, step)))
    share(tell(client, asked(offer, 3)))
    assert "was given for another request" in reason(tell(client, asked(offer, 2, 1)))


def test_a_lost_client_aborts_unless_it_may_be_missing(ledger: Path) -> None:
    """Two of three are too few if none may be missing; if one may they get fresh noise and masks, and pay again."""
    strict = party("secure_aggregation")
    with strict.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, strict)
        share(tell(client, asked(offer, 0)))
        for message in (asked(offer, 0, 1, "ab"), asked(offer, 1, 0, "ab"), asked(offer, 1, 0, "a")):
            assert "too little noise" in reason(tell(client, message))
        assert spent(ledger) == costs(strict.plan)
    made = party("secure_aggregation", max_missing=1)
    clients = {name: made.client(name, ledger=ledger, dataset=name) for name in "bc"}
    (offer,) = {begun(client, made) for client in clients.values()}
    first = {name: share(tell(client, asked(offer, 0))) for name, client in clients.items()}
    again = {name: share(tell(client, asked(offer, 0, 1, "bc"))) for name, client in clients.items()}
    # The masks of "a" are still in the first sum; in the second all cancel, and it lies within the noise's reach.
    release, whole = made.plan.releases[0], made.federation.trust.party
    grid = grids_of(release, None, whole)["pull"]
    reach = 45 * release.noise_std("pull") + 45 * grid.bound
    assert (np.abs(grid.units(first["b"]["pull"] + first["c"]["pull"])) > 1e3 * reach).all()
    assert (np.abs(grid.units(again["b"]["pull"] + again["c"]["pull"])) < reach).all()
    for name, client in clients.items():
        assert (num_charges(ledger, name), spent(ledger, name)) == (2, costs(made.plan, [0]))
        assert not (first[name]["pull"] == again[name]["pull"]).any()
        assert client.statement.epsilon > 1.0  # It says what it has given beyond the plan.
        assert "same attempt" in reason(tell(client, asked(offer, 0, 1, "abc")))
        share(tell(client, asked(offer, 0, 2, "bc")))
        assert "no more" in reason(tell(client, asked(offer, 0, 3, "bc")))
        assert spent(ledger, name) == costs(made.plan, [0, 0])
        share(tell(client, asked(offer, 1, 0, "bc")))  # The plan's own release, and charged with it.
        assert spent(ledger, name) == costs(made.plan, [0, 0])
        client.close()


def test_an_attempt_that_the_ledger_does_not_grant_is_refused(tmp_path: Path) -> None:
    made = party("secure_aggregation", max_missing=1)
    with Ledger(tmp_path / "small.db") as small:
        small.register("a", unit="row", neighboring_relation="add_or_remove_one", epsilon=1.1, delta=1e-5)
    with made.client(ledger=tmp_path / "small.db", dataset="a", folder=tmp_path / "memory") as client:
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
        before = spent(tmp_path / "small.db")
        assert "epsilon" in reason(tell(client, asked(offer, 0, 1, "ab")))
        assert "epsilon" in reason(tell(client, asked(offer, 0, 2, "ab")))
        assert spent(tmp_path / "small.db") == before
        share(tell(client, asked(offer, 1, 0, "ab")))


@given(data=st.data())
def test_malformed_messages_are_refused_whatever_they_are(data: st.DataObject) -> None:
    made = party()
    client = made.client()
    offer = begun(client, made)
    whole = data.draw(st.sampled_from([encode(asked(offer, 0)), encode(made.offer("x")), encode(Farewell(offer, "x"))]))
    place = data.draw(st.integers(0, 8 * len(whole) - 1))
    bent = bytearray(whole)
    bent[place // 8] ^= 1 << place % 8
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    for message in (bytes(bent), cut, whole + b"0", data.draw(st.binary(max_size=80))):
        answer = decode(client.answer(message))
        assert isinstance(answer, Refusal | Share | Accepted | Farewell)
        if isinstance(answer, Refusal):
            assert answer.request == digest(message)
    for other in (Share(offer, {}, True), Refusal(offer, "no"), Accepted(offer, "a", bytes(32))):
        assert "offers, requests and farewells" in reason(tell(client, other))


def test_names_in_a_q_are_compared_by_their_text() -> None:
    """Those of a message are other objects than those of a dry run."""
    names = [name.encode().decode() for name in ("kappa_x", "kappa_x")]
    assert names[0] is not names[1]
    here, message = ({name: np.zeros(2)} for name in names)
    assert _fits(_form(message), _form(here))
    assert not _fits(_form({"xi": np.zeros(2)}), _form(here))


@kills("queries", "a server's q asked whatever its form")
@edit("federated/client.py", "if not any(_fits(form, expected) for expected in self._forms) or not", "if not")
def test_a_q_of_another_form_is_refused_before_its_release_is_begun(ledger: Path) -> None:
    """An array with a row of its own for every row of data would undo the clipping of each by itself."""
    made = party()
    with made.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, made)
        hostile = [
            np.zeros((20, D)),
            np.zeros((1, D)),
            np.zeros(D - 1),
            np.zeros(1),
            np.zeros(D, dtype=np.float32),
            np.zeros(D, dtype=np.int64),
            None,
            0.5,
            "q",
            [0.0] * D,
            {"q": Q},
            made.federation.trust.name,
        ]
        for q in hostile:
            assert "q is not one of this model's" in reason(tell(client, asked(offer, 0, q=q)))
        share(tell(client, asked(offer, 0)))  # Nothing of the plan was used up.
        assert spent(ledger) == costs(made.plan)


@dataclass(frozen=True)
class Place:
    """A q of a class that is no part of the package."""

    where: np.ndarray
    seen: int | None = None


@dataclass(frozen=True)
class Placing(Location):
    """A stranger's model, with a q of its own class."""

    def init(self, rng: np.random.Generator) -> Any:
        return Place(super().init(rng))

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        return super().e_step(q.where, batch, blocks)

    def m_step(self, s: Estimate, q: Any) -> Any:
        return Place(super().m_step(s, q.where), 1)


@dataclass(frozen=True)
class Weapon(Place):
    """What a server would like a client to make."""

    def __post_init__(self) -> None:
        MADE.append(self)


MADE: list[Any] = []


def test_the_q_of_a_strangers_model_travels_and_nothing_else_is_made_of_a_message(ledger: Path) -> None:
    """A class that the client's own model does not make its q of is refused by its name; nothing is spent."""
    made = party(tasks={name: task_of(rows_of(m), Placing()) for m, name in enumerate("abc")})
    with made.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, made)
        weapon = Weapon(Q)
        MADE.clear()
        for q in (weapon, Place(weapon), [weapon], {"q": weapon}):
            told = reason(tell(client, asked(offer, 0, q=q)))
            assert "names the class 'test_federated_client:Weapon'" in told
        for q in (
            LDAModel(2, D).init(np.random.default_rng(0)),
            made.offer(),
            Place(made.offer()),
            Place(Place(Q)),
            Q,
        ):
            assert reason(tell(client, asked(offer, 0, q=q)))
        assert not MADE
        share(tell(client, asked(offer, 0, q=Place(Q))))
        share(tell(client, asked(offer, 1, q=Place(Q, 1))))
        assert spent(ledger) == costs(made.plan)


@kills("queries", "a server's q asked whatever numbers it holds")
@edit("federated/client.py", "if (fault := domains.outside(q)) is not None:", "if fault := None:")
@edit(
    "federated/membership.py",
    "query = loop.query(self._owner.task.model, request.q, self.plan.releases[request.step])",
    "query = partial(\n"
    "            self._owner.task.model.e_step, request.q, blocks=self.plan.releases[request.step].blocks\n"
    "        )",
)
@pytest.mark.parametrize("trust", ["none", "secure_aggregation"])
def test_a_q_outside_its_domain_is_refused_and_nothing_is_spent(trust: str, ledger: Path) -> None:
    """Numbers that are not finite, and signs that its class does not declare: of any form that is the model's own."""
    model = LDAModel(2, D)
    task = task_of(np.ones((5, D)), model, source=BagOfWords)
    made = party(trust, tasks=dict.fromkeys("abc", task))
    q = model.e_step_q(model.init(np.random.default_rng(0)), model.blocks)
    odd = [q.beta_vk.copy() for _ in range(4)]
    for array, number in zip(odd, (np.nan, np.inf, -np.inf, -1e-30), strict=True):
        array[1, 0] = number
    hostile = [replace(q, beta_vk=array) for array in odd]
    hostile += [replace(q, word_weight_v=np.full(D, number)) for number in (np.nan, np.inf, -1.0, 0.0)]
    with made.client(ledger=ledger, dataset="a") as client:
        offer = begun(client, made)
        for name in "bc":
            begun(made.client(name), made)
        for other in hostile:
            told = reason(tell(client, asked(offer, 0, q=other)))
            assert "must be" in told
            assert told.endswith("the request is refused, and nothing is spent on it.")
        share(tell(client, asked(offer, 0, q=q)))
        assert spent(ledger) == costs(made.plan)


@dataclass(frozen=True)
class Failing(Location):
    """Fails on rows, and speaks of them."""

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        if len(batch) and q[0] > 0.5:
            raise ValueError(f"secret {batch[0, 0]}")
        return super().e_step(q, batch, blocks)


@dataclass
class Worn:
    """A source that fails when it is read for the second time, and says what it has read."""

    source: Any
    told: str
    reads: int = 0

    def chunks(self) -> Iterator[Any]:
        self.reads += 1
        if self.reads == 2:
            raise OSError(f"secret {self.told}")
        return iter(self.source.chunks())

    def count(self) -> int:
        return int(self.source.count())


def test_rows_that_fail_behind_the_wall_add_nothing_and_are_not_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    made = party(epsilon=math.inf, tasks={name: task_of(rows_of(1), Failing()) for name in "abc"})
    client = made.client()
    offer = begun(client, made)
    assert not any(array.any() for array in share(tell(client, asked(offer, 0, q=np.ones(D)))).values())
    assert any(array.any() for array in share(tell(client, asked(offer, 1))).values())
    assert "secret" not in capsys.readouterr().err


def test_what_fails_behind_the_wall_is_not_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    worn = Worn(table(rows_of(1)), repr(float(rows_of(1)[0, 0])))
    made = party(tasks={name: task_of(rows_of(1))._replace(source=worn) for name in "abc"})
    with made.client(folder=tmp_path / "memory") as client:
        offer = begun(client, made)
        told = reason(tell(client, asked(offer, 0)))
        assert told == "a computation behind the wall failed; its charge stands and its reason stays private."
        assert reason(tell(client, asked(offer, 0))) == told
        assert "was given for another request" in reason(tell(client, asked(offer, 0, q=-Q)))
        share(tell(client, asked(offer, 1)))
    assert "secret" not in capsys.readouterr().err
    secret = repr(float(rows_of(1)[0, 0]))
    for path in (tmp_path / "memory").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


class Broken:
    """A source that cannot be read, and says why."""

    def chunks(self) -> Iterator[Any]:
        raise OSError("row 7 is 'Mallory, 34'")

    def count(self) -> int:
        raise OSError("row 7 is 'Mallory, 34'")


def test_data_that_cannot_be_read_are_not_told_of() -> None:
    made = party(tasks={name: task_of(rows_of(1))._replace(source=Broken()) for name in "abc"})
    client = made.client()
    told = reason(tell(client, asked(begun(client, made), 0)))
    assert told == "this client failed; the reason stays with its owner."


def test_threads_that_ask_the_same_get_the_same(ledger: Path) -> None:
    made = party("secure_aggregation")
    with made.client(ledger=ledger, dataset="a") as client:
        messages = [encode(made.offer())]
        tell(client, decode(messages[0]))
        messages += [encode(asked(digest(messages[0]), step)) for step in range(STEPS)]
        answers: dict[bytes, set[bytes]] = {message: set() for message in messages}
        for message in messages:
            threads = [threading.Thread(target=lambda m=message: answers[m].add(client.answer(m))) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert all(len(found) == 1 for found in answers.values())
        assert not any(isinstance(decode(found.pop()), Refusal) for found in answers.values())
        assert num_charges(ledger) == 1


def test_without_a_folder_old_answers_are_let_go_but_those_to_offers() -> None:
    """Answers to requests are kept up to 64 MiB; an answer to an offer stays, however large and old."""
    memory = Memory(None)
    memory.accept("offer", b"?", bytes(40 * 2**20))
    for number in range(4):
        memory.keep(f"share {number}", bytes(30 * 2**20))
    assert [memory.reply(f"share {number}") is None for number in range(4)] == [True, True, False, False]
    assert memory.reply("offer") == bytes(40 * 2**20)
    assert memory.offers() == {"offer": b"?"}
    memory.check_room()
    memory.accept("another", bytes(24 * 2**20), b"yes")
    with pytest.raises(FederationError, match="accepted 2 offers"):
        memory.check_room()


def test_without_a_folder_offers_beyond_what_is_remembered_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: Path
) -> None:
    """Nothing is charged for them, and the run that is going on is not disturbed; a folder has room for all."""
    monkeypatch.setattr("dpvb.federated.memory._MOST_OFFERS", 2)
    made = party()
    with made.client(ledger=ledger, dataset="a") as client:
        for run in ("first", "second"):
            offer = begun(client, made, run=run)
            assert isinstance(tell(client, Farewell(offer, "over")), Farewell)
        told = reason(tell(client, made.offer("third")))
        assert "accepted 2 offers" in told
        assert "Give the client a folder" in told
        assert num_charges(ledger) == 2
        assert isinstance(tell(client, made.offer("second")), Accepted)
    with made.client(folder=tmp_path / "memory") as client:
        for run in ("first", "second", "third"):
            tell(client, Farewell(begun(client, made, run=run), "over"))


def test_a_release_whose_answer_is_gone_is_not_given_anew() -> None:
    made = party()
    client = made.client()
    offer = begun(client, made)
    first = encode(asked(offer, 0))
    share(decode(client.answer(first)))
    client._memory._replies.pop(digest(first))
    assert "not given anew" in reason(decode(client.answer(first)))
    share(tell(client, asked(offer, 1)))


#: What a server may say: offers (a run's second has other contents), mostly requests, and farewells.
SPOKEN: list[tuple[Any, ...]] = [
    *itertools.product(["offer"], range(3), [False, True]),
    *itertools.product(["request"], range(2), [False], range(3), range(2), ["abc", "ab"], [0.25, -0.25]),
    *itertools.product(["farewell"], range(2), [False], ["over", "gone"]),
]


def spoken(made: Party, word: tuple[Any, ...]) -> bytes:
    """The bytes of a server's word."""
    kind, run, other, *rest = word
    offer = made.offer(f"run {run}")
    data = encode(replace(offer, multipliers=(1.0,) * STEPS) if other else offer)
    if kind == "request":
        step, attempt, names, value = rest
        return encode(Request(digest(data), step, attempt, tuple(names), np.full(D, value)))
    return data if kind == "offer" else encode(Farewell(digest(data), *rest))


@dataclass
class Answers:
    """Every answer that was no refusal, by its message."""

    made: Party
    given: dict[bytes, bytes] = field(default_factory=dict)
    messages: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    accepted: set[str] = field(default_factory=set)
    released: set[tuple[str, int, int]] = field(default_factory=set)

    def hear(self, client: Client, word: tuple[Any, ...]) -> None:
        """A message answered before gets the same bytes or a refusal; no run is accepted in two ways."""
        if word not in self.messages:
            self.messages[word] = spoken(self.made, word)
        message = self.messages[word]
        answer = client.answer(message)
        if isinstance(decode(answer), Refusal):
            return
        if message in self.given:
            assert self.given[message] == answer
            return
        self.given[message] = answer
        asked = decode(message)
        if isinstance(asked, Offer):
            assert asked.run not in self.accepted
            self.accepted.add(asked.run)
        if isinstance(asked, Request):
            place = asked.offer, asked.step, asked.attempt
            assert place not in self.released
            self.released.add(place)


@pytest.mark.guarantees("same answers")
@kills("crashes", "a release given anew whose answer made room for others")
@edit("federated/membership.py", "if self._position > step:\n            raise", "if False:\n            raise")
@edit(
    "federated/membership.py",
    "return wall.share(query, self.plan.releases[step], conceal)",
    "return self._behind(self.plan, None).share(query, self.plan.releases[0], conceal)",
)
@kills("crashes", "answers to offers that make room for others")
@edit("federated/memory.py", "return (self._answers if offered else self._replies)", "return self._replies")
@edit("federated/memory.py", "            self._answers[offer] = answer\n", "            self.keep(offer, answer)\n")
@given(
    words=st.lists(st.sampled_from(SPOKEN), min_size=10, max_size=40),
    kept=st.sampled_from([0, 400, 2000]),
    offers=st.integers(1, 3),
)
@settings(max_examples=20)
def test_what_was_answered_once_is_answered_the_same_or_not_at_all(
    words: list[tuple[Any, ...]], kept: int, offers: int
) -> None:
    """However little is remembered, and in whatever order a server asks; no offer's answer is ever gone."""
    heard = Answers(party())
    client = heard.made.client()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpvb.federated.memory._MOST_KEPT", kept)
        patch.setattr("dpvb.federated.memory._MOST_OFFERS", offers)
        for word in [("offer", 0, False), *words, *words]:
            heard.hear(client, word)
        accepted = {data: answer for data, answer in heard.given.items() if isinstance(decode(data), Offer)}
        assert 1 <= len(accepted) <= offers
        assert all(client.answer(data) == answer for data, answer in accepted.items())


@pytest.mark.guarantees("same answers")
@kills("crashes", "an offer accepted anew whose answer is gone")
@edit("federated/client.py", "if digest in earlier:", "if earlier.pop(digest, None) is None and False:")
@given(
    words=st.lists(st.sampled_from([*SPOKEN, *[("restart",), ("vanish",)] * 5]), min_size=4, max_size=16),
)
@settings(max_examples=25)
def test_an_offer_whose_answer_vanished_is_never_accepted_anew(words: list[tuple[Any, ...]]) -> None:
    """With a folder: a process started anew, or a file that is gone, changes no answer."""
    heard = Answers(party())
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        folder = Path(name) / "memory"
        client = held.enter_context(heard.made.client(folder=folder))
        for word in [("offer", 0, False), *words, ("vanish",), ("restart",), *words]:
            if word == ("restart",):
                client.close()
                client = held.enter_context(heard.made.client(folder=folder))
            elif word == ("vanish",):
                for path in folder.glob("runs/*/answer"):
                    path.unlink()
            else:
                heard.hear(client, word)


@pytest.mark.parametrize(("lasting", "restarted"), [(False, False), (True, False), (True, True)])
def test_an_offer_whose_answer_is_gone_is_refused(lasting: bool, restarted: bool, tmp_path: Path, ledger: Path) -> None:
    """The refusal says why, nothing is charged for it, and another run can be offered."""
    made, folder = party(), tmp_path / "memory" if lasting else None
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        data = encode(made.offer())
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
        assert isinstance(tell(client, Farewell(offer, "over")), Farewell)
        if lasting:
            (tmp_path / "memory" / "runs" / offer / "answer").unlink()
        else:
            client._memory._answers.clear()
        if not restarted:
            assert "not accepted anew" in reason(decode(client.answer(data)))
    if restarted:
        client = made.client(ledger=ledger, dataset="a", folder=folder)
        assert "not accepted anew" in reason(decode(client.answer(data)))
        with pytest.raises(PrivacyError, match="the newest offer is gone from this client's folder"):
            _ = client.statement
        assert num_charges(ledger) == 1
        assert isinstance(tell(client, made.offer("next")), Accepted)
        assert client.statement.epsilon <= 1.0
        client.close()


def test_a_folder_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    made = party()
    with made.client(folder=tmp_path / "memory") as client:
        offer = begun(client, made)
    path = tmp_path / "memory" / "runs" / offer / "offer"
    path.write_bytes(path.read_bytes().replace(b"dpvb\5", b"dpvb\1", 1))
    with pytest.raises(CheckpointError, match=r"its folder is of another version of dpvb.*a new folder"):
        made.client(folder=tmp_path / "memory")


# --- crashes ------------------------------------------------------------------------------------------------------


def history(ledger: Path) -> dict[str, list[Any]]:
    """The rows of every run in a ledger, in the order of their charges."""
    with Ledger(ledger) as found:
        found.verify()
        return {run: found.history(run) for run in dict.fromkeys(entry.run for entry in found.entries() if entry.run)}


def released(rows: list[Any]) -> list[Any]:
    return [entry for entry in rows if entry.state == "released"]


# The others take a minute or two.
EVERYDAY = (
    "after the charge",
    "after the yes is written",
    "after the offer is remembered",
    "after the noise is drawn",
    "after it is on record",
    "after one beyond a gap is written",
    "after a repeated one is charged",
    "before a repeated answer is kept",
    "after the end is remembered",
)


def marked(marks: Sequence[str], everyday: Sequence[str]) -> list[Any]:
    return [pytest.param(mark, marks=[] if mark in everyday else [pytest.mark.slow]) for mark in marks]


@pytest.mark.parametrize("mark", marked(list(MARKS), EVERYDAY))
def test_a_client_killed_anywhere_goes_on(mark: str, ledger: Path, tmp_path: Path) -> None:
    """Same folder, ledger and data: what was answered is answered the same, and everything is paid once."""
    folder = tmp_path / "memory"
    before = killed(ledger, folder, tmp_path / "out", mark)
    on_record = [entry for rows in history(ledger).values() for entry in released(rows)]
    with killed_client.client(str(ledger), str(folder)) as client:
        answers = [client.answer(message) for message in script(client)]
        assert [answers[number] for number in before] == list(before.values())
        assert [client.answer(message) for message in script(client)] == answers
    plain = [decode(answer) for answer in answers]
    assert isinstance(plain[0], Accepted)
    assert isinstance(plain[-1], Farewell)
    made = [share(answer) for answer in plain[1:5]]
    (rows,) = history(ledger).values()
    # Every release is on record once, as it was given; what was on record before still is.
    assert [entry.step for entry in released(rows)] == [0, 1, 3, 3]
    assert released(rows)[: len(on_record)] == on_record
    checkpoint = Checkpoint(next(folder.glob("runs/*/released")))
    for entry, sums in zip(released(rows), made, strict=True):
        kept = checkpoint.release(entry.step, entry.attempt, Seal(entry.digest, entry.unseals))
        assert kept is not None
        assert all(np.array_equal(kept[name], sums[name]) for name in sums)
    assert [entry.facts["steps"] for entry in rows if entry.kind in ("charge", "sole")] == [None, [3]]
    plan = killed_client.TRUST.planned(_relative(), epsilon=1.0, delta=1e-5)
    assert spent(ledger) == costs(plan, [3])
    assert not list(folder.rglob("token"))


def _relative() -> Plan:
    return phased(Location().blocks, FullBatch(), [1.0] * 5, unit="row")


@pytest.mark.guarantees("fresh masks")
@kills("crashes", "masks used again after a restart that nobody counts")
@edit("federated/client.py", "if trust.secure and current.restarted and self._owner.ledger is None:", "if False:")
@kills("crashes", "masks used again from a folder that was set back")
@edit("federated/membership.py", "self._may_repeat_masks |= self._run.has_lost", "pass")
@pytest.mark.parametrize("trust", ["secure_aggregation", "none"])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("when", ["accepted", "answered once", "answered twice"])
@pytest.mark.parametrize("reads", [False, True])
def test_a_folder_that_was_set_back_hides_no_two_sums_alike(
    trust: str, counted: bool, when: str, reads: bool, ledger: Path, tmp_path: Path
) -> None:
    """Under masks nothing is given anew; without, what is on record and lost is charged again."""
    made, folder = party(trust), tmp_path / "memory"
    other = Party(made.federation, made.identities, {"a": task_of(rows_of(5))})
    options: dict[str, Any] = {"folder": folder, **({"ledger": ledger, "dataset": "a"} if counted else {})}
    with made.client(**options) as client:
        offer = begun(client, made)
        for step in range(["accepted", "answered once", "answered twice"].index(when)):
            share(tell(client, asked(offer, step)))
    shutil.copytree(folder, tmp_path / "old")
    ask = asked(offer, step := ["accepted", "answered once", "answered twice"].index(when))
    with made.client(**options) as client:
        first = decode(client.answer(encode(ask)))
    assert isinstance(first, Share) == (counted or trust == "none")
    before = spent(ledger)
    shutil.rmtree(folder)
    (tmp_path / "old").rename(folder)
    with other.client(**options) as client:
        if reads:  # It opens the run.
            assert client.statement.epsilon > 0
        for _ in range(2):
            second = decode(client.answer(encode(ask)))
            if trust == "secure_aggregation":
                assert "masks could hide two sums alike" in reason(second)
            else:
                assert isinstance(second, Share)
        assert spent(ledger) == (costs(made.plan, [step]) if counted and trust == "none" else before)
        assert isinstance(tell(client, Farewell(offer, "over")), Farewell)


def test_another_request_for_a_release_that_broke_off_is_refused(ledger: Path, tmp_path: Path) -> None:
    """The request that it was begun for is remembered, so that no second q is asked at one price."""
    folder = tmp_path / "memory"
    killed(ledger, folder, tmp_path / "out", "after the noise is drawn")
    with killed_client.client(str(ledger), str(folder)) as client:
        first, _, second, *_ = script(client)
        tell(client, decode(first))
        assert "was given for another request" in reason(tell(client, asked(digest(first), 1, q=-Q)))
        assert isinstance(decode(client.answer(second)), Share)


def test_a_disk_that_fails_costs_nothing(ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A release that cannot be written is not given; once it can, the same request gets it."""
    folder = tmp_path / "memory"
    with killed_client.client(str(ledger), str(folder)) as client:
        messages = script(client)
        checkpoint = next(folder.glob("runs/*/released"))
        in_the_way = [checkpoint / f"release-00000-{attempt}.sealed" / "file" for attempt in range(2)]
        for file in in_the_way:
            file.parent.mkdir()
            file.touch()
        for _ in in_the_way:
            told = reason(decode(client.answer(messages[1])))
            assert "cannot be written" in told
            assert told in capsys.readouterr().err
        assert isinstance(decode(client.answer(messages[1])), Share)
    plan = killed_client.TRUST.planned(_relative(), epsilon=1.0, delta=1e-5)
    assert spent(ledger) == costs(plan)


@pytest.mark.guarantees("full disks")
@kills("crashes", "an offer that is charged before a full disk refuses it")
@edit(
    "federated/client.py",
    "        self._memory.prepare(digest, data, answer)\n",
    "        current.charge()\n        self._memory.prepare(digest, data, answer)\n",
)
@pytest.mark.parametrize("name", ["answer", "offered"])
@pytest.mark.parametrize("trust", ["none", "secure_aggregation"])
def test_an_offer_that_a_full_disk_cannot_hold_costs_nothing(
    trust: str, name: str, ledger: Path, tmp_path: Path
) -> None:
    """What takes room is written before the charge; the same offer is accepted once it can be written."""
    folder, made = tmp_path / "memory", party(trust)
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        in_the_way = folder / "runs" / digest(encode(made.offer())) / name / "file"
        in_the_way.parent.mkdir(parents=True, mode=0o700)
        in_the_way.touch()
        for folder_of in (in_the_way.parent.parent, in_the_way.parent):
            folder_of.chmod(0o700)
        for _ in range(2):
            assert "cannot be written" in reason(tell(client, made.offer()))
        assert num_charges(ledger) == 0
        shutil.rmtree(in_the_way.parent)
        offer = begun(client, made)
        assert (num_charges(ledger), spent(ledger)) == (1, costs(made.plan))
        assert sorted(path.name for path in (folder / "runs" / offer).iterdir()) == ["answer", "offer", "released"]


DAMAGE: dict[str, Any] = {
    "no checkpoint": lambda run: shutil.rmtree(run / "released"),
    "no token": lambda run: (run / "released" / "token").unlink(),
    "an empty token": lambda run: (run / "released" / "token").write_bytes(b""),
    "another run": lambda run: (run / "released" / "run.json").write_text('{"format": 2, "run": "x"}'),
    "no releases": lambda run: [file.unlink() for file in run.glob("released/*.sealed")],
    "an open release": lambda run: [file.chmod(0o644) for file in run.glob("released/*.sealed")],
}


@kills("crashes", "masks used again by a client that begins its run anew")
@edit("federated/membership.py", "if is_new and self.restarted and owner.federation.trust.secure:", "if False:")
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_hides_no_two_sums_alike(damage: str, ledger: Path, tmp_path: Path) -> None:
    """Whatever of it is lost: what was masked once is given as it was or not at all, and the folder is left."""
    made, folder = party("secure_aggregation"), tmp_path / "memory"
    other = Party(made.federation, made.identities, {"a": task_of(rows_of(5))})
    options: dict[str, Any] = {"folder": folder, "ledger": ledger, "dataset": "a"}
    with made.client(**options) as client:
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
    for file in folder.glob("replies/*"):
        file.unlink()
    DAMAGE[damage](folder / "runs" / offer)
    before = spent(ledger)
    for _ in range(3):
        with other.client(**options) as client:
            for step in (0, 1):
                for _ in range(2):
                    assert reason(tell(client, asked(offer, step)))
        assert spent(ledger) == before


def test_a_ledger_that_comes_later_does_not_bring_masks_back(ledger: Path, tmp_path: Path) -> None:
    made, folder = party("secure_aggregation"), tmp_path / "memory"
    with made.client(folder=folder) as client:
        offer = begun(client, made)
    with made.client(folder=folder, ledger=ledger, dataset="a") as client:
        assert "masks could hide two sums alike" in reason(tell(client, asked(offer, 0)))


@pytest.mark.parametrize("counted", [True, False])
def test_answers_that_are_removed_while_a_client_runs_bring_no_masks_back(
    counted: bool, ledger: Path, tmp_path: Path
) -> None:
    made, folder = party("secure_aggregation"), tmp_path / "memory"
    with made.client(folder=folder, **({"ledger": ledger, "dataset": "a"} if counted else {})) as client:
        offer = begun(client, made)
        given = [client.answer(encode(asked(offer, step))) for step in range(2)]
        for file in folder.glob("replies/*"):
            file.unlink()
        for step in (0, 1, 0, 1):
            answer = client.answer(encode(asked(offer, step)))
            assert answer == given[step] or reason(decode(answer))


@kills("crashes", "a forked client that answers", "False-False")
@edit("federated/client.py", 'try:\n                self._origin.check("this client")\n', "try:\n")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("lasting", [True, False])
def test_a_client_belongs_to_one_process(counted: bool, lasting: bool, ledger: Path, tmp_path: Path) -> None:
    """A forked child answers nothing, ends nothing, and lets go of nothing."""
    made = party()
    options: dict[str, Any] = {"ledger": ledger, "dataset": "a"} if counted else {}
    if lasting:
        options["folder"] = tmp_path / "memory"
    with made.client(**options) as client:
        offer = begun(client, made)
        if (child := os.fork()) == 0:
            said = [reason(tell(client, asked(offer, step))) for step in (0, 0, 1)]
            for ask in (client.leave, lambda: client.statement):
                with pytest.raises(PrivacyError, match="belongs to the process that made it"):
                    ask()
            client.close()
            os._exit(0 if all("belongs to the process that made it" in text for text in said) else 1)
        assert os.waitpid(child, 0)[1] == 0
        share(tell(client, asked(offer, 0)))
        sleeper = os.fork()
        if sleeper == 0:
            time.sleep(60)
            os._exit(0)
    with made.client(**options) as client:  # The child that lives on holds no lock.
        if lasting:
            share(tell(client, asked(offer, 1)))
    os.kill(sleeper, signal.SIGKILL)
    os.waitpid(sleeper, 0)


@pytest.mark.parametrize(
    "place", ["", "runs", "replies", "runs/*", "runs/*/offer", "runs/*/answer", "runs/*/0-0.request"]
)
def test_a_folder_that_others_can_write_is_refused(place: str, tmp_path: Path) -> None:
    made, folder = party(), tmp_path / "memory"
    with made.client(folder=folder) as client:
        share(tell(client, asked(begun(client, made), 0)))
    (found,) = folder.glob(place) if place else [folder]
    found.chmod(0o777)
    with pytest.raises(CheckpointError, match="others may"):
        made.client(folder=folder)
    found.chmod(0o700)
    with made.client(folder=folder):
        pass


HOSTILE: dict[str, Any] = {
    "an offer of another kind": ("offer", encode(Farewell("0" * 64, "x"))),
    "an answer of another kind": ("answer", encode(Refusal("0" * 64, "x"))),
    "an answer without a plan": ("answer", encode(Accepted("0" * 64, "a", bytes(32), {}))),
    "a request that is no digest": ("0-0.request", b"\xff\xfe"),
    "an empty request": ("0-0.request", b""),
    "an empty offer": ("offer", b""),
}


@pytest.mark.parametrize("what", [*HOSTILE, "a pipe", "a link", "a huge file"])
def test_a_hostile_folder_is_refused_by_name(what: str, tmp_path: Path) -> None:
    made, folder = party(), tmp_path / "memory"
    with made.client(folder=folder) as client:
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
    run = folder / "runs" / offer
    if what in HOSTILE:
        name, data = HOSTILE[what]
        (run / name).write_bytes(data)
    else:
        (run / "0-0.request").unlink()
        if what == "a pipe":
            os.mkfifo(run / "0-0.request", 0o600)
        elif what == "a link":
            (run / "0-0.request").symlink_to(run / "offer")
        else:
            with open(run / "0-0.request", "wb") as file:
                file.truncate(2**40)
    with pytest.raises(CheckpointError):
        made.client(folder=folder)


@kills("crashes", "an attempt that is charged though it cannot be bound")
@edit(
    "federated/membership.py",
    "        memory.begin(self.offer, request.step, request.attempt, digest)\n        journal =",
    "        journal =",
)
def test_an_attempt_is_bound_before_it_is_charged(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that cannot remember for what a release is given costs nothing."""
    made = party()
    with made.client(ledger=ledger, dataset="a", folder=tmp_path / "memory") as client:
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
        before = spent(ledger)
        begin = client._memory.begin

        def full(*given: Any) -> None:
            raise CheckpointError("the disk is full.")

        monkeypatch.setattr(client._memory, "begin", full)
        for attempt in (1, 2, 3):
            assert "full" in reason(tell(client, asked(offer, 0, attempt=attempt, names="ab")))
        assert spent(ledger) == before
        monkeypatch.setattr(client._memory, "begin", begin)
        share(tell(client, asked(offer, 0, attempt=1, names="ab")))
        assert spent(ledger) == costs(made.plan, [0])


@pytest.mark.parametrize("trust", ["secure_aggregation", "none"])
def test_an_answer_that_could_not_be_kept_is_given_once_it_can(
    trust: str, ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = party(trust)
    with made.client(ledger=ledger, dataset="a", folder=tmp_path / "memory") as client:
        offer = begun(client, made)
        keep = client._memory.keep
        asked_for = encode(asked(offer, 0))

        def full(*given: Any) -> None:
            raise CheckpointError("the disk is full.")

        monkeypatch.setattr(client._memory, "keep", full)
        assert "full" in reason(decode(client.answer(asked_for)))
        monkeypatch.setattr(client._memory, "keep", keep)
        answer = client.answer(asked_for)
        share(decode(answer))
        assert client.answer(asked_for) == answer
        share(tell(client, asked(offer, 1)))
        assert spent(ledger) == costs(made.plan)


def test_nothing_is_decided_by_the_data_of_a_client_that_goes_on(ledger: Path, tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    made = party()
    with made.client(ledger=ledger, dataset="a", folder=folder) as client:
        offer = begun(client, made)
        share(tell(client, asked(offer, 0)))
    other = Party(made.federation, made.identities, {"a": task_of(rows_of(5))})
    with other.client(ledger=ledger, dataset="a", folder=folder) as client:
        share(tell(client, asked(offer, 1)))
        assert client.statement.epsilon <= 1.0
    assert spent(ledger) == costs(made.plan)


@pytest.mark.guarantees("fresh masks")
@kills("parties", "masks used again by a client that forgot what it said")
@edit("federated/client.py", "request.nonces.get(self.name) != current.nonce", "current.nonce is None")
def test_a_client_that_forgot_what_it_said_never_uses_masks_again() -> None:
    """Without a folder, the same keys and other data: the same request is refused, and what it may ask is unrelated."""
    made, given = party("secure_aggregation"), []
    other = Party(made.federation, made.identities, {"a": task_of(rows_of(5))})
    offer = begun(first := made.client(), made)
    replayed = asked(offer, 0)
    given.append(share(tell(first, replayed)))
    with other.client() as client:
        assert begun(client, made) == offer
        assert "nonce" in reason(tell(client, replayed))
        assert "nonce" in reason(tell(client, replace(replayed, nonces={})))
        given.append(share(tell(client, asked(offer, 0))))
    for name in given[0]:
        apart = np.abs((given[0][name] - given[1][name]).astype(float))
        # A sum with its noise has some 2^40; one word of a mask, of 64 bits, is that small with probability 2^-20.
        assert np.median(apart) > 2.0**43


def test_a_folder_has_one_client_at_a_time(tmp_path: Path) -> None:
    made = party()
    with made.client(folder=tmp_path / "memory"), pytest.raises(FederationError, match="another client uses"):
        made.client(folder=tmp_path / "memory")
    with made.client(folder=tmp_path / "memory"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match="cannot hold"):
        made.client(folder=tmp_path / "file")


@pytest.mark.guarantees("same answers")
@kills("parties", "requests of high numbers that a client forgets when it is started anew")
@edit("federated/memory.py", r"(\d{1,16})-(\d{1,16})\.request", r"(\d{1,9})-(\d{1,9})\.request")
@edit(
    "federated/memory.py",
    "if match is None or not",
    "if match is None:\n                    continue\n                if not",
)
@pytest.mark.parametrize("attempt", [10**9, 2**53 - 1])
def test_a_request_of_any_number_is_remembered_after_a_restart(attempt: int, tmp_path: Path) -> None:
    made, folder = party(clients="a"), tmp_path / "a"
    with made.client(folder=folder) as client:
        offer = begun(client, made)
        first = share(tell(client, asked(offer, 0, attempt, "a")))
    with made.client(folder=folder) as client:
        assert "the same attempt must be the same bytes" in reason(tell(client, asked(offer, 0, attempt, "a", q=2 * Q)))
        known = share(tell(client, asked(offer, 0, attempt, "a")))
        assert all(np.array_equal(first[name], known[name]) for name in first)
    next(folder.glob("runs/*/*.request")).with_name("first.request").touch(mode=0o600)
    with pytest.raises(CheckpointError, match="damaged"):
        made.client(folder=folder)


@pytest.mark.parametrize("trust", ["none", "secure_aggregation"])
def test_a_folder_without_a_ledger_still_remembers(trust: str, tmp_path: Path) -> None:
    """It cannot show that it was not set back, so that masks end with the process."""
    made = party(trust)
    with made.client(folder=tmp_path / "memory") as client:
        messages = [encode(made.offer())]
        tell(client, decode(messages[0]))
        messages += [encode(asked(digest(messages[0]), step)) for step in range(2)]
        first = [client.answer(message) for message in messages]
    with made.client(folder=tmp_path / "memory") as client:
        assert [client.answer(message) for message in messages] == first
        if trust == "none":
            assert "was given for another request" in reason(tell(client, asked(digest(messages[0]), 1, q=-Q)))
            share(tell(client, asked(digest(messages[0]), 2)))
        else:
            assert "has no ledger to show" in reason(tell(client, asked(digest(messages[0]), 2)))


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("counted", [False, True])
def test_a_statement_outlasts_the_run_and_the_process(steps: int, counted: bool, ledger: Path, tmp_path: Path) -> None:
    """Started again after its end, a client says what it has promised, and pays nothing for it."""
    made, folder = party(), tmp_path / "memory"
    options: dict[str, Any] = {"folder": folder, **({"ledger": ledger, "dataset": "a"} if counted else {})}
    for run in ("first", "second"):
        with made.client(**options) as client:
            offer = begun(client, made, run=run)
            for step in range(steps):
                share(tell(client, asked(offer, step)))
            if steps:
                share(tell(client, asked(offer, steps - 1, attempt=1, names="ab")))
            assert isinstance(tell(client, Farewell(offer, "the run is complete")), Farewell)
            promised, paid = client.statement, spent(ledger)
        assert promised.run_id == run or counted
        for _ in range(2):
            with made.client(**options) as client:
                assert client.statement == promised
                assert "is over" in reason(tell(client, asked(offer, steps)))
        assert spent(ledger) == paid
    if not counted:  # A ledger that came later knows nothing of it.
        with made.client(folder=folder, ledger=ledger, dataset="a") as client:
            assert client.statement == promised
        assert spent(ledger) == ()
    other = replace(made, federation=replace(made.federation, epsilon=0.5))
    with other.client(**options) as client, pytest.raises(PrivacyError, match="by this client as it is configured"):
        _ = client.statement


def test_without_a_folder_what_never_started_is_given_back(ledger: Path) -> None:
    made = party()
    client = made.client(ledger=ledger, dataset="a")
    offer = begun(client, made)
    share(tell(client, asked(offer, 0)))
    client.close()
    client.close()
    assert "was closed" in reason(tell(client, asked(offer, 1)))
    with Ledger(ledger) as found:
        (run,) = {entry.run for entry in found.entries() if entry.run}
        assert [entry.kind for entry in found.history(run)][-1] in ("refund", "event")
        assert "abandoned" in [entry.state for entry in found.history(run)]
