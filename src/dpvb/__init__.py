"""Differentially private variational Bayes.

import dpvb
model = dpvb.LDA(20, epsilon=1.0, delta=1e-5, vocabulary=words).fit(documents)
print(model.privacy_)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dpvb.guards.version import __version__ as __version__

if TYPE_CHECKING:
    from dpvb import accounting as accounting
    from dpvb import audit as audit
    from dpvb import data as data
    from dpvb import federated as federated
    from dpvb.core.blocks import Block as Block
    from dpvb.core.estimate import Estimate as Estimate
    from dpvb.core.forms import Gram as Gram
    from dpvb.core.forms import GramOfSums as GramOfSums
    from dpvb.core.forms import Kron as Kron
    from dpvb.core.forms import MeasuredRows as MeasuredRows
    from dpvb.core.forms import Rows as Rows
    from dpvb.core.forms import ScaledRows as ScaledRows
    from dpvb.core.forms import SparseRows as SparseRows
    from dpvb.core.model import Schedule as Schedule
    from dpvb.data.tables.schema import Schema as Schema
    from dpvb.data.tables.table import Table as Table
    from dpvb.estimators import *  # noqa: F403
    from dpvb.estimators.choosing import private_range as private_range
    from dpvb.estimators.choosing import private_select as private_select
    from dpvb.estimators.planned import plan as plan
    from dpvb.ledger import Ledger as Ledger
    from dpvb.models.base import Model as Model
    from dpvb.models.regression.descent import FixedCurvature as FixedCurvature
    from dpvb.results.synthetic import combine_synthetic as combine_synthetic
    from dpvb.runs.run import Run as Run

_ROOMS = ("accounting", "audit", "data", "errors", "federated", "kernels", "testing")
# Names are imported on first use, so that `import dpvb` stays light; what is not here is a kind of estimator.
_HOMES = {
    "Block": "dpvb.core.blocks",
    "Estimate": "dpvb.core.estimate",
    "FixedCurvature": "dpvb.models.regression.descent",
    "Gram": "dpvb.core.forms",
    "GramOfSums": "dpvb.core.forms",
    "Kron": "dpvb.core.forms",
    "Ledger": "dpvb.ledger",
    "MeasuredRows": "dpvb.core.forms",
    "Model": "dpvb.models.base",
    "Rows": "dpvb.core.forms",
    "Run": "dpvb.runs.run",
    "ScaledRows": "dpvb.core.forms",
    "Schedule": "dpvb.core.model",
    "Schema": "dpvb.data.tables.schema",
    "SparseRows": "dpvb.core.forms",
    "Table": "dpvb.data.tables.table",
    "combine_synthetic": "dpvb.results.synthetic",
    "plan": "dpvb.estimators.planned",
    "private_range": "dpvb.estimators.choosing",
    "private_select": "dpvb.estimators.choosing",
}


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"dpvb.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__all__":
        return sorted([*_ROOMS, *_HOMES, *_kinds()])
    if not name.startswith("_") and (kind := _kinds().get(name)) is not None:
        return kind
    raise AttributeError(f"module 'dpvb' has no attribute {name!r}")


def _kinds() -> dict[str, Any]:
    """Estimators by name, and what is read and written with them."""
    home = import_module("dpvb.estimators")
    return {name: value for name, value in vars(home).items() if callable(value)}


def __dir__() -> list[str]:
    return sorted(["__version__", *__getattr__("__all__")])
