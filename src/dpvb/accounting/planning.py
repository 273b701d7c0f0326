"""What a privacy budget buys: noise, the whole curve, every method's opinion, and what more compute would change."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from dpvb import accounting
from dpvb.accounting import Event
from dpvb.accounting.answers import as_json
from dpvb.accounting.events import named_sampler
from dpvb.guards.errors import ParameterError, check_integer, check_number

#: Multiples of the plan's compute, which is q·J passes over the documents.
COMPUTE = (1, 4, 16)


def plan_facts(
    *,
    epsilon: float | None = None,
    delta: float,
    noise_multiplier: float | None = None,
    num_steps: int,
    sampling_prob: float | None = None,
    batch_size: int | None = None,
    num_examples: int | None = None,
    neighboring_relation: str = "add_or_remove_one",
    swap_ratio: float = math.sqrt(2.0),
) -> dict[str, Any]:
    """Return a plan of equal steps, as plain JSON values, from either epsilon or noise_multiplier.

    Args:
        epsilon, delta: the budget; finite epsilon.
        noise_multiplier: given noise, whose epsilon is then asked for.
        num_steps: J.
        sampling_prob: Poisson batches; batch_size with num_examples: fixed-size batches; neither: full batch.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        swap_ratio: largest distance of two contributions over C; √2 for nonnegative statistics. Where a unit can be
            absent, at least 1 is accounted (see `Event.sensitivity`).

    Returns:
        The plan; "curve": [delta, epsilon] pairs; "methods": epsilon by every method, None where one does not apply;
        "compute": what (q, J) gives at multiples of the compute, with "noise_of_average" = σ/(q√J), the noise
        of the average over all steps, over the clip norm. An infinite epsilon is "inf".

    Raises:
        ParameterError: for a value outside its range, or both or neither of epsilon and noise_multiplier.
    """
    if (epsilon is None) == (noise_multiplier is None):
        raise ParameterError("give epsilon, to calibrate the noise, or noise_multiplier, to ask for its epsilon.")
    sampler, q = named_sampler(sampling_prob, batch_size, num_examples)
    num_steps = check_integer("num_steps", num_steps, low=1, high=10**7)
    event = Event(sampler, q, 1.0, num_steps, swap_ratio)

    def noise_for(target: float, q: float, num_steps: int) -> float:
        return accounting.noise_multiplier(
            epsilon=target,
            delta=delta,
            sampling_prob=q,
            num_steps=num_steps,
            sampler=event.sampler,
            neighboring_relation=neighboring_relation,  # type: ignore[arg-type]
            swap_ratio=swap_ratio,
        )

    noise = noise_multiplier
    if epsilon is not None:
        check_number("epsilon", epsilon, low=0, high=math.inf, closed="neither")
        noise = noise_for(epsilon, q, num_steps)
    assert noise is not None  # One of the two was given.
    events = [replace(event, noise_multiplier=noise)]
    methods = accounting.compare(events, delta=delta, neighboring_relation=neighboring_relation)
    spent = methods["pld"]
    assert spent is not None  # This method applies to every plan.
    target = spent if epsilon is None else epsilon
    return {
        "epsilon": as_json(spent),
        "delta": delta,
        "noise_multiplier": noise,
        "sampler": sampler,
        "sampling_prob": q,
        "num_steps": num_steps,
        "neighboring_relation": neighboring_relation,
        "swap_ratio": swap_ratio,
        "curve": [[d, as_json(e)] for d, e in accounting.curve(events, neighboring_relation=neighboring_relation)],
        "methods": {name: value if value is None else as_json(value) for name, value in methods.items()},
        "unproven_methods": list(accounting.UNPROVEN_METHODS),
        "compute": [
            {
                "compute": multiple,
                "sampling_prob": rate,
                "num_steps": steps,
                "noise_multiplier": (bought := noise if multiple == 1 else noise_for(target, rate, steps)),
                "noise_of_average": bought / (rate * math.sqrt(steps)),
            }
            for multiple, rate, steps in _settings(q, num_steps)
        ]
        if 0 < target < math.inf
        else [],
    }


def _settings(q: float, num_steps: int) -> Iterator[tuple[int, float, int]]:
    """(multiple, q, J) at multiples of the compute: more steps, then larger batches."""
    for multiple in COMPUTE:
        rate = min(1.0, multiple * q)
        larger = (rate, max(1, round(multiple * q * num_steps / rate)))
        for setting in dict.fromkeys([(q, multiple * num_steps), larger]):
            yield multiple, *setting
