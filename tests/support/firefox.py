"""A real Firefox for tests of the pages: the one of the distribution, which Playwright steers with WebDriver BiDi."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from tests.support.browsing import LAPTOP, Watch
from tests.support.waiting import PATIENCE_S

_NAMES = ("firefox-esr", "firefox")
_ROOT = Path(__file__).resolve().parents[2]
_DECLINE_TOUR = "try { localStorage.setItem('barrierscope-tour', 'declined'); } catch (error) {}"


def firefox() -> str | None:
    """Return the path of Firefox on this machine, or None if it is not installed.

    If BARRIERSCOPE_REQUIRE_FIREFOX is set, fail instead of returning None, so that no test is skipped.
    """
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    assert found or not os.environ.get("BARRIERSCOPE_REQUIRE_FIREFOX"), "no Firefox is installed"
    return found


@contextmanager
def opened_in_firefox(executable: str, base_url: str) -> Iterator[tuple[Page, Watch]]:
    """Start Firefox with an empty profile and yield a page of a laptop's size, and the watch on its errors."""
    with (
        tempfile.TemporaryDirectory(prefix="firefox-", ignore_cleanup_errors=True) as folder,
        sync_playwright() as playwright,
    ):
        browser = playwright.firefox.launch(channel="moz-firefox", executable_path=_relay(Path(folder), executable))
        width, height = LAPTOP
        page = browser.new_page(base_url=base_url, viewport={"width": width, "height": height}, locale="en-GB")
        page.add_init_script(_DECLINE_TOUR)
        page.set_default_timeout(PATIENCE_S * 1_000)
        expect.set_options(timeout=PATIENCE_S * 1_000)
        try:
            yield page, Watch(page)
        finally:
            browser.close()


def _relay(folder: Path, executable: str) -> Path:
    """Write a program that starts Firefox behind the relay, because Playwright passes no arguments of ours."""
    program = folder / "firefox-relay"
    program.write_text(
        f'#!/bin/sh\ncd "{_ROOT}" && exec "{sys.executable}" -m tests.support.firefox_relay "{executable}" "$@"\n'
    )
    program.chmod(0o700)
    return program
