"""Tells from the acknowledgements of one checkpoint whether the coordinator counted all of them late.

A subtask sends its acknowledgement when its async part has ended. If subtasks of all vertices wait from there to the
arrival, no subtask and no host is the cause: the coordinator stood still, or had no time for its messages.
"""

from __future__ import annotations

import numpy as np

from backend.analysis.measures.critical_path import Phases
from backend.analysis.measures.phases import longest_ms
from backend.analysis.numbers.arrays import Floats, highest_of
from backend.analysis.words.thresholds import ACK_WAIT_MIN_RATIO, PHASE_MIN_MS, STANDOUT_RATIO
from backend.domain.verdict import Phase


def wait_of_all_ms(phases: Phases, least_ms: float) -> float | None:
    """Return the longest wait of an acknowledgement, if it is ``least_ms`` and subtasks of all vertices wait.

    The wait is the time from the end of a subtask's async part to the arrival of its acknowledgement.
    """
    if longest_ms(phases, Phase.ACK_WAIT) < least_ms:
        return None
    by_vertex: list[Floats] = []
    for one in phases.values():
        waits = np.where(one.has_clock_skew, np.nan, one.ack_ms - one.async_end_ms)
        if np.isnan(waits).all():
            continue
        by_vertex.append(waits[~np.isnan(waits)])
    if not by_vertex:
        return None
    waits = np.concatenate(by_vertex)
    longest = highest_of(waits) or 0.0
    if longest < least_ms:
        return None
    # The coordinator handles the messages one after the other, so the first ones may wait little.
    is_waiting = waits >= min(PHASE_MIN_MS, STANDOUT_RATIO * longest)
    is_everywhere = all(highest_of(row) is not None and row.max() >= PHASE_MIN_MS for row in by_vertex)
    return longest if is_everywhere and is_waiting.mean() >= ACK_WAIT_MIN_RATIO else None
