"""Each kind of cause has a page in the form of a runbook, and the index lists it."""

from __future__ import annotations

import pytest

from backend.domain.errors import UnknownEntityError
from backend.services.causes import CAUSES, cause_page, cause_path

_HEADINGS = ["How it looks", "How it is recognized", "What cures it", "What does not", "Sources"]


@pytest.mark.parametrize("cause", CAUSES)
def test_every_kind_of_cause_has_a_page_in_the_form_of_the_others(cause):
    text = cause_page(cause).markdown

    assert text.startswith("# ")
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == _HEADINGS
    assert cause == "growth" or f"Verdict `{cause}`." in text
    assert "](https://" in text.split("## Sources")[1], "a source"


def test_the_index_lists_every_page_and_no_other_page_exists():
    folder = cause_path("capacity").parent

    assert {p.stem for p in folder.glob("*.md")} == {*CAUSES, "README"}
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [c for c in CAUSES if f"]({c}.md)" not in index] == []


def test_an_unknown_cause_has_no_page():
    with pytest.raises(UnknownEntityError):
        cause_page("../README")
