"""Healthy jobs whose load changes are not refused; jobs whose metrics contradict each other are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from backend.advisor.twin.model import contradictions
from backend.advisor.twin.model.flows import flows_of
from backend.domain.errors import NotModelledError
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SENDER, READER = VertexId("sender"), VertexId("reader")
IDLE, BUSY = (0.03, 0.0, 0.97), (0.95, 0.0, 0.05)
Row = tuple[tuple[float, float, float], float, float]
"""The shares of the reader, the records sent, and the records that each of its subtasks read."""


def readings_of(rows: Sequence[Row], *, every_s: float = 30.0, width: int = 1) -> list[VertexPressure]:
    found = []
    for n, ((busy, held, idle), sent, read) in enumerate(rows):
        at = BEGAN + timedelta(seconds=n * every_s)
        found += [
            VertexPressure(
                SENDER, at, (0.05,), (0.0,), (0.95,), records_in_count=(0,), records_out_count=(round(sent),)
            ),
            VertexPressure(
                READER,
                at,
                (busy,) * width,
                (held,) * width,
                (idle,) * width,
                records_in_count=(round(read),) * width,
                records_out_count=(0,) * width,
            ),
        ]
    return found


def check(readings: list[VertexPressure], *, strategy: str | None = "HASH", width: int = 1) -> None:
    vertices = (Vertex(SENDER, "sender", 1, None), Vertex(READER, "reader", width, None))
    topology = Topology(vertices=vertices, edges=(Edge(SENDER, READER, strategy),))
    evidence = SimpleNamespace(topology=topology, pressure=tuple(readings))
    contradictions.refuse(cast("Any", evidence), flows_of(readings), [])


def phases(*parts: tuple[tuple[float, float, float], int], is_restarted: bool = False) -> list[Row]:
    rows: list[Row] = []
    count = 0.0
    for number, (shares, readings) in enumerate(parts):
        if number and is_restarted:
            count = 0.0
        for _ in range(readings):
            count += 48_000 if shares is BUSY else 1_500
            rows.append((shares, count, count))
    return rows


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("parts", [((IDLE, 32), (BUSY, 28)), ((BUSY, 32), (IDLE, 28)), ((IDLE, 36), (BUSY, 24))])
def test_a_load_that_changes_is_no_contradiction(parts: Any, is_restarted: bool):
    check(readings_of(phases(*parts, is_restarted=is_restarted)))


@pytest.mark.parametrize("period_s", [300, 600, 900, 1200])
@pytest.mark.parametrize("drained_s", [5, 60, 300])
def test_a_window_that_sends_all_at_its_end_is_no_contradiction(period_s: int, drained_s: int):
    for phase in range(0, period_s, period_s // 10):
        rows: list[Row] = []
        for n in range(180):
            at_s = 10 * n + 18_000 + phase
            fired = at_s // period_s
            sent = fired * 1e5
            rows.append((IDLE, sent, sent - 1e5 + 1e5 * min(1.0, (at_s - fired * period_s) / drained_s)))
        readings = readings_of(rows, every_s=10)
        # The source before the window reads all the time: the rates of the whole job are not 0.
        steady = [
            replace(r, records_in_count=(1000 * n,)) if r.vertex_id == SENDER else r
            for n, r in enumerate(readings, start=1)
        ]
        if len(flows_of(steady)) == 2:
            check(steady)


def test_bursts_that_are_far_apart_are_named_as_such():
    rows: list[Row] = [(IDLE, 1e5 * (n // 20), 1e5 * (n // 20)) for n in range(60)]
    flows = {
        v: replace(f, records_in=f.records_in * 0, records_out=f.records_out * 0)
        for v, f in flows_of(readings_of(rows)).items()
    }
    evidence = SimpleNamespace(topology=Topology(vertices=(), edges=()), pressure=())
    with pytest.raises(NotModelledError) as refused:
        contradictions.refuse(cast("Any", evidence), flows, [])
    assert "bursts" in refused.value.problem


@pytest.mark.parametrize("strategy", [None, "BROADCAST", "broadcast"])
def test_each_record_may_be_sent_to_all_subtasks(strategy: str | None):
    rows: list[Row] = [(IDLE, 1000 * n, 1000 * n) for n in range(20)]
    check(readings_of(rows, width=4), strategy=strategy, width=4)
    with pytest.raises(NotModelledError, match="records/s read"):
        check(readings_of(rows, width=4), width=4)


def test_shares_of_different_readings_of_the_first_minute_are_not_added():
    shares = [(0.0, 0.0, 1.0), (0.9, 0.05, 0.05), (0.1, 0.9, 0.0)]
    check(readings_of([(s, 1000 * n, 1000 * n) for n, s in enumerate(shares, start=1)], every_s=5))


def test_readings_in_any_order_are_counted_from_the_newest():
    readings = readings_of([(IDLE, min(n, 6), min(n, 6)) for n in range(10)])
    assert contradictions.same_counts(readings, READER) == 4
    assert contradictions.same_counts(readings[::-1], READER) == 4


@pytest.mark.parametrize(
    ("shares", "factor", "problem"),
    [
        ((0.9, 0.8, 0.0), 1.0, "busy and back-pressured for 170 %"),
        ((0.1, 0.1, 0.1), 1.0, "idle for 30 % of the time in all"),
        ((0.9, 0.0, 0.9), 1.0, "idle for 180 % of the time in all"),
        (BUSY, 3.0, "100 records/s sent and reader 300 records/s read"),
        (BUSY, 0.3, "100 records/s sent and reader 30 records/s read"),
        (IDLE, 0.0, "100 records/s sent and reader 0 records/s read"),
    ],
)
def test_metrics_that_contradict_each_other_are_refused(
    shares: tuple[float, float, float], factor: float, problem: str
):
    readings = readings_of([(shares, 3000 * n, 3000 * n * factor) for n in range(20)])
    # A vertex whose counts never change has no flow; here the flow is that of the sender.
    flows = flows_of(readings)
    flows.setdefault(READER, flows[SENDER])
    vertices = (Vertex(SENDER, "sender", 1, None), Vertex(READER, "reader", 1, None))
    topology = Topology(vertices=vertices, edges=(Edge(SENDER, READER, "HASH"),))
    evidence = SimpleNamespace(topology=topology, pressure=tuple(readings))
    with pytest.raises(NotModelledError) as refused:
        contradictions.refuse(cast("Any", evidence), flows, [])
    assert problem in refused.value.problem
