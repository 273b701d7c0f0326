"""All parties of a federated run in one process: the same clients, server, messages and keys as in a real one."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, TypeVar

import numpy as np
from sklearn.base import clone

from dpvb.estimators.base import PrivateEstimator, Task, generator
from dpvb.estimators.private_words import check_known
from dpvb.federated.agreement import Federation
from dpvb.federated.client import Client
from dpvb.federated.keys import Identity
from dpvb.federated.server import Server
from dpvb.federated.shared import Shared
from dpvb.federated.transport import InProcess
from dpvb.federated.trust import MOST_CLIENTS, Trust
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import LostInNoiseWarning, ParameterError, check_choice, check_integer
from dpvb.results.declared import declared
from dpvb.results.expected_accuracy import ExpectedAccuracy, least
from dpvb.runs.run import Run
from dpvb.runs.stops import notebook_line

UNITS = ("example", "client")
# Rows of each client in the forecast of its accuracy: so many that what differs between rows is far below the noise.
_MANY_ROWS = 1e4

_Estimator = TypeVar("_Estimator", bound=PrivateEstimator)


def simulate(
    estimator: _Estimator,
    shards: Sequence[Any],
    *,
    trust: Literal["none", "secure_aggregation", "trusted_server"] = "none",
    num_rounds: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    max_missing: int = 0,
    max_colluding: int | None = None,
    unit: Literal["example", "client"] = "example",
    accounts: Sequence[tuple[Any, str]] | None = None,
    run: Run | None = None,
) -> _Estimator:
    """Fit an estimator over several owners' data, all in this process, and return it.

    Every client has its own wall and its own noise, and each client's data are protected by (epsilon, delta): data sets
    of different people compose in parallel.

    Args:
        estimator: a PrivateEstimator; its parameters are public and the same for all clients. It is fitted in place.
        shards: private data of each client: X, a tuple (X, y), or a dict of what the estimator's fit takes.
        trust: "none" (each client adds all of its noise), "secure_aggregation" (the server gets only sums over clients,
            each of which adds a part of the noise) or "trusted_server" (it sees all sums and adds the noise).
        num_rounds: communications with each client, first and last releases included; None: as the estimator plans.
        epsilon, delta: the budget of each client; None: the estimator's.
        max_missing: clients that may be missing; under secure aggregation their noise is not counted on.
        max_colluding: under secure aggregation, clients that may, besides, work against the others: the noise of those
            is enough without theirs. None: 1, for a client knows its own noise, and a single curious one counts.
        unit: what is protected: "example", one example (or person, with group=) at one client; "client", all that a
            client has, with a LostInNoiseWarning before the charge if noise hides the result for this many clients.
        accounts: (ledger, data set) of each client, which it charges before it looks; None: not recorded.
        run: `dpvb.Run` whose progress is called with (step, plan) after each round; it has no ledger, data set or
            checkpoint, since each client counts for itself. None (default): the run of the block around the call.

    Returns:
        The estimator; `privacy_` holds for every client, `client_statements_` has the guarantee of each client.

    Raises:
        ParameterError, DataFormatError: for public faults, before anything is spent.
        FederationError: if clients refuse or fail, more than are tolerated.
    """
    if not isinstance(estimator, PrivateEstimator):
        raise ParameterError(f"estimator must be one of this package's, got {type(estimator).__name__}.")
    check_choice("unit", unit, UNITS)
    run = Run.current(run)
    account = {name: getattr(run, name) for name in ("ledger", "dataset", "checkpoint") if accounts is None}
    for name, value in {**account, "noise_multiplier": estimator.noise_multiplier}.items():
        if value is not None:
            raise ParameterError(
                f"{name} must be None: each client counts for itself; see accounts, epsilon and delta."
            )
    if estimator.batch_size is not None:
        raise ParameterError("batch_size must be None: clients differ in size. Use sampling_prob, or the full batch.")
    budget = {"epsilon": epsilon, "delta": delta}
    estimator.set_params(**{name: value for name, value in budget.items() if value is not None})
    owned = [_data(shard, unit) for shard in _listed("shards", shards)]
    model_of_trust = Trust(trust, len(owned), max_missing, max_colluding)
    with Run().isolated():
        planned = clone(estimator).set_params(n_steps=steps_of(estimator, owned[0], num_rounds))
        tasks = [of_unit(check_known(planned._task(**data), "in a federation"), unit) for data in owned]
    columns = [columns_of(task) for task in tasks]
    for m, task in enumerate(tasks):
        if declared(task.model) != declared(tasks[0].model) or columns[m] != columns[0]:
            raise ParameterError(f"shards must have the same columns, but those of shard {m} differ from shard 0's.")
    names = [f"client-{m:0{len(str(len(owned)))}d}" for m in range(len(owned))]
    identities = {name: Identity.generate(name) for name in names} if model_of_trust.secure else {}
    federation = Federation(
        kind=type(estimator).__name__,
        columns=columns[0],
        trust=model_of_trust,
        epsilon=estimator.epsilon,
        delta=estimator.delta,
        participants={name: identities[name].public if identities else b"" for name in names},
        n_units=estimator.n_units,
    )
    booked = [(None, None)] * len(owned) if accounts is None else _listed("accounts", accounts)
    if len(booked) != len(owned):
        raise ParameterError(f"accounts must name a ledger and a data set for each of {len(owned)} shards.")
    rng = generator("random_state", estimator.random_state)
    shared = Shared()
    with ExitStack() as held:
        held.enter_context(one_blas_thread())
        clients = {
            name: held.enter_context(
                Client(
                    name,
                    task,
                    federation,
                    identity=identities.get(name),
                    ledger=ledger,
                    dataset=dataset,
                    shared=shared,
                )
            )
            for name, task, (ledger, dataset) in zip(names, tasks, booked, strict=True)
        }
        transport = InProcess({name: client.answer for name, client in clients.items()})
        task = tasks[0]._replace(source=None)  # The server has no rows.
        server = Server(task, federation, transport)
        warn_of_few_clients(estimator, task, federation, stacklevel=3)
        q = server.run(rng, notebook_line() if run.progress is None else run.progress)
        estimator._set_statement(server.statement(task.public), task.notes)
        estimator._take(task, q)
        estimator._remark(stacklevel=4)
        estimator.client_statements_ = tuple(client.statement for client in clients.values())
    return estimator


def steps_of(estimator: Any, data: Mapping[str, Any], num_rounds: int | None) -> Any:
    """The parameter n_steps for which an estimator's plan has so many releases.

    Raises:
        ParameterError: if there are too few rounds for the releases that happen once.
    """
    if num_rounds is None:
        return estimator.n_steps
    check_integer("num_rounds", num_rounds, low=1, high=10**6)
    once = len(clone(estimator).set_params(n_steps=2)._task(**data).relative) - 2
    if num_rounds < (least := once + estimator._least_steps):
        raise ParameterError(f"num_rounds must be at least {least}: {once} releases happen once; got {num_rounds}.")
    return num_rounds - once


def of_unit(task: Task, unit: str) -> Task:
    """The task with the name of its privacy unit."""
    return task if unit == "example" else task._replace(relative=replace(task.relative, unit="client"))


def warn_of_few_clients(estimator: PrivateEstimator, task: Task, federation: Federation, *, stacklevel: int) -> None:
    """Warn before the charge if the unit is a client, and noise hides the result for this public number of clients.

    A client contributes the mean of its rows, so that a plan with noise σ for M clients of L rows has the accuracy of
    one with noise L σ for M L rows. L is private: the accuracy is that for a large L, the best one possible.
    """
    trust = federation.trust
    if task.relative.unit != "client" or math.isinf(federation.epsilon):
        return
    plan = trust.planned(task.relative, epsilon=federation.epsilon, delta=federation.delta, n_units=federation.n_units)

    def expected(num_clients: float) -> ExpectedAccuracy:
        noise = replace(trust, num_clients=math.ceil(num_clients)).noise_of_sum
        return estimator._expected_accuracy(task, plan.scaled(_MANY_ROWS * noise), num_clients * _MANY_ROWS)

    forecast = expected(trust.num_clients)
    if forecast.is_weak:
        enough = least(lambda number: not expected(number).is_weak, trust.num_clients, MOST_CLIENTS)
        ways = f"{math.ceil(enough):,} clients, " if enough < math.inf else ""
        warnings.warn(
            f"{forecast} is expected for {trust.num_clients} clients, each of them a unit, however many rows they "
            f"have. Noise hides the result: it needs {forecast.needs}, thus {ways}a larger epsilon, or unit 'example'.",
            LostInNoiseWarning,
            stacklevel=stacklevel,
        )


def columns_of(task: Task) -> str:
    """SHA-256 of what is public about columns: their names, schema or vocabulary, and number."""
    facts = {name: task.notes.get(name) for name in ("width", "schema", "names", "vocabulary")}
    if facts["schema"] is not None:
        facts["schema"] = facts["schema"].to_json()
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _data(shard: Any, unit: str) -> dict[str, Any]:
    """A client's rows as the estimator's fit takes them."""
    if isinstance(shard, Mapping) and "X" in shard:
        rows = dict(shard)
    else:
        X, y = shard if isinstance(shard, tuple) and len(shard) == 2 else (shard, None)
        rows = {"X": X, "y": y}
    if unit == "client":
        if rows.get("group") is not None:
            raise ParameterError("group must be None with unit='client': all that a client has is one unit.")
        X = rows["X"]
        rows["group"] = np.zeros(X.shape[0] if hasattr(X, "shape") else len(X), dtype=np.int64)
    return rows


def _listed(name: str, given: Any) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence) or not given:
        raise ParameterError(f"{name} must be a list with an entry for each client, at least one.")
    return list(given)
