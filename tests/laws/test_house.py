"""The structure of the source, counted: rooms, imports, names. No limit counts lines."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from typing import NamedTuple

from test_architecture import ROOT

#: Names that do not say what a value is.
SAY_NOTHING = {"found", "own", "given", "known", "made", "kept", "told"}
#: Largest numbers allowed. To raise one needs a reason in the commit that does it.
LIMITS = {
    "rooms": 20,
    "imports between rooms": 85,
    "files": 281,
    "files with one importer": 53,
    "files with one importer, in its folder": 12,
    "imports inside models.sequences": 32,
    "imports inside models.regression": 39,
    "class names of several classes": 3,
    "assigned names that say nothing": 69,
}


class House(NamedTuple):
    """Modules by name with what each imports; class names with their modules; assigned names with their number."""

    imports: dict[str, set[str]]
    classes: dict[str, list[str]]
    assigned: Counter[str]


@cache
def house() -> House:
    paths = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(("dpvb", *path.relative_to(ROOT).with_suffix("").parts))
        paths[name.removesuffix(".__init__")] = path
    imports: dict[str, set[str]] = {name: set() for name in paths}
    classes: dict[str, list[str]] = defaultdict(list)
    assigned: Counter[str] = Counter()
    for name, path in paths.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                targets = {f"{node.module}.{alias.name}" for alias in node.names} & paths.keys()
                whole = {node.module} if any(f"{node.module}.{a.name}" not in paths for a in node.names) else set()
                imports[name] |= (targets | (whole & paths.keys())) - {name}
            elif isinstance(node, ast.Import):
                imports[name] |= ({alias.name for alias in node.names} & paths.keys()) - {name}
            elif isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in SAY_NOTHING:
                assigned[node.id] += 1
    return House(imports, classes, assigned)


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def folder(module: str) -> str:
    return module.rpartition(".")[0]


def counted() -> dict[str, int]:
    imports, classes, assigned = house()
    pairs = [(module, other) for module, others in imports.items() for other in others]
    importers = Counter(other for _, other in pairs)
    inside = Counter(folder(module) for module, other in pairs if folder(module) == folder(other))
    lone = [other for other in imports if importers[other] == 1]
    return {
        "rooms": len({room(module) for module in imports}),
        "imports between rooms": len({(room(a), room(b)) for a, b in pairs if room(a) != room(b)}),
        "files": len(imports),
        "files with one importer": len(lone),
        "files with one importer, in its folder": sum(
            folder(module) == folder(other) for module, other in pairs if other in lone
        ),
        "imports inside models.sequences": inside["dpvb.models.sequences"],
        "imports inside models.regression": inside["dpvb.models.regression"],
        "class names of several classes": sum(len(homes) > 1 for homes in classes.values()),
        "assigned names that say nothing": sum(assigned.values()),
    }


def test_the_structure_keeps_its_limits() -> None:
    numbers = counted()
    assert numbers.keys() == LIMITS.keys()
    assert {name: (number, LIMITS[name]) for name, number in numbers.items() if number > LIMITS[name]} == {}


def test_no_files_import_each_other_in_a_circle_not_even_for_their_types() -> None:
    left = {module: set(others) for module, others in house().imports.items()}
    while leaves := {module for module, others in left.items() if not others & left.keys()}:
        left = {module: others for module, others in left.items() if module not in leaves}
    while roots := {module for module in left if not any(module in others for others in left.values())}:
        left = {module: others for module, others in left.items() if module not in roots}
    assert sorted(left) == []
