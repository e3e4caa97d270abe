"""The texts of Flink's log lines from 1.13 to 2.3, and what each tells. They are those of ``CheckpointCoordinator``,
``CheckpointFailureManager``, ``DefaultExecutionGraph``, ``Execution``, ``Task`` and ``AsyncCheckpointRunnable``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from backend.domain import known_messages
from backend.domain.failure import FailureReason, reason_of_message
from backend.domain.known_messages import KnownMessage
from collectors.file_blocks import Hit
from collectors.logs.lines import Record, record_of
from collectors.logs.story import ATTEMPTS_KEPT, RESTARTS_KEPT, Failure, Story, keep_text

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
# Without the anchor, it would be tried again from each character.
_TASK_STATE: Final = re.compile(
    rf"\A(?P<task>.*) \((?P<index>\d{{1,6}})/(?P<total>\d{{1,6}})\)(?:#\d+)? \({_ATTEMPT}\) switched from (?P<old>\w+)"
    r" to (?P<new>\w+)"
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
    for text, forms in _LINES:
        if text in record.text:
            if any(_is_read(story, record, form) for form in forms):
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
    match = _WELL.fullmatch(line, _TIME_LENGTH)
    if match is None or hit.block[hit.begin : hit.begin + 4] != line[:4]:
        return False
    try:
        at = datetime.fromisoformat(line[:_TIME_LENGTH].decode())
    except ValueError:
        return False
    number, kind, trigger_ms, job, ended, ended_job, size, took_ms = match.groups()
    if number is not None:
        _add_trigger(story, at, job.decode(), int(number), int(trigger_ms), is_savepoint=_is_savepoint(kind or b""))
    else:
        _add_completion(story, at, ended_job.decode(), int(ended), int(took_ms), int(size))
    story.coordinator_count += 1
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
    known = [(m, line) for line in lines if (m := _explained(line)) is not None]
    if known:
        message, line = min(known, key=lambda each: known_messages.messages().index(each[0]))
        if story.is_new((message.id, record.at, line)):
            story.tell(story.known, message.id, record.at, line.strip().removeprefix("Caused by: "))
            story.saw(record.at)


@lru_cache(maxsize=8_192)
def _explained(line: str) -> KnownMessage | None:
    return known_messages.first_of([line])


def _is_read(story: Story, record: Record, form: _Form) -> bool:
    match = form.pattern.search(record.text)
    if match is None or form.tell(story, record, match) is False:
        return False
    story.coordinator_count += form.is_of_coordinator
    return True


def _triggered(story: Story, record: Record, match: re.Match[str]) -> None:
    is_savepoint = _is_savepoint((match["type"] or "").encode())
    number, ms = int(match["number"]), int(match["ms"])
    _add_trigger(story, record.at, match["job"], number, ms, is_savepoint=is_savepoint)


def _add_trigger(story: Story, at: datetime, job: str, number: int, ms: int, *, is_savepoint: bool) -> None:
    checkpoint = story.job(job).checkpoint(number)
    checkpoint.triggered_at, checkpoint.trigger_ms, checkpoint.is_savepoint = at, ms, is_savepoint


def _completed(story: Story, record: Record, match: re.Match[str]) -> None:
    _add_completion(story, record.at, match["job"], int(match["number"]), int(match["ms"]), int(match["bytes"]))


def _add_completion(story: Story, at: datetime, job: str, number: int, took_ms: int, size: int) -> None:
    checkpoint = story.job(job).checkpoint(number)
    checkpoint.outcome, checkpoint.ended_at, checkpoint.duration_ms, checkpoint.bytes = "completed", at, took_ms, size


def _expired(story: Story, record: Record, match: re.Match[str]) -> None:
    checkpoint = story.job(match["job"]).checkpoint(int(match["number"]))
    checkpoint.outcome, checkpoint.ended_at = "expired", record.at
    checkpoint.reason = FailureReason.EXPIRED


def _declined(story: Story, record: Record, match: re.Match[str]) -> None:
    checkpoint = story.job(match["job"]).checkpoint(int(match["number"]))
    checkpoint.outcome, checkpoint.ended_at, checkpoint.declined_by = "declined", record.at, match["attempt"]
    checkpoint.text = keep_text(record.trace)


def _late(story: Story, record: Record, match: re.Match[str]) -> None:
    late = story.job(match["job"]).checkpoint(int(match["number"])).late
    if match["attempt"] not in late and len(late) < ATTEMPTS_KEPT // 1_000:
        late.append(match["attempt"])


def _failed(story: Story, record: Record, match: re.Match[str]) -> None:
    job = story.job(match["job"])
    first = record.trace.split("\n", 1)[0]
    if not match["number"].isdigit():
        story.tell(job.refused, _plain(first), record.at, first)
        return
    checkpoint = job.checkpoint(int(match["number"]))
    if checkpoint.outcome is None:
        checkpoint.outcome, checkpoint.ended_at = "failed", record.at
    if checkpoint.reason is None:
        checkpoint.reason = reason_of_message(first)
    checkpoint.text = checkpoint.text or keep_text(record.trace)


def _refused(story: Story, record: Record, match: re.Match[str]) -> None:
    reason = match["reason"].rstrip(".")
    story.tell(story.job(match["job"]).refused, _plain(reason), record.at, reason)


def _trigger_failed(story: Story, record: Record, match: re.Match[str]) -> None:
    checkpoint = story.job(match["job"]).checkpoint(int(match["number"]))
    checkpoint.outcome, checkpoint.ended_at = "failed", record.at
    checkpoint.text = keep_text(f"{match['reason']}\n{record.trace}")
    checkpoint.reason = FailureReason.TRIGGER_FAILURE


def _restored(story: Story, record: Record, match: re.Match[str]) -> None:
    restored = story.job(match["job"]).restored_from
    if len(restored) < RESTARTS_KEPT:
        restored.append((record.at, int(match["number"])))


def _job_switched(story: Story, record: Record, match: re.Match[str]) -> bool:
    begin = record.text.find("Job ")
    if not 0 <= begin < match.start():
        return False
    job = story.job(match["job"])
    job.name = record.text[begin + len("Job ") : match.start()]
    if len(job.states) < RESTARTS_KEPT:
        job.states.append((record.at, match["new"]))
    if match["new"] in _RESTARTING and match["old"] not in _RESTARTING and story.is_new((job.job_id, record.at)):
        job.restart_count += 1
        if len(job.restarts) >= RESTARTS_KEPT:
            del job.restarts[0]
        cause = story.take_recovering(record.at)
        if record.trace or cause is None:
            job.restarts.append(Failure(record.at, "", keep_text(record.trace)))
        else:
            # Since Flink has restarted regions, this line has no exception. That of the task has it.
            job.restarts.append(replace(cause, at=record.at))
    return True


def _recovers(story: Story, _record: Record, match: re.Match[str]) -> None:
    """Read which task's failure the scheduler recovers from. The line names the attempt, or the vertex and subtask."""
    known = story.newest_failures
    newest = next(reversed(known.values()), None)
    story.recovering = known.get(match["attempt"], newest if match["attempt"] not in story.attempts else None)


def _recovers_all(story: Story, record: Record, _found: re.Match[str]) -> None:
    """Read the failure of the whole job. Its exception follows the first of its two lines."""
    if record.trace:
        story.recovering = Failure(record.at, "", keep_text(record.trace))


def _task_switched(story: Story, record: Record, match: re.Match[str]) -> None:
    # Flink's logs count subtasks from 1, its REST from 0.
    task = f"{match['task'].strip()} subtask {int(match['index']) - 1} of {match['total']}"
    story.remember(match["attempt"], task)
    if match["new"] == "FAILED":
        _task_failed(story, match["attempt"], task, record)


def _task_failed(story: Story, attempt: str, task: str, record: Record) -> None:
    if not story.is_new(attempt):
        return
    story.fail(attempt, Failure(record.at, task, keep_text(record.trace)))


def _version(story: Story, record: Record, match: re.Match[str]) -> None:
    if match["version"] not in story.versions:
        story.versions.append(match["version"])


def _setting(story: Story, record: Record, match: re.Match[str]) -> None:
    story.settings[match["key"]] = match["value"].strip()[:_REASONS_CUT]


def _async_failed(_story: Story, record: Record, _found: re.Match[str]) -> bool:
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


class _Form(NamedTuple):
    """A form that a line with a text may have. ``tell`` returns False if the line has another form after all."""

    pattern: re.Pattern[str]
    tell: Callable[[Story, Record, re.Match[str]], bool | None]
    is_of_coordinator: bool = True
    """Flink's coordinator wrote the line."""


# A line is read by the first row whose text it has, in the first form that it has.
_LINES: Final[tuple[tuple[str, tuple[_Form, ...]], ...]] = (
    ("Triggering checkpoint ", (_Form(_TRIGGERED, _triggered),)),
    ("Completed checkpoint ", (_Form(_COMPLETED, _completed),)),
    (" expired before completing.", (_Form(_EXPIRED, _expired),)),
    ("Decline checkpoint ", (_Form(_DECLINED, _declined),)),
    ("Received late message for now expired", (_Form(_LATE, _late),)),
    ("Failed to trigger ", (_Form(_FAILED, _failed), _Form(_REFUSED, _refused))),
    ("Triggering Checkpoint ", (_Form(_TRIGGER_FAILED, _trigger_failed),)),
    ("Restoring job ", (_Form(_RESTORED, _restored, False),)),
    (" switched from ", (_Form(_JOB_STATE, _job_switched, False), _Form(_TASK_STATE, _task_switched, False))),
    (" recover the failed task ", (_Form(_RECOVERS, _recovers, False),)),
    (" recover from a global failure", (_Form(re.compile(""), _recovers_all, False),)),
    ("(Version: ", (_Form(_VERSION, _version, False),)),
    ("Loading configuration property: execution.checkpointing.", (_Form(_SETTING, _setting, False),)),
    ("asynchronous part of checkpoint ", (_Form(re.compile(""), _async_failed, False),)),
)
