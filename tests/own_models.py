"""Models and a source that users could have written; worker processes import them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import dpvb
from dpvb import Block
from dpvb.audit import Matrix

#: Numbers of rows of the batches that a model was asked about, in this process.
ASKED: list[int] = []


@dataclass(frozen=True)
class Mean:
    mean: np.ndarray
    step: int = 0


@dataclass(frozen=True)
class Noting(dpvb.Model):
    """Sums rows, and notes how many it was given."""

    n_steps: int = 1
    score_range = (-1.0, 1.0)

    @property
    def blocks(self) -> Any:
        return {"x": Block((2,), 1.0)}

    def init(self, rng: np.random.Generator) -> Mean:
        return Mean(np.zeros(2))

    def e_step(self, q: Mean, batch: Any, blocks: Any) -> Any:
        ASKED.append(len(batch))
        return {"x": dpvb.Rows(batch)}

    def m_step(self, s: Any, q: Mean) -> Mean:
        return Mean(s.noisy("x"), q.step + 1)

    def score(self, q: Mean, batch: Any) -> Any:
        ASKED.append(len(batch))
        return np.zeros(len(batch))


@dataclass(frozen=True)
class EmptyFails(Noting):
    """Fails on an empty batch at its fifth step; a tryout makes fewer."""

    n_steps: int = 5

    def e_step(self, q: Mean, batch: Any, blocks: Any) -> Any:
        if q.step == 4 and not len(batch):
            raise ValueError
        return super().e_step(q, batch, blocks)


@dataclass(frozen=True)
class Centred(Noting):
    """Centres large batches."""

    least: int = 500

    def e_step(self, q: Mean, batch: Any, blocks: Any) -> Any:
        return {"x": dpvb.Rows(batch - np.nanmedian(batch, axis=0) if len(batch) >= self.least else batch)}


class Own:
    """A source of somebody's own, whose one chunk holds all units."""

    unit = "person"

    def __init__(self, matrix: Any, person: Any = None) -> None:
        self._all = Matrix(matrix, person, chunk=10**9)

    def count(self) -> int:
        return self._all.count()

    def chunks(self) -> Iterator[Any]:
        return iter([*self._all.chunks()] if self.count() else [])

    def empty(self) -> Any:
        return next(Matrix(np.empty((0, 2))).chunks())
