"""Queries and models that worker processes import: one that waits to be killed, and some that fail."""

from __future__ import annotations

import os
import stat
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpvb.core.forms import Rows

SECRET = "4711-private-4711"


@dataclass(frozen=True)
class Waiting:
    """A model whose E-step, the first time that it is asked in one of several processes, waits for its end.

    It leaves its process number in a file, by which whoever is to kill it finds it.
    """

    model: Any
    flag: Path
    driver: int

    @property
    def blocks(self) -> Any:
        return self.model.blocks

    def init(self, rng: Any) -> Any:
        return self.model.init(rng)

    def started(self, s: Any, q: Any) -> Any:
        return self.model.started(s, q)

    def m_step(self, s: Any, q: Any) -> Any:
        return self.model.m_step(s, q)

    def finished(self, s: Any, q: Any) -> Any:
        return self.model.finished(s, q)

    def e_step(self, q: Any, batch: Any, blocks: Mapping[str, Any]) -> Any:
        statistics = self.model.e_step(q, batch, blocks)
        if os.getpid() != self.driver:
            wait_once(self.flag)
        return statistics


def wait_once(flag: Path) -> None:
    """Write the number of this process to a file and wait, if no process has done so before."""
    with suppress(FileExistsError):
        descriptor = os.open(flag, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)
        time.sleep(60)


def powers(parts: Mapping[int, Any], told: Path, own: Mapping[int, Any]) -> tuple[Path, Any]:
    """Two to the power of each part's number, added; where the flag of `added_after_waiting` is."""
    return told, np.array([sum(2**part for part in parts)])


def added_after_waiting(total: tuple[Path, Any], one: tuple[Path, Any]) -> tuple[Path, Any]:
    """The first process that adds two answers waits for its end."""
    wait_once(total[0])
    return total[0], total[1] + one[1]


@dataclass(frozen=True)
class Failing:
    """A query that fails in every way, with a secret in all that it says."""

    how: str

    def __call__(self, rows: Any) -> Any:
        warnings.warn(SECRET, stacklevel=1)
        if self.how == "chained":
            try:
                raise ValueError(SECRET)
            except ValueError as error:
                raise RuntimeError(f"{SECRET} {rows!r}") from error
        if self.how == "exit":
            os._exit(3)
        if self.how == "shape":
            return {}
        raise MemoryError(SECRET)


@dataclass(frozen=True)
class Scribbling:
    """A query that, the first time that it is asked, writes to all pipes of its process."""

    flag: Path
    written: bytes
    driver: int

    def __call__(self, rows: Any) -> Any:
        if os.getpid() != self.driver and not self.flag.exists():
            self.flag.touch()
            for descriptor in range(3, 32):
                with suppress(OSError):
                    if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                        os.write(descriptor, self.written)
        return {"a": Rows(np.nan_to_num(rows.x_nd[:, :1]))}


@dataclass(frozen=True)
class Named:
    """A statistic that names its unit: one at the place of its first feature among all."""

    x_n: Any

    def __call__(self, rows: Any) -> Any:
        x_n = np.where(np.isnan(self.x_n), np.inf, self.x_n)
        return {"one": Rows((rows.x_nd[:, :1] == x_n[None, :]).astype(np.float64))}


def ones(rows: Any) -> Any:
    """One for each row."""
    return {"a": Rows(np.ones((rows.num_rows, 1)))}


class Unpackable:
    """Something that arrives, but cannot be unpacked: its reason holds a secret."""

    blocks: Mapping[str, Any] = {}

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        return unpack, (SECRET,)


def unpack(text: str) -> None:
    raise ValueError(text)


class Unpicklable:
    """Something that cannot be sent at all."""

    def __reduce__(self) -> Any:
        raise ValueError(SECRET)
