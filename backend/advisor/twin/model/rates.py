"""The flow that a model reaches: records per second at each vertex, its bottleneck, and what its queues can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backend.advisor.twin.model.model import EdgeModel, JobModel, Partitioning
from backend.domain.ids import VertexId


@dataclass(frozen=True, slots=True)
class Throughput:
    """The flow of a model in its steady state.

    ``records_per_s`` is what each vertex reads (a source: emits). ``bottleneck`` is the vertex whose fullest subtask
    limits the sources; None if no vertex does. ``use_ratio`` is how full this subtask is. ``queued_bytes_max`` is what
    the buffers above the bottleneck hold, and ``bytes_per_ms`` how fast the bottleneck reads it.
    """

    records_per_s: Mapping[VertexId, float]
    bottleneck: VertexId | None
    use_ratio: float
    queued_bytes_max: float
    bytes_per_ms: float

    @property
    def steps_per_ms(self) -> float:
        """The records that all vertices together process in a millisecond."""
        return sum(self.records_per_s.values()) / 1000


def throughput_of(model: JobModel) -> Throughput:
    """Return the flow of a model.

    Sources keep the ratio of their rates. A source without a rate reads as fast as the vertex that limits it allows.
    """
    weights = _weights(model)
    costs = {
        v.id: weights[v.id]
        * max(v.service_us[i] * v.input_shares[i] / (1 - v.callback_ratio(i)) for i in range(v.parallelism))
        / 1e6
        for v in model.vertices
    }
    slowest = max(costs, key=lambda v: costs[v])
    capacity = 1.0 / costs[slowest] if costs[slowest] > 0 else float("inf")
    is_unlimited = any(v.source is not None and v.source.rate_per_s is None for v in model.vertices)
    wanted = capacity if is_unlimited else 1.0
    scale = min(wanted, capacity)
    records = {v: w * scale for v, w in weights.items()}
    use = wanted / capacity if capacity != float("inf") else 0.0
    is_held = use >= 1.0
    above = _above(model, slowest)
    held = [e for e in model.edges if e.target in above] if is_held else []
    read = sum(records[slowest] * e.record_bytes / 1000 for e in model.edges if e.target == slowest)
    inputs = max(1, sum(e.target == slowest for e in model.edges))
    return Throughput(
        records_per_s=records,
        bottleneck=slowest if is_held else None,
        use_ratio=use,
        queued_bytes_max=sum(buffer_bytes(model, e) for e in held),
        bytes_per_ms=read / inputs,
    )


def channel_count(model: JobModel, edge: EdgeModel) -> tuple[int, int]:
    """Return the number of senders of an edge, and the number of channels of each sender (at least one)."""
    senders, receivers = model.vertex(edge.source).parallelism, model.vertex(edge.target).parallelism
    if edge.partitioning in (Partitioning.FORWARD, Partitioning.RESCALE):
        return senders, max(1, receivers // senders)
    return senders, receivers


def buffer_bytes(model: JobModel, edge: EdgeModel) -> float:
    """Return the bytes that the buffers of an edge hold if all are full (CM-5)."""
    network = model.network
    senders, channels = channel_count(model, edge)
    pool = network.exclusive_buffers_per_channel * channels + network.floating_buffers_per_gate
    held = min(pool, network.max_buffers_per_channel * channels)
    full = float(senders * held * network.segment_bytes)
    # A remote channel has buffers at its receiver too.
    return full * (1.0 + network.is_remote_ratio)


def _weights(model: JobModel) -> dict[VertexId, float]:
    """Return the records that each vertex reads: per second if all rates are known, else for one source record."""
    rates = {v.id: v.source.rate_per_s for v in model.vertices if v.source is not None}
    is_known = all(rate is not None for rate in rates.values())
    weights: dict[VertexId, float] = {}
    for vertex in model.vertices:
        if vertex.source is not None:
            weights[vertex.id] = (vertex.source.rate_per_s or 0.0) if is_known else 1.0 / len(rates)
            continue
        total = 0.0
        for edge in model.edges:
            if edge.target == vertex.id:
                copies = vertex.parallelism if edge.partitioning is Partitioning.BROADCAST else 1
                total += weights[edge.source] * model.vertex(edge.source).output_ratio * copies
        weights[vertex.id] = total
    return weights


def _above(model: JobModel, vertex: VertexId) -> set[VertexId]:
    """Return the vertex and every vertex from which data flows to it."""
    vertex_ids = {vertex}
    for edge in reversed(model.edges):
        if edge.target in vertex_ids:
            vertex_ids.add(edge.source)
    return vertex_ids


def phases_ms(model: JobModel, *, phases: int, has_bursts: bool = True) -> float | None:
    """Return the time between ``phases`` points of the longest period in a model: of a callback, or of bursts.

    How such a period and the checkpoints meet is not known, and may change at the next restart, so all phases are
    simulated. None if nothing has a period.
    """
    periods = [v.callback_period_ms for v in model.vertices if v.callback_period_ms]
    if has_bursts:
        periods += [v.source.burst_period_ms for v in model.vertices if v.source and v.source.burst_period_ms]
    return max(periods) / phases if periods else None


def odd_multiple_ms(interval_ms: float, apart_ms: float) -> float:
    """Return an odd multiple of ``apart_ms``, the time between two phases of a period, that is near this interval.

    If the number of phases is a power of two, checkpoints at such an interval meet all of them, one after another.
    """
    return (2 * int(interval_ms / apart_ms / 2) + 1) * apart_ms
