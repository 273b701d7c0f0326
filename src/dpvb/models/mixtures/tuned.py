"""Constants of mixtures, chosen on the tables of `python -m benchmarks mixtures`; see docs/theory/mixtures.md."""

from __future__ import annotations

# A row of its component has the root mean square 1/CLIP of the bound.
CLIP = 1.1
# Share of z in the square of that root mean square.
FIRST = 0.4
# Weights of counts, categories and scores in a release: for tables of only numbers.
NUMERIC = (0.35, 0.0, 0.94)
# The same of tables of numbers and categories.
MIXED = (0.2, 0.85, 0.5)
# The same for tables of only categories.
CATEGORICAL = (0.2, 0.98, 0.0)
# Part of the budget of the one component that comes first.
HOME = 0.1
# Number of steps: of tables of numbers, of both kinds, of categories.
NUM_STEPS = (40, 30, 30)
# Decay of the step sizes, in the same order.
DECAY = (0.5, 0.6, 0.7)
# Most that a mean moves in a step, in standard deviations.
LONGEST = 2.0
# Least and largest factor of a variance in a step.
FACTORS = (0.3, 2.5)
# A step's noise in means is kept below this many standard deviations.
MEAN_NOISE = 1.0
# The same for covariances.
COVARIANCE_NOISE = 0.7
# Rows that the prior of a mean counts for.
PRIOR_ROWS = 1.0
# Rows that the prior of a covariance counts for.
FREEDOM = 2.0
# Public floor of variances in [-1, 1].
LEAST_VARIANCE = 1e-4
# Least rate of a count, over its public bound or 1.
LEAST_RATE = 0.01
# Least number of rows of a component, in standard deviations of its noise.
LEAST_ROWS = 0.3
# Rows of a component, by the rule of `MixtureModel.allowed`.
ROWS = 60.0
# Standard deviations of the noise of a component's scores, by the same rule.
NOISES = 5.0
# Number of categories with the weight of one score, by the same rule.
CELLS = 8.0
# Where the noise of a component's covariance is below the first number, this part of the steps has size 1.
CALM = ((1.2, 0.25), (0.3, 0.5))
# Standard deviation of log probabilities at the start.
TILT = 0.7
# Standard deviation of log rates at the start.
RATE_TILT = 0.5
# Least part of a direction of two groups that lies along the axis on which rows spread most.
ALONG = 0.7
# Bins of a number in tables of two columns.
PAIR_BINS = 10
# Share of the released marginals in a table of probabilities, in rows.
MARGINAL_ROWS = 1.0
# Naive Bayes: bins of a number.
BINS = 64
# Norm of a document's words.
WORDS = 4.0
# Root of the part of the budget for labels.
LABELS = 0.2
# Rows of a class in a bin, in standard deviations of their noise, below which bins are merged.
CLEAR = 2.0
# Rows that the priors of tables count for.
ALPHA = 1.0
# Rows that the prior of a word counts for.
WORD_ALPHA = 0.1
