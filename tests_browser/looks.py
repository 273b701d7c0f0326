"""Images of pages: small ones that are kept and looked at, and how near another one is.

`python -m tests_browser.looks` makes them anew; whoever does so looks at each of them before it is kept.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

FOLDER = Path(__file__).parent / "images"
_WIDTH, _COLOURS = 300, 12
# Of a cell of so many pixels the mean is compared: fonts that draw a letter a little differently do not count.
_CELL = 10
#: Allowed of a cell's mean, of 255, for all but one cell in a hundred; and allowed of the height, relatively.
MOST_APART, MOST_TALLER = 26.0, 0.03


def taken(page: Any) -> Image.Image:
    """The whole page, as it is kept."""
    whole = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    height = round(whole.height * _WIDTH / whole.width)
    return whole.resize((_WIDTH, height), Image.Resampling.LANCZOS).quantize(_COLOURS)


def apart(one: Image.Image, other: Image.Image) -> tuple[float, float]:
    """How far cells of two images are apart, all but a hundredth of them; and how much their heights are."""
    taller = abs(one.height - other.height) / max(one.height, other.height)
    cells = _WIDTH // _CELL, min(one.height, other.height) // _CELL
    first, second = (
        np.asarray(image.convert("RGB").resize(cells, Image.Resampling.BOX), dtype=float) for image in (one, other)
    )
    return float(np.quantile(np.abs(first - second).max(axis=2), 0.99)), taller


def main() -> None:
    from playwright.sync_api import sync_playwright

    from tests_browser import made
    from tests_browser.conftest import LOOKS

    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        for kind in made.MADE:
            for look, (width, colours, medium) in LOOKS.items():
                page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
                page.emulate_media(media=medium)
                page.set_content(made.page(kind).html())
                taken(page).save(FOLDER / f"{kind}-{look}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
