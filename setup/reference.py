"""Write the reference pages from docstrings and help texts: `python setup/reference.py`.

The pages are `docs/reference/*.md`. With `--check` it writes nothing, and exits with 1 if a page is not up to date.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any
from unittest.mock import patch

import typer

import dpvb
from dpvb.cli import app
from dpvb.federated import config
from dpvb.federated.keys import Identity
from dpvb.federated.trust import Trust

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
#: Results that users meet.
RESULT_NAMES = (
    *("PrivacyStatement", "CoefficientTable", "Coefficient", "IntervalTable", "PlanSummary"),
    *("Combined", "FidelityTable", "Page", "Report", "Check"),
)
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Examples?):\n", re.MULTILINE)
ARGUMENT = re.compile(r"^([*\w, ]+):")
NOTE = "<!-- Written by setup/reference.py: change the docstring or the help text instead. -->"


def docstring(value: object) -> str:
    """Return an object's own docstring."""
    return inspect.cleandoc(getattr(value, "__doc__", None) or "")


def entries(section: str) -> Iterator[str]:
    """Yield the entries of a section, each on a line of its own."""
    entry: list[str] = []
    for line in section.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and entry:
            yield " ".join(entry)
            entry = []
        if line.strip():
            entry.append(line.strip())
    if entry:
        yield " ".join(entry)


def rendered(text: str) -> str:
    """Return a docstring as Markdown: its sections become lists."""
    parts = SECTION.split(text)
    out = [fenced(parts[0].strip())]
    for title, section in zip(parts[1::2], parts[2::2], strict=True):
        match = re.search(r"^(?=\S)", section, re.MULTILINE)
        body, rest = (section[: match.start()], section[match.start() :]) if match else (section, "")
        out.append(f"**{title}**")
        if title.startswith("Example"):
            out.append(f"```pycon\n{inspect.cleandoc(body)}\n```")
        elif title in ("Returns", "Yields"):
            out.append(" ".join(body.split()))
        else:
            out.append("\n".join("* " + ARGUMENT.sub(r"`\1`:", entry) for entry in entries(body)))
        if rest.strip():
            out.append(fenced(rest.strip()))
    return "\n\n".join(part for part in out if part)


def fenced(text: str) -> str:
    """Return text with its indented lines as blocks of code."""
    return re.sub(
        r"(?:^ {4,}\S.*\n?(?:\n(?= {4}))?)+",
        lambda block: f"```text\n{inspect.cleandoc(block[0])}\n```\n",
        text,
        flags=re.MULTILINE,
    ).strip()


def signature(name: str, value: Callable[..., Any], without: frozenset[str] = frozenset()) -> str:
    """Return a call with its parameters and defaults, one per line."""
    lines, keyword_only = [], False
    try:
        parameters = inspect.signature(value).parameters.values()
    except ValueError:  # A built-in class, such as a dictionary of declared keys.
        return ""
    for parameter in parameters:
        if parameter.name in {"self", "cls", *without}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            lines.append("*")
        kind = "**" if parameter.kind is parameter.VAR_KEYWORD else "*" * (parameter.kind is parameter.VAR_POSITIONAL)
        annotation = parameter.annotation if isinstance(parameter.annotation, str) else "Any"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        default = re.sub(r"<(?:function .*|object object) at 0x\w+>", "...", default)
        lines.append(f"{kind}{parameter.name}: {annotation}{default}")
    if lines and lines[-1] == "*":
        lines.pop()
    body = "".join(f"\n    {line}," for line in lines)
    return f"```text\n{name}({body}{chr(10) if body else ''})\n```"


def members(value: type, hidden: frozenset[str]) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    """Yield public methods and properties that have a docstring, those of the package's bases included."""
    for name, member in inspect.getmembers_static(value):
        if name.startswith("_") or name in hidden:
            continue
        owner = next(base for base in value.__mro__ if name in vars(base))
        is_property = isinstance(member, property)
        function = member.fget if is_property else getattr(value, name, None)
        if (
            owner.__module__.startswith("dpvb.")
            and callable(function)
            and docstring(function)
            and not inspect.isclass(function)
        ):
            yield name, function, is_property


def entry(name: str, value: Any, base: type | None = None) -> str:
    """Return the reference of a class, with its methods, or of a function."""
    shared = base is not None and isinstance(value, type) and issubclass(value, base) and value is not base
    known = frozenset(inspect.signature(base).parameters) if shared and base is not None else frozenset()
    out = [f"## {name}"]
    if callable(value) and not (isinstance(value, type) and issubclass(value, BaseException)):
        out.append(signature(name, value, known))
    out.append(rendered(docstring(value)))
    if shared and base is not None:
        out += inherited(value, base)
    if isinstance(value, type):
        hidden = frozenset(one for one in dir(base) if not one.startswith("_")) if shared else frozenset()
        for method, function, is_property in members(value, hidden):
            out += [f"### {name}.{method}", "" if is_property else signature(method, function)]
            out.append(rendered(docstring(function)))
    return "\n\n".join(part for part in out if part)


def inherited(value: type, base: type) -> Iterator[str]:
    """Yield arguments and attributes that the docstrings of bases below `base` describe, and no class above them."""
    known: set[tuple[str, str]] = set()
    for owner in value.__mro__[: value.__mro__.index(base)]:
        parts = SECTION.split(inspect.cleandoc(vars(owner).get("__doc__") or ""))
        for title, section in zip(parts[1::2], parts[2::2], strict=True):
            if title not in ("Args", "Attributes") or not owner.__module__.startswith("dpvb."):
                continue
            of_owner = {found[1]: one for one in entries(section) if (found := ARGUMENT.match(one))}
            new = {names: one for names, one in of_owner.items() if (title, names) not in known}
            known |= {(title, name) for names in of_owner for name in (names, *names.split(", "))}
            if new and owner is not value:
                yield f"**{title} of `{owner.__name__}`**"
                yield "\n".join("* " + ARGUMENT.sub(r"`\1`:", one) for one in new.values())


def page(title: str, opening: str, parts: list[str]) -> str:
    """Return a page."""
    return "\n\n".join([f"# {title}", NOTE, opening, *parts]).rstrip() + "\n"


def results() -> dict[str, type]:
    """Return the classes of results that users meet, by name."""
    modules = [import_module(module.name) for module in walk_packages(dpvb.results.__path__, "dpvb.results.")]
    found = {name: value for module in modules for name, value in vars(module).items() if name in RESULT_NAMES}
    return {name: value for name, value in found.items() if value.__module__.startswith("dpvb.results.")}


def public(module: ModuleType) -> dict[str, Any]:
    """Return the package's classes and functions that a module exports, by name."""
    found = {name: getattr(module, name) for name in module.__all__}
    return {name: one for name, one in found.items() if inspect.isclass(one) or inspect.isroutine(one)}


def bases(value: type) -> str:
    """Return the names of a class's bases."""
    return ", ".join(f"`{base.__name__}`" for base in value.__bases__)


def errors() -> str:
    """Return the page of errors and warnings."""
    found = {name: value for name, value in vars(dpvb.errors).items() if inspect.isclass(value)}
    lines = []
    for base, title in ((dpvb.errors.DpvbError, "Errors"), (dpvb.errors.DpvbWarning, "Warnings")):
        rows = [
            f"| `{name}` | {bases(value)} | {' '.join(docstring(value).split())} |"
            for name, value in found.items()
            if issubclass(value, base)
        ]
        lines += [
            f"## {title}",
            "\n".join(["| name | bases | meaning, and whether budget was spent |", "|---|---|---|", *rows]),
        ]
    return page(
        "Errors and warnings", "Import them from `dpvb.errors`. Their messages contain public facts only.", lines
    )


def commands(command: Any, name: str) -> Iterator[str]:
    """Yield the entries of a command and of its subcommands."""
    context = typer.Context(command, info_name=name)
    help_text = fenced(inspect.cleandoc(command.help or "").replace("\f", ""))
    rows = []
    for parameter in command.params:
        if parameter.name == "help" or getattr(parameter, "hidden", False):
            continue
        names = ", ".join(f"`{one}`" for one in [*parameter.opts, *parameter.secondary_opts])
        if parameter.param_type_name == "argument":
            names = f"`{(parameter.metavar or parameter.name).upper()}`"
        default = parameter.default
        plain = isinstance(default, (str, int, float, Path)) and not isinstance(default, bool)
        needed = "required" if parameter.required else (f"`{default}`" if plain else "")
        text = " ".join((getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
        rows.append(f"| {names} | {needed} | {text} |")
    out = [f"## {name}", f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```", help_text]
    if rows:
        out.append("\n".join(["| option | default | meaning |", "|---|---|---|", *rows]))
    yield "\n\n".join(out)
    if hasattr(command, "list_commands"):
        for one in command.list_commands(context):
            subcommand = command.get_command(context, one)
            if not subcommand.hidden:
                yield from commands(subcommand, f"{name} {one}")


def meanings(value: type) -> dict[str, str]:
    """Return the meaning of each attribute, as the docstring of a class has it."""
    parts = SECTION.split(docstring(value))
    section = next(body for title, body in zip(parts[1::2], parts[2::2], strict=True) if title == "Attributes")
    found = {}
    for line in entries(section):
        names, _, text = line.partition(": ")
        found |= dict.fromkeys(names.split(", "), text)
    return found


def keys_table(rows: list[tuple[str, str, str]]) -> str:
    """Return a table of the keys of a file, with default (or type) and meaning."""
    return "\n".join(
        [
            "| key | default | meaning |",
            "|---|---|---|",
            *(f"| `{key}` | {default} | {text} |" for key, default, text in rows),
        ]
    )


def schema_keys(value: type) -> str:
    """Return the keys of an object of a schema file: the fields of its class."""
    text, rows = meanings(value), []
    for field in dataclasses.fields(value):
        is_required = field.name in ("columns", "knots", *(() if value is dpvb.data.Target else ("low", "high")))
        needed = field.default is dataclasses.MISSING or is_required
        default = "required" if needed else f"`{json.dumps(field.default)}`"
        rows.append((field.name, default, text[field.name]))
    return keys_table(rows)


def federation_keys() -> dict[str, list[tuple[str, str, str]]]:
    """Return the keys of each file of a federation: those that its reader asks for, with default and meaning."""
    found: dict[str, dict[str, tuple[str, Any]]] = {}
    take, as_path = config._Table.take, config._Table.path

    def recorded(table: Any, key: str, kind: type, default: Any = config._NEEDED) -> Any:
        if table._name != "[model] ":
            found.setdefault(table._path.stem, {}).setdefault(table._name + key, (config._TYPES[kind], default))
        return take(table, key, kind, default)

    def path(table: Any, key: str, default: Any = config._NEEDED) -> Any:
        found.setdefault(table._path.stem, {})[table._name + key] = ("a path", default)
        return as_path(table, key, default)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        identities = {party: Identity.generate(party) for party in ("server", "north", "south")}
        for party, identity in identities.items():
            identity.save(folder / f"{party}.key")
        keys = {party: identity.public.hex() for party, identity in identities.items()}
        (folder / "agreement.toml").write_text(
            'kind = "LogisticRegression"\nepsilon = 1.0\ndelta = 1e-6\ntrust = "secure_aggregation"\nwidth = 3\n'
            f'[server]\nname = "server"\nkey = "{keys["server"]}"\n'
            f'[clients]\nnorth = "{keys["north"]}"\nsouth = "{keys["south"]}"\n'
        )
        common = 'agreement = "agreement.toml"\naddress = "localhost:9092"\n'
        (folder / "server.toml").write_text(f'{common}identity = "server.key"\nout = "model.dpvb"\n')
        (folder / "client.toml").write_text(
            f'{common}identity = "north.key"\nfolder = "north.state"\n[data]\nfile = "people.csv"\n'
        )
        with patch.object(config._Table, "take", recorded), patch.object(config._Table, "path", path):
            config.ServerConfig.load(folder / "server.toml")
            config.ClientConfig.load(folder / "client.toml")
    files = {
        "Agreement": ("agreement", meanings(Trust) | meanings(config.Agreement)),
        "Server file": ("server", meanings(config.ServerConfig)),
        "Client file": ("client", meanings(config.DataFiles) | meanings(config.ClientConfig)),
    }
    others = {
        "[server] name": "name of the server.",
        "[server] key": "public key of the server.",
        "model": "parameters of the estimator, by their names in Python.",
        "certificate": "path of the TLS certificate, with its chain; needed unless the address is of this machine.",
        "private_key": "path of the certificate's secret key.",
        "[data] format": "format of documents, as in `dpvb fit lda`.",
    }
    return {
        title: [
            (
                key,
                kind
                if default is None
                else f"{kind}, required"
                if default is config._NEEDED
                else f"`{json.dumps(default)}`",
                text.get(key) or others.get(key) or text[key.split()[-1]],
            )
            for key, (kind, default) in found[stem].items()
        ]
        for title, (stem, text) in files.items()
    }


def files() -> str:
    """Return the page of the files that a user writes."""
    kinds = dpvb.data.tables.schema._KINDS
    parts = [
        "## Schema\n\nA JSON object. A key that is not listed is an error. "
        "[Tables](../how-to/tables.md) explains the columns, and `dpvb schema FILE` checks a file.",
        schema_keys(dpvb.Schema),
        "### `target`",
        schema_keys(dpvb.data.Target),
    ]
    for kind, value in kinds.items():
        parts += [f"### Column of kind `{kind}`", schema_keys(value)]
    parts.append(
        "## Federation\n\nTOML files. Paths are relative to the file that contains them. A key that is not listed is "
        "an error. [A federated run](../federated.md) has an example of each file."
    )
    for title, rows in federation_keys().items():
        parts += [f"### {title}", keys_table(rows)]
    return page("Schema and federation files", "Keys, defaults and meanings, as the program reads them.", parts)


def pages() -> dict[str, str]:
    """Return every page by its name."""
    base = dpvb.PrivateEstimator
    exported = {name: getattr(dpvb, name) for name in dpvb.__all__ if not inspect.ismodule(getattr(dpvb, name))}
    estimators = {name: one for name, one in exported.items() if isinstance(one, type) and issubclass(one, base)}
    estimators.pop("PrivateEstimator")
    authors = ("dpvb.core.", "dpvb.models.")
    own = {name: one for name, one in exported.items() if one.__module__.startswith(authors)}
    functions = {name: one for name, one in exported.items() if name not in {*estimators, *own, "PrivateEstimator"}}
    accounting, audit = public(dpvb.accounting), public(dpvb.audit)
    audit["testing.check_model"] = dpvb.testing.check_model

    def all_of(found: dict[str, Any], of: type | None = None) -> list[str]:
        return [entry(name, found[name], of) for name in found]

    return {
        "private-estimator.md": page(
            "PrivateEstimator: parameters of all models",
            "Every estimator has these parameters and methods, in addition to [its own](estimators.md).",
            [entry("PrivateEstimator", base)],
        ),
        "estimators.md": page(
            "Estimators",
            "Each entry lists only what [`PrivateEstimator`](private-estimator.md) does not have.",
            all_of(estimators, base),
        ),
        "functions.md": page("Functions, ledger, run, table and schema", "Import them from `dpvb`.", all_of(functions)),
        "data.md": page("Data and column types", "Import them from `dpvb.data`.", all_of(public(dpvb.data))),
        "results.md": page("Result objects", "Methods of estimators and functions return them.", all_of(results())),
        "accounting.md": page("dpvb.accounting", "Privacy costs of plans; no data are needed.", all_of(accounting)),
        "audit.md": page("dpvb.audit and dpvb.testing", "Checks of models on synthetic records.", all_of(audit)),
        "custom-models.md": page(
            "Custom models", "[A model of your own](../new-model.md) explains their use.", all_of(own)
        ),
        "errors.md": errors(),
        "files.md": files(),
        "command-line.md": page(
            "Command line",
            "`dpvb COMMAND --help` prints the same. Exit codes and environment variables: [files](../reference.md).",
            list(commands(typer.main.get_command(app), "dpvb")),
        ),
    }


def main() -> int:
    """Write the pages, or check them."""
    written = pages()
    old = [
        name for name, text in written.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != text
    ]
    if "--check" in sys.argv:
        print("\n".join(f"docs/reference/{name} is not up to date" for name in old))
        return int(bool(old))
    FOLDER.mkdir(exist_ok=True)
    for name in old:
        (FOLDER / name).write_text(written[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
