"""Takes the space-time diagrams of ``docs/protocols.md`` again, from the page Lab over a fake API.

    python -m tests.simulators.protocol_pictures [NAME ...]

The page itself says which: each picture shows what the next address of the Lab below it shows.
"""

from __future__ import annotations

import io
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.sync_api import Page, expect

from backend.contracts.simulations import SimulationIn
from dashboard import lab_address
from tests.support.browsing import launched, opened, required_chromium
from tests.support.dashboard_site import site_over
from tests.support.fake_api import FakeApi

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs" / "protocols.md"
ROOT: Final = "http://127.0.0.1:8050/ui/lab"
_PICTURE: Final = re.compile(rf"!\[[^\]]+\]\((protocols/[\w-]+\.webp)\).*?\({re.escape(ROOT)}(\?[^)\s]+)\)", re.S)
_SIZE: Final = {"width": 1180, "height": 900}
_STEP: Final = 17
"""Each colour of a picture has 16 values, which halves its size."""


def shown(text: str) -> list[tuple[str, str]]:
    """Return the path of each picture of the document, and the query string of the address that it shows."""
    return _PICTURE.findall(text)


def requests(text: str) -> list[SimulationIn | str]:
    """Return the request of each address of the Lab in the document, or what is wrong with it."""
    found = re.findall(rf"\({re.escape(ROOT)}(\?[^)\s]+)\)", text)
    return [lab_address.request_of(lab_address.parse(query).wanted) for query in found]


def take(page: Page, query: str) -> bytes:
    """Return the diagrams of both runs, which stand in a row, as a small file."""
    page.goto(f"/ui/lab{query}")
    expect(page.locator("#lab-status")).to_contain_text("completed")
    for side in "ab":
        page.locator(f"#lab-space-time-{side}-figure").scroll_into_view_if_needed()
        expect(page.locator(f"#lab-space-time-{side}-graph .trace").first).to_be_attached()
    page.mouse.move(0, 0)
    row = page.locator(".lab-pair:has(#lab-space-time-a-figure)")
    # The bar of the slider stays at the top of the window, so it would cover the row.
    page.add_style_tag(content=".lab-time, .top { position: static !important; }")
    with Image.open(io.BytesIO(row.screenshot())) as picture:
        flat = picture.convert("RGB").point([_STEP * round(value / _STEP) for value in range(256)] * 3)
    file = io.BytesIO()
    flat.save(file, "WEBP", lossless=True, method=6)
    return file.getvalue()


def main(names: list[str]) -> None:
    """Take the pictures with these names, or all of them."""
    fake = FakeApi(now=lambda: datetime.fromtimestamp(time.time(), UTC))
    with (
        site_over(fake) as url,
        launched(required_chromium()) as browser,
        opened(browser, url, theme="light") as (page, _),
    ):
        page.set_viewport_size(_SIZE)
        for path, query in shown(DOCUMENT.read_text(encoding="utf-8")):
            file = DOCUMENT.parent / path
            if names and file.stem not in names:
                continue
            request = lab_address.request_of(lab_address.parse(query).wanted)
            assert isinstance(request, SimulationIn), request
            fake.simulations.add_completed(request)
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(take(page, query))
            print(f"{path}  {file.stat().st_size / 1_000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
