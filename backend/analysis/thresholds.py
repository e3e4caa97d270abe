"""The numbers that the rules of the diagnosis compare with.

``docs/diagnosis.md`` lists the same values, and a test compares the two. They come from recordings of Flink 1.20 under
known load, with noise of tens to hundreds of milliseconds: effects under half a second prove nothing.
"""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MAX: Final = 10
"""The newest terminal checkpoints that are judged: the default length of Flink's history."""

HEALTH_MIN_COUNT: Final = 3
"""Fewer terminal checkpoints than this are too few to judge health."""

FAILED_MIN_RATIO: Final = 0.2
"""A job is failing from one failure in five on; one in ten is a single incident."""

FAILED_IN_A_ROW_COUNT: Final = 2
"""A job is failing if this many of the newest checkpoints failed in a row."""

SLOW_IN_A_ROW_COUNT: Final = 3
"""A job is slow if this many of the newest checkpoints were slow in a row, before the median of ten shows it."""

SLOW_MIN_MS: Final = 1_000
"""A shorter duration is never slow: it is within the noise of a loaded machine."""

SLOW_INTERVAL_RATIO: Final = 0.5
"""Slow from half of the interval on: twice as long, and checkpoints run back to back."""

SLOW_TIMEOUT_RATIO: Final = 1 / 3
"""Slow from a third of the timeout on: a timeout should be three times the duration (R-TO-1)."""

SLOW_TRAVEL_MS: Final = 10_000
"""Slow if the barrier alone travels this long: records wait in the queues for as long."""

EXPIRY_SLACK_MS: Final = 2_000
"""If a checkpoint is open for longer than its timeout plus this, its end was not read or the clocks differ."""

BUSY_MIN_RATIO: Final = 0.8
"""A subtask is full from this busy ratio on; at their limit real ones showed 0.95 to 1.0, averages slightly less."""

BACKPRESSURED_OK_RATIO: Final = 0.1
"""Up to this ratio a subtask is not back-pressured: Flink's own border between OK and LOW."""

BACKPRESSURED_MIN_RATIO: Final = 0.2
"""The vertex above a suspect must be back-pressured for at least this share of the time."""

BACKPRESSURED_HIGH_RATIO: Final = 0.5
"""Certainly back-pressured: Flink's own border between LOW and HIGH."""

SIBLINGS_BUSY_RATIO: Final = 0.6
"""If siblings are this busy, the whole vertex is near its limit; the siblings of one slow subtask are idle or wait."""

PRESSURE_WINDOW_S: Final = 120
"""Readings that are older than the newest one by more than this are left out."""

RATE_WINDOW_S: Final = 30
"""Records are counted over at least this time, else since the start of the task. It is half of the window that busy
times are averaged over. Over a few seconds, siblings whose channels an alignment blocks seem to get no records."""

CHECKPOINT_WINDOW_S: Final = 60
"""Readings up to this long before a checkpoint's trigger or after its end belong to it."""

PHASE_MIN_RATIO: Final = 0.5
"""A phase is the cause if it takes at least this share of a checkpoint."""

PHASE_MIN_MS: Final = 500
"""A shorter sync part, async part or source delay is within the noise."""

STANDOUT_RATIO: Final = 0.5
"""Subtasks with at least this share of the largest value are named too."""

GRADED_RATIO: Final = 0.25
"""Siblings with this share of the longest snapshot part are slow too: a store serves its writers in turn."""

HOP_MIN_MS: Final = 500
"""A shorter hop of the barrier met no real queue."""

ROUNDING_MS: Final = 4
"""Four phases, each truncated to whole milliseconds, may differ from the acknowledgement by this much."""

CONFIDENT_COUNT: Final = 5
"""High confidence needs this many checkpoints (AD-3)."""

PERSISTED_MIN_BYTES: Final = 16_384
"""This much in-flight data for each subtask, half of a default buffer, is a queue: something is back-pressured."""

PROGRESS_SLOW_RATIO: Final = 1.5
"""An open checkpoint is slow past this multiple of the longest time of completed ones for the same progress."""

PROGRESS_STUCK_RATIO: Final = 3.0
"""It is stuck without an acknowledgement for this multiple of the longest pause of completed ones."""

PROGRESS_MIN_MS: Final = 1_000
"""No checkpoint is slow or stuck before this time."""

PROGRESS_TIMEOUT_RATIO: Final = 0.5
"""Without completed checkpoints: slow past this share of the timeout, stuck after such a pause."""
