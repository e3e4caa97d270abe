"""``docs/dev/CONTRIBUTING.md`` lists the files to change for each kind of addition, and every listed path exists."""

from __future__ import annotations

import re

import pytest

from tests.packaging.wheel_environment import ROOT

_TEXT = (ROOT / "docs" / "dev" / "CONTRIBUTING.md").read_text(encoding="utf-8")
_LISTS = dict(re.findall(r"^### ([^\n(]+) \(\d[^\n]*\)\n(.*?)(?=^##)", _TEXT, re.M | re.S))
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
