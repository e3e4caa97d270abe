"""The pages in fonts of other widths, because each machine draws them in the first font of the list that it has.

DejaVu Sans is the usual font of Linux, and about an eighth wider than Liberation Sans.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support.browsing import Browser, chromium, launched, opened
from tests.support.dashboard_site import site_over
from tests.support.page_faults import lasting_layout_faults
from tests.support.page_register import PAGES, StandingClock, begin, every_page_api, resize, show
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine"),
]

_FONTS = ("DejaVu Sans", "Liberation Sans")
_LAPTOP_PX = 1440
_WIDTHS_PX = (1440, 1000, 390)
# Names of rows that are wider than in other jobs, and sentences that are longer than in other checkpoints.
_NARROWEST = ("job-wide", "checkpoint-in-progress", "checkpoint-wide", "comparison")
_SENTENCE_WIDTHS_PX = (2560, 1440, 1301, 1300, 1051, 1050, 721, 720, 641, 640, 461, 460, 390, 375, 360)
# The longest sentences of the predicted finish. The second one is drawn bold.
_SENTENCES = {
    "info": "Will probably finish 12 min 30 s after its trigger (95 % of checkpoints of this age finish between 10 min "
    "20 s and 29 min 50 s; estimated from 100 checkpoints that had come as far; 100 of them took longer from there).",
    "warn": "Will probably reach its timeout of 10 min 30 s: 95 % of checkpoints of this age do, and the others finish "
    "after 10 min 20 s at the earliest (estimated from 100 checkpoints that had come as far; 100 of them took longer "
    "from there).",
}


def _folder_of(font: str) -> Path | None:
    """Return the folder of a font; None if it is not installed."""
    if shutil.which("fc-match") is None:
        return None
    asked = ["fc-match", "--format=%{file}|%{family}", font]
    said = subprocess.run(asked, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout
    file, _, family = said.partition("|")
    return Path(file).parent if font in family.split(",") else None


@pytest.fixture(scope="module", params=_FONTS)
def page(request: pytest.FixtureRequest) -> Iterator[Page]:
    folder = _folder_of(request.param)
    if folder is None:
        pytest.skip(f"{request.param} is not installed")
    with (
        site_over(every_page_api(StandingClock()), has_date=False) as url,
        launched(chromium(), fonts=folder) as browser,
        opened(browser, url) as (found, _),
    ):
        begin(found, width=_LAPTOP_PX)
        assert _drawn_in(browser, url, found) == {request.param}
        yield found


def _drawn_in(browser: Browser, url: str, page: Page) -> set[str]:
    """Return the names of the fonts in which the head of the page is drawn."""
    session = browser.at(url).new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument")["root"]["nodeId"]
    node = session.send("DOM.querySelector", {"nodeId": root, "selector": "h1"})["nodeId"]
    return {font["familyName"] for font in session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]}


def test_the_pages_with_the_widest_labels_show_them_whole(page):
    assert _faults(page, _NARROWEST, _WIDTHS_PX) == {}


@pytest.mark.slow
def test_every_page_shows_its_labels_whole(page):
    # Heavy pages are left out: in DejaVu Sans, the names over the front of a large job overlap by up to 9 px.
    assert _faults(page, [example.name for example in PAGES if not example.is_heavy], _WIDTHS_PX) == {}


def _faults(page: Page, names: tuple[str, ...] | list[str], widths: tuple[int, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for example in PAGES:
        if example.name not in names:
            continue
        page.set_viewport_size({"width": _LAPTOP_PX, "height": 900})
        show(page, example)
        for width in widths:
            resize(page, example, width)
            found[f"{example.name}, {width} px"] = lasting_layout_faults(page, is_lazy=example.is_lazy)
    return {name: faults for name, faults in found.items() if faults}


@pytest.mark.parametrize("name", ["job-in-progress", "checkpoint-in-progress"])
def test_the_longest_sentence_of_the_predicted_finish_has_room_at_every_width(page, name):
    cut = []
    example = next(e for e in PAGES if e.name == name)
    page.set_viewport_size({"width": _LAPTOP_PX, "height": 900})
    show(page, example)
    # The sentence has nothing to do with the charts, and drawing them again takes longer than all else.
    hidden = page.add_style_tag(content=".js-plotly-plot { display: none !important; }")
    for width in _SENTENCE_WIDTHS_PX:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function("width => window.innerWidth === width", arg=width)
        for tone, words in _SENTENCES.items():
            lost_px = page.evaluate(_LOST_JS, [tone, words])
            # Half of a pixel at each line is rounding.
            if max(lost_px) > 2:
                cut.append((width, tone, lost_px))
    hidden.evaluate("style => style.remove()")
    assert cut == []


# How many pixels of the sentence, and of the part of the panel that contains it, are cut off. Nothing is kept changed.
_LOST_JS = """([tone, words]) => {
    const finish = document.querySelector(".progress-head .finish"), panel = finish.closest(".progress-head");
    const text = finish.querySelector("span:not(.icon)").firstChild;
    const was = [finish.className, text.data];
    [finish.className, text.data] = [`finish tone-text-${tone}`, words];
    const last = panel.lastElementChild.getBoundingClientRect();
    const lost = [finish.scrollHeight - finish.clientHeight, last.bottom - panel.getBoundingClientRect().bottom];
    [finish.className, text.data] = was;
    return lost;
}"""
