"""Models of sequences: windows of them are released once, and all inference is made of what was released.

This package exports the parts of user-defined models: denoised windows,
states show, chains of states, the fit to windows and the passes over sequences that one may see.
"""

from __future__ import annotations

from dpvb.models.sequences.emissions import (
    BernoulliEmissions,
    CategoricalEmissions,
    Emissions,
    GaussianEmissions,
    PoissonEmissions,
)
from dpvb.models.sequences.hidden_chain import HiddenChain, Laws, StateChain, Sums
from dpvb.models.sequences.passes import log_likelihood, most_probable, smoothed
from dpvb.models.sequences.windows import Fit, Windows, fit_windows

__all__ = [
    "BernoulliEmissions",
    "CategoricalEmissions",
    "Emissions",
    "Fit",
    "GaussianEmissions",
    "HiddenChain",
    "Laws",
    "PoissonEmissions",
    "StateChain",
    "Sums",
    "Windows",
    "fit_windows",
    "log_likelihood",
    "most_probable",
    "smoothed",
]
