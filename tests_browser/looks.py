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
# Means of cells are compared, of about two lines of text: fonts that draw a letter a little differently do not count.
_CELL = {"light": 10, "dark": 10, "print": 12, "phone": 25}
#: Allowed between a line of cells and the nearest one of the other image, of 255, for all but one line in a hundred.
#: Other builds of a browser, whose letters are thicker, wider or stand apart, reach 8.4; pages of another kind 15.4.
MOST_APART = 12.0
#: Allowed of the height, relatively; what one line more pushes down is looked for as far away.
MOST_TALLER = 0.03


def taken(page: Any) -> Image.Image:
    """The whole page, as it is kept."""
    whole = Image.open(io.BytesIO(page.screenshot(full_page=True))).convert("RGB")
    height = round(whole.height * _WIDTH / whole.width)
    return whole.resize((_WIDTH, height), Image.Resampling.LANCZOS).quantize(_COLOURS)


def apart(one: Image.Image, other: Image.Image, look: str) -> tuple[float, float]:
    """How far apart lines of cells of two images are that are looked at in one way, and how much their heights are.

    Of images whose heights are too far apart lines are not compared: they are infinitely far.
    """
    taller = abs(one.height - other.height) / max(one.height, other.height)
    if taller >= MOST_TALLER:
        return float("inf"), taller
    reach = round(MOST_TALLER * max(one.height, other.height))
    first, second = _means(one, _CELL[look]), _means(other, _CELL[look])
    return max(_farthest(first, second, reach), _farthest(second, first, reach)), taller


def _means(image: Image.Image, cell: int) -> np.ndarray:
    """Means over cells that begin at each row of an image, (rows, cells of a line, 3)."""
    pixel_hwc = np.asarray(image.convert("RGB"), dtype=float)
    line_hkc = pixel_hwc.reshape(len(pixel_hwc), -1, cell, 3).mean(axis=2)
    return np.lib.stride_tricks.sliding_window_view(line_hkc, cell, axis=0).mean(axis=-1)


def _farthest(one: np.ndarray, other: np.ndarray, reach: int) -> float:
    """Of lines of one image the distance to the nearest line of another within reach, all but a hundredth of them."""
    found = [
        np.abs(other[max(0, row - reach) : row + reach + 1] - one[row]).max(axis=2).mean(axis=1).min()
        for row in range(0, min(len(one), len(other) + reach), 10)
    ]
    return float(np.quantile(found, 0.99))


def main() -> None:
    from playwright.sync_api import sync_playwright

    from tests_browser import made
    from tests_browser.conftest import LOOKS, started

    FOLDER.mkdir(exist_ok=True)
    with sync_playwright() as driver:
        browser = started(driver)
        for kind in made.MADE:
            for look, (width, colours, medium) in LOOKS.items():
                page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=colours)
                page.emulate_media(media=medium)
                page.set_content(made.page(kind).html())
                taken(page).save(FOLDER / f"{kind}-{look}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
