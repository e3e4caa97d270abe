"""Rules about snapshots: a subtask that fails its own, a sync or async part that is long, a store that is silent."""

from __future__ import annotations

from backend.analysis import failures, rows, snapshots
from backend.analysis import sentences as say
from backend.analysis.case import Case
from backend.analysis.pressure import backpressured_max
from backend.analysis.snapshots import LongPart, Unanswered
from backend.analysis.statistics import highest
from backend.analysis.thresholds import BACKPRESSURED_MIN_RATIO
from backend.analysis.verdict_draft import are, by_count, draft, parallelism
from backend.domain.checkpoint import Checkpoint
from backend.domain.verdict import Confidence, Evidence, Phase, Verdict, VerdictKind


def failing_subtask(case: Case, checkpoints: tuple[Checkpoint, ...]) -> Verdict | None:
    """The subtask pending in every failure that a task caused; ``checkpoints`` serve a case of one to compare with."""
    failed = [w for w in case.walked if w.is_failed]
    if not failed or all(w.is_expired for w in failed):
        return None
    judged = tuple(w.checkpoint for w in case.walked) if len(case.walked) > 1 else checkpoints
    found = failures.failing_subtask(judged, has_restarts=case.has_restarts)
    if found is None or found.failure_count * 2 < len(failed):
        return None
    if found.failure_count == 1 and (found.alone_count == 0 or case.suspect is not None):
        return None
    vertex = case.name(found.vertex_id)
    where = f"{vertex} subtask {found.subtask}"
    only = "the only one pending in" if found.alone_count == found.failure_count else "pending in"
    each = f"every one of {found.failure_count} failures" if found.failure_count > 1 else "the failure"
    said = f' ("{found.message}")' if found.message else ""
    sibling_count = parallelism(case, found.vertex_id) - 1
    rest = f"; its {say.siblings(sibling_count)} acknowledged" if sibling_count else ""
    # A declined checkpoint leaves no exception with the job.
    look = "" if case.evidence.exceptions else "; the cause is in the log of its task manager"
    hosts = case.evidence.hosts(found.vertex_id, (found.subtask,))
    at = f" on {say.listed(hosts)}" if hosts else ""
    return draft(
        case,
        VerdictKind.FAILING_SUBTASK,
        f"{where}{at} is {only} {each}{said}{rest}{look}",
        vertex_id=found.vertex_id,
        subtasks=(found.subtask,),
        phase=found.phase,
        evidence=[
            rows.number(f"failures in which {where} was pending", "pending", found.failure_count, "count"),
            rows.number("of these, it was the only subtask pending", "pending", found.alone_count, "count"),
            rows.note(f"failure reason: {found.reason.value}{said}"),
            *rows.fare(case),
            *rows.restarts(case),
        ],
        confidence=by_count(found.failure_count),
    )


def long_part(case: Case) -> Verdict | None:
    """A sync or async part that takes half of the checkpoints by itself."""
    if not case.is_suffering:
        return None
    held_back = [v for v, load in case.loads.items() if (highest(load.backpressured) or 0.0) >= BACKPRESSURED_MIN_RATIO]
    part = snapshots.long_part(case.evidence.topology, case.evidence.config, case.long_ones, held_back=held_back)
    if part is None:
        return None
    where = say.where(case.name(part.vertex_id), part.subtasks, parallelism(case, part.vertex_id))
    is_sync = part.phase is Phase.SYNC
    sizes = [] if part.size_bytes is None or is_sync else [part.size_bytes]
    return draft(
        case,
        VerdictKind.SYNC if is_sync else VerdictKind.STORE,
        _long_part_text(case, part),
        vertex_id=part.vertex_id,
        subtasks=part.subtasks,
        phase=part.phase,
        evidence=[
            rows.number(f"{where}: {part.phase.value} part", part.phase.value, part.part_ms, "ms"),
            *[rows.number(f"{where}: bytes written, each", "checkpointed_size", s, "bytes") for s in sizes],
            *[_likewise(case, p) for p in part.likewise],
            *rows.fare(case),
            *rows.travel(case, part.vertex_id),
            *rows.calm(case),
        ],
    )


def _long_part_text(case: Case, part: LongPart) -> str:
    where = say.where(case.name(part.vertex_id), part.subtasks, parallelism(case, part.vertex_id))
    is_sync = part.phase is Phase.SYNC
    many = f" in {part.checkpoint_count} of {part.considered_count} checkpoints" if part.considered_count > 1 else ""
    text = f"the {part.phase.value} part of {where} takes {say.duration(part.part_ms)}{many}"
    if part.size_bytes and not is_sync:
        text += f" for {say.size(part.size_bytes)}{' each' if len(part.subtasks) > 1 else ''}"
    if part.siblings_ms is not None:
        text += f", {say.duration(part.siblings_ms)} at the other subtasks"
    if is_sync:
        return f"{text}, and the task does nothing else meanwhile"
    if part.siblings_ms is not None:
        hosts = case.evidence.hosts(part.vertex_id, part.subtasks)
        return f"{text}: the way{f' from {say.listed(hosts)}' if hosts else ''} to the checkpoint store is slow"
    if part.total_bytes and part.part_ms:
        text += f", {say.size(part.total_bytes / part.part_ms * 1000)}/s in all"
    names = [case.name(p.vertex_id) for p in part.likewise]
    if names:
        text += f" ({say.listed(names)} {'wait' if len(names) > 1 else 'waits'} as long)"
    return f"{text}: the checkpoint store, or the way to it, is too slow for that"


def _likewise(case: Case, part: LongPart) -> Evidence:
    text = f"{case.name(part.vertex_id)}: {part.phase.value} part likewise"
    return rows.number(text, part.phase.value, part.part_ms, "ms")


def unanswered(case: Case) -> Verdict | None:
    """Expired, or open for too long, though nothing is back-pressured: a snapshot does not get through to the store."""
    most = backpressured_max(case.loads)
    if not case.waiting or (most is not None and most[1] >= BACKPRESSURED_MIN_RATIO):
        return None
    found = snapshots.unanswered(case.evidence.topology, case.waiting, has_readings=most is not None)
    if found is None:
        return None
    vertex = case.name(found.vertex_id)
    count = found.checkpoint_count
    others = found.others_ack_ms
    return draft(
        case,
        VerdictKind.STORE,
        _unanswered_text(case, found, is_read=most is not None),
        vertex_id=found.vertex_id,
        subtasks=found.subtasks,
        phase=Phase.ASYNC,
        evidence=[
            rows.number(f"checkpoints in which {vertex} alone had not acknowledged", "pending", count, "count"),
            rows.number("latest acknowledgement of the others, median", "latest_ack_timestamp", others, "ms"),
            *rows.late(case, found.vertex_id),
            *rows.fare(case),
            *rows.calm(case),
        ],
        confidence=Confidence.LOW if most is None or len(case.walked) < 2 else Confidence.MEDIUM,
        would_decide=("a checkpoint that completes, after a longer timeout: is its sync or its async part long?",),
    )


def _unanswered_text(case: Case, found: Unanswered, *, is_read: bool) -> str:
    where = say.where(case.name(found.vertex_id), found.subtasks, parallelism(case, found.vertex_id))
    barrier = "" if found.first_barrier_ms is None else f", though its barrier was there at {_at(found)}"
    calm = "nothing is back-pressured" if is_read else "what stands before it was not late"
    return (
        f"{where} {are(found.subtasks)} pending{barrier}, while the others acknowledged within "
        f"{say.duration(found.others_ack_ms)} and {calm}: the snapshot does not get through to the checkpoint store"
    )


def _at(found: Unanswered) -> str:
    return say.duration(found.first_barrier_ms or 0.0)
