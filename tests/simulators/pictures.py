"""``make pictures``: take the reference pictures of all pages again, which ``tests/e2e/test_pictures.py`` uses.

Look at the pictures that change before you commit them: ``git status`` lists them. Pictures of pages that are no longer
in the register are removed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from PIL import Image

from tests.support import pictures
from tests.support.browsing import Browser, chromium, launched, opened
from tests.support.dashboard_site import site_over
from tests.support.page_register import PAGES, StandingClock, begin, every_page_api, show

VIEWS = ((1440, "light"), (390, "dark"))
"""The widths and themes of the pictures: a laptop in the light theme, and a phone in the dark one."""


def name_of(page: str, width: int, theme: str) -> str:
    """Return the name of the picture of a page."""
    return f"{page}-{width}-{theme}"


def taken(browser: Browser, url: str, pages: tuple[str, ...] = ()) -> Iterator[tuple[str, Image.Image]]:
    """Yield the name and the picture of each page in each view. ``pages`` restricts them to pages of these names."""
    for width, theme in VIEWS:
        with opened(browser, url, theme=theme) as (page, _):
            begin(page, width=width, theme=theme)
            for example in PAGES:
                if not pages or example.name in pages:
                    show(page, example)
                    yield name_of(example.name, width, theme), pictures.take(page)


def main(arguments: list[str]) -> int:
    """Take the pictures of the pages that are named in ``arguments``, or of all pages."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulators.pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PAGE", help="pages to take; default: all")
    names = tuple(parser.parse_args(arguments).names)
    unknown = sorted(set(names) - {page.name for page in PAGES})
    executable = chromium()
    if unknown or executable is None:
        reason = f"no page {', '.join(unknown)}" if unknown else "no Chromium on this machine"
        print(f"pictures: {reason}", file=sys.stderr)
        return 1
    sizes: dict[str, int] = {}
    with site_over(every_page_api(StandingClock()), has_date=False) as url, launched(executable) as browser:
        with opened(browser, url) as (page, _):
            sizes[pictures.PROBE] = pictures.keep(pictures.PROBE, pictures.take_probe(page))
        for name, picture in taken(browser, url, names):
            sizes[name] = pictures.keep(name, picture)
            print(f"{name}  {picture.width} x {picture.height} px  {sizes[name] / 1000:.0f} kB", flush=True)
    if not names:
        for path in pictures.KEPT.glob("*.webp"):
            if path.stem not in sizes:
                path.unlink()
                print(f"{path.stem}  removed")
    print(f"{len(sizes)} pictures, {sum(sizes.values()) / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
