"""How sure a mixture is of its components, the privacy noise counted in; and draws of components from that."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import Nonnegatives, Positives
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.components import Components, EarlierGroups, MixedColumns, MixturePosterior
from dpvb.models.mixtures.mixture import base_probabilities, row_numbers


@dataclass(frozen=True)
class ComponentVariances:
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

    def taken(self, places: Ints) -> ComponentVariances:
        """Those of the components at these places."""
        return ComponentVariances(*(array[places] for array in vars(self).values()))


def spread(
    q: MixturePosterior, columns: MixedColumns, known: EarlierGroups | None = None
) -> tuple[Components, ComponentVariances]:
    """The components that are in use, and how sure they are; `known`: what they were drawn to."""
    used = np.array(q.now.used)
    now = q.now.taken(used)
    all_rows = float(now.number_k.sum())
    weight_k = now.number_k / all_rows
    std = row_numbers(q.sums, columns)[1] if q.sums.releases else 0.0
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
    base_v, number_k = base_probabilities(q, columns, known), now.number_k - (0.0 if known is None else known.share_k)
    share_kv = categorical.shares(q.sums.cell_kv[used], number_k, base_v, cell_std, columns.sizes)
    noise_kv = share_kv * (cell_std / np.maximum(total_kv, 1.0)) ** 2
    found = ComponentVariances(
        weight_k / (all_rows + 1) + (std / all_rows) ** 2,
        naive_weight_k + noise_k,
        naive_weight_k,
        inefficiency / (seen_k + more_k),
        naive_mean_k,
        np.minimum(naive_kv + noise_kv, 0.25),
        naive_kv,
    )
    return now, found


def as_earlier_groups(now: Components, of: ComponentVariances, columns: MixedColumns, weight: float) -> EarlierGroups:
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
    return EarlierGroups(
        now,
        weight * max(rows, 1.0) * weight_k,
        weight * columns.clip.inefficiency / np.maximum(of.mean_k, 1e-250),
        weight * np.maximum(row_kv, 1.0) * probability_kv,
    )


def drawn_components(
    now: Components, of: ComponentVariances, columns: MixedColumns, rng: np.random.Generator
) -> Components:
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


# What was released of all rows together: columns one by one, and two at a time where a share of the budget paid.


@dataclass(frozen=True)
class Marginals:
    """Released values, and the standard deviations of their noise.

    Attributes:
        number_1: of rows, at least 1.
        mean_d, mean_std_d: means of the numbers, in [-1, 1].
        rate_p, rate_std_p: means of the counts.
        share_v, share_std_v: of categories.
        cell_c, cell_std_1: rows in each cell of the tables of `pairs.Pairs`; empty without a check.
    """

    number_1: Positives
    mean_d: Floats
    mean_std_d: Nonnegatives
    rate_p: Positives
    rate_std_p: Nonnegatives
    share_v: Floats
    share_std_v: Nonnegatives
    cell_c: Floats
    cell_std_1: Nonnegatives


def marginals(q: MixturePosterior, columns: MixedColumns) -> Marginals:
    """What the releases of the one component say of each column, and that of the pairs."""
    home, sums = q.home, q.home_sums
    number_1 = np.maximum(row_numbers(sums, columns)[0], 1.0)
    std_d = np.sqrt(np.square(home.root_kdd[0]).sum(axis=1))
    wander = math.sqrt(home.wander_k[0])
    share_v = sums.cell_kv[0] / number_1
    return Marginals(
        number_1,
        home.mean_kd[0],
        std_d * wander,
        home.rate_kp[0],
        np.sqrt(home.rate_kp[0]) * wander,
        share_v,
        np.full(len(share_v), math.sqrt(sums.share) * sums.cell_std / number_1[0]),
        q.cell_c,
        np.array([q.cell_std]),
    )


# Rows drawn from components: what a synthetic table is made of, in the model's own numbers.


def drawn_rows(
    now: Components, columns: MixedColumns, number: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Ints, Ints]:
    """So many rows: numbers and counts within their public ranges, places of categories, and the component of each."""
    k_n = rng.choice(len(now.number_k), size=number, p=now.number_k / now.number_k.sum())
    normal_nd = rng.standard_normal((number, columns.numbers))
    x_nd = now.mean_kd[k_n] + np.einsum("nij,nj->ni", now.root_kdd[k_n], normal_nd)
    count_np = np.minimum(rng.poisson(now.rate_kp[k_n]), columns.most_p)
    probability_kv = categorical.normalised(now.expected_kv, columns.sizes)
    code_nj = categorical.drawn_codes(probability_kv, k_n, columns.sizes, rng)
    return np.clip(x_nd, -1, 1), count_np, code_nj, k_n
