"""Puts the version into a wheel, where `dpvb.guards.version` reads it; hatchling calls it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BuiltVersion(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the file `dpvb/guards/built.txt` to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the file; an editable installation asks the source tree instead."""
        if self.target_name == "wheel" and version != "editable":
            path = Path(tempfile.mkdtemp()) / "built.txt"
            path.write_text(f"{self.metadata.version}\n", "ascii")
            build_data["force_include"][str(path)] = "dpvb/guards/built.txt"
