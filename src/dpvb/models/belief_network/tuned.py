"""Numbers of the belief networks that were tuned: name, value, meaning and unit, and what showed that they are good.

No theorem gives these numbers, and the history of this package holds no sweep over any one of them: they were set by
hand, on the images of benchmark `mnist`, which shows what they do (accuracy of reconstructions and held-out bound, by
ε). Run it before and after a change. Σμ² is the budget of a plan (μ = 1 / noise multiplier), "std" a standard
deviation of the privacy noise.
"""

from __future__ import annotations

# --- steps: `mnist`, forms "for accuracy" and "for bound" -------------------------------------------------------------
GRADIENT_BOUND = 0.0575  # bound on a gradient in W, over √(KJ). ‖r‖ of a fitted model is about √(.03 J) and ‖p‖ at most
# √K / 2; two thirds of their product serve as well as all of it
BIAS_BOUND = 0.25  # bound on a gradient in c, over √J
HIDDEN_BOUND = 0.6  # bound on ⟨z⟩ - z̄, over √K
BIAS_WEIGHT = 0.16  # noise budget (in bound / std) of the gradient in c, as a fraction of that of the gradient in W
HIDDEN_WEIGHT = 0.11  # the same of ⟨z⟩ - z̄
LEAST_MEAN = 0.01  # least probability z̄ of a hidden unit, and of its being off
MEAN_DRIFT = 0.05  # typical change of z̄ in a step; if the noise is larger than this, the update of z̄ is damped

# --- by hand ---------------------------------------------------------------------------------------------------------
VISIBLE_BOUND = 0.5  # bound on a vector y, over √J: as long as a vector with a quarter of ones
LEAST_SQUARE = 1e-12  # least w² by which the prior's precision is read; at 0 it is infinite
COUNT_WEIGHT = 0.2  # noise budget (in bound / std) of the number of examples, as a fraction of that of Σ y
