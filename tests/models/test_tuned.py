"""Numbers that were tuned stand in one table a family, each with its meaning, and in no function."""

from __future__ import annotations

import ast
from pathlib import Path

from each import each

import dpvb

MODELS = Path(dpvb.__file__).parent / "models"
TABLES = sorted(MODELS.glob("*/tuned.py"))
CODE = "\n".join(path.read_text() for path in MODELS.parent.rglob("*.py"))
# Compiled loops hold coefficients of series.
FILES = [path for path in sorted(MODELS.rglob("*.py")) if not path.stem.startswith(("kernel", "tuned"))]


@each("table", TABLES, ids=lambda path: path.parent.name)
def test_every_number_of_a_table_is_explained_and_used(table: Path) -> None:
    lines = table.read_text().splitlines()
    for statement in ast.parse(table.read_text()).body:
        if not isinstance(statement, ast.Assign):
            continue
        near = lines[statement.lineno - 2 : statement.lineno]
        assert any("# " in line for line in near), near
        for name in (node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)):
            assert f"tuned.{name}" in CODE, name


@each("path", FILES, ids=lambda path: str(path.relative_to(MODELS)))
def test_no_function_holds_a_tuned_number(path: Path) -> None:
    """Quarters are mathematics, and numbers up to a thousandth guard against division by zero; ranges are checks."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        checks = (node for node in ast.walk(function) if isinstance(node, ast.Call) and "check_" in ast.unparse(node))
        ranges = {id(node) for check in checks for node in ast.walk(check)}
        for node in (node for statement in function.body for node in ast.walk(statement)):
            if isinstance(node, ast.Constant) and isinstance(node.value, float) and id(node) not in ranges:
                assert node.value <= 1e-3 or node.value % 0.25 == 0, f"{path}:{node.lineno}: {node.value}"
