"""Finds when a cause strikes that strikes only some checkpoints: what these have in common and the others lack.

A condition is stated only if it separates the two groups: nearly all struck checkpoints have it, and nearly no quick
one. That two things come together does not prove that one causes the other, so the condition says *when*, not *why*.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from backend.analysis.health.health import HealthReport
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.numbers.statistics import highest, known, median, quantile
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CONDITION_TIMES
from backend.domain.checkpoint import Checkpoint, CheckpointKind, CheckpointStatus
from backend.domain.pressure import VertexPressure

Rate = tuple[datetime, datetime, float]
"""Records in a second between two times."""

_NTH = {2: "second", 3: "third", 4: "fourth", 5: "fifth", 6: "sixth"}
_STRUCK_MIN = 3
# The input just before a checkpoint fills the queues in which its barrier waits.
_BEFORE = timedelta(seconds=5)
# Readings may be further apart than that time is long. Those that cover at least these shares of it, and of the time
# between them, show the input of that time.
_COVERED_MIN, _SHOWN_MIN = 0.5, 0.25
# From this factor on, the usual input is nearly none, and the factor says little.
IDLE_TIMES = 20
# Up to this share of a group may be on the wrong side.
_WRONG_RATIO = 0.2


def condition(report: HealthReport, evidence: JobEvidence, readings: Sequence[VertexPressure]) -> str | None:
    """Return when the cause strikes, in words that follow "in 9 of the last 18", or None if nothing separates them."""
    if not report.is_mixed or len(report.struck) < _STRUCK_MIN:
        return None
    return (
        _after_restarts(report, evidence)
        or _after_savepoints(report, evidence)
        or _by_input(report, evidence, readings)
        or _by_size(report)
        or _every_nth(report)
    )


def _after_restarts(report: HealthReport, evidence: JobEvidence) -> str | None:
    restarts = sorted({at for at, _ in evidence.exceptions})
    return "each time after a restart" if _are_first_after(restarts, report) else None


def _after_savepoints(report: HealthReport, evidence: JobEvidence) -> str | None:
    """Say whether the struck checkpoints come after savepoints, as if each of them wrote its whole state again."""
    savepoints = [
        c.header.triggered_at
        for c in evidence.checkpoints
        if c.header.kind is not CheckpointKind.CHECKPOINT and c.header.status is CheckpointStatus.COMPLETED
    ]
    if not _are_first_after(savepoints, report):
        return None
    times = _size_times(report)
    return "each time after a savepoint" + ("" if times is None else f", writing {say.times(times)} as much")


def _are_first_after(events: Sequence[datetime], report: HealthReport) -> bool:
    """Return whether the struck checkpoints, and not the quick ones, are the first ones after these events."""
    if not events:
        return False
    first = {id(c) for c in _first_after(events, (*report.struck, *report.quick))}
    struck = sum(id(c) in first for c in report.struck)
    quick = sum(id(c) in first for c in report.quick)
    return struck >= (1 - _WRONG_RATIO) * len(report.struck) and quick <= _WRONG_RATIO * len(report.quick)


def _first_after(restarts: Sequence[datetime], checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    ordered = sorted(checkpoints, key=lambda c: c.header.triggered_at)
    firsts = [next((c for c in ordered if c.header.triggered_at >= at), None) for at in restarts]
    return [c for c in firsts if c is not None]


def _by_input(report: HealthReport, evidence: JobEvidence, readings: Sequence[VertexPressure]) -> str | None:
    sources = {v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)}
    rates = input_rates([r for r in readings if r.vertex_id in sources])
    times = _times(*([rate_at(c, rates) for c in group] for group in (report.struck, report.quick)))
    if times is None:
        return None
    if times >= IDLE_TIMES:
        return "whenever input arrives after a time with nearly none"
    return "whenever the input doubles" if 1.75 <= times < 2.5 else f"whenever the input is {say.times(times)} as high"


def input_rates(readings: Sequence[VertexPressure]) -> list[Rate]:
    """Return the records that the sources emit in a second, between each two readings of the same source.

    The counts show bursts and pauses of some seconds. The engine's own rates are means over a minute, in which a burst
    just before a checkpoint is hardly seen, so they are not used here.
    """
    rates: list[Rate] = []
    last: dict[str, VertexPressure] = {}
    for reading in readings:
        before = last.get(reading.vertex_id)
        last[reading.vertex_id] = reading
        if before is None:
            continue
        seconds = (reading.observed_at - before.observed_at).total_seconds()
        own, old = known(reading.records_out_count), known(before.records_out_count)
        grown = sum(own) - sum(old)
        # A count that only one of the two readings has would be taken for records of this time.
        if seconds > 0 and grown >= 0 and own and len(own) == len(old):
            rates.append((before.observed_at, reading.observed_at, grown / seconds))
    return rates


def rate_at(checkpoint: Checkpoint, rates: Sequence[Rate]) -> float | None:
    """Return the highest of these input rates from shortly before the trigger to some seconds after it.

    A rate counts if the middle of its time is in this span. If readings are far apart, few checkpoints have such a
    rate. The others get none: the only rate near them also covers the time of their neighbours, so it would be the same
    for a struck checkpoint and for the quick one next to it.
    """
    begin, end = _near(checkpoint)
    return highest(rate for since, until, rate in rates if begin <= since + (until - since) / 2 <= end)


def rate_around(checkpoint: Checkpoint, rates: Sequence[Rate]) -> float | None:
    """Return ``rate_at`` or, if there is none, the highest of the rates that show the input of the same span.

    The time of such a rate covers at least half of the span, and at least a quarter of this time is in the span.
    """
    begin, end = _near(checkpoint)
    covering = (
        rate
        for since, until, rate in rates
        if (both := min(until, end) - max(since, begin)) >= _COVERED_MIN * (end - begin)
        and both >= _SHOWN_MIN * (until - since)
    )
    inside = rate_at(checkpoint, rates)
    return highest(covering) if inside is None else inside


def _near(checkpoint: Checkpoint) -> tuple[datetime, datetime]:
    header = checkpoint.header
    end = header.triggered_at + timedelta(milliseconds=min(header.end_to_end_duration_ms or 0, 5_000))
    return header.triggered_at - _BEFORE, end


def _by_size(report: HealthReport) -> str | None:
    times = _size_times(report)
    return None if times is None else f"whenever a checkpoint writes {say.times(times)} as much"


def _size_times(report: HealthReport) -> float | None:
    return _times(*([c.header.checkpointed_size_bytes for c in group] for group in (report.struck, report.quick)))


def _times(struck: Sequence[float | None], quick: Sequence[float | None]) -> float | None:
    """Return how many times as large the values of the struck checkpoints are, if they are larger without overlap."""
    if len(known(struck)) < _STRUCK_MIN or len(known(quick)) < _STRUCK_MIN:
        return None
    usual, more = median(quick) or 0.0, median(struck) or 0.0
    least, most = quantile(struck, _WRONG_RATIO) or 0.0, quantile(quick, 1 - _WRONG_RATIO) or 0.0
    return more / usual if usual > 0 and more >= CONDITION_TIMES * usual and least > most else None


def _every_nth(report: HealthReport) -> str | None:
    struck = {c.header.checkpoint_id for c in report.struck}
    quick = {c.header.checkpoint_id for c in report.quick}
    for n, word in _NTH.items():
        for rest in range(n):
            if all(k % n == rest for k in struck) and not any(k % n == rest for k in quick):
                return f"every {word} time"
    return None
