"""A headless Chromium of the system, which sees files and nothing of a network."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

#: Width, colours and medium of the four ways in which a page is looked at.
LOOKS = {
    "light": (1000, "light", "screen"),
    "dark": (1000, "dark", "screen"),
    "print": (794, "light", "print"),
    "phone": (390, "light", "screen"),
}


@dataclass
class Shown:
    """A page in a browser, and what it did beside being shown."""

    page: Any
    requests: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def started(driver: Any) -> Browser:
    """The browser, which knows one family of fonts, and draws letters alike whatever the system has beside it."""
    place = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert place is not None, "setup/debian.sh chromium installs it"
    drawn = ["--force-device-scale-factor=1", "--force-color-profile=srgb", "--font-render-hinting=none"]
    browser: Browser = driver.chromium.launch(
        executable_path=place,
        args=["--no-sandbox", "--disable-lcd-text", *drawn],
        env={**os.environ, "FONTCONFIG_FILE": str(Path(__file__).parent / "fonts.xml")},
    )
    return browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        made = started(driver)
        yield made
        made.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Any]:
    """Show a text as a page in one of the LOOKS."""
    opened = []

    def shown(text: str, look: str = "light") -> Shown:
        width, colours, medium = LOOKS[look]
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=colours, offline=True)
        opened.append(context)
        found = Shown(context.new_page())
        found.page.on("request", lambda request: found.requests.append(request.url))
        found.page.on("console", lambda message: found.said.append(message.text))
        found.page.on("dialog", lambda dialog: (found.said.append(dialog.message), dialog.dismiss()))
        found.page.on("pageerror", lambda error: found.said.append(str(error)))
        context.on("page", lambda other: found.said.append(f"opened {other.url}"))
        file = tmp_path / f"{len(opened)}.html"
        file.write_text(text, encoding="utf-8")
        found.page.emulate_media(media=medium)
        found.page.goto(file.as_uri())
        assert found.requests == [file.as_uri()], "a page asks for nothing beside itself"
        return found

    yield shown
    for context in opened:
        context.close()
