"""Tests of a changed metric value: it belongs to the one checkpoint whose time it fits, or to none if it fits two."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from backend.domain.ids import VertexId
from collectors.flink.gauges import GaugeCandidate, GaugeMemory, newest

T0 = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
V = VertexId("v")
FETCH = timedelta(seconds=1)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def opened(
    checkpoint_id: int, triggered_s: float, *pending: int, acknowledged: tuple[int | None, ...] = ()
) -> GaugeCandidate:
    return GaugeCandidate(
        checkpoint_id, at(triggered_s), {V: frozenset(pending)}, {V: acknowledged} if acknowledged else {}
    )


class Gauges:
    """The collector's memory of metric values, with readings of subtask 0 of one vertex."""

    def __init__(self, *candidates: GaugeCandidate) -> None:
        self.memory = GaugeMemory()
        self.candidates = candidates

    def read(self, seconds: float, value_s: float) -> Gauges:
        self.memory.read_start_delay(
            V, {0: ns(value_s)}, at=at(seconds), fetch_interval=FETCH, candidates=self.candidates
        )
        return self

    @property
    def told(self) -> dict[int, int]:
        """The start delay in ms that was found for subtask 0, by checkpoint. Other checkpoints are left out."""
        return {cid: found[V, 0].start_delay_ms for cid, found in self.memory.late.items() if (V, 0) in found}


def test_the_first_reading_gives_no_start_delay_because_its_time_is_unknown() -> None:
    assert Gauges(opened(1, 0, 0)).read(4, 3.5).told == {}


def test_a_changed_value_belongs_to_the_checkpoint_it_fits() -> None:
    gauges = Gauges(opened(1, 0, 0)).read(2, 9.9).read(4, 3.5)
    assert gauges.told == {1: 3500}
    late = gauges.memory.late[1][V, 0]
    assert (late.seen_at, late.resolution_ms) == (at(4), 2000)


def test_zero_and_an_unchanged_value_give_no_start_delay() -> None:
    assert Gauges(opened(1, 0, 0)).read(2, 3.5).read(4, 3.5).read(6, 0).told == {}


def test_a_value_that_fits_no_time_since_the_last_reading_is_ignored() -> None:
    assert Gauges(opened(1, 0, 0)).read(2, 1).read(4, 30).told == {}
    assert Gauges(opened(1, 0, 0)).read(20, 1).read(22, 3.5).told == {}


def test_a_value_delayed_by_the_fetch_interval_still_counts() -> None:
    # The barrier arrived 3.5 s after the trigger, but the reading at 4.0 s still showed the old value.
    assert Gauges(opened(1, 0, 0)).read(4, 1).read(6, 3.5).told == {1: 3500}


def test_a_value_that_fits_two_checkpoints_is_assigned_to_none() -> None:
    both = (opened(1, 0, 0), opened(2, 1, 0))
    assert Gauges(*both).read(2, 9).read(6, 3.5).told == {}


def test_a_checkpoint_acknowledged_with_another_delay_is_ruled_out() -> None:
    both = (opened(1, 0, acknowledged=(1200,)), opened(2, 1, 0))
    assert Gauges(*both).read(2, 9).read(6, 3.5).told == {2: 3500}


def test_a_value_that_equals_an_acknowledged_delay_is_not_a_late_barrier() -> None:
    both = (opened(1, 0, acknowledged=(3500,)), opened(2, 1, 0))
    assert Gauges(*both).read(2, 9).read(6, 3.5).told == {}


def test_barriers_come_in_order_so_a_later_start_delay_rules_out_earlier_checkpoints() -> None:
    gauges = Gauges(opened(1, 0, 0), opened(2, 5, 0)).read(6, 9).read(9, 3.6)
    assert gauges.told == {2: 3600}
    # A delay of 9.2 s fits only the first checkpoint. But the barrier of that checkpoint must have arrived before the
    # barrier of the second one, so the value belongs to no checkpoint.
    assert gauges.read(10, 9.2).told == {2: 3600}


def test_only_a_growing_alignment_is_in_progress() -> None:
    memory = GaugeMemory()
    for seconds, value_s in ((1, 5.0), (2, 0.3), (3, 1.3)):
        memory.read_alignment(V, {0: ns(value_s), 1: ns(2.0)}, at=at(seconds))
    assert memory.aligning == {(V, 0): 1300}
    memory.read_alignment(V, {0: ns(1.3)}, at=at(4))
    assert memory.aligning == {}


def test_a_copy_is_independent() -> None:
    gauges = Gauges(opened(1, 0, 0)).read(2, 9)
    copy = gauges.memory.copy()
    gauges.read(4, 3.5)
    assert gauges.told == {1: 3500}
    assert copy.late == {}


def test_old_checkpoints_are_forgotten() -> None:
    many = {n: opened(n, float(n), 0) for n in range(100)}
    assert min(newest(many)) == 84
    gauges = Gauges(opened(1, 0, 0)).read(2, 9).read(4, 3.5)
    gauges.memory.keep_only([2, 3])
    assert gauges.told == {}
