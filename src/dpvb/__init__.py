"""Differentially private variational Bayes.

import dpvb
model = dpvb.LDA(20, epsilon=1.0, delta=1e-5, vocabulary=words).fit(documents)
print(model.privacy_)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpvb import accounting, audit, data, federated
    from dpvb.choosing.ranges import private_range
    from dpvb.choosing.select import select
    from dpvb.estimators.base import load
    from dpvb.estimators.dpvi import DPVI
    from dpvb.estimators.lda import LDA
    from dpvb.estimators.regression import BinomialRegression, LogisticRegression, NegativeBinomialRegression
    from dpvb.estimators.sbn import SigmoidBeliefNetwork
    from dpvb.ledger import Ledger

__version__ = "0.2.0"
__all__ = [
    "DPVI",
    "LDA",
    "BinomialRegression",
    "Ledger",
    "LogisticRegression",
    "NegativeBinomialRegression",
    "SigmoidBeliefNetwork",
    "accounting",
    "audit",
    "data",
    "federated",
    "load",
    "private_range",
    "select",
]

# Names are imported on first use, so that `import dpvb` stays light.
_HOMES = {
    "DPVI": "dpvb.estimators.dpvi",
    "LDA": "dpvb.estimators.lda",
    "SigmoidBeliefNetwork": "dpvb.estimators.sbn",
    "BinomialRegression": "dpvb.estimators.regression",
    "LogisticRegression": "dpvb.estimators.regression",
    "NegativeBinomialRegression": "dpvb.estimators.regression",
    "Ledger": "dpvb.ledger",
    "load": "dpvb.estimators.base",
    "private_range": "dpvb.choosing.ranges",
    "select": "dpvb.choosing.select",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"dpvb.{name}")
    raise AttributeError(f"module 'dpvb' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
