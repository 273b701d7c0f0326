"""The state of a linear regression on its path; see `linear_path`. All of it is public."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpvb.guards.arrays import Floats
from dpvb.guards.domains import Nonnegative, Nonnegatives, Positive, Symmetric
from dpvb.models.regression import descent
from dpvb.models.regression.curvature import RowMoments
from dpvb.models.regression.residuals import Residuals
from dpvb.models.regression.scaling import Scaling


@dataclass(frozen=True)
class LinearIterate:
    """State of a fit; all public. Vectors (e,) are in the eigenbasis of `moments`.

    Attributes:
        scaling: the map from rows x to the rows x̂ of all that follows.
        start_e: m_0, the prior mean; point_e: u, where the next score is taken.
        mean: averages of points and scores.
        residuals: histograms of |r|.
        clip: τ; reach: τ_p, the most that a residual counts in σ².
        spread: E min(r², τ²).
        curvature_ee: Σ w² x̃ x̃ᵀ, read for predictions; table_ee, error_ee, doubt_e: the same, read for intervals, and
            mean square errors of its entries and of the slope.
        steep: minus the derivative of the averaged score, over that.
        variance, variance_std: σ², and the standard deviation of its error.
    """

    scaling: Scaling
    moments: RowMoments
    start_e: Floats
    point_e: Floats
    mean: descent.Average
    curvature_ee: Symmetric
    table_ee: Symmetric
    error_ee: Nonnegatives
    doubt_e: Nonnegatives
    residuals: Residuals = field(default_factory=Residuals.start)
    clip: Positive = 1.0
    reach: Positive = 2.0
    spread: Positive = 1.0
    steep: Positive = 1.0
    variance: Positive = 1.0
    variance_std: Nonnegative = 1.0
    step: int = 0

    @classmethod
    def start(cls, scaling: Scaling, moments: RowMoments) -> LinearIterate:
        """The prior, before any score."""
        zero_e, little = np.zeros(len(moments.scale_e)), 1e-9 * np.eye(len(moments.scale_e))
        return cls(
            scaling, moments, zero_e, zero_e, descent.Average(zero_e, zero_e), little, little, 0 * little, zero_e
        )
