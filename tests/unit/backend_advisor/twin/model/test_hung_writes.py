"""Tests of writes that hang: how they are seen in recorded checkpoints, and what is said of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from backend.advisor.twin.model.hangs import NO_HANGS, Hangs, Schedule
from backend.advisor.twin.model.hung_writes import (
    CHECKPOINTS_MIN,
    SUBJECT,
    explained,
    hangs_assumption,
    hangs_of,
    hung_writes,
)
from backend.advisor.twin.model.outcomes import Simulated, SimulatedCheckpoint, Tier
from backend.advisor.twin.model.snapshots import Recorded
from backend.analysis.measures.phases import checkpoint_phases
from backend.domain.checkpoint import Checkpoint
from tests.support.handwritten_jobs import ALIGNED, LAST, SOURCE, chain, completed, detail, failed
from tests.support.twin_models import three_vertices

_COUNT = 20
_WHEN = Schedule(interval_ms=5_000.0, timeout_ms=60_000.0)


def _rows(made: Sequence[Checkpoint]) -> list[Recorded]:
    return [Recorded(c, checkpoint_phases(c, ALIGNED)) for c in made]


def _made(
    number: int, took: Sequence[int | None], *, size: int = 1_000, is_expired: bool = False, every_s: float = 5
) -> Checkpoint:
    """Return a checkpoint whose subtasks wrote for so many milliseconds; None did not acknowledge."""
    first = [None if ms is None else 1 for ms in took]
    of = detail(LAST, first=first, async_=[ms or 0 for ms in took], size_bytes=size)
    if is_expired:
        return failed(number, of, after_ms=60_000, every_s=every_s)
    return completed(number, of, every_s=every_s)


def _hangs(made: Sequence[Checkpoint], parallelism: int = 8, when: Schedule = _WHEN) -> Hangs:
    rows = _rows(made)
    return hangs_of(rows, hung_writes(rows, chain(LAST, parallelism=parallelism), ALIGNED), when)


def test_a_subtask_that_always_takes_longer_than_its_siblings_does_not_hang():
    assert _hangs([_made(n, [1_000 + n, *[150] * 7]) for n in range(_COUNT)]) == NO_HANGS


def test_a_write_that_took_many_times_as_long_as_its_subtask_usually_does_is_a_hang():
    rows = [[1_000, *[150] * 7] for _ in range(_COUNT)]
    rows[3][5] = 2_150
    rows[7][0] = 6_000

    expected = [0.0] * _COUNT
    # The first hangs for two seconds, but its sibling ends after one second anyway.
    expected[3], expected[7] = 1_150.0, 5_000.0
    assert _hangs([_made(n, row) for n, row in enumerate(rows)]).delays_ms == pytest.approx(expected)


def test_of_fewer_checkpoints_than_five_nobody_knows_what_is_usual():
    rows = [[150] * 4, [5_150] * 4, *[[150] * 4] * (CHECKPOINTS_MIN - 2)]

    assert _hangs([_made(n, row) for n, row in enumerate(rows)], 4).longest_ms == 5_000.0
    assert _hangs([_made(n, row) for n, row in enumerate(rows[:-1])], 4) == NO_HANGS


def test_hangs_are_found_if_some_durations_are_not_known_and_after_a_change_of_the_parallelism():
    rows = [[None, 150]] * 5 + [[None, 150, 150]] * 5 + [[None, None, 5_150]]

    assert _hangs([_made(n, row) for n, row in enumerate(rows)], 3).delays_ms == pytest.approx([0.0] * 10 + [5_000.0])


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_a_write_that_had_more_bytes_may_take_longer(size: int):
    """Such as the first one with much in-flight data. It does not hang: the tiers simulate what it writes."""
    rows = [_made(n, [100] * 4) for n in range(_COUNT)] + [_made(_COUNT, [3_000] * 4, size=size)]

    assert bool(_hangs(rows, 4).count) is (size == 1_000)


def test_the_writes_beside_large_ones_may_take_longer_too():
    """All write to the same store, so a small write waits for the large ones of its checkpoint."""
    usual = [detail(LAST, first=[1, 1], async_=[100, 100], size_bytes=1_000) for _ in range(_COUNT)]
    large = replace(detail(LAST, first=[1, 1], async_=[3_000, 3_000]), checkpointed_size_bytes=(200_000, 1_000))

    assert _hangs([completed(n, one) for n, one in enumerate([*usual, large])], 2) == NO_HANGS


def test_checkpoints_that_expired_are_kept_apart_the_longest_hang_first():
    made = [_made(n, [100, 100]) for n in range(_COUNT)]
    made += [_made(_COUNT, [100, None], is_expired=True), _made(_COUNT + 1, [40_100, None], is_expired=True)]

    hangs = _hangs(made, 2)
    assert hangs.expired_ms == (40_000.0, 0.0)
    # The second of them has the longer hang, so it comes first.
    assert hangs.order == (*range(_COUNT), _COUNT + 1, _COUNT)


def _behind(number: int, hung_ms: int) -> Checkpoint:
    """Return a checkpoint whose barrier reaches the sink after 20 s, while the source's write hangs for so long."""
    source = detail(SOURCE, first=[1], async_=[99 + hung_ms])
    return completed(number, source, detail(LAST, first=[20_000], async_=[100]), every_s=30)


@pytest.mark.parametrize(("hung_ms", "delay_ms"), [(6_000, 0), (26_000, 6_000)])
def test_a_hang_counts_by_what_it_delays_the_end_of_the_checkpoint(hung_ms: int, delay_ms: int):
    made = _rows([_behind(n, hung_ms if n % 4 == 0 else 0) for n in range(_COUNT)])
    hangs = hangs_of(made, hung_writes(made, chain(SOURCE, LAST, parallelism=1), ALIGNED), _WHEN)

    expected = [float(delay_ms), 0.0, 0.0, 0.0] * (_COUNT // 4)
    assert hangs.delays_ms == pytest.approx(expected)
    assert hangs.count == (_COUNT if delay_ms else 0)
    # If no barrier came late, the whole of it would count.
    assert hangs.uncovered(0.0).delays_ms == pytest.approx([float(hung_ms), 0.0, 0.0, 0.0] * (_COUNT // 4), abs=2.0)
    assert hangs.uncovered(20_000.0) == hangs


def test_a_hang_in_a_checkpoint_that_expired_counts_although_others_had_no_barrier():
    made = [_behind(n, 0) for n in range(_COUNT)]
    stuck = detail(SOURCE, first=[1], async_=[30_099]), detail(LAST, first=[None])
    rows = _rows([*made, failed(_COUNT, *stuck, after_ms=60_000, every_s=30)])
    hangs = hangs_of(rows, hung_writes(rows, chain(SOURCE, LAST, parallelism=1), ALIGNED), _WHEN)

    assert hangs.expired_ms == (30_000.0,)


def test_the_time_between_triggers_follows_from_the_durations():
    """Checkpoints at an interval of five seconds, of which one took 20 s and one expired after 60 s."""
    made = [_made(n, [19_999 if n == 3 else 100]) for n in range(8)]
    made += [_made(8, [100], is_expired=True), _made(500, [100])]

    assert _hangs(made, 1).period_ms == pytest.approx((8 * 5_000 + 20_000 + 60_000) / 10)
    assert _hangs(made, 1, replace(_WHEN, max_concurrent=2)).period_ms == 5_000.0
    assert _hangs(made, 1, replace(_WHEN, min_pause_ms=30_000.0)).period_ms == pytest.approx(
        (8 * 30_101 + 50_000 + 90_000) / 10
    )


def test_one_sentence_says_how_often_how_long_and_what_is_assumed():
    (made,) = hangs_assumption(Hangs((0.0,) * 20 + (600.0, 12_000.0), (30_000.0, 0.0), 5_000.0, endless_count=1))
    (one,) = hangs_assumption(Hangs((0.0, 2_000.0), (), 5_000.0))
    (endless,) = hangs_assumption(Hangs((0.0,) * 5, (30_000.0,), 5_000.0, endless_count=1))

    assert made.subject == SUBJECT
    assert made.taken == (
        "in 3 of the last 24 checkpoints a write hung and delayed the end by 600 ms to 30.0 s, and in 1 that expired,"
        " one hung for longer than the timeout"
    )
    assert "by time and not by bytes" in made.reason
    assert one.taken == "in 1 of the last 2 checkpoints a write hung and delayed the end by 2.0 s"
    assert endless.taken.startswith("of the last 6 checkpoints, in 1 that expired, one hung")
    assert hangs_assumption(NO_HANGS) == ()
    (both,) = hangs_assumption(Hangs((0.0, 2_000.0), (), 5_000.0, hidden_ms=(900.0, 0.0)))
    (hidden,) = hangs_assumption(Hangs((0.0, 0.0), (), 5_000.0, hidden_ms=(900.0, 0.0)))
    behind = "a write hung and ended before a late barrier came, which counts only if barriers may overtake data"
    assert both.taken == f"{one.taken}; in 1 more, {behind}"
    assert hidden.taken == f"in 1 of the last 2 checkpoints, {behind}"


def _runs(*durations_ms: float) -> list[Simulated]:
    found = tuple(
        SimulatedCheckpoint(
            checkpoint_id=n,
            triggered_ms=0.0,
            duration_ms=ms,
            is_expired=False,
            persisted_bytes=0.0,
            checkpointed_bytes=0.0,
            travel_ms=ms,
            alignment_ms=0.0,
            sync_ms=1.0,
        )
        for n, ms in enumerate(durations_ms)
    )
    return [Simulated(tier=Tier.FAST, seed=1, checkpoints=found, records_per_s=1.0)]


def test_expired_checkpoints_that_a_simulation_does_not_explain_count_as_hung_and_the_sentence_says_so():
    model = three_vertices()
    hangs = Hangs((0.0,) * 15 + (900.0,), (0.0,) * 4, 3_000.0)
    hanging = replace(model, store=replace(model.store, hangs=hangs), assumptions=hangs_assumption(hangs))

    quick, slow = explained(hanging, _runs(100.0, 200.0)), explained(hanging, _runs(100.0, 600_000.0))

    assert quick.store.hangs.endless_count == 4
    assert slow.store.hangs.endless_count == 0
    assert [a.subject for a in quick.assumptions] == [SUBJECT]
    assert "4 that expired" in quick.assumptions[0].taken
    assert explained(model, _runs(100.0)) == model
    assert explained(hanging, _runs()) == hanging


def test_unknown_durations_are_no_hangs():
    rows = _rows([_made(n, [100, None]) for n in range(6)])

    assert all(not ms.any() for row in hung_writes(rows, chain(LAST, parallelism=2), ALIGNED) for ms in row.values())
    assert not np.isnan(
        [ms for row in hung_writes(rows, chain(LAST, parallelism=2), ALIGNED) for ms in row[LAST]]
    ).any()
