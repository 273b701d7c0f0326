"""What is known of topics before a fit: topics of a model, or frequencies of words; where from, and at what cost."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpvb.data.documents import word_lists
from dpvb.estimators.base import PrivateEstimator, load
from dpvb.estimators.earlier import Fitted, check_release, told
from dpvb.guards.errors import DataFormatError, ParameterError, check_path, reason_of
from dpvb.models.topics import lda
from dpvb.models.topics.posterior import Earlier
from dpvb.models.topics.prior import Prior

# Added to every word's frequency, as a share of the mean one: a list may lack a word that documents have.
_SMOOTHING = 0.02


@dataclass(frozen=True)
class Known:
    """A public or an earlier prior.

    Attributes:
        model: whose topics they are; None for words with frequencies.
        frequency: of words; empty for a model.
        listed: which list's they are, if it ships with dpvb.
        public: whether it says nothing of anybody who is private.
    """

    model: Any
    frequency: Mapping[str, float]
    listed: str = ""
    public: bool = True

    @classmethod
    def of(cls, prior: Any, name: str, fit: PrivateEstimator, *, public: bool) -> Known:
        """What a parameter names: a fitted model, words with frequencies, or the path of a file of either.

        Args:
            prior, name: the parameter.
            fit: the estimator that is to be fitted.
            public: whether a model's documents were public.

        Raises:
            ParameterError: for anything else, or a model that promises nothing to those behind it; or of this data set.
            DataFormatError, ModelFileError: for a file that cannot be read.
        """
        if word_lists.is_name(prior):
            listed = f"the public list {str(prior)!r} of dpvb ({word_lists.SOURCE})"
            return cls(None, word_lists.frequencies(prior), listed)
        if isinstance(prior, (str, os.PathLike)):
            path = check_path(name, prior)
            prior = load(path) if path.suffix == ".dpvb" or zipfile.is_zipfile(path) else _frequencies(path)
        if isinstance(prior, Mapping):
            return cls(None, _checked(prior))
        prior = prior.model if isinstance(prior, Fitted) else prior
        if not isinstance(getattr(prior, "_q", None), lda.Topics):
            raise ParameterError(
                f"{name} must be a fitted dpvb.LDA, a mapping of words to frequencies, or a file of either, got "
                f"{type(prior).__name__}."
            )
        check_release(name, prior, fit, public=public)
        return cls(prior, {}, public=public or prior.privacy_.published)

    def vocabulary(self) -> tuple[str, ...] | None:
        """The words of a model's terms, where they have names."""
        return None if self.model is None else self.model.vocabulary_

    def aligned(self, vocabulary: tuple[str, ...] | None, width: int, number: int | None = None) -> Prior:
        """The prior for the terms of a fit, and for so many topics.

        Raises:
            ParameterError: for other terms or topics than the prior's.
        """
        if number is not None and (self.model is None or len(self.model.components_) != number):
            raise ParameterError(f"earlier must be a fit of {number} topics, as many as the prior has.")
        if self.model is None:
            if vocabulary is None:
                raise ParameterError(
                    "vocabulary must name the terms, so that the prior's frequencies find their words."
                )
            f_v = np.array([self.frequency.get(word, 0.0) for word in vocabulary])
            f_v += _SMOOTHING * f_v.mean() + (f_v.sum() == 0)
            return Prior((f_v / f_v.sum())[:, None], np.ones(1))
        own = self.model.vocabulary_
        if self.model.n_features_in_ != width or (None not in (own, vocabulary) and own != vocabulary):
            number = len(set(own or ()) ^ set(vocabulary or ()))
            differing = f"{number} words differ" if number else f"it has {self.model.n_features_in_} terms, not {width}"
            if number == 0 and self.model.n_features_in_ == width:
                differing = "the words stand in another order"
            raise ParameterError(f"prior must have the vocabulary of the fit; {differing}.")
        lambda_vk = self.model._q.lambda_vk
        size_k = lambda_vk.sum(axis=0)
        return Prior(lambda_vk / size_k, size_k / size_k.sum())

    def sums(self, alike: Mapping[str, Any]) -> Earlier:
        """What was released of the people behind an earlier model.

        Args:
            alike: parameters that both fits must have alike, by name.

        Raises:
            ParameterError: for other parameters, or a file that does not hold what was released.
        """
        for name, value in alike.items():
            if getattr(self.model, name) != value:
                raise ParameterError(
                    f"{name} must be {getattr(self.model, name)!r}, as in the fit that earlier= names."
                )
        q = self.model._q
        if not self.model._fitted_model.means or q.words_v is None:
            raise ParameterError("earlier must be a fit with prior=, whose file holds what was released.")
        std = 0.0 if q.sum_std_v is None else float(q.sum_std_v[0])
        return Earlier(q.words_v, q.words_std, q.sum_vk, std, q.num_units)

    def told(self, fit: PrivateEstimator) -> str:
        """Where it comes from, and what it cost whom, in words, for the statement of a fit."""
        if self.model is None:
            return f"word frequencies of {self.listed or f'a public list of {len(self.frequency)} words'}"
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
