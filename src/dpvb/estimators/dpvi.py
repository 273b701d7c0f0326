"""Private variational inference for log-densities that users write, for scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from dpvb.core.model import Schedule
from dpvb.core.plan import Plan
from dpvb.data.tables.numbers import Numbers
from dpvb.estimators.base import PrivateEstimator, Task, column_names, generator, if_fitted
from dpvb.estimators.input_types import Records, Responses
from dpvb.guards.arrays import Floats
from dpvb.guards.domains import NONNEGATIVE, Nonnegatives
from dpvb.guards.errors import DataFormatError, ParameterError, check_integer
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.gradients import tuned
from dpvb.models.gradients.density import Density, optional
from dpvb.models.gradients.numpyro_model import NumPyro
from dpvb.models.gradients.variational import Guide, Variational, VariationalState
from dpvb.results import trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Figure, Intervals

#: Ends of a 95 % interval, in standard deviations.
_NORMAL_95 = 1.959964  # derived: the 97.5 % quantile of N(0, 1)
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
    """Fitted quantities: the posterior of θ, a Cholesky factor of a full-rank guide, and the shape of the rows."""

    loc_p: Floats
    scale_p: Nonnegatives
    scale_tril_pp: Floats | None
    features: Annotated[int, NONNEGATIVE]
    responses: Annotated[int | None, NONNEGATIVE]


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class DPVI(PrivateEstimator[Variational, VariationalState]):
    """Fit a Gaussian posterior of a log-density in JAX or NumPyro, under (ε, δ)-differential privacy.

    In each step, gradients of single rows are clipped, summed and noised; see `dpvb.models.gradients`. It needs the
    extra `jax`. X has private rows, (rows, features): a NumPy array, SciPy sparse matrix or DataFrame of numbers. A row
    with NaN, infinity or a value that is not a number is ignored. y has private responses, numbers, (rows,) or (rows,
    responses); without y, `log_density` has no argument y. Other parameters are those of `PrivateEstimator`.
    n_steps=None: 200 gradients, or 20 passes if batches are smaller and that is more.

    Args:
        log_density: Function of (θ, x), or (θ, x, y) if `fit` has y, that returns log p(row | θ), a scalar, computed
            with jax.numpy in float32; x is (features,), y a scalar or (responses,). None (default): `numpyro_model` is
            given.
        numpyro_model: NumPyro model of (x) or (x, y), rows first, that draws its latent variables once for all rows and
            observes in a plate over x.shape[0]. None (default): `log_density` is given.
        parameters: θ: its length P, or an example as a pytree of arrays, which is the starting point. None (default):
            only with `numpyro_model`.
        log_prior: Function of θ that returns log p(θ), a scalar. It is neither clipped nor noised. None (default):
            standard normal.
        guide: Form of the posterior: "mean_field" (default), "full_rank" (P up to 2000), or "point" (private gradient
            descent).
        clip_norm: Bound on the Euclidean norm of the gradient of a row, in units of 1/θ, in [1e-9, 1e9]. Default: 1.
        learning_rate: Initial step size of Adam, in units of θ. None (default): 40/n_steps, at most 0.5.
        init_scale: Initial standard deviation of the guide, greater than 0. Default: 0.1.
        row_by_row: Whether to compute gradients one row after the other. None (default): only if gradients of batched
            rows depend on their order.

    Attributes:
        loc_: Posterior mean (or point) of the flattened θ, (P,); with a NumPyro model, of unconstrained values.
        scale_: Posterior standard deviations, (P,), which include the uncertainty due to the privacy noise.
        scale_tril_: Cholesky factor of the covariance, (P, P), only for a full-rank guide.
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_: Numbers of steps and features.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> def log_density(theta, x):
        ...     return -((x - theta) ** 2).sum() / 2
        >>> X = np.random.default_rng(0).normal(size=(2000, 1))
        >>> model = dpvb.DPVI(log_density, parameters=1, n_steps=5, epsilon=1.0, delta=1e-6, random_state=0).fit(X)
        >>> model.loc_.shape
        (1,)
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
        """Return the task of a fit to private rows. The density is checked on public rows first."""
        numbers = Numbers(X, y, group=group)
        model = self._model(numbers.features, numbers.responses)
        # In a chunk about as many rows are in a batch as are computed together. They are tried here, before any cost.
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
        """Set the attributes. Functions are not saved; `set_params` restores them in a loaded model."""
        self.n_features_in_, self._responses = record.features, record.responses
        self.loc_, self.scale_ = record.loc_p, record.scale_p
        if record.scale_tril_pp is not None:
            self.scale_tril_ = record.scale_tril_pp

    def _expected_accuracy(self, task: Task[Variational], plan: Plan, n: float) -> ExpectedAccuracy:
        number, start = task.model.density.num_parameters, math.floor(tuned.AVERAGE_START * task.model.n_steps)
        of_steps = plan.noise_stds("gradient")[start:]
        noise = of_steps[0] / math.sqrt(len(of_steps))
        information = n * self.clip_norm**2 * _INFORMATIVE / number  # For gradients that are about as long as the clip.
        std = (1.0 / (1.0 / (1.0 / information + (noise / information) ** 2) + 1.0)) ** 0.5
        return ExpectedAccuracy("standard deviation of a parameter", std, _WORTH, unknown=1.0)

    def _facts_for_report(self) -> Iterator[Figure]:
        """Yield mean and 95 % interval of each parameter."""
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
        """Draw n values of θ: (n, P), or the pytree of `parameters` with n as first axis of each array.

        With a NumPyro model, the result is {site: values}, constrained. Draws reveal no more than the public posterior.

        Args:
            n: Number of draws.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
        """
        self._check_fitted()
        return self._formed(self._draws(check_integer("n", n, low=0, high=10**9), rng))

    @property
    def theta_(self) -> Any:
        """θ at the posterior mean, in the form of `sample_posterior`."""
        self._check_fitted()
        formed = self._formed(self.loc_[None])
        return formed[0] if isinstance(formed, np.ndarray) else optional("jax").tree.map(lambda leaf: leaf[0], formed)

    def score_samples(self, X: Records, y: Responses = None, *, public: bool = False) -> Floats:
        """Return the log of the posterior predictive density of each public row, (rows,), in nats, from 64 draws of θ.

        Args:
            X, y: Public rows and responses, as in `fit`.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If rows have another width, or NaN.
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
        """Return the mean of `score_samples`, in nats; higher is better.

        Raises:
            PrivacyError: Unless public=True.
        """
        score_n = self.score_samples(X, y, public=public)
        return float(score_n.mean()) if len(score_n) else 0.0

    def _density(self, features: int, responses: int | None) -> Density:
        """Return the density that the parameters specify, checked on public rows."""
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
        """Return the model that the parameters specify."""
        n_steps, sampling_prob = self.n_steps, self._sampler().sampling_prob
        if n_steps is None:
            n_steps = _STEPS if sampling_prob == 1 else max(_STEPS, math.ceil(_PASSES / sampling_prob))
        options = {"clip_norm": self.clip_norm, "learning_rate": self.learning_rate, "init_scale": self.init_scale}
        density = self._density(features, responses)
        return Variational(density, self.guide, n_steps, row_by_row=self.row_by_row, **options)  # type: ignore[arg-type]

    def _draws(self, n: int, rng: Any) -> Floats:
        """Return flat draws from the posterior, (n, P)."""
        draw_np = generator("rng", rng).standard_normal((n, len(self.loc_)))
        spread_np = draw_np @ self.scale_tril_.T if self.guide == "full_rank" else draw_np * self.scale_
        return np.asarray(self.loc_ + spread_np)

    def _formed(self, theta_np: Floats) -> Any:
        """Return flat θ, (n, P), in the form of `parameters`, or of the latent variables of a NumPyro model."""
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
