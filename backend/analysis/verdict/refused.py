"""Rules about jobs that take no checkpoints: checkpointing is off, or every checkpoint is refused.

The coordinator does not say why it refuses a checkpoint before it starts; only its log does. So the states of the tasks
decide: Flink takes no checkpoint while a task that must take part has not started, nor after a task has finished unless
checkpoints after that are on (from 1.14 on; the default from 1.15 on).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from backend.analysis.health import refusals
from backend.analysis.health.refusals import ENDED, STARTING, Refusal, tasks_in
from backend.analysis.measures import samples
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import draft
from backend.analysis.verdict.rule import JOB, NONE_BEGINS, Explains, Rule
from backend.analysis.words import sentences as say
from backend.domain import flink_options
from backend.domain.checkpoint import CheckpointHeader, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.observation import JobState
from backend.domain.verdict import Confidence, Evidence, Verdict, VerdictKind

_AFTER_FINISH = "execution.checkpointing.checkpoints-after-tasks-finish"
# From this version on, the engine reports whether it takes checkpoints after a task has finished, and does by default.
_REPORTED_FROM = (1, 15)
_OPTIONAL_FROM = (1, 14)
_TASKS_NAMED_MAX = 3
_Tasks = list[tuple[VertexId, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class _Off:
    """That checkpointing is off, and the newest completed checkpoint or savepoint from before."""

    newest: CheckpointHeader | None


def _find_off(case: Case) -> _Off | None:
    config = case.evidence.config
    if config is None or not config.is_off:
        return None
    done = [c.header for c in case.evidence.checkpoints if c.header.status is CheckpointStatus.COMPLETED]
    return _Off(max(done, key=refusals.ended_at, default=None))


def _tell_off(case: Case, off: _Off) -> Verdict:
    newest = off.newest
    if case.evidence.topology.is_batch:
        reason = "the job runs in batch mode, which starts again from the results of finished tasks"
    elif newest is None and not samples.none_completed(case.evidence):
        reason = "a failure loses all state since the last checkpoint, which is not known"
    elif newest is None:
        reason = "a failure loses all state of the job"
    else:
        reason = f"a failure loses all state since {_last(case, newest)}"
    return draft(
        case,
        VerdictKind.CHECKPOINTING_OFF,
        reason,
        evidence=[
            rows.note("the engine reports no checkpoint interval"),
            *([rows.note(f"{_last(case, newest)} is the newest that completed")] if newest is not None else []),
            *rows.restarts(case),
            *rows.calm(case),
        ],
        confidence=Confidence.HIGH,
    )


def _last(case: Case, header: CheckpointHeader) -> str:
    age_ms = (case.evidence.now - refusals.ended_at(header)).total_seconds() * 1000
    what = "checkpoint" if header.kind.value == "checkpoint" else "savepoint"
    return f"{what} {header.checkpoint_id}, {say.duration(max(0.0, age_ms))} ago"


SWITCHED_OFF = Rule("checkpointing is off", Explains.EVERYTHING, (JOB,), _find_off, _tell_off)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why checkpoints are refused, and the tasks to blame. The reason is in words, as the sentence says it.

    If ``confidence`` is None, it depends on whether the engine counted the refused checkpoints.
    """

    refusal: Refusal
    tasks: _Tasks
    reason: str
    confidence: Confidence | None = None
    would_decide: tuple[str, ...] = ()


def _find_refused(case: Case) -> _Refused | None:
    refusal = case.report.refusal
    if refusal is None:
        return None
    starting, ended = tasks_in(case.evidence, STARTING), tasks_in(case.evidence, ENDED)
    if starting:
        return _Refused(refusal, starting, f"{_named(case, starting)} {_verb(starting, 'is', 'are')} not running")
    if ended and (after_finish := _after_finish(case, refusal, ended)) is not None:
        return after_finish
    if refusal.declined_for is FailureReason.BLOCKING_OUTPUT:
        reason = "the job has a blocking exchange, and a task behind it starts only when the tasks before it have ended"
        return _Refused(refusal, [], reason)
    missing = ["the log of the JobManager at 'Failed to trigger', which names the reason"]
    if not case.evidence.placements:
        missing.append("the states of the subtasks")
    return _Refused(refusal, [], "why they are refused is not reported", Confidence.LOW, tuple(missing))


def _after_finish(case: Case, refusal: Refusal, ended: _Tasks) -> _Refused | None:
    """Return why checkpoints are refused because tasks have finished; None if they are taken after that.

    The engine reports the setting from 1.15 on. Before 1.14 there is none, and in 1.14 it is off by default.
    """
    config = case.evidence.config
    who = f"{_named(case, ended)} {_verb(ended, 'has', 'have')} finished"
    if config is not None and config.ends_with_first_task:
        reason = f"{who}, and the job takes no checkpoint after that: set {after_finish_key(case.evidence)} to true"
        return _Refused(refusal, ended, reason)
    version = _version(case.evidence)
    if refusal.declined_for is FailureReason.DECLINED_TASK_CLOSING:
        reason = (
            f"{who}: the state of a vertex that has finished in part may need all of its subtasks (union list state)"
        )
        return _Refused(refusal, ended, reason, Confidence.MEDIUM)
    if version is None or version >= _REPORTED_FROM:
        return None
    flink = f"{who}, and Flink {case.evidence.flink_version} takes no checkpoint after that"
    if version < _OPTIONAL_FROM:
        return _Refused(refusal, ended, f"{flink}: upgrade to 1.15 or later, or keep the tasks from finishing")
    reason = f"{flink} by default: set {after_finish_key(case.evidence)} to true"
    return _Refused(refusal, ended, reason, Confidence.MEDIUM)


def _tell_refused(case: Case, refused: _Refused) -> Verdict:
    refusal, tasks = refused.refusal, refused.tasks
    vertex_id, subtasks = tasks[0] if len(tasks) == 1 else (None, ())
    return draft(
        case,
        VerdictKind.REFUSED,
        refused.reason,
        vertex_id=vertex_id,
        subtasks=subtasks,
        evidence=[
            *_counted(refusal),
            *[rows.number(f"{case.name(v)}: {_states(case, v)}", "status", len(s), "count") for v, s in tasks],
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=refused.confidence or (Confidence.HIGH if refusal.is_counted else Confidence.MEDIUM),
        would_decide=refused.would_decide,
    )


REFUSED = Rule("refused", Explains.EVERYTHING, (NONE_BEGINS,), _find_refused, _tell_refused)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The tasks that have not started yet, in a job that has begun no checkpoint."""

    tasks: _Tasks


def _find_waiting(case: Case) -> _Waiting | None:
    """Return the tasks that have not started, if that is why no checkpoint has begun since the job did.

    It is no fault until they have had as long as a checkpoint may take (``REFUSED``).
    """
    evidence = case.evidence
    begun = [c for c in evidence.checkpoints if c.header.failure_reason is not FailureReason.NOT_ALL_TASKS_RUNNING]
    if evidence.state is not JobState.RUNNING or begun or evidence.exceptions:
        return None
    tasks = tasks_in(evidence, STARTING)
    return _Waiting(tasks) if tasks else None


def _tell_waiting(case: Case, waiting: _Waiting) -> Verdict:
    tasks, started = waiting.tasks, case.evidence.started_at
    since = None if started is None else (case.evidence.now - started).total_seconds() * 1000
    vertex_id, subtasks = tasks[0] if len(tasks) == 1 else (None, ())
    age = [] if since is None else [rows.reconstructed("time since the job began", "start-time", since, "ms")]
    verb, it, runs = ("is", "it", "runs") if _verb(tasks, "is", "are") == "is" else ("are", "they", "run")
    return draft(
        case,
        VerdictKind.NONE,
        f"{_named(case, tasks)} {verb} still starting, and no checkpoint begins before {it} {runs}",
        vertex_id=vertex_id,
        subtasks=subtasks,
        evidence=[
            *age,
            *[rows.number(f"{case.name(v)}: {_states(case, v)}", "status", len(s), "count") for v, s in tasks],
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM,
        would_decide=(
            "a thread dump of the task: does it restore its state, or wait in the open method for something outside?",
        ),
    )


STARTING_TASKS = Rule("tasks still start", Explains.EVERYTHING, (JOB,), _find_waiting, _tell_waiting)


def _counted(refusal: Refusal) -> list[Evidence]:
    found = [
        rows.reconstructed(
            "time since a checkpoint last began, or was not declined at once",
            "trigger_timestamp",
            refusal.silent_ms,
            "ms",
        )
    ]
    if refusal.declined_count:
        reason = refusal.declined_for.value if refusal.declined_for is not None else "no reason"
        text = f"checkpoints that a task declined in a row ({reason})"
        found.insert(0, rows.number(text, "failed", refusal.declined_count, "count"))
    if refusal.refused_count:
        text = "failures in this time that the engine counted without a checkpoint"
        row = rows.reconstructed if refusal.is_about else rows.number
        found.insert(0, row(text, "failed", refusal.refused_count, "count"))
    return found


def _named(case: Case, tasks: _Tasks) -> str:
    names = [say.where(case.name(v), s, case.subtask_count(v)) for v, s in tasks[:_TASKS_NAMED_MAX]]
    more = len(tasks) - _TASKS_NAMED_MAX
    return say.listed([*names, f"{more} more"] if more > 0 else names)


def _states(case: Case, vertex_id: VertexId) -> str:
    placement = next(p for p in case.evidence.placements if p.vertex_id == vertex_id)
    words = sorted({s for s in placement.statuses if s is not None and s in STARTING | ENDED})
    return f"subtasks that are {' or '.join(words)}"


def _verb(tasks: _Tasks, one: str, many: str) -> str:
    return one if len(tasks) == 1 and len(tasks[0][1]) == 1 else many


def after_finish_key(evidence: JobEvidence) -> str:
    """Return the key of the setting that allows checkpoints after a task has finished, as this version names it."""
    version = _version(evidence)
    release = flink_options.releases()[-1] if version is None else flink_options.nearest(version)
    option = flink_options.option(_AFTER_FINISH, release)
    return _AFTER_FINISH if option is None else option.key


def _version(evidence: JobEvidence) -> tuple[int, int] | None:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", evidence.flink_version or "")
    return (int(match[1]), int(match[2])) if match else None
