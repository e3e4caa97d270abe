"""Rules about snapshots: a snapshot that fails, a long sync or async part, a snapshot that does not reach the store."""

from __future__ import annotations

from backend.analysis.health import failures
from backend.analysis.health.failures import FailingSubtask
from backend.analysis.measures import snapshots
from backend.analysis.measures.pressure import backpressured_max
from backend.analysis.measures.snapshots import LongPart, Unanswered
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict.case import Case, Walked
from backend.analysis.verdict.draft import by_count, draft, weaker
from backend.analysis.verdict.rule import FAILED, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_MIN_RATIO, NAMED_INTERVAL_RATIO, PHASE_MIN_RATIO
from backend.domain.failure import FailureReason
from backend.domain.verdict import Confidence, Evidence, Health, Phase, Verdict, VerdictKind

_HOSTS_MIN = 2
# Two failures at two subtasks may each have a cause of their own.
_REFUSED_MIN_COUNT = 3
# If another subtask is pending more often, it may have failed as well: on a full disk, small files may still have room.
_ALONE_RATIO = 0.8
_STORE_ERROR = (
    "the error in the log of a task manager: a full disk, directory or quota, a missing permission, expired"
    " credentials, or no connection"
)
_WHO_FAILED = (
    "the task that each failure names in the log: others were pending too in most of them, and a subtask that"
    " always writes last is pending at a failure of any other"
)


def _find_failing_subtask(case: Case) -> FailingSubtask | None:
    """Return the subtask that alone was pending in every failure that a task caused.

    A case of one checkpoint is compared with all checkpoints of the job.
    """
    failed = [w for w in case.walked if w.is_failed]
    if all(w.is_expired for w in failed):
        return None
    judged = tuple(w.checkpoint for w in case.walked) if len(case.walked) > 1 else case.evidence.checkpoints
    failing_subtask = failures.failing_subtask(judged, has_restarts=case.has_restarts)
    if (
        failing_subtask is None
        or failing_subtask.failure_count * 2 < len(failed)
        or failing_subtask.failure_count * 2 < _restart_count(case)
    ):
        return None
    if failing_subtask.failure_count == 1 and (failing_subtask.alone_count == 0 or case.suspect is not None):
        return None
    return failing_subtask


def _restart_count(case: Case) -> int:
    """Return how many restarts of a loop came since the first judged checkpoint began.

    A task that fails for another reason may do so while a checkpoint waits for it. Most restarts then break off none.
    """
    since = min((w.checkpoint.header.triggered_at for w in case.walked), default=case.evidence.now)
    return sum(at >= since for at in case.report.restarts)


def _tell_failing_subtask(case: Case, failing_subtask: FailingSubtask) -> Verdict:
    where = f"{case.name(failing_subtask.vertex_id)} subtask {failing_subtask.subtask}"
    hosts = case.evidence.hosts(failing_subtask.vertex_id, (failing_subtask.subtask,))
    at = f" on {say.hosts(hosts)}" if hosts else ""
    which = _which(case, failing_subtask, sum(w.is_failed for w in case.walked))
    said = f' ("{failing_subtask.message}")' if failing_subtask.message else ""
    is_alone = failing_subtask.alone_count >= _ALONE_RATIO * failing_subtask.failure_count
    return draft(
        case,
        VerdictKind.FAILING_SUBTASK,
        f"{where}{at} did not acknowledge {which}{said}",
        vertex_id=failing_subtask.vertex_id,
        subtasks=(failing_subtask.subtask,),
        phase=failing_subtask.phase,
        evidence=[
            rows.number(
                f"failures in which {where} had not acknowledged", "pending", failing_subtask.failure_count, "count"
            ),
            rows.number(
                "of these, all other subtasks had acknowledged", "pending", failing_subtask.alone_count, "count"
            ),
            *_where_the_cause_is(case),
            rows.note(f"failure reason: {failing_subtask.reason.value}{said}"),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=by_count(failing_subtask.failure_count)
        if is_alone
        else weaker(by_count(failing_subtask.failure_count), Confidence.MEDIUM),
        would_decide=(
            *(() if is_alone else (_WHO_FAILED,)),
            *((_STORE_ERROR,) if failing_subtask.reason is FailureReason.ASYNC_FAILURE else ()),
        ),
    )


FAILING_SUBTASK = Rule("failing subtask", Explains.EVERYTHING, (FAILED,), _find_failing_subtask, _tell_failing_subtask)


def _find_refusing_store(case: Case) -> list[Walked] | None:
    """Return the checkpoints whose asynchronous parts ended with an error, and not at one subtask only.

    If different subtasks fail at once, the error is in the store that all of them write to. A store that is only slow
    makes checkpoints expire.
    """
    failed = [w for w in case.walked if w.checkpoint.header.failure_reason is FailureReason.ASYNC_FAILURE]
    return failed if len(failed) >= _REFUSED_MIN_COUNT and 2 * len(failed) >= len(case.walked) else None


def _tell_refusing_store(case: Case, failed: list[Walked]) -> Verdict:
    durations = [ms for w in failed if (ms := w.checkpoint.header.end_to_end_duration_ms) is not None]
    pending = {d.vertex_id for w in failed for d in w.checkpoint.details if None in d.ack_delay_ms}
    only = next(iter(pending)) if len(pending) == 1 else None
    after = f" after at most {say.duration(max(durations))}" if durations else ""
    who = "their asynchronous parts" if only is None else f"the asynchronous parts of {case.name(only)}"
    return draft(
        case,
        VerdictKind.STORE,
        f"{who} end with an error{after}: the checkpoint store refuses what they write, or cannot be reached",
        vertex_id=only,
        phase=Phase.ASYNC,
        evidence=[
            rows.number("checkpoints whose asynchronous part failed", "failureReason", len(failed), "count"),
            *_where_the_cause_is(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM,
        would_decide=(_STORE_ERROR,),
    )


REFUSING_STORE = Rule("refusing store", Explains.EVERYTHING, (FAILED,), _find_refusing_store, _tell_refusing_store)


def _which(case: Case, failing_subtask: FailingSubtask, failed_count: int) -> str:
    """Return the failed checkpoints in words, to follow ``did not acknowledge``.

    The sentence begins with how many checkpoints failed, so a pronoun is enough.
    """
    if case.is_of_one or failed_count == 1:
        return "it"
    return "them" if failing_subtask.failure_count == failed_count else f"{failing_subtask.failure_count} of them"


def _where_the_cause_is(case: Case) -> list[Evidence]:
    # The engine records no exception for a declined checkpoint. A note then refers to the log.
    return rows.restarts(case) or [rows.note("the job has no exception: the log of its task manager shows the cause")]


def _find_long_sync(case: Case) -> LongPart | None:
    return _find_long_part(case, Phase.SYNC)


def _find_long_async(case: Case) -> LongPart | None:
    return _find_long_part(case, Phase.ASYNC)


def _find_long_part(case: Case, phase: Phase) -> LongPart | None:
    """Return the part of snapshots that by itself takes much of the checkpoints' time.

    If the checkpoints are healthy, a part is named too if it takes at least half of their time, and a tenth of the
    interval. It is no alarm: it tells what to change if they should be quicker.
    """
    if not case.is_suffering and not case.is_of_one and case.report.health is not Health.HEALTHY:
        return None
    held_back = [
        v for v, load in case.loads.items() if (highest_of(load.backpressured) or 0.0) >= BACKPRESSURED_MIN_RATIO
    ]
    part = snapshots.long_part(
        case.evidence.topology,
        case.evidence.config,
        case.long_ones,
        held_back=held_back,
        least_ms=case.least_ms if case.is_suffering else _half_of,
        is_calm=not case.is_suffering,
        phase=phase,
    )
    return part if part is not None and (case.is_suffering or _takes_much_of_interval(case, part)) else None


def _tell_long_part(case: Case, part: LongPart) -> Verdict:
    host = _host_of_all(case, part)
    kind = VerdictKind.SYNC if part.phase is Phase.SYNC else VerdictKind.STORE
    return draft(
        case,
        kind if host is None else VerdictKind.SLOW_HOST,
        _long_part_text(case, part) if host is None else _slow_host_text(case, part, host),
        explained_ms=part.part_ms,
        vertex_id=part.vertex_id,
        subtasks=part.subtasks,
        phase=part.phase,
        evidence=[
            *_long_part_rows(case, part),
            *_late_rows(part),
            *([] if case.is_suffering else [rows.note("the interval and the timeout leave enough time for it")]),
            *rows.fare(case),
            *rows.travel(case, part.vertex_id),
            *rows.calm(case),
            *rows.settings(case),
        ],
    )


LONG_SYNC = Rule("long sync part", Explains.SYNC_PARTS, (), _find_long_sync, _tell_long_part)
LONG_ASYNC = Rule("long async part", Explains.ASYNC_PARTS, (), _find_long_async, _tell_long_part)


def _half_of(duration_ms: float) -> float:
    return PHASE_MIN_RATIO * duration_ms


def _takes_much_of_interval(case: Case, part: LongPart) -> bool:
    config = case.evidence.config
    interval_ms = None if config is None else config.interval_ms
    return interval_ms is not None and part.part_ms >= NAMED_INTERVAL_RATIO * interval_ms


def _host_of_all(case: Case, part: LongPart) -> str | None:
    """Return the host if the part is long at the subtasks of one host only, and so in another vertex too."""
    hosts = case.evidence.hosts(part.vertex_id, part.subtasks)
    others = case.evidence.hosts(part.vertex_id, tuple(range(case.subtask_count(part.vertex_id))))
    if len(hosts) != 1 or len(others) < _HOSTS_MIN or not part.likewise:
        return None
    alike = [case.evidence.hosts(p.vertex_id, p.subtasks) == hosts for p in part.likewise]
    return hosts[0] if all(alike) else None


def _slow_host_text(case: Case, part: LongPart, host: str) -> str:
    vertices = say.listed([case.name(v) for v in (part.vertex_id, *(p.vertex_id for p in part.likewise))])
    took = say.duration(part.part_ms)
    return (
        f"host {host} is slow: the {part.phase.value} parts of {vertices} take up to {took} there, and less elsewhere"
    )


def _long_part_text(case: Case, part: LongPart) -> str:
    where = say.where(case.name(part.vertex_id), part.subtasks, case.subtask_count(part.vertex_id))
    text = f"the {part.phase.value} part of {where} takes {say.duration(part.part_ms)}"
    if part.phase is Phase.SYNC:
        return f"{text}: the task processes no records meanwhile"
    if part.siblings_ms is None and not case.is_suffering:
        size = f" {say.size(part.total_bytes)}" if part.total_bytes else ""
        return f"{text}: it writes{size} to the checkpoint store"
    if part.siblings_ms is None:
        return f"{text}: the checkpoint store, or the way to it, is too slow"
    hosts = case.evidence.hosts(part.vertex_id, part.subtasks)
    return f"{text}: the way{f' from {say.hosts(hosts)}' if hosts else ''} to the checkpoint store is slow"


def _late_rows(part: LongPart) -> list[Evidence]:
    """Return a row if most checkpoints do not show the part, because their acknowledgements never came."""
    if part.checkpoint_count >= part.considered_count * PHASE_MIN_RATIO:
        return []
    return [rows.note("acknowledgements that came after the timeout show it; from the other checkpoints, none came")]


def _long_part_rows(case: Case, part: LongPart) -> list[Evidence]:
    vertex, phase = case.name(part.vertex_id), part.phase.value
    where = say.where(vertex, part.subtasks, case.subtask_count(part.vertex_id))
    many = f", in {part.checkpoint_count} of {part.considered_count} checkpoints" if part.considered_count > 1 else ""
    found = [rows.number(f"{where}: {phase} part{many}", phase, part.part_ms, "ms")]
    if part.siblings_ms is not None:
        found.append(rows.number(f"{vertex}: {phase} part of the other subtasks", phase, part.siblings_ms, "ms"))
    if part.size_bytes is not None and part.phase is Phase.ASYNC:
        each = ", each" if len(part.subtasks) > 1 else ""
        found.append(rows.number(f"{where}: bytes written{each}", "checkpointed_size", part.size_bytes, "bytes"))
        if part.siblings_ms is None and part.total_bytes and part.part_ms:
            text = f"{vertex}: bytes written in a second, by all subtasks together"
            rate = part.total_bytes / part.part_ms * 1000
            found.append(rows.reconstructed(text, "checkpointed_size / async", rate, "bytes"))
    for other in part.likewise:
        text = f"{case.name(other.vertex_id)}: {phase} part, which is long too"
        found.append(rows.number(text, phase, other.part_ms, "ms"))
    return found


def unanswered(case: Case) -> Unanswered | None:
    """Return the subtasks whose snapshots do not reach the store, although nothing is back-pressured."""
    most = backpressured_max(case.loads)
    if most is not None and most[1] >= BACKPRESSURED_MIN_RATIO:
        return None
    return snapshots.unanswered(case.evidence.topology, case.waiting, has_readings=most is not None)


def tell_unanswered(case: Case, missing: Unanswered) -> Verdict:
    """Return the verdict on a snapshot that does not reach the store."""
    return draft(
        case,
        VerdictKind.STORE,
        _unanswered_text(case, missing),
        explained_ms=case.typical_ms,
        vertex_id=missing.vertex_id,
        subtasks=missing.subtasks,
        phase=Phase.ASYNC,
        evidence=[
            *unanswered_rows(case, missing),
            *rows.settings(case),
        ],
        confidence=Confidence.LOW
        if backpressured_max(case.loads) is None or len(case.walked) < 2
        else Confidence.MEDIUM,
        would_decide=(
            "a checkpoint that completes, after a longer timeout: is its sync or its async part long?",
            "a message above the size limit in the logs: an acknowledgement that holds small state (the store's memory"
            " threshold) may be larger than a message may be (pekko.framesize, before Flink 1.18 akka.framesize)",
        ),
    )


def unanswered_rows(case: Case, found: Unanswered) -> list[Evidence]:
    """Return rows on subtasks that did not acknowledge although all others did early."""
    vertex, count, others = case.name(found.vertex_id), found.checkpoint_count, found.others_ack_ms
    unread = [rows.note("back-pressure could not be read, but the barrier was not late before it")]
    return [
        rows.number(f"checkpoints in which only {vertex} had not acknowledged", "pending", count, "count"),
        rows.number("latest acknowledgement of the others, median", "latest_ack_timestamp", others, "ms"),
        *_first_barrier(case, found),
        *(rows.calm(case) or unread),
        *rows.late(case, found.vertex_id),
        *rows.fare(case),
    ]


def _unanswered_text(case: Case, missing: Unanswered) -> str:
    vertex, total, count = case.name(missing.vertex_id), case.subtask_count(missing.vertex_id), len(missing.subtasks)
    if 1 < count == total:
        return f"no subtask of {vertex} acknowledged: {_lost(2)}"
    return f"{say.where(vertex, missing.subtasks, total)} did not acknowledge: {_lost(count)}"


def _lost(count: int) -> str:
    """Return in words what did not arrive: a snapshot or an acknowledgement, because Flink does not show which."""
    if count == 1:
        return "its snapshot does not reach the store, or its acknowledgement does not reach the JobManager"
    return "their snapshots do not reach the store, or their acknowledgements do not reach the JobManager"


def _first_barrier(case: Case, missing: Unanswered) -> list[Evidence]:
    if missing.first_barrier_ms is None:
        return []
    text = f"{case.name(missing.vertex_id)}: time until its first barrier, although it did not acknowledge"
    return [rows.number(text, "checkpointStartDelayNanos", missing.first_barrier_ms, "ms")]
