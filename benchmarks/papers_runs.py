"""Long runs of the papers' algorithms: each is a line of papers_runs.jsonl, so that a stopped benchmark resumes."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

RUNS = Path(__file__).with_suffix(".jsonl")


def key(run: Mapping[str, Any]) -> str:
    """The settings of a run as one text."""
    return json.dumps(run, sort_keys=True)


def remembered(run: Mapping[str, Any], perform: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """The result of `perform(**run)`, from the file if the run was made before; else it is performed and appended.

    With the environment variable DPVB_CACHED a run that was not made has no result.
    """
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    for line in map(json.loads, lines):
        if key(line["run"]) == key(run):
            return dict(line["result"])
    if "DPVB_CACHED" in os.environ:
        return {}
    result = perform(**run)
    with RUNS.open("a") as file:
        file.write(json.dumps({"run": run, "result": result}) + "\n")
    return result
