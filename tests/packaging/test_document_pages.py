"""Goal: a reader finds the page for a task, and every link leads to what it names.

Method: the pages are read as text. ``docs/README.md`` must list them all, and the anchors of links are compared with
the headings of the pages that they lead to, with the names that GitHub gives to headings.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.packaging.wheel_environment import ROOT

_DOCS = ROOT / "docs"
_LINKING = [ROOT / "README.md", ROOT / "backend" / "runtime" / "PROTOCOL.md", *sorted(_DOCS.rglob("*.md"))]
# Runbooks and causes begin with their meaning, decisions and the specification are records.
_RECORDS = ("runbooks/", "causes/", "dev/decisions/", "dev/spec/")
_PAGES = [p for p in sorted(_DOCS.rglob("*.md")) if not p.relative_to(_DOCS).as_posix().startswith(_RECORDS)]
_EVIDENCE = [p for p in sorted((_DOCS / "evidence").glob("*.md")) if p.name != "README.md"]
_USER_PAGE_WORDS_MAX = 1250
"""Two printed pages. Tables and code count too."""


def _prose(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def _links(text: str) -> list[str]:
    return re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", _prose(text))


def _anchors(text: str) -> set[str]:
    """Return the names that GitHub gives to the headings of a page."""
    names = set[str]()
    for heading in re.findall(r"^#+ (.+)$", _prose(text), re.M):
        base = (
            re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).strip().replace(" ", "-")
        )
        number = 0
        while (name := f"{base}-{number}" if number else base) in names:
            number += 1
        names.add(name)
    return names


def _is_broken(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    if not target.exists():
        return True
    return bool(anchor) and (target.suffix != ".md" or anchor not in _anchors(target.read_text(encoding="utf-8")))


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", _LINKING, ids=_name)
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page):
    assert [link for link in _links(page.read_text(encoding="utf-8")) if _is_broken(page, link)] == []


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# One `name`, and [two](x.md)\n\n## Same\n\n## Same\n\n```text\n# no heading\n```\n")

    assert _anchors(page.read_text()) == {"one-name-and-two", "same", "same-1"}
    assert not _is_broken(page, "page.md#same-1")
    assert not _is_broken(page, "#one-name-and-two")
    assert all(_is_broken(page, link) for link in ("other.md", "page.md#no-heading", "#same-2"))


@pytest.mark.parametrize("page", _PAGES, ids=_name)
def test_a_page_begins_with_the_task_that_it_serves(page):
    title, first, *_ = page.read_text(encoding="utf-8").split("\n\n")

    assert re.fullmatch(r"# .+", title)
    assert first.startswith("Use this page to ")


def test_the_list_by_reader_has_every_page_once():
    index = _DOCS / "README.md"
    listed = [(index.parent / link).resolve() for link in _links(index.read_text(encoding="utf-8"))]

    assert re.findall(r"^## (.+)$", index.read_text(encoding="utf-8"), re.M) == [
        "On call",
        "Platform team",
        "Developer",
    ]
    assert len(listed) == len(set(listed))
    assert {p for p in _PAGES if p not in (index, *_EVIDENCE)} <= set(listed)


def test_the_list_of_evidence_has_every_measurement_once():
    index = _DOCS / "evidence" / "README.md"
    listed = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)", index.read_text(encoding="utf-8"), re.M)

    assert sorted(listed) == [p.name for p in _EVIDENCE]


@pytest.mark.parametrize("page", _EVIDENCE, ids=_name)
def test_a_measurement_says_when_it_was_published_and_which_command_makes_it(page):
    text = " ".join(page.read_text(encoding="utf-8").split())

    assert re.search(r"Published \d{4}-\d\d-\d\d", text)
    assert re.search(r"Commands?:|command is not on record", text)


@pytest.mark.parametrize("name", ["advice.md", "what-if.md", "fidelity.md"])
def test_a_page_that_was_a_laboratory_log_stays_short_and_says_when_not_to_trust_it(name):
    text = (_DOCS / name).read_text(encoding="utf-8")

    assert len(re.findall(r"\w[\w'.%-]*", text)) <= _USER_PAGE_WORDS_MAX
    assert re.search(r"^(## When not to trust it|- \*\*Do not trust\*\*)", text, re.M)


def test_the_first_screen_of_the_readme_is_a_sentence_a_picture_two_commands_and_diagnose():
    _title, sentence, picture, commands, diagnose = (ROOT / "README.md").read_text(encoding="utf-8").split("\n\n")[:5]

    assert len(re.findall(r"\.(?=\s|$)", sentence)) == 1
    assert picture.startswith("![")
    assert [line.split("#")[0].split()[0] for line in commands.splitlines()[1:-1]] == ["make", ".venv/bin/barrierscope"]
    assert diagnose.startswith("`diagnose`")
