"""How sure a mixture is of its components, the privacy noise counted in; and draws of components from that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Ints
from dpvb.guards.domains import Nonnegatives
from dpvb.models.mixtures import categorical, tuned, updates
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Components, Posterior
from dpvb.models.mixtures.known import Known


@dataclass(frozen=True)
class Spread:
    """Variances of the parameters of components; `naive` ones leave the privacy noise out.

    Attributes:
        size_k: of the rows of each, over the square of all rows; weights are these over their sum.
        weight_k, naive_weight_k: of the weights.
        mean_k, naive_mean_k: of a mean or a rate, in variances of a row of the component.
        probability_kv, naive_probability_kv: of the probabilities of categories.
    """

    size_k: Nonnegatives
    weight_k: Nonnegatives
    naive_weight_k: Nonnegatives
    mean_k: Nonnegatives
    naive_mean_k: Nonnegatives
    probability_kv: Nonnegatives
    naive_probability_kv: Nonnegatives

    def taken(self, places: Ints) -> Spread:
        """Those of the components at these places."""
        return Spread(*(array[places] for array in vars(self).values()))


def spread(q: Posterior, columns: Columns, known: Known | None = None) -> tuple[Components, Spread]:
    """The components that are in use, and how sure they are; `known`: what they were drawn to."""
    used = np.array(q.now.used)
    now = q.now.taken(used)
    all_rows = float(now.number_k.sum())
    weight_k = now.number_k / all_rows
    std = updates.numbers(q.sums, columns)[1] if q.sums.releases else 0.0
    # Of a share of the noisy counts, each with noise of its own.
    noise_k = (std / all_rows) ** 2 * ((1 - weight_k) ** 2 + (len(used) - 1) * weight_k**2)
    naive_weight_k = weight_k * (1 - weight_k) / (all_rows + 1)
    inefficiency, row_k, more_k = columns.clip.inefficiency, now.number_k + tuned.PRIOR_ROWS, np.zeros(len(used))
    if known is not None:
        row_k, more_k = row_k - known.share_k, known.row_k
    seen_k = inefficiency / (inefficiency / row_k + now.wander_k)
    naive_mean_k = inefficiency / (row_k + more_k)
    probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
    total_kv = categorical.totals(now.expected_kv, columns.sizes)
    naive_kv = probability_kv * (1 - probability_kv) / (total_kv + 1)
    cell_std = math.sqrt(q.sums.share) * q.sums.cell_std
    base_v, number_k = updates.base(q, columns, known), now.number_k - (0.0 if known is None else known.share_k)
    share_kv = categorical.shares(q.sums.cell_kv[used], number_k, base_v, cell_std, columns.sizes)
    noise_kv = share_kv * (cell_std / np.maximum(total_kv, 1.0)) ** 2
    found = Spread(
        weight_k / (all_rows + 1) + (std / all_rows) ** 2,
        naive_weight_k + noise_k,
        naive_weight_k,
        inefficiency / (seen_k + more_k),
        naive_mean_k,
        np.minimum(naive_kv + noise_kv, 0.25),
        naive_kv,
    )
    return now, found


def as_rows(now: Components, of: Spread, columns: Columns, weight: float) -> Known:
    """Components as the prior of another fit.

    Args:
        now, of: the components, and how sure they are.
        columns: what is declared of both fits.
        weight: how many rows each of theirs counts as.
    """
    weight_k = now.number_k / now.number_k.sum()
    # A Dirichlet distribution has one number of rows: that of its least sure weight.
    rows = float(np.min(weight_k * (1 - weight_k) / np.maximum(of.weight_k, 1e-300) - 1)) if len(weight_k) > 1 else 1.0
    probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
    least_kv = categorical.totals(probability_kv * (1 - probability_kv), columns.sizes)
    row_kv = least_kv / np.maximum(categorical.totals(of.probability_kv, columns.sizes), 1e-300) - 1
    return Known(
        now,
        weight * max(rows, 1.0) * weight_k,
        weight * columns.clip.inefficiency / np.maximum(of.mean_k, 1e-250),
        weight * np.maximum(row_kv, 1.0) * probability_kv,
    )


def drawn(now: Components, of: Spread, columns: Columns, rng: np.random.Generator) -> Components:
    """Components drawn around the fitted ones, as far as these are uncertain."""
    k, d = now.mean_kd.shape
    weight_k = now.number_k / now.number_k.sum()
    number_k = now.number_k.sum() * np.maximum(weight_k + np.sqrt(of.size_k) * rng.standard_normal(k), 1e-9)
    std_k = np.sqrt(of.mean_k)
    mean_kd = now.mean_kd + std_k[:, None] * np.einsum("kij,kj->ki", now.root_kdd, rng.standard_normal((k, d)))
    rate_kp = now.rate_kp + std_k[:, None] * np.sqrt(now.rate_kp) * rng.standard_normal(now.rate_kp.shape)
    # A covariance is as sure as that many rows would make it (Bartlett 1933).
    freedom_k = 1 / of.mean_k + d
    bartlett_kdd = np.tril(rng.standard_normal((k, d, d)), -1)
    square_kd = rng.chisquare(np.maximum(freedom_k[:, None] - np.arange(d), 1.0))
    bartlett_kdd[:, np.arange(d), np.arange(d)] = np.sqrt(square_kd)
    bartlett_kdd *= columns.shape.together * freedom_k[:, None, None] ** -0.5
    probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
    rows_kv = np.maximum(probability_kv * (1 - probability_kv) / np.maximum(of.probability_kv, 1e-300) - 1, 1e-3)
    expected_kv = np.maximum(rng.gamma(np.maximum(rows_kv * probability_kv, 1e-6)), 1e-300)
    return replace(
        now,
        number_k=number_k,
        mean_kd=mean_kd,
        root_kdd=now.root_kdd @ bartlett_kdd,
        rate_kp=np.clip(rate_kp, tuned.LEAST_RATE * np.minimum(columns.most_p, 1.0), columns.most_p),
        expected_kv=expected_kv,
    )
