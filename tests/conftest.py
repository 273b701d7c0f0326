"""Settings that all tests share: repeatable property tests, and one thread unless a test asks for more."""

from __future__ import annotations

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")

from hypothesis import settings  # noqa: E402

settings.register_profile("everyday", deadline=None, derandomize=True, max_examples=50, database=None)
settings.load_profile("everyday")
