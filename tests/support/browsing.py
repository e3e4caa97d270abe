"""A real Chromium for tests of the pages, and a record of the errors that it shows."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    Playwright,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.support.waiting import until

# The headless shell is the same engine without the windows of a desktop: a page costs a fifth less processor time.
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Other tests may use the same two cores, so that a page may be slow. A wait that cannot succeed still ends soon enough.
_PATIENCE_MS = 180_000.0
LAPTOP = (1366, 768)
_WITH_CLOCK: set[int] = set()
"""The open pages whose clock was set."""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{fonts}</dir><cachedir>{cache}</cachedir></fontconfig>
"""


def chromium() -> str | None:
    """Return the path of the browser on this machine, or None if no browser is installed.

    If BARRIERSCOPE_REQUIRE_BROWSER is set, fail instead of returning None, so that no test is skipped.
    """
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    assert found or not os.environ.get("BARRIERSCOPE_REQUIRE_BROWSER"), "no Chromium is installed"
    return found


def required_chromium() -> str:
    """Return the path of the browser on this machine for a benchmark, which ends with a message if there is none."""
    found = chromium()
    if found is None:
        raise SystemExit("no Chromium is installed: nothing is measured")
    return found


class Browser:
    """Chromium with a profile on disk, which keeps compiled scripts between pages.

    Playwright's usual contexts have no profile: each page would compile its scripts again, which takes seconds.
    """

    def __init__(
        self, playwright: Playwright, executable: str, flags: tuple[str, ...], profile: Path, *, fonts: Path | None
    ) -> None:
        self._playwright = playwright
        self._executable = executable
        self._flags = flags
        self._profile = profile
        self._environment: dict[str, str | float | bool] = dict(os.environ)
        if fonts is not None:
            settings = profile / "fonts.conf"
            settings.write_text(_FONTS.format(fonts=fonts, cache=profile / "fonts"), encoding="utf-8")
            self._environment["FONTCONFIG_FILE"] = str(settings)
        self._base_url = ""
        self._context: BrowserContext | None = None

    def at(self, base_url: str) -> BrowserContext:
        """Return a browser context whose relative addresses start at ``base_url``.

        Restart the browser if ``base_url`` changed.
        """
        if self._context is None or base_url != self._base_url:
            self.close()
            width, height = LAPTOP
            self._base_url = base_url
            self._context = self._playwright.chromium.launch_persistent_context(
                self._profile,
                executable_path=self._executable,
                args=[*_FLAGS, *self._flags],
                env=self._environment,
                base_url=base_url,
                viewport={"width": width, "height": height},
                timezone_id="Europe/Berlin",
                locale="en-GB",
            )
        return self._context

    def close(self) -> None:
        """Close the browser."""
        if self._context is not None:
            self._context.close()
            self._context = None


@cache
def _kept_profile() -> Path:
    """Return the profile of the browsers of this process, which run one after another. It is removed at the exit.

    The next browser finds in it the scripts that those before it have compiled, if the pages are at the same address.
    """
    folder = Path(tempfile.mkdtemp(prefix="chromium-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def _profile(*, is_kept: bool) -> Iterator[Path]:
    if is_kept:
        yield _kept_profile()
        return
    with tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def launched(executable: str, *flags: str, fonts: Path | None = None) -> Iterator[Browser]:
    """Start the browser and yield it. Each test opens its own page in this browser.

    With ``fonts``, the browser finds the fonts in this folder and no others.
    """
    with _profile(is_kept=not flags and fonts is None) as profile, sync_playwright() as playwright:
        browser = Browser(playwright, executable, flags, profile, fonts=fonts)
        try:
            yield browser
        finally:
            browser.close()


class SharedBrowser:
    """A browser that many tests share. It starts when a page is opened, and again after it was closed."""

    def __init__(self, executable: str) -> None:
        self._executable = executable
        self._stack = ExitStack()
        self._browser: Browser | None = None

    def at(self, base_url: str) -> BrowserContext:
        """Return a browser context whose relative addresses start at ``base_url``."""
        if self._browser is None:
            self._browser = self._stack.enter_context(launched(self._executable))
        return self._browser.at(base_url)

    def close(self) -> None:
        """Close the browser, if it runs."""
        self._browser = None
        self._stack.close()


class Watch:
    """The errors and warnings of one page: console messages, exceptions, and failed requests."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"exception: {error}, {(error.stack or '')[:800]}"))
        page.on("response", self._response)
        page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") or "WebSocket" in message.text:
            self.found.append(f"console {message.type}: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.found.append(f"HTTP {response.status}: {response.url}")

    def _failed(self, request: Request) -> None:
        # A request that was aborted by navigation is not a failure.
        if request.failure != "net::ERR_ABORTED":
            self.found.append(f"failed: {request.url} ({request.failure})")


@contextmanager
def opened(
    browser: Browser | SharedBrowser, base_url: str, *, theme: str = "light", is_first_visit: bool = False
) -> Iterator[tuple[Page, Watch]]:
    """Open a page of a laptop's size in the colour scheme ``theme``. Yield the page and the watch on its errors.

    The fleet offers the tour only if ``is_first_visit``.

    At the end, cookies, local storage, granted permissions and a clock of the page are removed. They would otherwise
    be those of each later page, because they belong to the browser context.
    """
    context = browser.at(base_url)
    page = context.new_page()
    try:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        if not is_first_visit:
            page.add_init_script("try { localStorage.setItem('barrierscope-tour', 'declined'); } catch (error) {}")
        page.set_default_timeout(_PATIENCE_MS)
        expect.set_options(timeout=_PATIENCE_MS)
        yield page, Watch(page)
    finally:
        is_clean = False
        try:
            stored = {"origin": base_url, "storageTypes": "cookies,local_storage"}
            context.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
            context.clear_cookies()
            context.clear_permissions()
            page.close()
            is_clean = id(page) not in _WITH_CLOCK
        except Error:
            # The page has crashed, or the test has closed it.
            pass
        finally:
            _WITH_CLOCK.discard(id(page))
            if not is_clean:
                # There is no other way to give a context its real clock back.
                browser.close()


def clock_of(page: Page) -> Any:
    """Return the clock of a page in ``opened``. Its context has it for all its pages, so the page is its last one."""
    _WITH_CLOCK.add(id(page))
    return page.clock


def go(page: Page, path: str) -> None:
    """Go to another page of the application as its links do, without reloading the application."""
    page.evaluate(
        """href => {
            window.history.pushState({}, '', href);
            window.dispatchEvent(new CustomEvent('_dashprivate_pushstate'));
            window.scrollTo(0, 0);
        }""",
        path,
    )


def focus(target: Locator) -> None:
    """Give an element the focus as soon as the page shows it.

    An element of a page that awaits its first answer is hidden, and a hidden element silently takes no focus.
    """
    expect(target).to_be_visible()
    target.focus()
    expect(target).to_be_focused()


def drag(page: Page, thumb: str, track: str, *, to_ratio: float) -> None:
    """Drag a slider's thumb with the mouse to ``to_ratio`` of the length of its track."""
    page.locator(thumb).scroll_into_view_if_needed()
    start, line = page.locator(thumb).bounding_box(), page.locator(track).bounding_box()
    assert start is not None
    assert line is not None
    y = start["y"] + start["height"] / 2
    page.mouse.move(start["x"] + start["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(line["x"] + line["width"] * to_ratio, y, steps=12)
    page.mouse.up()


def overflowing(page: Page) -> list[str]:
    """Return the elements that overflow the page to the right or are cut off inside their own box.

    An element in a box that can be scrolled sideways, such as the fleet's grid, does not overflow the page.
    """
    found: list[str] = page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth, found = [];
            const isScrolled = function (e) {
                for (let up = e.parentElement; up && up !== document.body; up = up.parentElement) {
                    const how = getComputedStyle(up).overflowX;
                    if ((how === 'auto' || how === 'scroll') && up.scrollWidth > up.clientWidth) { return true; }
                }
                return false;
            };
            if (document.documentElement.scrollWidth > width + 1) {
                found.push('the page scrolls sideways: ' + document.documentElement.scrollWidth);
            }
            for (const e of document.querySelectorAll('.badge, .button, .chip:not(.chip-name), h1, h2, .fact-value')) {
                const box = e.getBoundingClientRect();
                const isOut = box.right > width + 1 && !isScrolled(e);
                if (box.width && (isOut || e.scrollWidth > e.clientWidth + 2 && e.clientWidth)) {
                    found.push(e.className + ': ' + e.textContent);
                }
            }
            return found;
        }"""
    )
    return found


def scrolled_sideways(page: Page) -> list[str]:
    """Return the cards whose content is wider than they are."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('.card')].filter(card => card.scrollWidth > card.clientWidth + 1)
            .map(card => `${card.getAttribute('aria-label') || card.parentElement.id}: ${card.scrollWidth} px of ${
                card.clientWidth} px`)"""
    )
    return found


def stray_scroll_bars(page: Page) -> list[str]:
    """Return the boxes that scroll by less than a line of text, so that they show a scroll bar for nothing."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('#react-entry-point *')].filter(function (e) {
            const how = getComputedStyle(e);
            const scrolls = (value, px) => (value === 'auto' || value === 'scroll') && px > 0 && px <= 12;
            const [x, y] = [e.scrollWidth - e.clientWidth, e.scrollHeight - e.clientHeight];
            const isStray = scrolls(how.overflowX, x) || scrolls(how.overflowY, y);
            return isStray && e.clientWidth > 0 && e.checkVisibility();
        }).map(e => `${e.id || e.className}: ${e.scrollWidth} x ${e.scrollHeight} px in ${e.clientWidth} x ${
            e.clientHeight} px`)"""
    )
    return found


def small_targets(page: Page) -> list[str]:
    """Return the visible elements that can be pressed and are less than 24 px wide or high (WCAG 2.2, 2.5.8)."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('a, button, input, select, summary, [role=slider], [role=option]')]
            .filter(e => {
                const box = e.getBoundingClientRect();
                // The content of closed details has a box, but cannot be pressed.
                const isShown = box.width > 1 && box.height > 1 && e.checkVisibility({ visibilityProperty: true });
                return isShown && !e.closest('.visually-hidden') && Math.min(box.width, box.height) < 23.5;
            })
            .map(e => {
                const box = e.getBoundingClientRect();
                const name = e.id || e.getAttribute('aria-label') || e.textContent || e.className;
                return `${e.tagName} ${name}: ${box.width.toFixed(0)} x ${box.height.toFixed(0)}`;
            })"""
    )
    return found


def cut_off(page: Page) -> list[str]:
    """Return the badges, chips and numbers that a cell of a grid cuts off. Long names may be cut off."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('.ag-cell .badge, .ag-cell .chip, .ag-cell .number')]
            .filter(e => {
                const cell = e.closest('.ag-cell').getBoundingClientRect(), box = e.getBoundingClientRect();
                return box.width && (box.right > cell.right || box.left < cell.left || e.scrollWidth > e.clientWidth + 1
                    && e.clientWidth);
            })
            .map(e => e.textContent)"""
    )
    return found


def collapsed(page: Page) -> list[str]:
    """Return the charts that are shown without height, do not fill their box, or stand out of their card."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('.js-plotly-plot')]
            .filter(chart => chart.closest('figure').getBoundingClientRect().width)
            .map(chart => {
                const drawn = chart.querySelector('.main-svg');
                const box = chart.closest('[id$=-box]').getBoundingClientRect();
                const d = drawn ? drawn.getBoundingClientRect() : { width: 0, height: 0 };
                const card = chart.closest('.card').getBoundingClientRect();
                const isFull = Math.abs(d.height - box.height) < 2 && Math.abs(d.width - box.width) < 2;
                const isInside = box.width <= card.width;
                const size = [d.width, d.height, box.width, box.height, card.width].map(Math.round).join(' ');
                return d.height >= 60 && isFull && isInside ? null : `${chart.closest('[id$=-graph]').id}: ${size}`;
            })
            .filter(Boolean)"""
    )
    return found


def until_charts_fit(page: Page, what: str) -> None:
    """Wait until every chart of the page fills its box. Redrawing after a change of the size takes a moment."""
    try:
        until(lambda: collapsed(page) == [], f"the charts fill their boxes: {what}")
    except AssertionError as late:
        late.add_note(str(collapsed(page)))
        raise


def count_requests(page: Page) -> None:
    """Make the page count its outstanding requests, for ``settle``. Call this before the page is loaded."""
    page.add_init_script(
        """window.outstanding = 0;
        const asked = window.fetch;
        window.fetch = function () {
            window.outstanding += 1;
            return asked.apply(this, arguments).finally(() => { window.outstanding -= 1; });
        };"""
    )


def show_whole(page: Page) -> None:
    """Scroll through the page and back, because some charts are drawn only when they come into view."""
    page.evaluate(
        """async () => {
            const frames = () => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)));
            for (let y = 0; y < document.documentElement.scrollHeight; y += window.innerHeight / 2) {
                window.scrollTo(0, y);
                await frames();
            }
            window.scrollTo(0, 0);
            await frames();
        }"""
    )
    settle(page)


def settle(page: Page) -> None:
    """Wait until the page has no outstanding request and its charts are drawn, and stays so for several frames.

    ``count_requests`` must have been called. A page that does not become calm fails the test with what it waits for.
    """
    waits_for = page.evaluate(
        """patience_ms => new Promise(resolve => {
            // After a change, a page waits up to a tenth of a second before it requests anything.
            let calm = 0, isOver = false, frames = 0;
            const loading = () => [...document.querySelectorAll('[data-dash-is-loading=true]')].map(e => e.id);
            const isBusy = () => window.outstanding > 0 || document.fonts.status !== 'loaded' || loading().length > 0;
            const look = () => {
                frames += 1;
                calm = isBusy() ? 0 : calm + 1;
                if (calm > 20) { isOver = true; resolve(null); } else if (!isOver) { requestAnimationFrame(look); }
            };
            setTimeout(() => {
                isOver = true;
                resolve(`${window.outstanding} requests, ${loading().length} loading parts (${loading()}), fonts `
                    + `${document.fonts.status}, ${frames} frames`);
            }, patience_ms);
            look();
        })""",
        _PATIENCE_MS,
    )
    assert waits_for is None, f"{page.url} is not calm: {waits_for}"
    until_charts_fit(page, page.url)


class Weight:
    """The bytes that a page received and the sum of its layout shifts (CLS), from the start of this object on."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self.received_bytes = 0
        self._session.on("Network.loadingFinished", self._finished)
        self._session.send("Network.enable")
        page.add_init_script(
            """window.shifts = 0;
            window.moved = [];
            // On a busy machine, an answer or a reading is late, and the line that says so moves the page.
            addEventListener('DOMContentLoaded', () => {
                const style = document.createElement('style');
                style.textContent = '#api-silence, #fleet-stale { display: none !important; }';
                document.head.append(style);
            });
            new PerformanceObserver(list => list.getEntries().forEach(
                e => {
                    if (e.hadRecentInput) return;
                    window.shifts += e.value;
                    const place = r => `${r.left},${r.top} ${r.width}x${r.height}`;
                    const moved = e.sources.map(s => `${s.node?.id || s.node?.className || s.node?.nodeName}:`
                        + ` ${place(s.previousRect)} to ${place(s.currentRect)}`);
                    window.moved.push(`${e.value.toFixed(4)} at ${Math.round(e.startTime)} ms: ${moved.join('; ')}`);
                }
            )).observe({type: 'layout-shift', buffered: true})"""
        )

    def _finished(self, event: dict[str, float]) -> None:
        self.received_bytes += int(event["encodedDataLength"])

    def forget_files(self) -> None:
        """Empty the browser's cache, as for a viewer who opens the service for the first time."""
        self._session.send("Network.clearBrowserCache")

    def moved(self) -> list[str]:
        """Return what moved since the page was loaded, for the message of a test: value, time and places."""
        return list(self._page.evaluate("window.moved"))

    def shifts(self) -> float:
        """Return the sum of the layout shifts since the page was loaded, without those caused by the viewer."""
        return float(self._page.evaluate("window.shifts"))
