"""How far a fit has come: a line of steps in a notebook, and a note of an interruption by Ctrl-C.

Steps are public. `counted` and `Run` say what an interrupted fit cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dpvb.core.plan import Plan

# The line changes at most so often, at steps that only the plan decides.
_TIMES = 50


def notebook_line() -> Callable[[int, Plan], object]:
    """Callback of a fit after each release, with (step, plan): in a notebook one line that is written anew.

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


Progress = Callable[[int, Plan], object]


@contextmanager
def told_how_far(progress: Progress | None) -> Iterator[Progress]:
    """Callback of a fit after each release, with (step, plan); a KeyboardInterrupt out of the block gets a public note.

    Args:
        progress: is called in turn; None: a notebook shows a line, and nothing else is told.
    """
    made, total = 0, 0
    progress = notebook_line() if progress is None else progress

    def tell(step: int, plan: Plan) -> None:
        nonlocal made, total
        made, total = step, len(plan)
        progress(step, plan)

    try:
        yield tell
    except KeyboardInterrupt as error:
        costs = getattr(error, "__notes__", [])
        if made:
            far = f"Stopped after {made} of {total} releases."
        else:
            far = "Stopped before the first release." if costs else "Stopped before anything was charged or released."
        if made and not costs:  # For a run that has ended.
            costs = [
                "All of them are spent. If the fit has a checkpoint, the same call with resume='load' restores the "
                "model."
            ]
        error.__notes__ = [far, *costs]
        raise
