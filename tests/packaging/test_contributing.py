"""``docs/dev/CONTRIBUTING.md`` lists the files to change for each kind of addition, and every listed path exists.

A list of a closed set has all files of the product that name the members of the set. ``real_changes.toml`` has the
files that real changes touched, and the lists that they follow have the same files.
"""

from __future__ import annotations

import re
import tomllib
from enum import StrEnum
from functools import cache

import pytest

from backend.alerting.rules import RuleName
from backend.domain.advice import Topic
from backend.domain.checkpoint_mode import MODE_WORDS
from backend.domain.protocols import Protocol
from backend.domain.receivers import ReceiverKind
from tests.packaging.wheel_environment import ROOT

_TEXT = (ROOT / "docs" / "dev" / "CONTRIBUTING.md").read_text(encoding="utf-8")
_LISTS = dict(re.findall(r"^### ([^\n(]+) \(\d[^\n]*\)\n(.*?)(?=^##)", _TEXT, re.M | re.S))
_CHANGES = tomllib.loads((ROOT / "tests" / "packaging" / "real_changes.toml").read_text(encoding="utf-8"))
_PATH = re.compile(r"`((?:[\w-]+/)+[\w.-]+|\w+\.toml)`")


def test_there_is_a_list_for_each_kind_of_addition():
    assert list(_LISTS) == [
        "A checkpoint protocol",
        "A number on the checkpoint page",
        "A panel of a page",
        "A page",
        "A cause of the verdict",
        "An alert rule",
        "A kind of receiver",
        "An advice rule",
        "A collector",
    ]


@pytest.mark.parametrize("name", _LISTS)
def test_every_line_of_a_list_begins_with_a_file_that_exists(name):
    lines = re.findall(r"^- \[ \] (.*)$", _LISTS[name], re.M)

    assert len(lines) >= 5
    assert [line for line in lines if not _PATH.match(line)] == []


def test_every_path_in_the_guide_exists():
    paths = _PATH.findall(_TEXT)

    assert len(paths) > 45
    assert [path for path in paths if not (ROOT / path).exists()] == []


@cache
def _product() -> dict[str, str]:
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for package in ("backend", "collectors", "dashboard")
        for path in (ROOT / package).rglob("*.py")
    }


def _named(members: type[StrEnum], text: str) -> int:
    """Return how many members a module names: in code, by their values, or in the words of the pages."""
    in_code = set(re.findall(rf"\b{members.__name__}\.(\w+)|\b(\w+) = ", text))
    quoted = {word for pair in re.findall(r"\"([^\"\n]*)\"|'([^'\n]*)'", text) for word in pair}
    names = {name for pair in in_code for name in pair}
    return sum(
        member.name in names or not quoted.isdisjoint({member.value, MODE_WORDS.get(member.value, member.value)})
        for member in members
    )


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("A checkpoint protocol", Protocol),
        ("A kind of receiver", ReceiverKind),
        ("An alert rule", RuleName),
        ("An advice rule", Topic),
    ],
)
def test_a_list_has_each_file_that_names_the_members_of_its_closed_set(name, members):
    """Method: a file that names all members, or all but one, has an entry for each, so a new member needs one too."""
    listed = set(_PATH.findall(_LISTS[name]))
    naming = {path for path, text in _product().items() if _named(members, text) >= max(2, len(members) - 1)}

    assert len(naming) >= 2
    assert naming - listed == set()


def test_a_real_change_is_on_record_for_each_kind_that_grows():
    assert set(_CHANGES) <= set(_LISTS)
    assert len(_CHANGES) >= 6


@pytest.mark.parametrize("name", _CHANGES)
def test_a_list_has_the_files_that_a_real_change_of_its_kind_touched_and_no_other(name):
    """Method: the paths of the list are those that were changed or started from, and those that it did not touch."""
    change = _CHANGES[name]
    touched = {*change["changed"], *change.get("added", {}).values()} - {*change.get("module_of_the_topic", ())}
    listed = set(_PATH.findall(_LISTS[name]))
    first = {_PATH.match(line)[1] for line in re.findall(r"^- \[ \] (.*)$", _LISTS[name], re.M)}

    assert touched - listed == set()
    assert first - touched == set(change["not_touched"])
    assert [path for path in (*change["changed"], *change["not_touched"]) if not (ROOT / path).exists()] == []
