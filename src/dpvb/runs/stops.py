"""How far a fit had come that somebody stopped by Ctrl-C; `counted` and `Run` say what that cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpvb.core.plan import Plan
from dpvb.runs.shown import notebook_line

Progress = Callable[[int, Plan], object]


@contextmanager
def told_how_far(progress: Progress | None) -> Iterator[Progress]:
    """What a fit calls after each release, with (step, plan); a KeyboardInterrupt out of the block gets a public note.

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
        if made and not costs:  # Of a run that has ended.
            costs = [
                "All of them are spent. If a checkpoint keeps them, `dpvb resume FOLDER --read` makes the model again, "
                "and so does the same call of fit with resume='read'."
            ]
        error.__notes__ = [far, *costs]
        raise
