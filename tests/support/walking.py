"""Walks through the pages with the mouse or with the keyboard alone, and counts what a person would have to do."""

from __future__ import annotations

from dataclasses import dataclass

from playwright.sync_api import Locator, Page, expect

from tests.support.waiting import until

_TABS_MAX = 250
_ARROWS_MAX = 60
# One request for each key. A walk presses hundreds, and an element that a refresh has just removed is not waited for.
_IS_FIRST_FOCUSED = "nodes => nodes.length > 0 && nodes[0] === document.activeElement"
_RECORD_NEXT_KEY = """() => {
    window.keyTarget = null;
    window.addEventListener(
        'keydown', event => { window.keyTarget = event.target === document.body ? 'page' : 'element'; },
        { capture: true, once: true },
    );
}"""
_FOCUS_FIRST = "nodes => { if (nodes.length) { nodes[0].focus(); } return nodes[0] === document.activeElement; }"


@dataclass
class Hand:
    """Presses links and buttons of a page. With the keyboard, it moves the focus there with Tab and presses Enter."""

    page: Page
    is_keyboard: bool
    presses: int = 0
    """The links and buttons that were pressed."""
    keys: int = 0
    """The keys that were pressed, among them those that move the focus."""

    def press(self, target: Locator) -> None:
        """Press a link or a button."""
        self.presses += 1
        first = target.first
        first.wait_for()
        if not self.is_keyboard:
            first.click()
            return
        for _ in range(_TABS_MAX):
            # A refresh may replace the element between two keys, and then the key reaches the page and does nothing.
            if target.evaluate_all(_IS_FIRST_FOCUSED):
                self.page.evaluate(_RECORD_NEXT_KEY)
                self._key("Enter")
                if self.page.evaluate("window.keyTarget") != "page":
                    return
            else:
                self._key("Tab")
        raise AssertionError(f"{target} cannot be reached with Tab")

    def press_cell(self, row: str, column: str) -> None:
        """Press the cell ``column`` of the fleet's row with the job ``row``."""
        cell = self.page.locator(f"#fleet-grid .ag-row:has(a:text-is('{row}')) [col-id={column}]")
        cell.wait_for()
        self.presses += 1
        if not self.is_keyboard:
            cell.locator("a").click()
            return
        head = self.page.locator("#fleet-grid .ag-header-cell")
        for _ in range(_TABS_MAX):
            if head.evaluate_all(_IS_FIRST_FOCUSED):
                break
            self._key("Tab")
        here = self.page.locator(f"#fleet-grid .ag-row:has(a:text-is('{row}')):has(:focus)")
        self._arrow("ArrowDown", here)
        self._arrow("ArrowRight", self.page.locator(f"#fleet-grid [col-id={column}]:focus"))
        self._key("Enter")

    def _arrow(self, key: str, until: Locator) -> None:
        for _ in range(_ARROWS_MAX):
            if until.count():
                return
            self._key(key)
        raise AssertionError(f"{until} cannot be reached with {key}")

    def _key(self, key: str) -> None:
        self.keys += 1
        self.page.keyboard.press(key)


def press_key(target: Locator, key: str) -> None:
    """Give an element the focus, and press a key on it.

    If a refresh replaces the element before the key arrives, the key reaches the page and does nothing. Then do it
    again.
    """
    page = target.page

    def is_pressed() -> bool:
        if not target.evaluate_all(_FOCUS_FIRST):
            return False
        page.evaluate(_RECORD_NEXT_KEY)
        page.keyboard.press(key)
        return bool(page.evaluate("window.keyTarget") != "page")

    until(is_pressed, f"{key} is pressed on {target}")


def resolve(hand: Hand, job: str, *, patience_ms: float) -> None:
    """Walk from the fleet to the alert of ``job``, apply the first advice, and wait until the incident is over."""
    page = hand.page
    page.goto("/")
    hand.press_cell(job, "alerts")
    hand.press(page.locator(f".incident a.strong-link:has-text('{job}: ')"))
    hand.press(page.locator("#incident-head a:has-text('Cure: advice')"))
    hand.press(page.locator("#advice-cards button:has-text('Apply now')"))
    hand.press(page.locator("#advice-confirm"))
    expect(page.locator("#advice-message")).to_contain_text("Sent")
    hand.press(page.locator("#nav-alerts"))
    page.wait_for_selector("#alerts-open > *")
    expect(page.locator(f"#alerts-open .incident.edge-bad:has-text('{job}: ')")).to_have_count(0, timeout=patience_ms)
