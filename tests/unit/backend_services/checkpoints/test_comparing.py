"""Tests of the choice of the healthy checkpoint that a checkpoint is compared with."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend.domain.checkpoint import CheckpointKind
from backend.domain.ids import JobId, RunId
from backend.services.checkpoints.comparing import healthy_among
from backend.store.checkpoints.reader import CheckpointRecord
from tests.support.observations import NOW, header


def _record(number, took_ms, kind=CheckpointKind.CHECKPOINT):
    one = replace(header(number), end_to_end_duration_ms=took_ms, kind=kind)
    return CheckpointRecord(JobId("j"), RunId("r"), NOW.date(), one, None, None, None, None, NOW + timedelta(1))


def test_the_newest_checkpoint_that_was_not_slow_is_chosen():
    newest = [_record(9, 7_000), _record(8, 900), _record(7, 800)]

    chosen, why = healthy_among(newest, "before #10", limit_ms=5_000)

    assert chosen is newest[1]
    assert why == "#8 was chosen: the newest completed one before #10 that was not slow (shorter than 5.0 s)."


def test_an_older_checkpoint_is_chosen_if_all_of_the_newest_were_slow():
    older = _record(2, 700)

    assert healthy_among([_record(9, 7_000)], "before #10", limit_ms=5_000, deeper=older)[0] is older


def test_if_all_were_slow_the_newest_one_of_a_usual_duration_is_chosen():
    newest = [_record(9, 30_000), _record(8, 8_000), _record(7, 9_000), _record(6, 7_000)]

    chosen, why = healthy_among(newest, "before #10", limit_ms=5_000)

    assert chosen is newest[1]
    assert why == (
        "#8 was chosen: the newest completed one before #10 that took at most the median of the last 4, 8.5 s. None "
        "before #10 was shorter than 5.0 s."
    )


def test_a_savepoint_is_never_chosen():
    newest = [_record(9, 500, CheckpointKind.SAVEPOINT), _record(8, 900)]

    assert healthy_among(newest, "before #10", limit_ms=5_000)[0] is newest[1]
    assert healthy_among(newest[:1], "before #10", limit_ms=5_000) == (
        None,
        "No completed checkpoint before #10 is known, so there is none to compare it with.",
    )


def test_without_settings_the_usual_duration_decides():
    newest = [_record(9, 9_000), _record(8, 900), _record(7, 800)]

    chosen, why = healthy_among(newest, "before #10", limit_ms=None)

    assert chosen is newest[1]
    assert "None before" not in why
