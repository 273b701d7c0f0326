"""What every estimator shares: from (ε, δ) and public facts to a plan, a wall, a fit and a statement."""

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

from dpvb.accounting import doubts
from dpvb.accounting.answers import Method
from dpvb.accounting.events import NeighboringRelation, named_sampler
from dpvb.cluster import is_on_show, spread
from dpvb.core import loop
from dpvb.core.counting import COUNTED, SHARES
from dpvb.core.journal import Journal
from dpvb.core.model import Model
from dpvb.core.plan import Plan, calibrated, check_budget, phased
from dpvb.core.sampling import FixedSize, FullBatch, Poisson, Sampler
from dpvb.core.schedule import Schedule, StepSize
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords
from dpvb.data.arrow import import_arrow
from dpvb.data.documents import word_lists
from dpvb.data.tables.matrices import has_columns, is_arrow_table
from dpvb.data.tables.ranged import Date, Numeric, Spline
from dpvb.data.tables.table import Table
from dpvb.data.times import microseconds
from dpvb.estimators import synthetic_rows
from dpvb.estimators.given import Records, Responses
from dpvb.guards import pages
from dpvb.guards.arrays import Floats
from dpvb.guards.blas import one_blas_thread
from dpvb.guards.errors import (
    DataFormatError,
    DpvbWarning,
    FewUnitsWarning,
    LostInNoiseWarning,
    ModelFileError,
    ParameterError,
    PrivacyError,
    check_integer,
    check_number,
    check_target,
)
from dpvb.guards.lacking import constructor_says_what_lacks, says_what_lacks
from dpvb.guards.strangers import imported, misfit, place_of
from dpvb.guards.watched import Watched, watched
from dpvb.results import model_file, pictures, trees
from dpvb.results.audit_report import Report
from dpvb.results.declared import declared, told
from dpvb.results.figures import Figure
from dpvb.results.forecast import Knowledge
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

# Parameters that are ends of ranges or bounds of rows, and those that bound what stands beside a row; names under which
# a statement says that there are some.
_ENDS, _MOST = ("low", "high", "y_range", "max_row_norm"), ("max_exposure", "max_offset", "max_weight")
_BOUNDS = {"ranges", "columns", "schema", "y_range", "max_row_norm", *_MOST}
_MINUTE = 60e6
# Declared values that a warning names.
_MOST_NAMED = 5

# What is said to whoever would score private rows.
_SCORED = (
    "a score of private rows is a leak, also through the model that it selects: cross_val_score and GridSearchCV on "
    "private rows are refused. Choose among settings with dpvb.private_select, whose noisy scores are charged; or "
    "score public held-out rows with score(X, y, public=True) of a fitted model."
)


_Method = TypeVar("_Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Fitted:
    """A fitted model as a parameter: `clone` of scikit-learn makes unfitted copies of plain estimators."""

    model: PrivateEstimator


class NoScoreError(PrivacyError, NotFittedError):  # type: ignore[misc]
    """A score was asked of a model that is not fitted; nothing was spent.

    It is an AttributeError, as scikit-learn's NotFittedError is: `hasattr(model, "score")` is False before a fit, so
    that a search over private rows stops before its first charge.
    """


def _is_fitted(estimator: Any) -> bool:
    return "privacy_" in vars(estimator)


def if_fitted(method: _Method) -> _Method:
    """Decorate a method that an estimator has only after a fit."""
    return cast(_Method, available_if(_is_fitted)(method))


class PrivacyWarning(DpvbWarning):
    """Something that the caller does is outside the promise; said once."""


class Task(NamedTuple, Generic[Fits]):
    """What a fit would do; all but the source is public.

    Attributes:
        model: what is learned.
        source: private data; None with a server, which has none.
        relative: the releases, with noise relative to each other.
        rho: step sizes.
        public: what the promise takes for public, in words, and where each comes from.
        notes: what is public about columns (names, a schema, a vocabulary, their number), and what `_take` needs of it.
        calibrate: calibrates the relative releases to the budget of the fit.
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
        """The plan that a fit charges: the releases, with noise that meets the budget."""
        return self.calibrate(self.relative)


# Subclasses are dataclasses too, so that each parameter is named once; scikit-learn reads the signatures they get.
@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class PrivateEstimator(BaseEstimator, ABC, Generic[M, Q]):  # type: ignore[misc]
    """What every estimator is: parameters, a task, and the result that it takes.

    All parameters are public. `None` means: planned from public facts. The command line shows these words as its help.

    Args:
        epsilon: the privacy budget of one fit, in (0, inf]; inf: no noise and no privacy, on the same path.
        delta: the chance that the promise leaves open, in (0, 1): well below one over the number of units, as 1e-6.
        n_steps: number J of noisy releases of the steps; planned if not given.
        sampling_prob: Poisson batches: every unit is drawn with this probability, afresh at each step. Neither this nor
            batch_size: all units at each step, which gives the best model for a given epsilon.
        batch_size: fixed-size batches of so many units, drawn afresh at each step; needs n_units.
        n_units: a public number of units, where there is one.
        noise_multiplier: noise std over the clip norm, instead of noise calibrated to epsilon; refused if it costs
            more.
        accountant: method of the calibration, one of dpvb.accounting's.
        neighboring_relation: what is hidden: that a unit is there ("add_or_remove_one"), or which it is
            ("replace_one").
        random_state: seed of the public start and public draws alone; the private randomness takes no seed.
        provenance: where public inputs come from, by their names in the privacy statement: {"vocabulary": "a word list
            of Wikipedia"}, or the text "vocabulary=a word list of Wikipedia; prior=a textbook". Of the others it says
            "stated by the caller".
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
    #: All kinds of estimators by name; a class enters itself.
    _registered: ClassVar[dict[str, type[PrivateEstimator]]] = {}
    #: What a federation may declare of its columns.
    _declares: ClassVar[tuple[str, ...]] = ("width",)
    #: The files that `dpvb` reads for a kind: "documents", "rows" (with a response), "measurements" (rows without one),
    #: "table" (every column), "images" or "sequences"; None: none.
    _reads: ClassVar[str | None] = None
    #: The frozen dataclass of what a kind learns: with its parameters it is the fitted model.
    _record_class: ClassVar[type]
    #: The parameter that is the size of the model, where one is.
    _size_parameter: ClassVar[str | None] = None
    # Forms of X by their names in scikit-learn's tags, in addition to dense arrays.
    _input_forms: ClassVar[tuple[str, ...]] = ()
    #: Smallest n_steps, where one is given.
    _least_steps: ClassVar[int] = 1
    #: NAME of `dpvb fit NAME`, for the class that says it alone.
    _command: ClassVar[str | None] = None
    #: The kind's own options in the example of its help; None: those that must be given, with N behind each.
    _example: ClassVar[str | None] = None
    #: Options of the command line whose name is not their parameter's, by the parameter.
    _spelled: ClassVar[Mapping[str, str]] = {"random_state": "seed"}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A name belongs to the module that took it first: a file or a server that says "LDA" means this package's.
        registered = cls._registered.get(cls.__name__, cls)
        if not inspect.isabstract(cls) and registered.__module__ == cls.__module__:
            cls._registered[cls.__name__] = cls

    def __setattr__(self, name: str, value: Any) -> None:
        # `clone` of scikit-learn makes unfitted copies of estimators, and a saved model holds no folder's name.
        if name in ("prior", "earlier") and isinstance(value, PrivateEstimator):
            value = Fitted(value)
        elif name in ("prior", "earlier") and type(value) is str and value and not word_lists.is_name(value):
            value = Path(value)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        # Python calls this method for attributes that were not found. What a fit sets ends or begins with "_".
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
        """What a fit to these rows would do; nothing is spent, and nothing private is looked at.

        Raises:
            ParameterError, DataFormatError: for public faults.
        """

    def release_plan(
        self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None, **rows: Any
    ) -> Plan:
        """Return the plan that a fit would charge: its releases, with noise that meets the budget.

        Nothing private is read, and nothing is charged.

        Args:
            X, y, group: The rows, as in `fit`. Only public facts of them are used, such as the number of columns.
            rows: The other row arguments of `fit`.

        Raises:
            ParameterError, DataFormatError: For public faults, as in `fit`. No budget is spent.
        """
        return self._task(X, y, group=group, **rows).plan

    def _take(self, task: Task[M], q: Q) -> None:
        """Keep the result of a task, and show it in the user's units; the task's source may be gone by then."""
        self.n_iter_ = task.notes["steps"]
        self._keep(self._learned(task, q))

    @abstractmethod
    def _learned(self, task: Task[M], q: Q) -> Any:
        """Return what a task learned as a record of the class `_record_class`."""

    @abstractmethod
    def _show(self, record: Any) -> None:
        """Set the attributes of a fitted model from its record."""

    def _check(self, record: Any) -> None:
        """Check a record of a file, whose numbers are in the domains of their class.

        Raises:
            Exception: unless its parts fit the parameters and each other, as those of a fit do.
        """

    def _keep(self, record: Any) -> None:
        self._show(record)
        self._record = record

    def _as_prior(self, columns: Any) -> tuple[Any, str]:
        """Return what this fitted model says before another fit of its kind, and what that is, in words.

        Args:
            columns: Public columns of that fit, and what else its kind compares.

        Raises:
            ParameterError: for other columns than those of this model.
        """
        self._check_fitted()
        raise ParameterError(f"prior must be None: {type(self).__name__} takes none.")

    def _no_rows(self, *, schema: Schema | None, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """What `_task` takes for data without rows, in declared columns: a federation's server has no other."""
        if schema is not None:
            return {"X": Table({name: np.empty(0) for name in schema.read_columns}, schema)}
        return {"X": np.empty((0, width or 0))}

    def _quality(self, rows: Any) -> Floats:
        """Score of each clean row under the fitted model, from that row alone, bit for bit; NaN where there is none."""
        raise ParameterError(self._unscored)

    def _quality_range(self, model: M) -> tuple[float, float]:
        """Public ends of a row's score, from that of a uniform guess."""
        raise ParameterError(self._unscored)

    @property
    def _unscored(self) -> str:
        return f"estimator must be one whose rows have scores of their own; {type(self).__name__} cannot be selected."

    def fit(
        self,
        X: Records,
        y: Responses = None,
        *,
        group: Iterable[object] | None = None,
        run: Run | None = None,
        **rows: Any,
    ) -> Self:
        """Fit privately.

        Args:
            X, y: private rows, as the class says.
            group: private person of each row; a person's rows are then protected, drawn and clipped together.
            run: `dpvb.Run` that says where the fit is recorded and kept, and what computes it. None (default): the run
                of the block around the call, or of the environment.

        Raises:
            ParameterError, DataFormatError: for public faults, before anything is spent.
            TypeError: for an argument of another kind of model, as `sample_weight`.
            PrivateComputationError: if the computation failed behind the wall; the charge stands.
            KeyboardInterrupt: by Ctrl-C; its notes say what was released and charged, and what goes on.
        """
        accepted = inspect.signature(self._task).parameters
        if foreign := [name for name in rows if name not in accepted]:
            way_out = " Weights of rows are weights=, with max_weight=, their public bound." * ("weights" in accepted)
            raise TypeError(f"{type(self).__name__}.fit takes {', '.join(accepted)}, but not {foreign[0]}.{way_out}")
        with Run.current(run, sent=self._sent_run).opened() as run:
            with run.alone():
                task = self._task(X, y, group=group, **rows)
            if run.keep is not None and not task.notes["steps"]:
                raise ParameterError(
                    f"keep must be None, got {run.keep!r}: this {type(self).__name__} has no steps. What it learns is "
                    "computed from releases that are made once. Nothing was charged."
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
        if (learned := self._knowledge_of_result()) is not None:
            self.privacy_: PrivacyStatement = replace(self.privacy_, remarks=(f"{learned}.",))
            self._warn_if_weak(learned, "was found", stacklevel=3)
        return self

    def at_step(self, step: int) -> Self:
        """Return the model as it was after a step of a fit whose run had keep="path"; it costs no privacy.

        Its privacy statement is that of the whole fit. A release after the last step changes the model once more: the
        fitted model itself is the end of the path.

        Args:
            step: from 1 to n_iter_.

        Raises:
            ParameterError: for another step, or if the fit kept no path.

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
            raise ParameterError(
                "step must be None for a fit without its path: give the fit run=dpvb.Run(keep='path')."
            )
        model = copy(self)
        model.__dict__.update(_path=(), n_iter_=check_integer("step", step, low=1, high=len(self._path)))
        model._keep(self._path[step - 1])
        return model

    def _name_features(self, names: tuple[str, ...] | None) -> None:
        """Set `feature_names_in_` as scikit-learn does: only if X has column names that are texts."""
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)

    def _warn_of_computed_bounds(self, X: Records, *, stacklevel: int = 3) -> None:
        """Warn of public bounds that look computed, unless provenance= says where one of them comes from.

        Args:
            X: rows, of which a table's schema is looked at, and nothing else.
            stacklevel: whose line is shown, as in `warnings.warn`: 2 is the caller's, 3 that of the caller's caller.
        """
        if not _BOUNDS & self._sources().keys():
            series = [name for name in _ENDS if hasattr(getattr(self, name, None), "iloc")]
            doubts.warn_of_ranges(self._ends(X), series=series, stacklevel=stacklevel + 1)

    def _ends(self, X: Records) -> Iterator[tuple[str, float]]:
        """Numbers that are public bounds by what the caller states, with the name of column or parameter."""
        stated: list[tuple[str, object]] = [(name, getattr(self, name, None)) for name in (*_ENDS, *_MOST)]
        schema = X.schema if isinstance(X, Table) else None
        for one in () if schema is None else schema.own_columns:
            if isinstance(one, Date):  # In minutes: a moment that was measured has seconds.
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
        """A fitted copy from made-up rows: the same parameters, plan and noise; nothing is read and nothing is charged.

        The rows are uniform in what is declared. The copy shows what a fit returns and takes; it is never saved.

        Args:
            schema, vocabulary, width: what is public of the columns: a table's schema, the words of documents, or their
                number.
            responses: where y holds plain numbers (`DPVI`): 0 for one number a row, or how many.
            grouped: whether the fit is given the person of each row.
            n_units: how many rows are made up; None: the parameter n_units, or 10,000.
            run: as in `fit`; its ledger only says how the noise is calibrated, and its checkpoint has no effect.

        Raises:
            ParameterError: if nothing says which columns there are, or for what a fit would be refused.
        """
        number = synthetic_rows.NUM_ROWS if self.n_units is None else self.n_units
        number = check_integer("n_units", number if n_units is None else n_units, low=1, high=10**8)
        words = self._public_words(vocabulary)
        rows = synthetic_rows.arguments(
            self, number, schema=schema, vocabulary=words, width=width, responses=responses, grouped=grouped
        )
        fitted = clone(self)
        # It begins no run, and reads none.
        with replace(Run.current(run), checkpoint=None, resume=None).opened() as run:
            with run.alone():
                task = fitted._task(**rows)
            with one_blas_thread():
                fitted._take(*fitted._run(task, run, is_dry_run=True))
        return fitted  # type: ignore[no-any-return]

    def _foreseen(self, **columns: Any) -> tuple[Task[M], Plan]:
        """What a fit would do in declared columns, and its releases as they are calibrated for it."""
        columns["vocabulary"] = self._public_words(columns["vocabulary"])
        with Run().alone():
            task = self._task(**synthetic_rows.arguments(self, 1, **columns, grouped=False))
        return task, task.plan

    def _public_words(self, vocabulary: Sequence[str] | None) -> Any:
        """Return a declared vocabulary, else that of the parameters if it is public."""
        return getattr(self, "vocabulary", None) if vocabulary is None and not self._opens else vocabulary

    def _knows(self, task: Task[M], plan: Plan, n: float) -> Knowledge:
        """How well the result is known after a fit to n units under a calibrated plan: of every forecast the source.

        By default the noise of means.
        """
        return Knowledge.of_means(plan, n)

    def _knowledge_of_result(self) -> Knowledge | None:
        """How well the result of this fit is known, by its released numbers alone; None: nothing is said of it."""
        return None

    def _warn_if_weak(self, knowledge: Knowledge, where: str, *, stacklevel: int) -> None:
        if knowledge.is_weak:
            warnings.warn(
                f"{knowledge} {where}. Noise hides the result, which needs {knowledge.needs}. `dpvb.plan` forecasts "
                "how many units, which epsilon or which smaller model would reach that.",
                LostInNoiseWarning,
                stacklevel=stacklevel,
            )

    def _sampler(self) -> Sampler:
        """The sampler that the public parameters name; without any, the full batch."""
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
        clip: Literal["block", "joint"] = "block",
    ) -> Task[M]:
        """The task of a model that lays out its plan so; `public` says by names what the promise takes for public."""
        relative = self._relative_plan(model, source.unit, schedule, clip)
        stepped = any(block.phase == "step" for block in model.blocks.values())
        notes = {"steps": len(schedule.noise) if stepped else 0, **notes}
        if self.n_units is not None:
            number = check_integer("n_units", self.n_units, low=1)
            public = {"n_units": f"number of {source.unit}s {number}", **public}
        public_facts = self._stated(public)
        calibrate = partial(self._calibrated, run=Run.current())
        return Task(model, source, relative, schedule.rho, public_facts, notes, calibrate)

    def _relative_plan(
        self, model: M, unit: str, schedule: Schedule, clip: Literal["block", "joint"] = "block"
    ) -> Plan:
        """Return the releases of a model, with noise relative to each other."""
        return phased(
            model.blocks,
            self._sampler(),
            schedule.noise,
            shares=schedule.budget,
            neighboring_relation=self.neighboring_relation,
            unit=unit,
            clip=clip,
        )

    def _stated(self, public: Mapping[str, str]) -> list[str]:
        """What the promise takes for public, each with its source: a known one, or the stated one.

        Raises:
            ParameterError: if provenance speaks of something else, or in no printable text.
        """
        sources = self._sources()
        if odd := [name for name, text in sources.items() if name not in public or not text or not text.isprintable()]:
            raise ParameterError(
                f"provenance must say in short texts where {', '.join(public)} come from, as {{name: text}} or "
                f"'name=text; name=text', got {odd[0] or self.provenance!r}."
            )
        return [
            what
            if "; source: " in what and name not in sources
            else f"{what}; source: {sources.get(name, 'stated by the caller')}"
            for name, what in public.items()
        ]

    def _sources(self) -> dict[str, str]:
        """Where public inputs come from, by their names; an empty name for what says nothing of the kind."""
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
        """The releases of a fit, fixed before any data are read: calibrated to (epsilon, delta), or as given."""
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
        """Run a task's plan on its data, here or on a cluster; returns the task as it ended, and q; sets `privacy_`.

        `stepped` is called with q after each step. A dry run has made-up data: no ledger is charged, and the
        statement says so. `files` are those that the data were read from: a change of them ends the fit.
        """
        plan, rng = task.plan, generator("random_state", self.random_state)
        files = Watched() if files is None else files
        expected = None if self.n_units is None else self._knows(task, plan, self.n_units)
        is_lost = expected is not None and expected.is_weak
        doubts.warn(
            self.epsilon,
            self.delta,
            unit=plan.unit,
            num_units=self.n_units,
            events=() if is_lost else plan.events(),
            counting=SHARES[COUNTED],
            stacklevel=4,
        )
        if expected is not None:
            self._warn_if_weak(expected, f"is forecast for {self.n_units:,} {plan.unit}s", stacklevel=4)
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
            charging = run.journal(plan, epsilon=self.epsilon, delta=self.delta, facts=facts, files=files.states)
        if is_on_show(run.cluster):
            self._say_once(
                "the Dask cluster shows its pages beyond this machine, and whoever reaches them sees how large the "
                "data are. Start scheduler and workers with dashboard_address='127.0.0.1:0'."
            )
        with ExitStack() as stack:
            # A cluster that cannot work ends a fit before its charge, also where there is nothing to spread yet.
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
            )
        # The plan that was fixed, and charged: that which it came to is in the releases.
        self._set_statement(replace(statement, plan_digest=charged.digest.hex()), task.notes)
        return task, q

    @property
    def _opens(self) -> bool:
        """Whether the columns of a fit are known by its first release alone."""
        return False

    def _opened(self, task: Task[M], plan: Plan, journal: RunJournal | None) -> tuple[Task[M], Plan, Journal]:
        """Make the release by which the columns are known: how the fit goes on with its task, plan and journal."""
        raise NotImplementedError

    def _set_statement(self, statement: PrivacyStatement, notes: Mapping[str, Any]) -> None:
        """Keep what a run promises as `privacy_`, and warn of what its released counts say of it.

        Args:
            statement: of the run.
            notes: the task's.
        """
        self.privacy_ = statement
        counts = statement.counts
        warned = statement.n_units is not None or statement.delta > doubts.MOST_DELTA  # before it was spent
        if counts is not None and statement.epsilon < math.inf and not warned:
            doubts.warn_of_count(statement.delta, unit=statement.unit, count=counts.at_least, stacklevel=5)
        if counts is not None and counts.are_few:
            warnings.warn(
                f"{counts.say(statement.unit)}. That cannot be told from none, or is too few to learn from; what was "
                f"spent stays spent. {self._included(notes)}Look at the file, its separator, decimal sign and "
                "encoding, the names in a folder, of which those in .txt are read (`dpvb look` shows its owner the "
                "faults of a file, on a terminal); or spend more.",
                FewUnitsWarning,
                stacklevel=4,
            )

    def _included(self, notes: Mapping[str, Any]) -> str:
        """Which labels, symbols or words are included, by their public declaration; empty if all numbers are."""
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
        """What a fit shares with the one that continues it: every parameter, and all that the model declares."""
        params = self.get_params(deep=False)
        plain = _plain(params)
        others = told({name: value for name, value in params.items() if name not in plain})
        return {"model": type(self).__name__, "params": plain, "others": others, "learned": declared(model)}

    @staticmethod
    def _check_public(public: object) -> None:
        """Refuse to score rows that nobody said were public."""
        if public is not True:
            raise PrivacyError(_SCORED)

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            warnings.warn(message, PrivacyWarning, stacklevel=3)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the fitted model to one file: arrays without pickle and a JSON manifest with hashes.

        The file holds released values and public parameters only, never data.

        Args:
            path: the file; its folder must exist.
            overwrite: whether it may take the place of a file that is there.

        Raises:
            ParameterError: if a file is there that may not be replaced; for a dry run.
            ModelFileError: if the file cannot be written, and nothing half-written is left; or if the class of the
                estimator could not be found again.
        """
        self._check_fitted()
        if self.privacy_.dry_run:
            raise ParameterError("a dry run is not saved: its rows were made up. Call fit with the data, then save.")
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
        """What a report shows of what was learned; released and public values alone. Each kind has its own."""
        yield from ()

    def plot(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Draw what a report shows as one picture, which needs matplotlib.

        Args:
            path: the picture to write; the suffix tells the format (.png, .pdf, .svg).
            overwrite: whether it may take the place of a file that is there.

        Raises:
            ParameterError: for no path, or if a file is there that may not be replaced.
            DpvbError: if matplotlib is not installed, or this kind of model has no figure.
        """
        self._check_fitted()
        check_target("path", path, overwrite=overwrite)
        pictures.save(path, self._facts_for_report(), f"{type(self).__name__}. Privacy: {self.privacy_.brief}.")

    def report(self) -> Page:
        """One page about the fitted model: what was learned, how sure it is, what it cost and how it was done.

        Returns:
            A page that a notebook shows, that `save` writes as HTML, and `card` gives as plain JSON values; it holds
            released and public values alone.

        Raises:
            PrivacyError: if the releases cost more than the statement says.
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
        """The parameters that somebody chose, and the others, in Python's words."""
        values = {name: pages.shortened(value) for name, value in self.get_params(deep=False).items()}
        defaults = {one.name: pages.shortened(one.default) for one in inspect.signature(type(self)).parameters.values()}
        chosen = tuple((name, value) for name, value in values.items() if value != defaults[name])
        return chosen, tuple((name, value) for name, value in values.items() if value == defaults[name])

    def _repr_html_inner(self) -> str:
        """The estimator for a notebook, where `sklearn.set_config` leaves diagrams on: parameters, and the promise."""
        chosen, others = self._parameters()
        fitted = hasattr(self, "privacy_")
        head = pages.title(f"{type(self).__name__}, {'fitted' if fitted else 'not fitted'}")
        table = pages.table(chosen) + pages.folded("The other parameters", pages.table(others))
        if not fitted:
            return f"<div>{head}{table}</div>"
        tabled: Any = self if getattr(self, "coef_std_", None) is not None else None
        rows = pages.folded("Coefficients", tabled.coefficients()._repr_html_()) if tabled else ""
        return f"<div>{head}{self.privacy_._repr_html_()}{rows}{pages.folded('Parameters', table)}</div>"

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
    """An estimator whose `transform` has a column for each of `components_`."""

    def fit_transform(self, X: Records, y: None = None, **fit_params: Any) -> Floats:
        """Fit, then return the transformed rows, which are as private as the rows."""
        self._say_once(
            "fit_transform returns one row for each private row: these rows are as private as the data themselves and "
            "carry no guarantee. Only the fitted model does."
        )
        return cast(Floats, self.fit(X, y, **fit_params).transform(X))

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)


def check_width(width: int, expected: int, kind: str, why: str = "") -> None:
    """Check the number of columns of rows that the caller may see.

    Raises:
        DataFormatError: for another number.
    """
    if width != expected:
        # scikit-learn's sentence, which its checks look for.
        raise DataFormatError(f"X has {width} features, but {kind} is expecting {expected} features as input{why}.")


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


#: Two ways to bound the rows of a plain matrix.
ONE_UNIT = "max_row_norm= alone, the length that a row may have, where all columns have one unit"
BY_RELEASE = "dpvb.private_range(column, ...), which finds a range for a part of the budget"


def unbounded(needed: str, got: str, *ways: str) -> ParameterError:
    """The refusal of a plain matrix whose numbers nobody bounds.

    Args:
        needed, got: names of parameters, in words.
        ways: the ways out.
    """
    ways_out = "; ".join(f"({number}) {way}" for number, way in enumerate(ways, start=1))
    return ParameterError(f"X needs a public bound on its numbers, {needed}, got {got}. Ways out: {ways_out}.")


def column_names(X: Records) -> tuple[str, ...] | None:
    """Column names of a data frame or an Arrow table; None for what has none, or others than texts."""
    table: Any = X
    names = list(table.columns) if has_columns(table) else []
    if is_arrow_table(X) and not all(isinstance(name, str) for name in names):  # Arrow's own has its cells there
        names = import_arrow().table(X).column_names
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters that JSON can hold; generators and data-like arguments are left out."""
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
    """Parameters as a model file holds them: the plain ones, and lists and mappings of plain values.

    A prior is not a part of a fitted model, and the words of a vocabulary are in its record.
    """
    saved = _plain(params)
    for name in params.keys() - {*saved, "prior", "vocabulary"}:
        with suppress(TypeError):
            saved[name] = _listed(params[name])
    return saved


def _listed(value: Any) -> Any:
    """A plain value as it is, and any sequence or mapping as a list or an object of JSON.

    Raises:
        TypeError: for anything else.
    """
    value = value.tolist() if hasattr(value, "tolist") else value
    if value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _listed(part) for name, part in value.items()}
    return [_listed(part) for part in value]


def _place(kind: type) -> dict[str, str]:
    """Where a class that does not come with this package is found again: two modules may use one name.

    Raises:
        ModelFileError: if it is not found.
    """
    if PrivateEstimator._registered.get(kind.__name__) is kind and kind.__module__.startswith("dpvb."):
        return {}
    return {"class": named(kind)}


def _only(what: str, where: str, declared: Iterable[Any]) -> str:
    """A sentence that names what is included of a column; all of it is public."""
    values = [*declared]
    few = ", ".join(map(pages.shortened, values[:_MOST_NAMED])) + (", ..." if len(values) > _MOST_NAMED else "")
    return f"Of {where} each {what} is included if it is one of {len(values)} that are declared: {few}. "


def named(kind: type) -> str:
    """The name of a class in a file.

    Raises:
        ModelFileError: if a reader could not find the class by it.
    """
    if not inspect.isclass(imported(place_of(kind))):
        raise ModelFileError(f"{place_of(kind)} must be a class at the top of a module: `load` could not find it.")
    return place_of(kind)


@says_what_lacks
def load(path: str | os.PathLike[str]) -> PrivateEstimator:
    """Read a model written by `save`; no code from the file is run and no data are needed.

    Args:
        path: the file.

    Raises:
        ModelFileError: if the file is missing, damaged, tampered with, or of another format.
    """
    stored = model_file.load(path)
    try:
        place = stored.facts.get("class")
        kind: Any = PrivateEstimator._registered.get(stored.kind) if place is None else imported(place)
        if not (inspect.isclass(kind) and issubclass(kind, PrivateEstimator)):
            raise ModelFileError(
                f"{os.fspath(path)}: holds a {place or stored.kind!r}, which this version does not know. If it is a "
                "class of your own, import its module first."
            )
        params = {name: _parameter(value) for name, value in stored.facts["params"].items()}
        if (name := misfit(kind, params)) is not None:
            raise ModelFileError(f"{os.fspath(path)}: tampered with: {name} is of another type than the parameter.")
        restored: PrivateEstimator = kind(**params)
        restored.privacy_ = PrivacyStatement.from_dict(stored.facts["privacy"])
        restored.n_iter_ = check_integer("steps", stored.facts["steps"], low=0)
        with np.errstate(all="ignore"):  # Checks find what overflows.
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
    except Exception:  # Classes of others may raise anything.
        estimator = None
    if estimator is None:
        raise ModelFileError(f"{os.fspath(path)}: its parts do not fit together; fit or save the model again.")
    return estimator


def _by_step(arrays: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    """The arrays of a file: those of the result, then those of the model after each of number - 1 steps."""
    parts: list[dict[str, Any]] = [{} for _ in range(number)]
    for name, array in arrays.items():
        place = re.fullmatch("step([1-9][0-9]{0,4})__(.+)", name)
        if place is not None and int(place[1]) < number:
            parts[int(place[1])][place[2]] = array
        else:
            parts[0][name] = array
    return parts


def _parameter(value: Any) -> Any:
    """A parameter of a file: lists are tuples, and the numbers that JSON lacks are texts."""
    if isinstance(value, list):
        return tuple(map(_parameter, value))
    return float(value) if value in ("inf", "-inf") else value
