"""Rules about restarts: a job that restarts again and again, and the replay of in-flight data after a restart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise

from backend.analysis.numbers.statistics import median
from backend.analysis.verdict import evidence_rows as rows
from backend.analysis.verdict import exceptions, pods
from backend.analysis.verdict.case import Case
from backend.analysis.verdict.draft import by_count, draft
from backend.analysis.verdict.rule import JOB, NONE_BEGINS, WELL, Explains, Rule
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import PERSISTED_MIN_BYTES
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.pod_ends import PodEndReason
from backend.domain.verdict import Confidence, Verdict, VerdictKind

_RECOVERING = "INITIALIZING"


def _find_restart_loop(case: Case) -> Sequence[datetime] | None:
    return case.report.restarts or None


def _tell_restart_loop(case: Case, times: Sequence[datetime]) -> Verdict:
    told = exceptions.told(case)
    recent = exceptions.recent(case)
    ended = pods.ended(case, recent)
    usual = median((b - a).total_seconds() * 1000 for a, b in pairwise(times)) or 0.0
    return draft(
        case,
        VerdictKind.RESTARTS,
        _why_it_restarts(case, told, ended),
        evidence=[
            rows.number("restarts of the job that follow each other closely", "exceptions", len(times), "count"),
            rows.reconstructed("time from one restart to the next, median", "exceptions", usual, "ms"),
            *pods.evidence(case, recent),
            *rows.restarts(case),
            *exceptions.explaining(case, told),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=by_count(len(times)),
        would_decide=(
            *(() if told is None else told.would_decide),
            *((pods.WOULD_DECIDE,) if ended is not None and ended.reason is PodEndReason.KILLED else ()),
        ),
    )


def _why_it_restarts(case: Case, told: exceptions.Told | None, ended: pods.Ended | None) -> str:
    """Return what the exceptions of the restarts tell, and whether the checkpoints have a part in it."""
    took = case.report.duration_median_ms
    well = "" if took is None else f" ({say.duration(took)})"
    if ended is not None and ended.is_most:
        return f"its checkpoints are well{well}, so they are not the cause: {ended.text}"
    newest = exceptions.first_line(max(case.evidence.exceptions)[1])
    if told is None:
        return f'its checkpoints complete{well}, and what its newest exception says decides: "{newest}"'
    if told.is_few:
        # Most exceptions may have another cause than the known message, so they come first.
        unknown = f"{len(told.unknown)} of its {told.count} exceptions have no known message, and what they say decides"
        return f'its checkpoints complete{well}, but {unknown}: "{exceptions.first_line(told.unknown[0])}"; {told.text}'
    if told.is_of_checkpoints:
        return f"its checkpoints complete{well}, but {told.text}"
    if told.unknown:
        others = f'it is not known what the others mean: "{exceptions.first_line(told.unknown[0])}"'
        return f"its checkpoints are well{well}, so they are not the cause of most restarts: {told.text}; {others}"
    return f"its checkpoints are well{well}, so they are not the cause: {told.text}"


RESTART_LOOP = Rule("restart loop", Explains.EVERYTHING, (WELL,), _find_restart_loop, _tell_restart_loop)


@dataclass(frozen=True, slots=True)
class _Replay:
    """The subtasks that still process the restored in-flight data of a checkpoint, by vertex."""

    number: int
    persisted_bytes: int
    restoring: tuple[tuple[VertexId, tuple[int, ...]], ...]


def _find_replay(case: Case) -> _Replay | None:
    """Return what subtasks still process of restored in-flight data, so that no checkpoint can begin."""
    if not case.evidence.exceptions and not case.evidence.restart_count:
        return None
    completed = [c for c in case.evidence.checkpoints if c.header.status is CheckpointStatus.COMPLETED]
    persisted = completed[-1].header.persisted_bytes if completed else None
    if persisted is None or persisted < PERSISTED_MIN_BYTES:
        return None
    busy = [
        (p.vertex_id, tuple(i for i, s in enumerate(p.statuses) if s == _RECOVERING)) for p in case.evidence.placements
    ]
    restoring = tuple((v, subtasks) for v, subtasks in busy if subtasks)
    return _Replay(completed[-1].header.checkpoint_id, persisted, restoring) if restoring else None


def _tell_replay(case: Case, replay: _Replay) -> Verdict:
    number = replay.number
    vertex_id, subtasks = max(replay.restoring, key=lambda w: len(w[1]))
    where = say.where(case.name(vertex_id), subtasks, case.subtask_count(vertex_id))
    still, done = ("processes", "it has finished") if len(subtasks) == 1 else ("process", "they have finished")
    return draft(
        case,
        VerdictKind.REPLAY,
        f"{where} still {still} in-flight data of checkpoint {number} after the restart: until {done}, no"
        " checkpoint can begin",
        vertex_id=vertex_id,
        subtasks=subtasks,
        evidence=[
            rows.number(
                f"in-flight data that checkpoint {number} persisted", "persisted", replay.persisted_bytes, "bytes"
            ),
            *[
                rows.number(f"{case.name(v)}: subtasks that are still restoring", "status", len(s), "count")
                for v, s in replay.restoring
            ],
            *rows.restarts(case),
            *rows.fare(case),
            *rows.settings(case),
        ],
        confidence=Confidence.MEDIUM,
    )


# A job whose checkpoints are all refused is asked first, because the refusal is then an effect of the replay.
REPLAYING_AND_REFUSED = Rule(
    "replay of in-flight data, all refused", Explains.EVERYTHING, (NONE_BEGINS,), _find_replay, _tell_replay
)
REPLAYING = Rule("replay of in-flight data", Explains.EVERYTHING, (JOB,), _find_replay, _tell_replay)
