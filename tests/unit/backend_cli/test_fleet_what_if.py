"""The table and the document of what-ifs on a fleet: their order, their counts, and the reasons for no prediction."""

from __future__ import annotations

import pytest

from backend.advisor.advice import Interval
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers.fleet import Figures, JobAnswer
from backend.cli import fleet_what_if
from backend.cli.app import run

_SETTINGS = {"mode": "unaligned"}


def _answer(before_ms: float, after_ms: float, expired: float = 0.0) -> JobAnswer:
    def figures(ms: float, share: float) -> Figures:
        return Figures(
            duration_ms=Interval(ms, ms * 0.9, ms * 1.1),
            expired_ratio=Interval(share, share / 2, share),
            persisted_bytes=Interval(3.2e6, 2e6, 4e6),
            records_per_s=None,
        )

    return JobAnswer(
        settings=_SETTINGS,
        tier=Tier.FAST,
        checkpoint_count=20,
        measured_ms=Interval(before_ms, before_ms * 0.8, before_ms * 1.2),
        as_is=figures(before_ms, expired),
        changed=figures(after_ms, 0),
        error_ratio=0.034,
    )


_ROWS = [
    ("j1", "calm", _answer(30, 31)),
    ("j2", "late", _answer(9000, 200)),
    ("j3", "lost", JobAnswer(settings={}, problem="it has no barriers")),
    ("j4", "failing", _answer(4000, 200, expired=0.6)),
    ("j5", "worse", _answer(30, 300)),
    ("j6", "later", _answer(20_000, 200)),
    *((f"k{n}", f"bare-{n}", JobAnswer(settings={}, problem="it is too young")) for n in range(5)),
]


def test_the_jobs_that_gain_most_come_first_and_each_reason_is_told_once():
    lines = list(fleet_what_if.text(_ROWS, _SETTINGS, 50))

    assert lines[0] == "mode=unaligned on 11 running jobs"
    table = lines[2:8]
    assert [line.split()[0] for line in table] == ["job", "failing", "later", "late", "worse", "calm"]
    assert table[1].endswith("+3 %")
    for words in (
        "4.0 s (3.2 s to 4.8 s)",
        "4.0 s (3.6 s to 4.4 s)",
        "60 % (30 % to 60 %)",
        "3.2 MB (2.0 MB to 4.0 MB)",
    ):
        assert words in table[1]
    # What all jobs have in common is said once.
    assert "tier: fast for each job in the table" in lines
    assert "expire changed: 0 % (0 % to 0 %) for each job in the table" in lines
    assert "     2  quicker" in lines
    assert "     1  checkpoints would no longer expire" in lines
    assert "     6  no prediction" in lines
    assert "  5 running jobs (bare-0, bare-1, bare-2 and 2 more): it is too young" in lines
    assert lines[-1] == "  1 running job (lost): it has no barriers"


def test_a_long_table_is_cut_and_says_how_to_see_the_rest():
    lines = list(fleet_what_if.text(_ROWS, _SETTINGS, 2))
    assert [line.split()[0] for line in lines[2:5]] == ["job", "failing", "later"]
    assert lines[5] == "and 3 more; --most 5 or --format json shows them"
    assert "     2  quicker" in lines


def test_without_any_prediction_there_is_no_table():
    lines = list(fleet_what_if.text([_ROWS[2]], _SETTINGS, 50))
    assert lines == [
        "mode=unaligned on 1 running job",
        "",
        "     1  no prediction",
        "",
        "no prediction:",
        "  1 running job (lost): it has no barriers",
    ]


def test_the_document_has_every_job_and_every_effect():
    found = fleet_what_if.document(_ROWS, _SETTINGS)
    assert found["asked"] == _SETTINGS
    assert found["effects"] == {
        "cures": 1,
        "quicker": 2,
        "slower": 1,
        "fails": 0,
        "unclear": 1,
        "nothing": 0,
        "unknown": 6,
    }
    assert [job["job"] for job in found["jobs"]][:2] == ["failing", "later"]
    assert found["jobs"][-1]["problem"] is not None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["interval=soon"], "--set.interval: 'soon' cannot be read"),
        (["interval=1 ms"], "--set.interval: 1.0 is too small"),
        (["interval="], "--set.interval: '' cannot be read"),
        (["load=1000"], "--set.load: 1000.0 is out of bounds"),
        (["mode=fast"], "--set.mode: 'fast' is not a mode"),
        (["mode=aligned", "aligned-timeout=5 s"], "--set.aligned-timeout: aligned checkpoints have no aligned timeout"),
        (["parallelism.sink=many"], "--set.parallelism.sink: 'many' is not a number of subtasks"),
        (["colour=red", "interval=soon"], "--set.colour"),
    ],
)
def test_a_bad_value_is_refused_in_one_line_before_spark_is_looked_for(settings, words, capsys, monkeypatch):
    def looked_for(*_: object) -> None:
        raise AssertionError("Spark was looked for")

    monkeypatch.setattr("backend.cli.pipeline.spark_here", looked_for)
    given = [part for setting in settings for part in ("--set", setting)]

    assert run(["pipeline", "whatif", *given, "--database-url", "postgresql://x"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.count("\n") == 1
    assert words in told.err
