"""Finds the subtask of a vertex that the barrier reaches last in nearly every checkpoint.

If all subtasks of a vertex are full, each of them is a cause. It is still one of them that each checkpoint waits for,
and a person looks at it first. It is named beside the others and not instead of them: *late is not guilty*.
"""

from __future__ import annotations

import numpy as np

from backend.analysis.measures.phases import VertexPhases
from backend.analysis.verdict.case import Case
from backend.analysis.words.thresholds import LAST_MIN_COUNT, LAST_MIN_RATIO
from backend.domain.ids import VertexId
from backend.domain.verdict import LastSubtask


def last_of(case: Case, vertex_id: VertexId) -> LastSubtask | None:
    """Return the subtask that is last again and again. Return None if it changes, or is not known often enough.

    Of one checkpoint alone, the critical path names the last subtask.
    """
    if case.is_of_one or not case.is_suffering:
        return None
    lasts = [last for phases in case.subtasks_of(vertex_id) if (last := _last_in(phases)) is not None]
    if len(lasts) < LAST_MIN_COUNT:
        return None
    subtask = max(set(lasts), key=lambda one: (lasts.count(one), -one))
    count = lasts.count(subtask)
    return LastSubtask(subtask, count, len(lasts)) if count >= LAST_MIN_RATIO * len(lasts) else None


def _last_in(phases: VertexPhases) -> int | None:
    """Return the subtask that got its last barrier after all others; None if that is not known.

    If exactly one subtask has no time, because it did not acknowledge, it is the last one.
    """
    there = np.flatnonzero(~phases.has_finished)
    if there.size < 2:
        return None
    times = phases.travel_ms[there]
    missing = np.flatnonzero(np.isnan(times))
    if missing.size == 1 and int(there[missing[0]]) in phases.pending:
        return int(there[missing[0]])
    if missing.size:
        return None
    order = np.argsort(times, kind="stable")
    is_alone = times[order[-1]] > times[order[-2]]
    return int(there[order[-1]]) if is_alone else None
