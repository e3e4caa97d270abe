"""Every page of the register in a real Chromium: layout, contrast, targets, accessibility and the console.

``make test`` opens each page at a laptop's width in the light theme. ``make test-long`` opens it in both themes,
resizes the window to other widths, and measures how far parts of the page move. The clocks stand still, so that the
content is always the same.
"""

from __future__ import annotations

from functools import partial

import pytest
from playwright.sync_api import Page

from dashboard import routes
from dashboard.routes import PageKind
from tests.support.browsing import SharedBrowser, Weight, clock_of, opened, settle, show_whole, small_targets
from tests.support.dashboard_site import site_over
from tests.support.page_faults import accessibility_faults, lasting_layout_faults, layout_faults
from tests.support.page_register import HEIGHT, PAGES, Example, StandingClock, begin, every_page_api, resize, show
from tests.support.waiting import until

_LAPTOP_PX = 1440
_WIDTHS_PX = (1440, 1000, 2560, 390)
_CLS_MAX = 0.05
_LIVE_CLS_PER_MIN_MAX = 0.01
_TICK_S = 4.0
_TICKS = 3
_ANSWER_S = 0.15
"""How long the API takes to answer while layout shifts are measured. Parts of a page then arrive one after another, as
they do over a network."""


@pytest.fixture(scope="module")
def clock():
    return StandingClock()


@pytest.fixture(scope="module")
def site(clock):
    # Without the header Date, the pages do not learn that the clock of the service stands still.
    with site_over(every_page_api(clock), has_date=False) as url:
        yield url


def test_every_kind_of_page_is_in_the_register():
    assert {page.kind for page in PAGES if page.kind} == set(PageKind)
    for page in PAGES:
        if page.kind is None:
            continue
        path, _, query = page.path.partition("?")
        assert routes.parse(path, query).page is page.kind, page.name
    assert len({page.name for page in PAGES}) == len(PAGES)


def test_every_page_is_without_fault_at_a_laptop_s_width(browser: SharedBrowser, site):
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


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_is_without_fault_while_the_window_is_resized(browser: SharedBrowser, site, theme):
    found: dict[str, list[str]] = {}
    with opened(browser, site, theme=theme) as (page, watch):
        begin(page, width=_LAPTOP_PX, theme=theme)
        for example in PAGES:
            page.set_viewport_size({"width": _LAPTOP_PX, "height": HEIGHT})
            show(page, example)
            for width in _WIDTHS_PX:
                resize(page, example, width)
                faults = lasting_layout_faults(page, is_lazy=example.is_lazy)
                if width == 390:
                    # On a phone, tables are cards. The roles of their parts then come from a script.
                    faults += accessibility_faults(page)
                found[f"{example.name}, {theme}, {width} px"] = [*faults, *watch.found]
                watch.found.clear()
    assert {name: faults for name, faults in found.items() if faults} == {}


# What a viewer opens, and what shows that it is open. Its contents are outside of the page's own elements.
_OPENED = (
    ("runbook", "#zone-open", "[role=dialog] [role=option]:visible"),
    ("job", "#heatmap-measure", "[role=listbox] [role=option]:visible"),
    ("targets", "button[aria-label='Links of production-eu']", "[role=dialog] .link-row"),
    ("targets", "button[aria-label='Edit production-eu']", "[role=dialog] .target-options-group"),
    ("targets", "button[aria-label='Remove production-eu']", "[role=dialog] #target-confirm"),
    ("advice", ".advice-actions .button.primary", "[role=dialog] .diff"),
)


@pytest.mark.slow
def test_lists_and_dialogs_that_are_open_are_accessible(browser: SharedBrowser, site):
    found: dict[str, list[str]] = {}
    examples = {example.name: example for example in PAGES}
    with opened(browser, site) as (page, watch):
        begin(page, width=_LAPTOP_PX)
        for name, opener, shown in _OPENED:
            show(page, examples[name])
            page.click(opener)
            page.locator(shown).first.wait_for()
            settle(page)
            found[opener] = [*accessibility_faults(page, has_contrast=True), *small_targets(page), *watch.found]
            watch.found.clear()
            page.reload()
    assert {name: faults for name, faults in found.items() if faults} == {}


def _is_whole(page: Page, example: Example) -> bool:
    show_whole(page)
    return page.query_selector(example.shows) is not None


@pytest.mark.slow
@pytest.mark.parametrize("width", [_LAPTOP_PX, 390])
def test_the_parts_of_every_page_stand_still_while_it_loads_and_while_it_is_live(browser: SharedBrowser, width):
    moved: dict[str, tuple[float, float]] = {}
    clock, ticks = StandingClock(), 0
    with (
        site_over(every_page_api(clock), has_date=False, api_s=_ANSWER_S) as url,
        opened(browser, url) as (page, _),
    ):
        weight = Weight(page)
        begin(page, width=width)
        for example in PAGES:
            page.goto(example.path)
            if example.is_lazy:
                # While the page is hidden, a viewer sees only its end, and has nothing to scroll through.
                page.wait_for_selector("#page > div:not(.is-awaiting) > *", state="attached")
                until(partial(_is_whole, page, example), "the charts that come into view are drawn")
            page.wait_for_selector(example.shows, state="attached")
            settle(page)
            loaded = 0.0
            for tick in range(_TICKS + 1):
                # On a busy machine, loading may go on until the first tick.
                loaded = weight.shifts() if tick == 1 else loaded
                # The checkpoint in progress goes on, and later the next one begins.
                clock.advance(seconds=_TICK_S)
                clock_of(page).set_fixed_time(clock())
                ticks += 1
                # The login page is no page of Dash and has no ticks.
                page.evaluate("n => window.dash_clientside?.set_props('tick', {n_intervals: 1000 + n})", ticks)
                settle(page)
            live = (weight.shifts() - loaded) * 60 / (_TICKS * _TICK_S)
            if loaded > _CLS_MAX or live > _LIVE_CLS_PER_MIN_MAX:
                moved[example.name] = loaded, live
            clock.reset()
    assert moved == {}
