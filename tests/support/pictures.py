"""Kept pictures of the pages, the comparison of a page with its picture, and a report of the differences.

The pictures are lossless WebP files in ``tests/e2e/pictures``, which ``make pictures`` takes again. Two browsers
smooth the edges of letters a little differently, so small differences of colour do not count. A picture differs if
a square of it has more than a few pixels of clearly different colour. One missing icon is enough.
"""

from __future__ import annotations

import html
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Page

KEPT = Path(__file__).resolve().parents[1] / "e2e" / "pictures"
SEEN = Path(__file__).resolve().parents[2] / "build" / "pictures"
REPORT = "index.html"
PROBE = "fonts"
"""The name of the picture of letters, which shows whether this machine draws them as the pictures were drawn."""

_COLOR_MIN = 0.12
"""The smallest difference of brightness and colour that counts. The difference of black and white is 1."""
_SQUARE_PX = 16
_PIXELS_MIN = 12
"""A square counts as different if at least this many of its pixels differ."""
_APART_SQUARES = 3
"""Squares that differ belong to one place if their rows and their columns are at most this far apart."""
_PLACES_MAX = 6
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
# The parts of a page that a report names: the cards by their titles, and what is around them.
_PARTS = """() => [...document.querySelectorAll('.card[aria-label], .page-head, .top, .bottom')].map(e => {
    const box = e.getBoundingClientRect();
    const name = e.getAttribute('aria-label')
        || { 'page-head': 'head of the page', top: 'navigation', bottom: 'footer' }[e.className.split(' ')[0]];
    return [name, box.left + scrollX, box.top + scrollY, box.right + scrollX, box.bottom + scrollY];
})"""


@dataclass(frozen=True, slots=True)
class Place:
    """A rectangle in pixels from the upper left corner of a page in which it differs."""

    left: int
    top: int
    right: int
    bottom: int
    part: str = ""
    """The title of the card, or the name of the part of the page, that contains the middle of the place."""

    def __str__(self) -> str:
        """Return the place in words."""
        where = f"x {self.left} to {self.right}, y {self.top} to {self.bottom}"
        return f"{self.part} ({where})" if self.part else where


@dataclass(frozen=True, slots=True)
class Difference:
    """How a page differs from its picture."""

    squares: int
    """The number of squares of 16 px with different pixels; -1 if there is no kept picture."""
    said: str
    drawn: Image.Image
    """The page in grey, with the squares that differ in orange."""
    places: tuple[Place, ...] = ()
    """Where the page differs, from the largest place to the smallest, at most six."""

    def __str__(self) -> str:
        """Return the difference in words, with the places."""
        return "; ".join([self.said, *(str(place) for place in self.places)])


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
    # A higher quality takes five times as long, for files that are 5 % smaller.
    Image.fromarray(few).save(path, lossless=True, quality=75, method=4)
    return path.stat().st_size


def compare(name: str, seen: Image.Image) -> Difference | None:
    """Return how ``seen`` differs from the kept picture, or None if it does not.

    The page, the kept picture and the difference are then written to ``build/pictures``. A missing picture is a
    difference too.
    """
    path = KEPT / f"{name}.webp"
    kept = None
    if path.is_file():
        with Image.open(path) as opened:
            kept = opened.convert("RGB")
        found = difference(kept, seen)
    else:
        found = Difference(-1, "there is no kept picture", seen)
    if found is not None:
        SEEN.mkdir(parents=True, exist_ok=True)
        for word, picture in (("seen", seen), ("kept", kept), ("difference", found.drawn)):
            if picture is not None:
                picture.save(SEEN / f"{name}.{word}.png", compress_level=1)
    return found


def difference(kept: Image.Image, seen: Image.Image) -> Difference | None:
    """Return how ``seen`` differs from ``kept``, or None if no square of 16 px differs and the sizes are equal.

    If the sizes differ, everything outside of the smaller picture differs.
    """
    is_other_size = kept.size != seen.size
    size = max(kept.width, seen.width), max(kept.height, seen.height)
    is_different = _distance(_padded(kept, size), _padded(seen, size)) > _COLOR_MIN
    is_different[min(kept.height, seen.height) :] = True
    is_different[:, min(kept.width, seen.width) :] = True
    height, width = is_different.shape
    rows, columns = -(-height // _SQUARE_PX), -(-width // _SQUARE_PX)
    padded = np.zeros((rows * _SQUARE_PX, columns * _SQUARE_PX), dtype=bool)
    padded[:height, :width] = is_different
    counts = padded.reshape(rows, _SQUARE_PX, columns, _SQUARE_PX).sum(axis=(1, 3))
    squares = np.argwhere(counts >= _PIXELS_MIN)
    if not len(squares) and not is_other_size:
        return None
    said = f"{len(squares)} {'square' if len(squares) == 1 else 'squares'} of {_SQUARE_PX} px"
    if is_other_size:
        said = f"{seen.width} x {seen.height} px instead of {kept.width} x {kept.height} px, {said}"
    drawn = _drawn(_padded(seen, size), is_different, squares)
    return Difference(len(squares), said, drawn, _places(squares))


def _padded(picture: Image.Image, size: tuple[int, int]) -> NDArray[np.uint8]:
    if picture.size == size:
        return np.asarray(picture)
    whole = Image.new("RGB", size, "#ffffff")
    whole.paste(picture)
    return np.asarray(whole)


def _places(squares: NDArray[np.int64]) -> tuple[Place, ...]:
    """Join squares that are close to each other to places, and return the largest places."""
    near = range(-_APART_SQUARES, _APART_SQUARES + 1)
    left = {(int(row), int(column)) for row, column in squares}
    found = []
    while left:
        members = [left.pop()]
        for row, column in members:
            beside = {(row + y, column + x) for y in near for x in near} & left
            left -= beside
            members.extend(beside)
        rows, columns = [row for row, _ in members], [column for _, column in members]
        ends = min(columns), min(rows), max(columns) + 1, max(rows) + 1
        found.append((len(members), Place(*(_SQUARE_PX * end for end in ends))))
    found.sort(key=lambda one: (-one[0], one[1].top, one[1].left))
    return tuple(place for _, place in found[:_PLACES_MAX])


def named(found: Difference, page: Page) -> Difference:
    """Return the difference with the names of the parts of ``page`` that differ. The page must still be open."""
    parts: list[tuple[str, float, float, float, float]] = page.evaluate(_PARTS)
    return replace(found, places=tuple(replace(p, part=_part(p, parts)) for p in found.places))


def _part(place: Place, parts: Sequence[tuple[str, float, float, float, float]]) -> str:
    x, y = (place.left + place.right) / 2, (place.top + place.bottom) / 2
    around = [p for p in parts if p[1] <= x <= p[3] and p[2] <= y <= p[4]]
    # A card may contain another one.
    return min(around, key=lambda p: (p[3] - p[1]) * (p[4] - p[2]))[0] if around else ""


def clear() -> None:
    """Remove the report and the pictures of an earlier comparison."""
    for path in [*SEEN.glob("*.png"), SEEN / REPORT]:
        path.unlink(missing_ok=True)


def report(found: Mapping[str, Difference]) -> Path:
    """Write a page that shows each difference: the kept picture, the page, and where they differ. Return its path."""
    cards = []
    for name, how in found.items():
        places = "".join(f"<li>{html.escape(str(place))}</li>" for place in how.places)
        images = "".join(
            f'<figure><figcaption>{caption}</figcaption><a href="{name}.{word}.png">'
            f'<img src="{name}.{word}.png" alt="{caption}: {name}"></a></figure>'
            for word, caption in (("kept", "kept"), ("seen", "now"), ("difference", "difference"))
            if (SEEN / f"{name}.{word}.png").is_file()
        )
        cards.append(f"<h2>{name}</h2><p>{html.escape(how.said)}</p><ul>{places}</ul><div>{images}</div>")
    style = (
        "body{font:14px sans-serif;margin:24px}div{display:grid;grid-template-columns:repeat(3,1fr);gap:12px}"
        "figure{margin:0}img{width:100%;border:1px solid #888}"
    )
    SEEN.mkdir(parents=True, exist_ok=True)
    path = SEEN / REPORT
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pages that differ</title><style>{style}</style>'
        f"<h1>{len(found)} of the pages differ from their pictures</h1>{''.join(cards)}</html>\n",
        encoding="utf-8",
    )
    return path


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


def _drawn(seen: NDArray[np.uint8], is_different: NDArray[np.bool_], squares: NDArray[np.int64]) -> Image.Image:
    drawn = np.asarray(Image.fromarray(seen).convert("L").convert("RGB")) // 3 + 160
    for row, column in squares * _SQUARE_PX:
        drawn[row : row + _SQUARE_PX, column : column + _SQUARE_PX] = (255, 214, 170)
    drawn[is_different] = (213, 94, 0)
    return Image.fromarray(drawn.astype(np.uint8))
