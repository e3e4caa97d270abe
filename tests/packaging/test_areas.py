"""``make test AREA=...``: every test file belongs to an area, and an unknown area is refused in one line."""

from __future__ import annotations

from tests.areas import AREAS, QUICK, files, main
from tests.packaging.wheel_environment import ROOT

_WITH_SERVERS = ("tests/e2e", "tests/integration")


def test_every_test_file_is_in_an_area():
    written = {str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")}

    assert written - {name for patterns in AREAS.values() for name in files(patterns)} == set()


def test_no_area_is_empty_and_excluded_files_are_left_out():
    assert [area for area, patterns in AREAS.items() if not files(patterns)] == []
    assert "tests/simulation/test_alert_lifecycle.py" not in files(AREAS["runtime"])
    assert "tests/simulation/test_alert_lifecycle.py" in files(AREAS["alerting"])


def test_every_pattern_names_a_file_so_that_none_is_left_behind_when_a_file_moves():
    patterns = {pattern.removeprefix("!") for patterns in (*AREAS.values(), QUICK) for pattern in patterns}

    assert [pattern for pattern in sorted(patterns) if not files((pattern,))] == []


def test_the_quick_selection_needs_no_server_and_no_browser():
    assert [name for name in files(QUICK) if name.startswith(_WITH_SERVERS)] == []


def test_an_unknown_area_is_refused_in_one_line_that_lists_the_areas(capsys):
    assert main("nonsense") == 2

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1
    assert all(area in shown.err for area in ("'nonsense'", *AREAS))
