"""The quickest tier: closed forms CM-1 to CM-9 of the specification, on the steady state of a model.

They screen settings. They do not know which channels are full and which are empty, so they are a bound for aligned
checkpoints under backpressure and not more.
"""

from __future__ import annotations

import numpy as np

from backend.advisor.twin.model.model import EdgeModel, JobModel, Partitioning, VertexModel
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.rates import Throughput, buffer_bytes, channel_count, throughput_of
from backend.domain.advice import Mode
from backend.domain.ids import VertexId

_UNEVEN_FACTOR = 1.02


def simulate(model: JobModel) -> Simulated:
    """Return one checkpoint: the one that the closed forms expect in the steady state."""
    flow = throughput_of(model)
    aligned = _barrier_ms(model, flow)
    steps = _step_ms(model)
    settings = model.settings
    overtakes = settings.mode is not Mode.ALIGNED
    timeout_ms = (settings.aligned_timeout_ms or 0.0) if overtakes else None
    last = {v: aligned[v] for v in aligned}
    persisted: dict[VertexId, float] = {v.id: 0.0 for v in model.vertices}
    latest = max(aligned.values())
    if timeout_ms is not None and settings.inflight_cap_bytes is not None:
        timeout_ms = latest * _over_cap(model, flow, settings.inflight_cap_bytes)
    if timeout_ms is not None and latest > timeout_ms:
        last = {v: min(aligned[v], timeout_ms + steps[v]) for v in aligned}
        left = (latest - timeout_ms) / latest
        for edge in _held(model, flow):
            persisted[edge.source] += left * buffer_bytes(model, edge)
    trigger = model.trigger_delay_ms.value
    ends = []
    for vertex in model.vertices:
        sync = max(vertex.sync_ms, default=0.0)
        own = persisted[vertex.id] / vertex.parallelism
        ends.append(trigger + last[vertex.id] + sync + _written_ms(model, vertex, own))  # CM-3, CM-4
    duration = max(ends)
    is_expired = duration >= settings.timeout_ms
    total = sum(persisted.values())
    uploads = sum(sum(v.upload_bytes) for v in model.vertices)
    checkpoint = SimulatedCheckpoint(
        checkpoint_id=1,
        triggered_ms=0.0,
        duration_ms=settings.timeout_ms if is_expired else duration,
        is_expired=is_expired,
        persisted_bytes=total,
        checkpointed_bytes=uploads + total,
        travel_ms=trigger + max(last.values()),
        alignment_ms=0.0,
        sync_ms=max((max(v.sync_ms, default=0.0) for v in model.vertices), default=0.0),
    )
    emitted = sum(flow.records_per_s[v.id] for v in model.vertices if v.source is not None)
    return Simulated(tier=Tier.FORMULAS, seed=0, checkpoints=(checkpoint,), records_per_s=emitted)


def _written_ms(model: JobModel, vertex: VertexModel, persisted: float) -> float:
    fixed = max(vertex.async_fixed_ms, default=0.0)
    written = max(vertex.upload_bytes, default=0.0) + persisted
    return fixed + (model.store.latency_ms if written else 0.0) + written / model.store.bytes_per_ms


def _over_cap(model: JobModel, flow: Throughput, cap_bytes: float) -> float:
    """Return the share of the full buffers that must drain before the rest fits the cap (CAP-3)."""
    held = _held(model, flow)
    own = [sum(buffer_bytes(model, e) for e in held if e.source == v.id) / v.parallelism for v in model.vertices]
    return max(0.0, 1 - cap_bytes / max(own)) if any(own) else 0.0


def _held(model: JobModel, flow: Throughput) -> list[EdgeModel]:
    """Return the edges whose queues are full: those on a way to the vertex that limits the sources."""
    if flow.bottleneck is None:
        return []
    above = {flow.bottleneck}
    for edge in reversed(model.edges):
        if edge.target in above:
            above.add(edge.source)
    return [e for e in model.edges if e.target in above]


def _barrier_ms(model: JobModel, flow: Throughput) -> dict[VertexId, float]:
    """Return when the last barrier reaches each vertex, in milliseconds after the sources emit it (CM-1)."""
    held = _held(model, flow)
    barrier_ms: dict[VertexId, float] = {}
    for vertex in model.vertices:
        barrier_ms[vertex.id] = 0.0
        for edge in model.edges:
            if edge.target == vertex.id:
                # Full queues drain; otherwise a barrier waits behind what its sender flushed together.
                wait = _drain_ms(model, flow, edge) if edge in held else flow.use_ratio * model.network.flush_ms
                half = max(vertex.service_us) / 2000 + _callback_wait_ms(vertex)
                barrier_ms[vertex.id] = max(barrier_ms[vertex.id], barrier_ms[edge.source] + wait + half)
    return barrier_ms


def _drain_ms(model: JobModel, flow: Throughput, edge: EdgeModel) -> float:
    """Return how long the fullest receiver of an edge needs to read the full buffers in front of it."""
    vertex = model.vertex(edge.target)
    senders, channels = channel_count(model, edge)
    use = np.asarray(vertex.service_us) * np.asarray(vertex.input_shares)
    fullest = int(use.argmax())
    network = model.network
    pool = network.exclusive_buffers_per_channel * channels + network.floating_buffers_per_gate
    if edge.partitioning in (Partitioning.FORWARD, Partitioning.RESCALE):
        buffers = float(min(pool, network.max_buffers_per_channel))
    elif use[fullest] > _UNEVEN_FACTOR * float(np.median(use)):
        # The channels to the fullest receiver fill to their limit.
        buffers = float(senders * min(pool, network.max_buffers_per_channel))
    else:
        buffers = senders * pool / vertex.parallelism
    rate = flow.records_per_s[edge.target] * vertex.input_shares[fullest] * edge.record_bytes / 1000
    if rate <= 0:
        return 0.0
    drained = buffers * network.segment_bytes * (1.0 + network.is_remote_ratio) / rate
    return drained if network.debloat_target_ms is None else min(drained, network.debloat_target_ms)


def _step_ms(model: JobModel) -> dict[VertexId, float]:
    """Return when an overtaking barrier reaches each vertex: after one record on each exchange (CM-2)."""
    step_ms: dict[VertexId, float] = {}
    for vertex in model.vertices:
        above = [step_ms[e.source] for e in model.edges if e.target == vertex.id]
        own = max(vertex.service_us) / 1000 + _callback_wait_ms(vertex)
        step_ms[vertex.id] = max(above) + own if above else 0.0
    return step_ms


def _callback_wait_ms(vertex: VertexModel) -> float:
    """Return how long a barrier waits on average for the end of a long callback, which nothing overtakes."""
    longest, period = max(vertex.callback_ms, default=0.0), vertex.callback_period_ms
    return longest * min(longest, period) / (2 * period) if period else 0.0
