"""Every number that a rule of the diagnosis compares with.

``docs/diagnosis.md`` lists them with the same values; a test keeps the two in step. They come from recordings of
Flink 1.20 under known load, with noise of tens to hundreds of milliseconds: effects under half a second prove nothing.
"""

from __future__ import annotations

from typing import Final

CHECKPOINTS_MAX: Final = 10
"""The newest terminal checkpoints that are judged: as many as Flink's history holds by default."""

HEALTH_MIN_COUNT: Final = 3
"""Fewer terminal checkpoints than this are too few to speak of health."""

FAILED_MIN_RATIO: Final = 0.2
"""Failing from one in five on: below, a single hiccup of ten; the engine's tolerance is used up by runs, not by one."""

FAILED_IN_A_ROW_COUNT: Final = 2
"""Failing when the newest ones failed one after the other, however many completed before."""

SLOW_IN_A_ROW_COUNT: Final = 3
"""Slow when the newest ones were, one after the other, though the median of ten does not show it yet."""

SLOW_MIN_MS: Final = 1_000
"""A duration below this is never slow: it is within the noise of a loaded machine."""

SLOW_INTERVAL_RATIO: Final = 0.5
"""Slow from half the interval on: past it a doubling makes checkpoints run back to back."""

SLOW_TIMEOUT_RATIO: Final = 1 / 3
"""Slow from a third of the timeout on: a timeout should be three times the duration (R-TO-1 of the advisor's rules)."""

SLOW_TRAVEL_MS: Final = 10_000
"""Slow when the barrier alone travels this long, whatever interval and timeout: records wait as long in the queues."""

EXPIRY_SLACK_MS: Final = 2_000
"""A checkpoint open for longer than its timeout and this has ended unseen, or the two clocks differ."""

BUSY_MIN_RATIO: Final = 0.8
"""A subtask is full from here on; real ones at their limit showed 0.95 to 1.0, averaged windows show a little less."""

BACKPRESSURED_OK_RATIO: Final = 0.1
"""Up to here a subtask counts as not back-pressured: the engine's own border between OK and LOW."""

BACKPRESSURED_MIN_RATIO: Final = 0.2
"""What feeds a suspect must be held back at least this share of the time."""

BACKPRESSURED_HIGH_RATIO: Final = 0.5
"""Held back for certain: the engine's own border between LOW and HIGH."""

SIBLINGS_BUSY_RATIO: Final = 0.6
"""With siblings this busy the whole vertex is near its limit; a culprit's siblings idle or wait."""

PRESSURE_WINDOW_S: Final = 120
"""Readings older than this before the newest one say nothing about now."""

RATE_WINDOW_S: Final = 30
"""Records are counted over at least this long, half the window busy times are averaged over, else since the start: over
a few seconds, siblings whose channels are blocked by an alignment seem to get nothing."""

CHECKPOINT_WINDOW_S: Final = 60
"""Readings this far before a checkpoint's trigger or after its end still belong to it."""

PHASE_MIN_RATIO: Final = 0.5
"""A phase rules a checkpoint when it takes half of it."""

PHASE_MIN_MS: Final = 500
"""Sync, async or a late source below this prove nothing: within the noise."""

STANDOUT_RATIO: Final = 0.5
"""Subtasks with at least this share of the largest value are named beside the one that has it."""

GRADED_RATIO: Final = 0.25
"""Siblings whose snapshot part is this much of the longest are slow too: a store serves its writers in turn."""

HOP_MIN_MS: Final = 500
"""A hop of the barrier shorter than this met no queue worth the name."""

ROUNDING_MS: Final = 4
"""Four phases, each cut to whole milliseconds, may miss the acknowledgement by this much."""

CONFIDENT_COUNT: Final = 5
"""From as many checkpoints on a verdict may be certain (AD-3 of the advisor's rules); below it is not."""

PERSISTED_MIN_BYTES: Final = 16_384
"""In-flight data of this much a subtask, half of a default buffer, is a queue: something below is held back."""

PROGRESS_SLOW_RATIO: Final = 1.5
"""An open checkpoint is slow past this multiple of the longest time that past ones took to come as far."""

PROGRESS_STUCK_RATIO: Final = 3.0
"""It is stuck when no acknowledgement came for this multiple of the longest pause in past ones."""

PROGRESS_MIN_MS: Final = 1_000
"""Nothing is called slow or stuck within this time."""

PROGRESS_TIMEOUT_RATIO: Final = 0.5
"""Without past checkpoints: slow past this share of the timeout, stuck after so long without an acknowledgement."""
