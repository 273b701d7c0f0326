"""Binary vectors, such as images of two colours."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: Zeros and ones in single precision, (n, J); a faulty row is NaN throughout.
BinaryRows: TypeAlias = NDArray[np.float32]
