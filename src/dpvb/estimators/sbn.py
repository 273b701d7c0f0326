"""Private sigmoid belief networks for scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpvb.core.model import ESTIMATES, PosteriorOrMAP, Schedule, robbins_monro
from dpvb.core.plan import Plan
from dpvb.data.tables.design import BinaryMatrix, binary_rows
from dpvb.estimators.base import (
    PrivateEstimator,
    Task,
    TransformingEstimator,
    check_width,
    column_names,
    if_fitted,
)
from dpvb.estimators.input_types import Records, Responses
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.kernels import linear
from dpvb.models.belief_network import kernel
from dpvb.models.belief_network.sbn import SBN, Network, NetworkWeights
from dpvb.results import metrics, trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Figure, Grid, Images

# Rounds over the hidden units of a row that is transformed or scored: more than in a step of the fit.
_SWEEPS = 15
# Standard deviation of the noise of the steps up to which pictures of weights are readable.
_STEPS = 0.1
# Share of the budget for Σ y and the number of examples, which are released once.
_FIRST = 0.0225
# Epsilon below which a fit is planned for much noise.
_NOISY = 0.7
# Planned number of full-batch steps, τ0 and κ of the step sizes, ridge and sweeps; benchmark `mnist` chose them.
_PLANNED: Mapping[str, Any] = {"n_steps": 14, "offset": 0.0, "decay": 0.25, "ridge": 1.0, "n_sweeps": 2}
# The same below _NOISY.
_PLANNED_NOISY: Mapping[str, Any] = {"n_steps": 8, "offset": 0.0, "decay": 0.5, "ridge": 2.0, "n_sweeps": 3}
# Passes over the data, with smaller batches.
_PASSES = 5
# Largest number of steps, with smaller batches.
_MOST_STEPS = 150


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class SigmoidBeliefNetwork(TransformingEstimator[SBN, Network]):
    """Fit a sigmoid belief network of binary rows, under (ε, δ)-differential privacy.

    X has private rows of zeros and ones, (rows, J): a NumPy array or SciPy sparse matrix, or a list or folder of .npz
    files of SciPy. A row with any other entry, or with NaN, is ignored. Other parameters are those of
    `PrivateEstimator`. n_units=None: the number of rows is released with part of the budget. n_steps=None: planned; few
    large steps reconstruct best.

    Args:
        n_components: Number of hidden units K, at least 1. Default: 100.
        threshold: Entries above this number are 1, the others 0. None (default): entries must be 0 or 1.
        clip_scale: Factor of the bounds on the scores, in [0.001, 1000]. Default: 1, for networks that reconstruct most
            of a row.
        n_sweeps: Number of coordinate ascent sweeps over the hidden units of a row, at least 1. None (default): planned
            from epsilon.
        ridge: Damping of noisy steps, at least 0. None (default): planned from epsilon.
        learning_offset, learning_decay: Offset τ0 and decay κ of the step sizes ρ_t = (τ0 + t)^-κ. None (default):
            planned from epsilon.
        init_std: Standard deviation of the initial weights, at least 0. Default: 0.1.
        init_mean: Initial probability of the hidden units, in (0, 1). Default: 0.5.
        estimate: "posterior" (default), or "map" (MAP estimate). Weights are points in both cases; with "posterior"
            the prior includes their variances.

    Attributes:
        components_: Weights W, (K, J): row k is the pattern of hidden unit k.
        visible_bias_, hidden_bias_: Offsets c, (J,), and b, (K,).
        privacy_: Privacy statement of the fit.
        n_iter_, n_features_in_: Numbers of steps and of visible units J.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).integers(0, 2, (2000, 1)) * np.ones((1, 6), dtype=int)
        >>> model = dpvb.SigmoidBeliefNetwork(2, epsilon=2.0, delta=1e-6, n_steps=3, random_state=0).fit(X)
        >>> model.components_.shape, model.sample(4, rng=0).shape
        ((2, 6), (4, 6))
    """

    n_components: int = 100
    _: KW_ONLY
    threshold: float | None = None
    clip_scale: float = 1.0
    n_sweeps: int | None = None
    ridge: float | None = None
    learning_offset: float | None = None
    learning_decay: float | None = None
    init_std: float = 0.1
    init_mean: float = 0.5
    estimate: PosteriorOrMAP = "posterior"

    _record_class: ClassVar[type] = NetworkWeights
    _reads: ClassVar[str | None] = "images"
    _command: ClassVar[str | None] = "sbn"
    _size_parameter: ClassVar[str | None] = "n_components"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse",)
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_components": "hidden"}

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[SBN]:
        """Return the task of a fit to private rows; y is ignored."""
        rows = binary_rows(X, threshold=self.threshold, group=group)
        model = self._model(rows.width)
        released_first = any(block.phase == "first" for block in model.blocks.values())
        decay = robbins_monro(*self._learning())
        public = {
            "columns": f"{rows.width} visible units",
            "n_components": f"{model.n_components} hidden units, estimate {self.estimate!r}",
            "threshold": "entries are 0 or 1"
            if self.threshold is None
            else f"entries are 1 above {self.threshold:g}, else 0",
            "parameters": "the plan, the random start and all other parameters",
        }
        schedule = Schedule(
            (1.0,) * self._num_steps(),
            {"first": _FIRST, "last": _FIRST},
            lambda t: min(decay(max(t - released_first, 1)), 1.0),
        )
        return self._planned_task(model, rows, schedule, public, {"width": rows.width, "names": column_names(X)})

    def _learned(self, task: Task[SBN], q: Network) -> NetworkWeights:
        return NetworkWeights(q.w_kj, q.level_j, q.mean_k, q.count)

    def _check(self, record: NetworkWeights) -> None:
        trees.check_lengths(record, k=self.n_components, j=len(record.level_j))

    def _show(self, record: NetworkWeights) -> None:
        self._q, width = record, record.w_kj.shape[1]
        self._fitted_model, self.n_features_in_ = self._model(width), width
        self.components_, self.visible_bias_, self.hidden_bias_ = record.w_kj, record.c_j, record.b_k

    def _expected_accuracy(self, task: Task[SBN], plan: Plan, n: float) -> ExpectedAccuracy:
        model = task.model
        std = model.noise_of_weights(plan.noise_stds("gradient"), task.rho, n)
        # Strength compares the noise of the steps, so that plans that shrink weights differently are compared, too.
        return ExpectedAccuracy(
            "noise of a weight", min(model.visible_noise(std), 1.0), model.visible_noise(_STEPS), unknown=1.0
        )

    def _quality(self, rows: NDArray[Any]) -> Floats:
        """Return the lower bound of each row at the fitted weights, in nats."""
        q, pi_nk = self._q, self._local(rows)[0]
        psi_nj = linear.product(pi_nk, q.w_kj) + q.c_j
        # Rounding may take a variance near zero below it.
        second_nj = psi_nj**2 + np.maximum(linear.product(pi_nk * (1 - pi_nk), q.w_kj**2), 0.0)
        return kernel.example_bound(rows, pi_nk, psi_nj, second_nj, q.b_k)

    def _quality_range(self, model: SBN) -> tuple[float, float]:
        """Return limits of the score: that of a uniform guess, and 0."""
        return -model.n_visible * math.log(2.0), 0.0

    def transform(self, X: Records) -> Floats:
        """Return probabilities of the hidden units for each row, (rows, K). They are as private as X.

        Args:
            X: Rows.

        Raises:
            DataFormatError: If rows have another width, or entries other than 0 and 1.
        """
        return self._inferred(X, lambda rows: self._local(rows)[0], self.n_components)

    def reconstruct(self, X: Records) -> Floats:
        """Return probabilities of the visible units given the hidden ones, (rows, J). They are as private as X.

        Args:
            X: Rows.

        Raises:
            DataFormatError: As in `transform`.
        """
        self._check_fitted()
        return self._inferred(X, lambda rows: expit(self._local(rows)[2]), self.n_features_in_)

    def score_samples(self, X: Records, *, public: bool = False) -> Floats:
        """Return a lower bound on the log-likelihood of each public row at the fitted weights, (rows,), in nats.

        Args:
            X: Public rows.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: As in `transform`.
        """
        self._check_public(public)
        parts = [self._fitted_model.bound(self._q, rows, self._local(rows)[0]) for rows in self._rows(X)]
        return np.concatenate([np.empty(0), *parts])

    @if_fitted
    def score(self, X: Records, y: None = None, *, public: bool = False) -> float:
        """Return the mean of `score_samples`, in nats; higher is better.

        Raises:
            PrivacyError: Unless public=True.
        """
        bounds = self.score_samples(X, public=public)
        return float(bounds.mean()) if len(bounds) else 0.0

    def evaluate(self, X: Records, y: None = None, *, public: bool = False) -> dict[str, float]:
        """Return the share of correctly reconstructed entries of public rows, and `score`.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: As in `transform`.
        """
        self._check_public(public)
        binary = self._inferred(X, lambda rows: rows, self.n_features_in_)
        accuracy = metrics.reconstruction_accuracy(binary, self.reconstruct(X))
        return {"reconstruction_accuracy": accuracy, "bound": self.score(X, public=True)}

    def sample(self, n: int = 1, rng: Any = None) -> NDArray[np.int8]:
        """Draw n synthetic rows from the fitted network, (n, J). They reveal no more than the released weights.

        Args:
            n: Public number of rows.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).
        """
        n, draw = self._to_draw(n, rng)
        z_nk = draw.random((n, self.components_.shape[0])) < expit(self.hidden_bias_)
        psi_nj = z_nk @ self.components_ + self.visible_bias_
        return np.asarray(draw.random(psi_nj.shape) < expit(psi_nj), dtype=np.int8)

    def _facts_for_report(self, width: int | None = None) -> Iterator[Figure]:
        """Yield the weights of each hidden unit, strongest first, as images whose pixels are visible units.

        Args:
            width: Width of an image. None: images are square, if the number of visible units is a square.
        """
        num_units = self.n_features_in_
        side = math.isqrt(num_units) if width is None else check_integer("width", width, low=1)
        order = np.argsort(-np.square(self.components_).sum(axis=1), kind="stable")
        if num_units % side and width is not None:
            raise ParameterError(f"width must divide the {num_units} units of a row, got {width}.")
        if side * side == num_units or width is not None:
            yield Images(
                name="weights",
                title="Weights of hidden units",
                note="Red: turns a pixel on; blue: turns it off.",
                names=tuple(f"unit {k}" for k in order),
                images_khw=self.components_[order].reshape(-1, num_units // side, side),
            )
        else:
            yield Grid(
                name="weights",
                title="Weights of hidden units",
                note="Above 0: turns a visible unit on.",
                rows=tuple(f"unit {k}" for k in order),
                columns=tuple(f"#{j}" for j in range(self.n_features_in_)),
                values=tuple(map(tuple, self.components_[order].tolist())),
            )

    def _model(self, width: int) -> SBN:
        """Return the model that the parameters specify."""
        planned = self._planned()
        return SBN(
            self.n_components,
            width,
            n_units=self.n_units,
            clip_scale=self.clip_scale,
            n_sweeps=planned["n_sweeps"] if self.n_sweeps is None else self.n_sweeps,
            ridge=planned["ridge"] if self.ridge is None else self.ridge,
            init_std=self.init_std,
            init_mean=self.init_mean,
            mode=check_choice("estimate", self.estimate, ESTIMATES) == "map",
        )

    def _planned(self) -> Mapping[str, Any]:
        """Return planned values of parameters that are None."""
        epsilon = check_number("epsilon", self.epsilon, low=0, closed="right")
        return _PLANNED_NOISY if epsilon < _NOISY else _PLANNED

    def _num_steps(self) -> int:
        """Return the number of steps, given or planned from epsilon and the sampler."""
        if (n_steps := self._given_steps()) is not None:
            return n_steps
        sampling_prob = self._sampler().sampling_prob
        few: int = self._planned()["n_steps"]
        return few if sampling_prob == 1 else max(few, min(math.ceil(_PASSES / sampling_prob), _MOST_STEPS))

    def _learning(self) -> tuple[float, float]:
        """Return τ0 and κ, given or planned."""
        planned = self._planned()
        offset, decay = self.learning_offset, self.learning_decay
        return planned["offset"] if offset is None else offset, planned["decay"] if decay is None else decay

    def _local(self, rows: NDArray[Any]) -> tuple[Floats, Floats, Floats]:
        """Return ⟨z⟩, ⟨ξ⟩ and ⟨ψ⟩ of rows that the caller owns."""
        expected = self._fitted_model.local(self._q, rows, max(self._fitted_model.n_sweeps, _SWEEPS))
        pi_nk, xi_nj, psi_nj = (part.astype(np.float64) for part in expected)
        return pi_nk, xi_nj, psi_nj

    def _inferred(self, X: Records, infer: Callable[[NDArray[Any]], Floats], width: int) -> Floats:
        return np.concatenate([np.empty((0, width)), *(infer(rows) for rows in self._rows(X))])

    def _rows(self, X: Records) -> Iterator[NDArray[Any]]:
        """Return rows that the caller owns."""
        self._check_fitted()
        source = BinaryMatrix(X, threshold=self.threshold)
        check_width(source.width, self.n_features_in_, type(self).__name__)
        for chunk in source.chunks():
            rows = chunk.rows
            if np.isnan(rows).any():
                raise DataFormatError(
                    "X has rows with entries other than 0 and 1, or NaN, for which nothing can be inferred. "
                    "threshold= makes numbers binary."
                )
            yield rows
