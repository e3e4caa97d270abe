"""What is wrong with a page that is open in a browser: its layout, the text of its charts, and its accessibility."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Page

from tests.support.browsing import collapsed, cut_off, overflowing, settle, show_whole, small_targets, stray_scroll_bars

_LAYOUT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")

_LOOKS = 20

# The rules that axe cannot decide for some elements, and what decides them instead.
_DECIDED_ELSEWHERE = {
    "color-contrast": "layout_faults computes the contrast of all text, also over other elements",
    "aria-valid-attr-value": "_dangling finds what an open list names but the page does not have",
}
# The contrast takes axe two thirds of its time.
_WITHOUT_CONTRAST = "rules: {'color-contrast': {enabled: false}}"


def layout_faults(page: Page) -> list[str]:
    """Return the faults that a viewer would see, one sentence each.

    These are: a page that scrolls sideways, text that is cut off or overlaps other text, charts without height or
    outside of their card, pale text in charts, targets of less than 24 px, and scroll bars for a few pixels.
    """
    found: list[str] = page.evaluate(_LAYOUT)
    found += [f"overflows: {o}" for o in overflowing(page)]
    found += [f"chart does not fit: {c}" for c in collapsed(page)]
    found += [f"cut off in its cell: {c}" for c in cut_off(page)]
    found += [f"small target: {t}" for t in small_targets(page)]
    found += [f"stray scroll bar: {b}" for b in stray_scroll_bars(page)]
    return found


def lasting_layout_faults(page: Page, *, is_lazy: bool = False) -> list[str]:
    """Return the faults that remain although the page is calm.

    A chart that has another form on a phone is requested some time after the window became narrow. Until the answer
    comes, the calm page shows the old form in the new width. A chart of a lazy page whose answer comes when the page
    was already scrolled past it is drawn when it comes into view again.
    """
    found = layout_faults(page)
    for _ in range(_LOOKS):
        if not found:
            break
        settle(page)
        if is_lazy:
            show_whole(page)
        found = layout_faults(page)
    return found


def accessibility_faults(page: Page, *, has_contrast: bool = False) -> list[str]:
    """Return what axe finds, one line for each rule and element. What axe cannot decide counts too.

    The contrast is examined only with ``has_contrast``, because ``layout_faults`` computes it.
    """
    page.evaluate(f"() => {{ if (!window.axe) {{ {AXE_SCRIPT} }} }}")
    options = "" if has_contrast else _WITHOUT_CONTRAST
    # If a refresh replaces elements while axe runs, axe reports false faults. Only faults of both runs are returned.
    found = [*_found_by_axe(page, options), *_dangling(page)]
    again = [*_found_by_axe(page, options), *_dangling(page)] if found else []
    return [fault for fault in found if fault in again]


def _dangling(page: Page) -> list[str]:
    """Return the elements that name by its id another element that does not exist."""
    found: list[str] = page.evaluate(
        """() => ["aria-controls", "aria-owns", "aria-activedescendant"].flatMap(name =>
            [...document.querySelectorAll(`[${name}]`)]
                .filter(e => e.getAttribute(name).trim() && e.getAttribute("aria-expanded") !== "false")
                .filter(e => e.getAttribute(name).trim().split(/\\s+/).some(id => !document.getElementById(id)))
                .map(e => `${name} of ${e.id || e.outerHTML.slice(0, 120)} names no element: ${e.getAttribute(name)}`)
        )"""
    )
    return found


def _found_by_axe(page: Page, options: str) -> list[str]:
    # The drawings of charts are hidden from screen readers, and ``layout_faults`` computes the contrast of their text.
    found: dict[str, list[dict[str, Any]]] = page.evaluate(
        "() => axe.run({exclude: [['.js-plotly-plot']]}, {resultTypes: ['violations', 'incomplete'], " + options + "})"
    )
    return [
        f"{kind} {rule['id']}: {node['target']} {_why(node)}"
        for kind in ("violations", "incomplete")
        for rule in found[kind]
        if not (kind == "incomplete" and rule["id"] in _DECIDED_ELSEWHERE)
        for node in rule["nodes"]
    ]


def _why(node: dict[str, Any]) -> str:
    checks = [*node["any"], *node["all"], *node["none"]]
    return "; ".join(dict.fromkeys(check["message"] for check in checks))
