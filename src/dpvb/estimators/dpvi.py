"""Private variational inference for log-densities that users write, for scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from dpvb.core.plan import Plan
from dpvb.core.schedule import Schedule
from dpvb.data.tables.numbers import Numbers
from dpvb.estimators.base import PrivateEstimator, Task, column_names, generator, if_fitted
from dpvb.estimators.given import Records, Responses
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import NONNEGATIVE, Nonnegatives
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer
from dpvb.guards.lacking import constructor_says_what_lacks
from dpvb.models.gradients import tuned
from dpvb.models.gradients.density import Density, optional
from dpvb.models.gradients.numpyro_model import NumPyro
from dpvb.models.gradients.variational import Guide, Variational, VariationalState
from dpvb.results import trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Figure, Intervals

#: Ends of a 95 % interval, in standard deviations.
_NORMAL_95 = 1.959964
# Steps of a fit, at least.
_STEPS = 200
# Passes over the data, with smaller batches.
_PASSES = 20
# Standard deviation of a parameter, over that of its prior, that is worth a fit.
_WORTH = 0.1
# Square of a gradient over that of the clip; benchmark `forecasts` chose it.
_INFORMATIVE = 0.35
# Draws of the posterior by which rows are scored.
_DRAWS = 64
# Rows that are scored at a time.
_SCORED = 4096


@dataclass(frozen=True)
class ParameterPosterior:
    """What was learned: the posterior of θ, with a Cholesky factor of a full-rank guide, and the shape of the rows."""

    loc_p: Floats
    scale_p: Nonnegatives
    scale_tril_pp: Floats | None
    features: Annotated[int, NONNEGATIVE]
    responses: Annotated[int | None, NONNEGATIVE]


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class DPVI(PrivateEstimator[Variational, VariationalState]):
    """A Gaussian posterior for any log-density in JAX or NumPyro, under (ε, δ)-differential privacy.

    Gradients of each row are clipped, summed and noised at each step; see models.gradients. Needs
    the extra `jax`. `fit` takes private rows X, (rows, features): NumPy, SciPy sparse or a DataFrame of
    numbers; a row that holds NaN, infinity or no number counts as no row, silently; and private responses y, (rows,) or
    (rows, responses), numbers; None: log_density takes x alone. The parameters of the budget, the batches and the
    ledger are those of `PrivateEstimator`; n_steps=None: 200 gradients, or 20 passes where batches are smaller and
    that is more.

    Args:
        log_density: log p(row | θ), a scalar, written with jax.numpy: a function of (θ, x), or of (θ, x, y) where fit
            is given y; x is (features,), y a scalar or (responses,), in float32.
        numpyro_model: instead of log_density, a NumPyro model of (x) or (x, y), rows first, that draws its latent
            variables once for all rows and observes in a plate over x.shape[0].
        parameters: θ: its length P, or an example in any pytree of arrays, whose values are the start; with
            log_density alone.
        log_prior: log p(θ), a scalar; None: standard normal. It is neither clipped nor noised.
        guide: the posterior: "mean_field", "full_rank" (P up to 2000), or "point" (private gradient descent).
        clip_norm: bound on the norm of a row's gradient in θ.
        learning_rate: first rate of Adam, in units of θ; None: 40/n_steps, at most 1/2.
        init_scale: standard deviation of the guide at the start.
        row_by_row: True computes gradients one row after the other; None does so only where rows computed together are
            found to depend on their places.

    Attributes:
        loc_: posterior mean (or the point), (P,), of θ flattened; of unconstrained values with a NumPyro model.
        scale_: posterior standard deviations, (P,); they include what the private noise leaves open.
        scale_tril_: Cholesky factor of the covariance, (P, P), of a full-rank guide alone.
        privacy_: the privacy statement of the fit.
        n_iter_, n_features_in_: number of steps, and of features.
    """

    log_density: Callable[..., Any] | None = None
    _: KW_ONLY
    numpyro_model: Callable[..., Any] | None = None
    parameters: Any = None
    log_prior: Callable[[Any], Any] | None = None
    guide: Guide = "mean_field"
    clip_norm: float = 1.0
    learning_rate: float | None = None
    init_scale: float = 0.1
    row_by_row: bool | None = None

    _record_class: ClassVar[type] = ParameterPosterior
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse",)

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[Variational]:
        """What a fit to private rows would do; the density is tried first, on public rows."""
        numbers = Numbers(X, y, group=group)
        model = self._model(numbers.features, numbers.responses)
        # Of a chunk about as many rows are in a batch as are computed together. They are tried here, before any cost.
        sampling_prob = self._sampler().sampling_prob
        rows = numbers.cut(math.floor(model.gradients.batch_size * (0.9 / sampling_prob if sampling_prob < 1 else 1)))
        shares = {"first": tuned.LAST_BUDGET, "last": tuned.LAST_BUDGET}
        responses = "" if rows.responses is None else f" and {max(rows.responses, 1)} responses"
        public = {
            "columns": f"{rows.features} features{responses}",
            "density": f"the density of {model.density.num_parameters} parameters and its prior, as functions",
            "parameters": f"guide {self.guide!r}, the plan, the draws from the guide and all other parameters",
        }
        notes = {"width": rows.features, "responses": rows.responses, "names": column_names(X)}
        return self._planned_task(model, rows, Schedule((1.0,) * model.n_steps, shares), public, notes)

    def _learned(self, task: Task[Variational], q: VariationalState) -> ParameterPosterior:
        is_full = self.guide == "full_rank"
        scale_p = np.sqrt(np.diagonal(q.covariance) if is_full else q.covariance)
        tril_pp = np.linalg.cholesky(q.covariance).astype(np.float64) if is_full else None
        return ParameterPosterior(q.average_p, scale_p, tril_pp, task.notes["width"], task.notes["responses"])

    def _check(self, record: ParameterPosterior) -> None:
        trees.check_lengths(record, p=len(record.loc_p))
        if (record.scale_tril_pp is None) == (self.guide == "full_rank"):
            raise ValueError("a posterior of another guide")

    def _show(self, record: ParameterPosterior) -> None:
        """Functions are not saved; `set_params` gives them back to a loaded model for what needs them."""
        self.n_features_in_, self._responses = record.features, record.responses
        self.loc_, self.scale_ = record.loc_p, record.scale_p
        if record.scale_tril_pp is not None:
            self.scale_tril_ = record.scale_tril_pp

    def _expected_accuracy(self, task: Task[Variational], plan: Plan, n: float) -> ExpectedAccuracy:
        number, start = task.model.density.num_parameters, math.floor(tuned.AVERAGE_START * task.model.n_steps)
        of_steps = plan.noise_stds("gradient")[start:]
        noise = of_steps[0] / math.sqrt(len(of_steps))
        information = n * self.clip_norm**2 * _INFORMATIVE / number  # Of gradients that are about as long as the clip.
        std = (1.0 / (1.0 / (1.0 / information + (noise / information) ** 2) + 1.0)) ** 0.5
        return ExpectedAccuracy("standard deviation of a parameter", std, _WORTH, unknown=1.0)

    def _facts_for_report(self) -> Iterator[Figure]:
        """Each parameter's mean and 95 % interval."""
        loc_p, scale_p = np.ravel(self.loc_), np.ravel(self.scale_)
        yield Intervals(
            name="parameters",
            title="Parameters",
            note="95 % intervals of a normal posterior, on the scale that is not constrained.",
            rows=tuple(
                (f"theta[{p}]", float(loc), float(loc - _NORMAL_95 * std), float(loc + _NORMAL_95 * std), "")
                for p, (loc, std) in enumerate(zip(loc_p, scale_p, strict=True))
            ),
        )

    def sample_posterior(self, n: int = 1, rng: Any = None) -> Any:
        """Draw n θ from the posterior: (n, P), or the pytree of `parameters` with n first in every array.

        With a NumPyro model: {site: values}, constrained. They tell no more about the data than the posterior does.

        Args:
            n: number of draws.
            rng: a seed, a NumPy generator or None.
        """
        self._check_fitted()
        return self._formed(self._draws(check_integer("n", n, low=0, high=10**9), rng))

    @property
    def theta_(self) -> Any:
        """θ at the posterior mean, in the form that `sample_posterior` draws it."""
        self._check_fitted()
        formed = self._formed(self.loc_[None])
        return formed[0] if isinstance(formed, np.ndarray) else optional("jax").tree.map(lambda leaf: leaf[0], formed)

    def score_samples(self, X: Records, y: Responses = None, *, public: bool = False) -> Floats:
        """Log of the posterior predictive density of each public row, (rows,), in nats, by 64 draws of θ.

        Raises:
            PrivacyError: unless public=True says that X is not private.
            DataFormatError: for rows of another width, or with NaN.
        """
        self._check_public(public)
        self._check_fitted()
        rows = Numbers(X, y)
        if (rows.features, rows.responses) != (self.n_features_in_, self._responses):
            raise DataFormatError(
                f"X has {rows.features} features, but DPVI is expecting {self.n_features_in_} features "
                "as input, and y in the form that it was fitted with."
            )
        jax = optional("jax")
        density = self._density(rows.features, rows.responses)
        number = 1 if self.guide == "point" else _DRAWS
        theta_np = self._draws(number, 0).astype(np.float32)

        def of_row(*row: Any) -> Any:
            log_p = jax.vmap(lambda theta_p: density.likelihood(theta_p, *row))(theta_np)
            return jax.scipy.special.logsumexp(log_p) - math.log(number)

        compiled = jax.jit(jax.vmap(of_row))
        scores = [np.empty(0)]
        for chunk in rows.chunks():
            parts = chunk.rows
            if any(np.isnan(part).any() for part in parts):
                raise DataFormatError("X or y has rows with NaN, infinity or no number, which have no density.")
            for i in range(0, len(parts[0]), _SCORED):
                scores.append(np.asarray(compiled(*(part[i : i + _SCORED] for part in parts))))
        return np.concatenate(scores)

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, public: bool = False) -> float:
        """Mean of `score_samples`: log predictive density of a public row, in nats; higher is better.

        Raises:
            PrivacyError: unless public=True says that X is not private.
        """
        score_n = self.score_samples(X, y, public=public)
        return float(score_n.mean()) if len(score_n) else 0.0

    def _density(self, features: int, responses: int | None) -> Density:
        """The density that the parameters name, tried on public rows."""
        if (self.log_density is None) == (self.numpyro_model is None):
            raise ParameterError(
                "Give log_density or numpyro_model: one of the two, and not both. A model from a file has neither, as "
                "files hold no functions: call set_params(log_density=...) first."
            )
        if self.log_density is not None:
            if self.parameters is None:
                raise ParameterError("parameters must be the number of parameters, or an example of θ, got None.")
            return Density(self.log_density, self.parameters, features, responses, self.log_prior)
        if self.parameters is not None or self.log_prior is not None:
            raise ParameterError("parameters and log_prior must be None: a NumPyro model has its own.")
        assert self.numpyro_model is not None
        return NumPyro(self.numpyro_model, features, responses).density()

    def _model(self, features: int, responses: int | None) -> Variational:
        """The model that the parameters name."""
        n_steps, sampling_prob = self.n_steps, self._sampler().sampling_prob
        if n_steps is None:
            n_steps = _STEPS if sampling_prob == 1 else max(_STEPS, math.ceil(_PASSES / sampling_prob))
        options = {"clip_norm": self.clip_norm, "learning_rate": self.learning_rate, "init_scale": self.init_scale}
        density = self._density(features, responses)
        return Variational(density, self.guide, n_steps, row_by_row=self.row_by_row, **options)  # type: ignore[arg-type]

    def _draws(self, n: int, rng: Any) -> Floats:
        """Flat draws from the posterior, (n, P)."""
        draw_np = generator("rng", rng).standard_normal((n, len(self.loc_)))
        spread_np = draw_np @ self.scale_tril_.T if self.guide == "full_rank" else draw_np * self.scale_
        return np.asarray(self.loc_ + spread_np)

    def _formed(self, theta_np: Floats) -> Any:
        """Flat θ, (n, P), in the form of `parameters`, or of a NumPyro model's latent variables."""
        if self.numpyro_model is None and (self.parameters is None or isinstance(self.parameters, (int, np.integer))):
            return theta_np
        jax = optional("jax")
        density = self._density(self.n_features_in_, self._responses)
        form = density.tree
        if self.numpyro_model is not None:
            model = NumPyro(self.numpyro_model, self.n_features_in_, self._responses)

            def form(theta_p: Any) -> Any:
                return model.constrained(density.tree(theta_p))

        return jax.tree.map(np.asarray, jax.vmap(form)(theta_np.astype(np.float32)))
