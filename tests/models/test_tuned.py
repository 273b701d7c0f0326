"""Numbers that were tuned stand in one table a family, each with its meaning and verdict, and in no function."""

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

#: The first word of the comment of a constant that was ablated: `docs/decisions.md`, 31.
VERDICTS = ("derived", "convention", "kept")
#: Constants without a verdict, of families that were not ablated yet. A number may only fall.
NOT_ABLATED = {
    "estimators": 63,
    "models": 9,
    "belief_network": 17,
    "factors": 34,
    "gradients": 21,
    "mixtures": 40,
    "sequences": 82,
    "topics": 28,
}
#: Constants of the regressions' table, and those of them that nothing derives and no convention gives.
MOST_OF_REGRESSIONS, MOST_KEPT = 75, 42


def constants(path: Path) -> list[tuple[str, str]]:
    """Each statement of a module that gives a name to numbers, with the comment on it or above it."""
    text = path.read_text()
    lines, found = text.splitlines(), []
    numeric = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            nodes = list(ast.walk(statement.value))
            values = [node.value for node in nodes if isinstance(node, ast.Constant)]
            numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
            if numbers and len(numbers) == len(values) and all(isinstance(node, numeric) for node in nodes):
                above, first = [], statement.lineno - 2
                while first >= 0 and lines[first].startswith("#"):
                    above.append(lines[first])
                    first -= 1
                found.append((lines[statement.lineno - 1], " ".join([*above, lines[statement.lineno - 1]])))
    return found


def has_verdict(comment: str) -> bool:
    return any(f"# {verdict}: " in comment for verdict in VERDICTS)


def test_a_constant_has_a_verdict_or_its_family_is_still_to_be_ablated() -> None:
    without: dict[str, list[str]] = {}
    for folder in ("models", "estimators"):
        for path in sorted((MODELS.parent / folder).rglob("*.py")):
            parts = path.relative_to(MODELS.parent).parts
            family = parts[1] if folder == "models" and len(parts) > 2 else folder
            new = [f"{path.name}: {line}" for line, comment in constants(path) if not has_verdict(comment)]
            without[family] = without.get(family, []) + new
    beyond = {name: lines for name, lines in without.items() if len(lines) > NOT_ABLATED.get(name, 0)}
    assert beyond == {}, "a constant of a model says derived, convention or kept, or goes"


def test_the_regressions_have_few_constants() -> None:
    table = constants(MODELS / "regression" / "tuned.py")
    assert len(table) <= MOST_OF_REGRESSIONS
    assert sum("# kept: " in comment for _, comment in table) <= MOST_KEPT


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
