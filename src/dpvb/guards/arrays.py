"""Types of arrays, and of the rows that a model is given."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: Rows as a model reads them: what `Model.e_step` is given.
Batch = TypeVar("Batch")
Batch_co = TypeVar("Batch_co", covariant=True)
