"""Constants of mixtures, chosen on the tables of `python -m benchmarks mixtures`; see docs/mixtures.md."""

from __future__ import annotations

# Clip: a row of its component has the root mean square 1/CLIP of the bound; FIRST is the share of z in its square.
CLIP, FIRST = 1.1, 0.4
# Weights of counts, categories and scores in a release: of tables of numbers, of both kinds, of categories.
NUMERIC, MIXED, CATEGORICAL = (0.35, 0.0, 0.94), (0.2, 0.85, 0.5), (0.2, 0.98, 0.0)
# Part of the budget of the one component that comes first.
HOME = 0.1
# Steps, and the decay of their sizes, in the same order.
NUM_STEPS, DECAY = (40, 30, 30), (0.5, 0.6, 0.7)
# Most that a mean moves in a step, in standard deviations; least and largest factor of a variance.
LONGEST, FACTORS = 2.0, (0.3, 2.5)
# A step's noise is kept below these, for means and covariances.
MEAN_NOISE, COVARIANCE_NOISE = 1.0, 0.7
# Rows that the prior of a mean and of a covariance counts for, and a public floor of variances in [-1, 1].
PRIOR_ROWS, FREEDOM, LEAST_VARIANCE = 1.0, 2.0, 1e-4
# Least rate of a count, over its public bound or 1; least number of rows of a component, in std of its noise.
LEAST_RATE, LEAST_ROWS = 0.01, 0.3
# Rows of a component, noises of its scores, and categories that count as one score, by the rule of `splitting.kept`.
ROWS, NOISES, CELLS = 60.0, 5.0, 8.0
# Where the noise of a component's covariance is below the first number, such a part of the steps is whole.
CALM = ((1.2, 0.25), (0.3, 0.5))
# Spread of the start: of log probabilities, and of log rates.
TILT, RATE_TILT = 0.7, 0.5
# Least part of a direction of two groups that lies along the axis on which rows spread most.
ALONG = 0.7
# Bins of a number in tables of two columns.
BINS = 10
# Share of the released marginals in a table of probabilities, in rows.
MARGINAL_ROWS = 1.0
# Naive Bayes: bins of a number, the norm of a document's words, and the root of the part of the budget for labels.
BINS, WORDS, LABELS = 64, 4.0, 0.2
# Rows of a class in a bin, in std of their noise, below which bins are brought together.
CLEAR = 2.0
# Rows that its priors count for: of tables, and of words.
ALPHA, WORD_ALPHA = 1.0, 0.1
