"""The accountant against one of other authors, on the plans that users get and on a grid of plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dpvb import accounting
from dpvb.accounting import Event
from dpvb.accounting.events import RELATIONS
from dpvb.audit.captured_output import heard
from dpvb.audit.cases import Case
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.results.audit_report import Check

_DELTA = 1e-5
# What dp-accounting finds by bisection is good to about this.
_ROUNDING = 1e-6

#: Epsilon of a plan of events at delta under a relation.
EpsilonOf = Callable[..., float]


def check_plans(case: Case, epsilon_of: EpsilonOf = accounting.epsilon_of) -> Iterator[Check]:
    """The plans of a model: the default one of its estimator, and sampled ones."""
    for relation in RELATIONS:
        plans: list[Sequence[Event]] = [_default(case, relation)]
        sampler: Sampler = Poisson(0.05) if relation == "add_or_remove_one" else FixedSize(50, 1000)
        plans.append(case.whole(sampler, [1.5] * 20, neighboring_relation=relation).events())
        yield compare(case.name, f"two accountants, {relation}", plans, relation, epsilon_of)


def check_grid(epsilon_of: EpsilonOf = accounting.epsilon_of) -> Iterator[Check]:
    """Plans of all samplers and relations, from weak noise to strong."""
    for relation in RELATIONS:
        plans = [
            [Event(sampler, q, noise, steps, ratio)]  # type: ignore[arg-type]
            for sampler, q, noise, steps in (
                ("full_batch", 1.0, 0.7, 1),
                ("full_batch", 1.0, 5.0, 30),
                ("full_batch", 1.0, 200.0, 10_000),
                ("poisson", 0.01, 0.8, 1000),
                ("poisson", 0.2, 4.0, 50),
                ("poisson", 0.5, 1.0, 2),
                ("fixed_size", 0.02, 1.0, 300),
                ("fixed_size", 0.3, 6.0, 40),
            )
            for ratio in ((math.sqrt(2.0), 2.0) if relation == "replace_one" or sampler == "fixed_size" else (2.0,))
        ]
        yield compare("accountant", f"grid of plans, {relation}", plans, relation, epsilon_of)


def compare(
    subject: str,
    name: str,
    plans: Sequence[Sequence[Event]],
    relation: str,
    epsilon_of: EpsilonOf = accounting.epsilon_of,
) -> Check:
    """Whether no plan's epsilon is below what dp-accounting finds it to be at least."""
    closest, below, known = math.inf, "", 0
    for events in plans:
        claimed = epsilon_of(events, delta=_DELTA, neighboring_relation=relation)
        least = at_least(events, claimed, relation)
        if least > 0:
            known, closest = known + 1, min(closest, claimed / least)
        if claimed < least * (1 - _ROUNDING):
            below = f"epsilon {claimed:.6g} is claimed where dp-accounting finds at least {least:.6g}"
    measured = f"{known} plans: epsilon is {closest:.4f} times dp-accounting's lower bound or more"
    return Check.of(subject, name, [below] if below else [], measured, "not below 1", known)


def at_least(events: Sequence[Event], claimed: float, relation: str) -> float:
    """dp-accounting's lower bound on the epsilon of a plan; for full batches, the epsilon itself."""
    if all(event.sampling_prob == 1 for event in events):
        import dp_accounting

        square = math.fsum(e.n_steps * (_largest_change(e, relation) / e.noise_multiplier) ** 2 for e in events)
        return float(dp_accounting.get_epsilon_gaussian(1 / math.sqrt(square), _DELTA))
    return accounting.cross_check(events, epsilon=claimed, delta=_DELTA, neighboring_relation=relation).lower


def _largest_change(event: Event, relation: str) -> float:
    """The largest change over C of a sum in which every unit is drawn."""
    if relation == "replace_one":
        return event.swap_ratio  # One unit stands where the other stood, and neither is absent.
    # The unit comes to the sum. In a batch of fixed size it can also take the place of another unit.
    return max(1.0, event.swap_ratio) if event.sampler == "fixed_size" else 1.0


def _default(case: Case, relation: str) -> list[Event]:
    """The releases that the estimator makes if nothing but the budget is named, as its statement lists them."""
    if case.fit is None:
        return case.whole(FullBatch(), [3.0] * 10, neighboring_relation=relation).events()
    matrix = case.records(np.random.default_rng(4), 20)
    with heard():
        fitted = case.fit(matrix, epsilon=1.0, delta=_DELTA, neighboring_relation=relation)
    return [release.event for release in fitted.privacy_.releases]
