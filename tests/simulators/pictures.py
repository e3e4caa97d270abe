"""``make pictures``: take the reference pictures of all pages again, which ``tests/e2e/test_pictures.py`` uses.

Only the pictures that differ from their pages are written, so ``git status`` lists the pages that changed. Look at them
before you commit them. Pictures of pages that are no longer in the register are removed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from PIL import Image

from tests.support import pictures
from tests.support.browsing import Browser, chromium, launched, opened
from tests.support.dashboard_site import site_over
from tests.support.page_register import PAGES, StandingClock, begin, every_page_api, show_complete

VIEWS = ((1440, "light"), (390, "dark"))
"""The widths and themes of the pictures: a laptop in the light theme, and a phone in the dark one."""


def name_of(page: str, width: int, theme: str) -> str:
    """Return the name of the picture of a page."""
    return f"{page}-{width}-{theme}"


def compared(
    browser: Browser, url: str, pages: tuple[str, ...] = ()
) -> Iterator[tuple[str, Image.Image, pictures.Difference | None]]:
    """Yield the name and the picture of each page in each view, and how it differs from the kept picture.

    ``pages`` restricts them to pages of these names.
    """
    for width, theme in VIEWS:
        with opened(browser, url, theme=theme) as (page, _):
            begin(page, width=width, theme=theme)
            for example in PAGES:
                if pages and example.name not in pages:
                    continue
                show_complete(page, example)
                name, picture = name_of(example.name, width, theme), pictures.take(page)
                found = pictures.compare(name, picture)
                yield name, picture, None if found is None else pictures.named(found, page)


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
    pictures.clear()
    seen, changed = {pictures.PROBE}, {}
    with site_over(every_page_api(StandingClock()), has_date=False) as url, launched(executable) as browser:
        with opened(browser, url) as (page, _):
            letters = pictures.take_probe(page)
        if pictures.compare(pictures.PROBE, letters) is not None:
            pictures.keep(pictures.PROBE, letters)
            print(f"{pictures.PROBE}  this machine draws letters in another way: every picture may change")
        for name, picture, found in compared(browser, url, names):
            seen.add(name)
            if found is not None:
                changed[name] = found
                size = pictures.keep(name, picture)
                print(f"{name}  {picture.width} x {picture.height} px  {size / 1000:.0f} kB: {found}", flush=True)
    if not names:
        for path in pictures.KEPT.glob("*.webp"):
            if path.stem not in seen:
                path.unlink()
                print(f"{path.stem}  removed")
    print(f"{len(seen) - 1} pictures, of which {len(changed)} were taken again; {pictures.report(changed)} shows how")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
