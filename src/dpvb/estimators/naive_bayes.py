"""Private naive Bayes over tables of mixed columns, and over the words of documents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.base import ClassifierMixin

from dpvb.core.model import PosteriorOrMAP
from dpvb.core.plan import Plan
from dpvb.data import Source, as_source, check_vocabulary
from dpvb.data.documents.bag_of_words import check_words, labelled
from dpvb.data.documents.count_rows import concatenate
from dpvb.data.spelling import Categories
from dpvb.data.tables.columns import Binary, Categorical, check_categories
from dpvb.data.tables.matrices import column
from dpvb.data.tables.mixed import Layout, shown
from dpvb.data.tables.schema import Schema
from dpvb.data.tables.table import Table
from dpvb.estimators.base import Task, check_width, if_fitted
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.ranges import check_schema
from dpvb.estimators.tables import TableModel, clean_rows, columns_of, names_of, public_schema, sound_rows
from dpvb.guards.arrays import Floats
from dpvb.guards.errors import DataFormatError, ParameterError, check_choice, check_integer, check_number
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.components import MixedColumns
from dpvb.models.mixtures.naive_bayes import (
    Classes,
    NaiveBayesModel,
    numbers_in_bins,
    split_labels,
)
from dpvb.results import metrics, trees
from dpvb.results.expected_accuracy import ExpectedAccuracy, geometric_mean
from dpvb.results.trees import Label
from dpvb.rows import MixedRows

# Words of a class that a table of documents shows.
_WORDS = 20
# A probability is clear that is so many standard deviations.
_TOLD = 2.0
# Least rows of a class, those of its prior among them.
_LEAST_ROWS = 1e-9
# How far a mean may be beyond its range by rounding.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class FittedClasses:
    """Fitted quantities: tables of the classes, labels, and the schema of a table or the words of documents."""

    schema: Schema | None
    vocabulary: tuple[str, ...] | None
    classes: tuple[Label, ...]
    tables: Classes


@constructor_says_what_lacks
@dataclass(kw_only=True, eq=False, repr=False)
class NaiveBayes(ClassifierMixin, TableModel[NaiveBayesModel, Classes]):  # type: ignore[misc]
    """Fit naive Bayes to a table or to documents under (ε, δ)-differential privacy, with one release.

    Within a class, columns are independent. X is a private `dpvb.Table`, one of whose columns is the class; or X are
    documents and y their labels, with `vocabulary` and `classes`. Documents are texts, counts or a source of
    `dpvb.data`; the model uses only the presence of words. A row with any other label is ignored. Other parameters are
    those of `PrivateEstimator`.

    Args:
        response: Column of the classes of a table, categorical or binary. None (default): the target of the schema.
        numbers: Model of numeric columns: "bins" (default), a probability for each bin of public width, or "gaussian".
        bins: Number of bins of each number, at least 2. Default: 64.
        count_columns: Numeric columns from 0 with a Poisson distribution, as a list of names or a text with commas.
            Default: none.
        missing_columns: Numeric columns with missing values, in the same form. In other columns, a row without a number
            is invalid. Default: none.
        classes: Public labels of documents, as a list or a text with commas. None (default): declared by the schema of
            a table.
        vocabulary: Public words of documents, or names of columns of counts, or a word list of dpvb such as "english".
            Do not compute it from the documents. None (default): X is a table.
        clip_norm: Bound on the square root of the number of words of a document, in [0.01, 1e6]. The words of a longer
            document have less weight, in the fit and in predictions. Default: 4.
        lengths: Whether the number of words of a document depends on the class, as for images. Default: False, for
            texts.
        alpha: Strength of the priors of classes, categories and means, as a number of rows, greater than 0. None
            (default): 1, and 0.1 for words.
        estimate: "posterior" (default), for predictions averaged over the parameters, or "map", for point estimates.

    Attributes:
        classes_: Labels.
        class_prior_: Share of each class, (classes,).
        probabilities_: Probabilities of the values of each categorical column, or of the bins of each number, by name,
            (classes, values).
        means_, variances_: Means and variances of Gaussian numbers, in units of the columns, (classes, numbers).
        rates_: Means of the counts, (classes, counts).
        word_probabilities_: Probability that a document contains a word, (classes, words).
        schema_, vocabulary_, privacy_, n_features_in_: Schema or words, privacy statement, and number of columns.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> words = ["fever", "cough", "fracture"]
        >>> notes = ["fever cough", "fracture"] * 2000
        >>> model = dpvb.NaiveBayes(vocabulary=words, classes=["flu", "injury"], epsilon=1.0, delta=1e-6)
        >>> model.fit(notes, ["flu", "injury"] * 2000).predict(["cough"]).tolist()
        ['flu']
    """

    response: str | None = None
    numbers: Literal["bins", "gaussian"] = "bins"
    bins: int = tuned.BINS
    classes: Sequence[Any] | str | None = None
    vocabulary: Sequence[str] | str | None = None
    clip_norm: float = tuned.WORDS
    lengths: bool = False
    alpha: float | None = None
    estimate: PosteriorOrMAP = "posterior"

    _record_class: ClassVar[type] = FittedClasses
    _reads: ClassVar[str | None] = "labelled"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse", "string")
    _command: ClassVar[str | None] = "naive-bayes"
    _called: ClassVar[str] = "naive Bayes"
    _groups_are: ClassVar[str] = "classes"

    def _task(self, X: Records, y: Responses = None, *, group: Iterable[object] | None = None) -> Task[NaiveBayesModel]:
        """Return the task of a fit to private rows.

        Args:
            X: Table or documents.
            y: Private labels of documents.
            group: Private person ID of each row.
        """
        if isinstance(X, Table):
            return self._of_table(X, y, group)
        classes = self._class_labels()
        for name in ("response", "count_columns", "missing_columns"):
            if getattr(self, name):
                raise ParameterError(f"{name} must be left out with documents, got {getattr(self, name)!r}.")
        if y is None:
            raise ParameterError("y must be given with documents: the label of each.")
        source = as_source(X, vocabulary=self.vocabulary)
        terms = check_vocabulary(source.vocabulary if self.vocabulary is None else self.vocabulary, width=source.width)
        held, model = labelled(source, y, classes, group), self._model(len(classes), None, len(terms))
        public = {
            "classes": f"the {len(classes)} classes",
            "vocabulary": f"the vocabulary, {len(terms)} terms",
            "parameters": f"the root of a document's number of words at most {model.clip_norm:g}, the plan and all "
            "other parameters",
        }
        notes = {"steps": 1, "schema": None, "vocabulary": terms, "classes": classes}
        return self._planned_task(model, held, model.schedule, public, notes)

    def _of_table(self, table: Table, y: Responses, group: Iterable[object] | None) -> Task[NaiveBayesModel]:
        if y is not None or self.classes is not None or self.vocabulary is not None:
            raise ParameterError(
                "y, classes and vocabulary must be None with a table: its schema declares the column of classes."
            )
        layout, answer = self._layouts(table.schema)
        model = self._model(len(answer.labels), layout, 0)
        public = {
            "schema": public_schema(layout),
            "classes": f"the {model.n_classes} classes",
            "parameters": "the plan and all other parameters",
        }
        notes = {"steps": 1, "schema": table.schema, "vocabulary": None, "classes": answer.labels}
        return self._planned_task(model, table.mixed(_with(layout, answer), group=group), model.schedule, public, notes)

    def _learned(self, task: Task[NaiveBayesModel], q: Classes) -> FittedClasses:
        notes = task.notes
        words = None if notes["vocabulary"] is None else tuple(notes["vocabulary"])
        # A file keeps rows together, and sums of a row's scores depend on it to the last bit.
        q = replace(q, word_kw=np.ascontiguousarray(q.word_kw), word_noise_kw=np.ascontiguousarray(q.word_noise_kw))
        return FittedClasses(notes["schema"], words, tuple(notes["classes"]), q)

    def _expected_accuracy(self, task: Task[NaiveBayesModel], plan: Plan, n: float) -> ExpectedAccuracy:
        model, share = task.model, 1 / task.model.n_classes
        cells, words, count = ((plan.noise_stds(name) or [0.0])[0] for name in ("categories", "words", "count"))
        share_std = math.sqrt(share * (1 - share) / n + (1 - share) * (count / n) ** 2)
        probability_j, std_j, plain_j = model.foreseen(n * share, cells, words)
        return ExpectedAccuracy(
            "standard deviation of a probability within a class",
            geometric_mean(std_j),
            geometric_mean(std_j * probability_j / plain_j) / _TOLD,  # Bins that are brought together tell less.
            details=(("standard deviation of a class's share", share_std),),
        )

    def _quality(self, rows: Any) -> Floats:
        """Return the log-probability of each row's own label."""
        model = self._fitted_model
        with np.errstate(all="ignore"):
            if model.num_words:
                r_nk = split_labels(rows, model.num_words, model.n_classes)[0]
                code_n, sound_n = r_nk.argmax(axis=1), np.where(r_nk.any(axis=1), 1.0, np.nan)
            else:
                code_n, sound_n = rows.code_nj[:, 0], rows.sound_n
            return np.asarray(_log_proba(model, self._q, rows)[np.arange(len(code_n)), code_n] * sound_n)

    def _quality_range(self, model: NaiveBayesModel) -> tuple[float, float]:
        """Return limits of the score: four times that of a uniform guess, and 0."""
        return -4.0 * math.log(model.n_classes), 0.0

    def lower_bound(self) -> float:
        """Return the log evidence of labels and categories at the released counts, in nats; numbers by their bins.

        Nothing is latent, so that the variational lower bound is attained. It costs no privacy. With epsilon=inf it is
        log p(rows). With noise it is the same function of the released, denoised counts: an estimate, and not a bound.

        Raises:
            ParameterError: with numbers="gaussian", and for counts and documents.

        Examples:
            >>> import dpvb, math
            >>> from dpvb.data import Categorical, Schema, Table
            >>> schema = Schema((Categorical("smokes", ("no", "yes")), Categorical("sex", ("f", "m"))))
            >>> rows = Table({"smokes": ["no", "yes", "yes"], "sex": ["f", "m", "m"]}, schema)
            >>> model = dpvb.NaiveBayes(response="sex", epsilon=math.inf, delta=1e-6).fit(rows)
            >>> round(math.exp(-model.lower_bound()))
            480
        """
        self._check_fitted()
        return float(self._fitted_model.lower_bound(self._q))

    def predict_log_proba(self, X: Records) -> Floats:
        """Return log-probabilities of the classes for each row, (rows, classes). They are as private as X.

        The probabilities include the privacy noise.

        Args:
            X: Table, columns of a table by name, or documents in a form of `fit`.

        Raises:
            DataFormatError: If rows have other columns, or are invalid under the schema.
        """
        self._check_fitted()
        return _log_proba(self._fitted_model, self._q, self._visible(X))

    def predict_proba(self, X: Records) -> Floats:
        """Return probabilities of the classes for each row, (rows, classes); see `predict_log_proba`."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Records) -> NDArray[Any]:
        """Return the most probable class of each row, (rows,). It is as private as X."""
        return np.asarray(self.classes_[self.predict_log_proba(X).argmax(axis=1)])

    @if_fitted
    def score(self, X: Records, y: Responses = None, *, public: bool = False) -> float:
        """Return the accuracy on public rows.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self.evaluate(X, y, public=public)["accuracy"]

    def evaluate(self, X: Records, y: Responses = None, *, public: bool = False) -> dict[str, float]:
        """Return log-likelihood per row and accuracy on public rows, and AUC and calibration error for two classes.

        Args:
            X: Public rows, as in `fit`.
            y: Labels of documents, or of a table. None (default): the column of classes of the table.
            public: True states that the rows are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            DataFormatError: If a row has no label, or an undeclared one.
        """
        self._check_fitted()
        self._check_public(public)
        log_nk = self.predict_log_proba(X)
        code_n = self._codes(X, y, len(log_nk))
        own_n = log_nk[np.arange(len(code_n)), code_n]
        measures = {
            "log_likelihood": float(own_n.mean()) if len(own_n) else 0.0,
            "accuracy": float(np.mean(log_nk.argmax(axis=1) == code_n)) if len(own_n) else 1.0,
        }
        if len(self.classes_) == 2:
            y_n, p_n = code_n.astype(np.float64), np.exp(log_nk[:, 1])
            measures |= {"auc": metrics.auc(y_n, p_n), "calibration_error": metrics.calibration_error(y_n, p_n)}
        return measures

    def sample(self, n: int = 1, rng: Any = None) -> Any:
        """Draw n synthetic rows: columns by name, including the class, in the types of the schema.

        Args:
            n: Public number of rows.
            rng: Seed of the public draws: an integer, a NumPy generator or None (default).

        Raises:
            ParameterError: For a model of documents, whose words do not form texts.
        """
        number, draw = self._to_draw(n, rng)
        if self.schema_ is None:
            raise ParameterError("sample must be asked of a model of a table: words without order make no texts.")
        model, q, layout = self._fitted_model, self._q, self._layout
        k_n = draw.choice(len(self.classes_), size=number, p=self.class_prior_)
        code_nj = categorical.drawn_codes(categorical.normalised(q.expected_kv, model.sizes), k_n, model.sizes, draw)
        if model.num_bins:
            start = len(layout.choices)
            x_nd = numbers_in_bins(code_nj[:, start:], model.num_bins, draw)
            lacks_nj = np.isnan(x_nd[:, list(layout.gap_places)]).astype(np.int64)
            code_nj = np.hstack([code_nj[:, :start], lacks_nj])
        else:
            deviation_nd = np.sqrt(q.numbers.variance_kd[k_n])
            x_nd = q.numbers.mean_kd[k_n] + deviation_nd * draw.standard_normal((number, len(layout.numbers)))
        count_np = np.minimum(draw.poisson(q.rates.mean_kp[k_n]), model.columns.most_p)
        whole_n = np.ones(number)
        rows = MixedRows(np.clip(x_nd, -1, 1), count_np, np.column_stack([k_n, code_nj]), whole_n, whole_n < 0)
        return _with(layout, self._answer).cells(rows)

    def _estimates(self, *, noise_aware: bool) -> Iterator[tuple[str, str, float, float, tuple[float, float]]]:
        for k, label in enumerate(map(str, self.classes_.tolist())):
            for numbers in self._numbers_of(k, float(noise_aware)):
                yield label, *numbers

    def _numbers_of(self, k: int, aware: float) -> Iterable[tuple[str, float, float, tuple[float, float]]]:
        """Yield name, mean, standard deviation and range of each number of a class."""
        q, model, unit = self._q, self._fitted_model, (0.0, 1.0)
        total, share = float(q.number_k.sum()), float(self.class_prior_[k])
        variance = share * (1 - share) / (total + 1)
        noise = (q.number_std / total) ** 2 * ((1 - share) ** 2 + (len(q.number_k) - 1) * share**2)
        yield "share", share, math.sqrt(variance + aware * noise), unit
        if self.schema_ is None:
            words = self.vocabulary_ or ()
            p_w, number = self.word_probabilities_[k], float(q.number_k[k]) + model.prior
            std_w = np.sqrt(p_w * (1 - p_w) / (number + 1) + aware * q.word_noise_kw[k])
            others_w = (self.class_prior_ @ self.word_probabilities_ - share * p_w) / max(1 - share, 1e-12)
            telling_w = p_w * np.log(p_w / np.maximum(others_w, 1e-12))
            for w in np.argsort(-telling_w, kind="stable")[:_WORDS].tolist():
                yield words[w], float(p_w[w]), float(std_w[w]), unit
            return
        half_d = self._layout.scale[1]
        for d, feature in enumerate(self._layout.numbers if not model.num_bins else ()):
            spread = math.sqrt(q.numbers.error_kd[k, d] - (1 - aware) * q.numbers.noise_kd[k, d])
            yield feature.name, float(self.means_[k, d]), half_d[d] * spread, (-math.inf, math.inf)
        for p, feature in enumerate(self._layout.counts):
            spread = math.sqrt(q.rates.error_kp[k, p] - (1 - aware) * q.rates.noise_kp[k, p])
            yield feature.name, float(self.rates_[k, p]), spread, (0.0, math.inf)
        total_v = categorical.totals(q.expected_kv, model.sizes)[k]
        for (name, labels), places in zip(self._labels.items(), categorical.starts(model.sizes), strict=True):
            for label, p_v, total, noise in zip(
                labels, self.probabilities_[name][k], total_v[places], q.cell_noise_kv[k, places], strict=True
            ):
                std = math.sqrt(p_v * (1 - p_v) / (total + 1) + aware * min(noise, 0.25))
                yield f"{name}={'<missing>' if label is None else label}", float(p_v), std, unit

    def _class_labels(self) -> tuple[Any, ...]:
        """Return the declared labels of documents.

        Raises:
            ParameterError: If labels or words are not declared.
        """
        if self.classes is None:
            raise ParameterError(
                "X must be a dpvb.Table, one of whose columns is the class; or documents, with vocabulary= and "
                "classes=, the labels that there are, fixed without looking at the documents."
            )
        labels = names_of("classes", self.classes) if isinstance(self.classes, str) else self.classes
        classes = check_categories("y", "classes", labels)
        if len(classes) < 2:
            raise ParameterError(f"classes must be two labels at least, got {list(classes)!r}.")
        return classes

    def _layouts(self, schema: Schema) -> tuple[Layout, Binary | Categorical]:
        """Models of the other columns, and the column of classes.

        Raises:
            ParameterError: where there is none.
        """
        name, target = self.response, schema.target
        if name is None and target is None:
            raise ParameterError("response must name the column of classes where the schema has no target.")
        whole = self._whole_layout(schema)
        answer = next(
            (choice for choice in whole.choices if choice.name == (name or getattr(target, "name", ""))), None
        )
        if answer is None or answer.width + isinstance(answer, Binary) < 2:
            raise ParameterError(
                f"response must name a column of two classes or more, categorical or binary, got {name!r}; such are "
                f"{', '.join(choice.name for choice in whole.choices) or 'none'}."
            )
        if isinstance(answer, Categorical):  # A row that is not in a class is ignored.
            answer = replace(answer, other=False, missing=False)
        else:
            answer = replace(answer, missing=None)
        if len(whole.order) == 1:
            raise ParameterError("The schema must have a column in addition to that of the classes.")
        others = tuple(choice for choice in whole.choices if choice.name != answer.name)
        return replace(whole, choices=others, order=tuple(one for one in whole.order if one != answer.name)), answer

    def _model(self, number: int, layout: Layout | None, width: int) -> NaiveBayesModel:
        """The model that the parameters name."""
        check_choice("numbers", self.numbers, ("bins", "gaussian"))
        if not isinstance(self.lengths, (bool, np.bool_)):
            raise ParameterError(f"lengths must be True or False, got {self.lengths!r}.")
        columns = MixedColumns() if layout is None else columns_of(layout)
        if layout is not None and self.numbers == "gaussian":
            layout.check_squares()
        number_of_bins = check_integer("bins", self.bins, low=2, high=10**4) if self.numbers == "bins" else 0
        prior = (tuned.WORD_ALPHA if width else tuned.ALPHA) if self.alpha is None else self.alpha
        return NaiveBayesModel(
            number, columns, number_of_bins, width, self.clip_norm, bool(self.lengths), prior, self.estimate
        )

    def _visible(self, X: Records) -> Any:
        """Rows that the caller may see, as the model reads them."""
        if self.schema_ is None:
            source = as_source(X, vocabulary=None if isinstance(X, Source) else self.vocabulary_)
            check_width(source.width, self.n_features_in_, "NaiveBayes", ": the width of its vocabulary")
            check_words(source, self.vocabulary_)
            if source.unit == "person":
                raise DataFormatError("X must not be grouped by person: its rows would be answered in another order.")
            return concatenate((chunk.rows for chunk in source.chunks()), source.width)
        layout = self._layout
        ours = _without(self.schema_, self._answer.name)
        table = X if isinstance(X, Table) else Table(X, ours)
        check_schema(_without(table.schema, self._answer.name), ours)
        return sound_rows(table, layout)

    def _codes(self, X: Records, y: Responses, number: int) -> NDArray[np.int64]:
        """The place of each row's label.

        Raises:
            DataFormatError: for rows without one, or with an undeclared one.
        """
        if y is None and self.schema_ is not None:
            table = X if isinstance(X, Table) else Table(X, self.schema_)
            rows = clean_rows(table, _with(self._layout, self._answer))
            code_n = np.where(np.isnan(rows.sound_n), -1, rows.code_nj[:, 0])
        elif y is None:
            raise DataFormatError("requires y to be passed, but the target y is None: the label of each document.")
        else:
            code_n = Categories(self.classes_.tolist()).places(column("y", y, number), other=-1, missing=-1)
        if (code_n < 0).any():
            raise DataFormatError(f"y has labels that are none of the classes {', '.join(map(str, self.classes_))}.")
        return np.asarray(code_n)

    def _model_of(self, record: FittedClasses) -> NaiveBayesModel:
        """Return the model of what was learned."""
        layout = None if record.schema is None else self._layouts(record.schema)[0]
        return self._model(len(record.classes), layout, len(record.vocabulary or ()))

    def _check(self, record: FittedClasses) -> None:
        check_categories("y", "classes", record.classes)
        if record.vocabulary is not None:
            self.vocabulary = self.vocabulary or check_vocabulary(record.vocabulary)
        model, q = self._model_of(record), record.tables
        d, p, v = model.gaussians, len(model.columns.max_counts), sum(model.sizes)
        trees.check_lengths(q, k=len(record.classes), d=d, p=p, v=v, w=model.num_words)
        check_number("number_std", q.number_std, low=0, high=1e100)
        most_p, least_k, rate_kp = model.columns.most_p, q.number_k / _LEAST_ROWS, q.rates.mean_kp
        least_kp = rate_kp / (tuned.LEAST_RATE * np.minimum(most_p, 1.0))
        over = max(part.max(initial=0.0) for part in (np.abs(q.numbers.mean_kd), rate_kp / most_p))
        if min(least_k.min(), least_kp.min(initial=1.0)) < 1 - _ROUNDING or over > 1 + _ROUNDING:
            raise ValueError("numbers beyond their ranges")

    def _show(self, record: FittedClasses) -> None:
        """Show the classes in the columns' units."""
        model, q, schema, terms = self._model_of(record), record.tables, record.schema, record.vocabulary
        self._fitted_model, self._q, self.schema_, self.vocabulary_ = model, q, schema, terms
        self.classes_ = np.asarray(record.classes)
        self.class_prior_ = q.number_k / q.number_k.sum()
        self.word_probabilities_ = q.word_kw
        if schema is None:
            self.n_features_in_ = len(terms or ())
            return
        self._layout, self._answer = self._layouts(schema)
        self.n_features_in_ = len(self._layout.order)
        middle_d, half_d = self._layout.scale
        if not model.num_bins:
            self.means_, self.variances_ = middle_d + half_d * q.numbers.mean_kd, half_d**2 * q.numbers.variance_kd
        self.rates_ = q.rates.mean_kp
        self._labels = {one.name: one.labels for one in self._layout.choices}
        if model.num_bins:
            for feature, middle, half in zip(self._layout.numbers, middle_d, half_d, strict=True):
                edges = shown(feature, middle + half * np.linspace(-1, 1, model.num_bins + 1))
                ends = [f"{low} to {high}" for low, high in pairwise(edges)]
                self._labels[feature.name] = [*ends, *["missing"] * (feature.name in self._layout.gaps)]
        else:
            self._labels |= {f"{name} missing": ["no", "yes"] for name in self._layout.gaps}
        probability_kv = categorical.normalised(q.expected_kv, model.sizes)
        starts = zip(self._labels, categorical.starts(model.sizes), strict=True)
        self.probabilities_ = {name: probability_kv[:, feature] for name, feature in starts}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True
        return tags


def _log_proba(model: NaiveBayesModel, q: Classes, rows: Any) -> Floats:
    """Return log-probabilities of the classes of rows, each computed from only its own numbers."""
    log_nk = model.log_joint(q, rows)
    return np.asarray(log_nk - logsumexp(log_nk, axis=1, keepdims=True))


def _with(layout: Layout, answer: Binary | Categorical) -> Layout:
    """Return a layout whose first categorical column is the class."""
    return replace(layout, choices=(answer, *layout.choices), order=(*layout.order, answer.name))


def _without(schema: Schema, name: str) -> Schema:
    """Return a schema without the column of classes."""
    columns = tuple(one for one in schema.columns if name not in (one.name, *_factors(one)))
    target = None if schema.target is None or schema.target.name == name else schema.target
    return replace(schema, columns=columns, target=target, group=None)


def _factors(term: Any) -> tuple[str, ...]:
    """Return the columns of an interaction."""
    return (term.first, term.second) if hasattr(term, "first") else ()
