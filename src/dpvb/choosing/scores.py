"""Scores of private units, for choosing among fitted models: behind the wall, bounded, each from its own unit alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from scipy.special import gammaln

from dpvb.arrays import Bools, Floats
from dpvb.core.contributions import Contributions
from dpvb.core.forms import Rows
from dpvb.core.noise import Words
from dpvb.core.source import Chunk, Source
from dpvb.data.tables.design import SparseDesignRows
from dpvb.estimators.lda import LDA
from dpvb.estimators.sbn import SigmoidBeliefNetwork
from dpvb.kernels import linear
from dpvb.models.belief_network import kernel as sbn_kernel
from dpvb.models.regression.likelihood import Likelihood

Units = TypeVar("Units")
#: Scores of clean rows under a fitted model; NaN where there is nothing to score.
Score = Callable[[Any], Floats]


class Part(Generic[Units]):
    """The units whose coin says that they are scored, or those that are fitted."""

    def __init__(self, source: Source[Units], coins: Words, holdout: float, *, scored: bool) -> None:
        self._source, self._coins, self._scored = source, coins, scored
        self._threshold = np.uint64(math.floor(math.ldexp(holdout, 64)))

    def count(self) -> int:
        """Number of units in this part; private."""
        return int(np.count_nonzero(self._chosen(0, self._source.count())))

    def chunks(self) -> Iterator[Chunk[Any]]:
        """Chunks of this part, in the source's order; scored ones with their persons in sight."""
        start = 0
        for chunk in self._source.chunks():
            chosen = chunk.select(self._chosen(start, chunk.num_units))
            start += chunk.num_units
            yield Whole(chosen) if self._scored else chosen

    def _chosen(self, start: int, number: int) -> Bools:
        return np.asarray((self._coins(number, start) < self._threshold) == self._scored)


@dataclass(frozen=True)
class Whole:
    """A chunk whose rows are itself, so that a person's rows can be averaged; each unit is one row."""

    rows: Chunk[Any]
    unit_of_row: None = None

    @property
    def num_units(self) -> int:
        """Number of units in the chunk."""
        return self.rows.num_units

    def select(self, units: Bools) -> Whole:
        """The chosen units alone."""
        return Whole(self.rows.select(units))


def contributions(score: Score, score_range: tuple[float, float], chunk: Chunk[Any]) -> Contributions:
    """Each unit's score, clipped, about the middle of its range; NaN, which the wall drops, for what has none.

    The middle takes nothing from the comparison, as all candidates are scored on the same units, and halves the norm.
    """
    low, high = score_range
    value_n = np.clip(score(chunk.rows), low, high) - (low + high) / 2
    if chunk.unit_of_row is not None:
        sound = np.isfinite(value_n)
        unit, units = chunk.unit_of_row[sound], chunk.num_units
        with np.errstate(invalid="ignore"):
            total = np.bincount(unit, weights=value_n[sound], minlength=units)
            value_n = total / np.bincount(unit, minlength=units)
    return {"score": Rows(value_n[:, None])}


def usual_range(kind: type, model: Any) -> tuple[float, float]:
    """Ends of a score, from that of a uniform guess."""
    if issubclass(kind, LDA):
        guess = math.log(max(model.n_terms, 2))
        return -1.5 * guess, -0.5 * guess
    if issubclass(kind, SigmoidBeliefNetwork):
        return -model.n_visible * math.log(2.0), 0.0
    return -4.0 * math.log1p(model.likelihood.max_y), 0.0


def scores(trial: Any, rows: Any) -> Floats:
    """Scores of clean rows, each from its own row, bit for bit: what is added up elsewhere, or in BLAS, is not used."""
    if isinstance(trial, LDA):
        row_j = np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr))
        tokens_n = np.bincount(row_j, weights=rows.counts, minlength=rows.num_rows)
        return np.asarray(trial._fitted_model.bound(trial._q, rows) / tokens_n)
    if isinstance(trial, SigmoidBeliefNetwork):
        q, pi_nk = trial._q, trial._local(rows)[0]
        psi_nj = linear.product(pi_nk, q.w_kj) + q.c_j
        # Rounding may take a variance near zero below it.
        second_nj = psi_nj**2 + np.maximum(linear.product(pi_nk * (1 - pi_nk), q.w_kj**2), 0.0)
        return sbn_kernel.example_bound(rows, pi_nk, psi_nj, second_nj, q.b_k, q.b_k**2)
    mean_d, likelihood = trial._weights.mean_d, trial._likelihood
    if isinstance(rows, SparseDesignRows):
        row_j = np.repeat(np.arange(len(rows.y_n)), np.diff(rows.indptr))
        weights = rows.values * mean_d[rows.indices]
        psi_n: Floats = np.bincount(row_j, weights=weights, minlength=len(rows.y_n)).astype(np.float64)
    else:
        psi_n = linear.dot(rows.x_nd, mean_d)
    return log_probability(likelihood, psi_n, rows.y_n, rows.trials_n)


def log_probability(likelihood: Likelihood, psi_n: Floats, y_n: Floats, trials_n: Floats) -> Floats:
    """Logarithm of p(y | ψ) of each row."""
    b_n, r = likelihood.b(y_n, trials_n), likelihood.dispersion
    rest_n = {
        "logistic": np.zeros_like(y_n),
        "binomial": gammaln(trials_n + 1) - gammaln(y_n + 1) - gammaln(trials_n - y_n + 1),
        "negative_binomial": gammaln(y_n + r) - gammaln(y_n + 1) - gammaln(r),
    }[likelihood.kind]
    return np.asarray(y_n * psi_n - b_n * np.logaddexp(0.0, psi_n) + rest_n)
