"""Tests of ``diagnose --log``: what it prints of a log, what it says is missing, and how a target's verdict uses it."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, timedelta
from pathlib import Path

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.cli import app
from backend.domain.observation import JobObservation, JobState
from backend.domain.verdict import VerdictKind
from collectors.logs.diagnosing import with_exceptions
from collectors.logs.reading import read_logs
from tests.support import flink_log_lines as log
from tests.support.flink_log_lines import JOB
from tests.support.handwritten_jobs import START, job
from tests.support.handwritten_runs import CALM, HEALTHY_RUN

EXPIRING = (
    log.triggered(7, 0),
    log.completed(7, 2),
    log.task_switched(3, 2, "RUNNING"),
    log.triggered(8, 60),
    log.expired(8, 660),
    log.late(8, 671, 2),
    log.triggered(9, 665),
    log.completed(9, 667),
)
FENCING = (
    *(part for n in range(1, 5) for part in (log.triggered(n, 1_200 * n), log.completed(n, 1_200 * n + 30, 30_000))),
    log.restarted(2_500, log.FENCED),
    log.restarted(3_700, log.FENCED),
)


@pytest.fixture
def written(tmp_path: Path):
    def write(*lines: str, name: str = "flink-jobmanager.log") -> str:
        path = tmp_path / name
        data = "".join(lines).encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(path)

    return write


def flat(text: str) -> str:
    return " ".join(text.split())


def test_an_expired_checkpoint_is_printed_with_its_timeout_and_with_who_was_late(written, capsys):
    code = app.run(["diagnose", "--log", written(*EXPIRING)])

    text = flat(capsys.readouterr().out)
    assert code == 0
    assert "3 checkpoints triggered" in text
    assert "2 completed" in text
    assert "1 checkpoint expired after 10 min, which is the timeout" in text
    assert "acknowledged after the end: window subtask 2 of 4 (1 of 1); late is not yet the cause" in text
    assert "why they were late: back-pressure and the times of the subtasks" in text
    assert "2024-03-05 12:00:00 to 2024-03-05 12:11:11 (UTC+02:00)" in text


def test_a_clock_that_was_set_back_makes_no_negative_age(written, capsys):
    set_back = (log.triggered(8, 660), log.expired(8, 60))
    whole = (log.triggered(9, 700), log.expired(9, 1_300))

    texts = []
    for lines in (set_back, (*set_back, *whole)):
        app.run(["diagnose", "--log", written(*lines)])
        texts.append(flat(capsys.readouterr().out))

    assert "1 checkpoint expired" in texts[0]
    assert "expired after" not in texts[0]
    assert "2 checkpoints expired after 10 min, which is the timeout" in texts[1]


def test_a_cut_file_is_named_also_if_nothing_of_it_is_left(written, capsys):
    path = Path(written(*EXPIRING, name="flink.log.gz"))
    path.write_bytes(path.read_bytes()[:30])

    code = app.run(["diagnose", "--log", str(path)])

    first, second = capsys.readouterr().err.strip().splitlines()
    assert code == 1
    assert (
        first
        == f"barrierscope: {path} cannot be read to its end (damaged, cut or still written): only a first part was read"
    )
    assert second.startswith("barrierscope: no line of Flink")


def test_restarts_by_transactions_are_compared_with_interval_and_duration(written, capsys):
    app.run(["diagnose", "--log", written(*FENCING)])

    text = flat(capsys.readouterr().out)
    assert "2 of 2 restarts: the broker gave the transaction's id a newer epoch" in text
    assert '"org.apache.kafka.common.errors.ProducerFencedException: Producer attempted an operation' in text
    assert "a transaction stays open for interval + duration of a checkpoint, about 20 min 30 s" in text
    assert "cure: raise transaction.timeout.ms of the sink" in text


def test_a_timeout_that_the_log_names_is_compared_with_the_age_of_a_transaction(written, capsys):
    named = log.FENCED + "\nCaused by: a.B: recovery took longer than 'transaction.timeout.ms' (900000ms)."
    app.run(["diagnose", "--log", written(*FENCING[:8], log.restarted(2_500, named))])

    assert "which is longer than its timeout of 15 min" in flat(capsys.readouterr().out)


def test_a_declined_checkpoint_names_the_subtask_and_the_store(written, capsys):
    lines = [log.task_switched(1, 2, "RUNNING"), log.triggered(4, 29), log.declined(4, 30, 2, log.SLOW_DOWN)]
    app.run(["diagnose", "--log", written(*lines)])

    text = flat(capsys.readouterr().out)
    assert "1 checkpoint declined by window subtask 2 of 4 (1): the object store refuses requests" in text
    assert "Errors of stores, disks and credentials, in all lines" in text


def test_a_declined_checkpoint_without_an_exception_asks_for_the_log_of_its_task_manager(written, capsys):
    app.run(["diagnose", "--log", written(log.triggered(4, 29), log.declined(4, 30, 2, ""))])

    assert "why the checkpoint was declined: the log of the TaskManager that runs subtask 2 of" in flat(
        capsys.readouterr().out
    )


def test_refused_checkpoints_are_counted_with_their_reason_and_cure(written, capsys):
    reason = "Some tasks of the job have already finished and checkpointing with finished tasks is not enabled."
    lines = [log.line(60 * n, f"Failed to trigger checkpoint for job {JOB} since {reason}") for n in range(1, 6)]
    app.run(["diagnose", "--log", written(*lines)])

    text = flat(capsys.readouterr().out)
    assert "5 times, a checkpoint was refused before it began: some tasks have finished" in text
    assert "checkpoints-after-tasks-finish" in text


def test_a_long_time_without_a_trigger_is_told_unless_the_job_restarted_in_it(written, capsys):
    lines = [p for n in (1, 2, 3, 4, 5) for p in (log.triggered(n, 60 * n), log.completed(n, 60 * n + 2))]
    lines += [log.triggered(6, 1_500), log.completed(6, 1_502)]

    app.run(["diagnose", "--log", written(*lines)])
    assert "no checkpoint was triggered for 19 min 58 s after the end of checkpoint 5" in flat(capsys.readouterr().out)
    app.run(["diagnose", "--log", written(*lines, log.restarted(900, "a.B: c"))])
    assert "no checkpoint was triggered" not in capsys.readouterr().out


def test_only_the_wanted_job_is_printed_and_an_unknown_one_is_an_error_of_one_line(written, capsys):
    other = "0" * 32
    path = written(log.triggered(1, 0), log.triggered(1, 0, job=other), log.restarted(9, "a.B: c"))

    assert app.run(["diagnose", "--log", path, "--job", "orders"]) == 0
    out = capsys.readouterr().out
    assert "orders" in out
    assert other not in out
    assert app.run(["diagnose", "--log", path, "--job", "none"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "no job is called 'none'" in error


def test_logs_of_several_files_a_folder_and_gz_are_one_story_in_any_order(written, capsys, tmp_path):
    written(*EXPIRING[4:], name="jobmanager.log.gz")
    written(*EXPIRING[:4], name="jobmanager.log.1")

    app.run(["diagnose", "--log", str(tmp_path), "--format", "json"])

    document = json.loads(capsys.readouterr().out)["log"]
    assert document["files"] == 2
    assert document["jobs"][0]["summary"].startswith("3 checkpoints triggered")
    assert document["utc_offset_s"] == 7_200


def test_markdown_shows_foreign_text_without_markup(written, capsys):
    app.run(["diagnose", "--log", written(log.restarted(9, "a.B: <img src=x> *c* @d")), "--format", "markdown"])

    out = capsys.readouterr().out
    assert out.startswith("## What the log shows")
    assert "\\<img" in out
    assert "@d" not in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["diagnose"], "nothing to diagnose is named"),
        (["diagnose", "--log", "/nowhere/none.log"], "does not exist"),
    ],
)
def test_an_error_of_the_command_line_is_one_line_with_code_2(arguments, said, capsys):
    assert app.run(arguments) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_log_without_anything_about_flink_is_an_error_with_code_1(written, capsys):
    assert app.run(["diagnose", "--log", written("hello\n")]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_broken_lines_are_counted_in_the_first_line(written, capsys):
    app.run(["diagnose", "--log", written(log.triggered(1, 0), f"Completed checkpoint 1 for job {JOB} (50")])

    assert "1 broken line left out" in flat(capsys.readouterr().out)


# --- joined with a target -------------------------------------------------------------------------------------------


def observed(name: str = "orders", run_id: str = JOB) -> JobObservation:
    return JobObservation(
        engine_run_id=run_id, name=name, state=JobState.RUNNING, engine_state="RUNNING", started_at=START
    )


def story_near_the_run(written, monkeypatch, *at_s: float):
    monkeypatch.setattr(log, "START", (START + log.ZONE).replace(tzinfo=None))
    lines = [log.triggered(1, 1), *(log.restarted(s, log.FENCED) for s in at_s)]
    story, _, _ = read_logs([written(*lines)])
    return story


def test_the_exceptions_of_the_log_are_evidence_for_the_verdict_at_the_target(written, monkeypatch):
    story = story_near_the_run(written, monkeypatch, 5, 25, 50)
    evidence = job(HEALTHY_RUN, CALM)

    joined = with_exceptions(observed(), evidence, story)

    assert [at for at, _ in joined.exceptions] == [START + timedelta(seconds=s) for s in (5, 25, 50)]
    assert all(at.tzinfo is UTC for at, _ in joined.exceptions)
    found = diagnose(joined).verdict
    assert found.kind is VerdictKind.RESTARTS
    assert "are not the cause" not in found.sentence


def test_an_exception_that_the_target_reports_too_counts_once(written, monkeypatch):
    story = story_near_the_run(written, monkeypatch, 5, 25)
    evidence = replace(job(HEALTHY_RUN, CALM), exceptions=((START + timedelta(seconds=25.4), log.FENCED),))

    assert len(with_exceptions(observed(), evidence, story).exceptions) == 2


def test_exceptions_of_another_job_and_of_an_earlier_run_are_left_out(written, monkeypatch):
    story = story_near_the_run(written, monkeypatch, 5, 25)
    evidence = job(HEALTHY_RUN, CALM)

    assert with_exceptions(observed("other", "1" * 32), evidence, story).exceptions == ()
    late = replace(evidence, started_at=START + timedelta(seconds=10))
    assert len(with_exceptions(observed(), late, story).exceptions) == 1


def test_a_restart_in_the_first_hours_of_the_first_year_is_left_out(written, monkeypatch):
    monkeypatch.setattr(log, "START", (START + log.ZONE).replace(tzinfo=None))
    broken = f"0001-01-01 00:00:00,000{log.restarted(5, log.FENCED)[23:]}"
    story, _, _ = read_logs([written(log.triggered(1, 1), broken)])

    assert story.jobs[JOB].restarts[0].at.year == 1
    assert with_exceptions(observed(), job(HEALTHY_RUN, CALM), story).exceptions == ()


@pytest.mark.parametrize("is_json", [True, False])
def test_the_files_of_a_container_runtime_give_the_answer_of_the_log_itself(is_json, written, capsys):
    def wrapped(line: str) -> str:
        document = {"log": f"{line}\n", "stream": "stdout", "time": "2024-03-05T10:00:00.1Z"}
        return f"{json.dumps(document)}\n" if is_json else f"2024-03-05T10:00:00.123456789Z stdout F {line}\n"

    plain = [line for part in (*EXPIRING, *FENCING) for line in part.splitlines()]

    def answer(lines) -> str:
        assert app.run(["diagnose", "--log", written(*lines)]) == 0
        head, _, rest = capsys.readouterr().out.partition("\n\n")
        assert "left out" not in flat(head)
        return rest

    assert answer(map(wrapped, plain)) == answer(f"{line}\n" for line in plain)


@pytest.mark.parametrize(
    ("others", "is_named"),
    [((), True), ((log.triggered(1, 0, job="a" * 32),), False)],
)
def test_a_task_that_failed_near_a_restart_is_named_if_it_can_be_of_no_other_job(written, capsys, others, is_named):
    assert (
        app.run(["diagnose", "--log", written(*others, log.task_switched(39, 2, "FAILED"), log.restarted(40, ""))]) == 0
    )

    assert ("first task that failed: window subtask 2 of 4" in flat(capsys.readouterr().out)) is is_named


def test_the_reason_of_a_refusal_is_quoted_whole(written, capsys):
    reason = "Failure reason: Not all required tasks are currently running"
    text = f"Checkpoint triggering task Source: orders (1/2) of job {JOB} is not being executed at the moment. Aborting"
    refused = log.line(5, f"Failed to trigger checkpoint for job {JOB} because {text} checkpoint. {reason}.")

    assert app.run(["diagnose", "--log", written(refused)]) == 0
    assert f'{reason}"' in flat(capsys.readouterr().out)


SOUND = tuple(part for n in range(1, 12) for part in (log.triggered(n, 40 * n), log.completed(n, 40 * n + 2)))
DOWNHILL = (*SOUND, log.triggered(12, 600), log.expired(12, 1_200), log.triggered(13, 1_205), log.expired(13, 1_805))
ONE_EXPIRED = (*SOUND, log.triggered(12, 600), log.expired(12, 1_200))


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        pytest.param(SOUND, (0, 0, 0), id="sound"),
        pytest.param(ONE_EXPIRED, (0, 3, 3), id="one of twelve expired"),
        pytest.param(DOWNHILL, (3, 3, 3), id="the newest two expired"),
        pytest.param(EXPIRING, (3, 3, 3), id="one of three expired"),
        pytest.param(FENCING, (3, 3, 3), id="two restarts"),
    ],
)
def test_a_script_learns_from_the_code_what_the_log_shows(lines, codes, written, capsys):
    path = written(*lines)

    assert app.run(["diagnose", "--log", path]) == 0
    assert tuple(app.run(["diagnose", "--log", path, "--fail-on", c]) for c in ("failing", "slow", "advice")) == codes


def test_the_json_of_a_log_has_one_member_more_with_a_condition(written, capsys):
    path = written(*FENCING)
    app.run(["diagnose", "--log", path, "--format", "json"])
    plain = json.loads(capsys.readouterr().out)
    app.run(["diagnose", "--log", path, "--format", "json", "--fail-on", "failing"])
    asked = json.loads(capsys.readouterr().out)

    added = asked.pop("fail_on")
    assert asked == plain
    assert (added["condition"], added["exit_code"]) == ("failing", 3)
    assert [one["reason"] for one in added["jobs"]] == ["restarting"]
