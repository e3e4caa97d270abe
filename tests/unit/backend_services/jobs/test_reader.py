"""The rates of the latest reading: the engine's own, or reconstructed from the counts of two readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from backend.contracts.backpressure import VertexPressureOut
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Basis
from backend.services.jobs.reader import latest_pressure
from tests.support.observations import NOW, SINK, SOURCE, pressure

TOPOLOGY = Topology((Vertex(SOURCE, "source", 3), Vertex(SINK, "sink", 3)), (Edge(SOURCE, SINK, "HASH"),))


def of(readings: Sequence[VertexPressure]) -> tuple[VertexPressureOut, VertexPressureOut]:
    source, sink = latest_pressure(TOPOLOGY, readings)
    return source, sink


def readings(*, seconds: float = 0.0, count: int = 0) -> list[VertexPressure]:
    at = NOW + timedelta(seconds=seconds)
    counts = (count, 2 * count, 3 * count)
    return [
        replace(pressure(SOURCE, at), records_in_count=(0,) * 3, records_out_count=counts),
        replace(pressure(SINK, at), records_in_count=counts),
    ]


def test_rates_are_those_that_the_engine_reports_and_measured():
    source, sink = readings(seconds=2.0, count=40)
    # Flink fetched its counts between these readings, so they show ten times the rate.
    found = of(
        [
            *readings(count=20),
            replace(source, records_out_per_s=(1.0, 2.0, 3.0)),
            replace(sink, records_in_per_s=(1.5, None, 2.5)),
        ]
    )

    assert [v.records_per_s for v in found] == [[1.0, 2.0, 3.0], [1.5, None, 2.5]]
    assert {v.records_per_s_basis for v in found} == {Basis.MEASURED}
    assert found[0].records_out_per_s == [1.0, 2.0, 3.0]
    assert found[1].records_in_per_s == [1.5, None, 2.5]


def test_rates_of_two_counts_are_reconstructed_and_a_source_has_the_rate_that_it_emits():
    found = of([*readings(count=20), *readings(seconds=2.0, count=40)])

    assert [v.records_per_s for v in found] == [[10.0, 20.0, 30.0]] * 2
    assert {v.records_per_s_basis for v in found} == {Basis.RECONSTRUCTED}


def test_one_reading_or_a_restart_has_no_rate_and_no_basis():
    alone, after = of(readings()), of([*readings(count=20), *readings(seconds=2.0, count=10)])

    assert [(v.records_per_s, v.records_per_s_basis) for v in alone] == [([], None)] * 2
    assert [(v.records_per_s, v.records_per_s_basis) for v in after] == [([None] * 3, None)] * 2
