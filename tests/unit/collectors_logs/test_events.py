"""Tests of the texts of Flink's log lines, from 1.13 to 2.3, and of what is read from them."""

from __future__ import annotations

from datetime import timedelta
from time import process_time

import pytest

from backend.domain.failure import FailureReason
from collectors.file_blocks import Hit, hits
from collectors.logs import events
from collectors.logs import story as story_of_jobs
from collectors.logs.events import TEXTS, read_into, task_of
from collectors.logs.story import Story
from tests.support import flink_log_lines as log
from tests.support.flink_log_lines import JOB


def read(*lines: str) -> Story:
    story = Story()
    for hit in hits(iter(["".join(lines).encode()]), TEXTS):
        read_into(story, hit)
    return story


def only(story: Story):
    (checkpoint,) = story.jobs[JOB].checkpoints.values()
    return checkpoint


@pytest.mark.parametrize(
    ("kind", "is_savepoint"),
    [
        ("CHECKPOINT", False),
        ("SAVEPOINT", True),
        ("SAVEPOINT_SUSPEND", True),
        ("CheckpointType{name='Checkpoint', sharingFilesStrategy=FORWARD_BACKWARD}", False),
        ("CheckpointType{name='Full Checkpoint', sharingFilesStrategy=FORWARD}", False),
        ("SavepointType{name='Savepoint', postCheckpointAction=NONE, formatType=CANONICAL}", True),
    ],
)
def test_a_trigger_of_each_version_is_read(kind: str, is_savepoint: bool):
    story = read(log.triggered(7, 60, kind=kind))

    found = only(story)
    assert (found.number, found.is_savepoint) == (7, is_savepoint)
    assert found.triggered_at == log.START + timedelta(seconds=60)
    assert story.offset == log.ZONE


@pytest.mark.parametrize(
    "text",
    [
        f"Completed checkpoint 7 for job {JOB} (5000000 bytes in 2100 ms).",
        f"Completed checkpoint 7 for job {JOB} (5000000 bytes, checkpointDuration=2100 ms, finalizationTime=12 ms).",
    ],
)
def test_a_completed_checkpoint_of_each_version_is_read(text: str):
    found = only(read(log.line(62, text)))

    assert (found.outcome, found.duration_ms, found.bytes) == ("completed", 2_100, 5_000_000)


_OK = (
    log.triggered(7, 60),
    log.line(62, f"Completed checkpoint 7 for job {JOB} (50 bytes, checkpointDuration=21 ms, finalizationTime=1 ms)."),
)


@pytest.mark.parametrize(
    ("change", "is_plain"),
    [
        (("", ""), True),
        (("INFO ", "WARN "), False),
        (("CheckpointCoordinator ", "Other "), False),
        (("2024-03-", "2024-13-"), False),
        ((" job ", " job x"), False),
        ((".\n", ". Triggering checkpoint 9 @ 3\n"), False),
        ((".\n", ".\r\n"), True),
        ((" - ", " [] - "), False),
        ((".\n", ".\njava.lang.Exception: Heartbeat of TaskManager with id a timed out.\n"), False),
    ],
)
def test_a_line_of_a_checkpoint_that_is_well_tells_the_same_without_being_decoded(
    monkeypatch: pytest.MonkeyPatch, change: tuple[str, str], is_plain: bool
):
    lines = [line.replace(*change, 1) if change[0] else line for line in _OK * 2]
    plain: list[bool] = []
    of_line = events._read_well

    def noted(story: Story, hit: Hit) -> bool:
        plain.append(of_line(story, hit))
        return plain[-1]

    monkeypatch.setattr(events, "_read_well", noted)
    found = read(*lines)
    monkeypatch.setattr(events, "_read_well", lambda story, hit: False)

    assert found == read(*lines)
    # The last line has no line after it that shows its end.
    assert plain[:3] == [is_plain] * 3 or not any(plain)
    assert any(plain) is is_plain


def test_an_expired_checkpoint_and_who_was_late_are_read():
    story = read(log.triggered(7, 0), log.expired(7, 600), log.late(7, 612, 2), log.late(7, 613, 2))

    found = only(story)
    assert (found.outcome, found.reason) == ("expired", FailureReason.EXPIRED)
    assert found.late == [log.attempt(2)]


def test_a_declined_checkpoint_keeps_the_exception_without_the_lines_of_code():
    found = only(read(log.declined(4, 30, 2, log.SLOW_DOWN), log.line(31, "next", level="INFO")))

    assert (found.outcome, found.declined_by) == ("declined", log.attempt(2))
    assert "SlowDown" in found.text
    assert "\tat " not in found.text
    assert "next" not in found.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"Failed to trigger checkpoint for job {JOB} since Checkpoint triggering task Source: a (1/2) of job {JOB}"
            " is not being executed at the moment. Aborting checkpoint. Failure reason: Not all required tasks are"
            " currently running..",
            "is not being executed at the moment",
        ),
        (
            f"Failed to trigger checkpoint for job {JOB} because Some tasks of the job have already finished and"
            " checkpointing with finished tasks is not enabled. Failure reason: Not all required tasks are currently"
            " running.",
            "checkpointing with finished tasks is not enabled",
        ),
    ],
)
def test_a_refusal_of_each_version_is_counted_by_its_reason(text: str, reason: str):
    story = read(log.line(1, text), log.line(2, text))

    (told,) = story.jobs[JOB].refused.values()
    assert told.count == 2
    assert reason in told.sample


def test_a_failure_without_a_number_is_a_refusal():
    story = read(
        log.line(
            5,
            f"Failed to trigger or complete checkpoint UNKNOWN_CHECKPOINT_ID for job {JOB}. (3 consecutive failed"
            " attempts so far)",
            level="WARN",
            trace="org.apache.flink.runtime.checkpoint.CheckpointException: Trigger checkpoint failure.",
        )
    )

    (told,) = story.jobs[JOB].refused.values()
    assert "Trigger checkpoint failure" in told.sample


def test_a_trigger_that_fails_is_a_failed_checkpoint():
    found = only(
        read(
            log.triggered(7, 0),
            log.line(1, f"Triggering Checkpoint 7 for job {JOB} failed due to java.io.IOException: quota"),
        )
    )

    assert (found.outcome, found.reason) == ("failed", FailureReason.TRIGGER_FAILURE)
    assert "quota" in found.text


def test_a_restart_is_counted_once_with_its_exception_although_the_job_passes_several_states():
    story = read(
        log.restarted(10, log.FENCED),
        log.restarted(10.5, "", old="RESTARTING", new="RUNNING"),
        log.restarted(40, log.FENCED, new="FAILING"),
        log.restarted(40.5, log.FENCED, old="FAILING", new="FAILED"),
    )

    job = story.jobs[JOB]
    assert (job.name, job.restart_count) == ("orders", 2)
    assert all("ProducerFencedException" in r.text for r in job.restarts)


def test_the_same_lines_in_a_second_file_do_not_count_twice():
    lines = (log.restarted(10, log.FENCED), log.triggered(1, 0), log.completed(1, 2))

    story = read(*lines, *lines)

    assert story.jobs[JOB].restart_count == 1
    assert story.known["kafka-fenced-old-epoch"].count == 1
    assert len(story.jobs[JOB].checkpoints) == 1


def test_the_task_of_an_attempt_is_named_by_the_line_in_which_it_changes_its_state():
    story = read(log.task_switched(1, 2, "FAILED"))

    assert task_of(story, log.attempt(2)) == "window subtask 2 of 4"
    assert story.task_failures[0].who == "window subtask 2 of 4"


def test_the_task_of_an_attempt_without_such_a_line_is_named_by_a_sibling_or_by_its_own_id():
    story = read(log.task_switched(1, 2, "RUNNING"))

    assert task_of(story, log.attempt(0)) == "window subtask 0 of 4"
    assert task_of(Story(), log.attempt(0)) == f"subtask 0 of vertex {log.VERTEX}"
    assert task_of(Story(), "ab" * 16) == f"the task of attempt {'ab' * 16}"


def test_the_attempts_of_old_versions_are_named_too():
    story = read(log.line(1, f"map (1/2)#3 ({'ab' * 16}) switched from DEPLOYING to RUNNING on tm-1.", logger=log.TASK))

    assert task_of(story, "ab" * 16) == "map subtask 0 of 2"
    assert story.task_manager_count == 1


def test_what_the_sink_only_logs_is_a_known_message():
    story = read(
        log.line(
            5,
            "Unable to commit transaction (CommitRequestImpl@1) because its producer is already fenced. This means that"
            " recovery took longer than 'transaction.timeout.ms' (900000ms).",
            level="ERROR",
            logger="org.apache.flink.connector.kafka.sink.KafkaCommitter",
        )
    )

    assert list(story.known) == ["kafka-commit-fenced"]


def test_the_version_and_the_settings_are_read():
    story = read(
        log.line(0, " Starting StandaloneSessionClusterEntrypoint (Version: 1.20.0, Scala: 2.12, Rev:b1fe7b4)"),
        log.line(0, "Loading configuration property: execution.checkpointing.interval, 60 s"),
    )

    assert story.versions == ["1.20.0"]
    assert story.settings == {"execution.checkpointing.interval": "60 s"}


@pytest.mark.parametrize(
    "broken",
    [
        f"2024-03-05 12:00:01,000 INFO  {log.COORDINATOR} [] - Triggering checkpoint seven @ now for job {JOB}.\n",
        f"Completed checkpoint 7 for job {JOB} (500",
        "\x00\x00\xff\xfe Decline checkpoint \x00\n",
        f"2024-99-99 12:00:01 INFO {log.COORDINATOR} [] - Completed checkpoint 7 for job {JOB} (5 bytes in 3 ms)\n",
    ],
)
def test_broken_lines_are_counted_and_the_others_are_read(broken: str):
    story = read(log.triggered(1, 0), broken, "" if broken.endswith("\n") else "\n", log.completed(1, 2))

    assert story.unreadable_count == 1
    assert only(story).outcome == "completed"


def test_the_messages_inside_a_stack_trace_are_not_broken_lines():
    assert read(log.expired(7, 600), log.declined(8, 700, 1, log.SLOW_DOWN)).unreadable_count == 0


def test_a_log_that_is_about_something_else_tells_nothing():
    story = read(log.line(0, "looked up customer 7", logger="com.example.Enricher"), "plain text\n")

    assert (story.event_count, story.jobs, story.known) == (0, {}, {})


def test_the_memory_does_not_grow_with_the_number_of_checkpoints(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(story_of_jobs, "CHECKPOINTS_KEPT", 10)

    story = read(*(log.triggered(n, 60 * n) + log.completed(n, 60 * n + 2) for n in range(1, 101)))

    job = story.jobs[JOB]
    assert len(job.checkpoints) <= 20
    assert job.forgotten_count + len(job.checkpoints) == 100
    assert max(job.checkpoints) == 100


@pytest.mark.parametrize(
    "text",
    [
        "{many} switched from ",
        "Job {many} switched from state RUNNING to ",
        "Triggering checkpoint 7 (type={many}",
        "x (Version: 1.{many}",
    ],
)
@pytest.mark.parametrize("part", ["a", "1", "Job (", "Triggering checkpoint 7 (type="])
def test_the_time_for_a_hostile_line_grows_with_its_length_and_not_with_the_square_of_it(text: str, part: str):
    def took_s(length: int) -> float:
        hit = Hit(log.line(0, text.format(many=part * (length // len(part)))).encode(), b"")
        times = []
        for _ in range(3):
            begin = process_time()
            read_into(Story(), hit)
            times.append(process_time() - begin)
        return min(times)

    assert took_s(16_000) < 24 * took_s(2_000)


def test_a_job_and_a_task_with_long_names_are_read():
    name = "Calc[" + "f0, " * 2_000 + "]"
    attempt = "a" * 32

    story = read(
        log.line(1, f"Job {name} ({JOB}) switched from state RUNNING to RESTARTING."),
        log.line(1, f"{name} (2/4) ({attempt}) switched from RUNNING to FAILED on host."),
    )

    assert story.jobs[JOB].name == name
    assert story.attempts == {attempt: f"{name} subtask 1 of 4"}


RECOVERS = "6 tasks will be restarted to recover the failed task {}."
GLOBAL = (
    log.line(
        39.9,
        "Trying to recover from a global failure.",
        logger="org.apache.flink.runtime.jobmaster.JobMaster",
        trace="org.apache.flink.util.FlinkRuntimeException: Exceeded checkpoint tolerable failure threshold.\n\tat a.B",
    ),
    log.line(39.95, "6 tasks will be restarted to recover from a global failure."),
)


def failed_task(at_s: float, subtask: int, trace: str) -> str:
    return log.line(
        at_s, f"window ({subtask + 1}/4) ({log.attempt(subtask)}) switched from RUNNING to FAILED on tm-1.",
        logger=log.EXECUTION, trace=trace,
    )  # fmt: skip


def test_a_restart_without_an_exception_has_that_of_the_task_from_which_the_job_recovers():
    """Goal: since regions restart, the line of the job has none (measured on Flink 1.20.5 and 2.3.0)."""
    story = read(
        failed_task(39, 2, log.FENCED),
        failed_task(39.5, 3, "java.lang.IllegalStateException: of another job"),
        log.line(39.9, RECOVERS.format(log.attempt(2))),
        log.restarted(40, ""),
    )

    (restart,) = story.jobs[JOB].restarts
    assert "ProducerFencedException" in restart.text
    assert restart.who == "window subtask 2 of 4"
    assert restart.at == log.START + timedelta(seconds=40)


def test_a_restart_of_the_whole_job_has_the_exception_of_the_line_before():
    (restart,) = read(*GLOBAL, log.restarted(40, "")).jobs[JOB].restarts

    assert "tolerable failure threshold" in restart.text
    assert restart.who == ""


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((failed_task(39, 2, log.FENCED), log.restarted(40, "")), id="no line says what it recovers from"),
        pytest.param((*GLOBAL, log.restarted(60, "")), id="it is too long ago"),
        pytest.param(
            (failed_task(39, 2, log.FENCED), log.task_switched(39, 1, "RUNNING"),
             log.line(39.9, RECOVERS.format(log.attempt(1))), log.restarted(40, "")),
            id="the exception of that task is not in the log",
        ),
    ],
)  # fmt: skip
def test_an_exception_that_may_be_of_another_job_is_not_that_of_the_restart(lines: tuple[str, ...]):
    (restart,) = read(*lines).jobs[JOB].restarts

    assert restart.text == ""


def test_what_a_job_recovers_from_is_told_of_one_restart_only():
    first, second = read(*GLOBAL, log.restarted(40, ""), log.restarted(41, "")).jobs[JOB].restarts

    assert first.text
    assert not second.text


DISCARDED = (
    "org.apache.pekko.remote.OversizedPayloadException: Discarding oversized payload sent to Actor[pekko.tcp://jm:6123"
    "/user/rpc/jobmanager_2]: max allowed size 600000 bytes, actual size of encoded class Fenced was 708085 bytes."
)


def test_a_known_message_in_the_exception_of_a_line_that_says_nothing_is_found():
    """Goal: a message that is thrown away is logged so (measured on Flink 1.20.5 and 2.3.0)."""
    lines = [
        log.line(at, "Transient association error (association remains live)", level="ERROR",
                 logger="org.apache.pekko.remote.EndpointWriter", trace=DISCARDED)
        for at in (1, 2)
    ]  # fmt: skip

    told = read(*lines).known["rpc-message-too-large"]
    assert (told.count, told.last_at) == (2, log.START + timedelta(seconds=2))
    assert told.sample.startswith("org.apache.pekko.remote.OversizedPayloadException")


def test_a_line_of_a_stack_trace_that_its_record_has_told_counts_once(monkeypatch: pytest.MonkeyPatch):
    # Nothing is remembered, so nothing is left out because it was told before.
    monkeypatch.setattr(story_of_jobs, "ATTEMPTS_KEPT", 0)

    assert read(log.declined(8, 700, 1, log.SLOW_DOWN)).known["s3-slow-down"].count == 1
