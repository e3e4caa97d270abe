"""Advises on network buffers: their size by debloating (R-DB) and their number (R-BUF, R-NET).

Debloating helps aligned checkpoints: queues shrink to the data that drains in the target time. It does not help if
records are large against the buffers that are left. If a vertex waits for buffers while its receiver is idle, the
network or the number of buffers is the limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from backend.advisor.advice import EvidenceRow, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.proposing import Proposal, expect, proposal
from backend.advisor.rules.lints import cluster_setting, version_of
from backend.advisor.sentences import cause_words, ms_span
from backend.advisor.situation import Situation, drain_times
from backend.advisor.thresholds import (
    DEBLOAT_TARGET_MS,
    GAIN_MIN_MS,
    NOISE_MS,
    POOL_EMPTY_RATIO,
    POOL_FULL_RATIO,
    QUEUE_FACTOR_MIN,
    RECORD_MAX_RATIO,
    ROUND_TRIP_MS,
    SEGMENT_BYTES,
    TRAVEL_MIN_RATIO,
)
from backend.analysis.numbers.arrays import peak_of
from backend.analysis.numbers.statistics import highest, median, ratio
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_HIGH_RATIO
from backend.domain import flink_options
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.text import capitalised
from backend.domain.topology import Edge
from backend.domain.verdict import Basis, Confidence, Health, VerdictKind

_EXCLUSIVE = 2
_FLOATING = 8
_PERIOD_KEY = "taskmanager.network.memory.buffer-debloat.period"
_PERIOD_MS = 200
_FLOATING_KEY = "taskmanager.network.memory.floating-buffers-per-gate"


@dataclass(frozen=True, slots=True)
class _Hop:
    """An exchange whose sender waits for buffers while its receiver is idle."""

    edge: Edge
    out_usage: float
    in_usage: float
    held: float
    bytes_per_ms: float | None


def advise_buffers(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend settings of the network buffers, or return the reason for none."""
    if situation.queues is None or situation.held is None:
        return _silence("R-DB-1", f"{situation.unread}, and both rules need that")
    hop = _waiting_hop(situation)
    if hop is not None:
        return _more_buffers(situation, hop)
    config = situation.evidence.config
    target = config.debloat_target_ms if config is not None else None
    queues = sorted(drain_times(situation))
    if not queues:
        return _silence("R-DB-1", "the rate at which queues drain is not known")
    if target is not None:
        return _debloated(situation, float(target), queues[-1])
    if not situation.engine.has_buffer_debloating:
        return _silence("R-DB-1", f"{situation.engine_words} has no buffer debloating")
    if situation.mode in (Mode.UNALIGNED, Mode.ALIGNED_WITH_TIMEOUT):
        return _silence("R-CAP-1", "unaligned barriers overtake queues; the amount in flight is a topic of its own")
    return _debloat(situation, queues)


def _silence(rule: str, reason: str) -> NoAdvice:
    return NoAdvice(Topic.BUFFERS, rule, reason)


# --- debloating -----------------------------------------------------------------------------------------------------


def _debloat(situation: Situation, queues: list[float]) -> Recommendation | NoAdvice:
    held_id, held = situation.held or ("", 0.0)
    if situation.diagnosis.health is Health.HEALTHY:
        return _silence("R-DB-1", "checkpoints are healthy with the queues as they are")
    if situation.diagnosis.verdict.kind in (VerdictKind.CALLBACK, VerdictKind.COMMIT):
        return _silence("R-UC-6", "barriers wait for long pieces of work: what a shorter queue would gain is not known")
    if held < BACKPRESSURED_HIGH_RATIO or queues[-1] < QUEUE_FACTOR_MIN * DEBLOAT_TARGET_MS:
        text = f"the longest queue drains in {say.duration(queues[-1])}, and debloating aims at {DEBLOAT_TARGET_MS} ms"
        return _silence("R-DB-1", text)
    travel = median(ratio(r.travel_ms, r.duration_ms) for r in situation.slow)
    if travel is None or travel <= TRAVEL_MIN_RATIO:
        part = "an unknown part" if travel is None else say.percent(travel)
        return _silence("R-DB-1", f"the barrier travels for {part} of the duration: shorter queues would change little")
    too_large = large_records(situation, DEBLOAT_TARGET_MS)
    if too_large is not None:
        return _silence("R-DB-2", too_large)
    now = situation.duration_ms or 0.0
    saved = sum(queues) - sum(min(q, DEBLOAT_TARGET_MS) for q in queues)
    rest = max(0.0, now - (median(r.travel_ms for r in situation.recorded) or 0.0))
    most = rest + sum(min(q, DEBLOAT_TARGET_MS) for q in queues)
    expected = min(now, max(most, now - saved))
    after = Interval(expected, min(rest, expected), max(expected, now) + NOISE_MS)
    method = (
        "the queues on the barrier's way, each at most as long as the target, and the rest of the checkpoint; the"
        " interval reaches from no queue to no effect"
    )
    proposed = Setting(debloat_target_ms=DEBLOAT_TARGET_MS)
    duration = situation.predictor.expected(proposed, (expect(Metric.DURATION, situation.duration_ms, after, method),))
    after = duration[0].predicted
    if now - after.value < GAIN_MIN_MS:
        return _silence("R-DB-1", f"checkpoints would take {ms_span(after)}: no certain gain over {say.duration(now)}")
    queued = situation.queues.total if situation.queues is not None else 0.0
    share = sum(min(q, DEBLOAT_TARGET_MS) for q in queues) / sum(queues)
    made = Proposal(
        topic=Topic.BUFFERS,
        rules=("R-DB-1", "R-DB-2"),
        direction="debloat",
        headline=f"Size network buffers for {DEBLOAT_TARGET_MS} ms of data (buffer debloating)",
        reason=(
            f"The longest queue takes {say.duration(queues[-1])} to drain, and aligned barriers wait for it. With"
            f" debloating, each queue drains in {DEBLOAT_TARGET_MS} ms, so barriers wait that long at each exchange."
        ),
        current=Setting(),
        proposed=proposed,
        evidence=(
            EvidenceRow(
                "longest queue, at the rate at which it drains",
                "queuedBytes",
                Basis.RECONSTRUCTED,
                queues[-1],
                "ms",
                since=situation.since,
                until=situation.until,
            ),
            EvidenceRow(
                "bytes in all queues, median",
                "queuedBytes",
                Basis.MEASURED,
                queued,
                "bytes",
                since=situation.since,
                until=situation.until,
                values=situation.queues.totals if situation.queues is not None else (),
            ),
            EvidenceRow(
                "most back-pressured vertex",
                "backpressureRatio",
                Basis.MEASURED,
                held,
                "ratio",
                vertex=situation.name(VertexId(held_id)),
                since=situation.since,
                until=situation.until,
            ),
        ),
        expected=duration,
        confidence_reason=f"{situation.queues.reading_count if situation.queues else 0} readings of the queues",
        preconditions=(
            Precondition("records are smaller than half of the reduced buffers", _are_records_known(situation)),
            Precondition("the inputs of each operator have similar rates", _has_single_inputs(situation)),
        ),
        risks=(
            "throughput falls by a few per cent, and by more if buffers become smaller than a record",
            f"buffer sizes adapt over several checkpoints; queues shrink to about {say.percent(share)}",
        ),
        will_not_cure=(cause_words(situation),),
        withdrawn_if=("back-pressure falls below 50 %", "records are larger than half of a reduced buffer"),
    )
    return proposal(situation.engine, made, situation.ids)


def _debloated(situation: Situation, target_ms: float, longest_ms: float) -> Recommendation | NoAdvice:
    too_large = large_records(situation, target_ms)
    if too_large is not None:
        return _silence("R-DB-2", too_large)
    if longest_ms <= QUEUE_FACTOR_MIN * target_ms:
        drains, target = say.duration(longest_ms), say.duration(target_ms)
        return _silence("R-DB-1", f"debloating is on: the longest queue drains in {drains}, the target is {target}")
    period_ms = _period_ms(situation)
    made = Proposal(
        topic=Topic.BUFFERS,
        rules=("R-DB-3",),
        direction="faster",
        headline=f"Adapt buffers every {period_ms // 2} ms (period of buffer debloating)",
        reason=(
            f"The longest queue takes {say.duration(longest_ms)} to drain, where debloating aims at"
            f" {say.duration(target_ms)}: the sizes follow the load too slowly."
        ),
        current=Setting(),
        proposed=Setting(debloat_period_ms=period_ms // 2),
        evidence=(
            EvidenceRow(
                "longest queue, at the rate at which it drains",
                "queuedBytes",
                Basis.RECONSTRUCTED,
                longest_ms,
                "ms",
                since=situation.since,
                until=situation.until,
            ),
            EvidenceRow("target of buffer debloating", "debloatTarget", Basis.MEASURED, target_ms, "ms"),
        ),
        unpredicted=("no prediction of durations: how fast the load varies between two readings is not known",),
        confidence=Confidence.LOW,
        confidence_reason="readings are seconds apart, and debloating reacts within seconds",
        risks=("the sizes of buffers change more often; the threshold of debloating dampens small changes",),
        will_not_cure=(cause_words(situation),),
        withdrawn_if=("queues drain within twice the target",),
    )
    return proposal(situation.engine, made, situation.ids)


def large_records(situation: Situation, target_ms: float) -> str | None:
    """Return why debloating does not suit the records of some vertex (R-DB-2); None if it does, or is not known to."""
    for vertex in situation.evidence.topology.vertices:
        above = situation.evidence.topology.upstream(vertex.id)
        speed, size = situation.drain_bytes_per_ms.get(vertex.id), situation.record_bytes.get(vertex.id)
        if speed is None or size is None or not above:
            continue
        senders = sum(v.parallelism for v in situation.evidence.topology.vertices if v.id in above)
        buffers = (senders * _EXCLUSIVE + _FLOATING) * vertex.parallelism
        reduced = min(SEGMENT_BYTES, target_ms * speed / buffers)
        if size > RECORD_MAX_RATIO * reduced:
            return (
                f"records of {say.size(size)} would be large against buffers of {say.size(reduced)} before"
                f" {situation.name(vertex.id)}: raise taskmanager.memory.min-segment-size if debloating is on"
            )
    return None


def _are_records_known(situation: Situation) -> bool | None:
    read = [v.id for v in situation.evidence.topology.vertices if situation.evidence.topology.upstream(v.id)]
    return True if all(v in situation.record_bytes for v in read) else None


def _has_single_inputs(situation: Situation) -> bool | None:
    topology = situation.evidence.topology
    return True if all(len(topology.upstream(v.id)) < 2 for v in topology.vertices) else None


# --- the number of buffers ------------------------------------------------------------------------------------------


def _waiting_hop(situation: Situation) -> _Hop | None:
    """Return the exchange whose sender is out of buffers, while the receiver has none to read and idles (R-NET-1)."""
    by_vertex: dict[VertexId, list[VertexPressure]] = {}
    for reading in situation.case.readings:
        by_vertex.setdefault(reading.vertex_id, []).append(reading)

    @cache
    def held(vertex_id: VertexId) -> float | None:
        return median(peak_of(r.backpressured_ratio) for r in by_vertex.get(vertex_id, ()))

    for edge in situation.evidence.topology.edges:
        back = held(edge.source)
        # Few senders wait, so the other values are rarely computed.
        if back is None or back < BACKPRESSURED_HIGH_RATIO:
            continue
        above, receiver = by_vertex[edge.source], by_vertex.get(edge.target, ())
        out = median(peak_of(r.out_pool_usage_ratio) for r in above)
        into = median(peak_of(r.in_pool_usage_ratio) for r in receiver)
        below = highest((median(peak_of(r.busy_ratio) for r in receiver), held(edge.target)))
        if out is None or into is None or below is None:
            continue
        is_idle = into <= POOL_EMPTY_RATIO and below < BACKPRESSURED_HIGH_RATIO
        if out >= POOL_FULL_RATIO and is_idle:
            return _Hop(edge, out, into, back, situation.drain_bytes_per_ms.get(edge.target))
    return None


def _period_ms(situation: Situation) -> int:
    """Return the period of debloating: what the cluster sets, or else the default of the version."""
    version, default = version_of(situation.version), None
    if situation.engine.is_flink_release and version is not None:
        option = flink_options.option(_PERIOD_KEY, flink_options.nearest(version[:2]))
        default = option.default if option is not None else None
    text = cluster_setting(situation, _PERIOD_KEY) or default
    ms = flink_options.duration_ms(text) if text is not None else None
    return _PERIOD_MS if ms is None else max(2, ms)


def _more_buffers(situation: Situation, hop: _Hop) -> Recommendation | NoAdvice:
    source, target = situation.name(hop.edge.source), situation.name(hop.edge.target)
    text = f"{source} waits for buffers while {target} is idle: the network between them is the limit, or its credit"
    topology = situation.evidence.topology
    below, above = topology.vertex(hop.edge.target), topology.vertex(hop.edge.source)
    if situation.engine.settings.floating_buffers is None or hop.bytes_per_ms is None or below is None or above is None:
        return _silence("R-NET-1", text)
    reported = cluster_setting(situation, _FLOATING_KEY)
    floating = int(reported) if reported is not None and reported.isdecimal() else _FLOATING
    each = hop.bytes_per_ms / below.parallelism
    needed = each * ROUND_TRIP_MS / SEGMENT_BYTES
    there = above.parallelism * _EXCLUSIVE + floating
    if needed <= there:
        enough = f"{text}. The {there} buffers of a subtask suffice for {say.size(each * 1000)}/s"
        return _silence("R-BUF-1", enough)
    wanted = floating + 1
    while above.parallelism * _EXCLUSIVE + wanted < needed:
        wanted *= 2
    made = Proposal(
        topic=Topic.BUFFERS,
        rules=("R-BUF-1", "R-NET-1"),
        direction="more",
        headline=f"Give each gate {wanted} floating buffers instead of {floating}",
        reason=(
            f"{capitalised(text)}. At {say.size(each * 1000)}/s a subtask needs {needed:.0f} buffers and has {there}."
        ),
        current=Setting(floating_buffer_count=floating),
        proposed=Setting(floating_buffer_count=wanted),
        evidence=(
            EvidenceRow(
                "output buffers in use",
                "outPoolUsage",
                Basis.MEASURED,
                hop.out_usage,
                "ratio",
                vertex=source,
                since=situation.since,
                until=situation.until,
            ),
            EvidenceRow(
                "input buffers in use",
                "inPoolUsage",
                Basis.MEASURED,
                hop.in_usage,
                "ratio",
                vertex=target,
                since=situation.since,
                until=situation.until,
            ),
        ),
        unpredicted=("no prediction of the throughput: the round trip of the network is not measured",),
        confidence=Confidence.LOW,
        confidence_reason="the round trip of a buffer is taken to be 1 ms",
        risks=("more data is in flight, and aligned barriers wait longer under back-pressure",),
        will_not_cure=("a network that is slow by itself",),
        withdrawn_if=(f"{target} becomes busy",),
    )
    return proposal(situation.engine, made, situation.ids)
