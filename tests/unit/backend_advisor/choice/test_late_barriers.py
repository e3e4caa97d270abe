"""Tests of barriers that are later than the simulation explains: how they are seen, and what they do in other modes."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from backend.advisor.advice import Interval
from backend.advisor.choice.late_barriers import LateBarriers
from backend.domain.advice import Mode

_SIMULATED_MS = 150.0
_REST_MS = 50.0
_READ = (60.0, 40.0)
_TIMEOUT_MS = 10_000.0
_BURSTS = [100.0] * 14 + [2_100.0, 4_100.0, 3_100.0, 100.0, 3_100.0, 2_100.0]


def _of(
    travels_ms,
    *,
    mode=Mode.ALIGNED,
    simulated_ms=_SIMULATED_MS,
    read=_READ,
    busy=(0.75, 0.75),
    held=(0.25, 0.25),
    other=1.0,
):
    """Return the late barriers of checkpoints whose barriers travelled for so long from the source to the sink.

    The barrier of the second subtask travelled ``other`` times as long as that of the first.
    """
    rows = [
        SimpleNamespace(
            travel_ms=ms,
            duration_ms=ms + _REST_MS,
            phases={
                "source": SimpleNamespace(travel_ms=np.array([1.0, np.nan])),
                "sink": SimpleNamespace(travel_ms=np.array([ms, ms * other])),
                "unread": SimpleNamespace(travel_ms=np.array([np.nan, np.nan])),
            },
        )
        for ms in travels_ms
    ]
    above = {"source": (), "sink": ("source",), "unread": ("sink",)}
    known = SimpleNamespace(
        mode=mode,
        recorded=rows,
        evidence=SimpleNamespace(
            topology=SimpleNamespace(upstream=above.__getitem__),
            pressure=[
                SimpleNamespace(vertex_id="sink", busy_ratio=busy, backpressured_ratio=held),
                SimpleNamespace(vertex_id="source", busy_ratio=(1.0,), backpressured_ratio=(0.0,)),
            ],
        ),
        drain_bytes_per_ms={"sink": sum(read)} if read else {},
        intake_bytes_per_ms={"sink": read},
    )
    return LateBarriers.of(known, rows, simulated_ms)


def test_the_excess_of_aligned_checkpoints_is_that_of_their_barriers_over_the_simulated_ones():
    late = _of(_BURSTS)

    assert late.usual_ms == pytest.approx(_SIMULATED_MS - _REST_MS)
    assert late.excess_ms == pytest.approx([ms - 100.0 for ms in _BURSTS])
    assert late.waits_ms(None, None).mean() == pytest.approx(np.mean(_BURSTS) - 100.0)
    assert not late.overtaken_bytes(None, None).any()


@pytest.mark.parametrize(
    "late",
    [
        _of([100.0] * 20),
        _of([100.0] * 19 + [400.0]),
        _of(_BURSTS, simulated_ms=6_000.0),
        _of(_BURSTS, mode=Mode.UNALIGNED),
        _of(_BURSTS[10:17]),
        _of(_BURSTS, read=()),
        _of(_BURSTS, busy=(None, 0.5)),
        _of(_BURSTS, busy=()),
    ],
    ids=[
        "on time",
        "once, by chance",
        "simulated later",
        "overtaking",
        "few checkpoints",
        "rates not known",
        "busy time not known",
        "no busy time",
    ],
)
def test_without_clearly_later_barriers_that_waited_for_records_nothing_is_added(late):
    simulated = Interval(200.0, 100.0, 300.0)
    waits = late.waits_ms(None, None)

    assert not waits.size
    assert late.durations(simulated, waits, _TIMEOUT_MS) == simulated
    assert late.expired_ratio(simulated, 200.0, waits, _TIMEOUT_MS) == simulated
    assert late.persisted(simulated, late.overtaken_bytes(0, None)) == simulated


def test_an_unaligned_checkpoint_persists_the_records_for_which_an_aligned_one_waits():
    late = _of(_BURSTS)

    assert not late.waits_ms(0, None).any()
    assert late.overtaken_bytes(0, None) == pytest.approx(late.excess_ms * sum(_READ))
    persisted = late.persisted(Interval(10.0, 0.0, 20.0), late.overtaken_bytes(0, None))
    assert persisted.value == pytest.approx(10.0 + late.excess_ms.mean() * sum(_READ))
    assert persisted.high > persisted.value


def test_a_subtask_that_is_idle_at_times_reads_more_than_on_average_while_its_barrier_waits():
    """The records of two seconds were queued for it, and it read them without a pause."""
    quarter = _of(_BURSTS, busy=(0.15, 0.25), held=(0.1, None))

    assert quarter.excess_ms == pytest.approx(_of(_BURSTS).excess_ms)
    assert quarter.overtaken_bytes(0, None) == pytest.approx(quarter.excess_ms * sum(_READ) * 4)


def test_only_subtasks_whose_barrier_was_late_have_records_in_front_of_it():
    one = _of(_BURSTS, other=0.0)
    half = _of([200.0] * 14 + [2_100.0] * 6, other=0.5)

    assert one.overtaken_bytes(0, None) == pytest.approx(one.excess_ms * _READ[0])
    assert half.overtaken_bytes(0, None).max() == pytest.approx(half.excess_ms.max() * (_READ[0] + 0.475 * _READ[1]))
    # The cap is that of a subtask, and the other one leaves nothing of its own to it.
    assert one.waits_ms(0, round(2_500.0 * _READ[0] / 2)).max() == pytest.approx(4_000.0 - 1_250.0)


def test_with_an_aligned_timeout_barriers_wait_until_it_and_overtake_the_rest():
    late = _of(_BURSTS)

    waits, overtaken = late.waits_ms(1_100, None), late.overtaken_bytes(1_100, None)

    assert waits.max() == pytest.approx(1_000.0)
    assert overtaken.max() == pytest.approx((4_000.0 - 1_000.0) * sum(_READ))
    assert late.waits_ms(50, None).max() == 0.0


def test_a_checkpoint_whose_records_do_not_fit_the_cap_waits_until_the_rest_does():
    late = _of(_BURSTS)
    # A subtask may persist this much: all of the records of 2 s, and a part of those of 3 s.
    cap = round(2_500.0 * _READ[0])

    assert sorted(set(late.waits_ms(0, cap).round())) == [0.0, 500.0, 1_500.0]
    assert late.overtaken_bytes(0, cap).max() == pytest.approx(2_500.0 * sum(_READ))
    assert late.waits_ms(0, 0) == pytest.approx(late.waits_ms(None, None))


def test_late_barriers_lengthen_checkpoints_and_let_those_expire_that_reach_the_timeout():
    late = _of(_BURSTS)
    waits, simulated = late.waits_ms(None, None), Interval(150.0, 100.0, 200.0)

    found = late.durations(simulated, waits, _TIMEOUT_MS)
    assert (found.value, found.low) == (150.0, 100.0)
    assert found.high > 3_000.0
    assert late.durations(simulated, waits, 2_000.0).high == 2_000.0
    none = Interval(0.0, 0.0, 0.0)
    assert late.expired_ratio(none, 150.0, waits, 3_000.0).value == pytest.approx(3 / 20)
    assert late.expired_ratio(none, 150.0, waits, _TIMEOUT_MS) == none
    assert late.expired_ratio(Interval(0.5, 0.4, 0.6), 150.0, waits, 3_000.0).value == 0.5
