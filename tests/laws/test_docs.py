"""What pages say of the tree and of the results is so: tests, files, rooms, sections, versions, numbers."""

from __future__ import annotations

import ast
import re
import tomllib
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import guarantees
import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from test_architecture import ORDER

import dpvb
from benchmarks import pictures
from dpvb.guards.version import NEXT

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
TESTS = set(re.findall(r"^def (test_\w+)", "\n".join(path.read_text() for path in ROOT.glob("tests/**/*.py")), re.M))


@pytest.mark.parametrize("page", ["known-weaknesses.md", "operations.md", "invalid-values.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text()))
    assert named
    assert named <= TESTS, named - TESTS


def test_every_message_of_the_page_of_troubleshooting_is_in_the_source() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "src").rglob("*.py")]
    constants = [node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = "\n".join(text for text in constants if isinstance(text, str))
    lines = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8").splitlines()
    messages = [line.split(" | ")[0] for line in lines if re.match(r"\| .*`", line)]
    assert len(messages) >= 20
    parts = [part for message in messages for part in re.findall(r"`([^`]+)`", message)]
    assert [part for part in parts if part not in texts] == []


def test_every_guarantee_has_a_test_and_the_page_is_up_to_date() -> None:
    """`python tests/guarantees.py` writes the page."""
    names = [name for section in guarantees.GUARANTEES.values() for name in section]
    assert len(names) == len(set(names))
    assert set(names) == guarantees.marked().keys()
    assert guarantees.PAGE.read_text(encoding="utf-8") == guarantees.page()


@pytest.mark.parametrize(
    "page",
    ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/architecture.md", "docs/releases.md"],
)
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    text = (ROOT / page).read_text()
    named = re.findall(r"`((?:src|docs|benchmarks|tests|setup)/[\w/.-]+|\.?[\w-]+\.(?:md|toml|cff|yaml))`", text)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_the_targets_that_contributors_are_told_of_are_in_the_makefile() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    for page in ("CONTRIBUTING.md", "docs/releases.md"):
        named = set(re.findall(r"`make ([\w-]+)`", (ROOT / page).read_text()))
        assert "test" in named
        assert named <= targets, page


def test_the_order_of_rooms_is_the_one_that_is_written_down() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    order = page[page.index("## The order\n") :].split("```text\n")[1].split("\n```")[0]
    assert [set(line.split(", ")) for line in order.splitlines()] == ORDER
    rooms = {path.parent.name for path in (ROOT / "src" / "dpvb").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)/` \|", page, re.M)) == rooms


def test_every_section_and_equation_of_the_theory_that_is_referred_to_is_there() -> None:
    """Code cites the title of a section behind a page, or numbers of equations before it."""
    cited = 0
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("docs/**/*.md")]:
        text = re.sub(r"\s+", " ", path.read_text())
        assert not re.search(r"\(M\d+\)|method\.md[`)]*(?:, |#)[mM]\d", text), path
        for page, title in re.findall(r"(docs/[\w/-]+\.md)`?, \"([^\"]+)\"", text):
            assert re.search(rf"^#+ {re.escape(title)}$", (ROOT / page).read_text(), re.M), (path, page, title)
            cited += 1
        for first, last, page in re.findall(r"[Ee]quations? (\d+)(?: (?:to|and) (\d+))? of (docs/[\w/-]+\.md)", text):
            numbers = set(re.findall(r"\((\d+)\)", (ROOT / page).read_text()))
            assert {first, last or first} <= numbers, (path, page)
            cited += 1
    assert cited >= 8


def test_every_theory_page_has_the_same_outline() -> None:
    outline = ["Model", "E-step", "Released blocks", "Sensitivity", "M-step", "Intervals", "Constants"]
    method = (ROOT / "docs" / "method.md").read_text()
    for path in (ROOT / "docs" / "theory").glob("*.md"):
        headings = re.findall(r"^## (.+)$", path.read_text(), re.M)
        assert [heading for heading in headings if heading in outline] == outline, path
        assert f"(theory/{path.name})" in method, path


def test_every_table_of_a_page_is_a_table() -> None:
    """Its head begins a paragraph, and all of its rows have as many cells."""
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(r"^( *)```.*?^\1```|<!--.*?-->", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        for block in re.split(r"\n\s*\n", text):
            lines = [line.strip() for line in block.strip("\n").splitlines()]
            if any(re.match(r"\|[-|: ]+\|$", line) for line in lines):
                assert all(line.startswith("|") for line in lines), (path, block)
                cells = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
                assert len(cells) == 1, (path, block)


def test_every_model_guide_has_the_same_outline() -> None:
    outline = ["When to use", "Example", "Input", "Options", "Output and intervals", "Cost", "Limitations", "Theory"]
    guides = {path: path.read_text() for path in (ROOT / "docs" / "models").glob("*.md")}
    guides = {path: text for path, text in guides.items() if not text.startswith("# Example: ")}
    assert len(guides) >= 10
    for path, text in guides.items():
        assert re.findall(r"^## (.+)$", text, re.M) == outline, path


def test_licences_are_those_of_the_package() -> None:
    """One expression, and the licence of each dependency that a user can install; one of them is under the LGPL."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "licences.md").read_text()
    assert f"`{project['license']}`" in page
    listed = re.findall(r"^\| ([a-z0-9-]+) \| (?:core|extra `(\w+)`) \| (.+) \|$", page, re.M)
    extras = project["optional-dependencies"]
    of_users = {name: extras[name] for name in extras if name not in ("docs", "pages", "fuzz", "dev")}
    needed = {"": project["dependencies"], **of_users}
    expected = sorted((Requirement(text).name, extra) for extra, texts in needed.items() for text in texts)
    assert sorted((name, extra) for name, extra, _ in listed) == expected
    assert [name for name, _, licence in listed if "GPL" in licence] == ["psycopg"]
    for name, _, licence in listed:
        with suppress(metadata.PackageNotFoundError):
            facts = metadata.metadata(name)
            said = facts.get("License-Expression") or " ".join(facts.get_all("Classifier") or ())
            assert ("GPL" in said) == ("GPL" in licence), name
    for path in project["license-files"]:
        assert (ROOT / path).is_file()


def test_decisions_are_numbered() -> None:
    numbers = re.findall(
        r"^\| (\d+) \| .+ \| .+ \|$", (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8"), re.M
    )
    assert len(numbers) >= 32
    assert [int(number) for number in numbers] == list(range(1, len(numbers) + 1))


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]
    released = re.findall(r"^## ([0-9.]+)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert f"\nversion: {released[0]}\n" in (ROOT / "CITATION.cff").read_text()
    assert all(Version(one) < Version(dpvb.__version__) <= Version(NEXT) for one in released if one != NEXT)
    pins = dict(line.split("==") for line in (ROOT / "setup" / "lowest.txt").read_text().split() if "==" in line)
    extras = project["optional-dependencies"]
    allowed = map(Requirement, [*project["dependencies"], *(text for name in extras for text in extras[name])])
    ranges = {requirement.name: requirement.specifier for requirement in allowed}
    assert [name for name, pin in pins.items() if name in ranges and pin not in ranges[name]] == []
    assert {Requirement(text).name for text in project["dependencies"]} <= set(pins)


def test_dependencies_do_not_expire() -> None:
    """An upper bound needs a known break: that of MkDocs 2."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    requirements = map(Requirement, [*project["dependencies"], *(text for texts in extras for text in texts)])
    bounded = {one.name for one in requirements for part in one.specifier if part.operator not in (">=", ">")}
    assert bounded <= {"mkdocs"}


def test_the_tested_versions_are_allowed() -> None:
    lines = (ROOT / "setup" / "tested.txt").read_text().splitlines()
    tested = dict(line.lower().replace("_", "-").split("==") for line in lines if "==" in line)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    texts = [
        *project["dependencies"],
        *(text for name in extras if name not in ("docs", "pages", "fuzz") for text in extras[name]),
    ]
    requirements = [one for one in map(Requirement, texts) if one.name != "dpvb"]
    assert [one.name for one in requirements if tested.get(one.name.lower(), "") not in one.specifier] == []


def test_the_example_of_a_ledger_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "ledger.md").read_text()
    exec(page.split("```python\n")[1].split("```")[0], {})


def test_the_readme_is_short_and_its_numbers_are_those_of_the_results() -> None:
    assert len(README.splitlines()) <= 150
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in README.splitlines() if line.count("|") == 7
    ]
    measured = [row for row in rows[2:] if row[5]]
    assert len(measured) >= 12
    for *_, private, without, title in measured:
        section = results[results.index(f"\n## {title}\n") + 4 :].split("\n## ")[0]
        assert missing(f"{private} {without}", section) == [], title


def test_the_readme_and_the_page_say_the_same_of_the_core() -> None:
    """That the page is true is found out by `make pages`, which installs the core."""
    said = re.search(r"^(\d+) packages, (\d+) MiB", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE)
    assert said is not None
    assert f"[{said[1]} packages, {said[2]} MiB](docs/install.md)" in README


#: Where the measured numbers of pages come from: sections of the results, by the heading above the numbers.
MEASURED = {
    "comparison.md": {
        "Logistic regression": ["Logistic regression"],
        "Naive Bayes": ["Naive Bayes"],
        "Synthetic rows": ["Mixtures"],
        "Topics": ["Topic models on Wikipedia", "The papers' algorithms as printed"],
        "Latent variables by private gradients": ["Noisy statistics and private gradients in latent-variable models"],
    },
    "models/belief-networks.md": {"Cost": ["Handwritten digits", "The papers' algorithms as printed"]},
    "models/dpvi.md": {"Cost": ["Private gradients (DPVI)", "Logistic regression"]},
    "models/topics.md": {
        "Cost": ["Topic models on Wikipedia", "The papers' algorithms as printed", "Topics or word frequencies"]
    },
}
NUMBER = re.compile(r"(?<![\w./^(=-])-?(?:\d{1,3}(?:,\d{3})+|\d*\.\d{2,})(?![\w.])")


def parts(text: str) -> dict[str, str]:
    """The parts of a page by their headings, without blocks, code and comments."""
    text = re.sub(r"```.*?```|`[^`\n]*`|<!--.*?-->", "", text, flags=re.DOTALL)
    return dict(part.split("\n", 1) for part in text.split("\n## ")[1:])


def missing(text: str, results: str) -> list[str]:
    """Numbers of a text, of two decimals or of thousands, that no number of the results is when it is rounded so."""
    known = [one.replace(",", "") for one in re.findall(r"-?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+)", results)]
    found = []
    for number in NUMBER.findall(text):
        value, places = float(number.replace(",", "")), len(number.partition(".")[2])
        if not any(round(float(one), places) == value for one in known if len(one.partition(".")[2]) >= places):
            found.append(number)
    return found


def test_measured_numbers_of_pages_are_those_of_the_results() -> None:
    sections = parts((ROOT / "benchmarks" / "RESULTS.md").read_text())
    for page, by_heading in MEASURED.items():
        found = parts((ROOT / "docs" / page).read_text())
        for heading in ("Options", "Limitations"):  # Defaults and conditions are not measured.
            found.pop(heading, None)
        assert {heading for heading, text in found.items() if NUMBER.search(text)} == {*by_heading}, page
        for heading, titles in by_heading.items():
            assert missing(found[heading], "".join(sections[title] for title in titles)) == [], (page, heading)


def test_the_accuracy_of_forecasts_is_that_of_the_results() -> None:
    results = parts((ROOT / "benchmarks" / "RESULTS.md").read_text())["Forecasts from public facts, against fits"]
    own, others = re.findall(r"cells within a factor 1\.5 \((\d+)%\)", results)
    [real] = re.findall(r"Real tables alone: (\d+ of \d+) cells", results)
    page = (ROOT / "docs" / "how-to" / "before-the-charge.md").read_text()
    assert re.findall(r"(\d+) %\s(?:of cells )?on (?:the tuning tables|others)", page) == [own, others]
    assert re.findall(r"On real\s+tables: (\d+ of \d+) cells", page) == [real]
    limits = page.split("\n### Limitations of the expected accuracy\n")[1].split("\n## ")[0]
    assert missing(re.sub(r"`[^`]*`", "", limits), results) == []


def test_the_accuracy_of_intervals_is_that_of_the_results() -> None:
    """The numbers of a row are in the section that its last cell, or one above, names: as shares or as percentages."""
    results = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    lines = (ROOT / "docs" / "accuracy.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    assert len(rows) >= 25
    title = ""
    for _, n, _, coverage, named in rows:
        title = named or title
        section = results[results.index(f"\n## {title}\n") + 4 :].split("\n## ")[0]
        for number in re.findall(r"\d[\d,.]*", f"{n} {coverage}"):
            percentage = f"{100 * float(number.replace(',', '')):.1f}%"
            assert number in section or percentage in section, (title, number)


def test_a_number_that_was_not_measured_would_be_missing() -> None:
    assert missing("-.3190 and 1,432, of .906 and -.31", "| -0.3190 | 1,432 | .9057 | -0.3141 |") == []
    assert missing("-.3191 and 1,433, of .905 and .31", "| -0.3190 | 1,432 | .9057 | -0.3141 |") == [
        "-.3191",
        "1,433",
        ".905",
        ".31",
    ]


def test_pictures_are_of_the_results_that_are_there() -> None:
    """`python -m benchmarks.pictures` draws them anew."""
    for name in pictures.PICTURES:
        assert pictures.digest(name) in (pictures.FOLDER / f"{name}.svg").read_text(), name


#: Words that say that something follows a paper's order of operations.
FAITHFUL = re.compile(r"\b(as printed|as published|as the papers do|the papers' way)\b")
#: Where they may stand without naming `dpvb.papers`: what is printed is quoted there, or compared with printed numbers.
QUOTES = ("docs/papers.md", "docs/method.md", "src/dpvb/accounting/papers.py")


def test_what_is_called_as_printed_is_compared_with_the_print() -> None:
    """Outside `dpvb.papers` the words name it or its page; within, NumPy that follows the print tests the file."""
    compared = (ROOT / "tests" / "papers" / "test_printed.py").read_text()
    for path in (ROOT / "src" / "dpvb" / "papers").glob("[!_]*.py"):
        if FAITHFUL.search(path.read_text()):
            assert f"from dpvb.papers.{path.stem} import" in compared, path
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    files = [path for path in (ROOT / "src" / "dpvb").rglob("*.py") if path.parent.name != "papers"]
    for path in [*pages, *files]:
        if str(path.relative_to(ROOT)) not in QUOTES:
            # The section of the results has a name with these words.
            text = path.read_text().replace("The papers' algorithms as printed", "")
            for paragraph in re.split(r"\n\s*\n", text):
                if FAITHFUL.search(paragraph):
                    assert re.search(r"dpvb\.papers|papers\.md", paragraph), (path, paragraph)
