"""Kept pictures of the pages, and the comparison of a page with its picture.

The pictures are lossless WebP files in ``tests/e2e/pictures``, which ``make pictures`` takes again. Two browsers
smooth the edges of letters a little differently, so small differences of colour do not count. A picture differs if
a square of it has more than a few pixels of clearly different colour. One missing icon is enough.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Page

KEPT = Path(__file__).resolve().parents[1] / "e2e" / "pictures"
SEEN = Path(__file__).resolve().parents[2] / "build" / "pictures"
PROBE = "fonts"
"""The name of the picture of letters, which shows whether this machine draws them as the pictures were drawn."""

_COLOR_MIN = 0.12
"""The smallest difference of brightness and colour that counts. The difference of black and white is 1."""
_SQUARE_PX = 16
_PIXELS_MIN = 12
"""A square counts as different if at least this many of its pixels differ."""
_HEIGHT_MAX_PX = 3600
"""The height at which a picture ends. Below it are the further rows of long tables on a phone."""
_LEVELS = 16
"""Each colour of a kept picture has this many values. This halves its size, and changes it too little to count."""
_PROBE_TEXT = """<!doctype html><body style="margin:8px;width:480px;background:#fff;color:#1b2330;
font-family:-apple-system, BlinkMacSystemFont, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'Liberation Sans',
sans-serif">
<p style="font-size:12px">Checkpoint 17 took 3.01 s: 95 % &middot; &times; &ndash; &#9679; &#9632; &#10005; &#9675;</p>
<p style="font-size:14px;font-weight:650">Hamburgefonstiv 0123456789</p>
<pre style="font-size:12px">execution.checkpointing.unaligned: true</pre></body>"""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a page differs from its picture."""

    squares: int
    """The number of squares of 16 px with different pixels; -1 if the sizes differ."""
    said: str
    drawn: Image.Image
    """The page in grey, with the squares that differ in orange."""


def take(page: Page) -> Image.Image:
    """Return a picture of the page to a height of 3,600 px, without cursor and animations."""
    taken = Image.open(io.BytesIO(page.screenshot(full_page=True, animations="disabled", caret="hide", scale="css")))
    return taken.crop((0, 0, taken.width, min(taken.height, _HEIGHT_MAX_PX))).convert("RGB")


def take_probe(page: Page) -> Image.Image:
    """Replace the page by some letters and return a picture of them."""
    page.set_viewport_size({"width": 500, "height": 160})
    page.set_content(_PROBE_TEXT)
    return take(page)


def keep(name: str, picture: Image.Image) -> int:
    """Write the picture to keep, and return its size in bytes."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path = KEPT / f"{name}.webp"
    step = 255 / (_LEVELS - 1)
    few = (np.round(np.asarray(picture) / step) * step).astype(np.uint8)
    Image.fromarray(few).save(path, lossless=True, quality=100, method=4)
    return path.stat().st_size


def compare(name: str, seen: Image.Image) -> Difference | None:
    """Return how ``seen`` differs from the kept picture, or None if it does not.

    The page and the difference are then written to ``build/pictures``. A missing picture is a difference too.
    """
    path = KEPT / f"{name}.webp"
    if path.is_file():
        with Image.open(path) as kept:
            found = difference(kept.convert("RGB"), seen)
    else:
        found = Difference(-1, "there is no kept picture", seen)
    if found is not None:
        SEEN.mkdir(parents=True, exist_ok=True)
        seen.save(SEEN / f"{name}.seen.png")
        found.drawn.save(SEEN / f"{name}.difference.png")
    return found


def difference(kept: Image.Image, seen: Image.Image) -> Difference | None:
    """Return how ``seen`` differs from ``kept``, or None if no square of 16 px differs."""
    if kept.size != seen.size:
        return Difference(-1, f"{seen.width} x {seen.height} px instead of {kept.width} x {kept.height} px", seen)
    is_different = _distance(np.asarray(kept), np.asarray(seen)) > _COLOR_MIN
    height, width = is_different.shape
    rows, columns = -(-height // _SQUARE_PX), -(-width // _SQUARE_PX)
    padded = np.zeros((rows * _SQUARE_PX, columns * _SQUARE_PX), dtype=bool)
    padded[:height, :width] = is_different
    counts = padded.reshape(rows, _SQUARE_PX, columns, _SQUARE_PX).sum(axis=(1, 3))
    squares = np.argwhere(counts >= _PIXELS_MIN)
    if not len(squares):
        return None
    top, left = squares.min(axis=0) * _SQUARE_PX
    bottom, right = (squares.max(axis=0) + 1) * _SQUARE_PX
    said = f"{len(squares)} squares of {_SQUARE_PX} px between ({left}, {top}) and ({right}, {bottom})"
    return Difference(len(squares), said, _drawn(seen, is_different, squares))


def _distance(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return the difference of each pixel, from 0 to 1 for black against white. Brightness weighs more than colour."""
    change = (a.astype(np.float32) - b.astype(np.float32)) / 255
    r, g, blue = change[..., 0], change[..., 1], change[..., 2]
    # The colour space YIQ, as in other comparisons of pictures.
    y = 0.299 * r + 0.587 * g + 0.114 * blue
    i = 0.596 * r - 0.274 * g - 0.322 * blue
    q = 0.211 * r - 0.523 * g + 0.312 * blue
    found: NDArray[np.float32] = np.sqrt(0.5053 * y**2 + 0.299 * i**2 + 0.1957 * q**2) / np.float32(0.5053**0.5)
    return found


def _drawn(seen: Image.Image, is_different: NDArray[np.bool_], squares: NDArray[np.int64]) -> Image.Image:
    drawn = np.asarray(seen.convert("L").convert("RGB")) // 3 + 160
    for row, column in squares * _SQUARE_PX:
        drawn[row : row + _SQUARE_PX, column : column + _SQUARE_PX] = (255, 214, 170)
    drawn[is_different] = (213, 94, 0)
    return Image.fromarray(drawn.astype(np.uint8))
