"""The exchanges between vertices in a model: how records are distributed, their size, and the buffers of the network.

The buffers follow from the cluster's configuration. If it is not known, the content of full queues shows them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from backend.advisor.twin.model.buffers import reported_buffers
from backend.advisor.twin.model.flows import pool_size_of
from backend.advisor.twin.model.model import EdgeModel, NetworkModel, Partitioning
from backend.advisor.twin.model.observed import ObservedJob
from backend.domain.ids import VertexId

_HELD_RATIO: Final = 0.5
_SEGMENT_MIN_BYTES, _SEGMENT_MAX_BYTES = 4096, 1 << 20
_FILLED_RATIO: Final = 0.8
"""The usual content of a full buffer pool, as a share of its segments: buffers are flushed before they are full."""
_BUFFERS_SENT_MIN: Final = 4
_PARTITIONINGS: Final = {
    "HASH": Partitioning.HASH,
    "REBALANCE": Partitioning.REBALANCE,
    "SHUFFLE": Partitioning.REBALANCE,
    "RESCALE": Partitioning.RESCALE,
    "FORWARD": Partitioning.FORWARD,
    "BROADCAST": Partitioning.BROADCAST,
}


class ExchangeModels:
    """Models the network and the exchanges of a job. What it has to assume is added to the job's assumptions."""

    def __init__(self, job: ObservedJob) -> None:
        self._job = job

    def network(self) -> NetworkModel:
        """Return the buffers of the network, and how many of its channels are between task managers."""
        default = NetworkModel()
        config = self._job.evidence.config
        assert config is not None
        network = replace(
            default,
            debloat_target_ms=None if config.debloat_target_ms is None else float(config.debloat_target_ms),
            is_remote_ratio=self._remote_ratio(),
        )
        if self._job.evidence.cluster_settings is not None:
            return reported_buffers(network, dict(self._job.evidence.cluster_settings), self._job.version)
        if network.debloat_target_ms is not None:
            self._job.assume("buffers", "32 kB, 2 a channel and 8 a gate", "with debloating, queues do not show them")
            return network
        observed_buffers = self._observed_buffers(default)
        if observed_buffers is None:
            self._job.assume(
                "buffers", "32 kB, 2 a channel and 8 a gate", "Flink's defaults; no full queue contradicts"
            )
            return network
        self._job.assume(
            "buffers",
            f"{observed_buffers.segment_bytes} bytes, {observed_buffers.exclusive_buffers_per_channel} a channel and"
            f" {observed_buffers.floating_buffers_per_gate} a gate",
            "the content of the full queues, and the steps in which the usage of their pools changes",
        )
        return replace(
            network,
            segment_bytes=observed_buffers.segment_bytes,
            exclusive_buffers_per_channel=observed_buffers.exclusive_buffers_per_channel,
            floating_buffers_per_gate=observed_buffers.floating_buffers_per_gate,
        )

    def edge(self, source: VertexId, target: VertexId, strategy: str | None) -> EdgeModel:
        """Return the model of an exchange. ``strategy`` is how the engine says that records are distributed."""
        partitioning = _PARTITIONINGS.get((strategy or "").upper())
        if partitioning is None:
            partitioning = Partitioning.HASH
            self._job.assume(
                f"exchange from {self._job.name(source)} to {self._job.name(target)}",
                "records are distributed by the observed shares",
                f"the engine reports {strategy or 'no strategy'}",
            )
        flow = self._job.flows[target]
        count, size = float(np.nansum(flow.records_in)), float(np.nansum(flow.bytes_in))
        if count > 0 and size > 0:
            record_bytes = size / count
            if len(self._job.topology.upstream(target)) > 1:
                self._job.assume(
                    f"size of the records from {self._job.name(source)} to {self._job.name(target)}",
                    f"{record_bytes:.0f} bytes",
                    "the engine counts the bytes of all inputs together",
                )
        else:
            record_bytes = 100.0
            self._job.assume(
                f"size of the records from {self._job.name(source)} to {self._job.name(target)}",
                "100 bytes",
                "no record passed between the readings",
            )
        return EdgeModel(source=source, target=target, partitioning=partitioning, record_bytes=record_bytes)

    def _observed_buffers(self, default: NetworkModel) -> NetworkModel | None:
        """Return buffers that explain the content of full pools; None if the defaults explain it or no pool is full.

        Each checkpoint ends the current buffer of every channel, and flushed buffers are read before they are full. So
        channels with little data have buffers with little content, which say nothing of their size.
        """
        config = self._job.evidence.config
        interval_ms = float((config.interval_ms if config is not None else None) or 0)
        for vertex in self._job.topology.vertices:
            flow = self._job.flows[vertex.id]
            below = self._job.topology.downstream(vertex.id)
            if len(below) != 1 or np.nanmax(flow.backpressured, initial=0.0) < _HELD_RATIO:
                continue
            after = self._job.topology.vertex(below[0])
            if after is None or self._job.is_pointwise(vertex.id, below[0]):
                continue
            channels = after.parallelism
            sent = float(np.nansum(self._job.flows[after.id].bytes_in)) / flow.busy.size / channels
            if sent * interval_ms / 1000 < _BUFFERS_SENT_MIN * default.segment_bytes:
                continue
            expected = default.exclusive_buffers_per_channel * channels + default.floating_buffers_per_gate
            buffers = pool_size_of(flow.pool_usages, expected) or expected
            full = float(np.nanmax(flow.queued_out, initial=0.0))
            if full <= 0:
                continue
            segment = full / (_FILLED_RATIO * buffers)
            size = int(
                2 ** np.clip(np.round(np.log2(segment)), np.log2(_SEGMENT_MIN_BYTES), np.log2(_SEGMENT_MAX_BYTES))
            )
            if size == default.segment_bytes and buffers == expected:
                return None
            exclusive = min(2, max(1, (buffers - 1) // channels))
            floating = max(1, buffers - exclusive * channels)
            return replace(
                default,
                segment_bytes=size,
                exclusive_buffers_per_channel=exclusive,
                floating_buffers_per_gate=floating,
            )
        return None

    def _remote_ratio(self) -> float:
        places = {p.vertex_id: p.task_managers for p in self._job.evidence.placements}
        pairs = remote = 0
        for edge in self._job.topology.edges:
            above, below = places.get(edge.source, ()), places.get(edge.target, ())
            if self._job.is_pointwise(edge.source, edge.target):
                below = below[: len(above)]
            for sender in above:
                for receiver in below:
                    if sender is not None and receiver is not None:
                        pairs += 1
                        remote += sender != receiver
        if not pairs:
            self._job.assume("channels between task managers", "none", "the engine does not report where subtasks run")
        return remote / pairs if pairs else 0.0
