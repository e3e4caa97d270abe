"""Every page looks like its kept picture: at 1440 px in the light theme, and at 390 px in the dark one.

The fonts of this machine are compared first, because other fonts would make every page differ.
"""

from __future__ import annotations

import os

import pytest

from tests.simulators.pictures import VIEWS, compared, name_of
from tests.support import pictures
from tests.support.browsing import opened
from tests.support.dashboard_site import site_over
from tests.support.page_register import PAGES, StandingClock, every_page_api


def test_each_page_of_the_register_has_its_pictures_and_no_others_are_kept():
    names = {name_of(page.name, width, theme) for page in PAGES for width, theme in VIEWS} | {pictures.PROBE}
    kept = {path.stem for path in pictures.KEPT.glob("*.webp")}

    assert names - kept == set(), "pages without a picture: run `make pictures`"
    assert kept - names == set(), "pictures without a page: `make pictures` removes them"
    assert sum(path.stat().st_size for path in pictures.KEPT.glob("*.webp")) < 6_000_000


# Each change of a page would fail CI until its pictures are taken again. Therefore CI does not compare them.
@pytest.mark.slow
@pytest.mark.skipif("BARRIERSCOPE_COMPARE_PICTURES" not in os.environ, reason="run it with `make compare-pictures`")
def test_every_page_looks_like_its_picture(browser):
    pictures.clear()
    with site_over(every_page_api(StandingClock()), has_date=False) as url:
        with opened(browser, url) as (page, _):
            letters = pictures.compare(pictures.PROBE, pictures.take_probe(page))
        if letters is not None:
            pytest.skip(f"this machine draws letters in another way than the kept pictures: {letters}")
        differing = {name: found for name, _, found in compared(browser, url) if found is not None}
    said = "\n".join(f"{name}: {found}" for name, found in differing.items())
    assert not differing, f"open {pictures.report(differing)}; if the pages are right, run `make pictures`\n{said}"
