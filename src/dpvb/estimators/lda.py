"""Private topic models for scikit-learn."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from scipy import sparse
from scipy.special import ndtr

from dpvb.core import loop
from dpvb.core.journal import Journal
from dpvb.core.model import ESTIMATES, SHARES, PosteriorOrMAP, Schedule, StepSize, robbins_monro
from dpvb.core.names import Threshold
from dpvb.core.plan import Plan
from dpvb.core.source import LARGEST_BATCH
from dpvb.core.wall import Wall
from dpvb.data import BagOfWords, Source, as_source, check_vocabulary
from dpvb.data.documents import word_lists
from dpvb.data.documents.bag_of_words import Stream, Texts, check_words
from dpvb.data.documents.vocabulary import TOKEN_PATTERN
from dpvb.data.persons import newcomers
from dpvb.estimators import private_words
from dpvb.estimators.base import (
    Fitted,
    PrivateEstimator,
    Task,
    TransformingEstimator,
    check_width,
    column_names,
    generator,
    if_fitted,
)
from dpvb.estimators.input_types import Records, Responses
from dpvb.estimators.prior_fits import opened, told
from dpvb.guards.arrays import Bools, Floats
from dpvb.guards.domains import NONNEGATIVE, SIMPLEX, Nonnegative, Positives
from dpvb.guards.errors import (
    DataFormatError,
    ParameterError,
    check_choice,
    check_integer,
    check_number,
    check_path,
    reason_of,
)
from dpvb.guards.missing_arguments import constructor_says_what_lacks
from dpvb.models.topics.lda import WEIGHT_POWER, EarlierTopics, LDAModel, LengthRule, Topics
from dpvb.models.topics.prior import TopicPrior, WordList
from dpvb.results import metrics, trees
from dpvb.results.expected_accuracy import ExpectedAccuracy
from dpvb.results.figures import Bars, Figure
from dpvb.runs.journal import RunJournal
from dpvb.runs.run import Run

#: Fields of q in a file in addition to the topics.
# Signal of a prior's topics, by a plan of few steps, below which only word totals are released.
_NOTHING = 4.0
# Signal from which a plan of many steps is made.
_MUCH = 8.0
# Number of few steps.
_FEW = 3
# Number of many steps.
_MANY = 8
# Share of the budget for word totals in a plan of few steps.
_FEW_SHARE = 0.6
# Share of the budget for word totals in a plan of many steps.
_MANY_SHARE = 0.3
#: Words of a topic that a report shows.
_WORDS_OF_A_REPORT = 12
# Share of the budget for word totals, and the share from a clear signal of each topic on, where topics need more of it.
# Benchmark `topics_or_words` shows the effect of the first, and `wikipedia` of the second.
_WORDS_SHARE, _CLEAR_SHARE, _CLEAR = 0.4, 0.1, 100.0
# Signal of one topic of all documents, below which "auto" is one topic, and signal of each of the topics else.
_LEAST_SIGNAL, _SIGNAL_OF_TOPIC = 100.0, 30.0
# Steps from which on topics are compared with one topic midway. Fewer have not found topics by then.
_LEAST_STEPS = 18


@dataclass(frozen=True)
class FittedTopics:
    """Result of a fit, with the names of `Topics`.

    Attributes:
        vocabulary: words of the columns, where there are some.
        means, iterates: as in `LDAModel`: what was released.
        above_noise_k: which topics are distinguishable from noise, if this was computed.
        word_list: the list of words that the word totals agree with; None: there is none.
    """

    vocabulary: tuple[str, ...] | None
    means: bool
    iterates: bool
    above_noise_k: Bools | None
    word_list: str | None
    lambda_vk: Positives
    background_v: Annotated[Floats | None, SIMPLEX]
    word_weight_v: Positives
    alpha_k: Positives
    words_v: Floats | None
    words_std: Nonnegative
    sum_vk: Floats | None
    sum_std_v: Annotated[Floats | None, NONNEGATIVE]
    num_units: float
    is_one: bool
    gain: float
    gain_std: Nonnegative


# Fields of `Topics` that its other ones follow from.
_TOPICS = tuple(name for name in FittedTopics.__annotations__ if name in Topics.__annotations__)


@constructor_says_what_lacks
@dataclass(eq=False, repr=False)
class LDA(TransformingEstimator[LDAModel, Topics]):
    """Fit latent Dirichlet allocation (topics of documents) under (ε, δ)-differential privacy.

    X has private documents: counts as a CSR or dense matrix, texts with a vocabulary, or a source of `dpvb.data`. A
    text is a string, or a list of words. Other parameters are those of `PrivateEstimator`.

    Args:
        n_components: Number of topics K, at least 1, or "auto" for the number that should predict best by public
            facts, which needs `n_units`. 1: word frequencies, in one release, whatever `n_steps` is. With 18 steps or
            more, a share of the budget compares the topics with one topic after 2/5 of the steps. If the topics do not
            predict better, the model becomes one topic. Default: 10.
        clip_scale: Bound on the statistic of a document, as a share in (0, 1] of document_length^count_power. Smaller
            values give less noise, and less weight to each document. None (default): planned from epsilon.
        vocabulary: Public words in column order, required for texts: a list, a word list of dpvb ("english", "french",
            "german", "spanish"; "english:2000" for its 2,000 most frequent words; all but English need
            token_pattern="unicode"), or "private", to select the words of texts that enough units use with part of the
            budget. Do not compute it from the documents. None (default): names of columns of a DataFrame of counts.
        vocabulary_share: Share of the budget, in (0, 1), for selecting words with vocabulary="private". Default: 0.2.
        vocabulary_delta: Part of δ that bounds the probability of releasing a word that a single unit uses, less than
            `delta`. None (default): 0.05·delta.
        stop_words: Public words that vocabulary="private" does not select: a list, a file with one word per line, or
            "english", "french", "german" or "spanish". None (default): none.
        public_vocabulary: Whether columns of counts without names were chosen without looking at the documents.
            Default: False, which refuses such counts.
        token_pattern: Pattern of a word in lower-case text: "english" (default), "unicode" (letters of any script),
            "cjk-characters", or a regular expression.
        document_length: Number of words to which a longer document is normalised, greater than 0. Default: 500.
        length_rule: Normalisation of documents to `document_length`: "truncate" (default) scales down only longer
            documents, "rescale" scales all, "resample" draws words of the document.
        count_power: Power of the counts in the released statistic, in (0, 1]; 1 releases plain counts. Default: 0.5.
        release_word_totals: Whether totals of words are released first; they initialise the topics and weight the
            words.
            Default: True.
        word_weight_power: Words have the weight probability^-word_weight_power, in [0, 1], so that frequent words do
            not dominate the norm of a document. More than 0 needs `release_word_totals`. None (default): 1/4 if the
            released number of documents makes topics detectable, otherwise 0; with vocabulary="private", if `n_units`
            does.
        statistic_weight: Number of words that 1 of the released statistic stands for, greater than 0. Default: 10.
        doc_topic_prior: Concentration α of the Dirichlet prior of the topics of a document, greater than 0. None
            (default): planned from public facts.
        topic_word_prior: Concentration η of the Dirichlet prior of the words of a topic, greater than 0. None
            (default): planned from public facts.
        prior: Prior topics of the same words: a fitted `dpvb.LDA`, or the path of its file; or word frequencies: a
            mapping, a file with a word and a number per line, or a word list of dpvb such as "english". With prior
            topics, `n_components` is theirs or "auto", `word_weight_power` has no effect, and n_steps=0 releases only
            totals of words. None (default): none.
        public_prior: Whether the documents behind `prior` were public, or of people who are not in these data. Default:
            False: the statement adds up both budgets.
        previous: Fit of an earlier period with the same prior. Its sums, which include those of the periods before, are
            combined with those of this fit. `exclude_groups=` of `fit` excludes persons of earlier periods. None
            (default): none.
        estimate: "posterior" (default, variational Bayes), or "map" (MAP estimate): documents are compared with the
            mode of each topic's Dirichlet if `topic_word_prior` is at least 1, otherwise with its mean.
        learning_offset, learning_decay: Offset τ0 and decay κ of the step sizes ρ_t = (τ0 + t)^-κ. Default: 1 and 0.6.
        tol: Local iterations of a document stop when the mean change is below this number, greater than 0. Default:
            0.001.
        max_iter: Largest number of local iterations of a document, at least 1. Default: 15.
        fixed_iterations: Whether every document has exactly `max_iter` local iterations. Default: False.

    Attributes:
        components_: Topics as Dirichlet parameters λ, (K, V).
        privacy_: Privacy statement of the fit.
        n_iter_: Number of steps.
        vocabulary_, n_features_in_: Public words, and their number.
        above_noise_: Which topics differ more from the background than only noise explains, (K,);
            `topics_above_noise_` is their number. Both are computed on first access, from released numbers only.
        gain_, gain_std_: Released gain of the topics over one topic, in nats per word, after 2/5 of the steps, and the
            standard deviation of its noise. None if topics were not compared.
        word_list_: Word list around whose frequencies the word totals were estimated; None: no list fits them.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> counts = np.random.default_rng(0).poisson(1.0, (2000, 12))
        >>> model = dpvb.LDA(2, public_vocabulary=True, n_steps=3, epsilon=1.0, delta=1e-6, random_state=0).fit(counts)
        >>> model.components_.shape, model.transform(counts[:3]).shape
        ((2, 12), (3, 2))
    """

    n_components: int | Literal["auto"] = 10
    _: KW_ONLY
    clip_scale: float | None = None
    vocabulary: Sequence[str] | str | None = None
    vocabulary_share: float = private_words.SHARE
    vocabulary_delta: float | None = None
    stop_words: Sequence[str] | str | None = None
    public_vocabulary: bool = False
    token_pattern: str = TOKEN_PATTERN
    document_length: float = 500.0
    length_rule: LengthRule = "truncate"
    count_power: float = 0.5
    release_word_totals: bool = True
    word_weight_power: float | None = None
    statistic_weight: float = 10.0
    doc_topic_prior: float | None = None
    topic_word_prior: float | None = None
    prior: PrivateEstimator | Fitted | Mapping[str, float] | Path | str | None = None
    public_prior: bool = False
    previous: PrivateEstimator | Fitted | Path | str | None = None
    estimate: PosteriorOrMAP = "posterior"
    learning_offset: float = 1.0
    learning_decay: float = 0.6
    tol: float = 1e-3
    max_iter: int = 15
    fixed_iterations: bool = False

    _declares: ClassVar[tuple[str, ...]] = ("vocabulary", "width")
    _record_class: ClassVar[type] = FittedTopics
    _reads: ClassVar[str | None] = "documents"
    _command: ClassVar[str | None] = "lda"
    _size_parameter: ClassVar[str | None] = "n_components"
    _input_forms: ClassVar[tuple[str, ...]] = ("sparse", "string")
    _spelled: ClassVar[Mapping[str, str]] = {**PrivateEstimator._spelled, "n_components": "topics"}

    def _task(
        self,
        X: Records,
        y: Responses = None,
        *,
        group: Iterable[object] | None = None,
        exclude_groups: Iterable[object] | None = None,
        public: bool = False,
    ) -> Task[LDAModel]:
        """Return the task of a fit to private documents; y is ignored.

        Args:
            X: Documents, as in `fit`.
            group: Private person ID of each document.
            exclude_groups: Private person IDs of earlier fits, whose documents are ignored without a message. Needs
                `group`. None (default): none.
            public: Whether the documents are public: the fit has no noise, its statement claims no privacy, and it can
                be the prior of private fits. Default: False.

        Raises:
            ParameterError: If parameters do not fit together; a fit to public documents has no budget and no ledger.
        """
        prior, previous = self._known(self.prior, public=self.public_prior), self._known(self.previous)
        if type(public) is not bool:
            raise ParameterError(f"public must be True or False, got {public!r}.")
        if public:
            self._check_public_fit(prior, previous)
        if exclude_groups is not None:
            if group is None:
                raise ParameterError(
                    "group must name the person of each document if exclude_groups is given. For files, pass both to "
                    "dpvb.data.open_documents."
                )
            group = newcomers(group, exclude_groups)
        if self._opens and public:
            raise ParameterError("vocabulary must be a list with public=: public documents hide no words.")
        if self._opens:
            return self._open_task(X, group)
        for name in ("vocabulary_delta", "stop_words"):
            if getattr(self, name) is not None:
                raise ParameterError(f"{name} must be None unless vocabulary='private': a public list is as it is.")
        if isinstance(X, Texts):
            raise ParameterError(
                "vocabulary must be 'private' for documents that were opened so, or open them with it."
            )
        names = column_names(X)
        named = names if prior is None or names is not None else prior.vocabulary()
        words = named if self.vocabulary is None else self.vocabulary
        source = as_source(X, vocabulary=words, token_pattern=self.token_pattern, group=group)
        self._check_sizes(source.width)
        if source.vocabulary is None and not self.public_vocabulary:
            raise ParameterError(
                "public_vocabulary must be True, or vocabulary given, for counts whose terms have no names. The "
                "columns of CountVectorizer().fit_transform(private_texts) are the words of the texts, and "
                "a model shows them. CountVectorizer(vocabulary=words).transform(private_texts) has columns that "
                "were fixed without looking: name them with vocabulary=words, or say public_vocabulary=True."
            )
        notes = {"width": source.width, "vocabulary": source.vocabulary, "names": names, "published": public}
        return self._task_of(source, prior, previous, notes)

    def _check_sizes(self, width: int) -> None:
        """Refuse a number of topics and other parameters of the model that are outside their ranges."""
        number_of_topics = 1 if self.n_components == "auto" else self.n_components
        hint = "Or 'auto', with n_units= or prior=."
        self._model(width, check_integer("n_components", number_of_topics, low=1, hint=hint))

    def _task_of(
        self, source: Any, prior: KnownTopics | None, previous: KnownTopics | None, notes: Mapping[str, Any]
    ) -> Task[LDAModel]:
        """Return the task of a fit to documents whose columns are public."""
        if prior is not None and prior.model is not None:
            model, schedule = self._around(source, prior.topics(source.vocabulary, source.width))
        elif self.previous is not None:
            raise ParameterError("prior must be a model where previous= is given: both months are read around it.")
        else:
            lists = private_words.lists_of(source.vocabulary) if prior is None else prior.lists(source.vocabulary)
            model, schedule = self._by_signal(source, lists)
        listed = " without names" if source.vocabulary is None else word_lists.told(source.vocabulary)
        start = "" if prior is None else f"; {prior.told(self)}"
        if prior is None and model.lists:
            names = ", ".join(one.name for one in model.lists)
            start = f"; word frequencies of {names} ({word_lists.SOURCE}), if the released word totals agree with them"
        start += "" if previous is None else f"; sums of {previous.told(self)}"
        facts = {"vocabulary": f"the vocabulary, {source.width} terms{listed}", **self._public(model, start)}
        return self._planned_task(model, source, schedule, facts, notes)

    def _check_public_fit(self, *priors: KnownTopics | None) -> None:
        """Raise ParameterError unless nothing private enters a fit to public documents, and nothing counts it."""
        said = "with public=: public documents need no noise, and spend nothing."
        if self.epsilon != math.inf:
            raise ParameterError(f"epsilon must be inf {said}")
        for name, value in (("ledger", Run.current().ledger), ("noise_multiplier", self.noise_multiplier)):
            if value is not None:
                raise ParameterError(f"{name} must be left out {said}")
        if not all(one is None or one.public for one in priors):
            raise ParameterError(
                "prior and previous must be public with public=, got a release of private documents: others would take "
                "the fit for public, and so what it knows of them. Give the release to the private fit as its prior."
            )

    @property
    def _opens(self) -> bool:
        return private_words.is_private(self.vocabulary)

    def _open_task(self, X: Records, group: Iterable[object] | None) -> Task[LDAModel]:
        """Return the task of a fit to texts whose words its first release selects."""
        for name, usual in (
            ("prior", None),
            ("previous", None),
            ("public_vocabulary", False),
            ("release_word_totals", True),
        ):
            if getattr(self, name) is not usual:
                raise ParameterError(
                    f"{name} must be {usual} where vocabulary='private', got {getattr(self, name)!r}: the words are "
                    "not known before they are found. Give a public list for it."
                )
        share = check_number("vocabulary_share", self.vocabulary_share, low=0, high=1, closed="neither")
        source = private_words.texts(X, token_pattern=self.token_pattern, group=group)
        stop, said = private_words.stop_words(self.stop_words)
        source = source.without(stop)
        stand_in = SimpleNamespace(width=private_words.STAND_IN, unit=source.unit)
        model, schedule = self._by_signal(stand_in, (), share=share)
        pattern = f"token pattern {self.token_pattern!r}, stop words {said}"
        public = {"stop_words": f"what a word is: {pattern}", **self._public(model)}
        notes = {"width": None, "vocabulary": None, "names": None}
        task = self._planned_task(model, source, schedule, public, notes)
        return private_words.laid(task, delta=self.delta, part=self.vocabulary_delta)

    def _opened(
        self, task: Task[LDAModel], plan: Plan, journal: RunJournal | None
    ) -> tuple[Task[LDAModel], Plan, Journal]:
        return private_words.found(task, plan, journal, self.n_units)

    def _schedule(self, budget: Mapping[str, float]) -> Schedule:
        """Steps of equal noise."""
        n_steps = self._given_steps(high=10**7) or 20
        rho = robbins_monro(self.learning_offset, self.learning_decay)
        return Schedule((1.0,) * n_steps, budget, rho)

    def _as_prior(self, columns: tuple[tuple[str, ...] | None, int]) -> tuple[TopicPrior, str]:
        """Return the topics and how much each is used; `columns` are the vocabulary of the fit and its width.

        Raises:
            ParameterError: for other terms than the vocabulary of this model.
        """
        self._check_fitted()
        (vocabulary, width), words = columns, self.vocabulary_
        if self.n_features_in_ != width or (None not in (words, vocabulary) and words != vocabulary):
            number = len(set(words or ()) ^ set(vocabulary or ()))
            differing = f"{number} words differ" if number else f"it has {self.n_features_in_} terms, not {width}"
            if number == 0 and self.n_features_in_ == width:
                differing = "the words stand in another order"
            raise ParameterError(f"prior must have the vocabulary of the fit; {differing}.")
        lambda_vk = self._q.lambda_vk
        size_k = lambda_vk.sum(axis=0)
        return TopicPrior(lambda_vk / size_k, size_k / size_k.sum()), f"{len(self.components_)} topics"

    def _released_sums(self, fit: LDA) -> EarlierTopics:
        """Return what was released of the people behind this model, for a fit that takes it as `previous`.

        Raises:
            ParameterError: for other parameters, or a file that does not hold what was released.
        """
        for name in ("clip_scale", "document_length", "length_rule", "count_power"):
            if getattr(self, name) != getattr(fit, name):
                raise ParameterError(f"{name} must be {getattr(self, name)!r}, as in the fit that previous= names.")
        q = self._q
        if not self._fitted_model.means or q.words_v is None:
            raise ParameterError("previous must be a fit with prior=, whose file holds what was released.")
        std = 0.0 if q.sum_std_v is None else float(q.sum_std_v[0])
        return EarlierTopics(q.words_v, q.words_std, q.sum_vk, std, q.num_units)

    def _public(self, model: LDAModel, start: str = "") -> dict[str, str]:
        """Parameters of a model that the guarantee treats as public."""
        sizes = " at first, then as the released sizes of topics" if model.doc_topic_prior is None else ""
        return {
            "n_components": f"number of topics {model.n_components}",
            "prior": f"priors alpha {model.alpha:g}{sizes} and eta {model.topic_word_prior:g}{start}",
            "document_length": f"document length {model.document_length:g} ({model.length_rule}), count power "
            f"{model.count_power:g}",
            "parameters": "the plan, the random start and all other parameters",
        }

    def _learned(self, task: Task[LDAModel], q: Topics) -> FittedTopics:
        words, model = task.notes["vocabulary"], task.model
        parts = {name: getattr(q, name) for name in _TOPICS}
        if q.is_one:  # Topics that are all alike are one; of their sums the first has all words.
            sums = None if q.sum_vk is None else q.sum_vk[:, :1]
            parts |= {"lambda_vk": q.lambda_vk.sum(axis=1, keepdims=True), "alpha_k": np.ones(1), "sum_vk": sums}
        listed = None if q.listed == 0 else model.lists[q.listed - 1].name
        return FittedTopics(None if words is None else tuple(words), model.means, model.iterates, None, listed, **parts)

    def _foreseen(self, *, grouped: bool = False, **columns: Any) -> tuple[Task[LDAModel], Plan]:
        if self._opens or columns["width"] is None:
            task, plan = super()._foreseen(grouped=grouped, **columns)
            if columns["width"] is None:
                return task, plan
            width = check_integer("width", columns["width"], low=1)
            return task._replace(model=replace(task.model, n_terms=width)), plan
        prior, previous = self._known(self.prior, public=self.public_prior), self._known(self.previous)
        if prior is not None and prior.model is None:
            prior = None  # Frequencies of words change no plan.
        width = check_integer("width", columns["width"], low=1)
        self._check_sizes(width)
        with Run().isolated():
            documents = BagOfWords(sparse.csr_array((0, width)), group=() if grouped else None)
            task = self._task_of(documents, prior, previous, {"width": width})
        return task, task.plan

    def _expected_accuracy(self, task: Task[LDAModel], plan: Plan, n: float) -> ExpectedAccuracy:
        model = task.model
        if model.means or not model.iterates:  # Topics around those of a prior need not stand above the noise.
            return replace(ExpectedAccuracy.of_means(plan, n, task.rho), enough=math.nan)
        strength, number = signal_over_noise(model, plan, task.rho, n) / model.detectable, model.n_components
        share = float(ndtr(math.log(strength) / _SIZE_SPREAD)) if 0 < strength < math.inf else float(strength > 0)
        return _topics(number * share, number, details=_threshold(plan))

    @property
    def above_noise_(self) -> Bools:
        """Which topics are distinguishable from noise, (K,), by a fit to synthetic documents without topics.

        Raises:
            ParameterError: for a file of an earlier version, which does not hold what was released; for a fit with
                prior topics.
        """
        self._check_fitted()
        if self._above_noise is None and self._q.is_one:
            self._above_noise: Bools | None = np.zeros(1, dtype=bool)
        if self._above_noise is None:
            model = self._fitted_model
            if model.means:
                raise ParameterError("above_noise_ must be asked of a fit without prior=: its topics are the prior's.")
            schedule, rng = self._schedule(SHARES), generator("random_state", self.random_state)
            blocks_of = self._model(self.n_features_in_, model.n_components, n_steps=len(schedule.noise))
            plan = self._relative_plan(blocks_of, self.privacy_.unit, schedule)
            self._above_noise = topics_above_noise(model, self._q, plan, schedule.rho, rng)
            self._record = replace(self._record, above_noise_k=self._above_noise)
        assert self._above_noise is not None
        return self._above_noise

    @property
    def topics_above_noise_(self) -> int:
        """Number of topics that stand above the noise."""
        return int(self.above_noise_.sum())

    def _no_rows(self, *, schema: Any, vocabulary: Sequence[str] | None, width: int | None) -> dict[str, Any]:
        """No document, over a vocabulary or so many terms."""
        if self._opens:
            raise ParameterError(
                "vocabulary must be a public list where several count the same words, got 'private'. Words that one "
                "fit has found are public: give its vocabulary_."
            )
        words = None if vocabulary is None else check_vocabulary(vocabulary)
        counts = sparse.csr_array(np.empty((0, width or 0 if words is None else len(words))))
        return {"X": BagOfWords(counts, vocabulary=words)}

    def _quality(self, rows: Any) -> Floats:
        """Bound of each document, in nats a word."""
        model: LDAModel = self._fitted_model
        row_j = np.repeat(np.arange(rows.num_rows), np.diff(rows.indptr))
        tokens_n = np.bincount(row_j, weights=rows.counts, minlength=rows.num_rows)
        return np.asarray(model.bound(self._q, rows) / tokens_n)

    def _quality_range(self, model: LDAModel) -> tuple[float, float]:
        """From 3/2 to 1/2 of the score of a uniform guess."""
        guess = math.log(max(model.n_terms, 2))
        return -1.5 * guess, -0.5 * guess

    def transform(self, X: Records) -> Floats:
        """Return expected topic proportions of each document, (rows, K). They are as private as X.

        Rows are in the order of X. For a `dpvb.data.BagOfWords` with group=, rows are ordered by person, in the order
        of first occurrence, without documents that have no person. Pass X without group= to get all documents in their
        order.

        Args:
            X: Documents, as in `fit`.
        """
        parts = [self._fitted_model.proportions(self._q, rows) for rows in self._rows(X)]
        return np.concatenate([np.empty((0, len(self.components_))), *parts])

    def perplexity(self, X: Records, *, topics: str = "mean", step: int | None = None, public: bool = False) -> float:
        """Return a bound on the per-word perplexity of public documents (Hoffman et al. 2010); lower is better.

        Args:
            X: Public documents, as in `fit`.
            topics: Estimate of the topics: "mean" (default), posterior means, which are distributions of words; or
                "expected_log", exp⟨log β⟩, whose sum is below 1 for uncertain topics.
            step: Step of a fit with run=dpvb.Run(keep="path"), from 1 to n_iter_. None (default): the result.
            public: True states that the documents are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
            ParameterError: If `step` is given and the fit kept no path.
        """
        if step is not None:
            return self.at_step(step).perplexity(X, topics=topics, public=public)
        bound, tokens = self._bound(X, public, check_choice("topics", topics, ("mean", "expected_log")))
        return float(np.exp(-bound / tokens)) if tokens else 1.0

    @if_fitted
    def score(self, X: Records, y: None = None, *, public: bool = False) -> float:
        """Return a lower bound on the log-likelihood of public documents, in nats; higher is better.

        Raises:
            PrivacyError: Unless public=True.
        """
        return self._bound(X, public)[0]

    def evaluate(self, X: Records, y: None = None, *, words: int = 10, public: bool = False) -> dict[str, Any]:
        """Return perplexities of public documents, by bound and by completion, and coherence (NPMI) of the topics.

        Args:
            X: Public documents, as in `fit`.
            words: Number of top words of a topic for the coherence, at least 2. Default: 10.
            public: True states that the documents are not private. Default: False, which raises an error.

        Raises:
            PrivacyError: Unless public=True.
        """
        self._check_public(public)
        n = min(check_integer("words", words, low=2), self.n_features_in_)
        empty = sparse.csr_array((0, self.n_features_in_))
        counts = sparse.vstack([empty, *(rows.csr() for rows in self._rows(X))], format="csr")
        coherence = metrics.npmi_coherence(metrics.top_words(self.components_, n), counts)
        return {
            "perplexity": self.perplexity(counts, public=True),
            "completion_perplexity": metrics.completion_perplexity(self, counts),
            "coherence": float(coherence.mean()),
            "coherence_of_topics": coherence.tolist(),
        }

    def topics(self, n: int = 10) -> list[list[str]]:
        """Return the n most probable words of each topic, in the order of `components_`."""
        self._check_fitted()
        n = check_integer("n", n, low=1)
        names = self.vocabulary_ or [f"#{v}" for v in range(self.n_features_in_)]
        order = np.argsort(-self.components_, axis=1, kind="stable")[:, :n]
        return [[names[v] for v in row] for row in order]

    def _facts_for_report(self, words: int = _WORDS_OF_A_REPORT) -> Iterator[Figure]:
        """Each topic's most probable words.

        Args:
            words: how many of each topic.
        """
        words = check_integer("words", words, low=1)
        clear = None if self._fitted_model.means or self._q.is_one else self.above_noise_
        probability_kv = self.components_ / self.components_.sum(axis=1, keepdims=True)
        names = self.vocabulary_ or [f"#{v}" for v in range(self.n_features_in_)]
        order = np.argsort(-probability_kv, axis=1, kind="stable")[:, :words]
        yield Bars(
            name="topics",
            title="One topic: word frequencies" if self._q.is_one else f"{len(order)} topics",
            note="The most probable words of each topic."
            + ("" if clear is None else f" {clear.sum()} of the topics differ from the background by more than noise."),
            groups=tuple(
                (
                    f"Topic {k}",
                    "" if clear is None or clear[k] else "within noise",
                    tuple((names[v], float(probability_kv[k, v])) for v in row),
                )
                for k, row in enumerate(order)
            ),
        )

    def summary(self) -> str:
        """The number of topics and of words, how much better the topics predict than one topic, and the word list."""
        self._check_fitted()
        number = len(self.components_)
        lines = [f"{number} topic{'s' * (number > 1)} of {self.n_features_in_:,} words", *self._said_of_result()]
        if self.word_list_ is not None:
            lines.append(f"The words agree with {self.word_list_}.")
        return "\n".join(lines)

    def _said_of_result(self) -> tuple[str, ...]:
        """How much better the topics predict than one topic, if that was released."""
        if self.gain_ is None:
            return ()
        if self._q.is_one:
            asked = "topics" if self.n_components == "auto" else f"{self.n_components} topics"
            return (
                f"At epsilon = {self.epsilon:g}, {asked} predict these {self.privacy_.unit}s no better than word "
                "frequencies do: the model is their word frequencies. Fewer topics, or a larger epsilon, may predict "
                "better.",
            )
        better = 100.0 * -math.expm1(-self.gain_)
        return (f"{len(self.components_)} topics predict {max(better, 0.0):.2g} % better than one.",)

    @property
    def _is_simpler(self) -> bool:
        return self.gain_ is not None and self._q.is_one

    def _accuracy_of_result(self) -> ExpectedAccuracy | None:
        model, q = self._fitted_model, self._q
        std = noise_of_topics(q)
        # A released gain says whether the topics help, without a second fit to documents of no topics.
        if (
            self.gain_ is not None
            or q.is_one
            or std == 0
            or model.means
            or model.signal(q.num_units, std) >= PLENTY * model.detectable
        ):
            return None
        return _topics(float(self.topics_above_noise_), model.n_components)

    def _known(self, what: Any, *, public: bool = False) -> KnownTopics | None:
        """Return the prior topics that a parameter names."""
        name = "prior" if what is self.prior else "previous"
        return None if what is None else KnownTopics.of(what, name, self, public=public)

    def _around(self, source: Any, around: TopicPrior) -> tuple[LDAModel, Schedule]:
        """Model and schedule around known topics: fewer documents have fewer releases after the word totals."""
        number = len(around.usage_k)
        if self.n_components not in ("auto", number):
            raise ParameterError(
                f"n_components must be {number}, the prior's, or 'auto' with prior=, got {self.n_components!r}."
            )
        if not self.release_word_totals:
            raise ParameterError(
                "release_word_totals must be True with prior=: the word totals say which topics are used."
            )
        parts: dict[str, Any] = {"around": around, "means": True, "word_weight_power": 0.0}
        if (previous := self._known(self.previous)) is not None:
            if previous.model is None or len(previous.model.components_) != number:
                raise ParameterError(f"previous must be a fit of {number} topics, as many as the prior has.")
            previous.topics(source.vocabulary, source.width)
            parts["previous"] = previous.model._released_sums(self)

        def laid(n_steps: int) -> tuple[LDAModel, Schedule]:
            share = _FEW_SHARE if n_steps <= _FEW else _MANY_SHARE
            schedule = Schedule((1.0,) * n_steps, {**SHARES, "first": share}, rho=robbins_monro(0.0, 1.0))
            return self._model(source.width, number, **parts, iterates=n_steps > 0), schedule

        if (n_steps := self._given_steps(low=0, high=10**7)) is not None:
            return laid(n_steps)
        model, schedule = laid(_FEW)
        if self.n_units is None:
            return model, schedule
        plan = self._calibrated(self._relative_plan(model, source.unit, schedule), Run.current())
        signal = signal_over_noise(model, plan, schedule.rho, self.n_units)
        return laid(0 if signal < _NOTHING else _FEW if signal < _MUCH else _MANY)

    def _by_signal(
        self, source: Any, lists: tuple[WordList, ...], *, share: float | None = None
    ) -> tuple[LDAModel, Schedule]:
        """Model and schedule without known topics: number of topics and share of words by what public facts foresee.

        Args:
            source: its width and its unit are looked at.
            lists: of words.
            share: of the budget for words; None: planned.
        """
        words_share = _WORDS_SHARE if share is None else share
        schedule = self._schedule({**SHARES, "first": words_share})
        number, signal = self.n_components, 0.0
        if self.n_units is not None and self.epsilon != math.inf:
            one = self._model(source.width, 1)
            plan = self._calibrated(self._relative_plan(one, source.unit, schedule), Run.current())
            signal = signal_over_noise(one, plan, schedule.rho, self.n_units)
        elif number == "auto":
            raise ParameterError(
                "n_components must be a number unless epsilon is finite and n_units is given: 'auto' chooses by "
                "the noise and a public number of documents."
            )
        if number == "auto":
            number = 1 if signal < _LEAST_SIGNAL else int(min(signal // _SIGNAL_OF_TOPIC, source.width))
        if share is None and signal / number >= _CLEAR:
            schedule = replace(schedule, budget={**SHARES, "first": _CLEAR_SHARE})
        n_steps, many = len(schedule.noise), self.release_word_totals and number > 1
        model = self._model(source.width, number, lists=lists, n_steps=n_steps)
        plan = self._relative_plan(model, source.unit, schedule)
        if self.release_word_totals:
            model = replace(
                model, final_noise=plan.noise_std_at_end("counts", schedule.rho) / plan.releases[0].noise_std("words")
            )
        if self._opens and self.word_weight_power is None and signal / number >= model.detectable:
            # A release that finds words counts no documents, so that a public number decides on the word weights.
            model = replace(model, word_weight_power=WEIGHT_POWER)
        compares = many and n_steps >= _LEAST_STEPS and self.epsilon != math.inf
        # One topic is word totals: words that are found anew in the first release have theirs in the steps.
        return replace(model, compares=compares, iterates=many or self._opens or not self.release_word_totals), schedule

    def _model(self, width: int, n_components: int, **parts: Any) -> LDAModel:
        """The model that the parameters name; its own defaults stand for None."""
        options: dict[str, Any] = {"clip_scale": self.clip_scale, "topic_word_prior": self.topic_word_prior}
        options["mode"] = check_choice("estimate", self.estimate, ESTIMATES) == "map"
        return LDAModel(
            n_components,
            width,
            doc_topic_prior=self.doc_topic_prior,
            document_length=self.document_length,
            length_rule=self.length_rule,
            count_power=self.count_power,
            release_word_totals=self.release_word_totals,
            word_weight_power=parts.pop("word_weight_power", self.word_weight_power),
            statistic_weight=self.statistic_weight,
            tol=self.tol,
            max_iter=self.max_iter,
            fixed_iterations=self.fixed_iterations,
            **{name: value for name, value in options.items() if value is not None},
            **parts,
        )

    def _rows(self, X: Records) -> Iterator[Any]:
        """Cleaned rows of documents, in order."""
        self._check_fitted()
        words = None if isinstance(X, Source) else self.vocabulary_
        source = as_source(X, vocabulary=words, token_pattern=self.token_pattern)
        check_width(source.width, self.n_features_in_, type(self).__name__, ": the width of its vocabulary")
        check_words(source, self.vocabulary_)
        return (chunk.rows for chunk in source.chunks())

    def _bound(self, X: Records, public: bool, topics: Any = "mean") -> tuple[float, float]:
        self._check_public(public)
        bound = tokens = 0.0
        for rows in self._rows(X):
            bound += float(self._fitted_model.bound(self._q, rows, topics=topics).sum())
            tokens += float(rows.counts.sum())
        return bound, tokens

    def _check(self, record: FittedTopics) -> None:
        n_terms, n_components = record.lambda_vk.shape
        if record.vocabulary is not None:
            check_vocabulary(record.vocabulary, width=n_terms)
        if record.is_one and n_components > 1:
            raise ValueError("one topic in several columns")
        if not (record.means or record.iterates or record.is_one):
            raise ValueError("topics of no release")
        trees.check_lengths(record, v=n_terms, k=n_components)
        if not (record.lambda_vk >= 1 / _MOST).all() or trees.largest(record) > _MOST:
            raise ValueError("numbers that no fit has")

    def _show(self, record: FittedTopics) -> None:
        n_terms, n_components = record.lambda_vk.shape
        # The power by which words were weighted, for a fit without topics that is compared with this one.
        is_even = float(np.ptp(record.word_weight_v)) == 0
        power = (0.0 if is_even else WEIGHT_POWER) if self.word_weight_power is None else self.word_weight_power
        model = self._model(
            n_terms, n_components, means=record.means, iterates=record.iterates, word_weight_power=power
        )
        releases = {name: getattr(record, name) for name in _TOPICS}
        self._fitted_model, self._q = model, replace(model.topics(record.lambda_vk), **releases)
        self.n_features_in_, self.vocabulary_ = n_terms, record.vocabulary
        self._above_noise, self.components_ = record.above_noise_k, record.lambda_vk.T
        self.word_list_ = record.word_list
        compared = record.gain_std > 0
        self.gain_: float | None = record.gain if compared else None
        self.gain_std_: float | None = record.gain_std if compared else None


# Prior information on topics before a fit: topics of a model, or frequencies of words; where from, and at what cost.


# Limit for numbers read from a file, and its inverse for what is positive: a prior with others would under- or
# overflow a fit that was already charged.
_MOST = 1e30


@dataclass(frozen=True)
class KnownTopics:
    """A public or an earlier prior.

    Attributes:
        model: whose topics they are; None for words with frequencies.
        frequency: of words; empty for a model.
        listed: which list's they are, if it ships with dpvb.
        public: whether it contains no private information.
    """

    model: LDA | None
    frequency: Mapping[str, float]
    listed: str = ""
    public: bool = True

    @classmethod
    def of(cls, prior: Any, name: str, fit: PrivateEstimator, *, public: bool) -> KnownTopics:
        """Open the value of a parameter: a fitted model, words with frequencies, or the path of a file of either.

        Args:
            prior, name: the parameter.
            fit: the estimator that is to be fitted.
            public: whether a model's documents were public.

        Raises:
            ParameterError: for anything else, or a model without a guarantee for its persons; or of this data set.
            DataFormatError, ModelFileError: for a file that cannot be read.
        """
        if word_lists.is_name(prior):
            listed = f"the public list {str(prior)!r} of dpvb ({word_lists.SOURCE})"
            return cls(None, word_lists.frequencies(prior), listed)
        if isinstance(prior, (str, os.PathLike)):
            path = check_path(name, prior)
            prior = path if path.suffix == ".dpvb" or zipfile.is_zipfile(path) else _frequencies(path)
        model = opened(name, prior, fit, public=public, study="words to frequencies")
        if isinstance(model, Mapping):
            return cls(None, _checked(model))
        return cls(model, {}, public=public or model.privacy_.published)

    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a model's terms, where they have names."""
        return None if self.model is None else self.model.vocabulary_

    def topics(self, vocabulary: tuple[str, ...] | None, width: int) -> TopicPrior:
        """Return the topics of a model for the terms of a fit.

        Raises:
            ParameterError: for other terms than the prior's.
        """
        assert self.model is not None
        return self.model._as_prior((vocabulary, width))[0]

    def lists(self, vocabulary: tuple[str, ...] | None) -> tuple[WordList, ...]:
        """Return the frequencies of words for the terms of a fit; nothing if none of the words has one.

        Raises:
            ParameterError: for terms without names.
        """
        if vocabulary is None:
            raise ParameterError("vocabulary must name the terms, so that the prior's frequencies find their words.")
        f_v = np.array([self.frequency.get(word, 0.0) for word in vocabulary])
        name = self.listed or f"a public list of {len(self.frequency)} words"
        return (WordList(name, f_v),) if f_v.sum() > 0 else ()

    def told(self, fit: PrivateEstimator) -> str:
        """Where it comes from, and what it cost whom, in words, for the statement of a fit."""
        if self.model is None:
            listed = self.listed or f"a public list of {len(self.frequency)} words"
            return f"word frequencies of {listed}, if the released word totals agree with them"
        return f"{len(self.model.components_)} topics of {told(self.model, fit, public=self.public)}"


def _frequencies(path: Path) -> dict[str, float]:
    """Words and frequencies of a text file, one word a line.

    Raises:
        DataFormatError: for a file that cannot be read, or a line that is not a word and a number.
    """
    try:
        lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        return {word: float(number) for word, number in lines}
    except OSError as error:
        raise DataFormatError(f"{path}: {reason_of(error)}.") from None
    except ValueError:
        raise DataFormatError(f"{path}: each line must be a word and its frequency, in UTF-8.") from None


def _checked(frequency: Mapping[Any, Any]) -> dict[str, float]:
    """Words with frequencies.

    Raises:
        ParameterError: for others than texts with finite numbers of 0 or more, one of them positive.
    """
    try:
        plain = {word: float(number) for word, number in frequency.items()}
    except (TypeError, ValueError):
        plain = {}
    sound = all(isinstance(word, str) and 0 <= number < math.inf for word, number in plain.items())
    if not sound or not sum(plain.values()) > 0:
        raise ParameterError("prior must map words to frequencies: finite numbers of 0 or more, some of them positive.")
    return plain


# Which topics stand above the noise: what public facts let one expect, and what a fit to no topics at all shows.
#
# Nothing here reads private data. Noise shapes topics in the first steps, and documents follow these topics later, so
# that sums of only noise follow no chi-square distribution. Topics are therefore compared with those of the same plan
# on documents drawn from the released word frequencies, which have no topics.


# Tuned by hand; benchmark `topics` shows what they do.
# Words of a document that is drawn.
_DRAWN_LENGTH = 60
# Factor over the largest deviation of the documents without topics.
_MARGIN = 1.25
# Part of the detectable signal below which no topic can stand out.
_HOPELESS = 1 / 8
# Multiple of the detectable signal above which the test runs only when it is asked for.
PLENTY = 3.0
# Standard deviation of the logarithms of topics' sizes.
_SIZE_SPREAD = 0.5
# Different words of a document in the forecast of the words that are found.
_DIFFERENT = 100


def signal_over_noise(model: LDAModel, plan: Plan, rho: StepSize, num_units: float) -> float:
    """Norm of a topic's expected sum off the background, over the noise std of an entry, under a calibrated plan."""
    return model.signal(num_units, plan.noise_std_at_end("counts", rho))


def _topics(above: float, number: int, details: tuple[tuple[str, float], ...] = ()) -> ExpectedAccuracy:
    """The number of topics above the noise; half of them are enough."""
    return ExpectedAccuracy(f"topics above the noise, of {number}", above, number / 2, rises=True, details=details)


def _threshold(plan: Plan) -> tuple[tuple[str, float], ...]:
    """How many documents of a hundred words must use a word that a plan finds, where words are to be found."""
    mechanism = plan.releases[0].mechanism
    if not isinstance(mechanism, Threshold):
        return ()
    number = math.ceil(mechanism.threshold * math.sqrt(_DIFFERENT))
    return ((f"documents of {_DIFFERENT} words that must use a word, so that it is found", float(number)),)


def topics_above_noise(model: LDAModel, q: Topics, plan: Plan, rho: StepSize, rng: np.random.Generator) -> Bools:
    """Which topics deviate more from the background than any that the same plan finds where there are no topics, (K,).

    Args:
        model, q: a fit, with what was released.
        plan: its releases; the noise may be relative.
        rho: as in the fit.
        rng: of the documents that are drawn.
    """
    if q.sum_vk is None or q.sum_std_v is None:
        raise ParameterError("above_noise_ must be asked of a model whose file holds its sums: fit the model again.")
    if not (std := noise_of_topics(q)) > 0:
        return np.ones(model.n_components, dtype=bool)
    if model.signal(q.num_units, std) < _HOPELESS * model.detectable:
        return np.zeros(model.n_components, dtype=bool)
    plan = plan.scaled(std / plan.noise_std_at_end("counts", rho))
    wall = Wall(_without_topics(q, max(round(q.num_units), 1), rng), plan)
    null, _ = loop.fit(model, wall, plan, rho=rho, rng=rng)
    return np.asarray(topic_deviations(model, q) > _MARGIN * topic_deviations(model, null).max())


def noise_of_topics(q: Topics) -> float:
    """Noise std of an entry of what was released of the topics; 0 where nothing was."""
    return 0.0 if q.sum_std_v is None else float(q.sum_std_v[0] * q.word_weight_v[0])


def topic_deviations(model: LDAModel, q: Topics) -> Floats:
    """Energy of each topic's released sum off the background, over its part in the background, (K,).

    Both are in units of the noise; energy is less what noise is expected to add. Where there are no topics, the energy
    of what documents followed grows with the sum's size: the ratio of both is alike for large sums and small ones.
    """
    assert q.sum_vk is not None
    assert q.sum_std_v is not None
    y_vk, b_v = q.sum_vk / q.sum_std_v[:, None], _background(q) / q.sum_std_v
    size_k = b_v @ y_vk / (b_v @ b_v)
    energy_k = ((y_vk - np.outer(b_v, size_k)) ** 2).sum(axis=0) - (len(b_v) - 1)
    return np.asarray(energy_k / np.maximum(size_k * np.linalg.norm(b_v), model.detectable))


def _background(q: Topics) -> Floats:
    """Word probabilities: those that were released first, or those of all topics together."""
    if q.background_v is not None:
        return q.background_v
    row_v = np.maximum(q.lambda_vk.sum(axis=1), 1e-300)
    return np.asarray(row_v / row_v.sum())


def _without_topics(q: Topics, number: int, rng: np.random.Generator) -> Stream:
    """So many documents of words drawn independently by their released frequencies, drawn again at each pass."""
    cumulative_v, seed = np.cumsum(_background(q))[:-1], int(rng.integers(2**32))

    def pieces() -> Iterator[sparse.coo_array]:
        drawn = generator("random_state", seed)
        for start in range(0, number, LARGEST_BATCH):
            size = min(number - start, LARGEST_BATCH)
            word_j = np.searchsorted(cumulative_v, drawn.random(size * _DRAWN_LENGTH), side="right")
            row_j = np.repeat(np.arange(size), _DRAWN_LENGTH)
            yield sparse.coo_array((np.ones(len(word_j)), (row_j, word_j)), shape=(size, len(q.lambda_vk)))

    return Stream(pieces, len(q.lambda_vk))
