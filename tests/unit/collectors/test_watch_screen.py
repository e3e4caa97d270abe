"""Tests of the screen of ``diagnose --watch``."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta

from rich.console import Console

from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, MicroBatch
from backend.domain.topology import Topology, Vertex
from backend.domain.verdict import Confidence, Diagnosis, Health, Verdict, VerdictKind
from collectors.watch_rows import Selection, WatchedJob
from collectors.watch_screen import screen
from tests.support import observations
from tests.support.observations import NOW, SINK, SOURCE, TOPOLOGY

_SLOW = Diagnosis(Health.SLOW, Verdict(VerdictKind.CAPACITY, "Checkpoints are slow.", Confidence.HIGH))


def _drawn(selection: Selection, *, notice: str = "", height: int = 40, width: int = 110) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    console.print(screen(selection, title="http://flink:8081", notice=notice, height=height))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _job(*checkpoints, name="orders", topology=TOPOLOGY, run="a") -> WatchedJob:
    return WatchedJob(run, name, "RUNNING", _SLOW, topology, checkpoints, (), NOW)


def test_the_running_checkpoint_has_its_age_and_its_pending_subtasks():
    opened = observations.in_progress(7, acknowledged_count=2, with_details=True)
    opened = replace(opened, header=replace(opened.header, triggered_at=NOW - timedelta(seconds=12)))

    text = _drawn(Selection(jobs=(_job(opened),)))

    assert "checkpoint 7 in progress · 12.0 s · 2 of 6 subtasks acknowledged" in text
    assert "pending" in text
    assert "Checkpoints are slow." in text


def test_names_are_no_markup_and_no_control_characters():
    vertices = (Vertex(SOURCE, "[red]evil[/red]", 3), Vertex(SINK, "a\x1b[2Jb", 3))
    job = _job(observations.completed(1), name="[bold]x[/bold]\x07", topology=Topology(vertices))

    text = _drawn(Selection(jobs=(job,)))

    assert "[red]evil[/red]" in text
    assert "[bold]x[/bold]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_low_terminal_says_how_many_subtasks_are_left_out():
    text = _drawn(Selection(jobs=(_job(observations.completed(1)),)), height=15)

    assert "and 3 more" in text
    assert len(text.splitlines()) <= 15


def test_a_terminal_of_80_characters_shortens_names_and_no_number():
    long = "with a name that no terminal of 80 characters has room for"
    job = _job(
        observations.completed(1),
        topology=Topology((Vertex(SOURCE, f"source {long}", 3), Vertex(SINK, f"sink {long}", 3))),
    )

    def numbers(width: int) -> list[list[str]]:
        lines = _drawn(Selection(jobs=(job,)), width=width).splitlines()
        # The subtask, five durations with their units, and two ratios.
        return [line.split()[-13:] for line in lines if line.lstrip().startswith(("source", "sink"))]

    assert numbers(80) == numbers(160)
    assert sorted(row[0] for row in numbers(80)) == ["0", "0", "1", "1", "2", "2"]
    assert f"source {long}" in _drawn(Selection(jobs=(job,)), width=160)
    assert "…" in _drawn(Selection(jobs=(job,)), width=80)


def test_of_many_jobs_the_selected_one_is_in_sight():
    jobs = tuple(_job(observations.completed(1), name=f"job-{n}", run=str(n)) for n in range(20))

    text = _drawn(Selection(jobs=jobs, job_id="15"))

    assert "job-15" in text
    assert "job-0 " not in text
    assert "20 jobs" in text


def test_a_failed_reading_is_said_and_no_job_is_no_error():
    assert "what is shown is old" in _drawn(Selection(jobs=(_job(),)), notice="what is shown is old: no answer")
    assert "no job is running" in _drawn(Selection())


def _batch(number, *, open_for_s=None, phases=True):
    status = CheckpointStatus.COMPLETED if open_for_s is None else CheckpointStatus.IN_PROGRESS
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        triggered_at=NOW - timedelta(seconds=open_for_s or 60),
        end_to_end_duration_ms=None if open_for_s else 1200,
    )
    told = ((BatchPhase.ADD_BATCH, 900), (BatchPhase.COMMIT_OFFSETS, 45)) if phases and open_for_s is None else ()
    return Checkpoint(header, batch=MicroBatch(told, input_row_count=12_345 if told else None))


def _queries(*checkpoints):
    jobs = [replace(_job(*checkpoints, name=f"app: {n}", run=n), is_micro_batched=True) for n in ("a", "b")]
    return Selection(jobs=tuple(jobs))


def test_a_query_has_its_batches_by_phase_the_newest_first_and_the_running_one_with_its_age():
    lines = _drawn(_queries(_batch(7), _batch(8, open_for_s=12)), width=80).splitlines()

    (heads,) = (line.split() for line in lines if "commit" in line)
    assert heads == ["batch", "took", "offset", "wal", "get", "plan", "add", "commit", "rows"]
    running, done = (next(line for line in lines if line.strip().startswith(n)) for n in ("8 ", "7 "))
    assert lines.index(running) < lines.index(done)
    assert running.split() == ["8", "in", "progress", "12.0", "s", *"-------"]
    assert done.split() == ["7", "completed", "1.2", "s", *"----", "900", "ms", "45", "ms", "12", "345"]
    assert "< > query" in lines[-1]


def test_phases_that_a_driver_does_not_report_are_no_columns():
    text = _drawn(_queries(_batch(7, phases=False)))

    assert "commit" not in text
    assert "time of addBatch" in text
    assert "rows" not in text


def test_batches_that_do_not_fit_are_counted_and_a_query_without_one_says_so():
    assert "and 7 older" in _drawn(_queries(*(_batch(n) for n in range(10))), height=10)
    assert "no micro-batch yet" in _drawn(_queries())


def test_each_key_leads_to_another_query():
    selection = _queries(_batch(7))
    for key, name in ((">", "b"), (">", "b"), ("<", "a"), ("down", "b"), ("up", "a")):
        selection.press(key)
        assert selection.shown.id == name
