"""Constants of the regressions: one table, each with its meaning, its unit and its verdict.

A verdict is the first word of a comment. *derived*: a formula or theorem gives the value. *convention*: a grid, a
tolerance or a weak prior, which half and double of it do not change by more than their error. *kept*: nothing derives
it; half, double or none of it lose what the comment says on designs of `python -m benchmarks ablate regression`, in
thousandths of a nat of held-out log-likelihood a row (LL), or in points of coverage (C).

`docs/theory/regressions.md` has the equations. "std" is a standard deviation of the privacy noise, Σμ² the budget of a
plan (μ = 1 / noise multiplier).
"""

from __future__ import annotations

# --- budgets: parts of Σμ², and weights (in 1/std) of blocks that are released together -------------------------------
SUM_BUDGET = 0.02  # kept: each of the sums that come first: of responses, counts, means, spreads; half loses 25 LL
CURVATURE_BUDGET = 0.15  # kept: Σ b x xᵀ, once; double loses 52 LL
LAST_BUDGET = 0.05  # kept: the curvature at the mean, once; as much for a dispersion; half loses 49 LL
SCALAR_WEIGHT = 0.1  # convention: a scalar released with a score
DIAGONAL_SECOND_BUDGET = 0.1  # kept: second moments of columns, once; half 4 LL
LINEAR_CURVATURE = 0.25  # kept: Σ x xᵀ of a linear regression, once; half loses 20 LL
LINEAR_LAST = 0.10  # kept: the last release of a linear regression; half loses 16 LL
RESIDUAL_WEIGHT = 0.3  # kept: a histogram with a score, and an excess with the last curvature; double loses 86 LL
SQUARE_WEIGHT = 0.6  # kept: squared residuals with the last curvature; half loses 29 LL

# --- levels of noise, and weak priors ---------------------------------------------------------------------------------
SEEN_STD = 3.0  # kept: std from which a number counts as seen; false for one normal number of 740; double loses 539 LL
LOW_STD = 1.64  # kept: std by which the low end of a spread lies below it; half loses 17 C, none 39 C
CENTRE_STD = 2.5  # kept: std by which a centre may be off, in the low end of a spread; half 17 C, none 44 C
RARE_STD = 4.0  # convention: bound in standard deviations, beyond which one normal value of 16,000 lies
BASE_RATE_STD = 0.5  # kept: the base rate is at least this many std of its noise from 0 and 1; none loses 31 nats
INTERCEPT_STD = 1.0  # kept: prior std of the mean log odds or log mean about the base rate; double 64 LL
DISPERSION_STD = 1.5  # convention: prior std of the log of an unknown dispersion, about 1
TAU_LOW = 0.02  # convention: least τ of the geometric grid; τ is the std of the log odds that a column adds
TAU_HIGH = 3.0  # convention: largest τ of the grid
NUM_TAUS = 11  # convention: number of τ in the grid
TAU_MEDIAN = 0.35  # convention: median of the prior of τ
TAU_SPREAD = 1.0  # kept: standard deviation of log τ; none loses 7 LL
TABLE_TAU = 1.0  # kept: τ of intervals, where an estimated one would be too small; half loses 9 C
UNIT_EFFECT = 2.0  # kept: std, over τ, of what an indicator adds to the log odds (Gelman et al. 2008); half 10 C
UNKNOWN_UNIT = 10.0  # kept: factor of the table's prior of a column whose unit is not declared; none loses 29 C

# --- paths ------------------------------------------------------------------------------------------------------------
AVERAGE_START = 0.1  # kept: fraction of the steps before the averaging of scores begins; double loses 17 LL
REACH = 1.0  # kept: longest step: root mean square over rows of the change of ψ; the same of log r; none loses 80 LL
LEAST_RATIO = 0.03  # kept: least average curvature of a row over k; 0.1 loses 7 LL
RATIO_DRIFT = 0.05  # convention: standard deviation of the change of that ratio in one step
START_RATIO_STD = 0.3  # convention: its standard deviation at the start, of counts that have an exposure
ADDED_CONSTANT = 0.4  # convention: value of the column added for the release of Σ x xᵀ if rows have no intercept
SCORE_BOUND = 3.0  # convention: bound on a row's score of log r; about -½z² at z standard deviations
LEAST_PART = 0.1  # convention: least part of 1/r that is not an error of ψ
MOMENTUM = 0.9  # kept: largest momentum of the diagonal form; 1 loses 19 LL
FIRST_SAFETY = 4.0  # kept: first factor of its majoriser; 1 loses 621 LL

# --- coordinates and second moments -----------------------------------------------------------------------------------
# Coordinates are scaled by λ^(SCALE_POWER / 2) / SCALE_SHRINK: a typical row then has norm about 1, so that the clip
# bound of the score is neither wasted nor binding.
SCALE_POWER = 0.75  # kept: power of the scales; none loses 13 LL
SCALE_SHRINK = 1.3  # kept: typical norm of a row; half loses 37 LL
DIAGONAL_SCALE_POWER = 0.4  # kept: the same of columns that are not rotated; 0.75 loses 20 LL
DIAGONAL_SCALE_SHRINK = 1.4  # kept: the same of columns that are not rotated; 1.3 loses 3 LL
HIDDEN_EDGE = 0.3  # kept: fraction of the noise edge that the majoriser adds to every eigenvalue; none 11 LL
MEAN_EXPLAINS = 0.9  # kept: largest fraction of a column's second moment that its mean may explain; none 2 LL
COLLINEAR_SHARE = 0.2  # convention: least share of directions far below their guess that makes columns collinear
FACTOR_ROUNDS = 60  # convention: iterations that estimate common factors of collinear columns
CONSTANT_STEEP = 0.05  # kept: part of an intercept's second moment apart from the common direction; 0.001 loses 13 LL
INTEGER_FLOOR = 2.0**-30  # convention: least eigenvalue without noise, over rows times room²: rounding of integers

# --- the curvature at the mean, and its errors ------------------------------------------------------------------------
LAST_EDGE = 0.1  # kept: edge of its noise, over a usual direction, that the slope of long rows may have; 0.5 is longer
LAST_NORM = RARE_STD  # convention: norm up to which they may; longer rows are rare
LAST_FLOOR = 0.2  # kept: floor of its eigenvalues: this fraction of the least guessed one, at most one std; none 7 LL
GUESS_STD = 0.35  # convention: std of the log of a curvature over its guess, and the upper end where noise hid that
GUESS_LOW = -6.0  # kept: lower end of that log where noise may have hidden the guess; half loses 3 C
TABLE_CORRELATION = 0.1  # kept: prior std of a discarded entry, over the mean of the diagonal; none loses 8 C
TABLE_ROUNDS = 8  # convention: iterations that estimate the noise of the score by errors of the curvature
TABLE_DAMPING = 0.5  # convention: damping of these iterations

# --- numeric columns --------------------------------------------------------------------------------------------------
NUMERIC_SIZE = 0.4  # kept: over the intercept's constant: std of a numeric column in x̂; half loses 15 LL
SPREAD_ERRORS = 0.5  # kept: least spread, in std of the noise of a mean; none loses 600 LL, half misses spikes
UNSEEN_SPREAD = 0.002  # kept: least spread that the table takes for possible, as a part of the range; none 20 C
PRODUCT_DOUBT = 0.2  # convention: std of the root of a product's spread, over what independent factors would have
NOISELESS_ROOM = 64.0  # convention: without noise, rows up to this norm count in full

# --- residuals of linear regressions ----------------------------------------------------------------------------------
RESIDUAL_BINS = 17  # convention: number of bins, from 2, the length of the range, down by √2
CERTAIN_BIN = 5.0  # convention: std from which a bin counts for σ²: chance counts far out would hide it in noise
SEEN_BIN = 2.0  # convention: std from which a bin counts for the clip; beyond an empty bin SEEN_STD
CLIP_FALL = 2.0  # convention: largest factor by which a clip falls in a step, and an earlier histogram loses precision
LEAST_CLIP = 1.5  # kept: least clip, over a typical residual; none loses 110 LL
NUM_CLIPS = 16  # convention: number of clips that are tried

# --- persons with several rows ----------------------------------------------------------------------------------------
PERSON_STD = 2.0  # kept: k, standard deviations of a person's score below its bound; 3 adds noise, 1 clips
PERSON_CORRELATION = 0.6  # kept: ρ, correlation of the residuals of a person; 0.3 clips where it is larger

# --- the variance of scores between units, as it is released ----------------------------------------------------------
ROBUST_BUDGET = 0.03  # convention: once; all other noise grows by 1.5 %
LONGEST_SCORE = 12.0  # convention: norm to which scores are clipped there, over their usual norm; 6 cuts persons

# --- the diagonal form's prior ----------------------------------------------------------------------------------------
ALPHA_SHAPE = 5.0  # kept: shape a of the hyper-prior Gam(a, aτ²) of α; 1 loses 93 LL
DIAGONAL_TAU = 0.15  # kept: its τ: prior std of the log odds that a std of a column adds; 0.35 loses 56 LL

# --- paths of models of one's own: `own_regression` (coverage of four designs, steps without noise) -------------------
FAR_STD = 8.0  # convention: averaging begins anew at a point that is so many standard deviations from the mean one,
AVERAGE_ANEW = 0.75  # convention: up to this fraction of the steps
LEAST_SECANT = 0.3  # convention: least curvature between two scores, over what was expected, that is believed at once
LEAST_BACK = 0.05  # convention: least part of a step that is kept if the log posterior fell along it
EIGENVALUE_STD = 1.5  # kept: error of an eigenvalue, over the noise of an entry of the diagonal: `own_regression`
SETTLED = 2.0  # convention: largest distance to which the noise of scores leads, in std a parameter; settled paths: 1.7
SETTLED_NOISELESS = 0.1  # convention: the same without noise, in std
