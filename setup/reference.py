"""Write the reference pages from docstrings and help texts: `python setup/reference.py`.

The pages are `docs/reference/*.md`. With `--check` it writes nothing, and exits with 1 if a page is not up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

import typer

import dpvb
from dpvb.cli import app

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
#: Results that users meet.
RESULT_NAMES = (
    *("PrivacyStatement", "CoefficientTable", "Coefficient", "GroupTable", "PlanSummary"),
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
    if isinstance(value, type):
        hidden = frozenset(one for one in dir(base) if not one.startswith("_")) if shared else frozenset()
        for method, function, is_property in members(value, hidden):
            out += [f"### {name}.{method}", "" if is_property else signature(method, function)]
            out.append(rendered(docstring(function)))
    return "\n\n".join(part for part in out if part)


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
