"""Private topic models for scikit-learn."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dpvb.arrays import Floats
from dpvb.core import loop
from dpvb.data import Source, as_source
from dpvb.errors import DataFormatError, check_integer
from dpvb.estimators.base import PrivateEstimator, Progress
from dpvb.guards import domains
from dpvb.models.topics import lda


class LDA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Latent Dirichlet allocation under (ε, δ)-differential privacy.

    All parameters are public. `None` means: planned from public facts.

    Args:
        n_components: number of topics K.
        epsilon, delta: the privacy budget of one fit; epsilon = inf is the noiseless fit on the same path.
        num_steps: number of releases J.
        sampling_prob: Poisson sampling rate q of a step; None with no batch_size: full batch.
        batch_size: size S of a fixed-size batch; needs num_examples.
        clip: bound on one document's statistic as a share a in (0, 1] of document_length^count_power.
        vocabulary: the terms in column order; needed for texts. A matrix of counts has a public width instead.
        random_state: seeds the public start alone; the private randomness takes no seed.
        document_length, length_rule: how a document is brought to a common length (see models.documents).
        count_power, background, word_power, mass: what of a document is released and how it counts (see models.lda).
        doc_topic_prior, topic_word_prior: α and η.
        read, projection: how noisy topics are read, and whether the accumulator is projected ("step": the papers).
        learning_offset, learning_decay: τ0 and κ of the step sizes ρ_t = (τ0 + t)^-κ.
        noise_multiplier: given noise, instead of noise calibrated to epsilon.
        accountant: method of the calibration, one of dpvb.accounting's.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        num_examples: a public number of units, where there is one.
        ledger, dataset: a dpvb.Ledger, its path or its URL, and the registered data set that is charged before a fit
            looks; without them nobody keeps count.
        checkpoint: a folder that keeps the releases of a fit, so that the same call goes on where it was killed.
        resume: "continue" goes on there, or begins; "read" reads a run that has ended, and spends nothing (see
            runs.Run).
        tol, max_iter, fixed_work: local iterations of a document.

    Attributes:
        components_: E-step topics as Dirichlet parameters λ, (K, V).
        privacy_: the privacy statement of the fit.
        n_iter_: number of steps J.
        vocabulary_, n_features_in_: public names and number of terms.
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        epsilon: float,
        delta: float,
        num_steps: int | None = None,
        sampling_prob: float | None = None,
        batch_size: int | None = None,
        clip: float | None = None,
        vocabulary: Sequence[str] | None = None,
        random_state: Any = None,
        document_length: float = 500.0,
        length_rule: str = "truncate",
        count_power: float = 0.5,
        background: bool = True,
        word_power: float = 0.25,
        mass: float = 10.0,
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        read: str = "estimated_prior",
        projection: str = "read",
        learning_offset: float = 1.0,
        learning_decay: float = 0.6,
        noise_multiplier: float | None = None,
        accountant: str = "pld",
        neighboring_relation: str = "add_or_remove_one",
        num_examples: int | None = None,
        ledger: Any = None,
        dataset: str | None = None,
        checkpoint: Any = None,
        resume: str = "continue",
        tol: float = 1e-3,
        max_iter: int = 15,
        fixed_work: bool = False,
    ) -> None:
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.num_steps = num_steps
        self.sampling_prob = sampling_prob
        self.batch_size = batch_size
        self.clip = clip
        self.vocabulary = vocabulary
        self.random_state = random_state
        self.document_length = document_length
        self.length_rule = length_rule
        self.count_power = count_power
        self.background = background
        self.word_power = word_power
        self.mass = mass
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.read = read
        self.projection = projection
        self.learning_offset = learning_offset
        self.learning_decay = learning_decay
        self.noise_multiplier = noise_multiplier
        self.accountant = accountant
        self.neighboring_relation = neighboring_relation
        self.num_examples = num_examples
        self.ledger = ledger
        self.dataset = dataset
        self.checkpoint = checkpoint
        self.resume = resume
        self.tol = tol
        self.max_iter = max_iter
        self.fixed_work = fixed_work

    def fit(
        self,
        X: Any,
        y: None = None,
        *,
        group: Iterable[object] | None = None,
        progress: Progress | None = None,
        cluster: Any = None,
    ) -> Self:
        """Fit topics privately.

        Args:
            X: private documents: CSR or dense counts, texts with a vocabulary, or a source of dpvb.data.
            y: ignored.
            group: private person of each row; a person's rows are then protected, drawn and clipped together.
            progress: called with (step, plan) after each release.
            cluster: None, "local:N" for N processes of this machine, a dpvb.cluster.LocalPool, or a Dask client; the
                released values do not depend on it.

        Raises:
            ParameterError, DataFormatError: for public faults, before anything is spent.
            WallError: if the computation failed behind the wall; the charge stands.
        """
        source = as_source(X, vocabulary=self.vocabulary, group=group)
        model = self._model(source.width)
        num_steps = 20 if self.num_steps is None else check_integer("num_steps", self.num_steps, low=1, high=10**7)
        plan = self._plan(model.blocks, [1.0] * num_steps, unit=source.unit)
        rho = loop.robbins_monro(self.learning_offset, self.learning_decay)
        public = [
            f"the vocabulary, {source.width} terms",
            f"number of topics {model.n_components}, priors alpha {model.prior:g} and eta {model.eta:g}",
            f"document length {model.length:g} ({model.length_rule}), count power {model.count_power:g}",
            "the plan, the random start and all other parameters",
        ]
        q = self._fit(
            model, source, plan, rho=rho, projection=self.projection, public=public, progress=progress, cluster=cluster
        )
        self._set_vocabulary(source)
        self.n_iter_ = num_steps
        self._set_topics(model, q)
        return self

    def fit_transform(self, X: Any, y: None = None, **fit_params: Any) -> Floats:
        """Fit, then return the rows' own topic proportions, which are as private as the rows."""
        self._say_once(
            "fit_transform returns one row for each private document: these rows are as private as the "
            "documents themselves and carry no guarantee. Only the fitted topics do."
        )
        return self.fit(X, y, **fit_params).transform(X)

    def transform(self, X: Any) -> Floats:
        """Expected topic proportions of each document, (rows, K): as private as X, without any guarantee."""
        parts = [self._fitted_model.proportions(self._q, rows) for rows in self._rows(X)]
        return np.concatenate([np.empty((0, self.n_components)), *parts])

    def perplexity(self, X: Any, *, public: bool = False) -> float:
        """Per-word perplexity bound of public documents (Hoffman et al. 2010); lower is better.

        Raises:
            PrivacyError: unless public=True says that X is not private.
        """
        bound, tokens = self._bound(X, public)
        return float(np.exp(-bound / tokens)) if tokens else 1.0

    def score(self, X: Any, y: None = None, *, public: bool = False) -> float:
        """Log-likelihood bound of public documents, in nats; higher is better.

        Raises:
            PrivacyError: unless public=True says that X is not private.
        """
        return self._bound(X, public)[0]

    def topics(self, n: int = 10) -> list[list[str]]:
        """The n most probable words of each topic, in the order of components_."""
        self._check_fitted()
        n = check_integer("n", n, low=1)
        names = self.vocabulary_ or [f"#{v}" for v in range(self.n_features_in_)]
        order = np.argsort(-self.components_, axis=1, kind="stable")[:, :n]
        return [[names[v] for v in row] for row in order]

    def _model(self, width: int) -> lda.LDA:
        """The model that the parameters name; its own defaults stand for None."""
        n_components = check_integer("n_components", self.n_components, low=1)
        given: dict[str, Any] = {"clip": self.clip, "eta": self.topic_word_prior}
        return lda.LDA(
            n_components,
            width,
            alpha=self.doc_topic_prior,
            length=self.document_length,
            length_rule=self.length_rule,  # type: ignore[arg-type]
            count_power=self.count_power,
            background=self.background,
            word_power=self.word_power,
            mass=self.mass,
            read=self.read,  # type: ignore[arg-type]
            tol=self.tol,
            max_iter=self.max_iter,
            fixed_work=self.fixed_work,
            **{name: value for name, value in given.items() if value is not None},
        )

    def _rows(self, X: Any) -> Iterator[Any]:
        """Cleaned rows of documents, in order."""
        self._check_fitted()
        source = as_source(X, vocabulary=None if isinstance(X, Source) else self.vocabulary_)
        if source.width != self.n_features_in_:
            raise DataFormatError(
                f"X has {source.width} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input: the width of its vocabulary."
            )
        return (chunk.rows for chunk in source.chunks())

    def _bound(self, X: Any, public: bool) -> tuple[float, float]:
        self._check_public(public)
        bound = tokens = 0.0
        for rows in self._rows(X):
            bound += float(self._fitted_model.bound(self._q, rows).sum())
            tokens += float(rows.counts.sum())
        return bound, tokens

    def _set_vocabulary(self, source: Source) -> None:
        self.n_features_in_ = source.width
        self.vocabulary_ = source.vocabulary

    def _set_topics(self, model: lda.LDA, q: lda.Topics) -> None:
        self._fitted_model, self._q = model, q
        self.components_ = q.lambda_vk.T

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.string = True
        tags.non_deterministic = True
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        facts = {"vocabulary": self.vocabulary_, "width": self.n_features_in_, "steps": self.n_iter_}
        return {"lambda_vk": self._q.lambda_vk}, facts

    def _restore(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        self.n_features_in_, self.n_iter_ = int(facts["width"]), int(facts["steps"])
        words = facts["vocabulary"]
        self.vocabulary_ = None if words is None else tuple(words)
        model = self._model(self.n_features_in_)
        lambda_vk = arrays["lambda_vk"]
        if lambda_vk.shape != (model.n_terms, model.n_components) or not (lambda_vk > 0).all():
            raise ValueError("topics of another shape, or not of Dirichlet parameters")
        self._set_topics(model, domains.checked(model.topics(lambda_vk, None, np.ones(model.n_terms))))
