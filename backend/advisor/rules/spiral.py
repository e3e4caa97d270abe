"""Checks whether a job gets a checkpoint done between two failures (R-REC-1).

After a failure the job restarts, reads its in-flight data, and reads again what came since the last checkpoint. If it
fails once more before the next checkpoint completes, it begins at the same checkpoint again, and more input waits.

A job that still gets its checkpoints done may be on the way there: if each restart reads more in-flight data than the
one before, each takes longer, and more input waits after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from backend.advisor.advice import Interval, Precondition
from backend.advisor.losses import mean_time_between_failures_ms
from backend.advisor.sentences import ms_span
from backend.advisor.situation import Situation
from backend.advisor.thresholds import GROWTH_MIN_FACTOR, RESTORES_MIN_COUNT
from backend.advisor.twin.model.outages import RESTART_MS
from backend.analysis.words import sentences as say
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus

_NOTHING = Interval(0.0, 0.0, 0.0)
_CURE = "add capacity or cure the failures"


@dataclass(frozen=True, slots=True)
class Growth:
    """In-flight data that grows from restore to restore.

    ``restored_bytes`` is the data of the checkpoints from which the job restarted, oldest first. ``checkpoint_ids`` are
    these checkpoints.
    """

    restored_bytes: tuple[float, ...]
    checkpoint_ids: tuple[int, ...]

    @property
    def share(self) -> float:
        """The share of the newest restored data that the job restored before it grew."""
        return self.restored_bytes[0] / self.restored_bytes[-1]

    @property
    def words(self) -> str:
        """What grew, such as ``from 1.0 MB to 8.0 MB over 4 restores``."""
        first, last = self.restored_bytes[0], self.restored_bytes[-1]
        return f"from {say.size(first)} to {say.size(last)} over {len(self.restored_bytes)} restores"


def growth(situation: Situation) -> Growth | None:
    """Return the in-flight data of the newest restores if each read clearly more than the one before; otherwise None.

    All checkpoints of the evidence count, not only the newest ones that are judged: several complete between two
    restarts. They have the present settings. A job that restarts twice from the same checkpoint has restored it once.
    """
    restored = _restored(situation)
    newest = restored[-1:]
    for (_, before), (_, after) in reversed(list(pairwise(restored))):
        if before <= 0 or after < GROWTH_MIN_FACTOR * before:
            break
        newest = restored[-len(newest) - 1 :]
    if len(newest) < RESTORES_MIN_COUNT:
        return None
    return Growth(tuple(size for _, size in newest), tuple(id_ for id_, _ in newest))


def _restored(situation: Situation) -> Sequence[tuple[int, float]]:
    """Return the ids and the in-flight data of the checkpoints from which the job restarted, oldest first.

    The list begins anew after a checkpoint whose in-flight data is not known.
    """
    ended = _completed(situation)
    restored: list[tuple[int, float]] = []
    for at in sorted({at for at, _ in situation.evidence.exceptions}):
        newest = next((header for header, end in reversed(ended) if end <= at), None)
        if newest is None or (restored and restored[-1][0] == newest.checkpoint_id):
            continue
        restored = [] if newest.persisted_bytes is None else [*restored, (newest.checkpoint_id, newest.persisted_bytes)]
    return restored


def _completed(situation: Situation) -> list[tuple[CheckpointHeader, datetime]]:
    """Return the checkpoints that completed, oldest first and without savepoints, and when each did."""
    headers = (c.header for c in situation.evidence.checkpoints)
    return [
        (header, header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms))
        for header in headers
        if header.kind is CheckpointKind.CHECKPOINT
        and header.status is CheckpointStatus.COMPLETED
        and header.end_to_end_duration_ms is not None
    ]


def until_next_checkpoint_ms(duration: Interval, restore: Interval | None, interval_ms: float) -> Interval:
    """Return the time from a failure until the next checkpoint completes, in milliseconds.

    ``duration`` is that of a checkpoint. ``restore`` is the time that its in-flight data adds. A failure comes at any
    time within an interval, and what it repeats is taken to need as long as the first time (CM-8).
    """
    read = restore or _NOTHING

    def total(which: str, share: float) -> float:
        took: float = getattr(duration, which)
        return float(getattr(RESTART_MS, which) + getattr(read, which)) + share * interval_ms + 2 * took

    return Interval(total("value", 0.5), total("low", 0.0), total("high", 1.0))


def conditions(
    situation: Situation, duration: Interval, restore: Interval | None, interval_ms: float | None
) -> tuple[Precondition, ...]:
    """Return the conditions on the time between failures, if it is known, and on in-flight data that grows.

    ``interval_ms`` is the proposed interval; None if it stays as it is.
    """
    grown = growth(situation)
    if grown is None:
        return _on_time(situation, duration, restore, interval_ms)
    text = (
        f"in-flight data does not grow from restore to restore; it grew {grown.words}: limit the in-flight"
        f" data, {_CURE}"
    )
    return (Precondition(text, False), *_on_time(situation, duration, restore, interval_ms))


def _on_time(
    situation: Situation, duration: Interval, restore: Interval | None, interval_ms: float | None
) -> tuple[Precondition, ...]:
    config = situation.evidence.config
    every_ms = interval_ms or (config.interval_ms if config is not None else None)
    between = mean_time_between_failures_ms(situation)
    if between is None or not every_ms:
        return ()
    needed = until_next_checkpoint_ms(duration, restore, every_ms)
    text = (
        f"the job runs for more than {ms_span(needed)} between two failures: a restart, the input to read again and a"
        " whole checkpoint"
    )
    if between.value > needed.value:
        return (Precondition(text, True),)
    is_hopeless = between.value <= until_next_checkpoint_ms(duration, None, every_ms).value
    cure = _CURE if is_hopeless else f"limit the in-flight data, {_CURE}"
    return (Precondition(f"{text}; now it fails every {say.duration(between.value)}: {cure}", False),)


def hopeless(situation: Situation) -> str | None:
    """Return that no limit on in-flight data helps, because the job fails too often even without such data.

    None if a limit may help, and if the time between failures is not known.
    """
    room, between = room_ms(situation), mean_time_between_failures_ms(situation)
    if room is None or between is None or room > 0:
        return None
    return (
        f"the job fails every {say.duration(between.value)}, too often for a checkpoint even without in-flight data"
        f": {_CURE}"
    )


def room_ms(situation: Situation) -> float | None:
    """Return the time that reading in-flight data may take if a checkpoint is to complete before the next failure.

    It is not positive if a checkpoint does not complete even without in-flight data. None if it is not known.
    """
    config, between = situation.evidence.config, mean_time_between_failures_ms(situation)
    took = situation.duration_ms
    if config is None or not config.interval_ms or between is None or took is None:
        return None
    needed = until_next_checkpoint_ms(Interval(took, took, took), None, config.interval_ms)
    return between.value - needed.value
