"""Tests of what ``diagnose --watch`` shows, and of its keys."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Diagnosis, Health, Verdict, VerdictKind
from collectors.watch_rows import Selection, WatchedJob, subtask_rows
from tests.support import observations
from tests.support.observations import NOW, SINK, SOURCE, TOPOLOGY


def _diagnosis(vertex_id: VertexId | None = None, subtasks: tuple[int, ...] = ()) -> Diagnosis:
    verdict = Verdict(VerdictKind.CAPACITY, "why", Confidence.HIGH, vertex_id=vertex_id, subtasks=subtasks)
    return Diagnosis(Health.SLOW, verdict)


def _job(ids=(1, 2, 3), *, name="orders", run="a", diagnosis=None, pressure=()) -> WatchedJob:
    checkpoints = tuple(observations.completed(n) for n in ids)
    return WatchedJob(run, name, "RUNNING", diagnosis, TOPOLOGY, checkpoints, pressure, NOW)


def _order(job, checkpoint):
    return [(row.vertex, row.subtask) for row in subtask_rows(job, checkpoint)]


def test_the_subtasks_that_the_verdict_names_come_first_even_if_others_are_later():
    detail = observations.detail(SOURCE, 1)
    late = replace(detail, ack_delay_ms=(10, 900, None))
    checkpoint = replace(observations.completed(1), details=(late, observations.detail(SINK, 1)))

    rows = subtask_rows(_job(diagnosis=_diagnosis(SINK, (1,))), checkpoint)

    assert [(r.vertex, r.subtask) for r in rows[:3]] == [
        ("Sink: ledger", 1),
        ("Source: orders", 2),
        ("Source: orders", 1),
    ]
    assert [r.is_named for r in rows] == [True] + [False] * 5


def test_a_verdict_without_subtasks_names_all_of_its_vertex():
    rows = subtask_rows(_job(diagnosis=_diagnosis(SINK)), observations.completed(1))

    assert [r.vertex for r in rows if r.is_named] == ["Sink: ledger"] * 3
    assert all(r.is_named for r in rows[:3])


def test_a_full_subtask_behind_backpressure_comes_before_one_that_is_only_late():
    at = NOW - timedelta(seconds=1)
    source = replace(observations.pressure(SOURCE, at), backpressured_ratio=(0.9, 0.9, 0.9), busy_ratio=(0.1,) * 3)
    sink = replace(observations.pressure(SINK, at), busy_ratio=(0.1, 1.0, 0.1), backpressured_ratio=(0.0,) * 3)
    late = replace(observations.detail(SOURCE, 1), ack_delay_ms=(9_000, 10, 10))
    checkpoint = replace(observations.completed(1), details=(late, observations.detail(SINK, 1)))

    rows = subtask_rows(_job(pressure=(source, sink)), checkpoint)

    assert (rows[0].vertex, rows[0].subtask, rows[0].is_suspect) == ("Sink: ledger", 1, True)
    assert (rows[0].busy_ratio, rows[0].backpressured_ratio) == (1.0, 0.0)
    assert (rows[1].vertex, rows[1].subtask) == ("Source: orders", 0)


def test_what_is_not_reported_is_missing_and_not_zero():
    row = subtask_rows(_job(), observations.completed(1))[0]

    assert (row.busy_ratio, row.backpressured_ratio) == (None, None)


def _walk(selection: Selection, *keys: str) -> int | None:
    for key in keys:
        selection.press(key)
    assert selection.checkpoint is not None
    return selection.checkpoint.header.checkpoint_id


@pytest.mark.parametrize(
    ("keys", "shown"),
    [("", 3), ("<", 2), ("<<", 1), ("<<<", 1), ("<>", 3), ("<<>", 2), (">", 3), ("x", 3)],
)
def test_the_keys_lead_through_the_neighbours_and_stop_at_the_ends(keys, shown):
    assert _walk(Selection(jobs=(_job(),)), *keys) == shown


def test_the_newest_checkpoint_is_followed_and_an_older_one_stays():
    selection = Selection(jobs=(_job(),))
    _walk(selection, "<", ">")
    selection.jobs = (_job((1, 2, 3, 4)),)
    assert _walk(selection) == 4

    assert _walk(selection, "<") == 3
    selection.jobs = (_job((1, 2, 3, 4, 5)),)
    assert _walk(selection) == 3
    selection.jobs = (_job((4, 5)),)
    assert _walk(selection) == 5


def test_two_jobs_with_one_name_can_both_be_selected_and_an_ended_one_gives_way():
    first, second, third = (_job(run=run) for run in "abc")
    selection = Selection(jobs=(first, second, third))

    _walk(selection, "down", "down", "down")
    assert selection.shown is third
    _walk(selection, "up")
    assert selection.shown is second
    selection.jobs = (first, third)
    assert selection.shown is first


def test_without_jobs_the_keys_do_nothing():
    selection = Selection()
    for key in ("up", "down", "<", ">"):
        selection.press(key)

    assert (selection.shown, selection.checkpoint) == (None, None)
