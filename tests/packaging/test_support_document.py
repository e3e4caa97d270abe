"""The table in docs/support.md, which ``make test-versions`` writes."""

from __future__ import annotations

from tests.packaging.wheel_environment import ROOT
from tests.simulators.versions.jars import VERSIONS, minor
from tests.simulators.versions.jobs import JOBS
from tests.simulators.versions.table import BEGIN, END, WORDS, parsed

TEXT = (ROOT / "docs" / "support.md").read_text()


def rows() -> list[list[str]]:
    return parsed(TEXT.partition(BEGIN)[2].partition(END)[0])


def test_the_table_has_a_column_for_each_version_and_a_line_for_each_job():
    head, *lines = rows()

    assert head[1:] == [minor(version) for version in VERSIONS]
    assert [line[0] for line in lines[: len(JOBS)]] == [job.name for job in JOBS]


def test_each_cell_of_a_job_has_a_word_that_the_document_explains():
    explained = {line.split("|")[1].strip() for line in TEXT.splitlines() if line.startswith("|")}

    for _, *cells in rows()[1 : len(JOBS) + 1]:
        assert {cell.partition(" (")[0] for cell in cells} <= set(WORDS.values()) <= explained


def test_nothing_in_the_table_is_wrong_with_high_confidence_and_no_value_differs():
    cells = {line[0]: line[1:] for line in rows()}

    assert not any("wrong (high)" in cell for line in cells.values() for cell in line)
    assert set(cells["values that differ"]) == {"0"}


def test_each_job_of_the_table_is_described():
    for job in JOBS:
        assert f"`{job.name}`" in TEXT.partition(END)[2], job.name
