"""Tests of a second cause that shows only when the effect of a long sync part is taken out of the loads."""

from __future__ import annotations

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.verdict import Basis, VerdictKind
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, chain, completed, detail, job, reading
from tests.support.handwritten_runs import two_readings

SYNC_MS = 2_500
"""Half of the interval between the triggers, so a sync part takes half of the time."""


def run(sync_at, *, reached_ms):
    """Build checkpoints whose barrier waits before ``middle``, and whose sync part is long at one vertex."""
    delays = {SOURCE: 5, MIDDLE: reached_ms, LAST: reached_ms + 10}
    return [
        completed(n, *(detail(v, first=[ms] * 4, sync=SYNC_MS if v == sync_at else 0) for v, ms in delays.items()))
        for n in range(1, 9)
    ]


def loads(source=(0.0, 0.0), middle=(0.0, 0.0), last=(0.0, 0.0)):
    return two_readings(
        *(reading(v, [busy] * 4, [held] * 4) for v, (busy, held) in ((SOURCE, source), (MIDDLE, middle), (LAST, last)))
    )


def test_a_vertex_above_a_long_sync_part_that_is_full_whenever_it_is_not_held_back_is_the_second_cause():
    readings = loads(source=(0.0, 1.0), middle=(0.52, 0.48), last=(0.52, 0.0))

    found = diagnose(job(run(LAST, reached_ms=2_400), readings)).verdict

    assert (found.kind, found.vertex) == (VerdictKind.SYNC, LAST)
    assert found.second is not None
    assert (found.second.kind, found.second.vertex) == (VerdictKind.CAPACITY, MIDDLE)
    assert found.sentence.endswith(
        "After that, middle is at capacity: all 4 subtasks are busy 100 % of the time outside the sync part of last."
    )
    (row,) = [r for r in found.evidence if r.statement.startswith("middle: all 4 subtasks busy outside")]
    assert row.basis is Basis.RECONSTRUCTED


def test_a_vertex_below_a_long_sync_part_that_is_idle_only_meanwhile_is_the_second_cause():
    readings = loads(source=(0.0, 1.0), middle=(0.52, 0.48), last=(0.52, 0.0))
    late = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[10] * 4, sync=SYNC_MS),
            detail(LAST, first=[2_400] * 4),
        )
        for n in range(1, 9)
    ]

    found = diagnose(job(late, readings)).verdict

    assert {found.kind, found.second and found.second.kind} == {VerdictKind.SYNC, VerdictKind.CAPACITY}
    assert {found.vertex, found.second and found.second.vertex} == {MIDDLE, LAST}


@pytest.mark.parametrize("middle_busy", [0.1, 0.4])
def test_a_vertex_with_time_to_spare_is_not_accused_although_a_sync_part_holds_it_back(middle_busy):
    readings = loads(source=(0.0, 0.5), middle=(middle_busy, 0.5), last=(0.55, 0.0))

    found = diagnose(job(run(LAST, reached_ms=2_400), readings)).verdict

    assert (found.kind, found.vertex, found.second) == (VerdictKind.SYNC, LAST, None)


def test_a_vertex_that_a_sync_part_leaves_little_time_is_not_accused():
    """It works all the time outside the sync part, but only a quarter of the whole time."""
    readings = loads(source=(0.0, 1.0), middle=(0.27, 0.73), last=(0.8, 0.0))
    most = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[2_000] * 4),
            detail(LAST, first=[2_010] * 4, sync=3_750),
        )
        for n in range(1, 9)
    ]

    assert diagnose(job(most, readings)).verdict.second is None


def test_a_queue_before_a_long_sync_part_is_its_effect_unless_the_vertex_is_full_besides():
    effect = loads(source=(0.0, 0.95), middle=(0.9, 0.0), last=(0.1, 0.0))
    full = loads(source=(0.0, 1.0), middle=(1.0, 0.0), last=(0.1, 0.0))

    assert diagnose(job(run(MIDDLE, reached_ms=2_000), effect)).verdict.second is None
    found = diagnose(job(run(MIDDLE, reached_ms=2_000), full)).verdict
    assert {found.kind, found.second and found.second.kind} == {VerdictKind.SYNC, VerdictKind.CAPACITY}


def test_a_sync_part_that_leaves_no_time_hides_all_else():
    readings = loads(source=(0.0, 1.0), middle=(0.02, 0.98), last=(1.0, 0.0))
    always = [
        completed(
            n,
            detail(SOURCE, first=[5] * 4),
            detail(MIDDLE, first=[2_000] * 4),
            detail(LAST, first=[2_010] * 4, sync=4_900),
        )
        for n in range(1, 9)
    ]

    found = diagnose(job(always, readings, topology=chain(SOURCE, MIDDLE, LAST))).verdict

    assert (found.kind, found.second) == (VerdictKind.SYNC, None)
