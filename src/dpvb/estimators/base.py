"""What every estimator shares: from (ε, δ) and public facts to a plan, a wall, a fit and a statement."""

from __future__ import annotations

import importlib
import math
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpvb.cluster import is_on_show, spread
from dpvb.core import loop
from dpvb.core.blocks import Block
from dpvb.core.plan import SHARES, Plan, calibrated, check_budget, phased
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.core.source import Source
from dpvb.core.wall import Wall
from dpvb.errors import ModelFileError, ParameterError, PrivacyError, check_integer, check_number
from dpvb.ledger.address import Address
from dpvb.results import model_file
from dpvb.results.statement import PrivacyStatement
from dpvb.runs import run as runs

#: Called with (step, number of steps, plan) after each release; all of it is public.
Progress = Callable[[int, Plan], object]


class PrivacyWarning(UserWarning):
    """Something that the caller does is outside the promise; said once."""


class PrivateEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """Base of all estimators; subclasses name their parameters and build their model.

    Every estimator has the parameters epsilon, delta, num_steps, sampling_prob, batch_size, num_examples,
    noise_multiplier, accountant, neighboring_relation, random_state, ledger, dataset, checkpoint and resume.
    """

    _said: ClassVar[set[str]] = set()

    def __setattr__(self, name: str, value: Any) -> None:
        # A notebook shows an estimator, and errors of scikit-learn quote it.
        super().__setattr__(name, Address(value) if name == "ledger" and type(value) is str else value)

    def _sampler(self) -> Sampler:
        """The sampler that the public parameters name; without any, the full batch."""
        if self.batch_size is not None:
            if self.sampling_prob is not None:
                raise ParameterError(
                    "give sampling_prob (Poisson batches) or batch_size (fixed-size batches), not both."
                )
            if self.num_examples is None:
                raise ParameterError(
                    "batch_size needs num_examples, a public number of units: its share of them is what is "
                    "accounted. Without a public number use sampling_prob."
                )
            return FixedSize(self.batch_size, self.num_examples)
        if self.sampling_prob is None:
            return FullBatch()
        return Poisson(check_number("sampling_prob", self.sampling_prob, low=0, high=1, closed="right"))

    def _plan(
        self,
        blocks: Mapping[str, Block],
        schedule: Sequence[float],
        *,
        unit: str,
        shares: Mapping[str, float] = SHARES,
    ) -> Plan:
        """The releases of a fit, fixed before any data are read: calibrated to (epsilon, delta), or as given."""
        given = self.noise_multiplier
        if given is not None:
            check_number("noise_multiplier", given, low=0, high=1e12)
        relative = phased(
            blocks,
            self._sampler(),
            schedule,
            shares=shares,
            neighboring_relation=self.neighboring_relation,
            unit=unit,
        )
        if given is None:
            return calibrated(
                relative,
                epsilon=self.epsilon,
                delta=self.delta,
                accountant=runs.accountant(self.accountant, **self._account),
            )
        return check_budget(relative.scaled(given), epsilon=self.epsilon, delta=self.delta)

    def _fit(
        self,
        model: loop.Model[Any, Any],
        source: Source[Any],
        plan: Plan,
        *,
        rho: loop.StepSize,
        projection: str,
        public: list[str],
        progress: Progress | None,
        cluster: Any = None,
    ) -> Any:
        """Run the plan on private data, here or on a cluster; returns q and sets `privacy_`."""
        rng = generator("random_state", self.random_state)
        tell = (lambda t, q: None) if progress is None else (lambda t, q: progress(t, plan))
        facts = {"model": type(self).__name__, "params": _plain(self.get_params(deep=False))}
        counted = runs.counted(plan, **self._account, epsilon=self.epsilon, delta=self.delta, facts=facts)
        if is_on_show(cluster):
            self._say_once(
                "the Dask cluster shows its pages beyond this machine, and whoever reaches them sees how large the "
                "data are. Start scheduler and workers with dashboard_address='127.0.0.1:0'."
            )
        with spread(source, model, cluster) as held, counted as run:
            wall = Wall(held, plan, num_examples=self.num_examples, journal=run)
            rng = rng if run is None or run.seed is None else generator("random_state", run.seed)
            q, estimate = loop.fit(model, wall, plan, rho=rho, rng=rng, projection=projection, on_step=tell)
            assert estimate.receipt is not None  # A plan has at least one release.
            self.privacy_ = PrivacyStatement.from_plan(
                plan,
                delta=self.delta,
                private=estimate.receipt.private,
                run_id=estimate.receipt.run if run is None else run.name,
                public=public,
                num_examples=self.num_examples,
                charge=None if run is None else run.charge,
            )
        return q

    @property
    def _account(self) -> dict[str, Any]:
        """What is charged, and where a run is kept."""
        return {name: getattr(self, name) for name in _OF_THE_RUN}

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Refused: a private plan is fixed before the data are read.

        Raises:
            PrivacyError: always.
        """
        raise PrivacyError(
            "partial_fit is refused: each call would spend budget outside a plan fixed beforehand, and rows seen twice "
            "would be charged once. Use fit with sampling_prob= for minibatches, or a source of dpvb.data that streams "
            "(dpvb.data.open_documents, dpvb.data.Table) for data larger than memory."
        )

    @staticmethod
    def _check_public(public: object) -> None:
        """Refuse to score rows that nobody said were public."""
        if public is not True:
            raise PrivacyError(
                "a score of private rows is a leak, also through the model that it selects: cross_val_score and "
                "GridSearchCV on private rows are refused. Choose among settings with dpvb.select, whose noisy scores "
                "are charged; or score public held-out rows with score(X, y, public=True)."
            )

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            warnings.warn(message, PrivacyWarning, stacklevel=3)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file: arrays without pickle and a JSON manifest with hashes.

        The file holds released values and public parameters only, never data.

        Raises:
            ModelFileError: if the file cannot be written; nothing half-written is left.
        """
        self._check_fitted()
        arrays, facts = self._state()
        facts = {**facts, "privacy": self.privacy_.to_dict(), "params": _plain(self.get_params(deep=False))}
        if hasattr(self, "audit_"):
            facts["audit"] = self.audit_.to_dict()
        model_file.save(path, kind=type(self).__name__, arrays=arrays, facts=facts)

    def _check_fitted(self) -> None:
        check_is_fitted(self, "privacy_")

    @abstractmethod
    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Arrays and JSON facts of the fitted model."""

    @abstractmethod
    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Inverse of `_state`; may raise anything on a file that does not fit."""


def generator(name: str, seed: Any) -> np.random.Generator:
    """Public randomness from None, a whole number or a generator of NumPy's.

    Raises:
        ParameterError: for anything else, naming the parameter.
    """
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(2**31, size=4))
    if seed is None or isinstance(seed, np.random.Generator):
        return np.random.default_rng(seed)
    return np.random.default_rng(check_integer(name, seed, low=0, high=2**63))


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON can hold; generators, data-like arguments and where a run was counted are left out."""
    kept: dict[str, Any] = {}
    for name, value in params.items():
        if name in _OF_THE_RUN:
            continue
        if isinstance(value, (np.integer, np.floating)):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            kept[name] = value
        elif isinstance(value, float):
            kept[name] = value if math.isfinite(value) else str(value)
    return kept


#: Parameters of one fit that a model does not carry on.
_OF_THE_RUN = ("ledger", "dataset", "checkpoint", "resume")
#: Model kinds that `load` knows, by class name.
_HOMES = {
    "DPVI": "dpvb.estimators.dpvi",
    "LDA": "dpvb.estimators.lda",
    "SigmoidBeliefNetwork": "dpvb.estimators.sbn",
    "LogisticRegression": "dpvb.estimators.regression",
    "BinomialRegression": "dpvb.estimators.regression",
    "NegativeBinomialRegression": "dpvb.estimators.regression",
}


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model written by `save`; no code from the file is run and no data are needed.

    Raises:
        ModelFileError: if the file is missing, damaged, tampered with, or of a newer format.
    """
    stored = model_file.load(path)
    if stored.kind not in _HOMES:
        raise ModelFileError(f"{os.fspath(path)}: holds a {stored.kind!r}, which this version does not know.")
    estimator_class = getattr(importlib.import_module(_HOMES[stored.kind]), stored.kind)
    try:
        params = {k: float(v) if v in ("inf", "-inf") else v for k, v in stored.facts["params"].items()}
        if foreign := params.keys() & _OF_THE_RUN:
            raise ModelFileError(
                f"{os.fspath(path)}: tampered with: it says {sorted(foreign)[0]}, which belongs to the call of a fit."
            )
        estimator: Any = estimator_class(**params)
        estimator.privacy_ = PrivacyStatement.from_dict(stored.facts["privacy"])
        estimator._restore(stored.arrays, stored.facts)
        if "audit" in stored.facts:
            estimator.audit_ = importlib.import_module("dpvb.results.audit_report").Report.from_dict(
                stored.facts["audit"]
            )
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, PrivacyError):
        estimator = None
    if estimator is None:
        raise ModelFileError(f"{os.fspath(path)}: its parts do not fit together; fit or save the model again.")
    return estimator
