"""A real Chromium for tests of the pages, with a record of its errors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Request,
    Response,
    expect,
    sync_playwright,
)

from tests.support.waiting import PATIENCE_S

_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Other tests may use the same two cores. A shorter limit would make nothing faster.
_PATIENCE_MS = PATIENCE_S * 1_000
LAPTOP = (1366, 768)


def chromium() -> str | None:
    """The browser of this machine; None if there is none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), None)


class Browser:
    """Chromium with a profile on disk, which keeps compiled scripts between pages.

    Without a profile, as in the usual contexts of Playwright, each page compiles them again, which takes seconds.
    """

    def __init__(self, playwright: Playwright, executable: str, flags: tuple[str, ...], profile: Path) -> None:
        self._playwright = playwright
        self._executable = executable
        self._flags = flags
        self._profile = profile
        self._base_url = ""
        self._context: BrowserContext | None = None

    def at(self, base_url: str) -> BrowserContext:
        """The browser, with addresses relative to ``base_url``. It is restarted if ``base_url`` changed."""
        if self._context is None or base_url != self._base_url:
            self.close()
            width, height = LAPTOP
            self._base_url = base_url
            self._context = self._playwright.chromium.launch_persistent_context(
                self._profile,
                executable_path=self._executable,
                args=[*_FLAGS, *self._flags],
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


@contextmanager
def launched(executable: str, *flags: str) -> Iterator[Browser]:
    """One browser; each test opens its own page in it."""
    with (
        tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile,
        sync_playwright() as playwright,
    ):
        browser = Browser(playwright, executable, flags, Path(profile))
        try:
            yield browser
        finally:
            browser.close()


class Watch:
    """The errors that the browser's console would show."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.found.append(f"exception: {error}"))
        page.on("response", self._response)
        page.on("requestfailed", self._failed)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"console {message.type}: {message.text}")

    def _response(self, response: Response) -> None:
        if response.status >= 400:
            self.found.append(f"HTTP {response.status}: {response.url}")

    def _failed(self, request: Request) -> None:
        # A request that was aborted by navigation is not a failure.
        if request.failure != "net::ERR_ABORTED":
            self.found.append(f"failed: {request.url} ({request.failure})")


@contextmanager
def opened(browser: Browser, base_url: str, *, theme: str = "light") -> Iterator[tuple[Page, Watch]]:
    """A page of a laptop's size with the preferred colour scheme ``theme`` and empty storage."""
    context = browser.at(base_url)
    page = context.new_page()
    try:
        page.emulate_media(color_scheme="dark" if theme == "dark" else "light")
        page.set_default_timeout(_PATIENCE_MS)
        expect.set_options(timeout=_PATIENCE_MS)
        yield page, Watch(page)
    finally:
        stored = {"origin": base_url, "storageTypes": "cookies,local_storage"}
        context.new_cdp_session(page).send("Storage.clearDataForOrigin", stored)
        context.clear_cookies()
        page.close()


def go(page: Page, path: str) -> None:
    """Go to another page of the application as its links do, without loading it again."""
    page.evaluate(
        """href => {
            window.history.pushState({}, '', href);
            window.dispatchEvent(new CustomEvent('_dashprivate_pushstate'));
            window.scrollTo(0, 0);
        }""",
        path,
    )


def drag(page: Page, thumb: str, track: str, *, to_ratio: float) -> None:
    """Drag a slider's thumb along its track with the mouse."""
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
    """The elements that overflow the page to the right or are cut off in their own box."""
    found: list[str] = page.evaluate(
        """() => {
            const width = document.documentElement.clientWidth, found = [];
            if (document.documentElement.scrollWidth > width + 1) {
                found.push('the page scrolls sideways: ' + document.documentElement.scrollWidth);
            }
            for (const e of document.querySelectorAll('.badge, .button, .chip:not(.chip-name), h1, h2, .fact-value')) {
                const box = e.getBoundingClientRect();
                if (box.width && (box.right > width + 1 || e.scrollWidth > e.clientWidth + 2 && e.clientWidth)) {
                    found.push(e.className + ': ' + e.textContent);
                }
            }
            return found;
        }"""
    )
    return found
