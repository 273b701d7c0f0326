"""Majorised steps with momentum from noisy scores, and guards against steps that are too long.

If the curvature is never released, or clipped rows hide a part of it, the majoriser may be too small: then the point
swings across the optimum, farther at each step. But two scores G, G' at points u, u' tell the curvature between them,
(u' - u)ᵀ(G - G'), up to noise of known size. `Descent` goes back to the point of the smallest gradient if that exceeds
what momentum can bear, and its majoriser grows.

*Curvature once, then scores, for a model of one's own* (`FixedCurvature`, which is `dpvb.FixedCurvature`):

    m ~ N(m_0, 1/α),   curvature A of the log-likelihood, released once,   scores G at points u, released at each step
    G ≈ A (m - u) + (sampling noise of variance A) + (privacy noise of variance v)

A model with a likelihood p(y | x, m) releases Σ g gᵀ of its rows' scores g at a start, which estimates the Fisher
information, then Σ g at every step, and Σ g gᵀ once more at the end. Far from the optimum Σ g gᵀ is not the curvature:
with labels that are rare, of one level, or told apart by the columns, it is too small or too large by orders of
magnitude. So two scores correct it by a damped BFGS step, if their difference exceeds its noise (Powell 1978), and a
step along which the log posterior has fallen is taken back in part. Steps are shorter where a score is mostly noise.
Without noise they end at the posterior mode. The covariance includes the noise of the scores and of the curvature.

Everything here is post-processing of released numbers and costs no privacy.

*The warning of few steps* is a test. Null hypothesis: the path has settled, so that only the noise of the scores, whose
variance is known exactly, moves the points u_t about the weights m. Statistic: Q = Σ_t w_t ‖u_t - m‖², the mean square
over rows of the ways in ψ, w_t the weights of the scores. In direction e of the eigenbasis the path then is

    u_{t+1} = x_{t+1} + β (x_{t+1} - x_t),   x_{t+1} = u_t - q u_t + (noise of variance n),   0 < q ≤ 1,

an autoregression of order 2. Its variance grows towards the steady one, n times

    ((1 + β)² + β² (1 + βs)/(1 - βs)) / (q (1 + s + 2βs)),   s = 1 - q.

m has noise of its own: the standard deviations of both are added (Minkowski's inequality). Q is a quadratic form of
normal numbers; in each direction it is compared with one square of its mean, the longest tail of that mean. The sum has
a scaled χ² with the first two moments of the sum (Satterthwaite 1946). A fit whose Q is beyond the quantile 1 - 1e-3
has not settled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import chdtri, ndtri

from dpvb.core.model import Schedule
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import UNSEEN, Nonnegative, Nonnegatives, Positive, Symmetric
from dpvb.models.regression import tuned
from dpvb.models.regression.moments import TINY, edge, read_positive

# Steps with momentum β are stable if the curvature is at most this many times the majoriser, (2 + 2β) / (1 + 2β).
_BEARABLE = (2 + 2 * tuned.MOMENTUM) / (1 + 2 * tuned.MOMENTUM)
# convention: relative error of a difference of scores by rounding, generously.
_ROUNDING = 1e-7
# convention: the largest rate at which only noise makes a fit warn.
FALSE_ALARM = 1e-3


@dataclass(frozen=True)
class DiagonalAndConstant:
    """Majoriser safety·diag(steep) + common·sum sumᵀ of the curvature; steps add the prior's ridge; vectors (d,)."""

    steep_d: Floats
    ridge_d: Floats
    sum_d: Floats
    common: float

    def quadratic(self, moved_d: Floats, safety: float) -> float:
        """Curvature that the bound allows along a move."""
        return safety * float(self.steep_d @ moved_d**2) + self.common * float(self.sum_d @ moved_d) ** 2

    def diagonal(self, safety: float) -> Floats:
        """Upper bounds on what `solve` multiplies a coordinate by, (d,)."""
        return 1 / (safety * self.steep_d + self.ridge_d)

    def solve(self, gradient_d: Floats, safety: float) -> Floats:
        """Divide a gradient by the bound with the ridge (Sherman & Morrison 1950)."""
        inverse_d = self.diagonal(safety)
        common_d = inverse_d * self.sum_d
        shift = float(common_d @ gradient_d) / (1 / self.common + float(common_d @ self.sum_d))
        return np.asarray(inverse_d * gradient_d - shift * common_d)


@dataclass(frozen=True)
class Descent:
    """A descent under way; public; vectors (d,).

    Attributes:
        point_d: point at which the next score is asked for.
        safety: factor of the majoriser.
        last_d: the same point before momentum was added.
        best_d, least: point of the smallest gradient so far, and the squared length of that gradient.
        before_d, score_d: last point that was scored, and its score.
        variance_d: noise variance of that score.
        noise_curvature: expected contribution of only this noise to the next measured curvature.
        n_steps: steps since the start or the last return.
    """

    point_d: Floats
    safety: Positive
    last_d: Floats
    best_d: Floats
    before_d: Floats
    score_d: Floats
    variance_d: Nonnegatives
    least: Nonnegative = UNSEEN
    noise_curvature: Nonnegative = 0.0
    n_steps: int = 0

    @classmethod
    def start(cls, point_d: Floats, safety: float) -> Descent:
        """The start at a point."""
        zero_d = np.zeros_like(point_d)
        return cls(point_d, safety, point_d, point_d, point_d, zero_d, zero_d)

    def step(self, score_d: Floats, gradient_d: Floats, variance_d: Floats, majoriser: DiagonalAndConstant) -> Descent:
        """Go uphill with momentum (Nesterov 1983), or back to the best point if steps prove too long.

        Args:
            score_d: noisy gradient of the log likelihood at point_d.
            gradient_d: noisy gradient of the log posterior at point_d.
            variance_d: variance of the noise in both.
            majoriser: majoriser of the curvature.
        """
        if self.n_steps > 0:
            moved_d = self.point_d - self.before_d
            curvature = float(moved_d @ (self.score_d - score_d)) - self.noise_curvature
            noise = math.sqrt(float(np.sum((self.variance_d + variance_d) * moved_d**2)))
            # At the optimum two points differ by rounding only: allow for it, so that it is not taken for curvature.
            noise += _ROUNDING * float(np.linalg.norm(moved_d) * np.linalg.norm(score_d))
            allowed = majoriser.quadratic(moved_d, self.safety)
            if curvature > _BEARABLE * allowed + tuned.SEEN_STD * noise:
                growth = 2.0 * curvature / max(allowed, 1e-3 * curvature)
                safety = self.safety * max(2.0, growth)
                return replace(Descent.start(self.best_d, safety), least=self.least)
        gradient_norm2 = float(np.sum(gradient_d**2 / np.where(variance_d > 0, variance_d, 1.0)))
        smaller = gradient_norm2 < self.least
        best_d, least = (self.point_d, gradient_norm2) if smaller else (self.best_d, self.least)
        k = self.n_steps + 1
        momentum = min(k / (k + 3), tuned.MOMENTUM)
        last_d = self.point_d + majoriser.solve(gradient_d, self.safety)
        point_d = last_d + momentum * (last_d - self.last_d)
        noise_curvature = (1 + momentum) * float(variance_d @ majoriser.diagonal(self.safety))
        return Descent(
            point_d, self.safety, last_d, best_d, self.point_d, score_d, variance_d, least, noise_curvature, k
        )


@dataclass(frozen=True)
class Average:
    """Scores at several points, averaged by inverse noise variance: a score is nearly linear in its point.

    Attributes:
        point_d, score_d: means of points and scores.
        noise: noise variance of the mean score, up to a factor of each coordinate.
    """

    point_d: Floats
    score_d: Floats
    noise: Nonnegative = UNSEEN

    def share(self, noise: float, error: float = 0.0, own: float = 0.0) -> float:
        """The weight in (0, 1] of one more score, of least mean square error; 1 for a score without noise.

        Args:
            noise: noise variance of the score.
            error, own: squares of the errors by which the average, and the score, depart from a linear score.
        """
        return 1.0 if noise == 0 else 1.0 / (1.0 + (noise + own) / (self.noise + error))

    def joined(self, point_d: Floats, score_d: Floats, noise: float, part: float | None = None) -> Average:
        """The average with one more score in it, of the weight `part`; None: `share`."""
        part = self.share(noise) if part is None else part
        mean_point_d = self.point_d + part * (point_d - self.point_d)
        mean_score_d = self.score_d + part * (score_d - self.score_d)
        return Average(mean_point_d, mean_score_d, part**2 * noise + (1.0 - part) ** 2 * self.noise)


def steady_variance(slope_e: Floats, bound_e: Floats, noise_e: Floats, momentum: float) -> Floats:
    """Variances of the points of a path that only noise moves, (e,).

    Args:
        slope_e: minus the derivative of the gradient.
        bound_e: what gradients are divided by, at least `slope_e`.
        noise_e: noise variances of the gradient.
        momentum: β.
    """
    q_e = slope_e / bound_e
    kept_e = momentum * (1.0 - q_e)
    grown_e = (1.0 + momentum) ** 2 + momentum**2 * (1.0 + kept_e) / (1.0 - kept_e)
    return np.asarray(noise_e / bound_e**2 * grown_e / (q_e * (2.0 - q_e + 2.0 * kept_e)))


def farthest(mean_e: Floats) -> float:
    """Return the quantile 1 - `FALSE_ALARM` of Q from its mean in each direction, (e,)."""
    total = float(mean_e.sum())
    if total <= 0.0:
        return 0.0
    unit = float(mean_e @ mean_e) / total
    return unit * float(chdtri(total / unit, FALSE_ALARM))


@dataclass(frozen=True)
class FixedCurvature:
    """Parameters m, with a curvature that is released once and scores that are released in each step.

    Create it with `FixedCurvature.start`.

    Attributes:
        prior_d: Mean of the prior, (d,).
        alpha: Precision of the prior, greater than 0.
        n_steps: Number of scores.
        point_d: Parameters at which the next score is released, (d,).
        curvature_dd: Curvature A, as released and corrected by differences of scores, (d, d).
        curvature_std: Noise standard deviation of a diagonal entry of the released curvature.
        last: Last accepted score and its point.
        mean: Averages of the scores and of their points.
        step: Number of scores so far. Default: 0.
        convergence_ratio: Size of the last score relative to its noise; above 1 after the last step if the fit has not
            converged. Default: 0.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> dpvb.FixedCurvature.start(np.zeros(2), alpha=1.0, n_steps=10).point_d
        array([0., 0.])
    """

    prior_d: Floats
    alpha: Positive
    n_steps: int
    point_d: Floats
    curvature_dd: Symmetric
    curvature_std: Nonnegative
    last: Average
    mean: Average
    step: int = 0
    convergence_ratio: Nonnegative = 0.0

    @classmethod
    def start(cls, prior_d: Floats, *, alpha: float, n_steps: int) -> FixedCurvature:
        """Return the prior, before anything is released.

        Args:
            prior_d: mean of the parameters, (d,), where the first score is taken.
            alpha: precision of the prior of every parameter.
            n_steps: number of scores.
        """
        no_score = Average(prior_d, np.zeros(len(prior_d)))
        return cls(prior_d, alpha, n_steps, prior_d, np.eye(len(prior_d)), 0.0, no_score, no_score)

    @staticmethod
    def schedule(n_steps: int, *, first: float = 0.1, second: float = 0.2, last: float = 0.1) -> Schedule:
        """Return a plan in which later scores are more precise, and the shares of the other releases' budgets."""
        noise = [math.sqrt(n_steps / t) for t in range(1, n_steps + 1)]
        return Schedule(noise, {"first": first, "second": second, "last": last})

    def at(self, point_d: Floats) -> FixedCurvature:
        """Return a copy with another start, before the curvature is released."""
        return replace(self, point_d=point_d)

    def with_curvature(self, curvature_dd: Floats, noise_std: float) -> FixedCurvature:
        """Return it with a curvature, at the start or once more at the end.

        Args:
            curvature_dd: noisy sum over all data of g gᵀ, or another estimate of A, (d, d).
            noise_std: noise of an entry of its diagonal, see `Estimate.noise_std`.
        """
        diagonal_dd = np.diag(np.maximum(np.diag(curvature_dd), noise_std + TINY))
        read_dd = read_positive(curvature_dd, diagonal_dd, noise_std, noise_std)
        return replace(self, curvature_dd=read_dd, curvature_std=noise_std)

    def with_score(self, score_d: Floats, noise_std: float) -> FixedCurvature:
        """Return the state after a score at `point_d`.

        Args:
            score_d: noisy sum over all data of the derivatives of the log-likelihood, (d,).
            noise_std: noise of an entry.
        """
        now, step = Average(self.point_d, score_d, noise_std**2), self.step + 1
        if self.step == 0:
            return replace(self, last=now, mean=now, step=step)._led()
        moved_d = now.point_d - self.last.point_d
        spread = math.sqrt(now.noise + self.last.noise) + _ROUNDING * float(np.linalg.norm(score_d))
        path = replace(self, curvature_dd=self._corrected(now, moved_d, spread), step=step)
        uphill, after = (float(self._gradient(one) @ moved_d) for one in (self.last, now))
        if uphill + after < -tuned.SEEN_STD * spread * float(np.linalg.norm(moved_d)):
            # The log posterior has fallen, by the trapezoid rule: where it was highest on the way, the slope was 0.
            part = max(uphill / (uphill - after), tuned.LEAST_BACK)
            path = replace(path, point_d=self.last.point_d + part * moved_d)
        else:
            late = self.step / self.n_steps
            is_far = late < tuned.AVERAGE_ANEW and self._distance(now.point_d) > tuned.FAR_STD
            fresh = noise_std == 0 or late < 2.0 * tuned.AVERAGE_START or is_far
            mean = now if fresh else self.mean.joined(now.point_d, score_d, now.noise)
            path = replace(path, last=now, mean=mean)._led()
        return replace(path, convergence_ratio=path._restlessness()) if step == self.n_steps else path

    def _restlessness(self) -> float:
        """How far the averaged scores lead away from the mean point, over the farthest that noise leads."""
        limit = tuned.SETTLED_NOISELESS if self.mean.noise == 0 else tuned.SETTLED * math.sqrt(len(self.prior_d))
        return self._distance(self._newton()[0]) / limit

    def posterior(self) -> tuple[Floats, Floats]:
        """Mean, (d,), and covariance, (d, d), of the parameters; with the noise of scores and of the curvature."""
        mean_d, gain_e, eigenvalue_e, basis_de = self._newton()
        variance_e = 1 / (self.alpha + gain_e * eigenvalue_e)
        if self.curvature_std > 0:
            variance_e = expected_variance(eigenvalue_e, self.curvature_std, self.mean.noise, self.alpha)
        return mean_d, (basis_de * variance_e) @ basis_de.T

    def intervals(self, names: Sequence[str], level: float) -> list[tuple[str, float, float, float]]:
        """Name, posterior mean, and ends of the credible interval of each parameter."""
        mean_d, covariance_dd = self.posterior()
        reach_d = float(ndtri(0.5 + level / 2)) * np.sqrt(np.diag(covariance_dd))
        return list(zip(names, mean_d.tolist(), (mean_d - reach_d).tolist(), (mean_d + reach_d).tolist(), strict=True))

    def _gradient(self, score: Average) -> Floats:
        """Gradient of the log posterior where a score was taken."""
        return score.score_d - self.alpha * (score.point_d - self.prior_d)

    def _newton(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Posterior mean by the averaged scores, (d,); the weight of a score through its noise; eigenpairs of A."""
        eigenvalue_e, basis_de = np.linalg.eigh(self.curvature_dd)
        eigenvalue_e = np.maximum(eigenvalue_e, TINY)
        gain_e = eigenvalue_e / (eigenvalue_e + self.mean.noise)
        offset_e = basis_de.T @ (self.mean.point_d - self.prior_d)
        pull_e = gain_e * (eigenvalue_e * offset_e + basis_de.T @ self.mean.score_d)
        return self.prior_d + basis_de @ (pull_e / (self.alpha + gain_e * eigenvalue_e)), gain_e, eigenvalue_e, basis_de

    def _led(self) -> FixedCurvature:
        """Return it with the point to which the last score leads; steps are shorter where a score is mostly noise."""
        _, gain_e, eigenvalue_e, basis_de = self._newton()
        gradient_e = gain_e * (basis_de.T @ self.last.score_d)
        gradient_e -= self.alpha * (basis_de.T @ (self.last.point_d - self.prior_d))
        # The curvature may be larger than it was read, by what noise hides.
        upper_e = eigenvalue_e + edge(len(gain_e), self.curvature_std)
        return replace(self, point_d=self.last.point_d + basis_de @ (gradient_e / (self.alpha + gain_e * upper_e)))

    def _corrected(self, now: Average, moved_d: Floats, spread: float) -> Floats:
        """The curvature after a damped BFGS step (Powell 1978): two scores show it between their points.

        Args:
            now: the newest score.
            moved_d: its point, less that of the last one.
            spread: noise of an entry of the difference of both scores.
        """
        bent_d, expected_d = self.last.score_d - now.score_d, self.curvature_dd @ moved_d
        beyond_d, allowed = bent_d - expected_d, float(expected_d @ moved_d)
        if abs(float(beyond_d @ moved_d)) <= tuned.SEEN_STD * spread * float(np.linalg.norm(moved_d)):
            return self.curvature_dd
        # Shrunk by its noise (James & Stein 1961), and so far that curvatures fall by a part at most.
        beyond_d = beyond_d * max(1 - len(beyond_d) * spread**2 / float(beyond_d @ beyond_d), 0.0)
        lower = (tuned.LEAST_SECANT - 1) * allowed
        if float(beyond_d @ moved_d) < lower:
            beyond_d = beyond_d * (lower / float(beyond_d @ moved_d))
        bent_d = expected_d + beyond_d
        added_dd = np.outer(bent_d, bent_d) / float(bent_d @ moved_d) - np.outer(expected_d, expected_d) / allowed
        return self.curvature_dd + added_dd

    def _distance(self, point_d: Floats) -> float:
        """From the averages to a point, in posterior standard deviations."""
        _, gain_e, eigenvalue_e, basis_de = self._newton()
        way_e = basis_de.T @ (point_d - self.mean.point_d)
        return math.sqrt(float((self.alpha + gain_e * eigenvalue_e) @ way_e**2))


def expected_variance(eigenvalue_e: Floats, std: float, noise: float, alpha: float) -> Floats:
    """Posterior variances, (e,), averaged over what the information of a score may be.

    A score of information a and noise v leaves the variance 1 / (α + a²/(a + v)). Its error is large if a is small,
    so that the variance at the eigenvalue that was read would be too small. The prior of a is log-uniform.

    Args:
        eigenvalue_e: eigenvalues as they were read.
        std: noise of an entry of the diagonal of the matrix.
        noise: v.
        alpha: precision of the prior.
    """
    error = tuned.EIGENVALUE_STD * std
    wide_t = np.geomspace(alpha / 10, 4 * error + float(eigenvalue_e.max()) + alpha, 300)
    near_et = eigenvalue_e[:, None] + error * np.linspace(-4, 4, 161)
    a_et = np.sort(np.hstack([np.tile(wide_t, (len(eigenvalue_e), 1)), np.maximum(near_et, alpha / 10)]))
    log_weight_et = -0.5 * ((eigenvalue_e[:, None] - a_et) / error) ** 2
    weight_et = np.exp(log_weight_et - log_weight_et.max(axis=1, keepdims=True))
    weight_et *= np.gradient(np.log(a_et), axis=1)
    return np.asarray((weight_et / (alpha + a_et**2 / (a_et + noise))).sum(axis=1) / weight_et.sum(axis=1))
