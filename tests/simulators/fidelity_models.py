"""The recorded scenarios as models of the twin, built from their arguments and settings alone.

``docs/evidence/runtime-against-flink.md`` describes the scenarios.
"""

from __future__ import annotations

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
from backend.runtime.job.graph import StoreSpec
from tests.simulators.fidelity import PASS_US, WARM_UP_SHARE, Scenario

AGE_MS = 90_000.0
"""How long the recorded jobs ran: 70 to 110 s."""
_STORE = StoreSpec()


def model_of(scenario: Scenario) -> JobModel:
    """Return the model of a scenario's job."""
    config, p = scenario.twin().config, scenario.parallelism
    vertices = [_vertex("source", (float(PASS_US),) * p, p, source=SourceModel(rate_per_s=_rate(scenario)))]
    edges = []
    for stage in range(1, scenario.stages + 1):
        service = [float(scenario.cost_us(stage))] * p
        service[0] *= scenario.straggling(stage)
        shares = scenario.flink_shares if stage == scenario.stages else None
        vertices.append(_vertex(f"stage-{stage}", tuple(service), p, shares=shares))
        ends = {"source": vertices[-2].id, "target": vertices[-1].id}
        edges.append(EdgeModel(**ends, partitioning=Partitioning.HASH, record_bytes=scenario.record_bytes))
    network = NetworkModel(
        segment_bytes=config.segment_bytes,
        exclusive_buffers_per_channel=config.exclusive_buffers,
        floating_buffers_per_gate=config.floating_buffers,
        max_buffers_per_channel=config.max_buffers_per_channel,
        flush_ms=config.flush_timeout_us / 1000,
        debloat_target_ms=config.debloat_target_us / 1000 if config.is_debloating else None,
        is_remote_ratio=1 - 1 / config.task_managers,
    )
    settings = CheckpointSettings(
        mode=Mode.UNALIGNED if config.is_unaligned else Mode.ALIGNED,
        aligned_timeout_ms=config.aligned_timeout_us / 1000 or None,
        interval_ms=config.interval_us / 1000,
        timeout_ms=config.timeout_us / 1000,
    )
    rpc_ms = config.rpc_latency_us / 1000
    return JobModel(
        vertices=tuple(vertices),
        edges=tuple(edges),
        network=network,
        store=StoreModel(bytes_per_ms=_STORE.bytes_per_s / 1000, latency_ms=_STORE.latency_us / 1000),
        settings=settings,
        trigger_delay_ms=Interval(rpc_ms, rpc_ms, rpc_ms),
        age_ms=AGE_MS * (1 + WARM_UP_SHARE) / 2,
    )


def _rate(scenario: Scenario) -> float | None:
    return scenario.number("rate", 0) or None


def _vertex(
    name: str,
    service_us: tuple[float, ...],
    parallelism: int,
    *,
    shares: tuple[float, ...] | None = None,
    source: SourceModel | None = None,
) -> VertexModel:
    return VertexModel(
        id=VertexId(name),
        name=name,
        service_us=service_us,
        input_shares=shares or (1 / parallelism,) * parallelism,
        source=source,
        sync_ms=(1.0,) * parallelism,
    )
