"""Every page of the register in a real Chromium: layout, contrast, targets, accessibility and the console.

``make test`` opens each page at a laptop's width in the light theme. ``make test-long`` resizes the window to other
widths. The clocks stand still, so that the content is always the same.
"""

from __future__ import annotations

import pytest

from dashboard import routes
from dashboard.routes import PageKind
from tests.support.browsing import Browser, chromium, launched, opened
from tests.support.dashboard_site import site_over
from tests.support.page_faults import accessibility_faults, layout_faults
from tests.support.page_register import HEIGHT, PAGES, StandingClock, begin, every_page_api, resize, show

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium() is None, reason="no Chromium on this machine"),
]

_LAPTOP_PX = 1440


@pytest.fixture(scope="module")
def browser():
    with launched(chromium()) as found:
        yield found


@pytest.fixture(scope="module")
def clock():
    return StandingClock()


@pytest.fixture(scope="module")
def site(clock):
    # Without the header Date, the pages do not learn that the clock of the service stands still.
    with site_over(every_page_api(clock), has_date=False) as url:
        yield url


def test_every_kind_of_page_is_in_the_register():
    assert {page.kind for page in PAGES} == set(PageKind)
    for page in PAGES:
        path, _, query = page.path.partition("?")
        assert routes.parse(path, query).page is page.kind, page.name
    assert len({page.name for page in PAGES}) == len(PAGES)


def test_every_page_is_without_fault_at_a_laptop_s_width(browser: Browser, site):
    found: dict[str, list[str]] = {}
    with opened(browser, site) as (page, watch):
        begin(page, width=_LAPTOP_PX)
        for example in PAGES:
            if example.is_heavy:
                continue
            show(page, example)
            found[example.name] = [*layout_faults(page), *accessibility_faults(page), *watch.found]
            watch.found.clear()
    assert {name: faults for name, faults in found.items() if faults} == {}


# The place of each part does not depend on the theme, so the dark theme is tried at the two widths that differ most.
@pytest.mark.slow
@pytest.mark.parametrize(("theme", "widths"), [("light", (1440, 1000, 2560, 390))])
def test_every_page_is_without_fault_while_the_window_is_resized(browser: Browser, site, theme, widths):
    found: dict[str, list[str]] = {}
    with opened(browser, site, theme=theme) as (page, watch):
        begin(page, width=widths[0], theme=theme)
        for example in PAGES:
            page.set_viewport_size({"width": widths[0], "height": HEIGHT})
            show(page, example)
            for width in widths:
                resize(page, example, width)
                faults = layout_faults(page)
                if width == 390:
                    # On a phone, tables are cards. The roles of their parts then come from a script.
                    faults += accessibility_faults(page)
                found[f"{example.name}, {theme}, {width} px"] = [*faults, *watch.found]
                watch.found.clear()
    assert {name: faults for name, faults in found.items() if faults} == {}
