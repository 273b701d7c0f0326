"""Count offences against the style of pages, docstrings, comments and messages: `python setup/prose.py`.

Without arguments each count is compared with its limit in `LIMITS`, which may only fall; a higher count exits with 1.
`--list [CHECK] [PATH]` prints the offenders instead: a check is one of banned, sentences, paragraphs, docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

WORDS = "words, pages in docs"
#: Largest numbers allowed. A commit that lowers a count lowers its limit, but that of words: pages may grow up to it.
LIMITS = {
    WORDS: 45_000,
    "banned phrases, pages": 3,
    "banned phrases, docstrings and messages": 15,
    "banned phrases, comments": 0,
    "sentences above 30 words, user pages": 0,
    "sentences above 35 words, pages": 3,
    "paragraphs above 90 words, pages": 0,
    "public names without an example": 0,
    "arguments without the meaning of a default": 0,
}

#: Phrases in the sense that is banned, by what to write in their place.
BANNED = {
    "clipped": r"\bshorten(?:s|ed|ing)?\b",
    "included": r"\b(?:rows?|units?|documents?|people|persons?|sequences?|patients?) that counted\b|\bcounted in\b"
    r"|\bcounts? as (?:no|a|an|one)\b",
    "includes, accounts for, reports, specifies": r"\b(?:intervals?|files?|forecasts?|models?|devices?|servers?|plans?|"
    r"ledgers?|fits?|tables?|statements?|reports?|schemas?|priors?|accountants?) (?:that )?"
    r"(?:know|say|tell|see|believe|speak)s?\b",
    "lost in the noise": r"\bdrown(?:s|ed|ing)?\b",
    "distribution, invariant": r"(?<!data protection )\blaws?\b(?! of large numbers)",
    "coverage is n %": r"\b(?:hold|holds|held|holding) the truth\b|\btimes (?:of|in) a hundred\b",
    "guarantee": r"\bpromis(?:e|es|ed|ing)\b",
    "synthetic": r"\bmade-up\b|\bmade up\b|\bof nobody\b",
    "shrunk towards, biases, biased": r"\bdrawn? (?:together|to the|towards?)\b|\bbends?\b|\bbent\b",
    "denoise, estimate from": r"\bread(?:s|ings?)? (?:off|from|out of) (?:the |their |its |noisy )*"
    r"(?:releases?|sums?|noise|counts?|statistics?)\b|\breadings? of (?:the |noisy )*(?:releases?|sums?)\b",
    "the analyst, an attacker, no one named": r"\b(?:nobody|somebody|anybody|everybody|whoever|whomever)\b(?!'s\.csv)",
    "only": r"(?<!stand)(?<!stand-)(?<!let )(?<!leave )(?<!left )(?<!leaves )\balone\b",
    "even if": r"\balso (?:if|where|when|for|of|through)\b",
    "at least": r"\bfrom (?:a [\w -]{1,30} of |about |some )?[\d.,]+(?: \w+)? on\b",
    "for example": r"(?:,|\() ?as (?:in |by |with |for )?[\d.]+\b|\bas 1e-\d",
    "one per row": r"\b(?:one|two|three|once|twice|times|each|\d+ \w+|number|minutes|seconds|bytes) an? "
    r"(?:row|unit|document|person|day|step|word|line|file|column|class|group|client|round|component|case|kind|family)\b",
    "in addition to, compared with": r"\bbeside\b",
    "is not a": r"(?<!\bthere )(?<!\bThere )\b(?:is|are|was|were|be) no\b"
    r"(?! (?:longer|more|less|greater|larger|worse|better|smaller|wider|later|earlier|different|other|need)\b)",
    "For a, If a (sentence opens with Of or By)": r"(?:^|[.:;] )(?:Of|By) (?!default\b)",
    "a noun (sentence opens with What or Whoever)": r"(?:^|[.] )(?:What|Whoever|Who) [^.?]*[.](?=\s|$)",
    "0.05, one half": r"\b(?:a|one|two|three|seven|nine) (?:twentieth|tenth|hundredth|fiftieth|\d+th)s?\b",
}
PATTERNS = {write: re.compile(text, re.MULTILINE) for write, text in BANNED.items()}

#: Pages that are not for users: mathematics and history.
NOT_FOR_USERS = ("docs/decisions.md", "docs/theory/", "docs/proofs.md", "docs/method.md", "docs/papers.md")
#: Pages that a script writes from docstrings and help texts, which are counted there.
GENERATED = ("docs/reference/",)
#: The page that tests/guarantees.py writes; its statements are checked as those of any page.
MATRIX = "docs/guarantees-and-tests.md"
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|al|Fig|Eq|Sec|No|approx)\.")


class Offence(NamedTuple):
    """One place, with the limit that it counts for."""

    limit: str
    path: str
    line: int
    why: str
    text: str


class Text(NamedTuple):
    """A piece of prose on its own: a paragraph, an item, a cell, a docstring, a message or a comment."""

    path: str
    line: int
    kind: str
    text: str


def pages() -> list[Path]:
    """Return the pages that are counted."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
    files += (ROOT / "docs").rglob("*.md")
    return sorted(path for path in files if path.exists() and not relative(path).startswith(GENERATED))


def relative(path: Path) -> str:
    """Return the path from the repository's root."""
    return str(path.relative_to(ROOT))


def blank(found: re.Match[str]) -> str:
    """Replace a block by as many empty lines."""
    return "\n" * found[0].count("\n")


def of_page(path: Path) -> Iterator[Text]:
    """Yield paragraphs, items and cells of a page, without code."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.DOTALL)
    text = re.sub(r"^( *)```.*?^\1```", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\$\$.*?\$\$", blank, text, flags=re.DOTALL)
    name, start, lines = relative(path), 1, []

    def paragraph() -> Iterator[Text]:
        if lines:
            yield Text(name, start, "page", plain(" ".join(lines)))
        lines.clear()

    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        item = re.match(r"(?:[-*+]|\d+[.)]) +", stripped)
        if not stripped or stripped.startswith(("#", "|", ":::", "!!!")) or item:
            yield from paragraph()
        if stripped.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                if re.search(r"\w", cell):
                    yield Text(name, number, "cell", plain(cell))
        elif stripped.startswith("#"):
            yield Text(name, number, "heading", plain(stripped.lstrip("# ")))
        elif stripped and not stripped.startswith((":::", "!!!")):
            if not lines:
                start = number
            lines.append(stripped[item.end() :] if item else stripped)
    yield from paragraph()


def plain(text: str) -> str:
    """Return text without code, addresses and marks."""
    text = re.sub(r"``[^`]+``|`[^`]*`", "`x`", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>|[*_]{1,2}(?=\w)|(?<=\w)[*_]{1,2}", "", text)).strip()


def of_source(path: Path) -> Iterator[Text]:
    """Yield docstrings, messages (string constants of several words) and comments of a source file."""
    source, name = path.read_text(encoding="utf-8"), relative(path)
    tree = ast.parse(source)
    parts = {id(value) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for value in node.values}
    for node in ast.walk(tree):
        text = None
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        elif isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values)
        if text and len(re.findall(r"[A-Za-z]{2,}", text)) >= 2 and " " in text:
            for piece in re.split(r"\n\s*\n", text):
                yield Text(name, node.lineno, "string", plain(piece))
    run: list[str] = []
    begin = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            begin = begin if run else token.start[0]
            run.append(token.string.lstrip("#: "))
        elif token.type not in (tokenize.NL, tokenize.COMMENT) and run:
            yield Text(name, begin, "comment", plain(" ".join(run)))
            run = []


@cache
def texts() -> tuple[Text, ...]:
    """Return all prose of pages and of the source."""
    found = [text for path in pages() for text in of_page(path)]
    return (*found, *(text for path in sorted((ROOT / "src").rglob("*.py")) for text in of_source(path)))


def sentences(text: str) -> list[str]:
    """Split a paragraph at full stops, question marks and exclamation marks that a capital follows."""
    return re.split(r"(?<=[.?!])[)\"']?\s+(?=[\"'(`A-Z0-9])", ABBREVIATIONS.sub(r"\1", text))


def words(text: str) -> int:
    """Count words: runs of letters or digits, not signs."""
    return sum(bool(re.search(r"\w", word)) for word in text.split())


def words_of_docs() -> int:
    """Count the words of the pages in docs that people write, code blocks left out."""
    written = (text for text in texts() if text.path.startswith("docs/") and text.path != MATRIX)
    return sum(words(text.text) for text in written)


def banned() -> Iterator[Offence]:
    """Yield phrases of the style's table, in the sense that is banned."""
    limits = {"string": "banned phrases, docstrings and messages", "comment": "banned phrases, comments"}
    for text in texts():
        for write, pattern in PATTERNS.items():
            for found in pattern.finditer(text.text):
                phrase = found[0].lstrip(".:; ")[:60]
                around = text.text[max(0, found.start() - 40) : found.end() + 40]
                limit = limits.get(text.kind, "banned phrases, pages")
                yield Offence(limit, text.path, text.line, f"{phrase!r} -> {write}", around)


def long_sentences() -> Iterator[Offence]:
    """Yield sentences of pages that are too long."""
    for text in texts():
        if text.kind not in ("page", "cell"):
            continue
        for sentence in sentences(text.text):
            number = words(sentence)
            if number > 30 and not text.path.startswith(NOT_FOR_USERS):
                limit = "sentences above 30 words, user pages"
                yield Offence(limit, text.path, text.line, f"{number} words", sentence)
            if number > 35:
                limit = "sentences above 35 words, pages"
                yield Offence(limit, text.path, text.line, f"{number} words", sentence)


def long_paragraphs() -> Iterator[Offence]:
    """Yield paragraphs and items of pages of more than 90 words."""
    for text in texts():
        if text.kind in ("page", "cell") and words(text.text) > 90:
            limit = "paragraphs above 90 words, pages"
            yield Offence(limit, text.path, text.line, f"{words(text.text)} words", text.text[:100])


def docstrings() -> Iterator[Offence]:
    """Yield public names without an example and arguments whose default has no meaning."""
    import inspect

    import dpvb

    for name in dpvb.__all__:
        value = getattr(dpvb, name)
        if not (inspect.isclass(value) or inspect.isfunction(value)):
            continue
        path, line = relative(Path(inspect.getsourcefile(value) or __file__)), inspect.getsourcelines(value)[1]
        text = inspect.getdoc(value) or ""
        if ">>>" not in text:
            yield Offence("public names without an example", path, line, name, "")
        described = arguments(value)
        for parameter in inspect.signature(value).parameters.values():
            told = described.get(parameter.name)
            has_default = parameter.default is not parameter.empty
            if told is None or (has_default and not re.search(r"[Dd]efault|\bNone\b", told)):
                why = f"{name}({parameter.name})" + ("" if told is None else " has a default")
                limit = "arguments without the meaning of a default"
                yield Offence(limit, path, line, why, told or "not described")


def arguments(value: object) -> dict[str, str]:
    """Return the arguments that docstrings describe, with their text; a class has those of its bases too."""
    import inspect

    found: dict[str, str] = {}
    for owner in reversed(value.__mro__) if isinstance(value, type) else [value]:
        text = inspect.cleandoc(owner.__doc__ or "")
        for section in re.findall(r"^(?:Args|Attributes):\n((?:(?: .*)?\n?)+?)(?=^\S|\Z)", text, re.MULTILINE):
            for names, told in re.findall(r"^ {4}(\*{0,2}\w[\w, *]*):((?:.*\n?)(?: {5,}.*\n?|\n)*)", section, re.M):
                found.update(dict.fromkeys(re.split(r", *", names.replace("*", "")), " ".join(told.split())))
    return found


CHECKS = {
    "banned": banned,
    "sentences": long_sentences,
    "paragraphs": long_paragraphs,
    "docstrings": docstrings,
}


def main() -> int:
    """Compare counts with limits, or print offenders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the offenders")
    parser.add_argument("which", nargs="*", help="a check (banned, sentences, paragraphs, docstrings) or a path")
    options = parser.parse_args()
    names = [name for name in options.which if name in CHECKS] or [*CHECKS]
    places = [relative(Path(place).resolve()) for place in options.which if place not in CHECKS]
    offences = [one for name in names for one in CHECKS[name]()]
    if places:
        offences = [one for one in offences if one.path.startswith(tuple(places))]
    if options.list:
        for one in sorted(set(offences), key=lambda one: (one.path, one.line, one.limit)):
            print(f"{one.path}:{one.line}: {one.why}" + (f": {one.text}" if one.text else ""))
        print(len(set(offences)))
        return 0
    failed = False
    for limit, largest in LIMITS.items():
        number = words_of_docs() if limit == WORDS else len({one for one in offences if one.limit == limit})
        worse = number > largest
        failed |= worse
        print(
            f"{number:6d} of {largest:6d}  {limit}"
            + ("  TOO MANY" if worse else "  lower the limit" * (number < largest and limit != WORDS))
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
