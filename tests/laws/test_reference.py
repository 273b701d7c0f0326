"""The reference pages are those that the docstrings and help texts give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_reference_is_up_to_date() -> None:
    """`python setup/reference.py` writes it anew."""
    script = [sys.executable, str(ROOT / "setup" / "reference.py"), "--check"]
    ran = subprocess.run(script, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
