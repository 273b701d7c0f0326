"""The accountant: from a plan of noisy releases to (epsilon, delta), and back to noise or steps.

A plan is a sequence of `Event` and a neighbouring relation. Every method but the papers' unproven three
(UNPROVEN_METHODS) gives a true upper bound. The default, "pld", is tight: exact for full batches, within about 1e-4 of
the optimum for sampled ones, and says through `answer` where it had to fall back to Renyi accounting.

    epsilon(noise_multiplier=1.24, sampling_prob=0.05, n_steps=20, delta=1e-4)          # 0.932
    noise_multiplier(epsilon=1.0, delta=1e-5, sampling_prob=0.05, n_steps=20)
    n_steps(epsilon=1.0, delta=1e-5, noise_multiplier=1.0, sampling_prob=0.01)
"""

from __future__ import annotations

import inspect
import math
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from dpvb.accounting.calibration import calibrate, most_steps
from dpvb.accounting.declared_costs import LaplaceNoise, StatedGuarantee, gaussian_noise
from dpvb.accounting.divergences import (
    best_order_of,
    covering_gaussian_of,
    gaussian_mu_of,
    log_moments_of,
    optimal_composition,
    renyi_divergences_of,
    zcdp_rho_of,
)
from dpvb.accounting.events import Event, NeighboringRelation, Sampler
from dpvb.accounting.independent import CrossCheck, confirm, confirm_once, cross_check
from dpvb.accounting.methods import (
    METHODS,
    UNPROVEN_METHODS,
    Answer,
    Method,
    answer,
    attack_accuracy,
    compare,
    curve,
    delta_of,
    epsilon_of,
    power,
    rounded_down,
    rounded_up,
    true_positive_rate,
)
from dpvb.guards.errors import check_number
from dpvb.guards.missing_arguments import check_given, says_what_lacks

__all__ = [
    "METHODS",
    "UNPROVEN_METHODS",
    "Answer",
    "CrossCheck",
    "Event",
    "LaplaceNoise",
    "Method",
    "NeighboringRelation",
    "Sampler",
    "StatedGuarantee",
    "Steps",
    "answer",
    "attack_accuracy",
    "best_order_of",
    "calibrate",
    "compare",
    "confirm",
    "confirm_once",
    "covering_gaussian_of",
    "cross_check",
    "curve",
    "delta",
    "delta_of",
    "epsilon",
    "epsilon_of",
    "gaussian_mu_of",
    "gaussian_noise",
    "log_moments_of",
    "n_steps",
    "noise_multiplier",
    "optimal_composition",
    "power",
    "renyi_divergences_of",
    "rounded_down",
    "rounded_up",
    "true_positive_rate",
    "zcdp_rho_of",
]


class Steps(TypedDict, total=False):
    """Equal steps of the subsampled Gaussian mechanism, and how they are accounted for; all public.

    Args:
        noise_multiplier, sampling_prob, n_steps, sampler, swap_ratio: as in Event; the sampler is "poisson" where it
            is not named.
        neighboring_relation: "add_or_remove_one" (where it is not named) or "replace_one".
        method: "pld" (tight; where it is not named), "renyi", or the papers' "moments" (integer orders),
            "moments_capped" (their largest order), "wang" (Wang, Balle, Kasiviswanathan 2019, Theorem 9), "strong",
            "linear", "zcdp" (the last three are what the papers claimed, not guarantees).

    Examples:
        >>> from dpvb import accounting
        >>> steps: accounting.Steps = {"noise_multiplier": 2.0, "sampling_prob": 0.1, "n_steps": 10}
        >>> accounting.epsilon(delta=1e-6, **steps) < 1
        True
    """

    noise_multiplier: float
    sampling_prob: float
    n_steps: int
    sampler: Sampler
    swap_ratio: float
    neighboring_relation: NeighboringRelation
    method: Method


@says_what_lacks
def epsilon(*, delta: float, **steps: Unpack[Steps]) -> float:
    """Return an upper bound on epsilon at delta of equal steps.

    Args:
        delta: δ of the guarantee, in (0, 1).
        steps: as in `Steps`.

    Raises:
        ParameterError: for a value outside its range or an unsupported combination.
    """
    event, how = _accounted(steps)
    return epsilon_of([event], delta=delta, **how)


@says_what_lacks
def delta(*, epsilon: float, **steps: Unpack[Steps]) -> float:
    """Return an upper bound on delta at epsilon of equal steps, by "pld" or "renyi"; errors as for `epsilon`.

    Args:
        epsilon: the privacy budget, in [0, inf).
        steps: as in `Steps`.
    """
    event, how = _accounted(steps)
    return delta_of([event], epsilon=epsilon, **how)


@says_what_lacks
def noise_multiplier(*, epsilon: float, delta: float, **steps: Unpack[Steps]) -> float:
    """Return the least noise multiplier with which equal steps meet (epsilon, delta); errors as for `epsilon`.

    The achieved epsilon is never above the target and at least 0.995 of it, unless even the least noise the
    accountant supports stays below the target. epsilon = inf gives 0. Raises ParameterError for a delta that is not
    below n_steps * sampling_prob, as no noise would be needed to meet it (see `calibrate`).

    Args:
        epsilon: the privacy budget, in (0, inf].
        delta: δ of the guarantee, in (0, 1).
        steps: as in `Steps`.
    """
    event, how = _accounted(steps, noise_multiplier=1.0)
    return calibrate(lambda scale: [replace(event, noise_multiplier=scale)], epsilon=epsilon, delta=delta, **how)


@says_what_lacks
def n_steps(*, epsilon: float, delta: float, **steps: Unpack[Steps]) -> int:
    """Return the largest number of equal steps that meets (epsilon, delta), at most 1e9; 0 if not even one does.

    Errors as for `epsilon`.

    Args:
        epsilon: the privacy budget, in (0, inf).
        delta: δ of the guarantee, in (0, 1).
        steps: as in `Steps`.
    """
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="neither")
    event, how = _accounted(steps, n_steps=1)

    def achieved(count: int, **by: str) -> float:
        return epsilon_of([replace(event, n_steps=count)], delta=delta, **{**how, **by})

    # Renyi's answer is a cheap place to start from.
    start = most_steps(lambda count: achieved(count, method="renyi"), epsilon) if how["method"] == "pld" else 1
    return most_steps(achieved, epsilon, max(1, start))


def _accounted(steps: Steps, **asked: Any) -> tuple[Event, dict[str, str]]:
    """The event of equal steps, and the relation and the method; `asked` stands for what is asked for."""
    settings: dict[str, Any] = {"sampler": "poisson", **steps}
    usual = {"neighboring_relation": "add_or_remove_one", "method": "pld"}
    how = {name: settings.pop(name, value) for name, value in usual.items()}
    settings.update(asked)
    check_given(Event, inspect.signature(Event), (), settings)
    return Event(**settings), how
