"""`dpvb fit NAME --rehearse`: the same call on made-up rows, which reads no private row and spends nothing."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpvb.cli import files
from dpvb.cli.terminal import echo, progress_bar, remark, spent
from dpvb.guards.errors import ParameterError

if TYPE_CHECKING:
    from dpvb.core.plan import Plan
    from dpvb.estimators.base import PrivateEstimator
    from dpvb.runs.run import Run

_MARK = "REHEARSAL on made-up rows: what follows says nothing about anybody.\n"


def rehearse(model: PrivateEstimator, given: Mapping[str, Any], run: Run, *, quiet: bool) -> None:
    """Fit made-up rows, print what a fit would show, how long it took, and what the fit will cost."""
    from dpvb.estimators.synthetic_rows import NUM_ROWS

    columns = _declared(str(model.reads), given)
    plans: list[Plan] = []
    start = time.perf_counter()
    with progress_bar(model.epsilon, model.delta, quiet=quiet, label="rehearsal") as tell:

        def told(step: int, plan: Plan) -> None:
            plans[:] = [plan]
            tell(step, plan)

        fitted: Any = model.rehearse(**columns, run=replace(run, progress=told))
    seconds = time.perf_counter() - start
    if getattr(fitted, "coef_std_", None) is not None:
        echo(_MARK)
        echo(fitted.summary())
    number = model.num_examples or NUM_ROWS
    remark(
        f"rehearsal: {number:,} made-up {fitted.privacy_.unit}s took {seconds:.1f} s on this machine (--num-examples, "
        "a public number, makes up as many). No row was read, nothing was spent or written."
    )
    if not Path(given["data"]).exists():
        remark(f"{given['data']}: there is no such file, so that the fit will be refused.")
    remark(f"The fit itself: {spent(fitted)}.")
    if run.ledger is not None and math.isfinite(model.epsilon):
        from dpvb.runs.run import opened

        with opened(run.ledger) as ledger:
            remark(f"The ledger: {ledger.quote(plans[0], dataset=run.dataset)}")


def _declared(form: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a call says of the columns, without a look at the data; of a matrix its header says how many there are."""
    from dpvb.data import Schema, check_vocabulary
    from dpvb.data.documents.vocabulary import PRIVATE

    if form == "documents":
        if str(given["vocabulary"]) == PRIVATE:
            return {"grouped": given["group_column"] is not None}
        if given["vocabulary"] is None and given["width"] is None:
            raise ParameterError(
                "--rehearse opens no documents and needs the columns: --vocabulary, or --width, the number of words."
            )
        words = None if given["vocabulary"] is None else check_vocabulary(given["vocabulary"])
        return {"vocabulary": words, "width": given["width"], "grouped": given["group_column"] is not None}
    if form == "sequences":
        return {"grouped": True}
    if given.get("schema") is not None:
        return {"schema": Schema.load(given["schema"])}
    if form == "labelled" and given["vocabulary"] is not None:
        return {"vocabulary": check_vocabulary(given["vocabulary"])}
    if form in ("table", "labelled"):
        raise ParameterError("--rehearse needs what the fit needs: --schema.")
    if form == "rows" and given["target"] is None:
        raise ParameterError("--rehearse needs what the fit needs: --schema for a table, or --target for a matrix.")
    return {"width": files.matrix_width(Path(given["data"])), "grouped": given["group"] is not None}
