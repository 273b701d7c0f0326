"""A lower bound on epsilon from one run with many canaries (Steinke, Nasr & Jagielski 2023).

m hostile records enter the data by independent fair coins; the run is made once, with its real noise; and for some of
the canaries it is guessed from the releases which way the coin fell. If the run is (epsilon, delta)-DP, then of r
guesses v or more are right with probability at most (Theorem 5.2 there)

    f(v) + 2 m delta max_i (f(v - i) - f(v)) / i,    f(v) = P[Binomial(r, e^eps / (1 + e^eps)) >= v].

An epsilon for which this probability is below the level is refuted, and the largest of these is a lower bound. It is
far below the claim for a sound run: its use is to find what is wrong by a large factor, wherever in a run it happens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpvb.audit.cases import Case
from dpvb.core import loop
from dpvb.core.estimate import Estimate
from dpvb.core.model import updated
from dpvb.core.noise import InsecureNoise, NoiseSource, SecureNoise
from dpvb.core.plan import Plan, Release, calibrated
from dpvb.core.sampling import FullBatch
from dpvb.core.wall import Wall
from dpvb.guards.arrays import Floats
from dpvb.results.audit_report import Check

#: Probability that a sound run is taken for an unsound one.
FALSE_ALARM = 1e-6
#: Claims of the audited runs: a strict one, which gross faults exceed, and a loose one, which shows the audit's power.
CLAIMS = (1.0, 8.0)
# The bound loses m·delta, so that delta must be far below the level.
DELTA = 1e-10
#: Makes the source of a run's noise.
MakeNoise = Callable[[], NoiseSource]
# Ridge of the best linear guess of coins that are ±1/2: variance of the noise, 1, over that of a coin, 1/4.
_OWN = 4.0
# Shares of the canaries that are guessed to be in, and as many to be out.
_GUESSED = (1 / 2, 1 / 8, 1 / 32)


def guesses_probability(num_canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return an upper bound on the probability of `right` or more right guesses under (epsilon, delta)-DP."""
    from scipy.special import bdtrc

    def tail(count: Any) -> Any:
        """P[Binomial(guesses, p) ≥ count]."""
        count = np.asarray(count)
        return np.where(count <= 0, 1.0, bdtrc(np.maximum(count - 1, 0), guesses, 1 / (1 + math.exp(-epsilon))))

    i = np.arange(1, num_canaries + 1)
    slope = float(((tail(right - i) - tail(right)) / i).max())
    return min(1.0, float(tail(right)) + 2 * num_canaries * delta * slope)


def epsilon_bound(num_canaries: int, guesses: int, right: int, *, delta: float, level: float) -> float:
    """Return the largest epsilon that the number of right guesses refutes at a level; 0 if it refutes none."""
    low, high = 0.0, 30.0
    if guesses_probability(num_canaries, guesses, right, low, delta) > level:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        refuted = guesses_probability(num_canaries, guesses, right, middle, delta) <= level
        low, high = (middle, high) if refuted else (low, middle)
    return low


def check_one_run(case: Case, noise: MakeNoise = SecureNoise) -> Iterator[Check]:
    """Lower bounds on the epsilon of full-batch runs of a model, against what is claimed of them."""
    wide = case if case.wide is None else case.wide
    for claim in CLAIMS:
        plan = calibrated(wide.whole(FullBatch(), [1.0]), epsilon=claim, delta=DELTA)
        bound, moved = one_run(wide, plan, noise)
        claimed = plan.epsilon(DELTA)
        measured = f"proven {bound:.2f} at least, by {moved} canaries"
        yield Check.of(
            case.name,
            "epsilon of one run",
            [] if bound <= claimed else [measured],
            measured,
            f"claimed {claimed:.2f} at delta {DELTA:g}",
            moved,
            FALSE_ALARM,
        )


def one_run(case: Case, plan: Plan, noise: MakeNoise = SecureNoise, delta: float = DELTA) -> tuple[float, int]:
    """Lower bound on the epsilon at delta of a full-batch plan that a model runs, and how many canaries add something.

    The bound is false with probability FALSE_ALARM.

    Args:
        case: its hostile records are the canaries; where directions differ, the bound is strongest.
        plan: of full batches under add_or_remove_one.
        noise: makes the source of the run's noise.
        delta: public.
    """
    canaries = case.hostile
    rng = np.random.default_rng()
    coins = rng.random(len(canaries)) < 0.5
    model = case.model
    q, s = model.init(rng), Estimate.empty(model.blocks)
    wall: Wall[Any] = Wall(case.source(canaries[coins], None), plan, noise=noise())
    gram = _OWN * np.eye(len(canaries))
    pull = np.zeros(len(canaries))
    for t, release in enumerate(plan, start=1):
        released = wall.release(loop.query(model, q, release), release)
        own = directions(case, release, q)
        half = own.sum(axis=0) / 2
        gram += own @ own.T
        pull += own @ (_scaled(released.total, release) - half)
        s = s.update(released, 1.0 / t)
        q = updated(model, s, q)
    # Each canary's own inner product with the releases, less what the others are likely to have added to it.
    order = np.argsort(np.linalg.solve(gram, pull))
    bounds = []
    for share in _GUESSED:
        k = max(1, int(share * len(canaries)))
        right = int(coins[order[-k:]].sum() + (~coins[order[:k]]).sum())
        level = FALSE_ALARM / len(_GUESSED)
        bounds.append(epsilon_bound(len(canaries), 2 * k, right, delta=delta, level=level))
    return max(bounds), int(np.count_nonzero(np.diag(gram) > _OWN))


def directions(case: Case, release: Release, q: Any) -> Floats:
    """Return what each canary adds to a release at q, in units of the declared noise, (canaries, coordinates)."""
    without = replace(release, mechanism=replace(release.mechanism, noise_multiplier=0.0))
    plan, rows = Plan([without]), []
    for canary in case.hostile:
        wall: Wall[Any] = Wall(case.source(canary[None], None), plan, noise=InsecureNoise(0))
        alone = wall.release(loop.query(case.model, q, release), without)
        rows.append(_scaled(alone.total, release))
    return np.array(rows)


def _scaled(total: Mapping[str, Floats], release: Release) -> Floats:
    """All coordinates of a release as one vector, each over its declared noise std."""
    pieces = []
    for name, block in release.blocks.items():
        for part, ratio in block.noise_parts():
            pieces.append(np.ravel(total[name][part]) / (release.noise_std(name) * ratio))
    return np.concatenate(pieces)
