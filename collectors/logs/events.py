"""The texts of Flink's log lines from 1.13 to 2.3, and what each tells. They are those of ``CheckpointCoordinator``,
``CheckpointFailureManager``, ``DefaultExecutionGraph``, ``Execution``, ``Task`` and ``AsyncCheckpointRunnable``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Final

from backend.domain import known_messages
from backend.domain.failure import FailureReason, reason_of_message
from backend.domain.known_messages import KnownMessage
from collectors.file_blocks import Hit
from collectors.logs.lines import Record, record_of
from collectors.logs.story import ATTEMPTS_KEPT, RESTARTS_KEPT, Failure, LoggedJob, Story, keep_text

_JOB: Final = r"(?P<job>[0-9a-f]{32})"
_NUMBER: Final = r"(?P<number>\d{1,18})"
_ATTEMPT: Final = r"(?P<attempt>[0-9a-f_]{32,100})"
# From 1.16 on, the id of an attempt names the vertex and the subtask: graph_vertex_subtask_attempt.
_ATTEMPT_PARTS: Final = re.compile(r"[0-9a-f]{32}_([0-9a-f]{32})_(\d+)_\d+")
_DIGITS: Final = re.compile(r"[0-9a-f]{32}|\d+")
_REASONS_CUT: Final = 200
_LINES_BACK: Final = 100

_TRIGGERED: Final = re.compile(
    rf"Triggering checkpoint {_NUMBER} (?:\(type=(?P<type>.{{0,300}}?)\) )?@ (?P<ms>\d{{1,16}}) for job {_JOB}"
)
_COMPLETED: Final = re.compile(
    rf"Completed checkpoint {_NUMBER} for job {_JOB} \((?P<bytes>\d{{1,18}}) bytes"
    r"(?: in |, checkpointDuration=)(?P<ms>\d{1,16}) ms"
)
_EXPIRED: Final = re.compile(rf"Checkpoint {_NUMBER} of job {_JOB} expired before completing")
_DECLINED: Final = re.compile(rf"Decline checkpoint {_NUMBER} by task {_ATTEMPT} of job {_JOB}")
_LATE: Final = re.compile(
    rf"Received late message for now expired checkpoint attempt {_NUMBER} from task {_ATTEMPT} of job {_JOB}"
)
_FAILED: Final = re.compile(
    rf"Failed to trigger (?:or complete )?checkpoint (?P<number>\d{{1,18}}|UNKNOWN_CHECKPOINT_ID) for job {_JOB}\. "
    r"\(\d{1,9} consecutive failed attempts so far\)"
)
_REFUSED: Final = re.compile(rf"Failed to trigger checkpoint for job {_JOB} (?:since|because) (?P<reason>.*)")
_TRIGGER_FAILED: Final = re.compile(rf"Triggering Checkpoint {_NUMBER} for job {_JOB} failed due to (?P<reason>.*)")
_RESTORED: Final = re.compile(rf"Restoring job {_JOB} from (?:latest valid checkpoint: )?\w+ {_NUMBER} @")
_FRESH: Final = "No checkpoint found during restore"
# A hostile line may be long, so no expression may search it in more than linear time. The name is what precedes.
_JOB_STATE: Final = re.compile(rf" \({_JOB}\) switched from state (?P<old>\w+) to (?P<new>\w+)")
# Is used with ``match``: it would be tried again from each character by ``search``.
_TASK_STATE: Final = re.compile(
    rf"(?P<task>.*) \((?P<index>\d{{1,6}})/(?P<total>\d{{1,6}})\)(?:#\d+)? \({_ATTEMPT}\) switched from (?P<old>\w+) to"
    r" (?P<new>\w+)"
)
_RECOVERS: Final = re.compile(rf"restarted to recover the failed task {_ATTEMPT}")
_VERSION: Final = re.compile(r"\(Version: (?P<version>\d{1,6}\.\d{1,6}[\w.-]{0,80}), ")
_SETTING: Final = re.compile(
    r"Loading configuration property: (?P<key>execution\.checkpointing\.[\w.-]+), (?P<value>.*)"
)
# The two texts of a checkpoint that is well, which make up most of a JobManager's log, in Flink's default pattern after
# the time. A line that this does not match is read as any other.
_WELL: Final = re.compile(
    rb" INFO  ?[\w.$]{1,200}\.CheckpointCoordinator {1,60}(?:\[[^]\n]{0,99}\] ?)?- "
    rb"(?:Triggering checkpoint (\d{1,18}) (?:\(type=([^.)\n]{0,300})\) )?@ (\d{1,16}) for job ([0-9a-f]{32})\."
    rb"|Completed checkpoint (\d{1,18}) for job ([0-9a-f]{32}) \((\d{1,18}) bytes(?: in |, checkpointDuration=)"
    rb"(\d{1,16}) ms(?:, finalizationTime=\d{1,16} ms)?\)\.)"
)
_TIME_LENGTH: Final = len("2026-03-01 12:00:00,000")
_RESTARTING: Final = frozenset({"RESTARTING", "FAILING", "FAILED"})

# A line is looked at only if it has one of these texts. The last ones are of warnings and stack traces, in which the
# known messages are looked for.
TEXTS: Final = (
    b"riggering checkpoint ",
    b"riggering Checkpoint ",
    b"Completed checkpoint ",
    b" expired before completing.",
    b"Decline checkpoint ",
    b"Received late message for now expired checkpoint",
    b"Failed to trigger ",
    b"Restoring job ",
    b"No checkpoint found during restore",
    b" switched from ",
    b" recover the failed task ",
    b" recover from a global failure",
    b"(Version: ",
    b"Loading configuration property: execution.checkpointing.",
    b"asynchronous part of checkpoint ",
    b"Caused by: ",
    b"Exception: ",
    b"OutOfMemoryError: ",
    b"Unable to commit ",
    b"the transaction timeout",
    b"eartbeat of ",
    b"o ZooKeeper ",
)  # fmt: skip


def read_into(story: Story, hit: Hit) -> None:
    """Add what the line tells to the story. A line that tells nothing is left out."""
    if _read_well(story, hit):
        return
    record = record_of(hit)
    if record is None:
        _continued(story, hit)
        return
    if _OF_TASK_MANAGERS.search(hit.line) is not None:
        story.task_manager_count += 1
    for text, read in _READERS:
        if text in record.text:
            if read(story, record):
                story.saw(record.at)
            elif any(sure in record.text for sure in _SURE):
                story.unreadable_count += 1
            break
    _known(story, record)


def _read_well(story: Story, hit: Hit) -> bool:
    """Read a line of a checkpoint that is well, without decoding it. Return whether it is one, with no line of another
    form after it.
    """
    line = hit.line
    found = _WELL.fullmatch(line, _TIME_LENGTH)
    if found is None or hit.block[hit.begin : hit.begin + 4] != line[:4]:
        return False
    try:
        at = datetime.fromisoformat(line[:_TIME_LENGTH].decode())
    except ValueError:
        return False
    number, kind, trigger_ms, job, ended, ended_job, size, took_ms = found.groups()
    if number is not None:
        _add_trigger(story, at, job.decode(), int(number), int(trigger_ms), is_savepoint=_is_savepoint(kind or b""))
    else:
        _add_completion(story, at, ended_job.decode(), int(ended), int(took_ms), int(size))
    story.saw(at)
    return True


def _is_savepoint(kind: bytes) -> bool:
    return b"avepoint" in kind or b"SAVEPOINT" in kind


# Only Flink's coordinator writes these texts, so a line that has one and cannot be read is broken.
_SURE: Final = ("Triggering checkpoint ", "Completed checkpoint ", "Decline checkpoint ", " expired before completing.")


# The classes that log on TaskManagers only.
_OF_TASK_MANAGERS: Final = re.compile(rb"taskmanager\.Task|taskexecutor\.TaskExecutor|runtime\.tasks\.")


def _continued(story: Story, hit: Hit) -> None:
    """Read a line that does not begin a record: of a stack trace, or broken."""
    text = hit.line.decode("utf-8", "replace")
    head = _head_without_text(hit) if _explained(text[:500]) is not None else None
    if head is not None:
        _known(story, head)
    if any(sure in text for sure in _SURE) and "xception" not in text and "Failure reason" not in text:
        story.unreadable_count += 1


def _head_without_text(hit: Hit) -> Record | None:
    """Return the record that a line belongs to, with its stack trace, if nothing else brings it up.

    The first line of such a record has none of ``TEXTS``: a message that is thrown away, for example, is only a
    *Transient association error*, and its exception says the rest.
    """
    end = hit.begin - len(hit.line) - 1
    for _ in range(_LINES_BACK):
        begin = hit.block.rfind(b"\n", 0, max(0, end - 1)) + 1
        line = hit.block[begin : max(0, end - 1)]
        if not line or end <= 0:
            return None
        record = None if line.startswith((b"\t", b" ", b"Caused by: ")) else record_of(Hit(line, hit.block, end))
        if record is not None:
            return None if any(text in line for text in TEXTS) else record
        end = begin
    return None


def _known(story: Story, record: Record) -> None:
    """Count the known message in a warning, an error or a stack trace."""
    if not (record.is_problem or record.trace):
        return
    lines = [record.text[:500], *(line[:500] for line in record.trace.split("\n", 40)[:40] if line)]
    found = [(m, line) for line in lines if (m := _explained(line)) is not None]
    if found:
        message, line = min(found, key=lambda each: known_messages.messages().index(each[0]))
        if story.is_new((message.id, record.at, line)):
            story.tell(story.known, message.id, record.at, line.strip().removeprefix("Caused by: "))
            story.saw(record.at)


@lru_cache(maxsize=8_192)
def _explained(line: str) -> KnownMessage | None:
    return known_messages.first_of([line])


def _triggered(story: Story, record: Record) -> bool:
    found = _TRIGGERED.search(record.text)
    if found is None:
        return False
    is_savepoint = _is_savepoint((found["type"] or "").encode())
    number, ms = int(found["number"]), int(found["ms"])
    _add_trigger(story, record.at, found["job"], number, ms, is_savepoint=is_savepoint)
    return True


def _add_trigger(story: Story, at: datetime, job: str, number: int, ms: int, *, is_savepoint: bool) -> None:
    checkpoint = story.job(job).checkpoint(number)
    checkpoint.triggered_at, checkpoint.trigger_ms, checkpoint.is_savepoint = at, ms, is_savepoint
    story.coordinator_count += 1


def _completed(story: Story, record: Record) -> bool:
    found = _COMPLETED.search(record.text)
    if found is None:
        return False
    _add_completion(story, record.at, found["job"], int(found["number"]), int(found["ms"]), int(found["bytes"]))
    return True


def _add_completion(story: Story, at: datetime, job: str, number: int, took_ms: int, size: int) -> None:
    checkpoint = story.job(job).checkpoint(number)
    checkpoint.outcome, checkpoint.ended_at, checkpoint.duration_ms, checkpoint.bytes = "completed", at, took_ms, size
    story.coordinator_count += 1


def _expired(story: Story, record: Record) -> bool:
    found = _EXPIRED.search(record.text)
    if found is None:
        return False
    checkpoint = story.job(found["job"]).checkpoint(int(found["number"]))
    checkpoint.outcome, checkpoint.ended_at = "expired", record.at
    checkpoint.reason = FailureReason.EXPIRED
    story.coordinator_count += 1
    return True


def _declined(story: Story, record: Record) -> bool:
    found = _DECLINED.search(record.text)
    if found is None:
        return False
    checkpoint = story.job(found["job"]).checkpoint(int(found["number"]))
    checkpoint.outcome, checkpoint.ended_at, checkpoint.declined_by = "declined", record.at, found["attempt"]
    checkpoint.text = keep_text(record.trace)
    story.coordinator_count += 1
    return True


def _late(story: Story, record: Record) -> bool:
    found = _LATE.search(record.text)
    if found is None:
        return False
    late = story.job(found["job"]).checkpoint(int(found["number"])).late
    if found["attempt"] not in late and len(late) < ATTEMPTS_KEPT // 1_000:
        late.append(found["attempt"])
    story.coordinator_count += 1
    return True


def _failed(story: Story, record: Record) -> bool:
    found = _FAILED.search(record.text)
    if found is None:
        return _refused(story, record)
    job = story.job(found["job"])
    story.coordinator_count += 1
    first = record.trace.split("\n", 1)[0]
    if not found["number"].isdigit():
        story.tell(job.refused, _plain(first), record.at, first)
        return True
    checkpoint = job.checkpoint(int(found["number"]))
    if checkpoint.outcome is None:
        checkpoint.outcome, checkpoint.ended_at = "failed", record.at
    if checkpoint.reason is None:
        checkpoint.reason = reason_of_message(first)
    checkpoint.text = checkpoint.text or keep_text(record.trace)
    return True


def _refused(story: Story, record: Record) -> bool:
    found = _REFUSED.search(record.text)
    if found is None:
        return False
    reason = found["reason"].rstrip(".")
    story.tell(story.job(found["job"]).refused, _plain(reason), record.at, reason)
    story.coordinator_count += 1
    return True


def _trigger_failed(story: Story, record: Record) -> bool:
    found = _TRIGGER_FAILED.search(record.text)
    if found is None:
        return False
    checkpoint = story.job(found["job"]).checkpoint(int(found["number"]))
    checkpoint.outcome, checkpoint.ended_at = "failed", record.at
    checkpoint.text = keep_text(f"{found['reason']}\n{record.trace}")
    checkpoint.reason = FailureReason.TRIGGER_FAILURE
    story.coordinator_count += 1
    return True


def _restored(story: Story, record: Record) -> bool:
    found = _RESTORED.search(record.text)
    if found is None:
        return False
    restored = story.job(found["job"]).restored_from
    if len(restored) < RESTARTS_KEPT:
        restored.append((record.at, int(found["number"])))
    return True


def _switched(story: Story, record: Record) -> bool:
    found = _JOB_STATE.search(record.text)
    begin = record.text.find("Job ")
    if found is not None and 0 <= begin < found.start():
        job = story.job(found["job"])
        job.name = record.text[begin + len("Job ") : found.start()]
        _job_switched(job, found, record, story)
        return True
    found = _TASK_STATE.match(record.text)
    if found is None:
        return False
    # Flink's logs count subtasks from 1, its REST from 0.
    task = f"{found['task'].strip()} subtask {int(found['index']) - 1} of {found['total']}"
    story.remember(found["attempt"], task)
    if found["new"] == "FAILED":
        _task_failed(story, found["attempt"], task, record)
    return True


def _job_switched(job: LoggedJob, found: re.Match[str], record: Record, story: Story) -> None:
    if len(job.states) < RESTARTS_KEPT:
        job.states.append((record.at, found["new"]))
    if found["new"] in _RESTARTING and found["old"] not in _RESTARTING and story.is_new((job.job_id, record.at)):
        job.restart_count += 1
        if len(job.restarts) >= RESTARTS_KEPT:
            del job.restarts[0]
        cause = story.take_recovering(record.at)
        if record.trace or cause is None:
            job.restarts.append(Failure(record.at, "", keep_text(record.trace)))
        else:
            # Since Flink has restarted regions, this line has no exception. That of the task has it.
            job.restarts.append(replace(cause, at=record.at))


def _recovers(story: Story, record: Record) -> bool:
    """Read which task's failure the scheduler recovers from. The line names the attempt, or the vertex and subtask."""
    found = _RECOVERS.search(record.text)
    if found is None:
        return False
    known = story.newest_failures
    newest = next(reversed(known.values()), None)
    story.recovering = known.get(found["attempt"], newest if found["attempt"] not in story.attempts else None)
    return True


def _recovers_all(story: Story, record: Record) -> bool:
    """Read the failure of the whole job. Its exception follows the first of its two lines."""
    if record.trace:
        story.recovering = Failure(record.at, "", keep_text(record.trace))
    return True


def _task_failed(story: Story, attempt: str, task: str, record: Record) -> None:
    if not story.is_new(attempt):
        return
    story.fail(attempt, Failure(record.at, task, keep_text(record.trace)))


def _version(story: Story, record: Record) -> bool:
    found = _VERSION.search(record.text)
    if found is None:
        return False
    if found["version"] not in story.versions:
        story.versions.append(found["version"])
    return True


def _setting(story: Story, record: Record) -> bool:
    found = _SETTING.search(record.text)
    if found is None:
        return False
    story.settings[found["key"]] = found["value"].strip()[:_REASONS_CUT]
    return True


def _async_failed(story: Story, record: Record) -> bool:
    return record.is_problem


def _plain(reason: str) -> str:
    """Return the reason without ids and numbers, so that equal reasons are counted together."""
    return _DIGITS.sub("…", reason)[:_REASONS_CUT]


def task_of(story: Story, attempt: str) -> str:
    """Return the task and subtask of an execution attempt in words, or its id if no line names them."""
    known = story.attempts.get(attempt)
    if known is not None:
        return known
    parts = _ATTEMPT_PARTS.fullmatch(attempt)
    if parts is None:
        return f"the task of attempt {attempt}"
    vertex, subtask = parts[1], int(parts[2])
    # Another attempt of the same vertex may have been named.
    for other, task in story.attempts.items():
        if vertex in other:
            name, total = task.rpartition(" subtask ")[0], task.rpartition(" of ")[2]
            return f"{name} subtask {subtask} of {total}"
    return f"subtask {subtask} of vertex {vertex}"


_Reader = Callable[[Story, Record], bool]
_READERS: Final[tuple[tuple[str, _Reader], ...]] = (
    ("Triggering checkpoint ", _triggered),
    ("Completed checkpoint ", _completed),
    (" expired before completing.", _expired),
    ("Decline checkpoint ", _declined),
    ("Received late message for now expired", _late),
    ("Failed to trigger ", _failed),
    ("Triggering Checkpoint ", _trigger_failed),
    ("Restoring job ", _restored),
    (" switched from ", _switched),
    (" recover the failed task ", _recovers),
    (" recover from a global failure", _recovers_all),
    ("(Version: ", _version),
    ("Loading configuration property: execution.checkpointing.", _setting),
    ("asynchronous part of checkpoint ", _async_failed),
)
