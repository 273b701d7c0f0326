"""The accountant: from a plan of noisy releases to (epsilon, delta), and back to noise or steps.

A plan is a sequence of `Event` and a neighbouring relation. Every method but the papers' unproven three
(UNPROVEN_METHODS) gives a true upper bound. The default, "pld", is tight: exact for full batches, within about 1e-4 of
the optimum for sampled ones, and says through `answer` where it had to fall back to Renyi accounting.

    epsilon(noise_multiplier=1.24, sampling_prob=0.05, num_steps=20, delta=1e-4)          # 0.932
    noise_multiplier(epsilon=1.0, delta=1e-5, sampling_prob=0.05, num_steps=20)
    num_steps(epsilon=1.0, delta=1e-5, noise_multiplier=1.0, sampling_prob=0.01)
"""

from __future__ import annotations

import math

from dpvb.accounting.answers import (
    METHODS,
    UNPROVEN_METHODS,
    Answer,
    Method,
    answer,
    compare,
    curve,
    delta_of,
    epsilon_of,
)
from dpvb.accounting.calibration import calibrate, most_steps
from dpvb.accounting.events import Event, NeighboringRelation, Sampler
from dpvb.accounting.independent import SecondOpinion, confirm, second_opinion
from dpvb.errors import check_number

__all__ = [
    "METHODS",
    "UNPROVEN_METHODS",
    "Answer",
    "Event",
    "Method",
    "NeighboringRelation",
    "Sampler",
    "SecondOpinion",
    "answer",
    "calibrate",
    "compare",
    "confirm",
    "curve",
    "delta",
    "delta_of",
    "epsilon",
    "epsilon_of",
    "noise_multiplier",
    "num_steps",
    "second_opinion",
]


def epsilon(
    *,
    noise_multiplier: float,
    sampling_prob: float,
    num_steps: int,
    delta: float,
    sampler: Sampler = "poisson",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    swap_ratio: float = 2.0,
    method: Method = "pld",
) -> float:
    """Return an upper bound on epsilon at delta of equal steps of the subsampled Gaussian mechanism.

    Args:
        noise_multiplier: noise standard deviation over the clip norm C; 0 gives inf.
        sampling_prob: inclusion probability in (0, 1].
        num_steps: number of releases.
        delta: in (0, 1).
        sampler: "poisson", "fixed_size" (without replacement, afresh at each step) or "full_batch".
        neighboring_relation: "add_or_remove_one" or "replace_one".
        swap_ratio: largest distance of two contributions over C; it enters for replace-one and fixed size only.
        method: "pld" (tight), "renyi", or the papers' "moments" (integer orders), "moments_capped" (their largest
            order), "wang" (Wang, Balle, Kasiviswanathan 2019, Theorem 9), "strong", "linear", "zcdp" (the last three
            are what the papers claimed, not guarantees).

    All arguments are public. Raises ParameterError for a value outside its range or an unsupported combination.
    """
    event = Event(sampler, sampling_prob, noise_multiplier, num_steps, swap_ratio)
    return epsilon_of([event], delta=delta, neighboring_relation=neighboring_relation, method=method)


def delta(
    *,
    epsilon: float,
    noise_multiplier: float,
    sampling_prob: float,
    num_steps: int,
    sampler: Sampler = "poisson",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    swap_ratio: float = 2.0,
    method: Method = "pld",
) -> float:
    """Return an upper bound on delta at epsilon, by "pld" or "renyi"; arguments as for `epsilon`."""
    event = Event(sampler, sampling_prob, noise_multiplier, num_steps, swap_ratio)
    return delta_of([event], epsilon=epsilon, neighboring_relation=neighboring_relation, method=method)


def noise_multiplier(
    *,
    epsilon: float,
    delta: float,
    sampling_prob: float,
    num_steps: int,
    sampler: Sampler = "poisson",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    swap_ratio: float = 2.0,
    method: Method = "pld",
) -> float:
    """Return the least noise multiplier that meets (epsilon, delta); arguments as for `epsilon`.

    The achieved epsilon is never above the target and at least 0.995 of it, unless even the least noise the
    accountant knows stays below the target. epsilon = inf gives 0. Raises ParameterError for a delta that is not
    below num_steps * sampling_prob, as no noise would be needed to meet it (see `calibrate`).
    """
    return calibrate(
        lambda scale: [Event(sampler, sampling_prob, scale, num_steps, swap_ratio)],
        epsilon=epsilon,
        delta=delta,
        neighboring_relation=neighboring_relation,
        method=method,
    )


def num_steps(
    *,
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sampling_prob: float,
    sampler: Sampler = "poisson",
    neighboring_relation: NeighboringRelation = "add_or_remove_one",
    swap_ratio: float = 2.0,
    method: Method = "pld",
) -> int:
    """Return the largest number of steps that meets (epsilon, delta), at most 1e9; 0 if not even one does.

    Arguments as for `epsilon`.
    """
    epsilon = check_number("epsilon", epsilon, low=0, high=math.inf, closed="neither")

    def achieved(count: int, by: str = method) -> float:
        event = Event(sampler, sampling_prob, noise_multiplier, count, swap_ratio)
        return epsilon_of([event], delta=delta, neighboring_relation=neighboring_relation, method=by)

    # Renyi's answer is a cheap place to start from.
    start = most_steps(lambda count: achieved(count, "renyi"), epsilon) if method == "pld" else 1
    return most_steps(achieved, epsilon, max(1, start))
