"""A vocabulary that a fit of topics finds itself: the first release of its plan, in place of the word totals.

The selected words are public. From then on the fit is that of a vocabulary that was fixed, at the same noise.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from dpvb.core.journal import Begun, Journal, Unrecorded
from dpvb.core.names import WORDS, Threshold, release_of
from dpvb.core.plan import Plan
from dpvb.core.wall import Wall
from dpvb.data.documents import word_lists
from dpvb.data.documents.bag_of_words import Texts
from dpvb.data.documents.vocabulary import PRIVATE, check_vocabulary
from dpvb.data.tables.matrices import is_column
from dpvb.estimators.base import Task
from dpvb.guards.errors import (
    CheckpointError,
    DataFormatError,
    EmptyVocabularyError,
    FewWordsWarning,
    ParameterError,
    check_choice,
    check_delta,
)
from dpvb.models.topics.lda import LDAModel
from dpvb.models.topics.prior import WordList
from dpvb.runs.journal import RunJournal

#: Share of the budget Σ p²/σ² that the release of words takes, and its part of delta: benchmark `topics` chose them.
SHARE: Final = 0.2
PART_OF_DELTA: Final = 1 / 20
#: Length of the blocks for which a plan is made before its words are found; no noise depends on it.
STAND_IN: Final = 1000
# Fewer words than this say little of what documents are about.
_FEW = 50
_WAYS = "Take a public list (vocabulary='words.txt'), a larger vocabulary_share or epsilon, or more documents."


def is_private(vocabulary: object) -> bool:
    """Whether a parameter asks for a vocabulary that is found; a path of this name comes from a command line."""
    return isinstance(vocabulary, (str, os.PathLike)) and os.fspath(vocabulary) == PRIVATE


def stop_words(asked: Any) -> tuple[frozenset[str], str]:
    """Public words that are not looked for, and which they are, in words.

    Args:
        asked: a language, a file, words, or None.

    Raises:
        ParameterError, DataFormatError: for anything else.
    """
    if asked is None:
        return frozenset(), "none"
    if isinstance(asked, (str, os.PathLike)):
        if not os.path.isfile(asked):
            hint = "Or give words, or a file with one per line."
            name = check_choice("stop_words", os.fspath(asked), word_lists.LANGUAGES, hint=hint)
            return word_lists.stop_words(name), name
        asked = check_vocabulary(asked)
    listed: list[Any] = [*asked] if isinstance(asked, Iterable) else [None]
    if not all(isinstance(word, str) and word for word in listed):
        raise ParameterError("stop_words must hold nonempty strings, or name a language or a file with one per line.")
    words = frozenset(map(str.lower, listed))  # As texts are, before they are taken apart.
    return words, f"{len(words)} of the caller's"


def texts(X: object, *, token_pattern: str, group: Iterable[object] | None) -> Texts:
    """Private texts in any accepted form.

    Raises:
        ParameterError, DataFormatError: for anything else, or a group for texts that were read with one.
    """
    if isinstance(X, Texts):
        if group is not None:
            raise ParameterError("group must be None where open_documents has read whose each text is.")
        return X
    if isinstance(X, (list, tuple)) or is_column(X):
        return Texts(X, token_pattern=token_pattern, group=group)
    raise DataFormatError(
        "X must be texts where vocabulary='private': a list or one column of strings, or "
        "open_documents(path, vocabulary='private'). The columns of counts are words of a list: name "
        "them with vocabulary=, or say public_vocabulary=True."
    )


def lists_of(vocabulary: Iterable[str] | None) -> tuple[WordList, ...]:
    """Return the lists of words that ship with the package and fit a public vocabulary; none where terms have no names.

    Args:
        vocabulary: public words, in the order of the columns.
    """
    words = tuple(vocabulary or ())
    return tuple(
        WordList(f"the public list {name!r} of dpvb", np.array(word_lists.frequencies_of(name, words)))
        for name in word_lists.that_fit(words)
    )


def laid(task: Task[LDAModel], *, delta: float, part: float | None) -> Task[LDAModel]:
    """A task of stand-in columns, whose first release finds words instead of adding them up.

    Args:
        task: whose plan begins with word totals, at the share that words are to have.
        delta: of the fit.
        part: what the release adds to delta; None: 0.05 of it.

    Raises:
        ParameterError: for a part that leaves nothing of delta, or other neighbours than one unit more or less.
    """
    if task.relative.neighboring_relation != "add_or_remove_one":
        raise ParameterError(
            "neighboring_relation must be 'add_or_remove_one' where vocabulary='private', got "
            f"{task.relative.neighboring_relation!r}: the proof for words is about one unit more or less. Or "
            "take a public list."
        )
    delta = check_delta(delta)
    hint = "It is a part of delta; the noise has the rest."
    part_of_delta = delta * PART_OF_DELTA if part is None else part
    added = check_delta(part_of_delta, "vocabulary_delta", high=delta, hint=hint)
    noise = task.relative.releases[0].mechanism.noise_multiplier
    releases = [release_of(noise, added_delta=added), *task.relative.releases[1:]]
    return task._replace(relative=replace(task.relative, releases=releases))


def found(
    task: Task[LDAModel], plan: Plan, run: RunJournal | None, n_units: int | None
) -> tuple[Task[LDAModel], Plan, Journal]:
    """Release the words, and say how the fit goes on: its task, the plan in the words' columns, the journal.

    Args:
        task: of texts.
        plan: its plan, calibrated.
        run: what counts it, where anything does.
        n_units: public number of units, where there is one.

    Raises:
        EmptyVocabularyError: if there is none.
        CheckpointError: if words are lost by which later releases of this run were made.
        LedgerError, PrivateComputationError: as in `Wall.names`.
    """
    journal = Unrecorded() if run is None else run
    if run is not None and run.num_recorded and run.recorded(0) is None:
        raise CheckpointError(
            "The words that this run has found are lost, and its other releases with them: begin anew."
        )
    words = Wall(task.source, plan, n_units=n_units, journal=journal).names(plan.releases[0])
    number = len(words.names)
    if not number:
        raise EmptyVocabularyError(
            f"vocabulary: no word was found in enough {plan.unit}s, as the noisy totals say; what was spent on that "
            f"stays spent. {_WAYS}"
        )
    if number < _FEW:
        warnings.warn(
            f"vocabulary: {number} words were found in enough {plan.unit}s, which say little of what they are about. "
            f"{_WAYS}",
            FewWordsWarning,
            stacklevel=6,
        )
    mechanism = plan.releases[0].mechanism
    assert isinstance(mechanism, Threshold)
    said = (
        f"the {number} words that left, each with a noisy total above {mechanism.threshold:.4g}; a {plan.unit} gave "
        f"{mechanism.most_names} at most"
    )
    model = replace(task.model, n_terms=number, lists=lists_of(words.names))
    shapes = {name: block.shape for name, block in model.blocks.items()}
    plans: dict[int, Any] = {}
    for release in plan:
        if id(release) not in plans:
            blocks = {name: replace(b, shape=shapes.get(name, b.shape)) for name, b in release.blocks.items()}
            plans[id(release)] = replace(release, blocks=blocks)
    plan = replace(plan, releases=[plans[id(release)] for release in plan])
    notes = {**task.notes, "width": number, "vocabulary": words.names}
    source = task.source.over(words.names)
    task = task._replace(model=model, source=source, public=[said, *task.public], notes=notes)
    return task, plan, Begun(journal, {WORDS: words.total})


def check_known(task: Task, where: str) -> Task:
    """Return a task whose columns are known before its first release.

    Args:
        task: of any estimator.
        where: what needs to know them, in words.

    Raises:
        ParameterError: for one that is to find its words.
    """
    if any(isinstance(release.mechanism, Threshold) for release in task.relative):
        raise ParameterError(
            f"vocabulary must be a public list {where}, whose columns are fixed beforehand, got 'private'. Words that "
            "one fit has found are public: give its vocabulary_."
        )
    return task
