"""The rules of the verdict in their order. Another family of causes is a module, and a line here for each of its rules.

``verdict`` says how the rules compete: by what they explain, and in this order among those that explain the same.
"""

from __future__ import annotations

from typing import Any

from backend.analysis.verdict import (
    after_completion,
    barrier,
    burst_queue,
    coordinator,
    forwarded,
    lost_rows,
    no_cause,
    oversized,
    piece_of_work,
    refused,
    restarts,
    snapshot,
    standing_still,
    stuck_sync,
    unsent_barrier,
)
from backend.analysis.verdict.rule import Explains, Rule

RULES: tuple[Rule[Any], ...] = (
    # The whole: no other rule is asked.
    refused.SWITCHED_OFF,
    restarts.REPLAYING_AND_REFUSED,
    refused.REFUSED,
    refused.STARTING_TASKS,
    snapshot.FAILING_SUBTASK,
    snapshot.REFUSING_STORE,
    coordinator.FAILING_COORDINATOR,
    restarts.RESTART_LOOP,
    lost_rows.LOSING,
    restarts.REPLAYING,
    # A part of the checkpoints: the cause that takes most of the time is the verdict.
    snapshot.LONG_SYNC,
    snapshot.LONG_ASYNC,
    coordinator.LATE_ACKNOWLEDGEMENTS,
    coordinator.LATE_TRIGGER,
    barrier.STILL_HOST,
    barrier.LATE_SOURCE,
    unsent_barrier.SILENT_SOURCE,
    stuck_sync.STUCK_SYNC,
    forwarded.FORWARDED,
    unsent_barrier.BEFORE_FORWARDING,
    standing_still.STANDING_STILL,
    standing_still.COMMITTING,
    after_completion.AFTER_COMPLETIONS,
    piece_of_work.LONG_PIECE,
    piece_of_work.LASTING_PIECES,
    barrier.SLOW_HOST,
    barrier.FULL_SUBTASKS,
    burst_queue.QUEUE,
    # The rest: asked only if no part has a cause that is large enough. The last rule always applies.
    unsent_barrier.STOPPED,
    oversized.OVERSIZED,
    stuck_sync.UNANSWERED,
    barrier.LONG_HOP,
    lost_rows.LOSING_WITHOUT_CAUSE,
    no_cause.PERSISTED_QUEUES,
    no_cause.NOTHING,
    no_cause.UNDECIDED,
)

FULL_RULES: tuple[Rule[Any], ...] = (barrier.SLOW_HOST, barrier.FULL_SUBTASKS)
"""The rules about full subtasks. They are asked again for what would be left without a long sync part."""

_BY_PART = {kind: tuple(rule for rule in RULES if rule.explains is kind) for kind in Explains}


def rules_of(kind: Explains) -> tuple[Rule[Any], ...]:
    """Return the rules that explain this, in their order."""
    return _BY_PART[kind]
