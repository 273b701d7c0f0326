"""Numbers of the factor models that were tuned: name, value, meaning and unit, and what showed that they are good.

No theorem gives these numbers. Benchmark `factors` shows what they do (held-out log-likelihood and captured variance,
by ε): run it before and after a change. Σμ² is the budget of a plan (μ = 1 / noise multiplier).
"""

from __future__ import annotations

# --- the plan: parts of Σμ² -------------------------------------------------------------------------------------------
MOMENTS_BUDGET = 0.10  # of means and squares; a half of it costs log-likelihood at every ε
LENGTH_BUDGET = 0.03  # of the lengths of rows; the rest is for the second moments
MOMENTS_WEIGHT = 0.6  # noise budget (in bound / std) of the means in the first release
SQUARES_WEIGHT = 0.8  # noise budget (in bound / std) of the squares in the first release

# --- what a row adds --------------------------------------------------------------------------------------------------
MOMENTS_CONSTANT = 0.4  # c: the constant added to a row, by which rows are counted, where rows have norm 1
GRAM_CONSTANT = 0.3  # c' of the second moments; their first row corrects the mean
BINS = 64  # of lengths
DECADES = 4.0  # between the largest length that is possible and the upper end of the first bin

# --- the scales of columns --------------------------------------------------------------------------------------------
FACTORS_GAMMA = 0.5  # s ∝ v^(γ/2) for factor analysis: 0 loses log-likelihood where columns differ, 1 where they do not
COMPONENTS_GAMMA = 0.0  # for principal components, which are not relative to a column's variance

# --- the radius -------------------------------------------------------------------------------------------------------
LOST_WEIGHT = 0.3  # the share of the clipped rows' variance that the average correction leaves
LOST_DOUBT = 0.7  # its std where rows differ in how they are clipped; coverage on simulated tables
LARGE_VALUES = 20  # eigenvalues that are as large as the largest, at most, where the spectrum is not known yet
CERTAIN = 6.0  # std of noise above which bins of lengths are not empty: chance makes one in less than 1e-7 of all fits
TOGETHER = 8  # neighbouring bins that say together whether there are rows

# --- the reading ------------------------------------------------------------------------------------------------------
DOUBT = 1.4  # std of a unique variance about what the factors leave, over that of the noise
ROUNDS = 60  # of the alternation between factors and unique variances
EM_ROUNDS = 30  # for the weights of the prior of variances
BEYOND = 1.6  # of the noise edge: how far the largest eigenvalue of only noise may lie beyond it, times d^(2/3)
LEAST_MEAN = 0.1  # least mean of the prior of variances, in std of their noise
LEAST_UNIQUE = 0.01  # least part of a column that is its own, where an interval is centred: `factor_coverage`
METRICS = 4  # rounds that find by what errors are measured there; they end at about the second
LEAST = 1e-9  # least variance, as a fraction of its prior mean
