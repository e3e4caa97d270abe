"""Builds the JSON of metrics of the live runtime, with the names, units and formats of Flink 1.20.

A vertex has the metrics that the runtime measures, which are a subset of Flink's. As in Flink, values of one subtask
are strings, and aggregates over subtasks are numbers. If a request for aggregates names a metric that no subtask has,
the response is empty. An aggregate that is not a number is left out (flink-baseline.md, "Metrics endpoints"). The
functions have no side effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

from backend.contracts.flink import NAN_TEXT
from backend.live.view import GateView, JobView, RatesView, SubtaskView, VertexView
from backend.live.wire import Json, Object, quantile

Value = int | float | bool
_AGGREGATES = ("min", "max", "avg", "sum", "skew")
# Flink reports no higher skew. A real cluster reported 100.0 for a set of values of which half are zero.
_SKEW_MAX = 100.0

_GAUGES: Mapping[str, Callable[[SubtaskView], Value]] = {
    "busyTimeMsPerSecond": lambda s: math.nan if s.busy_ms_per_s is None else float(s.busy_ms_per_s),
    "idleTimeMsPerSecond": lambda s: s.idle_ms_per_s,
    "backPressuredTimeMsPerSecond": lambda s: s.soft_backpressured_ms_per_s + s.hard_backpressured_ms_per_s,
    "softBackPressuredTimeMsPerSecond": lambda s: s.soft_backpressured_ms_per_s,
    "hardBackPressuredTimeMsPerSecond": lambda s: s.hard_backpressured_ms_per_s,
    "maxSoftBackPressureTimeMs": lambda s: s.longest_soft_us // 1000,
    "maxHardBackPressureTimeMs": lambda s: s.longest_hard_us // 1000,
    "accumulateBusyTimeMs": lambda s: math.nan if s.busy_us is None else float(s.busy_us // 1000),
    "accumulateIdleTimeMs": lambda s: s.idle_us // 1000,
    "accumulateBackPressuredTimeMs": lambda s: s.backpressured_us // 1000,
    "isBackPressured": lambda s: s.soft_backpressured_ms_per_s + s.hard_backpressured_ms_per_s > 0,
    "numRecordsIn": lambda s: s.records_in,
    "numRecordsOut": lambda s: s.records_out,
    "numBytesIn": lambda s: s.bytes_in,
    "numBytesOut": lambda s: s.bytes_out,
    "mailboxQueueSize": lambda s: s.mailbox_size,
    # The value has the resolution of whole milliseconds, although its unit is nanoseconds.
    "checkpointStartDelayNanos": lambda s: s.start_delay_gauge_us // 1000 * 1_000_000,
}
_QUANTILES = {"median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


def _rate(value: Callable[[RatesView], float]) -> Callable[[SubtaskView], Value]:
    return lambda s: 0.0 if s.rates is None else value(s.rates)


def _wait_ms(value: Callable[[Sequence[int]], float]) -> Callable[[SubtaskView], Value]:
    return lambda s: value(s.mail_waits_us) / 1000 if s.mail_waits_us else 0.0


def _quantile(q: float) -> Callable[[Sequence[int]], float]:
    return lambda row: quantile(row, q)


_RATES: Mapping[str, Callable[[SubtaskView], Value]] = {
    "numRecordsInPerSecond": _rate(lambda r: r.records_in),
    "numRecordsOutPerSecond": _rate(lambda r: r.records_out),
    "numBytesInPerSecond": _rate(lambda r: r.bytes_in),
    "numBytesOutPerSecond": _rate(lambda r: r.bytes_out),
    "numBuffersOut": lambda s: s.buffers_out,
    "numBuffersOutPerSecond": _rate(lambda r: r.buffers_out),
    "numFiredTimers": lambda s: s.fired_timers,
    "numFiredTimersPerSecond": _rate(lambda r: r.fired_timers),
    "mailboxMailsPerSecond": _rate(lambda r: r.mails),
    "mailboxLatencyMs_mean": _wait_ms(fmean),
    "mailboxLatencyMs_stddev": _wait_ms(pstdev),
    **{f"mailboxLatencyMs_{name}": _wait_ms(_quantile(q)) for name, q in _QUANTILES.items()},
}
# Flink counts buffers from local channels and buffers from the network separately.
_BUFFERS_IN: Mapping[str, Callable[[SubtaskView], Value]] = {
    "numBuffersInLocal": lambda s: s.buffers_in - s.buffers_in_remote,
    "numBuffersInLocalPerSecond": _rate(lambda r: r.buffers_in - r.buffers_in_remote),
    "numBuffersInRemote": lambda s: s.buffers_in_remote,
    "numBuffersInRemotePerSecond": _rate(lambda r: r.buffers_in_remote),
}
_INPUT_ONLY: Mapping[str, Callable[[SubtaskView], Value]] = {
    "checkpointAlignmentTime": lambda s: s.alignment_gauge_us * 1000,
}
_IN_BUFFERS: Mapping[str, Callable[[SubtaskView], Value]] = {
    "inPoolUsage": lambda s: s.in_exclusive_usage_ratio + s.in_floating_usage_ratio,
    "inputExclusiveBuffersUsage": lambda s: s.in_exclusive_usage_ratio,
    "inputFloatingBuffersUsage": lambda s: s.in_floating_usage_ratio,
    "inputQueueLength": lambda s: s.in_queue_buffers,
    "inputQueueSize": lambda s: s.in_queue_bytes,
}
# These metrics exist for each gate if buffer debloating is on, as Flink's SingleInputGateFactory registers them.
_GATE: Mapping[str, Callable[[GateView], Value]] = {
    "debloatedBufferSize": lambda g: g.debloated_buffer_bytes,
    "estimatedTimeToConsumeBuffersMs": lambda g: g.time_to_consume_ms,
}
# Flink counts the failed commits of a sink, and not the rows that they held. Its names have the operator's as a prefix.
_SINK_ONLY: Mapping[str, Callable[[SubtaskView], Value]] = {
    "failedCommittables": lambda s: 0 if s.lost is None else s.lost[0],
    "numRecordsLost": lambda s: 0 if s.lost is None else s.lost[1],
}
_OUT_BUFFERS: Mapping[str, Callable[[SubtaskView], Value]] = {
    "outPoolUsage": lambda s: s.out_pool_usage_ratio,
    "outputQueueLength": lambda s: s.out_queue_buffers,
    "outputQueueSize": lambda s: s.out_queue_bytes,
}


def _named() -> tuple[Mapping[str, Callable[[SubtaskView], Value]], Mapping[str, Callable[[SubtaskView], Value]]]:
    everywhere = {**_GAUGES, **_RATES}
    for names, side in ((_IN_BUFFERS, "Input"), (_OUT_BUFFERS, "Output")):
        for name, value in names.items():
            # Flink 1.20 has both names. Flink 2.x has only the second one.
            everywhere[f"buffers.{name}"] = value
            everywhere[f"Shuffle.Netty.{side}.Buffers.{name}"] = value
    for name, value in _BUFFERS_IN.items():
        everywhere[name] = value
        everywhere[f"Shuffle.Netty.Input.{name}"] = value
    return everywhere, {**everywhere, **_INPUT_ONLY}


_SOURCE_METRICS, _METRICS = _named()


def vertex_metrics(vertex: VertexView, get: Sequence[str] | None) -> list[Json]:
    """Return the JSON of ``/vertices/:vid/metrics``: single metrics of subtasks, with ids ``<subtask>.<name>``.

    Without ``get``, return only the ids of all metrics.
    """
    metrics = _of(vertex)
    if get is None:
        return [{"id": f"{n}.{name}"} for n in range(len(vertex.subtasks)) for name in metrics]
    found: list[Json] = []
    for asked in get:
        index, _, name = asked.partition(".")
        if name in metrics and index.isascii() and index.isdecimal() and int(index) < len(vertex.subtasks):
            found.append({"id": asked, "value": _print(metrics[name](vertex.subtasks[int(index)]))})
    return found


def aggregated_metrics(vertex: VertexView, get: Sequence[str] | None, aggregates: Sequence[str]) -> list[Json]:
    """Return the JSON of ``/vertices/:vid/subtasks/metrics``: aggregates of metrics over the subtasks.

    Without ``get``, return only the names of all metrics.
    """
    metrics = _of(vertex)
    if get is None:
        return [{"id": name} for name in metrics]
    if any(name not in metrics for name in get):
        return []
    found: list[Json] = []
    for name in get:
        values = [metrics[name](s) for s in vertex.subtasks]
        numbers = [float(v) for v in values if not math.isnan(v)]
        if numbers and not isinstance(values[0], bool):
            row = _aggregate(numbers)
            found.append({"id": name} | {a: row[a] for a in _AGGREGATES if not aggregates or a in aggregates})
    return found


def job_metrics(view: JobView, get: Sequence[str] | None) -> list[Json]:
    """Return the JSON of ``/jobs/:id/metrics``. Without ``get``, return only the names. Unknown names are left out."""
    values = _job_values(view)
    if get is None:
        return [{"id": name} for name in values]
    return [{"id": name, "value": values[name]} for name in get if name in values]


def _of(vertex: VertexView) -> Mapping[str, Callable[[SubtaskView], Value]]:
    if not vertex.inputs:
        return _SOURCE_METRICS
    gates = max((len(s.gates) for s in vertex.subtasks), default=0)
    of_sink = _SINK_ONLY if any(s.lost is not None for s in vertex.subtasks) else {}
    return {**_METRICS, **_gate_metrics(gates), **of_sink} if gates or of_sink else _METRICS


def _gate_metrics(gates: int) -> dict[str, Callable[[SubtaskView], Value]]:
    def of_gate(index: int, value: Callable[[GateView], Value]) -> Callable[[SubtaskView], Value]:
        return lambda s: value(s.gates[index]) if index < len(s.gates) else 0

    return {f"Shuffle.Netty.Input.{i}.{name}": of_gate(i, value) for i in range(gates) for name, value in _GATE.items()}


def _print(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return NAN_TEXT if math.isnan(value) else str(value)


def _aggregate(values: Sequence[float]) -> Object:
    total = sum(values)
    mean = total / len(values)
    deviation = sum(abs(v - mean) for v in values) / len(values)
    skew = 0.0 if mean == 0 else min(_SKEW_MAX, 100.0 * deviation / mean)
    return {"min": min(values), "max": max(values), "avg": mean, "sum": total, "skew": skew}


def _job_values(view: JobView) -> dict[str, str]:
    counts = view.counts
    last = view.latest_completed
    figures = view.completed[-1] if view.completed else None
    ended_us = view.now_us if view.ended_at_us is None else view.ended_at_us
    numbers = {
        "lastCheckpointDuration": -1 if figures is None else figures.end_to_end_ms,
        "lastCheckpointSize": -1 if figures is None else figures.checkpointed_bytes,
        "lastCheckpointFullSize": -1 if figures is None else figures.state_bytes,
        "lastCheckpointProcessedData": -1 if figures is None else figures.processed_bytes,
        "lastCheckpointPersistedData": -1 if figures is None else figures.persisted_bytes,
        "lastCompletedCheckpointId": -1 if last is None else last.id,
        "lastCheckpointRestoreTimestamp": -1 if view.restored_at_us is None else view.epoch_ms(view.restored_at_us),
        "numberOfInProgressCheckpoints": counts.in_progress,
        "numberOfCompletedCheckpoints": counts.completed,
        "numberOfFailedCheckpoints": counts.failed,
        "totalNumberOfCheckpoints": counts.total,
        "numRestarts": view.restarts,
        "fullRestarts": view.restarts,
        "uptime": (ended_us - view.began_at_us) // 1000,
        "numRecordsLost": view.lost_rows,
        "numRecordsPastTransactionTimeout": view.overdue_rows,
    }
    path = None if last is None else last.external_path
    return {name: str(number) for name, number in numbers.items()} | {"lastCheckpointExternalPath": path or "n/a"}
