"""The vertices of a model: service times, sources, and the records that each emits for one that it reads.

Counts and busy times of the subtasks show them (``flows``). The parts of snapshots come from checkpoints
(``snapshots``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.advisor.twin.model import snapshots
from backend.advisor.twin.model.bursts import Bursts, bursts_of, period_of
from backend.advisor.twin.model.flows import VertexFlow
from backend.advisor.twin.model.input_shares import InputShares
from backend.advisor.twin.model.model import SourceModel, StoreModel, VertexModel
from backend.advisor.twin.model.observed import ObservedJob
from backend.analysis.numbers.arrays import Floats
from backend.analysis.words import sentences as say
from backend.domain.ids import VertexId
from backend.domain.topology import Vertex

_HELD_RATIO, _ALWAYS_HELD_RATIO = 0.5, 0.9
_WAITING_BUSY, _NEVER_IDLE = 0.2, 0.95


def service_times(job: ObservedJob) -> dict[VertexId, Floats]:
    """Return the microseconds that each subtask of each vertex needs for a record."""
    found: dict[VertexId, Floats] = {}
    for vertex in job.topology.vertices:
        flow = job.flows[vertex.id]
        service, is_measured = flow.service_us(is_source=job.is_source(vertex.id))
        found[vertex.id] = service = _without_waits(job, vertex, flow, service)
        if not is_measured:
            job.assume(
                f"service time of {vertex.name}",
                f"at most {float(service.max()):.3g} us for a record",
                "its subtasks were never busy enough to measure it",
            )
    return found


def _without_waits(job: ObservedJob, vertex: Vertex, flow: VertexFlow, service: Floats) -> Floats:
    """Return the service times of a source without the time that it waits for its next record.

    A source that waits inside its own code counts as busy. If a source is never idle and not held back, its busy
    time is assumed to be such a wait, except for a tenth.
    """
    busy, held = float(np.nan_to_num(flow.busy).mean()), float(np.nan_to_num(flow.backpressured).mean())
    if not job.is_source(vertex.id) or busy < _WAITING_BUSY or busy + held < _NEVER_IDLE:
        return service
    job.assume(
        f"service time of {vertex.name}",
        f"a tenth of its busy time, {float(service.mean()) / 10:.3g} us for a record",
        "it is never idle, so its busy time seems to contain the wait for its next record",
    )
    return service / 10


class VertexModels:
    """Models the vertices of a job. What it has to assume is added to the job's assumptions.

    ``services`` is what ``service_times`` returns. ``has_callback`` is whether a vertex has long callbacks, which then
    explain what would otherwise count as bursts of a source. ``bursts`` are those of the sources modelled so far.
    """

    def __init__(
        self,
        job: ObservedJob,
        store: StoreModel,
        shares: InputShares,
        services: Mapping[VertexId, Floats],
        *,
        has_callback: bool,
    ) -> None:
        self._job = job
        self._store = store
        self._shares = shares
        self._services = services
        self._has_callback = has_callback
        self.bursts: dict[VertexId, Bursts] = {}

    def vertex(self, vertex: Vertex, slow: Floats | None) -> VertexModel:
        """Return the model of a vertex. ``slow`` has how much slower the host of each subtask is, if that shows."""
        job, flow = self._job, self._job.flows[vertex.id]
        snapshot = snapshots.parts_of(job.recorded, job.hung, vertex.id, self._store, job.topology, job.evidence.config)
        is_source = job.is_source(vertex.id)
        shares, guessed = self._shares.of(vertex, flow)
        return VertexModel(
            id=vertex.id,
            name=vertex.name,
            service_us=tuple(self._services[vertex.id].tolist()),
            input_shares=tuple(shares.tolist()),
            output_ratio=self._output_ratio(vertex.id, flow, is_source=is_source),
            source=self._source(vertex, flow) if is_source else None,
            sync_ms=snapshot.sync_ms,
            async_fixed_ms=snapshot.async_fixed_ms,
            upload_bytes=snapshot.upload_bytes,
            state_bytes=snapshot.state_bytes,
            state_growth_bytes_per_s=snapshots.growth_bytes_per_s(job.recorded, vertex.id),
            slow_host_factors=() if slow is None else tuple(slow.tolist()),
            max_parallelism=vertex.max_parallelism,
            share_guesses=tuple(tuple(of.tolist()) for of in guessed),
        )

    def _source(self, vertex: Vertex, flow: VertexFlow) -> SourceModel:
        held = float(np.nan_to_num(flow.backpressured).mean())
        rate = float(np.nansum(flow.records_out))
        # A source that is back-pressured because a vertex is always full has more input than the vertex can read. If no
        # vertex is always full, bursts cause the back-pressure, and the source catches up between them.
        is_full = any(f.full.any() for f in self._job.flows.values())
        if held >= _ALWAYS_HELD_RATIO or (held >= _HELD_RATIO and is_full):
            self._job.assume(
                f"rate of {vertex.name}",
                "as fast as it can",
                f"it was back-pressured for {say.percent(held)} of the time,"
                f" so its input grows by at least {rate:.0f}/s",
            )
            return SourceModel(rate_per_s=None)
        below = [self._job.flows[w] for w in self._job.topology.downstream(vertex.id)]
        bursts = None if self._has_callback else bursts_of(flow, below, self._period_ms())
        if bursts is None:
            return SourceModel(rate_per_s=rate)
        self.bursts[vertex.id] = bursts
        return SourceModel(
            rate_per_s=rate, burst_period_ms=bursts.period_ms, burst_ratio=bursts.ratio, burst_factor=bursts.factor
        )

    def _period_ms(self) -> float | None:
        """Return the period in which the checkpoints repeat: their durations, or what they persist."""
        headers = [r.checkpoint.header for r in self._job.recorded]
        if len(headers) < 2:
            return None
        apart_ms = (headers[-1].triggered_at - headers[0].triggered_at).total_seconds() * 1000 / (len(headers) - 1)
        rows = ([h.end_to_end_duration_ms for h in headers], [h.persisted_bytes for h in headers])
        for row in rows:
            known = [float(v) for v in row if v is not None]
            period_ms = period_of(known, apart_ms) if len(known) == len(headers) else None
            if period_ms is not None:
                return period_ms
        return None

    def _output_ratio(self, vertex: VertexId, flow: VertexFlow, *, is_source: bool) -> float:
        """Return the records emitted on each output for one record read.

        A sender counts the sum over its outputs. With several outputs, the counts of receivers with a single input are
        therefore preferred. A receiver with a queue is the exception if it is the only one: records that enter or leave
        its queue would distort its count, so the sender's own count is used. A receiver without a queue reads what it
        is sent, and its own count also agrees with its busy time.
        """
        below = self._job.topology.downstream(vertex)
        if not below:
            return 0.0
        if is_source:
            return 1.0
        taken = float(np.nansum(flow.records_in))
        if taken <= 0:
            return 1.0
        if len(below) == 1 and flow.out_per_in > 0 and self._job.flows[below[0]].is_held.any():
            return flow.out_per_in
        single = [
            w for w in below if len(self._job.topology.upstream(w)) == 1 and not self._job.is_broadcast(vertex, w)
        ]
        if single:
            ratios = [float(np.nansum(self._job.flows[w].records_in)) / taken for w in single]
        else:
            ratios = [float(np.nansum(flow.records_out)) / taken / len(below)]
        if max(ratios) > 1.2 * min(ratios) + 1e-9:
            self._job.assume(
                f"records of {self._job.name(vertex)} on each output",
                f"{sum(ratios) / len(ratios):.3g} for one record read",
                "its outputs differ, and the model has one value for all of them",
            )
        return sum(ratios) / len(ratios)
