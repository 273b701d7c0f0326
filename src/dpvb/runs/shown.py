"""What a notebook shows of a fit while it runs: a line of steps, which are public; nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from dpvb.core.plan import Plan

# The line changes at most so often, at steps that the plan alone decides.
_TIMES = 50


def notebook_line() -> Callable[[int, Plan], object]:
    """What a fit calls after each release, with (step, plan): in a notebook one line that is written anew.

    IPython is asked only where it is loaded already. Scripts and terminals get silence.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if not hasattr(shell, "kernel"):
        return lambda step, plan: None
    from IPython.display import display

    def line(text: str) -> dict[str, str]:
        return {"text/plain": f"fit: {text}"}

    handle: Any = display(line("nothing is released yet"), raw=True, display_id=True)

    def tell(step: int, plan: Plan) -> None:
        total = len(plan)
        if step == total or step % max(1, total // _TIMES) == 0:
            handle.update(line(f"{step} of {total} releases made"), raw=True)

    return tell
