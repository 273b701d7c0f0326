"""Numbers of the regressions that were tuned: name, value, meaning and unit, and what showed that they are good.

No theorem gives these numbers. The history of this package holds no sweep over any one of them: all were set by hand,
one value for all data sets. A heading names the benchmark that shows what its numbers do: run it before and after a
change. "std" is a standard deviation of the privacy noise, Σμ² the budget of a plan (μ = 1 / noise multiplier).
"""

from __future__ import annotations

# --- first_order: `logistic` (held-out log-likelihood, four data sets, five ε), `coverage` (95 % intervals) -----------
# Parts of Σμ² that go to single releases.
COUNT_BUDGET = 0.03  # the sum of the responses, once
CURVATURE_BUDGET = 0.15  # Σ b x xᵀ, once
LAST_BUDGET = 0.05  # the curvature at the mean, once
# Noise budget of the scalar blocks, as a fraction (in 1/std) of that of the vector or matrix released with them.
SCALAR_WEIGHT = 0.1  # the two scalars beside a score; in first_order_diagonal as well
ADDED_CONSTANT = 0.4  # value of the column that is added for the reading if rows have no intercept, in (0, 1)
AVERAGE_START = 0.2  # fraction of the steps before the averaging of scores begins
REACH = 1.0  # longest step of a path: root mean square over rows of the change of ψ
LAST_FLOOR = 0.2  # floor of the eigenvalues of the curvature at the mean: this fraction of the least guessed one

# --- moments: `logistic`, `coverage` ----------------------------------------------------------------------------------
MEAN_EXPLAINS = 0.9  # largest fraction of a column's second moment that its mean may explain
CONSTANT_EXPLAINS = 0.999  # the same for a constant column
SCALE_POWER = 0.75  # coordinates are scaled by λ^(SCALE_POWER / 2) / SCALE_SHRINK: a typical row then has norm about 1,
SCALE_SHRINK = 1.3  # so that the clip bound of the score is neither wasted nor binding
HIDDEN_EDGE = 0.3  # fraction of the noise edge that the majoriser adds to every eigenvalue
FLOOR_OF_MEDIAN = 0.05  # floor of the eigenvalues: this fraction of the median column, at most one std,
FLOOR_OF_STD = 0.1  # and this many std more
COLLINEAR_SHARE = 0.2  # least share of directions far below their guess that makes columns collinear
FACTOR_ROUNDS = 60  # iterations that estimate common factors of collinear columns
LEAST_UNIQUE = 0.02  # least part of a column's variance that common factors do not explain
SEEN_ENTRY = 4.2  # std by which an entry of second moments stands out alone: that of about 100 columns' largest chance
LEAST_MOMENT = 0.7  # least eigenvalue of second moments that were read so, in std
GUESS_STD = 0.35  # std of the log of a curvature over its guess, where an earlier release showed the guess
GUESS_LOW = -6.0  # lower end of that log where noise may have hidden the guess
GUESS_HIGH = 0.3  # upper end of that log there
LEAST_HIDDEN = 0.02  # least probability that noise hid the guess
MOST_HIDDEN = 0.9  # largest probability of that
TABLE_CORRELATION = 0.1  # std of a discarded entry before the noise is looked at, over the mean of the diagonal
START_RATIO_STD = 0.3  # std of a tracked ratio at the start of counts that have an offset: `coverage_beside`
RATIO_DRIFT = 0.05  # standard deviation of the change of a tracked ratio in one step
BASE_RATE_STD = 0.5  # the base rate is at least this many std of its noise from 0 and 1
LEAST_BASE_RATE = 0.001  # and at least so far, as a probability

# --- scaling: `coverage` (tables whose ranges are 1 to 50 times too wide), `coverage_terms` (products) ---------------
MEANS_BUDGET = 0.02  # part of Σμ² for the means of numeric columns, once
SPREAD_BUDGET = 0.02  # part of Σμ² for their spreads, once
NUMERIC_SIZE = 0.4  # κ over the intercept's constant: std of a numeric column in the rows of the model
NUMERIC_SHARE = 0.48  # the most that all numeric columns may add to the typical squared norm of a row
LEAST_SPREAD = 1e-6  # least spread of a column, as a part of its range
LARGEST_SPREAD = 0.5  # largest spread of a column, as a part of its range
SPREAD_ERRORS = 0.25  # least spread, in std of the noise of a mean
LOW_STD = 1.64  # std of noise by which the low end of a spread lies below it
CERTAIN_STD = 3.0  # std by which the variance of a column must stand out of the noise to be certain as it was read
LEAST_CERTAIN = 1e-4  # least part of the variance of a column that counts as certain
LEAST_ROOT = 0.1  # low end of the mean root distance of an indicator factor, at least this part of the root itself
CENTRE_STD = 2.5  # std by which a centre may be off, in the low end of a spread
PRODUCT_DOUBT = 0.2  # std of the root of a product's spread, over what independent factors would have
UNSEEN_SPREAD = 0.002  # least spread that the table takes for possible, as a part of the range
LEAST_ROWS_STD = 2.0  # least number of rows, in std of its noise
NOISELESS_ROOM = 64.0  # without noise, rows up to this norm count in full
INTEGER_FLOOR = 2.0**-30  # least eigenvalue without noise, over rows times room²: less is the rounding of integers
UNKNOWN_UNIT = 10.0  # factor by which the table widens the prior of a column whose unit nobody declared
UNIT_EFFECT = 2.0  # std, over τ, of what an indicator adds to the log odds; a std of a numeric column adds τ

# --- ridge: `logistic`, `coverage` ------------------------------------------------------------------------------------
TAU_LOW = 0.02  # least τ of the geometric grid; τ is the std of the log odds that a column adds
TAU_HIGH = 3.0  # largest τ of the grid
NUM_TAUS = 11  # number of τ in the grid
TAU_MEDIAN = 0.35  # median of the prior of τ
TAU_SPREAD = 1.0  # standard deviation of log τ
ROUNDING = 1e-13  # eigenvalues below this part of the largest are rounding
TABLE_TAU = 1.0  # τ of the table of coefficients, where an estimated one would make intervals too narrow
INTERCEPT_STD = 1.0  # prior std of the mean log odds, or log mean
DISPERSION_STD = 1.5  # prior std of the log of an unknown dispersion, about 1
SCORE_BOUND = 3.0  # bound on a row's score of that log
LEAST_PART = 0.1  # least part of 1/r that is no error of ψ
DISPERSION_STEP = 1.0  # the farthest that it moves in a step
DISPERSION_WEIGHT = 0.1  # noise budget of its score beside a step's score, as SCALAR_WEIGHT
LAST_DISPERSION = 1.0  # and beside the curvature at the mean,
DISPERSION_BUDGET = 0.04  # where this part of Σμ² is added for it
TABLE_ROUNDS = 8  # iterations that estimate the noise of the score by errors of the curvature at the mean
TABLE_DAMPING = 0.5  # damping of these iterations
GRADIENT_GROWTH = 4.0  # growth of the mean squared gradient, over its least value, after which the majoriser is doubled

# --- diagonal: `logistic` (icd, 2,788 columns), `coverage_diagonal` (95 % intervals) ----------------------------------
DIAGONAL_COUNT_BUDGET = 0.02  # part of Σμ² for the two counts, once
DIAGONAL_SECOND_BUDGET = 0.1  # part of Σμ² for the second moments, once
DIAGONAL_SCALE_POWER = 0.4  # columns are scaled by D^(DIAGONAL_SCALE_POWER / 2) / DIAGONAL_SCALE_SHRINK, for the same
DIAGONAL_SCALE_SHRINK = 1.4  # reason as by SCALE_POWER and SCALE_SHRINK
NUMERIC_BOUND = 4.0  # bound on a numeric column of x̂, in units of κ, its std
TRIM = 4.0  # rows longer than TRIM, in scaled coordinates, count as TRIM in the trace
FIRST_SAFETY = 4.0  # first value of the majoriser's safety factor f
FIRST_RATIO = 0.75  # first value of the tracked ratios of information to its largest possible value
LEAST_RATIO = 0.03  # least value of these ratios
DIAGONAL_AVERAGE_START = 0.1  # fraction of the steps before the averaging of scores begins
INTERCEPT_PRECISION = 1e-3  # prior precision of the intercept: nearly flat
ALPHA_SHAPE = 5.0  # shape a of the hyper-prior Gam(a, aτ²) of α
DIAGONAL_TAU = 0.15  # its τ: std of the log odds that a standard deviation of a column adds, before the data are seen
NUMBER_STD = 2.0  # least N = Σ b, in std of a count
LEAST_NUMBER = 1e-3  # least N, over the largest b of a row
SEEN_STD = 3.0  # columns whose noisy moment is above so many std count as seen
COLUMN_LEAST_TOTAL = 1e-3  # least sum of all columns' moments, per row
CONSTANT_STEEP = 0.05  # fraction of an intercept's second moment that is steep: kept apart from the common direction

# --- descent: `logistic` (icd) ----------------------------------------------------------------------------------------
DESCENT_MOMENTUM = 0.9  # largest momentum β
CURVATURE_STD = 3.0  # std by which a measured curvature must exceed what momentum bears, before a step is taken back
SAFETY_GROWTH = 4.0  # least factor by which the majoriser then grows
CURVATURE_MARGIN = 2.0  # the new majoriser, as a multiple of the measured curvature

# --- linear: `linear` (R², six designs; coverage) ---------------------------------------------------------------------
LINEAR_CURVATURE = 0.25  # part of Σμ² for Σ x̂ x̂ᵀ, once
LINEAR_LAST = 0.10  # part of Σμ² for the last release
FIRST_SCORE = 0.05  # part of the steps' budget for the first score, of y itself; the others' grow with t
RESIDUAL_WEIGHT = 0.3  # noise budget of the histogram beside a score, as SCALAR_WEIGHT;
EXCESS_WEIGHT = 0.3  # noise budget of the excess of long rows beside the last curvature, as SCALAR_WEIGHT
SQUARE_WEIGHT = 0.6  # noise budget of the squared residuals beside it
RESIDUAL_BINS = 17  # from 2, the length of the range, down by √2
FORGOTTEN = 2.0  # factor by which the noise variance of the histograms so far counts in the next step's mean of them
SEEN_BIN = 2.0  # std of noise below which a bin counts as empty
FAR_BIN = 3.5  # the same beyond the first empty bin
CERTAIN_BIN = 5.0  # the same there for σ²: one chance count would hide it in noise, in one fit of a thousand
LEAST_SEEN = 0.4  # least part of the rows that bins must show, for the clip to move
CERTAIN_ROWS = 3.0  # std of its noise that the number of rows must reach, for residuals to have a scale
LEAST_CLIP = 1.5  # least clip, over a typical residual
NUM_CLIPS = 16  # number of clips that are tried
CLIP_FALL = 2.0  # largest factor by which the clip falls in a step
CLIP_PRICE = 0.6  # part of the budget that pays for the scores
# κ = 0.6 + 0.7·mean min(1, 12 s²/(μ²λ)) divides the scales.
LEAST_SHRINK = 0.6  # the first number of κ
MORE_SHRINK = 0.7  # the second number of κ
SHRINK_NOISE = 12.0  # the third number of κ
LEAST_REACH = 4.0  # the least that a residual may count in σ², over a typical one: normal ones count in full
OVERSHOOT = 0.5  # what σ² leaves of residuals beyond its clip, as the histogram shows it, counts this part of noise
