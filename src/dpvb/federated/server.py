"""The server of a federated run: it asks clients for their statistics, and has nothing but what they let go.

Each release is asked of all clients at the same q (the synchronous schedule of partitioned variational inference), and
one M-step follows from all their factors. The sequential and asynchronous schedules reach the same fixed points in as
many releases, and in no less time: RESULTS.md, "Exactness of federated fits" and "Faults of federated runs".

`Asking` sends a message to clients, reads their answers, and keeps the reason why a client gives none.

`Factors` are the factors of partitioned variational inference: a running estimate for each client, whose sum an M-step
reads. In a model of this package a client's factor *is* its noisy expected statistic, τ_m ← (1-ρ)τ_m + ρ T_m/q_m: the
fixed points are those of partitioned variational inference (Ashman et al. 2022), with neither cavity nor inner
optimisation. A score is taken at the q of its request, and an older one stands until the client's next. All of it is
post-processing of what clients have released.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple, final

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.core.grids import grids_of
from dpvb.core.model import Model, e_step_q, updated
from dpvb.core.noise import SecureNoise
from dpvb.core.plan import Plan, Release
from dpvb.core.released import Released
from dpvb.core.wall import gathered
from dpvb.estimators.base import Task
from dpvb.federated import messages
from dpvb.federated.agreement import Federation
from dpvb.federated.messages import Accepted, Farewell, Offer, Refusal, Request, Share
from dpvb.federated.record import Recorded
from dpvb.federated.transport import Transport
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import DpvbError, FederationError, check_integer, check_number
from dpvb.guards.untrusted import printable
from dpvb.guards.version import __version__
from dpvb.results.declared import declared
from dpvb.results.statement import PrivacyStatement

_POLL_SECONDS: Final = 1.0
#: How often bytes are sent again whose answer was lost or damaged: the same bytes cost a client nothing.
RETRIES: Final = 2


@final
class Asking:
    """Send messages to clients and read their answers.

    Args:
        transport: how bytes get to the clients.
        timeout: seconds after which a client that has not answered counts as missing.

    Attributes:
        reasons: why a client has given no answer, by its name; for a terminal.
    """

    def __init__(self, transport: Transport, timeout: float) -> None:
        self.transport: Final = transport
        self.reasons: dict[str, str] = {}
        self._timeout: Final = timeout
        self._now = transport.now if isinstance(transport, Recorded) else time.monotonic

    def all(self, names: Iterable[str], data: bytes) -> dict[str, Any]:
        """Answers to one message, of those who could be reached in time.

        Args:
            names: who is asked.
            data: the message.
        """
        again = dict.fromkeys(names, RETRIES)
        tickets = {self.transport.send(name, data): name for name in again}
        answers: dict[str, Any] = {}
        deadline = self._now() + self._timeout
        while tickets and self._now() <= deadline:
            for ticket, _, answer in self.transport.poll(_POLL_SECONDS):
                name = tickets.pop(ticket, None)
                if name is None:
                    continue
                if (read := self._read(name, answer)) is not None:
                    answers[name] = read
                elif again[name]:
                    again[name] -= 1
                    tickets[self.transport.send(name, data)] = name
        for name in tickets.values():
            self.reasons[name] = f"no answer within {self._timeout:g} seconds"
        return answers

    def _read(self, name: str, answer: bytes | None) -> Any:
        """Decode an answer; for None, keep the reason."""
        if answer is None:
            self.reasons[name] = "it could not be reached"
            return None
        try:
            read = messages.decode(answer)
        except DpvbError as error:
            self.reasons[name] = printable(str(error))
            return None
        if isinstance(read, Refusal):
            self.reasons[name] = printable(read.reason)
        return read


class Factors:
    """The factors of all clients.

    Args:
        model: public.
    """

    def __init__(self, model: Model[Any, Any]) -> None:
        self._empty = Estimate.empty(model.blocks)
        self._own: dict[str, Estimate] = {}

    def take(self, client: str, released: Released, rho: float) -> None:
        """Take in what a client released, with its step size."""
        self._own[client] = self._own.get(client, self._empty).update(released, rho)

    def drop(self, client: str) -> None:
        """Forget a client's factor."""
        self._own.pop(client, None)

    def complete(self, client: str, blocks: Iterable[str]) -> bool:
        """Whether a client has released each of the blocks."""
        return client in self._own and self._own[client].names.issuperset(blocks)

    def __len__(self) -> int:
        return len(self._own)

    def total(self) -> Estimate:
        """The sum of all factors."""
        return Estimate.total(list(self._own.values()))


# Key under which the sum over clients is kept when single clients are not visible.
_ALL: Final = "all"
# The sums of all clients stay below 2⁶² grid steps, and their noise is far below the rest.
_ROOM: Final = 2.0**62 * (1 + 2.0**-10)
# Seconds that a farewell is waited for.
_FAREWELL_SECONDS: Final = 10.0


class _Member(NamedTuple):
    """A client that has accepted: its plan, and what it drew for this run."""

    plan: Plan
    nonce: bytes


class Server:
    """Asks the clients for one release after the other.

    Args:
        task: model, relative plan and step sizes; its source holds no rows that are read.
        federation: what was agreed on.
        transport: how bytes get to the clients; with a record (see `record`) another server can take over.
        timeout: seconds after which a client that has not answered counts as missing.
        max_attempts: how often a step is tried under secure aggregation: each attempt is a release of its own.

    Attributes:
        name: public name of the run.

    Raises:
        ParameterError: for parameters that do not go together.
    """

    def __init__(
        self,
        task: Task,
        federation: Federation,
        transport: Transport,
        *,
        timeout: float = 600.0,
        max_attempts: int = 3,
    ) -> None:
        self._asking = Asking(transport, check_number("timeout", timeout, low=0, closed="neither"))
        self._max_attempts = check_integer("max_attempts", max_attempts, low=1, high=100)
        trust = federation.trust
        self._task, self._federation = task, federation
        self._plan = trust.planned(
            task.relative, epsilon=federation.epsilon, delta=federation.delta, n_units=federation.n_units
        )
        self._record = transport if isinstance(transport, Recorded) else None
        self._noise = SecureNoise() if trust.party.gathers_noise else None
        self.name: Final = secrets.token_hex(16) if self._record is None else self._record.run
        self._offer = ""  # Digest of the offer.
        self._members: dict[str, _Member] = {}
        self._clients = sorted(federation.participants)  # Those who still take part.
        self._factors = Factors(task.model)
        self._again: list[Release] = []  # Releases beyond the plan.
        self._private = True

    def run(self, rng: np.random.Generator, on_step: Callable[[int, Plan], object] = lambda t, plan: None) -> Any:
        """Ask until the plan is done; return q.

        A server that is stopped tells its clients that the run is over, unless it has a record: then the run can go on.

        Args:
            rng: public randomness of the start.
            on_step: called with (step, plan) after each M-step.

        Raises:
            FederationError: if more clients are missing than may be; what was charged stays charged.
            CheckpointError: if there is a record, and it cannot be written, or is another run's.
        """
        with one_blas_thread():
            return self._asked(rng, on_step)

    def _asked(self, rng: np.random.Generator, on_step: Callable[[int, Plan], object]) -> Any:
        try:
            self._propose()
            q = self._task.model.init(rng)
            for t in range(len(self._plan)):
                q = self._step(t, q)
                on_step(t + 1, self._plan)
        except BaseException as error:
            if self._record is None or isinstance(error, FederationError):
                self._leave("the run was broken off")
            raise
        self._leave("the run is complete")
        return q

    def statement(self, public: list[str]) -> PrivacyStatement:
        """Guarantee of the run for each client's people: that of the client with the least noise.

        Repeated attempts are counted as if every client had answered all of them.
        """
        federation = self._federation
        plans = [replace(plan, releases=[*plan, *self._again]) for plan, _ in self._members.values()] or [self._plan]
        noisiest = {tuple(release.mechanism.noise_multiplier for release in plan): plan for plan in plans}
        weakest = max(noisiest.values(), key=lambda plan: plan.epsilon(federation.delta))
        return PrivacyStatement.from_plan(
            weakest,
            delta=federation.delta,
            private=self._private,
            run_id=self.name,
            public=public,
            n_units=federation.n_units,
            epsilon_method=federation.trust.method,
            against=federation.trust.against(),
            counts=self._factors.total().counts if self._factors else None,
        )

    def _propose(self) -> None:
        """Make the offer, and see who takes part."""
        federation, trust = self._federation, self._federation.trust
        offer = messages.encode(
            Offer(
                version=__version__,
                run=self.name,
                kind=federation.kind,
                model=declared(self._task.model),
                columns=federation.columns,
                multipliers=tuple(release.mechanism.noise_multiplier for release in self._plan),
                trust=trust.name,
                participants=dict(federation.participants),
                max_missing=trust.max_missing,
                max_colluding=trust.max_colluding,
                unit=self._plan.unit,
                neighboring_relation=self._plan.neighboring_relation,
                n_units=federation.n_units,
            )
        )
        self._offer = messages.digest(offer)
        reasons = self._asking.reasons
        for name, answer in self._asking.all(self._clients, offer).items():
            if isinstance(answer, Accepted) and answer.offer == self._offer and answer.client == name:
                try:
                    plan = self._plan if trust.name != "none" else self._own_plan(answer)
                    self._members[name] = _Member(plan, answer.nonce)
                except DpvbError as error:
                    reasons[name] = printable(str(error))
            else:
                reasons.setdefault(name, "it answered with something else")
        self._clients = self._present(self._members)

    def _own_plan(self, answer: Accepted) -> Plan:
        """The plan of a client with a budget of its own."""
        if answer.multipliers is None:
            raise FederationError("it accepted without saying how much noise it adds")
        return self._federation.trust.adopted(
            self._task.relative, answer.multipliers, epsilon=np.inf, delta=self._federation.delta
        )

    def _present(self, answered: Collection[str]) -> list[str]:
        """Names of those who answered, if they are enough.

        Raises:
            FederationError: if not.
        """
        trust = self._federation.trust
        if len(answered) < trust.least:
            missing = [name for name in sorted(self._federation.participants) if name not in answered]
            reasons = self._asking.reasons
            reasons_of_missing = "; ".join(f"{name}: {reasons.get(name, 'no answer').rstrip('.')}" for name in missing)
            raise FederationError(
                f"{len(answered)} of {trust.num_clients} clients take part, and the plan tolerates {trust.max_missing} "
                f"missing. {reasons_of_missing}. Nothing more is asked; every client keeps what it was charged."
            )
        return sorted(answered)

    def _step(self, t: int, q: Any) -> Any:
        """Ask all clients for release t at q; return the q of the M-step."""
        rho, release = self._task.rho(t + 1), self._plan.releases[t]
        if self._federation.trust.name == "none":
            shares = self._shares(self._clients, t, 0, q)
            self._present(shares)
            for name, share in shares.items():
                plan = self._members[name].plan
                self._factors.take(name, self._gathered([share], t, plan.releases[t], plan), rho)
            # The factor of a client that has released all that an M-step reads stays, though it does not answer.
            lost = {name for name in self._clients if not self._factors.complete(name, release.blocks)}
            for name in lost:
                self._factors.drop(name)
            self._clients = self._present([name for name in self._clients if name not in lost])
        else:
            self._factors.take(_ALL, self._sum(t, release, q), rho)
        return updated(self._task.model, self._factors.total(), q)

    def _sum(self, t: int, release: Release, q: Any) -> Released:
        """The sum over all clients, in as many attempts as it takes."""
        trust, present = self._federation.trust, self._clients
        for attempt in range(self._max_attempts):
            if attempt:
                self._again.append(release)
            shares = self._shares(present, t, attempt, q)
            if len(shares) == len(present) or not trust.secure:
                self._clients = self._present(shares)
                return self._gathered(list(shares.values()), t, release, self._plan)
            present = self._present(shares)
        raise FederationError(f"Step {t + 1} failed in {self._max_attempts} attempts: each of them lost a client.")

    def _gathered(self, shares: list[Share], t: int, release: Release, plan: Plan) -> Released:
        """Shares as one release; whether all noise is secret is kept.

        Raises:
            FederationError: if they cannot be what was asked for.
        """
        federation = self._federation
        released = gathered(
            [share.arrays for share in shares],
            release,
            plan=plan,
            step=t,
            party=federation.trust.party,
            n_units=federation.n_units,
            run=self.name,
            private=all(share.private for share in shares),
            noise=self._noise,
            journal=None if self._noise is None else self._record,
        )
        for name, grid in grids_of(release, federation.n_units, federation.trust.party).items():
            if np.abs(released.total[name]).max(initial=0.0) > _ROOM * grid.step:
                raise FederationError(
                    f"Step {t + 1}: what came of {'all clients' if len(shares) > 1 else 'a client'} adds up to no sum "
                    "of statistics: a share belongs to another request, was masked with other keys, or is of far more "
                    "units than n_units says. Nothing more is asked; every client keeps what it was charged."
                )
        self._private = self._private and released.receipt.private
        return released

    def _request(self, t: int, attempt: int, participants: tuple[str, ...], q: Any) -> bytes:
        secure = self._federation.trust.secure
        nonces = {name: self._members[name].nonce for name in participants} if secure else {}
        q = e_step_q(self._task.model, q, self._plan.releases[t].asked)
        return messages.encode(Request(self._offer, t, attempt, participants, q, nonces), messages.classes_in(q))

    def _shares(self, names: list[str], t: int, attempt: int, q: Any) -> dict[str, Share]:
        """Ask clients at once for their shares of one release; who does not give one is left out."""
        data = self._request(t, attempt, tuple(sorted(names)), q)
        answers, digest = self._asking.all(names, data), messages.digest(data)
        shares = {name: self._share_of(name, t, digest, answers[name]) for name in names if name in answers}
        return {name: share for name, share in shares.items() if share is not None}

    def _share_of(self, name: str, t: int, request: str, answer: Any) -> Share | None:
        """A client's share of this very request, of the right form; None for anything else."""
        if not isinstance(answer, Share) or answer.request != request:
            if not isinstance(answer, Refusal):
                self._asking.reasons[name] = "it answered something else"
            return None
        shapes = {block: array.shape for block, array in answer.arrays.items()}
        if shapes != {block: declared.packed_shape for block, declared in self._plan.releases[t].blocks.items()}:
            self._asking.reasons[name] = "its share has another form"
            return None
        return answer

    def _leave(self, reason: str) -> None:
        """Tell all who may have accepted that it is over."""
        if self._offer:
            self.dismiss(self._offer, reason)

    def dismiss(self, offer: str, reason: str) -> None:
        """Tell all clients that the run of an offer is over; whether they hear it does not matter."""
        transport = self._asking.transport
        link = transport.transport if isinstance(transport, Recorded) else transport  # No answer changes the run.
        farewell = messages.encode(Farewell(offer, reason))
        waiting = {link.send(name, farewell) for name in link.clients}
        deadline, silent = time.monotonic() + _FAREWELL_SECONDS, 0
        # A transport in memory never waits: its silence is counted, since a clock would keep a core busy.
        while waiting and silent * _POLL_SECONDS < _FAREWELL_SECONDS and time.monotonic() < deadline:
            replies = link.poll(_POLL_SECONDS)
            waiting -= {reply.ticket for reply in replies}
            silent += not replies
