"""Explains a checkpoint that took many times as long as those before it: by what was different in *it*.

The verdict says what the barrier waited for. Two more things help a person who asks why only this checkpoint was slow:
where it lost the time compared with its neighbours, and what else happened at that time that did not happen around the
neighbours. The first comes from the critical path, as in ``comparison``. The second comes from readings near the
checkpoint and from events: a restart, a change of the parallelism or of the settings, a savepoint at the same time.

That two things come together does not prove that one causes the other, so these are differences, and not causes.

Invariant: a difference is stated only if both sides are known, this checkpoint and its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import numpy as np

from backend.analysis.health.conditions import IDLE_TIMES, input_rates, rate_around
from backend.analysis.health.health import struck_limit_ms
from backend.analysis.measures.comparison import NOISE_MS, reached_ms
from backend.analysis.measures.critical_path import CriticalPath, CriticalStep, Phases
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import VertexPhases, checkpoint_phases
from backend.analysis.numbers.arrays import Floats, array_of, column_medians, indices_of, mean_of, stacked
from backend.analysis.numbers.statistics import median, quantile
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import (
    CONDITION_TIMES,
    NEIGHBOURS_MAX,
    NEIGHBOURS_MIN_COUNT,
    QUICK_QUANTILE,
    SHARE_DIFFERENCE_MIN,
    STANDOUT_RATIO,
    STRUCK_READING_S,
    STRUCK_SLOW_TIMES,
)
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointKind, CheckpointStatus
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Outlier, Phase

Span = tuple[datetime, datetime]

_COMPARED_MAX = 5
"""The phases of this many neighbours are compared, the newest."""
_READ_AT_COUNT = 3
_BEFORE = timedelta(seconds=20)
_LONG = timedelta(seconds=60)
_APART = timedelta(seconds=12)
"""Readings that are usually 10 s apart are rarely further apart than this."""
_RECORDS_MIN = 20
"""Fewer records than this say nothing about the shares of the subtasks, or about the input."""
_MS = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The checkpoints before one that took many times as long: the ``quick`` ones of the newest ``count``.

    ``usual_ms`` is the median duration of the quick ones. They are oldest first.
    """

    quick: tuple[Checkpoint, ...]
    count: int
    usual_ms: float


def neighbours_of(checkpoint: Checkpoint, evidence: JobEvidence, duration_ms: float) -> Neighbours | None:
    """Return the quick checkpoints before this one, if it took many times as long as they did; otherwise None."""
    header = checkpoint.header
    if header.kind is not CheckpointKind.CHECKPOINT:
        return None
    before = [
        (c, c.header.end_to_end_duration_ms)
        for c in evidence.checkpoints
        if c.header.status is CheckpointStatus.COMPLETED
        and c.header.kind is CheckpointKind.CHECKPOINT
        and c.header.triggered_at < header.triggered_at
        and c.header.end_to_end_duration_ms is not None
    ][-NEIGHBOURS_MAX:]
    usual = quantile([ms for _, ms in before], QUICK_QUANTILE)
    if usual is None or duration_ms < (limit := struck_limit_ms(usual, evidence.config)):
        return None
    quick = [(c, ms) for c, ms in before if ms is not None and ms < limit]
    usual_ms = median(ms for _, ms in quick) or 0.0
    # If durations grow, or some neighbours are struck, the quantile is below most of the quick ones.
    if len(quick) < NEIGHBOURS_MIN_COUNT or duration_ms < STRUCK_SLOW_TIMES * usual_ms:
        return None
    return Neighbours(tuple(c for c, _ in quick), len(before), usual_ms)


def reading_spans(checkpoint: Checkpoint, evidence: JobEvidence) -> list[Span]:
    """Return the times around some neighbours, whose readings show what is usual; none if there are no neighbours.

    They are oldest first, do not overlap, and end before the readings of the evidence begin. They are a little longer
    than the times around the neighbours, because a rate needs the reading before and the one after.
    """
    took = checkpoint.header.end_to_end_duration_ms
    neighbours = None if took is None else neighbours_of(checkpoint, evidence, took)
    if neighbours is None:
        return []
    newest = min((r.observed_at for r in evidence.pressure), default=checkpoint.header.triggered_at)
    spans: list[Span] = []
    for neighbour in neighbours.quick[-_READ_AT_COUNT:]:
        since, until = _span(neighbour, evidence.now)
        since, until = since - _APART, until + _APART
        since = max(since, spans[-1][1]) if spans else since
        until = min(until, newest)
        spans += [(since, until)] if since < until else []
    return spans


def explained(
    checkpoint: Checkpoint,
    evidence: JobEvidence,
    neighbours: Neighbours,
    *,
    duration_ms: float,
    path: CriticalPath | None,
    phases: Phases,
    named: tuple[VertexId, tuple[int, ...]] | None,
) -> Outlier:
    """Return what was different in the checkpoint. ``named`` is the place that the verdict names, if it names one."""
    place = None if path is None else _place(path, phases, neighbours, evidence)
    where = named or (None if place is None else (place.vertex_id, place.subtasks))
    reasons = [
        *_events(checkpoint, evidence, neighbours),
        *_at_readings(checkpoint, evidence, neighbours, where),
        *_written(checkpoint, neighbours),
    ]
    times = duration_ms / max(1.0, neighbours.usual_ms)
    if place is None:
        return Outlier(neighbours.usual_ms, times, len(neighbours.quick), differences=tuple(reasons))
    return Outlier(
        usual_ms=neighbours.usual_ms,
        times=times,
        neighbour_count=len(neighbours.quick),
        vertex_id=place.vertex_id,
        vertex=evidence.vertex_name(place.vertex_id),
        subtasks=place.subtasks,
        phase=place.phase,
        phase_ms=place.phase_ms,
        usual_phase_ms=place.usual_ms,
        extra_ms=place.extra_ms,
        differences=(_place_words(place, evidence), *reasons),
    )


# --- where the time was lost ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the checkpoint lost most of the time: the phase at these subtasks, compared with the neighbours."""

    vertex_id: VertexId
    subtasks: tuple[int, ...]
    count: int
    phase: Phase
    phase_ms: float | None
    usual_ms: float | None
    extra_ms: float
    least_ms: float | None
    """How long the phase had lasted if it had not ended; otherwise None."""


def _place(path: CriticalPath, phases: Phases, neighbours: Neighbours, evidence: JobEvidence) -> _Place | None:
    """Return the step of the path in which the lateness, compared with the neighbours, grows most."""
    late = evidence.late_barriers
    compared = [
        checkpoint_phases(c, evidence.config, late.get(c.header.checkpoint_id, ()))
        for c in neighbours.quick[-_COMPARED_MAX:]
        if c.details
    ]
    before, most = 0.0, float(NOISE_MS)
    critical_step: CriticalStep | None = None
    for step in path.steps:
        usual = median(reached_ms(other, phases, step) for other in compared)
        if usual is None:
            continue
        lateness = step.end_ms - usual
        if lateness - before > most:
            most, critical_step = lateness - before, step
        before = lateness
    if critical_step is None:
        return None
    own = _durations(critical_step.phase, phases[critical_step.vertex_id])
    alike = [
        _durations(critical_step.phase, o[critical_step.vertex_id]) for o in compared if critical_step.vertex_id in o
    ]
    rows = [row for row in alike if row.size == own.size]
    extra = own - column_medians(stacked(rows)) if rows else own
    # Of a subtask that did not acknowledge, the duration is not known: then it alone is named.
    least = STANDOUT_RATIO * extra[critical_step.subtask]
    subtasks = indices_of(extra >= max(least, NOISE_MS)) or (critical_step.subtask,)
    took = float(own[critical_step.subtask])
    usual = median(float(row[critical_step.subtask]) for row in rows if row[critical_step.subtask] >= 0)
    at = phases[critical_step.vertex_id][critical_step.subtask]
    is_cut = not at.is_acknowledged and (critical_step.phase is Phase.ACK_WAIT or at.first_barrier_ms is None)
    # The way of the barrier counts from the trigger. What an open acknowledgement waited for includes the snapshot, so
    # the neighbours have no such duration.
    least_ms = float(
        critical_step.end_ms
        if critical_step.phase is Phase.START_DELAY
        else critical_step.end_ms - critical_step.start_ms
    )
    return _Place(
        vertex_id=critical_step.vertex_id,
        subtasks=subtasks if critical_step.subtask in subtasks else (critical_step.subtask,),
        count=own.size,
        phase=critical_step.phase,
        phase_ms=None if is_cut or np.isnan(took) else took,
        usual_ms=None if is_cut and critical_step.phase is Phase.ACK_WAIT else usual,
        extra_ms=most,
        least_ms=least_ms if is_cut else None,
    )


_OF_PHASE: Mapping[Phase, Callable[[VertexPhases], Floats]] = {
    Phase.START_DELAY: lambda p: p.first_barrier_ms,
    Phase.ALIGNMENT: lambda p: p.alignment_duration_ms,
    Phase.SYNC: lambda p: p.sync_duration_ms,
    Phase.ASYNC: lambda p: p.own_async_ms,
    Phase.ACK_WAIT: lambda p: p.ack_ms - p.async_end_ms,
}


def _durations(phase: Phase, phases: VertexPhases) -> Floats:
    return _OF_PHASE[phase](phases)


def _place_words(place: _Place, evidence: JobEvidence) -> str:
    where = say.where(say.vertex(evidence.vertex_name(place.vertex_id)), place.subtasks, place.count)
    what = f"the {say.PHASE_WORDS[place.phase]} {where}"
    if place.least_ms is not None:
        usual = "" if place.usual_ms is None else f", and usually takes {say.duration(place.usual_ms)}"
        return f"{what} had not ended after at least {say.duration(place.least_ms)}{usual}"
    if place.phase_ms is None:
        return f"{what} took {say.duration(place.extra_ms)} longer"
    instead = "" if place.usual_ms is None else f" instead of {say.duration(place.usual_ms)}"
    return f"{what} took {say.duration(place.phase_ms)}{instead}"


# --- what happened at that time ---------------------------------------------------------------------------------------


def _events(checkpoint: Checkpoint, evidence: JobEvidence, neighbours: Neighbours) -> Iterator[str]:
    header = checkpoint.header
    begin, end = header.triggered_at, _end(checkpoint, evidence.now)
    last = neighbours.quick[-1]
    restarts = [at for at, _ in evidence.exceptions if _end(last, evidence.now) < at <= begin]
    if restarts:
        ago = say.duration((begin - max(restarts)) / _MS)
        yield f"the job had failed and restarted {ago} before it"
    yield from _rescaled(checkpoint, last)
    if evidence.config_before is not None and evidence.config is not None:
        changed = _changed_settings(evidence.config_before, evidence.config)
        if changed:
            yield f"the settings had changed before it: {changed}"
    others = [
        c
        for c in evidence.checkpoints
        if c.header.kind is not CheckpointKind.CHECKPOINT
        and c.header.triggered_at < end
        and _end(c, evidence.now) > begin
    ]
    if others:
        yield f"savepoint {others[-1].header.checkpoint_id} ran at the same time"


def _rescaled(checkpoint: Checkpoint, last: Checkpoint) -> Iterator[str]:
    counts = {d.vertex_id: d.subtask_count for d in last.details}
    for detail in checkpoint.details:
        before = counts.get(detail.vertex_id)
        if before is not None and before != detail.subtask_count:
            yield f"the parallelism had changed from {before} to {detail.subtask_count} before it"
            return
    if not counts and last.header.subtask_count != checkpoint.header.subtask_count:
        yield f"the job had {checkpoint.header.subtask_count} subtasks instead of {last.header.subtask_count}"


def _on_or_off(value: bool) -> str:
    return "on" if value else "off"


_SETTING_WORDS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "mode": ("mode", str),
    "interval_ms": ("interval", say.duration),
    "timeout_ms": ("timeout", say.duration),
    "min_pause_ms": ("minimum pause", say.duration),
    "max_concurrent": ("concurrent checkpoints", str),
    "is_unaligned_enabled": ("unaligned checkpoints", _on_or_off),
    "aligned_timeout_ms": ("aligned timeout", say.duration),
    "tolerable_failed_count": ("tolerable failures", str),
    "state_backend": ("state backend", str),
    "checkpoint_storage": ("checkpoint storage", str),
    "inflight_cap_bytes": ("in-flight data cap", say.size),
    "debloat_target_ms": ("debloating target", say.duration),
    "protocol": ("protocol", str),
    "spilling": ("spilling", str),
    "is_off": ("checkpointing off", str),
    "ends_with_first_task": ("no checkpoint after a task has finished", str),
}
"""The words for each field of the settings, and for its values."""


def _changed_settings(before: CheckpointConfig, after: CheckpointConfig) -> str:
    """Return the settings that changed, with both values. A setting that was not reported once is left out."""
    changed: list[str] = []
    for name, (word, of) in _SETTING_WORDS.items():
        old, new = getattr(before, name), getattr(after, name)
        if old is not None and new is not None and old != new:
            changed.append(f"{word} from {of(old)} to {of(new)}")
    return say.listed(changed)


def _written(checkpoint: Checkpoint, neighbours: Neighbours) -> Iterator[str]:
    header = checkpoint.header
    for name, words in (
        ("checkpointed_size_bytes", "it wrote {} instead of {}"),
        ("persisted_bytes", "it persisted {} of in-flight data instead of {}"),
    ):
        own, usual = getattr(header, name), median(getattr(c.header, name) for c in neighbours.quick)
        if own and usual is not None and own >= 1_000_000 and own >= CONDITION_TIMES * usual:
            yield words.format(say.size(own), say.size(usual))


# --- readings ---------------------------------------------------------------------------------------------------------


def _at_readings(
    checkpoint: Checkpoint,
    evidence: JobEvidence,
    neighbours: Neighbours,
    where: tuple[VertexId, tuple[int, ...]] | None,
) -> Iterator[str]:
    readings = (*evidence.earlier_pressure, *evidence.pressure)
    if not readings:
        return
    by_vertex: dict[VertexId, list[VertexPressure]] = {}
    for reading in readings:
        by_vertex.setdefault(reading.vertex_id, []).append(reading)
    yield from _input(checkpoint, evidence, neighbours, by_vertex)
    if where is None:
        return
    vertex_id, subtasks = where
    now = evidence.now
    own_span, usual_spans = _span(checkpoint, now), [_span(c, now) for c in neighbours.quick]
    own_readings = by_vertex.get(vertex_id, [])
    yield from _share(evidence, vertex_id, own_readings, own_span, usual_spans)
    yield from _busy(evidence, vertex_id, subtasks, own_readings, own_span, usual_spans)


def _input(
    checkpoint: Checkpoint,
    evidence: JobEvidence,
    neighbours: Neighbours,
    by_vertex: Mapping[VertexId, Sequence[VertexPressure]],
) -> Iterator[str]:
    sources = [v.id for v in evidence.topology.vertices if not evidence.topology.inputs(v.id)]
    rates = input_rates([r for v in sources for r in by_vertex.get(v, ())])
    # A few records are no burst, and many times none is still none.
    some = [(since, until, r) for since, until, r in rates if r * (until - since).total_seconds() >= _RECORDS_MIN]
    own, usual = rate_around(checkpoint, some), median(rate_around(c, rates) for c in neighbours.quick)
    if own is None or usual is None:
        return
    if own >= CONDITION_TIMES * usual:
        is_idle = own >= IDLE_TIMES * usual
        yield (
            "input arrived, while there was nearly none before"
            if is_idle
            else f"the input was {say.times(own / usual)} as high as around the others"
        )


def _share(
    evidence: JobEvidence,
    vertex_id: VertexId,
    readings: Sequence[VertexPressure],
    own_span: Span,
    usual_spans: Sequence[Span],
) -> Iterator[str]:
    """Yield whether one subtask read a larger share of the records than usual: a burst of a few keys."""
    grown = [(a.observed_at, b.observed_at, _grown(a, b)) for a, b in pairwise(readings)]
    shares = _shares_in(own_span, grown)
    others = [found for span in usual_spans if (found := _shares_in(span, grown)) is not None]
    before = column_medians(stacked(others)) if others else np.empty(0)
    if shares is None or before.size != shares.size or shares.size < 2:
        return
    more = shares - before
    most = int(more.argmax())
    if more[most] >= SHARE_DIFFERENCE_MIN:
        who = f"{say.vertex(evidence.vertex_name(vertex_id))} subtask {most}"
        now, then = say.percent(float(shares[most])), say.percent(float(before[most]))
        yield f"{who} read {now} of all records, and {then} around the others"


def _busy(
    evidence: JobEvidence,
    vertex_id: VertexId,
    subtasks: tuple[int, ...],
    readings: Sequence[VertexPressure],
    own_span: Span,
    usual_spans: Sequence[Span],
) -> Iterator[str]:
    """Yield whether the named subtasks were much more busy or back-pressured than usual."""
    own = [r for r in readings if _contains(own_span, r.observed_at)]
    usual = [
        r
        for r in readings
        if not _contains(own_span, r.observed_at) and any(_contains(s, r.observed_at) for s in usual_spans)
    ]
    for name, word in (("busy_ratio", "busy"), ("backpressured_ratio", "back-pressured")):
        now, then = (
            median(_mean_at(getattr(r, name), subtasks) for r in own),
            median(_mean_at(getattr(r, name), subtasks) for r in usual),
        )
        if now is not None and then is not None and now - then >= SHARE_DIFFERENCE_MIN:
            vertex = evidence.topology.vertex(vertex_id)
            total = len(subtasks) if vertex is None else vertex.parallelism
            who = say.where(say.vertex(evidence.vertex_name(vertex_id)), subtasks, total)
            verb = "was" if len(subtasks) == 1 else "were"
            yield f"{who} {verb} {word} {say.percent(now)} of the time instead of {say.percent(then)}"
            return


def _mean_at(values: Sequence[float | None], subtasks: Sequence[int]) -> float | None:
    return mean_of(array_of([values[i] for i in subtasks if i < len(values)]))


def _grown(before: VertexPressure, after: VertexPressure) -> Floats | None:
    """Return how many records each subtask read between two readings, or None if it is not known."""
    a, b = array_of(before.records_in_count), array_of(after.records_in_count)
    if not a.size or a.size != b.size:
        return None
    grown = b - a
    # A missing count (NaN) is not at least 0 either.
    return grown if (grown >= 0).all() else None


def _shares_in(span: Span, grown: Sequence[tuple[datetime, datetime, Floats | None]]) -> Floats | None:
    """Return the share of the records that each subtask read in a span, or None if they are too few to say."""
    found = [records for a, b, records in grown if records is not None and _contains(span, a + (b - a) / 2)]
    if not found or len({f.size for f in found}) > 1:
        return None
    total: Floats = np.sum(found, axis=0)
    return total / total.sum() if total.sum() >= _RECORDS_MIN else None


# --- times ------------------------------------------------------------------------------------------------------------


def _end(checkpoint: Checkpoint, now: datetime) -> datetime:
    """Return the end of a checkpoint, or ``now`` if it is open."""
    header = checkpoint.header
    if header.end_to_end_duration_ms is None:
        return header.failed_at or (header.triggered_at if header.status.is_terminal else now)
    return header.triggered_at + timedelta(milliseconds=header.end_to_end_duration_ms)


def _span(checkpoint: Checkpoint, now: datetime) -> Span:
    """Return the time in which readings show a checkpoint: from shortly before its trigger to just after its end."""
    begin = checkpoint.header.triggered_at
    end = min(_end(checkpoint, now), begin + _LONG)
    return begin - _BEFORE / 4, end + timedelta(seconds=STRUCK_READING_S)


def _contains(span: Span, at: datetime) -> bool:
    return span[0] <= at <= span[1]
