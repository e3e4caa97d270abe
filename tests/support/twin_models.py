"""Models of made-up jobs, for tests of the twin."""

from __future__ import annotations

from dataclasses import replace

from backend.advisor.advice import Interval
from backend.advisor.twin.model.model import (
    CheckpointSettings,
    EdgeModel,
    JobModel,
    NetworkModel,
    Partitioning,
    SourceModel,
    StoreModel,
    VertexModel,
)
from backend.domain.advice import Mode
from backend.domain.ids import VertexId

ALIGNED = CheckpointSettings(mode=Mode.ALIGNED, aligned_timeout_ms=None, interval_ms=3000.0, timeout_ms=600_000.0)


def vertex(name: str, parallelism: int = 4, service_us: float = 100.0, **fields: object) -> VertexModel:
    """Return a vertex whose subtasks are equal, with some fields replaced."""
    plain = VertexModel(
        id=VertexId(name),
        name=name,
        service_us=(service_us,) * parallelism,
        input_shares=(1.0 / parallelism,) * parallelism,
    )
    return replace(plain, **fields)  # type: ignore[arg-type]


def edge(source: str, target: str, partitioning: Partitioning = Partitioning.HASH) -> EdgeModel:
    """Return an exchange of records of 1000 bytes."""
    return EdgeModel(source=VertexId(source), target=VertexId(target), partitioning=partitioning, record_bytes=1000.0)


def three_vertices(
    *, rate_per_s: float | None = None, settings: CheckpointSettings = ALIGNED, parallelism: int = 4
) -> JobModel:
    """Return source -> hash -> map -> hash -> sink, in which the sink is slow: 2 ms for a record at each subtask."""
    return JobModel(
        vertices=(
            vertex("source", parallelism, source=SourceModel(rate_per_s=rate_per_s), service_us=20.0),
            vertex("map", parallelism, service_us=20.0),
            vertex("sink", parallelism, service_us=2000.0, output_ratio=0.0),
        ),
        edges=(edge("source", "map"), edge("map", "sink")),
        network=NetworkModel(),
        store=StoreModel(bytes_per_ms=50_000.0, latency_ms=5.0),
        settings=settings,
        trigger_delay_ms=Interval(5.0, 1.0, 20.0),
    )
