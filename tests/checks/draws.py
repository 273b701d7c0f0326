"""Batches and noise as they leave the wall: fresh, of the right spread, on the grid, and never twice the same."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dpvb.audit.cases import Case, Matrix
from dpvb.audit.integers import in_steps
from dpvb.audit.one_run import MakeNoise
from dpvb.core.blocks import Block, Contributions
from dpvb.core.forms import Rows
from dpvb.core.noise import NoiseSource, SecureNoise
from dpvb.core.plan import Mechanism, Plan, Release
from dpvb.core.released import Released
from dpvb.core.sampling import FullBatch, Sampler
from dpvb.core.source import Nobody
from dpvb.core.wall import Wall
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import PrivacyError
from dpvb.results.audit_report import Check

#: Probability that a sound sampler or source fails a check.
FALSE_ALARM = 1e-6
_UNITS, _STEPS = 500, 600
# Noise of a release is judged by so many coordinates of each of its blocks.
_COORDINATES = 120_000
_RESIDUES = 64
# What the measured noise may be off by; ten standard deviations of the measurement.
_BAND = 0.02


def inclusions(sampler: Sampler, noise: MakeNoise, num_units: int, n_steps: int) -> Ints:
    """How often each unit is in each batch behind a wall, (steps, units)."""
    release = Release({"count": Block((1,), 1.0, "nonnegative")}, Mechanism(sampler, 1.0))
    plan = Plan([release] * n_steps)
    wall: Wall[Floats] = Wall(Matrix(np.arange(num_units, dtype=np.float64)[:, None], chunk=113), plan, noise=noise())
    included = np.zeros((n_steps, num_units), dtype=np.int64)
    for step in range(n_steps):

        def query(rows: Floats, step: int = step) -> Contributions:
            included[step] += np.bincount(rows[:, 0].astype(np.int64), minlength=num_units)
            return {"count": Rows(np.ones((len(rows), 1)))}

        wall.release(query, release)
    return included


def check_sampler(
    sampler: Sampler, noise: MakeNoise = SecureNoise, *, num_units: int = _UNITS, n_steps: int = _STEPS
) -> Iterator[Check]:
    """Whether batches are what the accountant takes them for: independent at every step, of the right size.

    Shuffled epochs fail: they give every unit the same count and never draw one twice in a row.
    """
    full = sampler.name == "full_batch"
    included = inclusions(sampler, noise, num_units, 20 if full else n_steps)
    name, q = f"sampler, {sampler.name}", sampler.sampling_prob
    twice = int(included.max()) > 1
    if full:
        sound, number = bool((included == 1).all()), included.size
        yield Check(name, "every unit once", sound, f"{number} of them", "exactly once", number)
        return
    sizes, counts = included.sum(axis=1), included.sum(axis=0)
    fixed = sampler.name == "fixed_size"
    if fixed:
        sound = not twice and bool((sizes == round(q * num_units)).all())
        measured = f"{sizes.min()} to {sizes.max()} units"
        yield Check(name, "size of a batch", sound, measured, f"exactly {round(q * num_units)}", len(sizes))
    else:
        spread = float(((sizes - num_units * q) ** 2).sum() / (num_units * q * (1 - q)))
        yield _spread(name, "spread of batch sizes", spread, n_steps, twice)
    centred = counts - n_steps * q
    free = num_units - fixed  # With a fixed size the counts' sum is given.
    spread = float((centred**2).sum() / (n_steps * q * (1 - q))) * free / num_units
    yield _spread(name, "spread of inclusion counts", spread, free, twice)
    repeats, expected = int((included[1:] * included[:-1]).sum()), (n_steps - 1) * num_units * q * q
    # Neighbouring steps share a draw.
    variance = num_units * ((n_steps - 1) * (q**2 - q**4) + 2 * (n_steps - 2) * (q**3 - q**4))
    # A tenth for what the law of repeats deviates from the normal one.
    score, limit = (repeats - expected) / math.sqrt(variance), _quantile(10)
    yield Check(
        name,
        "repeats from one batch to the next",
        abs(score) <= limit,
        f"{repeats / expected:.3f} of what chance gives",
        f"within {limit * math.sqrt(variance) / expected:.3f} of 1",
        n_steps - 1,
        FALSE_ALARM,
    )


def _spread(subject: str, name: str, square: float, count: int, twice: bool) -> Check:
    """A sum of squared standardised counts against its chi-square law."""
    from scipy.special import chdtri

    # A tenth for what the law of counts deviates from the normal one.
    low, high = (float(chdtri(count, p)) / count for p in (1 - FALSE_ALARM / 20, FALSE_ALARM / 20))
    measured = f"{square / count:.3f} of what independent draws give" + (", units drawn twice" if twice else "")
    passed = low <= square / count <= high and not twice
    return Check(subject, name, passed, measured, f"{low:.3f} to {high:.3f}", count, FALSE_ALARM)


def _quantile(tests: int) -> float:
    """Standard normal quantile that one of so many two-sided tests exceeds with probability FALSE_ALARM."""
    from scipy.special import ndtri

    return float(-ndtri(FALSE_ALARM / (2 * tests)))


# --- noise --------------------------------------------------------------------------------------------------


def nothing_but_noise(release: Release, noise: NoiseSource) -> Released:
    """What a wall releases of no data."""
    plan = Plan([release])
    wall: Wall[Floats] = Wall(Nobody(), plan, noise=noise)
    return wall.release(lambda rows: {}, release)


def check_noise(case: Case, noise: MakeNoise = SecureNoise) -> Iterator[Check]:
    """The noise of every release of a model, measured on blocks of many coordinates and otherwise as declared."""
    plan = case.whole(FullBatch(), [1.3])
    smallest, ratio, coordinates, off = 1.0, 1.0, 0, False
    parts = sum(len(block.noise_parts()) for release in plan for block in release.blocks.values())
    for release in plan:
        wide = replace(release, blocks={name: _wide(block) for name, block in release.blocks.items()})
        drawn = nothing_but_noise(wide, noise())
        try:
            steps = in_steps(drawn, wide)
        except ValueError:
            off = True
            continue
        cost = []
        for name, block in wide.blocks.items():
            square, count = 0.0, 0
            for part, share in block.noise_parts():
                values = np.asarray(drawn.total[name][part] / share)
                own = float((values**2).sum())
                square, count = square + own, count + values.size
                smallest = min(smallest, _two_sided(values.size, own / release.noise_std(name) ** 2))
            coordinates += steps[name].size
            cost.append((release.blocks[name].bound ** 2 * count / square, release.weights[name]))
        joint = (
            max(bound / weight**2 for bound, weight in cost) if case.clipping == "joint" else sum(b for b, _ in cost)
        )
        found = 1 / math.sqrt(joint) / release.event().noise_multiplier
        ratio = found if abs(found - 1) > abs(ratio - 1) else ratio
    passed = smallest >= FALSE_ALARM / parts and abs(ratio - 1) <= _BAND and not off
    measured = f"noise std / C is {ratio:.4f} of what is accounted, p = {smallest:.2g} for {coordinates} coordinates"
    if off:
        measured = "noise is off the grid"
    threshold = f"within {_BAND:g} of 1, p at least {FALSE_ALARM / parts:.1e}"
    yield Check(case.name, "scale of the noise", passed, measured, threshold, coordinates, FALSE_ALARM)


def _two_sided(count: int, square: float) -> float:
    """Probability that so many squared standard normals add up to a sum so far from what is expected."""
    from scipy.special import chdtr, chdtrc

    return min(1.0, 2 * float(min(chdtr(count, square), chdtrc(count, square))))


def _wide(block: Block) -> Block:
    """The block with many coordinates."""
    if block.symmetric:
        return replace(block, shape=(d := math.isqrt(2 * _COORDINATES), d))
    return replace(block, shape=(_COORDINATES,))


def check_source(noise: MakeNoise = SecureNoise) -> Iterator[Check]:
    """The source of noise behind a wall: on the grid whatever the sum, and never the same twice."""
    yield _low_bits(noise)
    yield _never_again(noise)


def _low_bits(noise: MakeNoise) -> Check:
    """Low bits of a release say nothing of the sum: they are uniform whatever it is (Mironov 2012)."""
    from scipy.special import chdtrc

    size, bound = 20_000, 1.0
    release = Release({"sum": Block((size,), bound)}, Mechanism(FullBatch(), 1.0))
    plan, smallest, off = Plan([release]), 1.0, False
    values = (0.0, 2.0**-40, bound / 3 / math.sqrt(size), bound / math.sqrt(size))
    for value in values:

        def query(rows: Floats, value: float = value) -> Contributions:
            return {"sum": Rows(np.full((len(rows), size), value))}

        wall: Wall[Floats] = Wall(Matrix(np.zeros((1, 1))), plan, noise=noise())
        released = wall.release(query, release)
        try:
            steps = in_steps(released, release)["sum"]
        except ValueError:
            off = True
            continue
        counts = np.bincount(steps % _RESIDUES, minlength=_RESIDUES)
        expected = size / _RESIDUES
        smallest = min(smallest, float(chdtrc(_RESIDUES - 1, ((counts - expected) ** 2 / expected).sum())))
    measured = "a release is off the grid" if off else f"all on the grid, low six bits uniform with p = {smallest:.2g}"
    passed = not off and smallest >= FALSE_ALARM / len(values)
    threshold = f"p at least {FALSE_ALARM / len(values):.1e}"
    return Check("noise", "lattice", passed, measured, threshold, len(values), FALSE_ALARM)


def _never_again(noise: MakeNoise) -> Check:
    """Runs, steps and forked processes draw noise that has nothing in common."""
    source, size = noise(), 100_000
    drawn = [_draw(source, size, 0), _draw(source, size, 1), _draw(noise(), size, 0)]
    words = "two steps, two runs"
    if hasattr(os, "fork"):
        child = _in_child(lambda: _draw(source, size, 0))
        words += ", a forked process" if len(child) else "; a forked process draws nothing"
        drawn += [child] if len(child) else []
    correlation = np.corrcoef(np.array(drawn, dtype=np.float64)) - np.eye(len(drawn))
    largest = float(np.abs(correlation).max())
    limit = _quantile(len(drawn) * (len(drawn) - 1) // 2) / math.sqrt(size)
    measured = f"{words}: correlation {largest:.4f} at most"
    passed, pairs = largest <= limit, len(drawn) * (len(drawn) - 1) // 2
    return Check("noise", "never twice the same", passed, measured, f"at most {limit:.4f}", pairs, FALSE_ALARM)


def _draw(source: NoiseSource, size: int, step: int) -> NDArray[np.int64]:
    return source.gaussian(2.0**20, np.zeros(size, dtype=np.int64), step=step, block="b", plan_digest=b"")


def _in_child(draw: Callable[[], NDArray[np.int64]]) -> NDArray[np.int64]:
    """What a forked process draws; nothing where it refuses."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        for category in (DeprecationWarning, RuntimeWarning):  # Threads, JAX's too: the child calls none of them.
            warnings.simplefilter("ignore", category)
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            with open(writing, "wb") as pipe, suppress(PrivacyError):
                pipe.write(draw().tobytes())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as pipe:
        content = pipe.read()
    if os.waitpid(child, 0)[1]:
        raise ChildProcessError("a forked process neither drew noise nor refused to")
    return np.frombuffer(content, dtype=np.int64)
