"""Checks whether a job gets a checkpoint done between two failures (R-REC-1).

After a failure the job restarts, reads its in-flight data, and reads again what came since the last checkpoint. If it
fails once more before the next checkpoint completes, it begins at the same checkpoint again, and more input waits.
"""

from __future__ import annotations

from backend.advisor.advice import Interval, Precondition
from backend.advisor.losses import mean_time_between_failures_ms
from backend.advisor.sentences import ms_span
from backend.advisor.situation import Situation
from backend.advisor.twin.outages import RESTART_MS
from backend.analysis import sentences as say

_NOTHING = Interval(0.0, 0.0, 0.0)


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
    known: Situation, duration: Interval, restore: Interval | None, interval_ms: float | None
) -> tuple[Precondition, ...]:
    """Return the condition on the time between failures; nothing if that time is not known.

    ``interval_ms`` is the proposed interval; None if it stays as it is.
    """
    config = known.evidence.config
    every_ms = interval_ms or (config.interval_ms if config is not None else None)
    between = mean_time_between_failures_ms(known)
    if between is None or not every_ms:
        return ()
    needed = until_next_checkpoint_ms(duration, restore, every_ms)
    text = (
        f"the job runs for more than {ms_span(needed)} between two failures: a restart, the input to read again and a"
        " whole checkpoint (R-REC-1)"
    )
    if between.value > needed.value:
        return (Precondition(text, True),)
    cure = "limit the in-flight data, add capacity or cure the failures"
    return (Precondition(f"{text}; now it fails every {say.duration(between.value)}: {cure}", False),)


def room_ms(known: Situation) -> float | None:
    """Return the time that reading in-flight data may take if a checkpoint is to complete before the next failure.

    None if the time between failures is not known, or if a checkpoint does not complete even without in-flight data.
    """
    config, between = known.evidence.config, mean_time_between_failures_ms(known)
    took = known.duration_ms
    if config is None or not config.interval_ms or between is None or took is None:
        return None
    needed = until_next_checkpoint_ms(Interval(took, took, took), None, config.interval_ms)
    room = between.value - needed.value
    return room if room > 0 else None
