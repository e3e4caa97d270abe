"""The table of ``docs/support.md``."""

from __future__ import annotations

import pytest

from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.judging import Judged, Outcome
from tests.simulators.versions.table import Applied, Result, notes, parsed, read, replaced, section, table, write

RESULTS = [
    Result(
        "1.15.4",
        (
            Judged("sql-aggregation", Outcome.RIGHT, "high"),
            Judged("sql-join", Outcome.WRONG, "low", why="capacity, built was skew"),
            Judged("changelog", Outcome.NOT_RUN, why="no jar"),
        ),
        compared_count=27_084,
        applied=(
            Applied("sql-join", "interval/raise", (("interval", "5 s"),), "", "open_ratio", (0.1, 0.2, 0.3), 0.25),
            Applied("calm", "mode/unaligned", (("unaligned", "true"),), "refused: no such key"),
        ),
        proxied={"502": (), "cut body": ("`calm` is left out",)},
    ),
    Result("2.3.0", (Judged("sql-aggregation", Outcome.NOT_DECIDED, why="undecided, built was capacity"),)),
]


def test_the_table_has_a_line_for_each_job_and_a_column_for_each_version():
    head, *rows = parsed(table(RESULTS))
    cells = {row[0]: row[1:] for row in rows}

    assert head == ["job", "1.15", "2.3"]
    assert cells["sql-aggregation"] == ["right", "open"]
    assert cells["sql-join"] == ["wrong (low)", "-"]
    assert cells["changelog"] == ["-", "-"]
    assert cells["values compared with Flink's"] == ["27,084", "0"]
    assert cells["advised changes accepted"] == ["1/2", "-"]
    assert cells["predictions that held"] == ["1/1", "-"]
    assert cells["behind a proxy: 502"] == ["right", "-"]
    assert cells["behind a proxy: cut body"] == ["1 differ", "-"]
    assert {job.name for job in JOBS} <= set(cells)


def test_everything_that_is_not_right_has_a_note_with_its_versions():
    found = list(notes(RESULTS))

    assert "- `sql-join`, wrong (low): capacity, built was skew (1.15)" in found
    assert "- `changelog`, not run: no jar (1.15)" in found
    assert "- `sql-aggregation`, open: undecided, built was capacity (2.3)" in found
    assert any("refused: no such key" in line for line in found)


def test_the_part_between_the_markers_is_replaced_and_nothing_else():
    document = f"before\n\n{section([])}\n\nafter\n"

    new = replaced(document, RESULTS)

    assert new.startswith("before\n\n<!--")
    assert new.endswith("-->\n\nafter\n")
    assert parsed(new)[0] == ["job", "1.15", "2.3"]
    assert replaced(new, RESULTS) == new
    with pytest.raises(ValueError, match="no markers"):
        replaced("no table", RESULTS)


def test_a_text_without_such_a_table_is_refused():
    with pytest.raises(ValueError, match="not a table"):
        parsed("| a | b |\n| --- | --- |\n| 1 | 2 |")
    with pytest.raises(ValueError, match="lengths"):
        parsed(table(RESULTS).replace("| open |", "|"))


def test_results_are_kept_one_file_a_version(tmp_path):
    for result in reversed(RESULTS):
        write(result, tmp_path)

    assert read(tmp_path) == RESULTS
