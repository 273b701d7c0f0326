"""Mixtures of products of Gaussian, Poisson and categorical columns (Park, Foulds, Chaudhuri & Welling 2017).

    k ~ π,   numbers ~ N(m_k, V_k),   counts_p ~ Poisson(λ_kp),   categories_j ~ p_kj        unit: a row

==================  =============================================================================
paper               code
==================  =============================================================================
r_k                 r_nk: responsibilities, r_k ∝ π_k N(x; m_k, V_k) Π_p Poisson(c_p; λ_kp) Π_j p_kj(x_j)
m_k, L_k            mean_kd, root_kdd: V_k = L_k L_kᵀ, numbers in [-1, 1]
λ_kp, p_kv          rate_kp, expected_kv over its sums in each column
z_k, h_k            see `gaussian`; scores (c - λ)/√λ of counts stand beside z
block "count"       Σ r, norm 1
block "categories"  Σ r ⊗ onehot, norm √D
block "pairs"       one cell of each pair of columns, norm √(J(J - 1)/2), once at the end: see `pairs`
block "scores"      Σ r_k clip(a1 z_k, a2 h_k), norm 1 for every number of components: see `scores`
n̄, S̄                sums.count_k, sums.cell_kv: running means; n̂ is their weighted mean, see `updates`
==================  =============================================================================

The blocks of phases "first" to "third" are the same with one component, r = 1: where the mass is. From there the
components start in public random directions. How many there are follows from the released number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import digamma, logsumexp

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models.mixtures import categorical, gaussian, poisson, splitting, tuned, updates
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import Components, MixedRows, Posterior, Sums
from dpvb.models.mixtures.known import Known
from dpvb.models.mixtures.pairs import Pairs
from dpvb.models.mixtures.scores import Coordinates, Scores

_HOME = ("first", "second", "third")


@dataclass(frozen=True)
class Mixture:
    """The model; every field is public.

    Attributes:
        n_components: K, the largest number of components.
        columns: what is declared of the columns.
        prune: whether fewer components are kept where the released number of rows is small.
        estimate: "posterior" (variational Bayes) or "mode" (private EM).
        prior: weight of the priors; 0: none.
        num_steps: J; None: planned.
        known: groups that the components start from, and are drawn to; as many as there are components.
        check: share of the budget for tables of all pairs of columns; 0: none are released.

    Raises:
        ParameterError: for a field outside its range.
    """

    n_components: int
    columns: Columns
    prune: bool = True
    estimate: str = "posterior"
    prior: float = 1.0
    num_steps: int | None = None
    known: Known | None = None
    check: float = 0.0

    def __post_init__(self) -> None:
        check_integer("n_components", self.n_components, low=1, high=10**4)
        check_choice("estimate", self.estimate, ("posterior", "mode"))
        check_number("prior", self.prior, low=0, high=1e9)
        if self.num_steps is not None:
            check_integer("num_steps", self.num_steps, low=1, high=10**6)
        if check_number("check_share", self.check, low=0, high=0.5) and not self.pairs.places:
            raise ParameterError("check_share must be 0 for a table of one column: it pays for tables of two.")

    @property
    def steps(self) -> int:
        """J."""
        return tuned.NUM_STEPS[self.columns.kind] if self.num_steps is None else self.num_steps

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Counts, categories and scores: of one component in the first phases, of K at every step."""
        count, cells, scores = self.columns.weights
        made: dict[str, Block] = {}
        for k, end, phase in [*((1, f"_{phase}", phase) for phase in _HOME), (self.n_components, "", "step")]:
            given: dict[str, Any] = {"phase": phase, "average": False}
            made[f"count{end}"] = Block((k,), 1.0, "nonnegative", weight=count, **given)
            if self.columns.sizes:
                bound, shape = math.sqrt(len(self.columns.sizes)), (k, sum(self.columns.sizes))
                made[f"categories{end}"] = Block(shape, bound, "nonnegative", weight=cells, **given)
            if self.columns.clip.size:
                made[f"scores{end}"] = Block((k, self.columns.clip.size), 1.0, weight=scores, **given)
        if self.check:
            made["pairs"] = Block((self.pairs.length,), self.pairs.bound, "nonnegative", "last")
        return made

    @property
    def pairs(self) -> Pairs:
        """Tables of two columns."""
        return Pairs(self.columns)

    @property
    def schedule(self) -> Schedule:
        """A tenth of the mixture's budget for the one component, equal noise at every step; averages are kept in q."""
        home = (1 - self.check) * tuned.HOME / len(_HOME)
        return Schedule((1.0,) * self.steps, {**dict.fromkeys(_HOME, home), "last": self.check})

    def init(self, rng: np.random.Generator) -> Posterior:
        """One component in the middle of the ranges, and directions that no data have touched."""
        k, d, v, p = self.n_components, self.columns.numbers, sum(self.columns.sizes), len(self.columns.max_counts)
        direction_kd, tilt_kv, tilt_kp = (rng.standard_normal((k, width)) for width in (d, v, p))
        home = Components.public(d, self.columns.most_p, self.columns.sizes)
        sums, home_sums = (Sums(np.zeros(n), np.zeros((n, v))) for n in (k, 1))
        cell_c = np.zeros(self.pairs.length if self.check else 0)
        return Posterior(home, home, sums, home_sums, direction_kd, tilt_kv, tilt_kp, cell_c)

    def e_step(self, q: Posterior, batch: MixedRows, blocks: Mapping[str, Block]) -> Contributions:
        """Responsibilities, categories, and scores of every row by itself; or its cells."""
        if "pairs" in blocks:
            return {"pairs": self.pairs.cells(batch)}
        name = next(name for name in blocks if name.startswith("count"))
        is_home = name != "count"
        now = q.home if is_home else q.now
        with np.errstate(all="ignore"):
            at = Coordinates.of(self.columns.clip, now, batch)
            if is_home:
                r_kn = np.ones((1, len(batch.sound_n)))
            else:
                log_kn = self._log_joint(now, batch, at, expected=self.estimate == "posterior")
                log_kn -= log_kn.max(axis=0)
                r_kn = np.exp(log_kn, out=log_kn)
                r_kn /= sum(r_kn)  # one after the other: a row's own order, whatever else is there
            r_kn *= batch.sound_n
            whole_nk = np.ascontiguousarray(r_kn.T)
            if len(r_kn) < blocks[name].shape[0]:
                whole_nk = np.zeros((len(batch.sound_n), *blocks[name].shape))
                whole_nk[:, list(now.used)] = r_kn.T
            made: dict[str, Any] = {"count": Rows(whole_nk), "scores": Scores(at, r_kn, now.used)}
            if self.columns.sizes:
                made["categories"] = Kron(whole_nk, categorical.one_hot(batch.code_nj, self.columns.sizes))
        return {name: made[name.split("_")[0]] for name in blocks}

    def log_joint(self, now: Components, rows: MixedRows, *, expected: bool = False) -> Floats:
        """Log-density of every row with every component in use, (n, k), in nats.

        Args:
            expected: whether logarithms of parameters are expected ones under their posterior, or those of means.
        """
        at = Coordinates.of(self.columns.clip, now, rows)
        return np.ascontiguousarray(self._log_joint(now, rows, at, expected=expected).T)

    def _log_joint(self, now: Components, rows: MixedRows, at: Coordinates, *, expected: bool) -> Floats:
        used, d = list(now.used), self.columns.numbers
        number_k, expected_kv = now.number_k[used], now.expected_kv[used]
        log_kn = gaussian.log_density(rows.x_nd, at.square_kn, now.root_kdd[used], self.columns.gaps)
        log_kn += poisson.log_density(rows.count_np, now.rate_kp[used]).T if self.columns.max_counts else 0.0
        log_kv = np.log(categorical.normalised(expected_kv, self.columns.sizes))
        log_k = np.log(number_k / number_k.sum())
        if expected:
            log_kv = digamma(expected_kv) - digamma(categorical.totals(expected_kv, self.columns.sizes))
            log_k = digamma(number_k) - digamma(number_k.sum()) + gaussian.expected_correction(number_k, d)
        log_kn += categorical.log_density(rows.code_nj, log_kv, self.columns.sizes).T if self.columns.sizes else 0.0
        log_kn += log_k[:, None]
        return log_kn

    def score(self, q: Posterior, rows: MixedRows) -> Floats:
        """Log-density of each row, (n,), in nats, of numbers in [-1, 1]; NaN for a faulty one."""
        return np.asarray(logsumexp(self.log_joint(q.now, rows), axis=1) * rows.sound_n)

    def m_step(self, s: Estimate, q: Posterior) -> Posterior:
        """A step from what was released last: of the one component, then of all, whose number follows from it."""
        columns = self.columns
        if "pairs" in s.names:
            return replace(q, cell_c=s.read("pairs"), cell_std=s.noise_std("pairs"))
        if "count" in s.names:
            released = updates.released(s, "", columns)
            rho = updates.step_size(q, released, columns, self.steps)
            return updates.step(q, released, columns, rho, self.prior, self.known)
        phase = [phase for phase in _HOME if f"count_{phase}" in s.names][-1]
        q = updates.home_step(q, updates.released(s, f"_{phase}", columns), columns, self.prior)
        if phase != _HOME[-1]:
            return q
        if self.known is not None:
            return replace(q, now=self.known.start(float(q.home.number_k[0]), columns.sizes))
        mu = splitting.precision(s.noise_std(f"count_{phase}"), len(_HOME), columns)
        number = (
            splitting.kept(updates.numbers(q.home_sums, columns)[0], self.n_components, mu, columns)
            if self.prune
            else self.n_components
        )
        return replace(q, now=splitting.split(q, number, columns))
