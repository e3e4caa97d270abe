"""What readings say of a vertex: rates, shares, service times, bursts, pools and slow hosts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from backend.advisor.twin.model.bursts import SWING_MIN_S
from backend.advisor.twin.model.flows import VertexFlow, flows_of, pool_size_of, slow_host_factors
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement

VERTEX = VertexId("v")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def reading(at_s: float, counts: Sequence[int], *, busy: float = 1.0, held: float = 0.0) -> VertexPressure:
    size = len(counts)
    return VertexPressure(
        vertex_id=VERTEX,
        observed_at=BEGAN + timedelta(seconds=at_s),
        busy_ratio=(busy,) * size,
        backpressured_ratio=(held,) * size,
        idle_ratio=(1 - busy - held,) * size,
        queued_in_bytes=(0,) * size,
        queued_out_bytes=(1000,) * size,
        records_in_count=tuple(counts),
        records_out_count=tuple(counts),
        bytes_in_count=tuple(100 * n for n in counts),
    )


def flow_of(readings: Sequence[VertexPressure]) -> VertexFlow:
    return flows_of(readings)[VERTEX]


def even(count: int, rate: int = 100, every_s: int = 5) -> list[VertexPressure]:
    return [reading(every_s * n, [rate * every_s * n, 3 * rate * every_s * n], busy=0.6) for n in range(count)]


def test_rates_shares_and_service_times_come_from_the_counts():
    flow = flow_of(even(12))

    assert flow.records_in == pytest.approx([100.0, 300.0])
    assert flow.bytes_in == pytest.approx([10_000.0, 30_000.0])
    assert flow.shares(np.zeros(2)) == pytest.approx([0.25, 0.75])
    service, is_measured = flow.service_us(is_source=False)
    assert (list(service), is_measured) == (pytest.approx([6000.0, 2000.0]), True)


def test_over_a_short_time_the_rates_are_those_of_the_engine_and_not_of_counts_of_unknown_age():
    # The engine fetches its counts every 10 s. These two readings are 7 s apart, and their counts 10 s.
    ins, outs = (1000, 3000), (500, 1500)
    old = replace(reading(0, ins), records_out_count=outs)
    new = replace(reading(7, [n + m for n, m in zip(ins, (1000, 3000), strict=True)]), records_out_count=(1000, 3000))
    assert flow_of([old, new]).records_in == pytest.approx([1000 / 7, 3000 / 7])

    metered = [replace(r, records_in_per_s=(100.0, 300.0)) for r in (old, new)]
    flow = flow_of(metered)
    assert flow.records_in == pytest.approx([100.0, 300.0])
    assert flow.records_out == pytest.approx([50.0, 150.0]), "both counts have the same age, so their ratio is right"
    assert flow.bytes_in == pytest.approx([10_000.0, 30_000.0])
    assert flow.service_us(is_source=False)[0] == pytest.approx([10_000.0, 10_000.0 / 3])

    # A subtask without a rate of the engine keeps the counted one.
    partly = flow_of([replace(r, records_in_per_s=(100.0, None)) for r in (old, new)])
    assert partly.records_in == pytest.approx([100.0, 3000 / 7])


def test_the_rate_of_a_source_is_the_engines_rate_of_what_it_emits():
    readings = [
        replace(r, records_in_count=(0, 0), records_out_count=r.records_in_count, records_out_per_s=(90.0, 270.0))
        for r in even(2)
    ]
    flow = flow_of(readings)
    assert flow.records_out == pytest.approx([90.0, 270.0])
    assert flow.records_in == pytest.approx([0.0, 0.0])


def test_over_a_long_time_the_rates_are_those_of_the_counts():
    # A source with bursts that are longer than a minute: most of the engine's rates are those between the bursts.
    long = [replace(r, records_in_per_s=(10.0, 30.0)) for r in even(121)]
    assert flow_of(long).records_in == pytest.approx([100.0, 300.0])


def test_the_rates_of_a_wide_vertex_take_little_memory():
    wide = [reading(10 * n, [10 * n * (1 + i % 3) for i in range(1_024)]) for n in range(180)]
    tracemalloc.start()
    flow = flow_of(wide)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert flow.records_in == pytest.approx([1.0 + i % 3 for i in range(1_024)])
    assert most < 60_000_000


def test_a_full_subtask_is_sent_what_it_read_and_what_is_queued_for_it():
    flow = flow_of([reading(5 * n, [500 * n, 500 * n]) for n in range(12)])

    assert flow.full.all()
    assert flow.shares(np.array([1000.0, 0.0])) == pytest.approx([6500 / 12000, 5500 / 12000])


def test_one_old_count_does_not_change_what_a_subtask_has_of_the_sum():
    counts = [[500 * n, 500 * n] for n in range(12)]
    counts[-1][1] -= 400

    total = flow_of([reading(5 * n, c) for n, c in enumerate(counts)]).total_in

    assert total == pytest.approx([5300.0, 5300.0])


def test_what_a_queue_holds_for_some_time_only_is_not_steady():
    queued = [(0, 0)] * 7 + [(500, 700), (300, 800), (600, 900), (700, 100), (600, 600)]
    rows = [replace(reading(5 * n, [500 * n] * 2), queued_out_bytes=of) for n, of in enumerate(queued)]

    flow = flow_of(rows)

    assert (flow.queued_out_last, flow.queued_out_least) == (600 + 700, 700 + 100)


@pytest.mark.parametrize(
    ("queued", "least"),
    [
        # The least sum of the readings in which both subtasks have a value.
        ([(500, 700), (300, 800), (600, 900), (600, 600), (None, None)], 1100),
        ([(None, 700), (300, 800), (600, None), (700, 600), (600, 600)], 1100),
        # A subtask that never reports has no part in any sum.
        ([(None, 700), (None, 800), (None, 900), (None, 100), (None, 600)], 100),
        ([(None, None)] * 5, 0),
        # No reading has both.
        ([(None, 700), (300, None), (None, 900), (700, None), (None, 600)], None),
    ],
)
def test_a_queue_that_is_not_reported_is_not_an_empty_one(queued: list[tuple[int | None, ...]], least: int | None):
    of_all = [(0, 0)] * 7 + queued
    rows = [
        replace(reading(5 * n, [500 * n] * 2), queued_out_bytes=of, queued_in_bytes=of) for n, of in enumerate(of_all)
    ]

    flow = flow_of(rows)

    expected = float("nan") if least is None else least
    assert [flow.queued_out_least, flow.queued_in_least] == pytest.approx([expected] * 2, nan_ok=True)


def test_what_a_vertex_emits_for_a_record_follows_from_its_own_counts():
    rows = [reading(5 * n, [500 * n, 100 * n]) for n in range(12)]
    doubled = [replace(r, records_out_count=tuple(2 * (c or 0) for c in r.records_in_count)) for r in rows]
    unknown = [replace(r, records_out_count=(None, None)) for r in rows]

    assert flow_of(doubled).out_per_in == pytest.approx(2.0)
    assert np.isnan(flow_of(unknown).out_per_in)


def test_readings_before_a_restart_and_repeated_readings_are_left_out():
    before = [reading(n, [90_000 + n, 90_000]) for n in range(3)]
    after = [reading(10 + n, [100 * n, 100 * n]) for n in range(4)]

    flow = flow_of([*before, *after, replace(after[-1], observed_at=BEGAN + timedelta(seconds=99))])

    assert flow.records_in == pytest.approx([100.0, 100.0])
    assert VERTEX not in flows_of([*before, after[0]])


def test_counts_of_different_ages_disturb_a_rate_little():
    ages = [0.0, 2.0, 4.0, 1.0, 3.0, 4.0, 0.5, 2.5, 3.5, 1.5, 0.0, 2.0, 4.0, 0.0]
    aged = [reading(5 * n, [round(100 * max(0.0, 5 * n - ages[n]))] * 2) for n in range(len(ages))]

    assert flow_of(aged).records_in == pytest.approx([100.0, 100.0], rel=0.03)


def test_one_old_count_does_not_change_a_rate():
    counts = [500 * n for n in range(12)]
    counts[6] -= 300

    assert flow_of([reading(5 * n, [c]) for n, c in enumerate(counts)]).records_in == pytest.approx([100.0])


def test_the_busy_ratio_of_a_young_attempt_leaves_out_its_start():
    # The engine averages since the attempt began, and no record came in the first 3 s.
    young = [reading(t, [100 * t], busy=0.6 * (t - 3) / t) for t in range(5, 50, 5)]
    old = [reading(t, [100 * t], busy=0.5 if t < 60 else 0.6) for t in range(5, 100, 5)]

    assert flow_of(young).busy == pytest.approx([0.6])
    assert flow_of(old).busy == pytest.approx([0.6])


@pytest.mark.parametrize(
    ("counts", "busy", "queued", "expected"),
    [
        ((10_000, 10_100), 0.5, 0, True),
        ((10_000, 11_000), 0.5, 0, False),
        ((10_000, 11_000), 1.0, 1500, True),
        ((10_000, 11_000), 0.5, 1500, False),
        ((10_000, 12_000), 1.0, 1500, False),
    ],
)
def test_shares_can_be_even_if_chance_and_queues_explain_the_counts(
    counts: tuple[int, ...], busy: float, queued: int, expected: bool
):
    flow = flow_of([reading(10 * n, [c * n // 6 for c in counts], busy=busy) for n in range(7)])

    assert flow.can_be_even(queued, room_records=1200) is expected


def test_a_subtask_that_is_never_busy_has_an_upper_bound():
    flow = flow_of([reading(5 * n, [500 * n, 500 * n], busy=0.0) for n in range(6)])

    service, is_measured = flow.service_us(is_source=False)
    assert (list(service), is_measured) == (pytest.approx([5.0, 5.0]), False)


def test_a_few_old_counts_do_not_swing_around_a_steady_flow():
    counts = [500 * n - (400 if n == 9 else 0) for n in range(12)]

    assert flow_of([reading(5 * n, [c]) for n, c in enumerate(counts)]).swing_s < SWING_MIN_S


@pytest.mark.parametrize("buffers", [16, 6, 40])
def test_the_usage_of_a_pool_shows_its_number_of_buffers(buffers: int):
    usages = np.array([1.0, 0.0, *(k / buffers for k in (1, 3, buffers - 1))])

    assert pool_size_of(np.round(usages, 6), 16) == buffers
    assert pool_size_of(np.array([1.0, 0.0, 0.5]), 16) is None


def test_a_host_is_slow_if_all_its_subtasks_are_slow_in_several_vertices():
    names = (VertexId("a"), VertexId("b"))
    hosts = ("h1", "h1", "h2", "h2")
    placements = tuple(Placement(v, hosts, hosts, (0,) * 4, (None,) * 4) for v in names)
    slow = {names[0]: np.array([10.0, 10.0, 22.0, 20.0]), names[1]: np.array([50.0, 50.0, 100.0, 100.0])}
    busy = dict.fromkeys(names, np.full(4, 0.5))

    found = slow_host_factors(slow, busy, placements)

    assert list(found[names[0]]) == pytest.approx([1.0, 1.0, 2.0, 2.0])
    assert list(found[names[1]]) == pytest.approx([1.0, 1.0, 2.0, 2.0])
    only_one = slow | {names[1]: np.full(4, 50.0)}
    assert slow_host_factors(only_one, busy, placements) == {}
    one_straggler = slow | {names[0]: np.array([10.0, 10.0, 22.0, 10.0])}
    assert slow_host_factors(one_straggler, busy, placements) == {}
