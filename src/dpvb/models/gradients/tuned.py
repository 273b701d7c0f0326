"""Numbers of private gradients that were tuned: name, value, meaning and unit, and what showed that they are good.

No theorem gives these numbers, and the history of this package holds no sweep over any one of them: they were set by
hand, one value for all models. A heading names the benchmark that shows what its numbers do: run it before and after a
change. Σμ² is the budget of a plan (μ = 1 / noise multiplier).
"""

from __future__ import annotations

# --- model: `dpvi` (held-out log-likelihood on two data sets, five ε) -------------------------------------------------
RATE_FALL = 5.0  # Adam's rate falls by this factor from the first step to the last
RATE_REACH = 40.0  # first rate times the number of steps: how far a parameter can go, in units of itself
LARGEST_RATE = 0.5  # largest first rate
AVERAGE_START = 0.5  # fraction of the steps before the averaging of points and gradients begins
LAST_BUDGET = 0.05  # part of Σμ² for the squared gradients, once
SQUARE_BOUND = 0.25  # bound on the norm of a row's squared gradient, over clip²
GUESS_DOUBT = 0.25  # relative standard deviation of squared gradients as a guess of the curvature

# --- optimizer: the usual constants of Adam, but for its second decay, by hand ----------------------------------------
GRADIENT_DECAY = 0.9  # factor a step by which the average of gradients forgets
SQUARE_DECAY = 0.99  # the same of their squares

# --- curvature: by hand -----------------------------------------------------------------------------------------------
LEAST_FREEDOM = 0.1  # least fraction of the points beyond the unknowns before residuals estimate the noise

# --- gradients: `dpvi` (time of a step) -------------------------------------------------------------------------------
BATCH_NUMBERS = 2**20  # numbers of a batch's gradients at most: they stay in the cache
MOST_ROWS = 8192  # rows of a batch at most
LEAST_ROWS = 32  # rows of a batch at least
