"""Common parts of estimators: from (ε, δ) and public facts to a plan, a wall, a fit and a statement."""

from __future__ import annotations

import inspect
import math
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpvb.accounting import budget_warnings
from dpvb.accounting.events import NeighboringRelation, named_sampler
from dpvb.accounting.methods import Method
from dpvb.cluster import is_on_show, spread
from dpvb.core import loop
from dpvb.core.counting import INCLUDED, SHARES
from dpvb.core.journal import Journal
from dpvb.core.model import Model, Schedule, StepSize
from dpvb.core.plan import Plan, calibrated, check_budget, phased
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.data.arrow import import_arrow
from dpvb.data.documents import word_lists
from dpvb.data.tables.matrices import has_columns, is_arrow_table
from dpvb.data.tables.ranged import Date, Numeric, Spline
from dpvb.data.tables.table import Table
from dpvb.data.times import microseconds
from dpvb.estimators import synthetic_rows
from dpvb.estimators.input_types import Records, Responses
from dpvb.guards import notebook_html
from dpvb.guards.arrays import Floats
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import (
    DataFormatError,
    DpvbWarning,
    FewUnitsWarning,
    LostInNoiseWarning,
    ModelFileError,
    NotSettledWarning,
    ParameterError,
    PrivacyError,
    check_integer,
    check_number,
    check_target,
)
from dpvb.guards.missing_arguments import constructor_says_what_lacks, says_what_lacks, with_row_arguments
from dpvb.guards.untrusted import imported, misfit, place_of
from dpvb.guards.watched import Watched, watched
from dpvb.results import model_file, plots, trees
from dpvb.results.audit_report import Report
from dpvb.results.declared import declared, told
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Figure
from dpvb.results.page import Page
from dpvb.results.statement import PrivacyStatement
from dpvb.runs.journal import RunJournal
from dpvb.runs.run import Run, SentRun
from dpvb.runs.stops import told_how_far

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with a default; mypy has it, and nothing needs it at run time

    from dpvb.data import Schema

    #: The model that an estimator fits, and its q.
    M = TypeVar("M", bound=Model[Any, Any], default=Model[Any, Any])
    Fits = TypeVar("Fits", bound=Model[Any, Any], default=Model[Any, Any], covariant=True)
    Q = TypeVar("Q", default=Any)
else:
    from typing import TypeVar

    M, Fits, Q = TypeVar("M"), TypeVar("Fits"), TypeVar("Q")

# Parameters that are ends of ranges or bounds of rows, and those that bound a row argument; names under which
# a statement declares them.
_ENDS, _MOST = ("low", "high", "y_range", "max_row_norm"), ("max_exposure", "max_offset", "max_weight")
_BOUNDS = {"ranges", "columns", "schema", "y_range", "max_row_norm", *_MOST}
_MINUTE = 60e6
# Number of declared values that a warning names.
_MOST_NAMED = 5

# Message for scores of private rows.
_SCORED = (
    "Scores of private rows are not protected by noise, and a model selected by them reveals them. So cross_val_score "
    "and GridSearchCV on private rows are refused. Use dpvb.private_select, which charges noisy scores, or score "
    "public held-out rows with score(X, y, public=True) of a fitted model. Nothing was charged."
)


_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fitted:
    """Fitted model as a parameter. `clone` of scikit-learn would replace a plain estimator by an unfitted copy."""

    model: PrivateEstimator


class NoScoreError(PrivacyError, NotFittedError):  # type: ignore[misc]
    """Raised if a score of an unfitted model is requested. No budget was spent.

    It is an AttributeError, like scikit-learn's NotFittedError: `hasattr(model, "score")` is False before a fit, so a
    search over private rows stops before its first charge.
    """


def _is_fitted(estimator: Any) -> bool:
    return "privacy_" in vars(estimator)


def not_settled(n_steps: int, effect: str) -> str:
    """Return, for `_unsettled`, that a fit of so many steps has not converged, with the effect and the remedy."""
    return f"The scores of {n_steps} steps have not settled: {effect}. The budget of the fit is spent."


def if_fitted(method: _Method) -> _Method:
    """Mark a method that an estimator has only after a fit."""
    return cast(_Method, available_if(_is_fitted)(method))


class PrivacyWarning(DpvbWarning):
    """Warning of an action that the guarantee does not cover; shown once per process."""


class Task(NamedTuple, Generic[Fits]):
    """Model, data and plan of a fit. Everything except `source` is public.

    Attributes:
        model: Model to fit.
        source: Private data. None on a federated server, which has no data.
        relative: Releases, with noise relative to each other.
        rho: Step sizes.
        public: Facts that the guarantee treats as public, in words, each with its source.
        notes: Public facts about columns (names, schema, vocabulary, number), which `_take` uses.
        calibrate: Function that calibrates the relative releases to the budget of the fit.
    """

    model: Fits
    source: Any
    relative: Plan
    rho: StepSize
    public: list[str]
    notes: Mapping[str, Any]
    calibrate: Callable[[Plan], Plan]

    @property
    def plan(self) -> Plan:
        """Plan that a fit charges: the releases, with noise that meets the budget."""
        return self.calibrate(self.relative)


# Subclasses are dataclasses too, so that each parameter is named once; scikit-learn reads the signatures they get.
@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator, ABC, Generic[M, Q]):  # type: ignore[misc]
    """Base class of all estimators, with the parameters that they share.

    All parameters are public: choose them without looking at the data. Subclasses add parameters of their model.

    Args:
        epsilon: Privacy budget ε of one fit, in (0, inf]. `inf` fits without noise, and so without privacy, using the
            same code.
        delta: Parameter δ of the guarantee, in (0, 1), for example 1e-6; much smaller than 1/n for n units.
        n_steps: Number of steps of the fit, each with a noisy release, at least 1. None (default): planned from public
            facts.
        sampling_prob: Probability, in (0, 1], with which each unit is in a Poisson batch; batches are drawn anew in
            each step. None (default), without `batch_size`: every step uses all units, which gives the best model for
            a given ε.
        batch_size: Number of units in batches of fixed size, which are drawn anew in each step. It needs `n_units`.
            None (default): no such batches.
        n_units: Public number of units, at least 1. None (default): the number is private.
        noise_multiplier: Noise standard deviation divided by the clip norm, at least 0. A fit is refused if this noise
            costs more than `epsilon`. None (default): calibrated to `epsilon`.
        accountant: Accounting method by which noise is calibrated, one of `dpvb.accounting.METHODS`. Default: "pld".
        neighboring_relation: Neighbouring data sets: "add_or_remove_one" (default) hides the presence of a unit,
            "replace_one" its content, for a number of units that is public.
        random_state: Seed of public randomness, such as starting points and synthetic draws: an integer or a NumPy
            generator. It does not affect the privacy noise, which has no seed. None (default): no seed.
        provenance: Sources of public inputs, listed in the privacy statement: a mapping such as {"vocabulary": "a word
            list of Wikipedia"}, or the text "vocabulary=a word list of Wikipedia; prior=a textbook". None (default):
            the statement reports "stated by the caller".

    Examples:
        >>> import dpvb
        >>> model = dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6)
        >>> isinstance(model, dpvb.PrivateEstimator)
        True
        >>> model.set_params(epsilon=0.5).epsilon
        0.5
    """

    epsilon: float
    delta: float
    n_steps: int | None = None
    sampling_prob: float | None = None
    batch_size: int | None = None
    n_units: int | None = None
    noise_multiplier: float | None = None
    accountant: Method = "pld"
    neighboring_relation: NeighboringRelation = "add_or_remove_one"
    random_state: int | np.random.Generator | np.random.RandomState | None = None
    provenance: Mapping[str, str] | str | None = None

    _said: ClassVar[set[str]] = set()
    # Records of the model after each step, if its run keeps them.
    _path: ClassVar[Sequence[Any]] = ()
    # The run of the block from within which this estimator came from another process.
    _sent_run: ClassVar[SentRun | None] = None
    # Pipeline.score routes sample_weight=None to every final step, and raises an error if `score` does not name it.
    __metadata_request__score: ClassVar[Mapping[str, None]] = {"sample_weight": None}
    #: All estimator classes by name; each class adds itself.
    _registered: ClassVar[dict[str, type[PrivateEstimator]]] = {}
    #: Public facts about columns that a federation can declare.
    _declares: ClassVar[tuple[str, ...]] = ("width",)
    #: Form of the input files on the command line: "documents", "rows" (with a response), "measurements" (rows without
    #: one), "table" (every column), "images" or "sequences"; None: no command.
    _reads: ClassVar[str | None] = None
    #: Frozen dataclass of the fitted quantities; together with the parameters it is the fitted model.
    _record_class: ClassVar[type]
    #: Parameter that is the size of the model; None: there is none.
    _size_parameter: ClassVar[str | None] = None
    # Forms of X by their names in scikit-learn's tags, in addition to dense arrays.
    _input_forms: ClassVar[tuple[str, ...]] = ()
    #: Smallest allowed n_steps.
    _least_steps: ClassVar[int] = 1
    #: NAME in `dpvb fit NAME`; a class does not inherit it.
    _command: ClassVar[str | None] = None
    #: Options of the model in the example of the help text; None: the required ones, each followed by N.
    _example: ClassVar[str | None] = None
    #: Names of options that differ from the names of their parameters, by parameter.
    _spelled: ClassVar[Mapping[str, str]] = {"random_state": "seed"}

    def __init_subclass__(cls, **options: Any) -> None:
        declared = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", {})}
        # Before scikit-learn's own `__init_subclass__`, which reads the signature.
        fit = vars(cls).get("fit", PrivateEstimator.fit)
        cls.fit = with_row_arguments(fit, cls._task, declared)  # type: ignore[method-assign]
        super().__init_subclass__(**options)
        # The first module that registers a name keeps it, so that "LDA" in a file or from a server is the class of
        # dpvb.
        registered = cls._registered.get(cls.__name__, cls)
        if not inspect.isabstract(cls) and registered.__module__ == cls.__module__:
            cls._registered[cls.__name__] = cls

    def __setattr__(self, name: str, value: Any) -> None:
        # `clone` of scikit-learn would make unfitted copies of estimators; a saved model must not contain folder names.
        if name in ("prior", "previous") and isinstance(value, PrivateEstimator):
            value = Fitted(value)
        elif name in ("prior", "previous") and type(value) is str and value and not word_lists.is_name(value):
            value = Path(value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Python calls this method for attributes that were not found. Names that a fit sets end or begin with "_".
        if not _is_fitted(self) and not name.startswith("__"):
            if callable(getattr(type(self), name, None)):  # hidden by available_if
                raise NoScoreError(_SCORED)
            if name.startswith("_") or name.endswith("_"):
                raise NotFittedError(
                    f"This {type(self).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments "
                    f"before using this estimator: {name} is set by a fit."
                )
        return super().__getattribute__(name)  # raises the AttributeError again

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_sent_run": Run.to_send() or self._sent_run}

    def __sklearn_clone__(self) -> Self:
        cloned: Self = super().__sklearn_clone__()
        if self._sent_run is not None:
            cloned.__dict__["_sent_run"] = self._sent_run
        return cloned

    @abstractmethod
    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[M]:
        """Return the task of a fit to these rows. No private value is read, and no budget is spent.

        Raises:
            ParameterError, DataFormatError: If parameters or public facts about the rows are invalid.
        """

    def release_plan(
        self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None, **rows: Any
    ) -> Plan:
        """Return the plan that a fit would charge: its releases, with noise that meets the budget.

        No private value is read, and no budget is spent.

        Args:
            X, y, group: Rows, as in `fit`. Only public facts about them are used, such as the number of columns.
            rows: Other row arguments of `fit`. Default: none.

        Raises:
            ParameterError, DataFormatError: If parameters or public facts about the rows are invalid.

        Examples:
            >>> import numpy as np
            >>> import dpvb
            >>> model = dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6)
            >>> model.release_plan(np.zeros((100, 2))).unit
            'row'
        """
        return self._task(X, y, group=group, **rows).plan

    def _take(self, task: Task[M], q: Q) -> None:
        """Store the result of a task, and set the attributes in the user's units. The task's source may be closed."""
        self.n_iter_ = task.notes["steps"]
        self._keep(self._learned(task, q))
        for effect in self._unsettled():
            warnings.warn(effect, NotSettledWarning, stacklevel=3)

    def _unsettled(self) -> tuple[str, ...]:
        """Return sentences if, by its released numbers, the fit has not converged."""
        return ()

    @abstractmethod
    def _learned(self, task: Task[M], q: Q) -> Any:
        """Return the fitted quantities of a task as a record of the class `_record_class`."""

    @abstractmethod
    def _show(self, record: Any) -> None:
        """Set the attributes of a fitted model from its record."""

    def _check(self, record: Any) -> None:
        """Check the record of a file, whose numbers are in the domains of their class.

        Raises:
            Exception: If its parts do not fit the parameters or each other.
        """

    def _keep(self, record: Any) -> None:
        self._show(record)
        self._record = record

    def _as_prior(self, columns: Any) -> tuple[Any, str]:
        """Return this fitted model as prior information for another fit of its class, and its description.

        Args:
            columns: Public columns of the other fit, and other facts that the class compares.

        Raises:
            ParameterError: If the columns differ from those of this model.
        """
        self._check_fitted()
        raise ParameterError(f"prior must be None, since {type(self).__name__} does not support priors.")

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """Return arguments of `_task` without rows, in declared columns, as a federated server uses them."""
        if schema is not None:
            return {"X": Table({name: np.empty(0) for name in schema.read_columns}, schema)}
        return {"X": np.empty((0, width or 0))}

    def _quality(self, rows: Any) -> Floats:
        """Return the score of each clean row, computed from only that row; NaN for a row without a score."""
        raise ParameterError(self._unscored)

    def _quality_range(self, model: M) -> tuple[float, float]:
        """Return public limits of the score of a row; the lower one is the score of a uniform guess."""
        raise ParameterError(self._unscored)

    @property
    def _unscored(self) -> str:
        return (
            f"estimator must have scores of single rows, got {type(self).__name__}. Private selection is not possible."
        )

    def fit(
        self,
        X: Records,
        y: Responses = None,
        *,
        group: Iterable[object] | None = None,
        run: Run | None = None,
        **rows: Any,
    ) -> Self:
        """Fit the model to private rows, and return it.

        Args:
            X: Private rows, in the forms that the class documents.
            y: Private responses, one per row. None (default): the model has none, or they are in X.
            group: Private person ID of each row. All rows of a person are then one unit: they are protected, sampled
                and clipped together. None (default): each row is a unit, unless X specifies persons.
            run: `dpvb.Run` that specifies the ledger, the checkpoint and the cluster of the fit. None (default): the
                run of the surrounding block, or of the environment.

        Returns:
            The fitted estimator itself.

        Raises:
            ParameterError, DataFormatError: If parameters or public facts about the rows are invalid. No budget was
                spent.
            TypeError: If an argument is not supported by this model, for example `sample_weight`. No budget was spent.
            LedgerError: If the fit would exceed the budget of the data set. No budget was spent.
            PrivateComputationError: If the computation on private rows failed. The budget was spent.
            KeyboardInterrupt: After Ctrl-C; its notes list what was released and charged, and how to resume.
        """
        accepted = inspect.signature(self._task).parameters
        if foreign := [name for name in rows if name not in accepted]:
            way_out = " Pass weights of rows as weights=, with their public bound max_weight=." * (
                "weights" in accepted
            )
            raise TypeError(
                f"{type(self).__name__}.fit has no argument {foreign[0]!r}. Its arguments are {', '.join(accepted)}."
                f"{way_out}"
            )
        with Run.current(run, sent=self._sent_run).opened() as run:
            with run.isolated():
                task = self._task(X, y, group=group, **rows)
            if run.keep is not None and not task.notes["steps"]:
                raise ParameterError(
                    f"keep must be None, got {run.keep!r}: this {type(self).__name__} has no steps. Nothing was "
                    "charged."
                )
            self._warn_of_computed_bounds(X)
            with one_blas_thread(), told_how_far(run.progress) as tell:
                path: list[Any] = []
                stepped = path.append if run.keep else None
                task, q = self._run(task, replace(run, progress=tell), stepped, files=watched(X, task.source))
                self._take(task, q)
                self.__dict__.pop("_path", None)
                if path:
                    self.__dict__["_path"] = [self._learned(task, q) for q in path]
        self._name_features(column_names(X))
        self._remark(stacklevel=3)
        if isinstance(X, Table) and self.privacy_.origin is not None:
            self.privacy_: PrivacyStatement = replace(
                self.privacy_, origin=replace(self.privacy_.origin, schema=X.schema.digest)
            )
        return self

    def at_step(self, step: int) -> Self:
        """Return the model after a step of a fit whose run had keep="path". This uses no budget.

        Its privacy statement is that of the whole fit. If the plan has a release after the last step, the fitted model
        differs from the model after the last step.

        Args:
            step: Number of the step, from 1 to `n_iter_`.

        Raises:
            ParameterError: If there is no such step, or if the fit kept no path.

        Examples:
            >>> import dpvb, numpy as np
            >>> counts = np.random.default_rng(0).poisson(1.0, (2000, 12))
            >>> topics = dpvb.LDA(2, epsilon=1.0, delta=1e-6, n_steps=3, public_vocabulary=True)
            >>> _ = topics.fit(counts, run=dpvb.Run(keep="path"))
            >>> topics.at_step(1).components_.shape
            (2, 12)
        """
        self._check_fitted()
        if not self._path:
            raise ParameterError("at_step needs a fit that kept its path. Fit with run=dpvb.Run(keep='path').")
        model = copy(self)
        model.__dict__.update(_path=(), n_iter_=check_integer("step", step, low=1, high=len(self._path)))
        model._keep(self._path[step - 1])
        return model

    def _name_features(self, names: tuple[str, ...] | None) -> None:
        """Set `feature_names_in_` like scikit-learn: only if all column names of X are strings."""
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)

    def _warn_of_computed_bounds(self, X: Records, *, stacklevel: int = 3) -> None:
        """Warn of public bounds that may have been computed from the data, unless `provenance` has a source of one.

        Args:
            X: Rows, of which only the schema of a table is read.
            stacklevel: As in `warnings.warn`: 2 is the caller's line, 3 that of the caller's caller.
        """
        if not _BOUNDS & self._sources().keys():
            series = [name for name in _ENDS if hasattr(getattr(self, name, None), "iloc")]
            budget_warnings.warn_of_ranges(self._ends(X), series=series, stacklevel=stacklevel + 1)

    def _ends(self, X: Records) -> Iterator[tuple[str, float]]:
        """Yield the numbers that the caller states as public bounds, with the name of column or parameter."""
        stated: list[tuple[str, object]] = [(name, getattr(self, name, None)) for name in (*_ENDS, *_MOST)]
        schema = X.schema if isinstance(X, Table) else None
        for one in () if schema is None else schema.own_columns:
            if isinstance(one, Date):  # In minutes: measured moments have seconds, chosen bounds do not.
                stated += [(one.name, (microseconds(end) or 0) / _MINUTE) for end in (one.low, one.high)]
            elif isinstance(one, Numeric | Spline):
                stated.append((one.name, (one.low, one.high, *(one.knots if isinstance(one, Spline) else ()))))
        if schema is not None and schema.target is not None:
            stated += [(schema.target.name, getattr(schema.target, name)) for name in ("low", "high", *_MOST)]
        for name, ends in stated:
            ends = [*ends.values()] if isinstance(ends, Mapping) else ends
            if ends is not None:
                yield from ((name, float(end)) for end in np.ravel(np.asarray(ends, dtype=np.float64)).tolist())

    def dry_run(
        self,
        *,
        schema: Schema | None = None,
        vocabulary: Sequence[str] | None = None,
        width: int | None = None,
        responses: int | None = None,
        grouped: bool = False,
        n_units: int | None = None,
        run: Run | None = None,
    ) -> Self:
        """Return a copy that is fitted to synthetic rows, with the same parameters, plan and noise.

        Synthetic rows are uniform in the declared columns. No private row is read, and no budget is spent. The copy has
        the attributes and the memory and time requirements of a fit. It cannot be saved.

        Args:
            schema: Public schema of a table. None (default): X is not a table.
            vocabulary: Public words of documents. None (default): that of the estimator.
            width: Number of columns of a plain array or sparse matrix. None (default): specified by a schema or words.
            responses: Number of columns of a numeric y, 0 for one number per row (`DPVI`). None (default): no numeric
                y.
            grouped: Whether the fit will have a person ID per row. Default: False.
            n_units: Number of synthetic rows. None (default): the parameter `n_units`, or 10,000.
            run: As in `fit`. Its ledger affects only the calibration of the noise; its checkpoint has no effect.

        Raises:
            ParameterError: If the columns are not specified, or if a fit with these parameters would be refused.

        Examples:
            >>> import dpvb
            >>> copy = dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).dry_run(width=3, n_units=1000)
            >>> copy.components_.shape
            (1, 3)
        """
        number = synthetic_rows.NUM_ROWS if self.n_units is None else self.n_units
        number = check_integer("n_units", number if n_units is None else n_units, low=1, high=10**8)
        words = self._public_words(vocabulary)
        rows = synthetic_rows.arguments(
            self, number, schema=schema, vocabulary=words, width=width, responses=responses, grouped=grouped
        )
        fitted = clone(self)
        # A dry run writes no checkpoint and reads none.
        with replace(Run.current(run), checkpoint=None, resume=None).opened() as run:
            with run.isolated():
                task = fitted._task(**rows)
            with one_blas_thread():
                fitted._take(*fitted._run(task, run, is_dry_run=True))
        return fitted  # type: ignore[no-any-return]

    def _foreseen(self, *, grouped: bool = False, **columns: Any) -> tuple[Task[M], Plan]:
        """Return the task of a fit in declared columns, of persons with several rows or not, and its releases."""
        columns["vocabulary"] = self._public_words(columns["vocabulary"])
        if grouped and columns["schema"] is not None:
            raise ParameterError("grouped must be False with a schema: its field `group` names the column of persons.")
        with Run().isolated():
            task = self._task(**synthetic_rows.arguments(self, 1, **columns, grouped=grouped))
        return task, task.plan

    def _public_words(self, vocabulary: Sequence[str] | None) -> Any:
        """Return a declared vocabulary, else that of the parameters if it is public."""
        return getattr(self, "vocabulary", None) if vocabulary is None and not self._opens else vocabulary

    def _expected_accuracy(self, task: Task[M], plan: Plan, n: float) -> ExpectedAccuracy:
        """Return the expected accuracy of a fit to n units under a calibrated plan; by default, the noise of means."""
        return ExpectedAccuracy.of_means(plan, n, task.rho)

    def _accuracy_of_result(self) -> ExpectedAccuracy | None:
        """Return the accuracy of the result, from released numbers only; None: not defined for this model."""
        return None

    def _said_of_result(self) -> tuple[str, ...]:
        """Return remarks on the result from the released numbers of this fit, in sentences."""
        return ()

    @property
    def _is_simpler(self) -> bool:
        """Whether the model is simpler than the one asked for, as the last sentence about the result says."""
        return False

    def _remark(self, *, stacklevel: int) -> None:
        """State in `privacy_` what the released numbers say about the result, and warn if noise hides it."""
        remarks = (*self._unsettled(), *self._said_of_result())
        if (learned := self._accuracy_of_result()) is not None:
            remarks = (f"{learned}.", *remarks)
            self._warn_if_weak(learned, "was found", stacklevel=stacklevel + 1)
        self.privacy_ = replace(self.privacy_, remarks=remarks)
        if self._is_simpler:
            warnings.warn(remarks[-1], LostInNoiseWarning, stacklevel=stacklevel)

    def _warn_if_weak(self, knowledge: ExpectedAccuracy, where: str, *, stacklevel: int) -> None:
        if knowledge.is_weak:
            warnings.warn(
                f"{knowledge} {where}. Noise hides the result: it needs {knowledge.needs}. `dpvb.plan` computes the "
                "number of units, the epsilon or the model size that would reach this.",
                LostInNoiseWarning,
                stacklevel=stacklevel,
            )

    def _sampler(self) -> Sampler:
        """Return the sampler that the parameters specify; by default, the full batch."""
        name, rate = named_sampler(self.sampling_prob, self.batch_size, self.n_units)
        if self.batch_size is not None and self.n_units is not None:
            return FixedSize(self.batch_size, self.n_units)
        return FullBatch() if name == "full_batch" else Poisson(rate)

    def _planned_task(
        self,
        model: M,
        source: Any,
        schedule: Schedule,
        public: Mapping[str, str],
        notes: Mapping[str, Any],
        clipping: Literal["block", "joint"] = "block",
    ) -> Task[M]:
        """Return the task of a model with this schedule; `public` describes the public inputs by name."""
        relative = self._relative_plan(model, source.unit, schedule, clipping)
        stepped = any(block.phase == "step" for block in model.blocks.values())
        notes = {"steps": len(schedule.noise) if stepped else 0, **notes}
        if self.n_units is not None:
            number = check_integer("n_units", self.n_units, low=1)
            public = {"n_units": f"number of {source.unit}s {number}", **public}
        public_facts = self._stated(public)
        calibrate = partial(self._calibrated, run=Run.current())
        return Task(model, source, relative, schedule.rho, public_facts, notes, calibrate)

    def _relative_plan(
        self, model: M, unit: str, schedule: Schedule, clipping: Literal["block", "joint"] = "block"
    ) -> Plan:
        """Return the releases of a model, with noise relative to each other."""
        return phased(
            model.blocks,
            self._sampler(),
            schedule.noise,
            shares=schedule.budget,
            neighboring_relation=self.neighboring_relation,
            unit=unit,
            clipping=clipping,
        )

    def _stated(self, public: Mapping[str, str]) -> list[str]:
        """Return the public inputs in words, each with its known or stated source.

        Raises:
            ParameterError: If `provenance` names another input, or a source is not printable text.
        """
        sources = self._sources()
        if odd := [name for name, text in sources.items() if name not in public or not text or not text.isprintable()]:
            raise ParameterError(
                f"provenance must be a mapping or a text 'name=source; name=source' with sources of "
                f"{', '.join(public)}, got {odd[0] or self.provenance!r}."
            )
        return [
            what
            if "; source: " in what and name not in sources
            else f"{what}; source: {sources.get(name, 'stated by the caller')}"
            for name, what in public.items()
        ]

    def _sources(self) -> dict[str, str]:
        """Return sources of public inputs by name; an empty name if `provenance` has another form."""
        provenance = self.provenance or {}
        try:
            parts = (
                [part.split("=", 1) for part in provenance.split(";")]
                if isinstance(provenance, str)
                else provenance.items()
            )
            return {name.strip(): text.strip() for name, text in parts}
        except (AttributeError, TypeError, ValueError):
            return {"": ""}

    def _calibrated(self, relative: Plan, run: Run) -> Plan:
        """Return the releases of a fit, calibrated to (epsilon, delta) or with the given noise. No data are read."""
        if self.noise_multiplier is None:
            method = run.method(self.accountant, relative.events())
            return calibrated(relative, epsilon=self.epsilon, delta=self.delta, accountant=method)
        multiplier = check_number("noise_multiplier", self.noise_multiplier, low=0, high=1e12)
        return check_budget(relative.scaled(multiplier), epsilon=self.epsilon, delta=self.delta)

    def _run(
        self,
        task: Task[M],
        run: Run,
        stepped: Callable[[Q], object] | None = None,
        *,
        is_dry_run: bool = False,
        files: Watched | None = None,
    ) -> tuple[Task[M], Q]:
        """Run the plan of a task, here or on a cluster; return the final task and q, and set `privacy_`.

        `stepped` is called with q after each step. A dry run charges no ledger, and its statement reports it. `files`
        are those that the data were read from: a change of them ends the fit.
        """
        plan, rng = task.plan, generator("random_state", self.random_state)
        files = Watched() if files is None else files
        expected = None if self.n_units is None else self._expected_accuracy(task, plan, self.n_units)
        is_lost = expected is not None and expected.is_weak
        budget_warnings.warn(
            self.epsilon,
            self.delta,
            unit=plan.unit,
            num_units=self.n_units,
            events=() if is_lost else plan.events(),
            counting=SHARES[INCLUDED],
            stacklevel=4,
        )
        if expected is not None:
            self._warn_if_weak(expected, f"is expected for {self.n_units:,} {plan.unit}s", stacklevel=4)
        progress = (lambda step, plan: None) if run.progress is None else run.progress

        def on_release(number: int, q: Any) -> None:
            progress(number, plan)
            files.check()
            if stepped is not None and any(block.phase == "step" for block in plan.releases[number - 1].asked.values()):
                stepped(q)

        charging: AbstractContextManager[RunJournal | None] = nullcontext()
        if not is_dry_run:
            facts = self._facts(task.model)
            files.check()
            charging = run.journal(plan, epsilon=self.epsilon, delta=self.delta, facts=facts, files=files)
        if is_on_show(run.cluster):
            self._say_once(
                "The dashboard of the Dask cluster is reachable from other machines and reveals the size of the "
                "data, which is private. Start scheduler and workers with dashboard_address='127.0.0.1:0'."
            )
        with ExitStack() as stack:
            # A cluster that fails must end a fit before its charge, even if there are no rows to distribute yet.
            if self._opens:
                with spread(BagOfWords(np.empty((0, 1))), task.model, run.cluster):
                    pass
            else:
                held = stack.enter_context(spread(task.source, task.model, run.cluster))
            journal = stack.enter_context(charging)
            charged = plan
            going_on: Journal | None = journal
            if self._opens:
                task, plan, going_on = self._opened(task, plan, journal)
                held = stack.enter_context(spread(task.source, task.model, run.cluster))
            wall = Wall(held, plan, n_units=self.n_units, journal=going_on)
            rng = rng if journal is None or journal.seed is None else generator("random_state", journal.seed)
            q, estimate = loop.fit(
                task.model,
                wall,
                plan,
                rho=task.rho,
                rng=rng,
                on_step=on_release,
            )
            assert estimate.receipt is not None  # A plan has at least one release.
            statement = PrivacyStatement.from_plan(
                plan,
                delta=self.delta,
                private=estimate.receipt.private,
                run_id=estimate.receipt.run if journal is None else journal.name,
                public=task.public,
                n_units=self.n_units,
                charge=None if journal is None else journal.charge,
                counts=estimate.counts,
                dry_run=is_dry_run,
                published=task.notes.get("published", False),
                date=None if journal is None else journal.date,
            )
        # The digest is that of the charged plan; the plan that was run is in the releases.
        self._set_statement(replace(statement, plan_digest=charged.digest.hex()), task.notes)
        return task, q

    @property
    def _opens(self) -> bool:
        """Whether the first release of a fit determines its columns."""
        return False

    def _opened(self, task: Task[M], plan: Plan, journal: RunJournal | None) -> tuple[Task[M], Plan, Journal]:
        """Make the release that determines the columns; return task, plan and journal of the rest of the fit."""
        raise NotImplementedError

    def _set_statement(self, statement: PrivacyStatement, notes: Mapping[str, Any]) -> None:
        """Set `privacy_`, and warn if the released numbers of units are too small.

        Args:
            statement: Privacy statement of the run.
            notes: Notes of the task.
        """
        self.privacy_ = statement
        counts = statement.counts
        warned = (
            statement.n_units is not None or statement.delta > budget_warnings.MOST_DELTA
        )  # Warned before the charge.
        if counts is not None and statement.epsilon < math.inf and not warned:
            budget_warnings.warn_of_count(statement.delta, unit=statement.unit, count=counts.at_least, stacklevel=5)
        if counts is not None and counts.are_few:
            warnings.warn(
                f"{counts.say(statement.unit)}. This number is indistinguishable from 0, or too small to fit the "
                f"model. The budget was spent. {self._included(notes)}Check the separator, decimal sign and encoding "
                "of the file; in a folder, only .txt files are read. `dpvb check-data` reports invalid values to the "
                "owner of the data. If the file is correct, a larger budget is needed.",
                FewUnitsWarning,
                stacklevel=4,
            )

    def _included(self, notes: Mapping[str, Any]) -> str:
        """Return which labels, symbols or words are included by their public declaration; empty for numbers."""
        target = getattr(notes.get("schema"), "target", None)
        by_y = notes.get("schema") is None or ("target" in notes and notes["target"] is None)
        if "classes" in notes or hasattr(self, "classes"):
            name = None if by_y else getattr(self, "response", None) or getattr(target, "name", None)
            labels = notes.get("classes") or (self.classes if by_y or target is None else target.classes)
            return _only("label", "y" if name is None else f"column {name!r}", labels)
        if notes.get("symbols") is not None:
            return _only("symbol", "X", notes["symbols"])
        return "" if notes.get("vocabulary") is None else _only("word", "X", notes["vocabulary"])

    def _facts(self, model: M) -> dict[str, Any]:
        """Return facts that a resumed fit must share: parameters, and everything that the model declares."""
        params = self.get_params(deep=False)
        plain = _plain(params)
        others = told({name: value for name, value in params.items() if name not in plain})
        return {"model": type(self).__name__, "params": plain, "others": others, "learned": declared(model)}

    @staticmethod
    def _check_public(public: object) -> None:
        """Refuse to score rows that the caller did not state to be public."""
        if public is not True:
            raise PrivacyError(_SCORED)

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            warnings.warn(message, PrivacyWarning, stacklevel=3)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one file: arrays without pickle, and a JSON manifest with hashes.

        The file contains only released values and public parameters, never data.

        Args:
            path: File to write; its folder must exist.
            overwrite: Whether to replace an existing file. Default: False.

        Raises:
            ParameterError: If the file exists and `overwrite` is False, or if the model is from a dry run.
            ModelFileError: If the file cannot be written, or if `load` could not find the class of the estimator. No
                partial file is left.
        """
        self._check_fitted()
        if self.privacy_.dry_run:
            raise ParameterError(
                "save needs a fit to data, got a dry run, whose rows are synthetic. Call fit, then save."
            )
        check_target("path", path, overwrite=overwrite)
        arrays, learned = trees.written(self._record)
        steps = [trees.written(record) for record in self._path]
        for step, (parts, _) in enumerate(steps, start=1):
            arrays |= {f"step{step}__{name}": array for name, array in parts.items()}
        facts = {
            **_place(type(self)),
            "learned": learned,
            **({"path": [form for _, form in steps]} if steps else {}),
            "steps": self.n_iter_,
            "privacy": self.privacy_.to_dict(),
            "params": _saved(self.get_params(deep=False)),
        }
        if hasattr(self, "audit_"):
            facts["audit"] = self.audit_.to_dict()
        model_file.save(path, kind=type(self).__name__, arrays=arrays, facts=facts)

    def _facts_for_report(self) -> Iterator[Figure]:
        """Yield the figures of a report, from released and public values only."""
        yield from ()

    def plot(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the figures of the report as one picture. This needs matplotlib.

        Args:
            path: File to write; its suffix is the format: .png, .pdf or .svg.
            overwrite: Whether to replace an existing file. Default: False.

        Raises:
            ParameterError: If `path` is not a path, or if the file exists and `overwrite` is False.
            DpvbError: If matplotlib is not installed, or this model has no figure.
        """
        self._check_fitted()
        check_target("path", path, overwrite=overwrite)
        plots.save(path, self._facts_for_report(), f"{type(self).__name__}. Privacy: {self.privacy_.brief}.")

    def report(self) -> Page:
        """Return a page about the fitted model: results with intervals, privacy statement, cost and method.

        Returns:
            Page that a notebook displays, `save` writes as HTML, and `card` returns as plain JSON values. It contains
            only released and public values.

        Raises:
            PrivacyError: If the releases cost more than the statement reports.
        """
        self._check_fitted()
        self.privacy_.verify()
        return Page(
            kind=type(self).__name__,
            figures=tuple(drawing for figure in self._facts_for_report() for drawing in figure.drawings()),
            statement=self.privacy_,
            parameters=self._parameters(),
            audit=getattr(self, "audit_", None),
        )

    def _parameters(self) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
        """Return the parameters that differ from their defaults, and the others, as Python code."""
        values = {name: notebook_html.abbreviated(value) for name, value in self.get_params(deep=False).items()}
        defaults = {
            one.name: notebook_html.abbreviated(one.default)
            for one in inspect.signature(type(self)).parameters.values()
        }
        chosen = tuple((name, value) for name, value in values.items() if value != defaults[name])
        return chosen, tuple((name, value) for name, value in values.items() if value == defaults[name])

    def _repr_html_inner(self) -> str:
        """Return HTML of parameters and privacy statement, if `sklearn.set_config` enables diagrams."""
        chosen, others = self._parameters()
        fitted = hasattr(self, "privacy_")
        head = notebook_html.title(f"{type(self).__name__}, {'fitted' if fitted else 'not fitted'}")
        table = notebook_html.table(chosen) + notebook_html.folded("Other parameters", notebook_html.table(others))
        if not fitted:
            return f"<div>{head}{table}</div>"
        tabled: Any = self if getattr(self, "coef_std_", None) is not None else None
        rows = notebook_html.folded("Coefficients", tabled.coefficients()._repr_html_()) if tabled else ""
        return f"<div>{head}{self.privacy_._repr_html_()}{rows}{notebook_html.folded('Parameters', table)}</div>"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        plain = {"text/plain": repr(self)}
        return plain | {"text/html": self._repr_html_inner()} if hasattr(self, "_repr_html_") else plain

    def _check_fitted(self) -> None:
        check_is_fitted(self, "privacy_")

    def _to_draw(self, n: int, rng: Any) -> tuple[int, np.random.Generator]:
        """Return a public number of draws from a fitted model, and what draws them."""
        self._check_fitted()
        return check_integer("n", n, low=0, high=10**9), generator("rng", rng)

    def _given_steps(self, low: int = 1, high: int = 10**6) -> int | None:
        """Return n_steps within its range; None if it was not given."""
        return None if self.n_steps is None else check_integer("n_steps", self.n_steps, low=low, high=high)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        for form in self._input_forms:
            setattr(tags.input_tags, form, True)
        return tags


class TransformingEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator[M, Q]):  # type: ignore[misc]
    """Base class of estimators whose `transform` has a column for each of `components_`."""

    def fit_transform(self, X: Records, y: None = None, **fit_params: Any) -> Floats:
        """Fit the model, and return the transformed rows. These are as private as the rows.

        Args:
            X: Private rows, as in `fit`.
            y: Ignored. Default: None.
            fit_params: Other arguments of `fit`. Default: none.
        """
        self._say_once(
            "fit_transform returns one row per private row. These rows are as private as the data: the guarantee "
            "covers only the fitted model."
        )
        return cast(Floats, self.fit(X, y, **fit_params).transform(X))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def check_width(width: int, expected: int, kind: str, why: str = "") -> None:
    """Check the number of columns of rows that the caller owns.

    Raises:
        DataFormatError: If the number differs from the expected one.
    """
    if width != expected:
        # The checks of scikit-learn require this sentence.
        raise DataFormatError(f"X has {width} features, but {kind} is expecting {expected} features as input{why}.")


def generator(name: str, seed: Any) -> np.random.Generator:
    """Return a generator of public randomness from None, an integer or a NumPy generator.

    Raises:
        ParameterError: If `seed` is anything else.
    """
    if isinstance(seed, np.random.RandomState):
        return np.random.default_rng(seed.randint(2**31, size=4))
    if seed is None or isinstance(seed, np.random.Generator):
        return np.random.default_rng(seed)
    return np.random.default_rng(check_integer(name, seed, low=0, high=2**63))


#: Remedies for a plain matrix without bounds.
ONE_UNIT = "max_row_norm=, the largest Euclidean norm of a row, if all columns share one unit"
BY_RELEASE = "dpvb.private_range(column, ...), which estimates a range with part of the budget"


def unbounded(needed: str, got: str, *ways: str) -> ParameterError:
    """Return the error for a plain matrix without public bounds.

    Args:
        needed, got: Names of parameters, in words.
        ways: Remedies, in words.
    """
    ways_out = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, start=1))
    return ParameterError(f"X needs public bounds on its numbers, {needed}, got {got}. Alternatives: {ways_out}.")


def column_names(X: Records) -> tuple[str, ...] | None:
    """Return column names of a data frame or an Arrow table; None unless all are strings."""
    table: Any = X
    names = list(table.columns) if has_columns(table) else []
    if is_arrow_table(X) and not all(isinstance(name, str) for name in names):  # `columns` of an Arrow table has cells.
        names = import_arrow().table(X).column_names
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters that are valid JSON, without generators and data-like arguments."""
    plain: dict[str, Any] = {}
    for name, value in params.items():
        if isinstance(value, (np.integer, np.floating)):
            value = value.item()
        if value is None or isinstance(value, (bool, int, str)):
            plain[name] = value
        elif isinstance(value, float):
            plain[name] = value if math.isfinite(value) else str(value)
    return plain


def _saved(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that a model file contains: plain values, and lists and mappings of them.

    A prior is not part of a fitted model, and the words of a vocabulary are in its record.
    """
    saved = _plain(params)
    for name in params.keys() - {*saved, "prior", "vocabulary"}:
        with suppress(TypeError):
            saved[name] = _listed(params[name])
    return saved


def _listed(value: Any) -> Any:
    """Return a plain value unchanged, and a sequence or mapping as a JSON list or object.

    Raises:
        TypeError: If `value` is anything else.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value]


def _place(kind: type) -> dict[str, str]:
    """Return the module of a class that is not part of dpvb, since two modules may use the same name.

    Raises:
        ModelFileError: If `load` could not find the class.
    """
    if PrivateEstimator._registered.get(kind.__name__) is kind and kind.__module__.startswith("dpvb."):
        return {}
    return {"class": named(kind)}


def _only(what: str, where: str, declared: Iterable[Any]) -> str:
    """Return a sentence that lists the included values of a column; all of them are public."""
    values = [*declared]
    few = ", ".join(map(notebook_html.abbreviated, values[:_MOST_NAMED])) + (
        ", ..." if len(values) > _MOST_NAMED else ""
    )
    return f"In {where}, only the {len(values)} declared {what}s are included: {few}. "


def named(kind: type) -> str:
    """Return the name of a class in a file.

    Raises:
        ModelFileError: If `load` could not find the class by this name.
    """
    if not inspect.isclass(imported(place_of(kind))):
        raise ModelFileError(
            f"{place_of(kind)} must be defined at the top level of a module, so that `load` can find it."
        )
    return place_of(kind)


@says_what_lacks
def load(path: str | os.PathLike[str]) -> PrivateEstimator:
    """Return a model from a file that `save` or `dpvb fit` wrote. No code in the file is run, and no data are needed.

    Args:
        path: Model file.

    Raises:
        ModelFileError: If the file is missing, damaged, modified or of another format.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X).save("pca.dpvb")
        >>> dpvb.load("pca.dpvb").components_.shape
        (1, 2)
    """
    stored = model_file.load(path)
    try:
        place = stored.facts.get("class")
        kind: Any = PrivateEstimator._registered.get(stored.kind) if place is None else imported(place)
        if not (inspect.isclass(kind) and issubclass(kind, PrivateEstimator)):
            raise ModelFileError(
                f"{os.fspath(path)}: the model class {place or stored.kind!r} is unknown. If it is your own class, "
                "import its module first; otherwise, update dpvb."
            )
        params = {name: _parameter(value) for name, value in stored.facts["params"].items()}
        if (name := misfit(kind, params)) is not None:
            raise ModelFileError(f"{os.fspath(path)}: modified: {name} has another type than the parameter.")
        restored: PrivateEstimator = kind(**params)
        restored.privacy_ = PrivacyStatement.from_dict(stored.facts["privacy"])
        restored.n_iter_ = check_integer("steps", stored.facts["steps"], low=0)
        with np.errstate(all="ignore"):  # The checks below find overflows.
            forms = [stored.facts["learned"], *stored.facts.get("path", ())]
            parts = _by_step(stored.arrays, len(forms))
            records: list[Any] = [trees.read(kind._record_class, *one) for one in zip(forms, parts, strict=True)]
            for one in reversed(records):
                restored._check(one)
            restored._keep(records[0])
            if records[1:]:
                restored.__dict__["_path"] = records[1:]
        if "audit" in stored.facts:
            restored.audit_ = Report.from_dict(stored.facts["audit"])
        estimator: PrivateEstimator | None = restored
    except ModelFileError as error:
        place = f"{os.fspath(path)}: "
        raise ModelFileError(place + str(error).removeprefix(place)) from None
    except Exception:  # Classes of users may raise any exception.
        estimator = None
    if estimator is None:
        raise model_file.inconsistent(path)
    return estimator


def _by_step(arrays: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """Return the arrays of the result, then those of the model after each of number - 1 steps."""
    parts: list[dict[str, Any]] = [{} for _ in range(number)]
    for name, array in arrays.items():
        place = re.fullmatch("step([1-9][0-9]{0,4})__(.+)", name)
        if place is not None and int(place[1]) < number:
            parts[int(place[1])][place[2]] = array
        else:
            parts[0][name] = array
    return parts


def _parameter(value: Any) -> Any:
    """Return a parameter from a file: lists become tuples, and texts of infinities become numbers."""
    if isinstance(value, list):
        return tuple(map(_parameter, value))
    return float(value) if value in ("inf", "-inf") else value
