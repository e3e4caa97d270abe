"""The collector reads the rates of the live runtime once they are means over a whole minute of virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from backend.contracts.flink import RATE_WINDOW
from backend.domain.pressure import VertexPressure
from tests.simulators.regret_jobs import Drawn
from tests.support.twin_evidence import runtime_evidence


def test_the_rates_of_the_runtime_agree_with_its_counts_and_are_missing_in_the_first_minute() -> None:
    job = Drawn.of("light/1")
    evidence = runtime_evidence(job.spec(job.now.config(), seed=1), run_s=120, every_s=5)
    sources = {v.id for v in evidence.topology.vertices if not evidence.topology.upstream(v.id)}
    began = min(r.observed_at for r in evidence.pressure)

    def rates(reading: VertexPressure) -> tuple[float, ...]:
        own, other = reading.records_in_per_s, reading.records_out_per_s
        if reading.vertex_id in sources:
            own, other = other, own
        assert other == ()
        return tuple(rate for rate in own if rate is not None)

    # A poll lasts for some seconds at most, and the job began shortly before the first reading.
    young = [r for r in evidence.pressure if r.observed_at - began < RATE_WINDOW - timedelta(seconds=10)]
    assert {rates(r) for r in young} == {()}
    for vertex in evidence.topology.vertices:
        own = [r for r in evidence.pressure if r.vertex_id == vertex.id]
        first, last = own[1], own[-1]
        counts = [r.records_out_count if vertex.id in sources else r.records_in_count for r in (first, last)]
        grown = sum(b or 0 for b in counts[1]) - sum(a or 0 for a in counts[0])
        counted = grown / (last.observed_at - first.observed_at).total_seconds()
        assert sum(rates(last)) == pytest.approx(counted, rel=0.05)
