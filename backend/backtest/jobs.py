"""The backtest of one job: the early warning replayed over its stored checkpoints, with the newest warnings; pure.

Without Spark and with it, this function makes the result of a job from the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from backend.analysis.finish import past_of
from backend.backtest.early_warning import AgeBand, EndedCheckpoint, Score, Tally, Watched, tally_of, watched
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.clock import from_epoch_ms
from backend.domain.failure import FailureReason

WARNINGS_KEPT: Final = 200


@dataclass(frozen=True, slots=True)
class StoredRow:
    """An ended checkpoint as it is stored. ``acks`` has, for each vertex, its subtasks and when they acknowledged.

    The times are in the stored form of arrays: None, one value for all subtasks, or one for each.
    ``settings`` identifies the settings in force.
    """

    run_id: str
    checkpoint_id: int
    triggered_ms: float
    status: str
    failure_reason: str | None
    duration_ms: int | None
    subtask_count: int
    acknowledged_count: int
    timeout_ms: int | None
    settings: str
    acks: Sequence[tuple[int, Sequence[int | None] | None]]


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning that would have been given: when, at which age, how probable, and what came of it."""

    checkpoint_id: int
    run_id: str
    at: str
    age_ms: float
    timeout_ms: float
    expiry_ratio: float | None
    is_expired: bool
    ended_after_ms: float


@dataclass(slots=True)
class JobResult:
    """How the warnings of one job would have fared. ``warnings`` has the newest ``WARNINGS_KEPT``, oldest first.

    ``skipped_count`` ended checkpoints were left out, because their acknowledgements or their length are not stored.
    """

    job_id: str
    tally: Tally = field(default_factory=Tally)
    warnings: list[Warned] = field(default_factory=list)
    skipped_count: int = 0

    def document(self) -> dict[str, Any]:
        """Return the result as a document of JSON."""
        return asdict(self)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobResult:
        """Return the result from its document."""
        tally = dict(document["tally"])
        for name in ("predicted", "plain"):
            tally[name] = Score(**tally[name])
        tally["bands"] = [AgeBand(**band) for band in tally["bands"]]
        warnings = [Warned(**warning) for warning in document["warnings"]]
        return cls(document["job_id"], Tally(**tally), warnings, document["skipped_count"])


def result_of(job_id: str, rows: Iterable[StoredRow]) -> JobResult:
    """Replay one job. ``rows`` are its ended checkpoints in the order of their triggers; they are read once."""
    result = JobResult(job_id)
    newest: deque[Warned] = deque(maxlen=WARNINGS_KEPT)
    result.tally = tally_of(_noted(watched(_ended(rows, result)), newest))
    result.warnings = list(newest)
    return result


def _ended(rows: Iterable[StoredRow], result: JobResult) -> Iterator[EndedCheckpoint]:
    numbers: dict[str, int] = {}
    for row in rows:
        header = CheckpointHeader(
            checkpoint_id=row.checkpoint_id,
            kind=CheckpointKind.CHECKPOINT,
            status=CheckpointStatus(row.status),
            triggered_at=from_epoch_ms(round(row.triggered_ms)),
            end_to_end_duration_ms=row.duration_ms,
            subtask_count=row.subtask_count,
            acknowledged_count=row.acknowledged_count,
        )
        acks = [v for count, stored in row.acks for v in _expanded(stored, count)]
        past = past_of(header, acks, {})
        if past is None:
            result.skipped_count += 1
            continue
        number = numbers.setdefault(f"{row.run_id}/{row.settings}", len(numbers))
        yield EndedCheckpoint(
            row.checkpoint_id,
            row.triggered_ms,
            row.timeout_ms,
            past,
            row.failure_reason == FailureReason.EXPIRED.value,
            number,
            row.run_id,
        )


def _expanded(stored: Sequence[int | None] | None, count: int) -> Sequence[int | None]:
    if stored is None:
        return (None,) * count
    return tuple(stored) * count if len(stored) == 1 else stored


def _noted(rows: Iterable[Watched], newest: deque[Warned]) -> Iterator[Watched]:
    for row in rows:
        if row.warned_ms is not None:
            own = row.checkpoint
            look = next(look for look in row.looks if look.age_ms == row.warned_ms)
            at = from_epoch_ms(round(own.triggered_ms + row.warned_ms)).isoformat()
            newest.append(
                Warned(
                    own.number,
                    own.run_id,
                    at,
                    row.warned_ms,
                    float(own.timeout_ms or 0),
                    look.expiry_ratio,
                    own.is_expired,
                    own.past.end_ms,
                )
            )
        yield row
