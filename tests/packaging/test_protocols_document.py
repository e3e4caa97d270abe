"""``docs/protocols.md`` stays two pages, its addresses of the Lab can be run, and its pictures are small files."""

from __future__ import annotations

import re

from backend.contracts.simulations import SimulationIn
from backend.services.simulations.catalog import plan
from tests.simulators.protocol_pictures import DOCUMENT, requests, shown

_WORDS_MAX = 1250
_BYTES_MAX = 80_000
_TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_every_address_of_the_lab_is_a_request_that_can_be_run():
    found = requests(_TEXT)

    assert len(found) == _TEXT.count("/ui/lab?") > 8
    for request in found:
        assert isinstance(request, SimulationIn), request
        plan(request)


def test_every_picture_is_a_small_file_and_belongs_to_an_address():
    pictures = [path for path, _ in shown(_TEXT)]

    assert pictures == re.findall(r"!\[[^\]]+\]\(([^)]+)\)", _TEXT)
    assert {path.name for path in (DOCUMENT.parent / "protocols").iterdir()} == {p.rpartition("/")[2] for p in pictures}
    assert [p for p in pictures if (DOCUMENT.parent / p).stat().st_size > _BYTES_MAX] == []


def test_the_page_stays_two_pages():
    assert len(re.findall(r"\w[\w'.%-]*", re.sub(r"\(http[^)]*\)", "", _TEXT))) <= _WORDS_MAX
