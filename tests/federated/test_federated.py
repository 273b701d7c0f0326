"""Federated runs: where they end, who may fail, what is charged, and what strangers can do.

Logistic regression on 60 rows unless said otherwise. Without noise all tests are deterministic.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from each import each
from planted import edit, kills
from wire import decode, encode, offered

import dpvb
from benchmarks.float64 import Float64Network, Float64Topics
from dpvb import federated
from dpvb.accounting.costs import Composition
from dpvb.accounting.filter import ORDERS, add, cost_units
from dpvb.core import loop
from dpvb.core.grids import grids_of
from dpvb.core.model import constant
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.errors import DataFormatError, FederationError, LostInNoiseWarning, ParameterError
from dpvb.federated.agreement import Federation
from dpvb.federated.client import Client
from dpvb.federated.keys import Identity
from dpvb.federated.messages import Accepted, Farewell, Offer, Refusal, Request, Share, digest
from dpvb.federated.server import Server
from dpvb.federated.simulation import columns_of, of_unit, warn_of_few_clients
from dpvb.federated.transport import InProcess
from dpvb.federated.trust import TRUST, Trust
from dpvb.ledger import Ledger

Handler = Callable[[bytes], bytes]
EVERY_TRUST = pytest.mark.parametrize("trust", TRUST)
DELTA, ROUNDS = 1e-5, 6


def rows(count: int = 60, width: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x_nd = rng.uniform(-0.5, 0.5, (count, width))
    return x_nd, (x_nd[:, 0] + 0.2 * rng.standard_normal(count) > 0).astype(int)


def dealt(x_nd: np.ndarray, y_n: np.ndarray, *cuts: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Consecutive rows for each client."""
    return list(zip(np.split(x_nd, cuts), np.split(y_n, cuts), strict=True))


def logistic(epsilon: float = math.inf, **options: Any) -> dpvb.LogisticRegression:
    return dpvb.LogisticRegression(epsilon=epsilon, delta=DELTA, **{"max_row_norm": 1.0, **options})


def numbers(q: Any) -> list[np.ndarray]:
    """All arrays and numbers of a q, in order."""
    if dataclasses.is_dataclass(q):
        return [part for f in dataclasses.fields(q) for part in numbers(getattr(q, f.name))]
    if isinstance(q, tuple):
        return [part for item in q for part in numbers(item)]
    return [] if q is None else [np.asarray(q, dtype=np.float64)]


def distance(one: Any, other: Any) -> float:
    """Relative L2 distance of two q's; of several arrays the largest."""
    pairs = zip(numbers(one), numbers(other), strict=True)
    scaled = ((a / (most := max(np.abs(b).max(initial=0.0), 1e-300)), b / most) for a, b in pairs)
    return max(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1.0)) for a, b in scaled)


def posterior(model: Any) -> list[np.ndarray]:
    return [model._weights.mean_d, model._weights.covariance]


def apart(model: Any, other: Any) -> float:
    pairs = zip(posterior(model), posterior(other), strict=True)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs)


@dataclasses.dataclass
class Around:
    """All parties of a run in this process; what stands between server and clients may be replaced."""

    tasks: Sequence[Any]
    federation: Federation
    clients: Mapping[str, Client]
    handlers: dict[str, Handler]

    def server(self, **options: Any) -> Server:
        return Server(self.tasks[0], self.federation, InProcess(self.handlers), **options)

    def run(self, **options: Any) -> Any:
        return self.server(**options).run(np.random.default_rng(0))

    @property
    def plan(self) -> Plan:
        federation = self.federation
        return federation.trust.planned(self.tasks[0].relative, epsilon=federation.epsilon, delta=federation.delta)

    def offer(self, run: str = "run") -> Offer:
        return offered(self.federation, self.tasks[0].model, self.plan, run)


def around(
    trust: str = "none",
    *,
    shards: Sequence[Any] | None = None,
    epsilon: float = math.inf,
    max_missing: int = 0,
    ledger: Path | None = None,
    estimator: Any = None,
) -> Around:
    """Three clients by default, a, b and c, with 10, 15 and 35 rows."""
    shards = dealt(*rows(), 10, 25) if shards is None else shards
    estimator = logistic(epsilon, n_steps=ROUNDS - 2) if estimator is None else estimator
    tasks = [estimator._task(*shard) if isinstance(shard, tuple) else estimator._task(shard) for shard in shards]
    names = "abcdefgh"[: len(tasks)]
    identities = {name: Identity.generate(name) for name in names} if trust == "secure_aggregation" else {}
    federation = Federation(
        kind=type(estimator).__name__,
        columns=columns_of(tasks[0]),
        trust=Trust(trust, len(tasks), max_missing),
        epsilon=epsilon,
        delta=DELTA,
        participants={name: identities[name].public if identities else b"" for name in names},
    )
    clients = {
        name: Client(
            name, task, federation, identity=identities.get(name), ledger=ledger, dataset=name if ledger else None
        )
        for name, task in zip(names, tasks, strict=True)
    }
    return Around(tasks, federation, clients, {name: client.answer for name, client in clients.items()})


def charged(ledger: Path, name: str) -> tuple[int, tuple[int, ...]]:
    """Number of charges of a data set, and their total at each order in the ledger's whole units."""
    with Ledger(ledger) as found:
        found.verify()
        charges = [entry for entry in found.entries() if entry.dataset == name and entry.kind in ("charge", "sole")]
    return len(charges), charges[-1].total_units[: len(ORDERS)] if charges else ()


def price(plan: Any, again: Sequence[int] = ()) -> tuple[int, tuple[int, ...]]:
    """What `charged` must find: the plan, and these releases once more."""
    total = cost_units(Composition(plan.events(), plan.neighboring_relation))
    for step in again:
        total = add(total, cost_units(Composition([plan.releases[step].event()], plan.neighboring_relation)))
    return 1 + len(again), tuple(total)


def unreachable(handler: Handler, steps: Sequence[int] | None, times: int = 10**9) -> Handler:
    """A client that cannot be reached for requests of these steps, so many times; None: for anything."""
    left = times

    def answer(data: bytes) -> bytes:
        nonlocal left
        message = decode(data)
        if left and (steps is None or (isinstance(message, Request) and message.step in steps)):
            left -= 1
            raise ConnectionError
        return handler(data)

    return answer


# --- without noise ------------------------------------------------------------------------------------------

_SPLITS = {
    "by label": lambda x, y: dealt(x[np.argsort(y, kind="stable")], np.sort(y), 20, 40),
    "unequal": lambda x, y: dealt(x, y, 1, 3, 3),
}


@pytest.mark.parametrize("split", ["by label", pytest.param("unequal", marks=pytest.mark.slow)])
def test_logistic_regression_ends_where_the_pooled_fit_does(split: str) -> None:
    """Clients that hold one class each, a client with one row and one with none: the pooled posterior to 1e-6."""
    x_nd, y_n = rows()
    options = {"alpha": 1.0, "random_state": 1}
    pooled = logistic(n_steps=200, **options).fit(x_nd, y_n)
    joined = federated.simulate(logistic(**options), _SPLITS[split](x_nd, y_n), num_rounds=60)
    assert apart(joined, pooled) < 1e-6


@pytest.mark.parametrize("trust", TRUST)
def test_the_order_of_clients_does_not_matter(trust: str) -> None:
    """Synchronous, by any trust: every bit of q."""
    shards = dealt(*rows(), 10, 25)
    found = [around(trust, shards=[shards[m] for m in order]).run() for order in ([0, 1, 2], [2, 0, 1], [1, 0, 2])]
    for other in found[1:]:
        for a, b in zip(numbers(found[0]), numbers(other), strict=True):
            assert np.array_equal(a, b) if trust != "none" else np.allclose(a, b, rtol=1e-13, atol=1e-15)


def test_trust_models_without_noise_are_one_fit() -> None:
    qs = [around(trust).run() for trust in TRUST]
    assert max(distance(q, qs[0]) for q in qs) < 1e-3  # their grids differ in width


class PlainTopics(dpvb.LDA):
    """Topics in float64, ordinary variational Bayes."""

    def _model(self, *facts: Any, **parts: Any) -> Any:
        return Float64Topics(**vars(super()._model(*facts, **parts)))


class PlainNetwork(dpvb.SigmoidBeliefNetwork):
    """Weights in float64."""

    def _model(self, width: int) -> Any:
        return Float64Network(**vars(super()._model(width)))


def topics(**options: Any) -> Any:
    how: dict[str, Any] = {"learning_offset": 0.0, "learning_decay": 0.0, "tol": 1e-9, "max_iter": 2_000}
    how |= {
        "length_rule": "resample",
        "document_length": 100.0,
        "count_power": 1.0,
        "release_word_totals": False,
        "word_weight_power": 0.0,
        "clip_scale": 1.0,
    }
    return PlainTopics(2, public_vocabulary=True, epsilon=math.inf, delta=DELTA, random_state=0, **{**how, **options})


def network(**options: Any) -> Any:
    how: dict[str, Any] = {"learning_offset": 0.0, "learning_decay": 0.0, "clip_scale": 100.0, "random_state": 0}
    return PlainNetwork(2, epsilon=math.inf, delta=DELTA, **{**how, **options})


def bags(count: int = 8, terms: int = 4) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.asarray(rng.poisson(3.0, (count, terms)) * (rng.random((count, terms)) < 0.6), dtype=np.float64)


def ones(count: int = 30, visible: int = 4) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.asarray(rng.random((count, visible)) < rng.random((count, 1)), dtype=np.float64)


UNSUPERVISED: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "topics": (topics, bags()),
    "network": (network, ones()),
}


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_full_steps_follow_the_pooled_fit_step_by_step(name: str) -> None:
    """Synchronous, ρ = 1, unequal clients: the pooled fit's q after every number of steps."""
    make, matrix = UNSUPERVISED[name]
    shards = np.split(matrix, [3, 5])
    once = len(make(n_steps=2)._task(matrix).relative) - 2
    for steps in (1, 3):
        joined, pooled = federated.simulate(make(), shards, num_rounds=once + steps), make(n_steps=steps).fit(matrix)
        assert joined.n_iter_ == pooled.n_iter_
        assert distance(joined._q, pooled._q) < 1e-9


def test_the_end_of_a_run_is_a_fixed_point_of_the_pooled_step() -> None:
    """Topics: from where a run ends, a pooled step moves q by less than 1e-6."""
    matrix = bags()
    joined = federated.simulate(topics(), np.split(matrix, [3, 5]), num_rounds=60)
    task = topics(n_steps=2)._task(matrix)
    blocks = {key: block for key, block in joined._fitted_model.blocks.items() if block.phase == "step"}
    plan = Plan([Release(blocks, Mechanism(FullBatch(), 0.0))])
    started, wall, rng = _begun(joined._fitted_model, joined._q), Wall(task.source, plan), np.random.default_rng(0)
    moved, _ = loop.fit(started, wall, plan, rho=constant(1.0), rng=rng)
    assert distance(moved.lambda_vk, joined._q.lambda_vk) < 1e-6


def _begun(model: Any, q: Any) -> Any:
    """The model, which starts at q."""

    class Begun(type(model)):  # type: ignore[misc]
        def init(self, rng: np.random.Generator) -> Any:
            return q

    return Begun(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})


_X, _Y = rows(40)
_COUNTS = np.random.default_rng(3).poisson(2.0, 40)
_GIVEN: dict[str, Any] = {"epsilon": math.inf, "delta": DELTA, "random_state": 0, "n_steps": 4}
FITS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "first order": (lambda: logistic(n_steps=4), {"X": _X, "y": _Y}),
    "diagonal": (lambda: logistic(n_steps=4, covariance="diagonal"), {"X": _X, "y": _Y}),
    "binomial": (
        lambda: dpvb.BinomialRegression(max_trials=3, max_row_norm=1.0, **_GIVEN),
        {"X": _X, "y": np.minimum(_COUNTS, 3), "trials": np.full(40, 3)},
    ),
    "counts": (
        lambda: dpvb.NegativeBinomialRegression(dispersion=2.0, max_count=9, max_row_norm=1.0, **_GIVEN),
        {"X": _X, "y": np.minimum(_COUNTS, 9)},
    ),
    "topics": (lambda: topics(n_steps=4), {"X": bags()}),
    "network": (lambda: network(n_steps=4), {"X": ones()}),
}


@pytest.mark.parametrize("name", FITS)
def test_one_client_is_the_ordinary_fit(name: str) -> None:
    """For every estimator: the q of the fit with as many steps."""
    make, data = FITS[name]
    ordinary = make().fit(**data)
    alone = federated.simulate(make(), [data])
    assert alone.n_iter_ == ordinary.n_iter_
    found = [tuple(posterior(model)) if "y" in data else model._q for model in (alone, ordinary)]
    assert distance(*found) < 1e-8


def test_a_client_may_be_the_unit() -> None:
    """All that a client has counts once: the fit of the pooled rows with a person for each client."""
    x_nd, y_n = rows()
    shards = dealt(x_nd, y_n, 10, 25)
    joined = federated.simulate(logistic(n_steps=8), shards, unit="client")
    person = np.repeat([0, 1, 2], [10, 15, 35])
    pooled = logistic(n_steps=8).fit(x_nd, y_n, group=person)
    plain = logistic(n_steps=8).fit(x_nd, y_n)
    assert apart(joined, pooled) < 1e-8
    assert apart(joined, plain) > 1e-2
    assert joined.privacy_.unit == "client"


def of_clients(number: int, trust: str, epsilon: float = 1.0) -> tuple[dpvb.LogisticRegression, Any, Federation]:
    """A run in which each of so many clients is a unit; the task has no rows."""
    model = logistic(epsilon)
    task = of_unit(model._task(np.empty((0, 2)), np.empty(0), group=np.empty(0, dtype=int)), "client")
    participants = {f"{name}": Identity.generate(f"{name}").public for name in range(number)}
    place = Trust(trust, number, 0, None)
    return model, task, Federation("LogisticRegression", columns_of(task), place, epsilon, DELTA, participants)


def lost(number: int, trust: str, epsilon: float = 1.0) -> str:
    """The warning of a run of so many clients; empty: there is none."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warn_of_few_clients(*of_clients(number, trust, epsilon), stacklevel=2)
    return "".join(str(one.message) for one in given)


@EVERY_TRUST
def test_too_few_clients_as_units_are_told_before_the_charge(trust: Any, ledger: Path) -> None:
    shards = dealt(*rows(), 20, 40)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LostInNoiseWarning)
        with pytest.raises(LostInNoiseWarning, match="is expected for 3 clients, each of them a unit"):
            federated.simulate(
                logistic(1.0, n_steps=3), shards, trust=trust, unit="client", accounts=[(ledger, "a")] * 3
            )
        with Ledger(ledger) as books:
            assert [entry.kind for entry in books.entries()] == ["dataset"] * 3
        federated.simulate(logistic(1.0, n_steps=3), shards, trust=trust)  # The number of rows is private.
        federated.simulate(logistic(n_steps=3), shards, trust=trust, unit="client")


def test_the_number_of_clients_that_is_needed_follows_the_noise_of_the_sum() -> None:
    """Noise over signal is σ/M with a trusted server, and √M σ/M where each client adds its own."""
    needed = {}
    for trust in TRUST:
        number = int(re.findall(r"thus ([\d,]+) clients", lost(10, trust, 8.0))[0].replace(",", ""))
        assert lost(round(number * 1.02) + 1, trust, 8.0) == ""
        assert lost(math.floor(number * 0.98), trust, 8.0)
        needed[trust] = number
    assert needed["trusted_server"] < needed["secure_aggregation"] < 1.2 * needed["trusted_server"]
    assert needed["none"] == pytest.approx(needed["trusted_server"] ** 2, rel=0.03)


# --- who may fail -------------------------------------------------------------------------------------------


@pytest.mark.guarantees("aborted runs")
@EVERY_TRUST
def test_a_client_that_never_answers_ends_the_run(trust: str, ledger: Path) -> None:
    """Nobody is charged who did not accept, and whoever did is charged the plan once."""
    made = around(trust, epsilon=1.0, ledger=ledger)
    made.handlers["b"] = unreachable(made.handlers["b"], None)
    with pytest.raises(FederationError, match=r"2 of 3 clients take part.*b: it could not be reached"):
        made.run()
    assert charged(ledger, "b") == (0, ())
    for name in "ac":
        assert charged(ledger, name) == price(made.plan)


@pytest.mark.guarantees("requests")
@EVERY_TRUST
def test_a_client_that_is_back_soon_costs_nothing(trust: str, ledger: Path) -> None:
    """Every other answer is lost: the same bytes are sent again, the plan is charged once, and q is the same."""
    quiet = around(trust)
    faulty = around(trust)
    for name in "ac":
        faulty.handlers[name] = _sometimes(faulty.handlers[name])
    for one, other in zip(numbers(quiet.run()), numbers(faulty.run()), strict=True):
        assert np.array_equal(one, other)
    made = around(trust, epsilon=1.0, ledger=ledger)
    made.handlers["b"] = _sometimes(made.handlers["b"])
    server = made.server()
    server.run(np.random.default_rng(0))
    for name in "abc":
        assert charged(ledger, name) == price(made.plan)
    assert server.statement([]).epsilon <= 1.0


def _sometimes(handler: Handler) -> Handler:
    """A client whose every other answer is lost on its way."""
    turn = 0

    def answer(data: bytes) -> bytes:
        nonlocal turn
        turn += 1
        given = handler(data)
        if turn % 2:
            raise ConnectionError
        return given

    return answer


@pytest.mark.guarantees("aborted runs")
@EVERY_TRUST
@pytest.mark.parametrize("step", [0, pytest.param(1, marks=pytest.mark.slow), 3, ROUNDS - 1])
def test_a_client_that_leaves_ends_a_run_that_may_miss_none(trust: str, step: int, ledger: Path) -> None:
    """At any step: the error names it, nothing more is asked, and everybody was charged the plan, once."""
    made = around(trust, epsilon=1.0, ledger=ledger)
    made.handlers["b"] = unreachable(made.handlers["b"], range(step, ROUNDS))
    with pytest.raises(FederationError, match=r"2 of 3 clients take part.*b: it could not be reached"):
        made.run()
    for name in "abc":
        assert charged(ledger, name) == price(made.plan)
    for client in made.clients.values():
        assert isinstance(decode(client.answer(encode(made.offer("next")))), Accepted)  # the old run is over


@pytest.mark.guarantees("attempts")
@kills("parties", "a sum with a share missing taken for the sum", "3")
@edit("federated/server.py", "if len(shares) == len(present) or not trust.secure:", "if shares:")
@pytest.mark.parametrize("step", [0, 1, 3, ROUNDS - 1])
def test_secure_aggregation_goes_on_without_a_client_that_may_be_missing(step: int, ledger: Path) -> None:
    """The attempt with the lost client is another release of those who stay, and charged to them alone."""
    made = around("secure_aggregation", epsilon=1.0, max_missing=1, ledger=ledger)
    made.handlers["b"] = unreachable(made.handlers["b"], range(step, ROUNDS))
    server = made.server()
    server.run(np.random.default_rng(0))
    assert charged(ledger, "b") == price(made.plan)
    for name in "ac":
        assert charged(ledger, name) == price(made.plan, [step])
        assert made.clients[name].statement.epsilon > made.plan.epsilon(DELTA, "renyi") * 1.005
    stated = server.statement([])
    assert stated.epsilon == made.clients["a"].statement.epsilon
    assert stated.epsilon > made.clients["b"].statement.epsilon


def test_what_is_left_without_a_client_that_may_be_missing_is_the_fit_of_the_others() -> None:
    """Lost before its first release: q of the other two, to what the width of the grid makes."""
    shards = dealt(*rows(), 10, 25)
    made = around("secure_aggregation", max_missing=1)
    made.handlers["b"] = unreachable(made.handlers["b"], range(ROUNDS))
    others = around("secure_aggregation", shards=[shards[0], shards[2]])
    assert distance(made.run(), others.run()) < 1e-3
    assert distance(around("secure_aggregation").run(), others.run()) > 1e-2


@pytest.mark.parametrize("step", [0, 1, 3])
def test_without_trust_a_run_goes_on_without_a_client_that_may_be_missing(step: int, ledger: Path) -> None:
    """One that is lost before it spoke on all that a step reads is left out; later, its last factor stays."""
    made = around("none", max_missing=1, epsilon=1.0, ledger=ledger)
    made.handlers["b"] = unreachable(made.handlers["b"], range(step, ROUNDS))
    made.run()
    for name in "abc":
        assert charged(ledger, name) == price(made.plan)
    refused = around("none")
    refused.handlers["b"] = unreachable(refused.handlers["b"], range(step, ROUNDS))
    with pytest.raises(FederationError, match=r"2 of 3 clients take part, and the plan tolerates 0 missing. b: "):
        refused.run()


def test_a_client_that_comes_back_is_asked_again() -> None:
    """Away for one round in the middle: what it missed is forgone, and its later scores bring the fit back."""
    far = []
    for steps in ([2], range(2, ROUNDS)):
        made = around("none", max_missing=1)
        weights = made.tasks[0].model.weights
        whole = weights(made.run()).mean_d
        made = around("none", max_missing=1)
        made.handlers["b"] = unreachable(made.handlers["b"], list(steps))
        far.append(float(np.linalg.norm(weights(made.run()).mean_d - whole) / np.linalg.norm(whole)))
    assert far[0] < 0.2 * far[1]


@pytest.mark.parametrize("step", [0, 2])
def test_a_trusted_server_goes_on_with_the_sum_of_the_others(step: int) -> None:
    shards = dealt(*rows(), 10, 25)
    made = around("trusted_server", max_missing=1)
    made.handlers["b"] = unreachable(made.handlers["b"], range(step, ROUNDS))
    q = made.run()
    if step == 0:
        others = around("trusted_server", shards=[shards[0], shards[2]])
        assert distance(q, others.run()) < 1e-3


def test_lost_in_every_attempt(ledger: Path) -> None:
    """Each attempt loses another one: refused by their number, and by the number of attempts."""
    shards = dealt(*rows(), 10, 20, 30, 40)
    made = around("secure_aggregation", shards=shards, max_missing=3)
    for name, times in (("b", 0), ("c", 1), ("d", 2)):
        made.handlers[name] = _from_attempt(made.handlers[name], times)
    with pytest.raises(FederationError, match="Step 3 failed in 3 attempts"):
        made.run()
    made = around("secure_aggregation", shards=shards, max_missing=1)
    for name, times in (("b", 0), ("c", 1)):
        made.handlers[name] = _from_attempt(made.handlers[name], times)
    with pytest.raises(FederationError, match=r"3 of 5 clients take part, and the plan tolerates 1 missing"):
        made.run()


def _from_attempt(handler: Handler, attempt: int) -> Handler:
    """A client that is gone from an attempt at step 2 on."""

    def answer(data: bytes) -> bytes:
        message = decode(data)
        if isinstance(message, Request) and message.step >= 2 and message.attempt >= attempt:
            raise ConnectionError
        return handler(data)

    return answer


def test_a_client_that_says_nothing_is_waited_for_no_longer_than_the_timeout() -> None:
    """Nor is its answer that the run is over, in more polls than take 10 seconds where a transport waits."""
    made = around("none")
    server = made.server(timeout=0.05)
    transport = server._asking.transport
    send, poll, polls = transport.send, transport.poll, list[bool]()
    transport.send = lambda name, data: (polls.clear(), send(name, data) if name != "b" else -1)[1]
    transport.poll = lambda timeout: (polls.append(True), poll(timeout))[1]
    with pytest.raises(FederationError, match=r"b: no answer within 0\.05 seconds"):
        server.run(np.random.default_rng(0))
    assert len(polls) == 10 + len(made.handlers) - 1


# --- hostile clients ----------------------------------------------------------------------------------------


def _share_with(change: Callable[[Share], Any]) -> Callable[[Handler], Handler]:
    """A client that changes its shares of step 2 before they leave it."""

    def wrap(handler: Handler) -> Handler:
        def answer(data: bytes) -> bytes:
            found, message = decode(handler(data)), decode(data)
            if isinstance(found, Share) and isinstance(message, Request) and message.step == 2:
                changed = change(found)
                return changed if isinstance(changed, bytes) else encode(changed)
            return encode(found)

        return answer

    return wrap


def _arrays(change: Callable[[np.ndarray], Any]) -> Callable[[Share], Any]:
    return lambda share: Share(share.request, {n: change(a) for n, a in share.arrays.items()}, share.private)


_HOSTILE: dict[str, Callable[[Share], Any]] = {
    "longer": _arrays(lambda a: np.concatenate([a.ravel(), [1]])),
    "another shape": _arrays(lambda a: a.reshape((1, *a.shape))),
    "empty": _arrays(lambda a: a[:0]),
    "a block less": lambda share: Share(share.request, dict(list(share.arrays.items())[1:]), True),
    "a block more": lambda share: Share(share.request, {**share.arrays, "more": np.zeros(1, dtype=np.int64)}, True),
    "no blocks": lambda share: Share(share.request, {}, True),
    "another request": lambda share: Share(digest(b"another"), share.arrays, True),
    "floats": lambda share: encode(share).replace(b'"<i8"', b'"<f8"'),
    "unsigned": lambda share: encode(share).replace(b'"<i8"', b'"<u8"'),
    "cut": lambda share: encode(share)[:-3],
    "too long": lambda share: encode(share) + b"\0",
    "noise": lambda share: np.random.default_rng(0).bytes(500),
    "nothing": lambda share: b"",
    "a refusal": lambda share: Refusal(share.request, "no"),
    "a farewell": lambda share: Farewell(share.request, "no"),
    "an acceptance": lambda share: Accepted(share.request, "b", bytes(32)),
}


@pytest.mark.parametrize(("how", "trust"), [*zip(_HOSTILE, itertools.cycle(TRUST), strict=False)])
def test_an_answer_that_is_no_share_ends_the_run(trust: str, how: str) -> None:
    made = around(trust)
    made.handlers["b"] = _share_with(_HOSTILE[how])(made.handlers["b"])
    with pytest.raises(FederationError, match=r"2 of 3 clients take part.*b: "):
        made.run()


@pytest.fixture(scope="module")
def without_b() -> list[np.ndarray]:
    """What a run learns that b leaves before step 2."""
    gone = around("secure_aggregation", max_missing=1)
    gone.handlers["b"] = unreachable(gone.handlers["b"], range(2, ROUNDS))
    return numbers(gone.run())


@pytest.mark.parametrize("how", _HOSTILE)
def test_an_answer_that_is_no_share_costs_an_attempt_where_it_may_be_missing(
    how: str, without_b: list[np.ndarray]
) -> None:
    made = around("secure_aggregation", max_missing=1)
    made.handlers["b"] = _share_with(_HOSTILE[how])(made.handlers["b"])
    for one, other in zip(numbers(made.run()), without_b, strict=True):
        assert np.array_equal(one, other)


@EVERY_TRUST
def test_shares_beyond_any_sum_end_the_run(trust: str) -> None:
    """Random words of the right form are no sum of statistics; nobody goes on from them.

    Under masks each of 43 entries lies in the room for sums by chance, with probability 1/2: false alarms below 2e-13.
    """
    rng = np.random.default_rng(0)
    made = around(trust, shards=dealt(*rows(width=40), 10, 25))
    words = _arrays(lambda a: rng.integers(-(2**63), 2**63, a.shape, dtype=np.int64))
    made.handlers["b"] = _share_with(words)(made.handlers["b"])
    with pytest.raises(FederationError, match=r"Step 3: .* adds up to no sum of statistics"):
        made.run()


def test_a_share_of_somebody_else_does_not_pass_under_masks() -> None:
    """Twice the share of one client, none of another: the masks do not cancel."""
    made = around("secure_aggregation", shards=dealt(*rows(width=40), 10, 25))
    others = made.handlers["a"]
    own = made.handlers["b"]
    made.handlers["b"] = lambda data: (others if isinstance(decode(data), Request) else own)(data)
    with pytest.raises(FederationError, match="adds up to no sum of statistics"):
        made.run()


_ACCEPTANCES: dict[str, Callable[[Accepted], Any]] = {
    "another name": lambda found: dataclasses.replace(found, client="a"),
    "another offer": lambda found: dataclasses.replace(found, offer=digest(b"another")),
    "no noise told": lambda found: dataclasses.replace(found, facts={}),
    "a list": lambda found: dataclasses.replace(found, facts={"multipliers": [1.0] * ROUNDS}),
    "whole numbers": lambda found: dataclasses.replace(found, facts={"multipliers": (1,) * ROUNDS}),
    "too few": lambda found: dataclasses.replace(found, facts={"multipliers": (1.0,)}),
    "NaN": lambda found: dataclasses.replace(found, facts={"multipliers": (math.nan,) * ROUNDS}),
    "negative": lambda found: dataclasses.replace(found, facts={"multipliers": (-1.0,) * ROUNDS}),
    "infinite": lambda found: dataclasses.replace(found, facts={"multipliers": (math.inf,) * ROUNDS}),
    "a share": lambda found: Share(found.offer, {}, True),
    "bytes": lambda found: b"dpvb",
}


@pytest.mark.parametrize("how", _ACCEPTANCES)
def test_an_acceptance_that_is_none_ends_the_run(how: str) -> None:
    made, asked = around(), []
    own = made.handlers["b"]

    def answer(data: bytes) -> bytes:
        found = decode(own(data))
        asked.append(type(decode(data)))
        given = _ACCEPTANCES[how](found) if isinstance(found, Accepted) else found
        return given if isinstance(given, bytes) else encode(given)

    made.handlers["b"] = answer
    with pytest.raises(FederationError, match=r"2 of 3 clients take part.*b: "):
        made.run()
    assert Request not in asked
    assert isinstance(decode(own(encode(made.offer("next")))), Accepted)  # and it was told that the run is over


# --- hostile servers ----------------------------------------------------------------------------------------


@pytest.mark.guarantees("requests")
@kills("crashes", "a request known by all but those who are asked", "none")
@edit(
    "federated/client.py",
    "digest = self._shared.digest(data := bytes(data))\n",
    "digest = self._shared.digest(data := bytes(data))\n"
    "        try:\n"
    "            found = messages.decode(data, self._form_of_q.classes)\n"
    "        except DpvbError:\n"
    "            found = None\n"
    "        if isinstance(found, Request):\n"
    "            found = Request(found.offer, found.step, found.attempt, (self.name,), found.q)\n"
    "            digest = messages.digest(messages.encode(found, self._form_of_q.classes))\n",
)
@kills("crashes", "a repeated request answered with fresh noise", "none")
@edit(
    "federated/client.py",
    "reply = self._memory.reply(digest)\n                return",
    "reply = None\n                return",
)
@edit("federated/client.py", "return attempts[min(attempts)] != digest", "return True")
@edit(
    "federated/membership.py",
    "repeated = digest in memory.begun(self.offer).get(request.step, {}).values()",
    "repeated = False",
)
@pytest.mark.parametrize("trust", TRUST)
def test_what_no_honest_server_asks_is_refused_for_nothing(trust: str, ledger: Path) -> None:
    """Other steps, other people, another q, before and after a run: refused, and charged to nobody."""
    made = around(trust, epsilon=1.0, ledger=ledger)
    client, q = made.clients["b"], made.tasks[0].model.init(np.random.default_rng(0))
    offer = encode(made.offer())
    bound = digest(offer)

    def refused(message: Any, text: str) -> None:
        answer = decode(client.answer(message if isinstance(message, bytes) else encode(message)))
        assert isinstance(answer, Refusal)
        assert text in answer.reason

    every = ("a", "b", "c")
    refused(Request(bound, 0, 0, every, q), "belongs to no offer")
    for changes in (
        {"trust": next(name for name in TRUST if name != trust)},
        {"model": {"class": "another"}},
        {"columns": "others"},
        {"multipliers": (1.0,)},
        {"unit": "person"},
        {"neighboring_relation": "replace_one"},
        {"version": "0.0.0"},
        {"max_missing": 2},
        {"max_colluding": 2},
        {"participants": {"a": b"", "b": b""}},
    ):
        refused(dataclasses.replace(made.offer(), **changes), "differs")
    assert charged(ledger, "b") == (0, ())
    accepted = decode(client.answer(offer))
    assert isinstance(accepted, Accepted)

    def asked(step: int, attempt: int, names: tuple[str, ...], q: Any) -> Request:
        return Request(bound, step, attempt, names, q, {"b": accepted.nonce} if "b" in names else {})

    for wrong in (None, 1.0, {"a": 1}, np.zeros(3), (q, q), b"bytes", "text"):
        refused(asked(0, 0, every, wrong), "q is not one of this model's")
    refused(asked(ROUNDS, 0, every, q), f"The plan has {ROUNDS} releases")
    refused(asked(0, 0, ("a", "c"), q), "not for 'b'")
    refused(asked(0, 0, ("b", "stranger"), q), "not a participant")
    if trust == "secure_aggregation":
        refused(asked(0, 0, ("b", "c"), q), "too little noise together")
        for nonces in ({}, {"b": bytes(32)}, {"a": accepted.nonce}):
            refused(dataclasses.replace(asked(0, 0, every, q), nonces=nonces), "the nonce that this client gave")
    refused(dataclasses.replace(asked(0, 0, every, q), offer=digest(b"another")), "belongs to no offer")
    refused(b"dpvb" + bytes(40), "")
    assert charged(ledger, "b") == price(made.plan)
    first = client.answer(encode(asked(0, 0, every, q)))
    assert isinstance(decode(first), Share)
    assert client.answer(encode(asked(0, 0, every, q))) == first
    moved = _moved(q)
    refused(asked(0, 0, every, moved), "the same attempt must be the same bytes")
    if trust != "secure_aggregation":
        refused(asked(0, 0, ("b",), q), "the same attempt must be the same bytes")
    assert isinstance(decode(client.answer(encode(asked(1, 0, every, q)))), Share)
    refused(asked(0, 1, every, q), "release 1 is the newest one")
    assert charged(ledger, "b") == price(made.plan)
    client.answer(encode(Farewell(bound, "over")))
    refused(asked(2, 0, every, q), "is over")
    assert charged(ledger, "b") == price(made.plan)


def _moved(q: Any) -> Any:
    """Another q of the same form."""
    return dataclasses.replace(
        q,
        **{
            f.name: getattr(q, f.name) + 0.125
            for f in dataclasses.fields(q)
            if isinstance(getattr(q, f.name), np.ndarray) and getattr(q, f.name).size
        },
    )


@pytest.mark.guarantees("attempts")
@kills("crashes", "another attempt at a federated release for nothing", "none")
@edit(
    "federated/membership.py",
    "journal = None if self._run is None else self._run.repeated(request.step, digest)",
    "journal = None",
)
@pytest.mark.parametrize("trust", ["none", "secure_aggregation"])
def test_another_attempt_is_another_release(trust: str, ledger: Path) -> None:
    """Asked again in other words: other noise, other masks, and a charge of its own for everybody who answers."""
    made = around(trust, epsilon=1.0, max_missing=int(trust != "none"), ledger=ledger)
    q = made.tasks[0].model.init(np.random.default_rng(0))
    offer = encode(made.offer())
    drawn = {name: decode(client.answer(offer)).nonce for name, client in made.clients.items()}
    first = encode(Request(digest(offer), 0, 0, ("a", "b", "c"), q, drawn))
    second = encode(Request(digest(offer), 0, 1, ("a", "c"), q, {name: drawn[name] for name in "ac"}))
    every = [decode(client.answer(first)) for client in made.clients.values()]
    again = [decode(made.clients[name].answer(second)) for name in "ac"]
    assert all(isinstance(share, Share) for share in (*every, *again))
    for name in "ac":
        assert charged(ledger, name) == price(made.plan, [0])
    assert charged(ledger, "b") == price(made.plan)
    shared = {name: every[0].arrays[name] == again[0].arrays[name] for name in every[0].arrays}
    assert not any(equal.any() for equal in shared.values())


@pytest.mark.guarantees("attempts")
def test_two_requests_differ_by_their_participants_alone() -> None:
    """Nobody finds out a client's share from sums with it and without it: each has masks and noise of its own."""
    made = around("secure_aggregation", max_missing=1, epsilon=1.0)
    q = made.tasks[0].model.init(np.random.default_rng(0))
    offer = encode(made.offer())
    sums = []
    drawn = {name: decode(client.answer(offer)).nonce for name, client in made.clients.items()}
    for attempt, names in ((0, ("a", "b", "c")), (1, ("a", "c"))):
        request = encode(Request(digest(offer), 0, attempt, names, q, {name: drawn[name] for name in names}))
        shares = [decode(made.clients[name].answer(request)) for name in names]
        sums.append({n: sum(share.arrays[n].astype(object) for share in shares) for n in shares[0].arrays})
    release, party = made.plan.releases[0], made.federation.trust.party
    grids = grids_of(release, None, party)
    for name, block in release.blocks.items():
        for m in range(2):  # each sum by itself is one: its masks cancel
            part = (sums[m][name] + 2**63) % 2**64 - 2**63
            assert np.abs(part.astype(np.float64)).max() * grids[name].step < 100 * block.bound + 12 * 1.5 * (
                release.noise_std(name)
            )
        apart = ((sums[0][name] - sums[1][name]) + 2**63) % 2**64 - 2**63
        assert (np.abs(apart.astype(np.float64)) * grids[name].step > release.noise_std(name) / 1e4).all()


# --- simulate -----------------------------------------------------------------------------------------------

_GOOD = {"shards": dealt(*rows(), 10, 25), "num_rounds": ROUNDS}
_BAD: list[tuple[dict[str, Any], str]] = [
    ({"estimator": object()}, "estimator must be one of this package's"),
    ({"estimator": dpvb.LogisticRegression}, "estimator must be one of this package's"),
    ({"shards": []}, "shards must be a list"),
    ({"shards": None}, "shards must be a list"),
    ({"shards": "abc"}, "shards must be a list"),
    ({"shards": {"X": rows()[0]}}, "shards must be a list"),
    ({"shards": [*dealt(*rows(), 10), (np.zeros((3, 3)), np.zeros(3))]}, "same columns"),
    ({"trust": "secagg"}, "trust must be"),
    ({"trust": None}, "trust must be"),
    ({"trust": "secure_aggregation", "shards": dealt(*rows())}, "num_clients must be at least 2"),
    ({"num_rounds": 0}, "num_rounds"),
    ({"num_rounds": 2}, "num_rounds must be at least 3"),
    ({"num_rounds": 2.5}, "num_rounds"),
    ({"num_rounds": "6"}, "num_rounds"),
    ({"epsilon": 0.0}, "epsilon"),
    ({"epsilon": -1.0}, "epsilon"),
    ({"epsilon": math.nan}, "epsilon"),
    ({"epsilon": "1"}, "epsilon"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"delta": math.nan}, "delta"),
    ({"max_missing": -1}, "max_missing"),
    ({"max_missing": 3}, "max_missing"),
    ({"max_missing": 1.5}, "max_missing"),
    ({"max_colluding": 1}, "max_colluding must be 0 with trust='none'"),
    ({"trust": "secure_aggregation", "max_colluding": -1}, "max_colluding"),
    ({"trust": "secure_aggregation", "max_missing": 2}, "max_missing must be at most 1 of 3"),
    (
        {"trust": "secure_aggregation", "max_missing": 1, "max_colluding": 2},
        "max_colluding must be at most 1 where 2 of 3",
    ),
    ({"unit": "person"}, "unit must be"),
    ({"unit": None}, "unit must be"),
    ({"accounts": []}, "accounts must be a list"),
    ({"accounts": [(None, None)]}, "accounts must name a ledger"),
    ({"estimator": logistic(1.0, noise_multiplier=1.0)}, "noise_multiplier must be None"),
    ({"run": dpvb.Run(ledger="budget.db", dataset="a"), "accounts": None}, "ledger must be None"),
    ({"run": dpvb.Run(checkpoint="folder"), "accounts": None}, "checkpoint must be None"),
    ({"estimator": logistic(1.0, batch_size=5)}, "batch_size must be None"),
    ({"estimator": logistic(1.0, sampling_prob=0.5), "trust": "secure_aggregation"}, "sampling_prob"),
    ({"estimator": logistic(1.0, sampling_prob=2.0)}, "sampling_prob"),
    ({"estimator": logistic(1.0, random_state="seed")}, "random_state"),
]


@each(("changes", "message"), _BAD, ids=[str(m) for m in range(len(_BAD))])
def test_bad_parameters_are_refused_for_nothing(changes: dict[str, Any], message: str, ledger: Path) -> None:
    """A ParameterError that names the parameter and the way out; no client has been charged."""
    given = {"estimator": logistic(1.0), "accounts": [(ledger, name) for name in "abc"], **_GOOD, **changes}
    with pytest.raises(ParameterError, match=message):
        federated.simulate(given.pop("estimator"), given.pop("shards"), **given)
    for name in "abc":
        assert charged(ledger, name) == (0, ())


@pytest.mark.parametrize(
    "shard",
    [
        (np.zeros((4, 2)), np.zeros(3)),
        {"X": np.zeros((4, 2))},
        (np.zeros((4, 2, 2)), np.zeros(4)),
        np.zeros((4, 2)),
        ("text", "text"),
    ],
)
def test_shards_that_are_no_data_are_refused_for_nothing(shard: Any, ledger: Path) -> None:
    accounts = [(ledger, name) for name in "abc"]
    shards = [*dealt(*rows(), 30), shard]
    with pytest.raises((ParameterError, DataFormatError)):
        federated.simulate(logistic(1.0), shards, num_rounds=ROUNDS, accounts=accounts)
    for name in "abc":
        assert charged(ledger, name) == (0, ())


def test_groups_belong_to_examples() -> None:
    x_nd, y_n = rows()
    shard = {"X": x_nd, "y": y_n, "group": np.arange(60) // 2}
    with pytest.raises(ParameterError, match="group must be None with unit='client'"):
        federated.simulate(logistic(), [shard, shard], unit="client")
    joined = federated.simulate(logistic(n_steps=4), [shard])
    assert apart(joined, logistic(n_steps=4).fit(**shard)) < 1e-8


def test_an_account_without_room_ends_the_run_before_anything_is_read(ledger: Path) -> None:
    """One client's ledger has no room: no client releases, and the others keep what they were charged."""
    with Ledger(ledger) as found:
        found.register("poor", unit="row", neighboring_relation="add_or_remove_one", epsilon=0.1, delta=DELTA)
    accounts = [(ledger, name) for name in ("a", "poor", "c")]
    with pytest.raises(FederationError, match=r"client-1: .*poor"):
        federated.simulate(logistic(1.0), _GOOD["shards"], num_rounds=ROUNDS, accounts=accounts)
    assert charged(ledger, "poor") == (0, ())


@EVERY_TRUST
def test_every_client_is_told_its_own_guarantee(trust: str, ledger: Path) -> None:
    """ε and δ of each client, what it rests on, how much of the noise each adds, and the ledger's entry."""
    progressed: list[int] = []
    accounts = [(ledger, name) for name in "abc"]
    model = federated.simulate(
        logistic(),
        _GOOD["shards"],
        trust=trust,
        num_rounds=ROUNDS,
        epsilon=0.9,
        delta=DELTA,
        accounts=accounts,
        run=dpvb.Run(progress=lambda t, plan: progressed.append(t)),
    )
    assert progressed == list(range(1, ROUNDS + 1))
    assert model.epsilon == 0.9
    words = {
        "none": "all parties, including the server and the other clients",
        "secure_aggregation": "each adds a part of the noise, std 1/sqrt(2) of the whole",
        "trusted_server": "all parties except the server",
    }[trust]
    assert len(model.client_statements_) == 3
    for statement, name in zip(model.client_statements_, "abc", strict=True):
        assert 0.85 < statement.epsilon <= 0.9
        assert statement.delta == DELTA
        assert words in " ".join(str(statement).split())
        assert statement.charge is not None
        assert statement.charge.dataset == name
        assert statement.secret_noise
        assert charged(ledger, name)[0] == 1
    assert 0.85 < model.privacy_.epsilon <= 0.9
    assert words in " ".join(str(model.privacy_).split())
    assert model.predict(rows()[0]).shape == (60,)


def test_simulated_runs_follow_their_random_state() -> None:
    shards = np.split(bags(), [3, 5])
    found = [federated.simulate(topics(n_steps=2, max_iter=5), shards)._q.lambda_vk for _ in range(2)]
    assert np.array_equal(*found)
