"""Privacy loss distributions: a tight upper bound on epsilon or delta of any plan.

Each step's dominating pair is discretised pessimistically by connecting the dots (Doroshenko et al. 2022): inside a
grid cell of losses, mass moves to the two ends so that its P- and its Q-mass are kept, which leaves the hockey-stick
divergence exact at grid points and above the truth between them. All masses are integrals of positive integrands, so
they keep their relative accuracy in the far tails.

Steps are composed by FFT *after exponential tilting* (Cramer): w_i -> w_i e^{theta l_i} / M(theta), with theta chosen
so that the composed loss concentrates where epsilon will be. The FFT's absolute error, about 1e-16, is then relative to
masses of order one instead of delta, so delta = 1e-100 is as good as delta = 1e-2; and the FFT's window is a
few standard deviations wide instead of the whole range of losses. Mass outside the window is bounded by
Chernoff and added to delta; what the FFT may have rounded away is bounded and added to every mass.

Elsewhere all sums have positive terms; delta is met with a relative slack of _SLACK, far above their rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft
from scipy.special import log_ndtr

from dpvb.accounting import renyi
from dpvb.accounting.events import Pair, grouped
from dpvb.guards.arrays import Floats, Ints

MIN_DELTA = 1e-15
_TINY = 1e-200
_SLACK = 1e-6
_MAX_CELLS = 200_000
_MAX_WINDOW = 2**19
_BLOCK = 1024
_ACCURACY, _ROUGHLY = 1e-4, 1e-3
# Parts of the steepest tilt at which a profile is computed.
_TILTS = (1.0, 0.5, 0.0)
# log of the tilted mass that may fall outside the FFT window
_OUTSIDE = 27.0
# log of the largest factor by which a mass is tilted back
_LARGEST_LOG = 600.0
_PANEL = 1 / 16
_CHUNK = 1 << 15
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)


@dataclass(frozen=True)
class _DiscretisedLoss:
    """Discretised loss of one step: log masses at the losses (start + i) h, and mass at infinity."""

    start: int
    log_mass: Floats
    infinity: float
    n_steps: int


def epsilon(
    pairs: Sequence[Pair],
    delta: float,
    guess: float,
    expected: float | None = None,
    accuracy: float = _ACCURACY,
) -> float:
    """Return an upper bound on the smallest epsilon >= 0 that the plan meets at delta.

    Args:
        pairs: dominating pairs of the plan.
        delta: at least MIN_DELTA and below 1.
        guess: an upper bound on epsilon, returned where no grid does better.
        expected: about what epsilon will be, if known; it sets the first grid, and far below it no finer one is tried.
        accuracy: relative error of epsilon that the grid is chosen for.
    """
    first = guess / 4 if expected is None else min(guess, expected)
    best, spacing = guess, _spacing(pairs, delta, first, accuracy)
    for _ in range(8):
        epsilon, used = _epsilon_on_grid(pairs, delta, spacing)
        previous, best = best, min(best, epsilon)
        if best == 0 or (expected is not None and best < expected / 2):
            break
        finer = _spacing(pairs, delta, best, accuracy)
        if finer > spacing / 1.25 or used > spacing or best > previous * (1 - accuracy):
            break
        spacing = finer
    return best


def _epsilon_on_grid(pairs: Sequence[Pair], delta: float, spacing: float) -> tuple[float, float]:
    """Return a bound on epsilon and the grid used, which is wider than asked for where that has too many cells."""
    return _over_directions(
        pairs,
        delta,
        spacing,
        objective=lambda theta, log_moment: (log_moment - math.log(delta)) / theta,
        evaluate=lambda tail: tail.epsilon(delta),
        point=lambda value: (value, delta),
    )


def delta(pairs: Sequence[Pair], epsilon: float, guess: float) -> float:
    """Return an upper bound on delta at epsilon.

    Args:
        pairs: dominating pairs of the plan.
        epsilon: finite, at least 0.
        guess: an upper bound on delta, returned where the distribution does no better.
    """
    smallest = max(guess * 1e-20, _TINY)
    scale = math.sqrt(2 * _divergence(pairs))
    spacing = _spacing(pairs, smallest, max(epsilon, scale / 4))
    least, _ = _over_directions(
        pairs,
        smallest,
        spacing,
        objective=lambda theta, log_moment: log_moment - theta * epsilon,
        evaluate=lambda tail: tail.delta(epsilon),
        point=lambda value: (epsilon, value),
    )
    return min(guess, total_variation(pairs), least)


def profile(pairs: Sequence[Pair], epsilon_g: Floats, smallest: float) -> Floats:
    """Upper bounds on delta at many epsilons, the larger of both directions', (G,).

    Args:
        pairs: dominating pairs of the plan.
        epsilon_g: increasing, from 0.
        smallest: the least delta that matters.
    """
    reach, top = _reach(pairs, smallest), float(epsilon_g[-1])
    h = _spacing(pairs, smallest, top, _ROUGHLY)
    while True:
        sides = zip(*(_discretise(pair, h, reach) for pair in pairs), strict=True)
        try:
            larger: Floats = np.maximum.reduce([_profile(steps, h, epsilon_g) for steps in sides])
            return np.asarray(np.maximum.accumulate(larger[::-1])[::-1])  # A profile falls.
        except _GridTooFineError as error:
            h *= error.factor * 1.05


def _profile(steps: Sequence[_DiscretisedLoss], h: float, epsilon_g: Floats) -> Floats:
    """Delta in one direction; every tilt bounds it from above, and each is sharp around another epsilon."""
    steepest = _best_tilt(steps, h, lambda theta, log_moment: log_moment - theta * float(epsilon_g[-1]))
    least: Floats = np.minimum.reduce([_compose(steps, h, part * steepest).deltas(epsilon_g) for part in _TILTS])
    return least


@dataclass(frozen=True)
class _Tail:
    """The composed loss near epsilon: masses e^{log_scale} v_i at the losses (start + i) h, tilted back.

    `whole` says that the window begins at the least possible loss, `log_noise` bounds the FFT's rounding of one mass
    before it is tilted back.
    """

    start: int
    spacing: float
    log_scale: float
    v: Floats
    outside: float
    infinity: float
    slack: float
    whole: bool
    theta: float
    log_noise: float

    def reaches(self, epsilon: float, delta: float) -> bool:
        """Return whether epsilon lies inside the window, and the FFT's rounding there is small compared with delta."""
        inside = self.whole or epsilon > self.start * self.spacing
        if not inside or not 0 < delta < 1 or epsilon == math.inf:
            return inside
        log_noise = self.log_noise - self.theta * epsilon - math.log(-math.expm1(-self.theta * self.spacing))
        return log_noise < math.log(delta) - 9

    def epsilon(self, delta: float) -> float:
        """Solve delta(epsilon) = delta from above; between grid points delta is linear in e^epsilon."""
        target = delta * (1 - self.slack) - self.infinity
        if target <= 0:
            return math.inf
        log_target = math.log(target) - self.log_scale
        target = math.exp(log_target) - self.outside if log_target < 700 else math.inf
        if target <= 0:
            return math.inf
        h, first = self.spacing, max(-self.start, 0)
        if first >= len(self.v):
            return 0.0
        boundaries = self._at_boundaries()
        block = sum(value > target for value in boundaries[:-1].tolist()) - 1
        if block < 0:
            return self.start * h if self.start > 0 else 0.0
        # Inside the block: its own masses, and what lies beyond it through mass and delta at its end.
        inside = self.v[block * _BLOCK : (block + 1) * _BLOCK]
        beyond_mass = float(self.v[(block + 1) * _BLOCK :].sum())
        beyond = float(boundaries[block + 1])
        distance = np.arange(len(inside) + 1) * h
        rise = -np.expm1(-distance)

        def value(i: int) -> float:
            left = len(inside) - 1 - i
            inner = float(inside[i + 1 :] @ rise[1 : left + 1])
            return inner + beyond_mass * float(rise[left]) + beyond * math.exp(-float(distance[left]))

        low, high = -1, len(inside) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if value(middle) > target else (low, middle)
        above, below = value(low), value(high)
        fraction = min(1.0, (target - below) / (above - below)) if above > below else 0.0
        loss: float = (self.start + block * _BLOCK + high) * h
        return max(0.0, loss + max(-h, math.log1p(max(-1 + 1e-16, fraction * math.expm1(-h)))))

    def delta(self, epsilon: float) -> float:
        """Return delta at epsilon, or 1 where the window begins above it."""
        position = epsilon / self.spacing - self.start
        if position <= 0 and not self.whole:
            return 1.0
        first = max(0, math.ceil(position))
        over = (first - position + np.arange(max(0, len(self.v) - first))) * self.spacing
        scaled = float(self.v[first:] @ -np.expm1(-np.maximum(over, 0.0))) + self.outside
        log_value = math.log(max(scaled, 1e-300)) + self.log_scale
        return (math.exp(min(log_value, 0.0)) + self.infinity) * (1 + self.slack)

    def deltas(self, epsilon_g: Floats) -> Floats:
        """Return delta at each epsilon, or 1 where the window begins above it."""
        after = np.arange(len(self.v)) * self.spacing
        # Beyond grid point i: mass, and mass times e^{-loss from the first grid point on}; sums of positive terms.
        mass = np.append(np.cumsum(self.v[::-1])[::-1], 0.0)
        falling = np.append(np.cumsum((self.v * np.exp(-after))[::-1])[::-1], 0.0)
        from_start = epsilon_g - self.start * self.spacing
        first = np.clip(np.ceil(from_start / self.spacing).astype(np.int64), 0, len(self.v))
        scaled = (
            np.maximum(mass[first] - np.exp(np.minimum(from_start, 700.0)) * falling[first], 0.0)
            + 2e-10 * mass[first]
            + self.outside
        )
        log_delta = np.log(np.maximum(scaled, 1e-300)) + self.log_scale
        delta = (np.exp(np.minimum(log_delta, 0.0)) + self.infinity) * (1 + self.slack)
        return np.where(self.whole | (from_start > 0), np.minimum(delta, 1.0), 1.0)

    def _at_boundaries(self) -> Floats:
        """Return the scaled delta one grid point below each block, and 0 beyond the last; all sums are positive.

        With C the mass beyond a block and w its width, delta before it is its own part
        + C (1 - e^{-w}) + e^{-w} (delta after it).
        """
        count = len(self.v) // _BLOCK
        rise = -np.expm1(-np.arange(1, _BLOCK + 1) * self.spacing)
        rest = self.v[count * _BLOCK :]
        sums = [*(self.v[: count * _BLOCK].reshape(count, _BLOCK) @ rise).tolist(), float(rest @ rise[: len(rest)])]
        mass = [*self.v[: count * _BLOCK].reshape(count, _BLOCK).sum(axis=1).tolist(), float(rest.sum())]
        gain, keep = float(rise[-1]), math.exp(-_BLOCK * self.spacing)
        values, value, beyond = [0.0], 0.0, 0.0
        for part, weight in zip(reversed(sums), reversed(mass), strict=True):
            value = part + beyond * gain + keep * value
            beyond += weight
            values.append(value)
        return np.array(values[::-1])


class _GridTooFineError(Exception):
    """The composed window has too many cells; `factor` says by how much."""

    def __init__(self, factor: float):
        self.factor = factor


def total_variation(pairs: Sequence[Pair]) -> float:
    """Return an upper bound on delta at epsilon = 0: the steps' own total variations added."""
    return sum(pair.n_steps * _total_variation(pair) for pair in pairs)


def _total_variation(pair: Pair) -> float:
    """Hockey-stick divergence of one step at epsilon = 0."""
    reach = 2 * pair.mu if pair.kind == "opposite" else pair.mu
    return pair.q * math.erf(reach / (2 * math.sqrt(2)))


def _divergence(pairs: Sequence[Pair]) -> float:
    """Kullback-Leibler divergence of the plan, or nearly: the Renyi divergence just above order one."""
    small = np.array([1e-4])
    return float(renyi.log_moments(grouped(pairs), small)[0] / small[0])


def _spacing(pairs: Sequence[Pair], delta: float, epsilon: float, accuracy: float = _ACCURACY) -> float:
    """Return the widest grid that should keep epsilon's relative error below `accuracy`.

    Connecting the dots raises a step's divergence by h^2/12 where the loss is resolved and by h TV at most where it is
    not; epsilon moves by the change of the composed mean plus sqrt(2 log 1/delta) standard deviations.
    """
    quantile = math.sqrt(-2 * math.log(delta)) + 1
    divergence = _divergence(pairs)
    alike = [(pair.n_steps, _total_variation(pair)) for pair in grouped(pairs)]

    def error(h: float) -> float:
        extra = sum(n_steps * min(h * h / 12, h * distance) for n_steps, distance in alike)
        return extra + quantile * 2 * extra / (math.sqrt(2 * (divergence + extra)) + math.sqrt(2 * divergence) + 1e-300)

    low, high = epsilon * 1e-12, epsilon / 500
    if error(high) > accuracy * epsilon:
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if error(middle) <= accuracy * epsilon else (low, middle)
    reach = _reach(pairs, delta)
    widest = max(float(np.ptp(_loss(pair, np.array(_span(pair, reach))))) for pair in pairs)
    return max(high, widest * (1 + len(pairs) / 8) / _MAX_CELLS)


def _reach(pairs: Sequence[Pair], delta: float) -> float:
    """Standard deviations beyond which all steps together have mass below 1e-5 of delta and of 1 - delta."""
    n_steps = sum(pair.n_steps for pair in pairs)
    return math.sqrt(2 * (math.log(n_steps) + math.log(1e4) - math.log(min(delta, 1 - delta))))


def _span(pair: Pair, reach: float) -> tuple[float, float]:
    low = {"sampled": -reach, "swapped": pair.mu / 2, "opposite": -pair.mu - reach}[pair.kind]
    return low, pair.mu + reach


def _loss(pair: Pair, u: Floats) -> Floats:
    """Log-likelihood ratio at u, increasing in u."""
    half = pair.mu**2 / 2
    loss = renyi.log_mix(pair.q, pair.mu * u - half)
    return loss - renyi.log_mix(pair.q, -pair.mu * u - half) if pair.kind == "opposite" else loss


def _inverse_loss(pair: Pair, loss: Floats) -> Floats:
    """The u at which the log-likelihood ratio is `loss`; -inf below its range."""
    q, mu = pair.q, pair.mu
    if q == 1:
        return loss / mu + mu / 2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if pair.kind == "opposite":
            size = np.abs(loss) / 2
            log_sinh = size + np.log(-np.expm1(-2 * size)) - math.log(2)
            z = math.log(1 / q - 1) + mu**2 / 2 + log_sinh
            result: Floats = np.sign(loss) * (size + np.logaddexp(z, np.logaddexp(0.0, 2 * z) / 2)) / mu
            return np.where(loss == 0, 0.0, result)
        near = np.log1p(np.maximum(np.expm1(np.minimum(loss, 30.0)) / q, -1.0))
        far = loss - math.log(q) + np.log1p(-(1 - q) * np.exp(-np.maximum(loss, 30.0)))
    return np.where(loss < 30, near, far) / mu + mu / 2


def _discretise(pair: Pair, h: float, reach: float) -> tuple[_DiscretisedLoss, _DiscretisedLoss]:
    """Connect the dots of one step on the grid h; returns both directions, P against Q and Q against P."""
    low, high = _span(pair, reach)
    ends = _loss(pair, np.array([low, high]))
    start = 0 if pair.kind == "swapped" else math.floor(ends[0] / h)
    losses = np.arange(start, math.ceil(ends[1] / h) + 1) * h
    edges = np.maximum.accumulate(np.clip(_inverse_loss(pair, losses), low, high))
    edges[0], edges[-1] = low, high
    steps = np.arange(-reach, reach + _PANEL, _PANEL)
    centres = (0.0, pair.mu, -pair.mu) if pair.kind == "opposite" else (0.0, pair.mu)
    points = np.unique(np.clip(np.concatenate([edges, *(steps + centre for centre in centres)]), low, high))
    mass = np.zeros(len(losses))
    log_1mq = math.log1p(-pair.q) if pair.q < 1 else -math.inf
    for chunk in range(0, len(points) - 1, _CHUNK):
        cut = points[chunk : chunk + _CHUNK + 1]
        half = np.diff(cut) / 2
        middle = cut[:-1] + half
        cell = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, len(losses) - 2)
        u = middle[:, None] + half[:, None] * _NODES
        gap = np.clip(_loss(pair, u) - losses[cell][:, None], 0.0, h)
        log_p = np.logaddexp(log_1mq - u * u / 2, math.log(pair.q) - (u - pair.mu) ** 2 / 2)
        p = half[:, None] * _WEIGHTS * np.exp(log_p) / math.sqrt(2 * math.pi)
        upper = p * (np.expm1(-gap) / math.expm1(-h))
        lower = p * (np.exp(-gap) * np.expm1(gap - h) / math.expm1(-h))
        mass += np.bincount(cell, lower.sum(axis=1), len(losses))
        mass += np.bincount(cell + 1, upper.sum(axis=1), len(losses))
    # The tails beyond the grid, and the gap between distant modes that the panels do not resolve.
    spare = 2 * math.exp(float(log_ndtr(-reach)))
    with np.errstate(divide="ignore"):
        if pair.kind == "swapped":
            log_mass = np.log(mass)
            mirrored = log_mass - losses
            mirrored[0] = math.log(max(0.0, 1 - math.fsum(mass[1:]) - math.fsum(np.exp(mirrored[1:]))) + spare)
            both = np.concatenate([mirrored[::-1], log_mass[1:]])
            step = _DiscretisedLoss(1 - len(losses), both, spare, pair.n_steps)
            return step, step
        reverse = (np.log(mass) - losses)[::-1].copy()
        mass[0] += spare
        forward = _DiscretisedLoss(start, np.log(mass), spare, pair.n_steps)
        reverse[0] = np.logaddexp(reverse[0], math.log(spare))
        return forward, _DiscretisedLoss(1 - start - len(losses), reverse, spare, pair.n_steps)


def _over_directions(
    pairs: Sequence[Pair],
    delta: float,
    h: float,
    *,
    objective: Callable[[float, float], float],
    evaluate: Callable[[_Tail], float],
    point: Callable[[float], tuple[float, float]],
) -> tuple[float, float]:
    """Compose the plan in both directions (one where they are equal); return the larger value and the grid used.

    Args:
        pairs: dominating pairs of the plan.
        delta: sets how far out the grid reaches.
        h: the grid; widened where the composed window would have too many cells.
        objective: Chernoff's exponent of (theta, log-moment at theta), least at the wanted tilt.
        evaluate: what is asked of a composed tail.
        point: the value as (epsilon, delta).
    """
    reach = _reach(pairs, delta)
    symmetric = all(pair.kind != "sampled" or pair.q == 1 for pair in pairs)
    while True:
        discretised = [_discretise(pair, h, reach) for pair in pairs]
        values = []
        try:
            for side in (0,) if symmetric else (0, 1):
                steps = [step[side] for step in discretised]
                theta = _best_tilt(steps, h, objective)
                best, cells = math.inf, 0
                # Every tilt gives an upper bound. Where single large losses decide, Chernoff's optimum lies too high.
                for _ in range(12):
                    tail = _compose(steps, h, theta)
                    value = evaluate(tail)
                    best, previous = min(best, value), best
                    cells += len(tail.v) + sum(len(step.log_mass) for step in steps)
                    if tail.reaches(*point(value)) or value > 2 * previous or cells > _MAX_WINDOW:
                        break
                    theta /= 2
                values.append(best)
        except _GridTooFineError as error:
            h *= error.factor * 1.05
        else:
            return max(values), h


def _compose(steps: Sequence[_DiscretisedLoss], h: float, theta: float) -> _Tail:
    """Return the composed loss around the tilted mean."""
    tilted = [_tilt(step, h, theta) for step in steps]
    log_moment = sum(step.n_steps * log_norm for step, (log_norm, _) in zip(steps, tilted, strict=True))
    mean = variance = 0.0
    centres = []
    for step, (_, p) in zip(steps, tilted, strict=True):
        index = np.arange(len(p))
        step_mean = float(p @ index)
        variance += step.n_steps * float(p @ (index - step_mean) ** 2)
        centres.append(round(step_mean) + step.start)
        mean += step.n_steps * (step_mean + step.start)
    bottom, top = _window(steps, h, theta, log_moment, variance)
    if top - bottom > _MAX_WINDOW:
        raise _GridTooFineError((top - bottom) / _MAX_WINDOW)
    size = int(fft.next_fast_len(top - bottom + 1, real=True))
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    shift = sum(step.n_steps * centre for step, centre in zip(steps, centres, strict=True))
    n_steps = sum(step.n_steps for step in steps)
    composed: Floats = np.zeros(size)
    noise = 0.0
    for step, (_, p), centre in zip(steps, tilted, centres, strict=True):
        # Centred on its mean, a step's spectrum has small phases where the power leaves anything of it.
        index = (np.arange(len(p)) + (step.start - centre)) % size
        composed = np.bincount(index, p, size).astype(np.float64, copy=False)
        if n_steps > 1:
            spectrum *= fft.rfft(composed) ** step.n_steps
    if n_steps > 1:
        # A power's relative rounding grows with the number of steps; the inverse averages it over the spectrum.
        noise = 2.0**-52 * (n_steps + math.log2(size)) * float(np.abs(spectrum).mean())
        composed = np.maximum(fft.irfft(spectrum, size), 0.0) + noise
    p = np.roll(composed, -((bottom - shift) % size))
    reference = round(mean)
    offset = (bottom - reference + np.arange(size)) * h
    # Masses that no number can hold once they are tilted back: the window begins above them.
    lost = int(np.count_nonzero(theta * offset < -_LARGEST_LOG))
    least = sum(step.n_steps * step.start for step in steps)
    most = sum(step.n_steps * (step.start + len(step.log_mass) - 1) for step in steps)
    return _Tail(
        start=bottom + lost,
        spacing=h,
        log_scale=log_moment - theta * reference * h,
        v=p[lost:] * np.exp(-theta * offset[lost:]),
        outside=0.0 if top >= most else math.exp(-theta * (top - reference) * h - _OUTSIDE),
        infinity=sum(step.n_steps * step.infinity for step in steps),
        slack=_SLACK + 1e-14 * n_steps,
        whole=bottom <= least and lost == 0,
        theta=theta,
        log_noise=log_moment + math.log(noise) if noise > 0 else -math.inf,
    )


def _tilt(step: _DiscretisedLoss, h: float, theta: float) -> tuple[float, Floats]:
    """Return log M(theta) and the tilted probabilities of one step."""
    exponent = step.log_mass + theta * h * (step.start + np.arange(len(step.log_mass)))
    peak = float(exponent.max())
    p = np.exp(exponent - peak)
    total = float(p.sum())
    return peak + math.log(total), p / total


def _best_tilt(steps: Sequence[_DiscretisedLoss], h: float, objective: Callable[[float, float], float]) -> float:
    """Minimise the Chernoff objective over theta on a thinned grid; any theta is valid, a good one is accurate."""
    thinned = []
    variance = 0.0
    for step in steps:
        cuts = _thin(step, 1000 // min(len(steps), 10))
        log_mass = np.logaddexp.reduceat(step.log_mass, cuts)
        loss = (step.start + (cuts + np.append(cuts[1:], len(step.log_mass)) - 1) / 2) * h
        mean = float(np.exp(log_mass) @ loss)
        variance += step.n_steps * (float(np.exp(log_mass) @ (loss - mean) ** 2) + h * h / 4)
        thinned.append((log_mass, loss))
    width = max(len(loss) for _, loss in thinned)
    masses = np.array([np.pad(mass, (0, width - len(mass)), constant_values=-np.inf) for mass, _ in thinned])
    losses = np.array([np.pad(loss, (0, width - len(loss))) for _, loss in thinned])
    counts = np.array([step.n_steps for step in steps], dtype=np.float64)
    deviation = math.sqrt(variance)

    def value(theta: float) -> float:
        exponent = masses + theta * losses
        peak = exponent.max(axis=1)
        return objective(theta, float(counts @ (peak + np.log(np.exp(exponent - peak[:, None]).sum(axis=1)))))

    # Where rare large losses decide, the optimum is a matter of percents.
    grid = np.geomspace(1e-6 / deviation, min(1e4 / deviation, 30 / h), 50)
    for _ in range(5):
        i = int(np.argmin([value(float(theta)) for theta in grid]))
        best = float(grid[i])
        grid = np.geomspace(grid[max(i - 1, 0)], grid[min(i + 1, len(grid) - 1)], 9)
    return best


def _thin(step: _DiscretisedLoss, count: int) -> Ints:
    """Return first indices of groups of cells: single cells near the bulk, wider ones far from it, count a side."""
    length = len(step.log_mass)
    bulk = int(np.argmax(step.log_mass))
    near = 3 * count // 10
    away = np.concatenate([np.arange(near), np.geomspace(near, max(length, near + 1), count - near)])
    away = np.unique(away.astype(np.int64))
    cuts = np.concatenate([[0], bulk - away[::-1], bulk + away])
    return np.unique(cuts[(cuts >= 0) & (cuts < length)])


def _window(
    steps: Sequence[_DiscretisedLoss], h: float, theta: float, log_moment: float, variance: float
) -> tuple[int, int]:
    """Return grid indices between which all but e^{-_OUTSIDE} of the tilted composed mass lies, on either side."""
    bottom = sum(step.n_steps * step.start for step in steps)
    top = sum(step.n_steps * (step.start + len(step.log_mass) - 1) for step in steps)
    rate = math.sqrt(2 * _OUTSIDE / (variance + 1))
    # The second rate suits steps whose rare losses are far larger than the composed deviation.
    rare = min(rate, 10 / max(len(step.log_mass) for step in steps))
    for size in {0.3 * rate, 0.6 * rate, rate, rare}:
        for s in (size, -size):
            moved = sum(step.n_steps * _tilt(step, h, theta + s / h)[0] for step in steps)
            edge = (moved - log_moment + _OUTSIDE) / s
            if s > 0:
                top = min(top, math.ceil(edge))
            else:
                bottom = max(bottom, math.floor(edge))
    return bottom, max(top, bottom + 1)
