"""Computes the records that sources read in a second, from readings of pressure. Pure.

The engine's own rates are preferred. Without them, the counts of two readings show a rate, unless a count began anew
between them: what was counted before the restart is then missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from statistics import fmean

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.pressure import vertex_loads
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import highest
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO
from backend.domain.pressure import VertexPressure


def metered(readings: Sequence[VertexPressure]) -> list[float]:
    """Return the engine's rate of the whole vertex at each reading that has the rates of all subtasks."""
    rows = (r.records_out_per_s for r in readings if r.records_out_per_s and None not in r.records_out_per_s)
    return [sum(rate for rate in row if rate is not None) for row in rows]


def began_anew(readings: Sequence[VertexPressure]) -> bool:
    """Return whether the count of any subtask falls from one reading that has it to the next one that does."""
    for counts in zip_longest(*(r.records_out_count for r in readings)):
        known = [v for v in counts if v is not None]
        if any(after < before for before, after in pairwise(known)):
            return True
    return False


def counted(before: VertexPressure, after: VertexPressure) -> float | None:
    """Return the rate between two readings; None if a count is not known or has fallen."""
    elapsed_s = (after.observed_at - before.observed_at).total_seconds()
    first, last = _total(before.records_out_count), _total(after.records_out_count)
    if first is None or last is None or last < first or elapsed_s <= 0:
        return None
    return (last - first) / elapsed_s


def input_per_s(evidence: JobEvidence) -> float | None:
    """Return the records that all sources of the job read in a second; None if the rate of one is not known."""
    fed = {e.target for e in evidence.topology.edges}
    sources = [v.id for v in evidence.topology.vertices if v.id not in fed]
    rates = [_of_source([r for r in evidence.pressure if r.vertex_id == source]) for source in sources]
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known and len(known) == len(rates) else None


def use_ratio(evidence: JobEvidence, backpressured_max_ratio: float | None) -> float | None:
    """Return how much of what the job could process it does process: how busy its busiest subtask is.

    Return None if something holds the job back, because it then processes less than what arrives.
    """
    if backpressured_max_ratio is None or backpressured_max_ratio > BACKPRESSURED_OK_RATIO:
        return None
    use = highest(highest_of(load.busy) for load in vertex_loads(evidence.pressure).values())
    return use if use is not None and 0 < use < 1 else None


def _of_source(readings: Sequence[VertexPressure]) -> float | None:
    rates = metered(readings)
    if rates:
        return fmean(rates)
    if len(readings) < 2 or began_anew(readings):
        return None
    return counted(readings[0], readings[-1])


def _total(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None
