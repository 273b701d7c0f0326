"""Numbers and counts in known classes: posteriors from one release of noisy moments, and what they say of a new row.

    numbers: m, v ~ normal-gamma,   x new ~ Student t;     counts: λ ~ gamma,   c new ~ negative binomial

A class that the noise drowns is drawn to all rows: its mean by a prior as wide as all rows are, its variance and its
rate likewise. Without noise the posteriors are exactly the conjugate ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegatives, Positives
from dpvb.models.mixtures import tuned

# Variance of a number in [-1, 1] where there are no rows: that of a quarter of the range.
_PUBLIC_VARIANCE = 0.25


@dataclass(frozen=True)
class Numbers:
    """Posterior of numbers in [-1, 1].

    Attributes:
        mean_kd, variance_kd: of the rows of a class.
        freedom_kd: degrees of freedom of the variance.
        error_kd, noise_kd: variance of a mean, and the part of it that is privacy noise.
    """

    mean_kd: Floats
    variance_kd: Positives
    freedom_kd: Positives
    error_kd: Nonnegatives
    noise_kd: Nonnegatives


@dataclass(frozen=True)
class Rates:
    """Posterior of the rates of counts: means, variances, and the part of these that is privacy noise."""

    mean_kp: Positives
    error_kp: Positives
    noise_kp: Nonnegatives


def numbers(first_kd: Floats, second_kd: Floats, number_kd: Floats, std: float, prior: float) -> Numbers:
    """The posterior from sums of x and x².

    Args:
        first_kd, second_kd: noisy sums.
        number_kd: rows of each class that have the number.
        std: noise standard deviation of a sum.
        prior: rows that the prior of a mean counts for, and half of those of a variance: all rows, as they are.
    """
    row_kd = np.maximum(number_kd, 2 * std)
    all_d = row_kd.sum(axis=0) + 1.0
    middle_d = np.clip(first_kd.sum(axis=0) / all_d, -1, 1)
    wide_d = (second_kd.sum(axis=0) + _PUBLIC_VARIANCE) / all_d - middle_d**2
    wide_d = np.clip(wide_d, tuned.LEAST_VARIANCE, 1.0)
    divisor_kd = np.where(row_kd > 0, row_kd, 1.0)
    noise_kd = (std / divisor_kd) ** 2
    seen_kd = first_kd / divisor_kd
    share_kd = wide_d / (wide_d + noise_kd)
    mean_kd = np.clip(share_kd * seen_kd + (1 - share_kd) * middle_d, -1, 1)
    square_kd = second_kd / divisor_kd - seen_kd**2 + noise_kd
    # Noise of the mean square, and of the square of the mean.
    certain_kd = wide_d**2 / (wide_d**2 + noise_kd * (1 + 4 * mean_kd**2))
    variance_kd = certain_kd * np.clip(square_kd, tuned.LEAST_VARIANCE, 1.0) + (1 - certain_kd) * wide_d
    total_kd, freedom_kd = row_kd + prior, row_kd + 2 * prior
    pull_kd = prior * row_kd / total_kd * (mean_kd - middle_d) ** 2
    variance_kd = (row_kd * variance_kd + 2 * prior * wide_d + pull_kd) / freedom_kd
    mean_kd = (row_kd * mean_kd + prior * middle_d) / total_kd
    noise_kd = share_kd * noise_kd
    variance_kd = np.maximum(variance_kd, tuned.LEAST_VARIANCE)
    return Numbers(mean_kd, variance_kd, freedom_kd, variance_kd / total_kd + noise_kd, noise_kd)


def rates(sum_kp: Floats, number_k: Floats, std_p: Floats, most_p: Floats, prior: float) -> Rates:
    """The posterior from sums of counts.

    Args:
        sum_kp, std_p: noisy sums, and their noise.
        number_k: rows of each class.
        most_p: the largest of each count; public.
        prior: rows that the prior of a rate counts for: all rows, as they are.
    """
    row_kp = np.maximum(number_k[:, None], 2 * std_p / most_p)
    least_p = tuned.LEAST_RATE * np.minimum(most_p, 1.0)
    middle_p = np.clip((sum_kp.sum(axis=0) + np.sqrt(most_p)) / (row_kp.sum(axis=0) + 1.0), least_p, most_p)
    divisor_kp = np.where(row_kp > 0, row_kp, 1.0)
    noise_kp = (std_p / divisor_kp) ** 2
    share_kp = middle_p**2 / (middle_p**2 + noise_kp)
    mean_kp = share_kp * sum_kp / divisor_kp + (1 - share_kp) * middle_p
    total_kp = row_kp + prior
    mean_kp = np.clip((row_kp * mean_kp + prior * middle_p) / total_kp, least_p, most_p)
    noise_kp = share_kp * noise_kp
    return Rates(mean_kp, mean_kp / total_kp + noise_kp, noise_kp)


def log_number(x_nd: Floats, of: Numbers, *, predictive: bool) -> Floats:
    """Log-density of the numbers of each row in each class, (n, K); one that is missing has density 1.

    Args:
        predictive: averaged over the posterior; False: at its means.
    """
    lacks_nd = np.isnan(x_nd)
    away_nkd = np.where(lacks_nd, 0.0, x_nd)[:, None, :] - of.mean_kd
    scale_kd = of.variance_kd + of.error_kd * predictive
    square_nkd = np.ascontiguousarray(away_nkd**2 / scale_kd)
    each_nkd = -0.5 * np.log(2 * math.pi * scale_kd) - 0.5 * square_nkd
    if predictive:
        f_kd = of.freedom_kd
        start_kd = gammaln((f_kd + 1) / 2) - gammaln(f_kd / 2) - 0.5 * np.log(math.pi * f_kd * scale_kd)
        each_nkd = start_kd - (f_kd + 1) / 2 * np.log1p(square_nkd / f_kd)
    return np.asarray(np.add.reduce(np.where(lacks_nd[:, None, :], 0.0, each_nkd), axis=2))


def log_count(count_np: Floats, of: Rates, *, predictive: bool) -> Floats:
    """Log-probability of the counts of each row in each class, (n, K); see `log_number`."""
    c_n1p = np.ascontiguousarray(count_np)[:, None, :]
    if predictive:
        shape_kp = of.mean_kp**2 / of.error_kp
        each_nkp = gammaln(c_n1p + shape_kp) - gammaln(shape_kp) - gammaln(c_n1p + 1)
        each_nkp += shape_kp * np.log(shape_kp / (shape_kp + of.mean_kp))
        each_nkp += c_n1p * np.log(of.mean_kp / (shape_kp + of.mean_kp))
    else:
        each_nkp = c_n1p * np.log(of.mean_kp) - of.mean_kp - gammaln(c_n1p + 1)
    return np.asarray(np.add.reduce(np.ascontiguousarray(each_nkp), axis=2))
