"""The house plan, checked on the source: who imports whom, who may draw, how long a model is."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import dpvb

ROOT = Path(dpvb.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module(path: Path) -> str:
    """Room of a file: "core", "models", "accounting", ..."""
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


@cache
def imports(path: Path) -> frozenset[str]:
    """Rooms of this package that a file imports, at its top or inside functions."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "dpvb" and len(parts) > 1:
                room = parts[1]
                if (ROOT / room).exists() or (ROOT / f"{room}.py").exists():
                    found.add(room)
    return frozenset(found)


def rooms(*names: str) -> Iterator[Path]:
    return (path for path in FILES if module(path) in names)


def core(*names: str) -> Iterator[Path]:
    return (ROOT / "core" / f"{name}.py" for name in names)


#: Behind the wall or about it: what is computed there draws nothing and divides by no size.
PURE = [*core("wall", "blocks", "clipped_sums", "forms", "grids", "plan", "sampling")]
# A room may import those that stand on lines before its own, and nothing else of the package.
ORDER = [
    {"guards"},
    {"kernels", "accounting", "rows", "sample", "errors"},
    {"data", "core"},
    {"models", "cluster", "ledger", "results"},
    {"runs", "papers"},
    {"estimators"},
    {"audit", "federated"},
    {"__init__", "testing"},
    {"cli"},
]
SHARED = (
    "guards.arrays",
    "core.blocks",
    "core.estimate",
    "core.forms",
    "core.model",
    "kernels",
)
SHARED += ("models.expfam", "models.empirical_bayes", "models.base", "rows")
# What is declared of a response is public.
DECLARED = ("guards", "data.tables.response")


@cache
def imported(path: Path) -> frozenset[str]:
    """Dotted names of this package that a file imports, without the package's own."""
    return frozenset(imported_of(ast.walk(tree(path))))


def imported_of(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.removeprefix("dpvb.") for alias in node.names if alias.name.startswith("dpvb."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dpvb":
            home = (node.module or "").removeprefix("dpvb").lstrip(".")
            yield from (f"{home}.{alias.name}".lstrip(".") for alias in node.names)


def test_every_room_has_its_place_in_the_order() -> None:
    assert {module(path) for path in FILES} == set().union(*ORDER)


@pytest.mark.parametrize("room", sorted({module(path) for path in FILES}))
def test_a_room_imports_what_stands_before_it(room: str) -> None:
    place = next(number for number, line in enumerate(ORDER) if room in line)
    for path in rooms(room):
        assert imports(path) - {room} <= set().union(*ORDER[:place]), path


def test_no_files_import_each_other_in_a_circle() -> None:
    """At their tops or inside functions; what is imported for its type alone ties nothing."""
    files = {str(path.relative_to(ROOT).with_suffix("")).replace("/", "."): path for path in FILES}
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        nodes = [*ast.walk(tree(path))]
        for node in nodes:
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                typed = {inner for line in node.body for inner in ast.walk(line)}
                nodes = [one for one in nodes if one not in typed]
        texts = set(imported_of(nodes))
        found[name] = {text if text in files else text.rpartition(".")[0] for text in texts} & (set(files) - {name})
    while leaves := {name for name, others in found.items() if not others & set(found)}:
        found = {name: others for name, others in found.items() if name not in leaves}
    assert found == {}


def test_a_family_of_models_knows_no_other_family_and_no_wall() -> None:
    for path in rooms("models"):
        family = ".".join(path.relative_to(ROOT).parts[:2])
        for name in imported(path):
            assert name.startswith((*SHARED, *DECLARED, family)), f"{path}: {name}"


def test_nothing_imports_the_papers() -> None:
    """Tests, benchmarks and the audit's cases alone run a published algorithm that a default beats."""
    for path in FILES:
        if module(path) not in ("papers", "audit"):
            assert "papers" not in imports(path), path


def test_models_take_the_type_of_the_estimate_and_nothing_else() -> None:
    for path in rooms("models"):
        for name in imported(path):
            if name.startswith("core.estimate"):
                assert name == "core.estimate.Estimate", path


def test_only_those_who_fit_know_walls_and_data() -> None:
    """Who may hold private data and a wall at once: estimators, the command line, the audit with its own."""
    for path in FILES:
        names = set(imported(path))
        if any(name.startswith("core.wall") for name in names) and any(name.startswith("data") for name in names):
            assert module(path) in ("estimators", "cli", "audit"), path


def test_the_audit_looks_from_outside() -> None:
    """It may call whatever it likes, the estimators as users do; of what is audited, nothing calls it."""
    for path in rooms("audit"):
        for name in imported(path):
            if name.startswith("estimators"):
                assert not name.rpartition(".")[2].startswith("_"), path


@cache
def attributes(path: Path) -> tuple[tuple[str, int], ...]:
    """Every dotted name in a file, with its line."""
    return tuple(attributes_of(path))


def attributes_of(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute):
            yield ast.unparse(node), node.lineno
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module_name = getattr(node, "module", None) or ""
            for alias in node.names:
                yield f"{module_name}.{alias.name}".lstrip("."), node.lineno


def test_random_generators_stay_in_their_places() -> None:
    """Generators that are not cryptographic: public starts and tries, resampled documents, made-up records."""
    allowed = {
        "core/loop.py": {"np.random.Generator", "np.random"},
        "core/model.py": {"np.random.Generator", "np.random"},
        "models/regression/first_order.py": {"np.random.Generator", "np.random"},
        "models/topics/lda.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "estimators/hidden_markov.py": {"np.random.Generator", "np.random"},
        "estimators/lda.py": {"np.random.Generator", "np.random"},
        "estimators/sequences.py": {"np.random.Generator", "np.random"},
        "estimators/synthetic_rows.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "estimators/base.py": {"np.random.RandomState", "np.random.default_rng", "np.random.Generator", "np.random"},
        "models/empirical_bayes.py": {"np.random.default_rng", "np.random"},
        "models/sequences/linear_posterior.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "models/mixtures/components.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "models/gradients/variational.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "models/gradients/numpyro_model.py": {"np.random.default_rng", "np.random"},
        "sample/__init__.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        "federated/client.py": {"np.random.default_rng", "np.random"},
        "federated/server.py": {"np.random.Generator", "np.random"},
        "federated/simulation.py": {"np.random.default_rng", "np.random"},
        "federated/transport.py": {"np.random.Generator", "np.random"},
        "results/metrics.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
        # A fixed public seed: a released table gives one estimate.
        "models/sequences/errors.py": {"np.random.Generator", "np.random.default_rng", "np.random"},
    }
    start = {"np.random.Generator", "np.random"}  # what a model's `init` is given
    usual = {
        "models": start,
        "papers": start,
        "audit": {"np.random.default_rng", *start},
    }  # the audit draws made-up records
    for path, name in zip(FILES, NAMES, strict=True):
        own = allowed.get(name, usual.get(module(path), set()))
        for dotted, line in attributes(path):
            if dotted.startswith(("np.random", "numpy.random", "random.")):
                assert ".".join(dotted.split("(")[0].split(".")[:3]) in own, f"{name}:{line}"
    for path in [*PURE, *core("noise"), *rooms("kernels", "data")]:
        assert "random." not in path.read_text().replace("np.random.Generator", ""), path


def test_nothing_divides_by_a_realised_size() -> None:
    """Past the wall there are no sizes: no len(batch), no mean, no average of private things."""
    texts = {str(path): path.read_text() for path in (*PURE, *core("loop"))}
    for path in rooms("models", "papers"):  # an M-step may average what was released
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef) and "batch" in [argument.arg for argument in node.args.args]:
                texts[f"{path}:{node.name}"] = ast.unparse(node)
    assert any(place.endswith(":e_step") for place in texts)
    for place, text in texts.items():
        for word in ("len(batch)", ".mean(", "np.mean", "np.average", "num_units /", "/ num_units", "/ len("):
            assert word not in text, f"{place}: {word}"


def test_nothing_behind_the_wall_prints_or_logs() -> None:
    for path in rooms("core", "models", "papers", "kernels", "data", "cluster"):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("print", "warnings.warn", "warn"), f"{path}:{node.lineno}"
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                assert "logging" not in ast.unparse(node), path


def test_the_wall_is_the_only_caller_of_contributions() -> None:
    for path in FILES:
        # The scores of a mixture are rows, one component after another; weights of persons are made of expected norms.
        models = ROOT / "models" / "mixtures" / "mixture.py", ROOT / "models" / "regression" / "persons.py"
        own = ROOT / "audit" / "neighbours.py", *models
        if path in (*core("clipped_sums", "forms"), *own):
            continue
        for dotted, line in attributes(path):
            assert dotted.startswith(("np.", "kernel.")) or not dotted.endswith((".norms", ".accumulate")), (
                f"{path}:{line}"
            )


def test_the_wall_alone_has_the_seal() -> None:
    for path in FILES:
        if path not in core("wall", "released"):
            assert "core.released.SEAL" not in set(imported(path)), path
            assert not any(dotted.endswith("released.SEAL") for dotted, _ in attributes(path)), path


def test_only_federated_runs_take_parts_of_sums() -> None:
    """What `Wall.share` lets go may lack noise or be masked: clients alone take it, and servers gather it."""
    for path in FILES:
        for dotted, line in attributes(path):
            if dotted.endswith(("wall.share", "wall.gathered")):
                assert module(path) in ("federated", "core"), f"{path}:{line}"


def test_models_have_a_symbol_table() -> None:
    for path in rooms("models", "papers"):
        text = path.read_text()
        if path.name in ("__init__.py", "base.py") or "def m_step" not in text:
            continue
        docstring = ast.get_docstring(ast.parse(text)) or ""
        assert "paper" in docstring, path
        assert "code" in docstring, path


def test_no_room_is_a_heap() -> None:
    for path in FILES:
        assert path.stem not in ("utils", "util", "helpers", "common", "misc"), path
        assert "TODO" not in path.read_text(), path
        assert "FIXME" not in path.read_text(), path


def test_the_noise_has_no_seed_outside_tests() -> None:
    """Nor outside the audit, where repeatable noise cancels between neighbours."""
    for path in FILES:
        if path != ROOT / "core" / "noise.py" and module(path) != "audit":
            assert "InsecureNoise" not in path.read_text(), path


@pytest.mark.parametrize(
    ("room", "also", "most"),
    [
        ("dpvb", ("typer",), 100),
        ("dpvb.accounting", ("scipy", "typer"), 160),
        ("dpvb.cli", ("scipy", "dpvb.accounting", "dpvb.data", "dpvb.ledger", "dpvb.estimators"), 230),
    ],
)
def test_importing_is_light(room: str, also: tuple[str, ...], most: int) -> None:
    """What an import must not bring along, and how many modules it may load beside those of NumPy and SciPy."""
    heavy = ["numba", "dp_accounting", "mpmath", "sklearn", "pyarrow", "matplotlib", "scipy.stats", "pandas"]
    heavy += ["jax", "numpyro", "rich", "jinja2", *also]
    code = f"import sys, {room}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded & set(heavy) == set()
    assert sum(name.partition(".")[0] not in ("numpy", "scipy") for name in loaded) <= most


def test_a_first_fit_brings_no_corner_that_it_does_not_need() -> None:
    """What scikit-learn's base imports is its own affair; beyond that a new process waits for nothing."""
    heavy = [
        "dp_accounting",
        "matplotlib",
        "jinja2",
        "typer",
        "rich",
        "jax",
        "distributed",
        "starlette",
        "uvicorn",
        "httpx",
        "psycopg",
    ]
    heavy += ["sklearn.ensemble", "sklearn.model_selection", "sklearn.linear_model", "sklearn.metrics", "sklearn.svm"]
    heavy += ["sklearn.preprocessing", "sklearn.decomposition", "scipy.signal", "scipy.io", "scipy.cluster"]
    heavy += ["dpvb.audit", "dpvb.federated", "dpvb.cli", "dpvb.sample", "dpvb.estimators.choosing"]
    code = (
        "import sys, dpvb; dpvb.LogisticRegression(epsilon=1.0, delta=1e-6, low=0, high=1).fit([[0.2], [0.4]], [0, 1]);"
        "dpvb.LDA, dpvb.Mixture, dpvb.MarkovChain, dpvb.PCA, dpvb.LinearRegression;"
        f"print(*(name for name in {heavy!r} if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_only_small_parts_of_scipy_and_scikit_learn_are_imported_at_the_top() -> None:
    """The others cost a tenth of a second and more each: whoever needs them imports them where they are called."""
    small = ("scipy.sparse", "scipy.special", "scipy.linalg", "scipy.optimize", "scipy.fft")
    small += ("sklearn.base", "sklearn.exceptions", "sklearn.utils.metaestimators", "sklearn.utils.validation")
    for path in FILES:
        for node in tree(path).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("scipy", "sklearn"):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                assert all(name.startswith(small) for name in names), f"{path}: {names}"
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] in ("scipy", "sklearn") for alias in node.names), path


#: The documented modules of what carries messages; of Flower, for its app, which is no part of the package.
DOCUMENTED = {"httpx", "uvicorn"}
DOCUMENTED |= {f"starlette.{name}" for name in ("requests", "responses", "types")}
OF_FLOWER = {"flwr.app", "flwr.clientapp", "flwr.serverapp"}


def test_no_private_module_of_another_package_is_imported() -> None:
    """None whose name says so, and of packages that carry messages none but the documented ones."""
    app = ROOT.parents[1] / "flower" / "dpvb_flower" / "__init__.py"
    for path in (*FILES, app):
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                first, *others = name.split(".")
                if first in ("dpvb", "__future__"):
                    continue
                assert not any(part.startswith("_") for part in (first, *others)), f"{path}: {name}"
                if first in ("httpx", "uvicorn", "starlette", "flwr"):
                    assert name in (DOCUMENTED | OF_FLOWER if path == app else DOCUMENTED), f"{path}: {name}"
