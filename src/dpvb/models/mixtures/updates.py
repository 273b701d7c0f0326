"""The M-step of a mixture: components from noisy counts and noisy scores, each step no larger than its noise allows."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.core.estimate import Estimate
from dpvb.guards.arrays import Floats
from dpvb.models.mixtures import categorical, gaussian, poisson, tuned
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Components, Posterior, Sums
from dpvb.models.mixtures.known import Known


@dataclass(frozen=True)
class Released:
    """Noisy sums of one release and their noise; empty ones where there is no such block."""

    count_k: Floats
    cell_kv: Floats
    score_ku: Floats
    count_std: float
    cell_std: float
    score_std: float


def released(s: Estimate, end: str, columns: Columns) -> Released:
    """What was released last, of blocks whose names end so."""
    count_k = s.read(f"count{end}")
    none, widths = np.zeros((len(count_k), 0)), {"categories": sum(columns.sizes), "scores": columns.clip.size}
    cell_kv, score_ku = (s.read(f"{name}{end}") if width else none for name, width in widths.items())
    cell_std, score_std = (s.noise_std(f"{name}{end}") if width else 0.0 for name, width in widths.items())
    return Released(count_k, cell_kv, score_ku, s.noise_std(f"count{end}"), cell_std, score_std)


def averaged(sums: Sums, new: Released, rho: float) -> Sums:
    """Running means after one more release, which has weight rho."""
    count_k = (1 - rho) * sums.count_k + rho * new.count_k
    cell_kv = (1 - rho) * sums.cell_kv + rho * new.cell_kv
    share = (1 - rho) ** 2 * sums.share + rho**2
    return Sums(count_k, cell_kv, new.count_std, new.cell_std, share, sums.releases + 1)


def numbers(sums: Sums, columns: Columns) -> tuple[Floats, float]:
    """Rows of each component, and their noise: counts and the sums of each column by their precisions."""
    if sums.count_std == 0:
        return sums.count_k, 0.0
    total_k, precision = sums.count_k / sums.count_std**2, 1 / sums.count_std**2
    for own, size in zip(categorical.starts(columns.sizes), columns.sizes, strict=True):
        total_k = total_k + sums.cell_kv[:, own].sum(axis=1) / (size * sums.cell_std**2)
        precision += 1 / (size * sums.cell_std**2)
    return total_k / precision, math.sqrt(sums.share / precision)


def home_step(q: Posterior, new: Released, columns: Columns, prior: float) -> Posterior:
    """The one component after a release of its own: a mean of all releases of its counts, and a step of its scores."""
    sums = averaged(q.home_sums, new, 1 / (q.home_sums.releases + 1))
    number_k, std = numbers(sums, columns)
    row_k, cell_std = np.maximum(number_k, 1.0), math.sqrt(sums.share) * sums.cell_std
    table_v = categorical.marginals(sums.cell_kv[0], cell_std, columns.sizes)
    public = Components.public(columns.numbers, columns.most_p, columns.sizes)
    home = moved(q.home, public, new.score_ku, new.score_std, number_k, max(2 * std, 1.0), 1.0, columns, prior)
    home = replace(home, number_k=row_k, expected_kv=row_k[:, None] * table_v)
    return replace(q, home=home, now=home, home_sums=sums)


def kept(q: Posterior, most: int, mu: float, columns: Columns) -> int:
    """How many components the released number of rows allows, at most so many; mu: root of the budget Σ 1/σ²."""
    number = float(numbers(q.home_sums, columns)[0][0])
    size = max(columns.shape.size, len(columns.max_counts), (sum(columns.sizes) - len(columns.sizes)) / tuned.CELLS, 1)
    allowed = min(float(most), max(number, 0.0) * min(mu, 1e100) / (tuned.NOISES * size), number / tuned.ROWS)
    return min(most, max(2, math.floor(allowed))) if allowed >= 1 else 1


def split(q: Posterior, number: int, columns: Columns) -> Components:
    """The start of so many components: public random directions around the one that came first."""
    home, used = q.home, np.arange(len(q.direction_kd)) < number
    direction_kd, several = q.direction_kd - q.direction_kd[used].mean(axis=0), float(number > 1)
    if number == 2 and columns.numbers > 1:  # More directions never all miss it.
        direction_kd = _along(direction_kd, home.root_kdd[0])
    # As far apart as rows are, however few directions there are.
    direction_kd *= math.sqrt(number * columns.numbers / max(float(np.square(direction_kd[used]).sum()), 1e-300))
    number_k = np.where(used, home.number_k[0] / number, 0.0)
    tilted_kv = home.expected_kv * np.exp(several * tuned.TILT * q.tilt_kv)
    return Components(
        number_k,
        home.mean_kd + direction_kd @ home.root_kdd[0].T * several,
        np.repeat(_spread(number) * home.root_kdd, len(used), axis=0),
        np.clip(home.rate_kp * np.exp(several * tuned.RATE_TILT * q.tilt_kp), 1e-3, columns.most_p),
        np.maximum(number_k, 1.0)[:, None] * categorical.normalised(tilted_kv, columns.sizes),
        np.repeat(home.wander_k, len(used)),
    )


def _along(direction_kd: Floats, root_dd: Floats) -> Floats:
    """Directions turned towards the axis along which rows spread most, where they would miss it."""
    value_d, vector_dd = np.linalg.eigh(root_dd @ root_dd.T)
    axis_d = np.linalg.solve(root_dd, vector_dd[:, -1]) * math.sqrt(value_d[-1])
    part_k = direction_kd @ axis_d
    least_k = 0.7 * np.linalg.norm(direction_kd, axis=1)
    return direction_kd + np.outer(np.copysign(np.maximum(np.abs(part_k), least_k), part_k) - part_k, axis_d)


def _spread(number: int) -> float:
    """Standard deviations of one of several components, over those of all rows."""
    return math.sqrt(0.5) if number > 1 else 1.0


def step_size(q: Posterior, new: Released, columns: Columns, steps: int) -> float:
    """Weight of a release: 1 at first, and for some of the steps where noise is small; then it falls."""
    t, k = q.sums.releases + 1, len(q.now.used)
    noise = k * new.score_std * math.sqrt(columns.shape.size) / columns.clip.scales[1] / q.home.number_k[0]
    early = columns.shape.size > 0 and any(noise < calm and t <= part * steps for calm, part in tuned.CALM)
    return 1.0 if t == 1 or early else float((t + 1) ** -tuned.DECAY[columns.kind])


def step(
    q: Posterior, new: Released, columns: Columns, rho: float, prior: float, known: Known | None = None
) -> Posterior:
    """All components after a release: running means of counts, and a step of their scores; towards `known` if it is."""
    used = list(q.now.used)
    sums = averaged(q.sums, new, rho)
    number_k, std = numbers(sums, columns)
    k, all_rows = len(used), q.home.number_k[0]
    towards = replace(q.home, root_kdd=_spread(k) * q.home.root_kdd)
    least = max(2 * std, all_rows / (20 * k), 1.0)
    weight = prior if known is None else 0.0
    now = moved(q.now, towards, new.score_ku, new.score_std, number_k, least, rho, columns, weight)
    if known is not None:
        now = known.joined(q.now, now, number_k, rho, columns.clip.inefficiency)
    base_v = base(q, columns, known)
    cell_std, row_k = math.sqrt(sums.share) * sums.cell_std, np.maximum(number_k, tuned.LEAST_ROWS * std)
    expected_kv = categorical.read(sums.cell_kv, row_k, base_v, cell_std, columns.sizes)
    weight_k = np.zeros(len(number_k))
    weight_k[used] = row_k[used] + max(prior, 1e-9) / k
    if known is not None:
        weight_k, expected_kv = weight_k + known.share_k, expected_kv + known.cell_kv
    return replace(q, now=replace(now, number_k=weight_k, expected_kv=expected_kv), sums=sums)


def base(q: Posterior, columns: Columns, known: Known | None) -> Floats:
    """Probabilities that noisy counts of categories are drawn to: those of all rows, or of each known group."""
    expected_kv = q.home.expected_kv if known is None else known.groups.expected_kv
    found_kv = categorical.normalised(expected_kv, columns.sizes)
    return found_kv[0] if known is None else found_kv


def moved(
    now: Components,
    towards: Components,
    score_ku: Floats,
    std: float,
    number_k: Floats,
    least: float,
    rho: float,
    columns: Columns,
    prior: float,
) -> Components:
    """Components after a step along their noisy scores.

    Args:
        now: where the scores were taken.
        towards: what the prior draws to: one component.
        score_ku, std: noisy scores, and their noise.
        number_k, least: rows of each component, and the fewest that a score is divided by.
        rho: size of the step without noise.
        columns: what is declared of the columns.
        prior: weight of the prior.
    """
    clip = columns.clip
    (a1, a2), (offset, g1, g2), d = clip.scales, clip.constants, columns.numbers
    row_k = np.maximum(number_k, least)
    shift_kf = score_ku[:, : clip.first] / (a1 * g1 * row_k[:, None])
    second_ke = score_ku[:, clip.first :] / a2
    second_ke[:, :d] -= number_k[:, None] * offset
    second_ke /= (g2 * row_k)[:, None]
    noise1_k, noise2_k = std / (a1 * g1 * row_k), std / (a2 * g2 * row_k)
    with np.errstate(divide="ignore"):
        rho1_k = rho * np.minimum(1.0, tuned.MEAN_NOISE / (noise1_k * math.sqrt(max(clip.first, 1))))
        rho2_k = rho * np.minimum(1.0, tuned.COVARIANCE_NOISE / (noise2_k * math.sqrt(max(clip.shape.size, 1))))
    length_k = np.linalg.norm(shift_kf, axis=1)
    if std > 0:
        shift_kf *= np.minimum(1.0, tuned.LONGEST / np.maximum(length_k, 1e-300))[:, None]
    shift_kf *= rho1_k[:, None]
    stretch_kdd = clip.shape.matrix(rho2_k[:, None] * second_ke)
    rate_kp = poisson.moved(now.rate_kp, shift_kf[:, d:], columns.most_p)
    # What the mean takes of the spread, but for its noise.
    taken_kdd = shift_kf[:, :d, None] * shift_kf[:, None, :d] * clip.shape.together
    taken_kdd -= (rho1_k * noise1_k)[:, None, None] ** 2 * np.eye(d)
    limits = tuned.FACTORS if std > 0 else (0.0, math.inf)
    mean_kd, covariance_kdd = gaussian.moved(
        now.mean_kd, now.root_kdd, shift_kf[:, :d], stretch_kdd - taken_kdd, limits
    )
    to_mean_k = prior * rho * tuned.PRIOR_ROWS / (prior * tuned.PRIOR_ROWS + row_k)
    to_spread_k = (prior * rho * tuned.FREEDOM / (prior * tuned.FREEDOM + row_k))[:, None, None]
    mean_kd += to_mean_k[:, None] * (towards.mean_kd - mean_kd)
    rate_kp += to_mean_k[:, None] * (towards.rate_kp - rate_kp)
    covariance_kdd += to_spread_k * (towards.root_kdd @ np.swapaxes(towards.root_kdd, 1, 2) - covariance_kdd)
    wander_k = (1 - rho1_k) ** 2 * now.wander_k + (rho1_k * noise1_k) ** 2
    return replace(now, mean_kd=mean_kd, root_kdd=gaussian.root(covariance_kdd), rate_kp=rate_kp, wander_k=wander_k)
