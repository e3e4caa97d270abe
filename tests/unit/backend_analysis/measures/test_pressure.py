"""Tests of when a subtask counts as full, also if some of its times are unknown."""

from __future__ import annotations

import pytest

from backend.analysis.measures import pressure
from backend.analysis.measures.pressure import VertexLoad
from backend.analysis.numbers.arrays import array_of
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO, BUSY_MIN_RATIO
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import VerdictKind
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, START, chain, reading


@pytest.mark.parametrize(
    ("busy", "held", "is_full"),
    [
        (BUSY_MIN_RATIO, BACKPRESSURED_OK_RATIO, True),
        (BUSY_MIN_RATIO - 0.01, 0.0, False),
        (1.0, BACKPRESSURED_OK_RATIO + 0.01, False),
        # A busy subtask counts as full if its backpressure is unknown. A subtask does not count as full if its busy
        # time is unknown.
        (1.0, None, True),
        (None, None, False),
    ],
)
def test_a_subtask_is_full_if_it_is_busy_and_not_back_pressured(busy, held, is_full):
    load = VertexLoad(VertexId("v"), 3, busy=array_of([busy]), backpressured=array_of([held]), idle=array_of([None]))

    assert load.full_subtasks == ((0,) if is_full else ())
    assert load.known_subtasks == (() if busy is None else (0,))


def legacy_source(held: float, *, idle: float = 0.0) -> VertexPressure:
    """Build a reading of a source of which Flink reports no busy time."""
    return VertexPressure(SOURCE, START, (None,) * 4, (held,) * 4, (idle,) * 4)


def loads_of(*readings: VertexPressure) -> dict[VertexId, VertexLoad]:
    return pressure.without_unset(chain(), pressure.vertex_loads(readings))


def test_a_source_without_busy_time_holds_back_as_much_as_it_reports():
    loads = loads_of(legacy_source(1.0), reading(MIDDLE, [1.0] * 4, at_s=0), reading(LAST, [0.1] * 4, at_s=0))

    assert list(loads[SOURCE].backpressured) == [1.0] * 4
    assert not loads[SOURCE].has_busy
    (suspect,) = pressure.suspects(chain(), loads)
    assert (suspect.vertex_id, suspect.full, suspect.feeder_backpressured) == (MIDDLE, (0, 1, 2, 3), 1.0)


def test_a_source_without_busy_time_that_is_not_held_back_counts_if_another_vertex_is_measured():
    measured = loads_of(legacy_source(0.0), reading(MIDDLE, [0.5] * 4, at_s=0))
    unset = loads_of(legacy_source(0.0), reading(MIDDLE, [1.0] * 4, at_s=0))

    assert list(measured[SOURCE].backpressured) == [0.0] * 4
    assert unset == {}, "before the first update, every vertex looks busy all the time"


def test_one_subtask_with_a_missing_share_does_not_hide_the_others():
    loads = loads_of(
        VertexPressure(SOURCE, START, (None, 0.1), (0.9, 0.9), (None, 0.0)),
        VertexPressure(MIDDLE, START, (0.9, None), (0.0, None), (0.1, None)),
    )

    assert list(loads[SOURCE].backpressured) == [0.9, 0.9]
    assert loads[MIDDLE].known_subtasks == (0,)
    assert loads[MIDDLE].full_subtasks == (0,)


@pytest.mark.parametrize(
    ("records", "sibling_busy", "kind"),
    [
        # A join with a hot key on Flink 1.19: the samples of the other subtask miss its bursts.
        ((35_843, 8_239), (0.0, 0.0, 0.139), VerdictKind.SKEW),
        # With as many records as its sibling, only the time per record can be the cause.
        ((10_000, 9_000), (0.1, 0.2, 0.1), VerdictKind.STRAGGLER),
        # Twice the records, and twenty times the time for each.
        ((20_000, 10_000), (0.02, 0.03, 0.02), VerdictKind.STRAGGLER),
    ],
)
def test_counted_records_decide_against_sampled_busy_times_unless_these_differ_much_more(records, sibling_busy, kind):
    full = [reading(MIDDLE, [1.0, b], records=records, at_s=10.0 * n) for n, b in enumerate(sibling_busy)]
    load = pressure.vertex_loads(full)[MIDDLE]

    assert pressure.suspect_of(load, (0,), (SOURCE, 1.0)).kind is kind
