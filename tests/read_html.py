"""A reader of HTML that takes nothing but what the package writes."""

from __future__ import annotations

from html.parser import HTMLParser

_KNOWN = {"div", "p", "strong", "details", "summary", "table", "tr", "th", "td"}
_STYLES = {"vertical-align", "text-align", "border", "border-bottom", "padding", "opacity"}


class Page(HTMLParser):
    """A page, checked as it is read: tags are known and closed, styles say no colour, and nothing is fetched or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.cells: list[list[str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "br":
            assert attrs == []
            self.handle_data("\n")
            return
        assert tag in _KNOWN
        for name, value in attrs:
            assert name == "style"
            assert {part.partition(":")[0] for part in (value or "").split(";")} <= _STYLES
            assert "#" not in (value or "")
        if tag == "tr":
            self.cells.append([])
        if tag in ("th", "td"):
            self.cells[-1].append("")
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] in ("th", "td"):
            self.cells[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)

    def handle_pi(self, data: str) -> None:
        raise AssertionError(data)
