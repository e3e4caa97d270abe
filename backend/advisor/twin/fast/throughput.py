"""Counts what the job of a fast simulation has processed, from which its throughput follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from backend.advisor.twin.fast.tables import Floats, Sim
from backend.advisor.twin.model.model import EdgeModel, JobModel, Partitioning
from backend.advisor.twin.model.rates import throughput_of


class Passed:
    """Counts the records of all sources that the job has processed, or of which the input has become due."""

    def __init__(self, model: JobModel, sim: Sim, channel_counts: Sequence[int]) -> None:
        """``channel_counts`` are the channels of each edge."""
        self._sim = sim
        self._weights: Floats | None = None
        if any(v.source is not None and v.source.rate_per_s is None for v in model.vertices):
            self._weights = np.repeat(_source_records_per_byte(model), channel_counts)

    def records(self) -> float:
        """Return the records up to now, minus those that had become due."""
        surplus = _surplus(self._sim)
        if self._weights is not None:
            channels = self._sim.channels
            surplus -= float((self._weights * (channels["queued_bytes"] + channels["remote_bytes"])).sum())
        return surplus


def _source_records_per_byte(model: JobModel) -> list[float]:
    """Return for each edge how many records of the sources a byte on it stands for; 0 if nothing flows there.

    Only the sources above an edge count for it. If a vertex has several outputs, a record of a source is divided evenly
    between them, so that it is counted once and not once for each output.
    """
    records = throughput_of(model).records_per_s
    sources = {v.id: records[v.id] if v.source is not None else 0.0 for v in model.vertices}
    records_per_byte = [0.0] * len(model.edges)
    # The vertices are in the order of the flow.
    for vertex in model.vertices:
        outputs = [(n, e) for n, e in enumerate(model.edges) if e.source == vertex.id]
        for number, edge in outputs:
            share = sources[vertex.id] / len(outputs)
            sources[edge.target] += share
            emitted = records[vertex.id] * _emitted_ratio(model, edge)
            records_per_byte[number] = share / emitted / max(1.0, edge.record_bytes) if emitted > 0 else 0.0
    return records_per_byte


def _emitted_ratio(model: JobModel, edge: EdgeModel) -> float:
    """Return how many records an edge gets for one record that its source reads (of a source: emits)."""
    target = model.vertex(edge.target)
    copies = target.parallelism if edge.partitioning is Partitioning.BROADCAST else 1
    return model.vertex(edge.source).output_ratio * copies


def _surplus(sim: Sim) -> float:
    """Return the records that all sources have emitted, minus those that had become due.

    A source without a rate has none due. In the steady state of a rate, this does not depend on the phase of bursts.
    """
    tasks, now = sim.subtasks, float(sim.state.now_ms)
    period = tasks["burst_period_ms"]
    is_bursty = period > 0
    share = np.where(is_bursty, now / np.where(is_bursty, period, 1.0) % 1.0, 0.0)
    ratio = tasks["burst_ratio"]
    high = np.minimum(ratio * tasks["burst_factor"], 1.0)
    burst = np.where(ratio > 0, np.minimum(share / np.maximum(ratio, 1e-9), 1.0) * high, 0.0)
    calm = np.where(ratio < 1, np.maximum(share - ratio, 0.0) / np.maximum(1.0 - ratio, 1e-9) * (1.0 - high), 0.0)
    due = np.where(is_bursty, now - share * period + (burst + calm) * period, now) * tasks["source_per_ms"]
    return float((tasks["emitted_records"] - due)[tasks["is_source"]].sum())
