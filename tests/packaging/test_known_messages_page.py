"""The page of known messages is made from the table, so that what people search for is what the verdict knows."""

from __future__ import annotations

from tests.packaging.wheel_environment import ROOT
from tests.support.known_messages_page import page
from tests.unit.backend_domain.test_known_messages import LINES


def test_the_page_of_known_messages_is_the_one_that_the_table_gives():
    written = (ROOT / "docs" / "reference" / "known-messages.md").read_text(encoding="utf-8")

    assert written == page(LINES), "python -m tests.support.known_messages_page > docs/reference/known-messages.md"
