"""A fitted model as the prior of another fit: which people it describes, and their guarantee."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpvb.accounting.methods import rounded_up
from dpvb.estimators.base import Fitted, PrivateEstimator, load
from dpvb.guards.errors import DataFormatError, ParameterError, check_path, reason_of
from dpvb.guards.untrusted import parsed_json
from dpvb.results.statement import ChargeFacts
from dpvb.runs import run as runs
from dpvb.runs.run import Run

# Words of the statement of a fit with a private prior.
_EARLIER = "an earlier release"
_PUBLIC = "a model whose data are said to be public"

#: Prior information, and its source in words.
Known = tuple[Any, str]
#: From a public study and the columns of a fit to what is known before it.
Stated = Callable[[Mapping[Any, Any], Any], Known]


def known(fit: Any, columns: Any, *, stated: Stated | None = None, study: str = "", example: str = "") -> Known:
    """Return the prior's information on its columns, and its source, for the privacy statement.

    Args:
        fit: Estimator that is to be fitted, with parameters `prior` and `public_prior`.
        columns: Public columns of the fit, as its kind describes them.
        stated: Reads a public study; None: the kind takes none.
        study, example: as in `opened`.

    Returns:
        The prior and its source in words; None and an empty text without a prior.

    Raises:
        ParameterError: for another prior, or one of other columns; see `check_release`.
        DataFormatError, ModelFileError: for a file that cannot be read.
    """
    if fit.prior is None:
        return None, ""
    model = opened("prior", fit.prior, fit, public=fit.public_prior, study=study, example=example)
    if stated is not None and isinstance(model, Mapping):
        return stated(model, columns)
    prior, what = model._as_prior(columns)
    return prior, f"{what} of {told(model, fit, public=fit.public_prior)}"


def opened(name: str, prior: Any, fit: PrivateEstimator, *, public: bool, study: str = "", example: str = "") -> Any:
    """Return the fitted model or the public study that a parameter of a fit names.

    Args:
        name: of the parameter.
        prior: a fitted model of the class of `fit`, a mapping, or the path of a file of either.
        fit: the estimator that is to be fitted.
        public: whether the data behind a model are said to be public.
        study: what a mapping holds; empty: mappings are refused.
        example: what a .json file of a study holds.

    Raises:
        ParameterError: for anything else, and for a model that may not be the prior of the fit; see `check_release`.
        DataFormatError, ModelFileError: for a file that cannot be read.
        PrivacyError: for a file whose releases cost more than the epsilon that it states.
    """
    if isinstance(prior, (str, os.PathLike)):
        path = check_path(name, prior)
        prior = _study(path, example) if study and path.suffix == ".json" else load(path)
    model = prior.model if isinstance(prior, Fitted) else prior
    if study and isinstance(model, Mapping):
        return model
    if type(model) is not type(fit) or "privacy_" not in vars(model):
        others = f", a mapping of {study}, or a file of either" if study else " or a file of one"
        raise ParameterError(f"{name} must be a fitted dpvb.{type(fit).__name__}{others}, got {type(model).__name__}.")
    check_release(name, model, fit, public=public)
    return model


def _study(path: Path, example: str) -> dict[str, Any]:
    """The object of a .json file."""
    try:
        study = parsed_json(path.read_bytes())
    except OSError as error:
        raise DataFormatError(f"{path}: {reason_of(error)}.") from None
    except ValueError:
        study = None
    if not isinstance(study, dict):
        raise DataFormatError(f"{path}: must be an object of JSON, as in {example}.")
    return study


def check_release(name: str, model: Any, fit: PrivateEstimator, *, public: bool) -> None:
    """Check that a model may be the prior of a fit.

    Args:
        name: of the parameter that holds it.
        model: a fitted estimator.
        fit: the estimator that is to be fitted.
        public: whether the data behind the model are said to be public.

    Raises:
        ParameterError: for a dry run, a model without a guarantee for its persons, or one of the same data set.
        PrivacyError: for a file whose releases cost more than the epsilon that it states.
    """
    statement = model.privacy_
    statement.verify()
    if statement.dry_run:
        raise ParameterError(f"{name} must be a fit, and not a dry run: its rows are synthetic.")
    public = public or statement.published
    if not (statement.private or public):
        raise ParameterError(
            f"{name} must be a private model, or its data said to be public by public_prior=, or by public= where "
            "they were fitted: without secret noise it may reveal everything about them."
        )
    dataset = Run.current().dataset
    kin = _kin(statement.charge)
    again = any(f"{_EARLIER} of data set {dataset!r}," in said for said in statement.public)
    if kin == "same" or (not public and (again or kin == "namesake")):
        raise ParameterError(
            f"{name} must come from other people than dataset={dataset!r}: it is a release of this data set. Fit "
            "once with the whole budget, or take a public model."
        )


def told(model: Any, fit: PrivateEstimator, *, public: bool) -> str:
    """Where a prior comes from, and what it cost whom, in words, for the statement of a fit; as in `check_release`.

    A prior that had a private prior of its own contributes the words of its own statement as well.
    """
    past = model.privacy_
    behind = "".join(f"; behind it there is another: {said}" for said in past.public if _EARLIER in said)
    charged = f" of data set {past.charge.dataset!r}" if past.charge is not None else ""
    if public or past.published:
        # Data that a ledger counts may be those of a later fit, whatever is said of this one.
        return f"{_EARLIER}{charged}, {_PUBLIC}{behind}" if charged else f"{_PUBLIC}{behind}"
    sums = f"epsilon = {rounded_up(past.epsilon + fit.epsilon)}, delta = {past.delta + fit.delta:.6g}"
    both = f"a person in both data sets has the guarantee {sums}"
    if _kin(past.charge) == "disjoint":
        both = "according to the ledger, both data sets are disjoint parts of one data set"
    return (
        f"{_EARLIER}{charged}, with the guarantee for each {past.unit} behind it of epsilon = "
        f"{rounded_up(past.epsilon)}, delta = {past.delta:g}; {both}{behind}"
    )


def _kin(charge: ChargeFacts | None) -> str:
    """Whether the people of an earlier charge are those of the run's ("same"), others ("disjoint"), or "unknown".

    Parts of a data set share no unit: a ledger that holds both as parts of one was told so before either was charged.
    A data set of that name in another ledger is a "namesake".
    """
    run = Run.current()
    ledger, dataset = run.ledger, run.dataset
    if charge is None or ledger is None or dataset is None:
        return "unknown"
    with runs.opened(ledger) as book:
        whole = {one.name: one.part_of for one in book.datasets()} if book.uuid == charge.ledger else {}
    if charge.dataset == dataset:
        return "same" if whole else "namesake"
    own, other = whole.get(dataset), whole.get(charge.dataset)
    if dataset == other or charge.dataset == own:
        return "same"
    return "disjoint" if own is not None and own == other else "unknown"
