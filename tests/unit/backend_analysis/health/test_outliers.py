"""Tests of what is said of a checkpoint that took many times as long as those before it."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from itertools import pairwise

import pytest

from backend.analysis.health.outliers import _SETTING_WORDS, reading_spans
from backend.analysis.verdict.verdict import checkpoint_verdict
from backend.domain.checkpoint import CheckpointConfig, CheckpointKind
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Phase, VerdictKind
from tests.support.handwritten_jobs import (
    LAST,
    MIDDLE,
    SOURCE,
    START,
    chain,
    completed,
    detail,
    failed,
    in_progress,
    job,
    quick,
    reading,
)

LONG = CheckpointConfig(interval_ms=60_000, timeout_ms=600_000, is_unaligned_enabled=False)
"""A checkpoint of some seconds is well under these settings."""
BEFORE = [quick(n) for n in range(1, 9)]


def slow(number=9, **last):
    return completed(
        number,
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[9] * 4, async_=2),
        detail(LAST, **({"first": [20] * 4} | last)),
    )


def judged(checkpoint, before=BEFORE, pressure=(), **more):
    return checkpoint_verdict(checkpoint, job([*before, checkpoint], pressure, **({"config": LONG} | more)))


def steady(until_s=60, *, share=0.25, burst=(), busy=0.2):
    """Build a reading of every vertex each second. In ``burst``, subtask 2 of the last gets ``share`` of ten times."""
    rows, counts, emitted = [], [0.0] * 4, 0
    for s in range(until_s):
        is_burst = s in burst
        total = 1_000 if is_burst else 100
        emitted += total
        shares = [(1 - share) / 3] * 4 if is_burst else [0.25] * 4
        shares[2] = share if is_burst else 0.25
        counts = [c + total * part for c, part in zip(counts, shares, strict=True)]
        row = reading(SOURCE, [0.1] * 4, at_s=s)
        rows.append(replace(row, records_out_count=(emitted // 4,) * 4))
        rows.append(reading(MIDDLE, [0.1] * 4, at_s=s))
        rows.append(reading(LAST, [0.9 if is_burst else busy] * 4, records=[round(c) for c in counts], at_s=s))
    return rows


def test_a_checkpoint_that_took_many_times_as_long_is_compared_with_those_before_it():
    found = judged(slow(sync=[10, 4_000, 10, 10]))

    assert found.kind is VerdictKind.SYNC
    assert found.sentence.startswith(
        "Completed after 4.0 s (all 8 checkpoints before it took about 40 ms), probably because"
    )
    assert found.sentence.endswith("What was different: the sync part of last subtask 1 took 4.0 s instead of 0 ms.")
    outlier = found.outlier
    assert (outlier.vertex, outlier.subtasks, outlier.phase) == ("last", (1,), Phase.SYNC)
    assert outlier.usual_ms == 40
    assert outlier.times == pytest.approx(4_020 / 40)
    assert outlier.extra_ms == pytest.approx(4_000, abs=40)
    assert any(row.value == outlier.usual_ms for row in found.evidence)
    assert found.detail.endswith("instead of 0 ms.")


def test_under_the_same_settings_a_checkpoint_like_its_neighbours_is_not_called_different():
    assert judged(quick(9, 150)).outlier is None, "four times as long, and quick"
    before = [slow(n, sync=4_000) for n in range(1, 9)]
    assert judged(slow(9, sync=4_000), before).outlier is None
    assert judged(slow(9, sync=4_000), BEFORE[:3]).outlier is None, "too few before it"
    savepoint = slow(9, sync=4_000)
    savepoint = replace(savepoint, header=replace(savepoint.header, kind=CheckpointKind.SAVEPOINT))
    assert judged(savepoint).outlier is None


def test_a_checkpoint_is_not_called_different_if_most_of_those_before_it_took_nearly_as_long():
    # In a recording of a job whose durations grew, the quartile was low, and 1.3 times the median was "different".
    config = replace(LONG, interval_ms=4_000)
    before = [*(quick(n) for n in (1, 2)), *(slow(n, sync=1_900) for n in range(3, 9))]
    assert judged(slow(9, sync=2_400), before, config=config).outlier is None
    assert judged(slow(9, sync=9_000), before, config=config).outlier is not None


def test_the_quick_ones_among_struck_neighbours_are_what_is_usual():
    before = [quick(n) if n % 3 else slow(n, sync=4_000) for n in range(1, 13)]
    found = judged(slow(13, sync=4_000), before)

    assert found.outlier.neighbour_count == 8
    assert "(8 of the 12 checkpoints before it took about 40 ms)" in found.sentence


def test_a_cause_that_no_rule_names_still_has_its_place_and_what_was_different():
    checkpoint = slow(first=[3_000, 3_100, 5_000, 3_000])
    found = judged(checkpoint, pressure=steady(share=0.7, burst=range(41, 51)))

    outlier = found.outlier
    assert (outlier.vertex, outlier.phase) == ("last", Phase.START_DELAY)
    assert outlier.subtasks == (0, 1, 2, 3)
    assert "the input was 10 times as high as around the others" in outlier.differences
    assert "last subtask 2 read 67 % of all records, and 25 % around the others" in outlier.differences
    assert any("busy 90 % of the time instead of 20 %" in words for words in outlier.differences)


def sparse(*, busy):
    """Build readings ten seconds apart, in which the last vertex reads as many records as ever."""
    rows = []
    for n, s in enumerate(range(4, 64, 10)):
        rows.append(replace(reading(SOURCE, [0.1] * 4, at_s=s), records_out_count=(100 * n,) * 4))
        rows.append(reading(MIDDLE, [0.1] * 4, at_s=s))
        rows.append(reading(LAST, [busy] * 4, records=[100 * n] * 4, at_s=s))
    return rows


@pytest.mark.parametrize(("busy", "kind"), [(0.1, VerdictKind.CALLBACK), (0.5, VerdictKind.UNDECIDED)])
def test_a_subtask_that_stood_still_between_two_readings_and_then_caught_up_is_named(busy, kind):
    # The barrier waited for seven of the ten seconds. In the rest, only a subtask with much time to spare catches up.
    found = judged(slow(first=[20, 20, 7_000, 20]), pressure=sparse(busy=busy))

    assert found.kind is kind
    assert found.outlier.subtasks == (2,)
    if kind is VerdictKind.CALLBACK:
        assert found.subtasks == (2,)
        assert "last subtask 2 stands still for up to 7.0 s in a long callback" in found.sentence


@pytest.mark.parametrize(("burst_count", "kind"), [(1, VerdictKind.CALLBACK), (60, VerdictKind.UNDECIDED)])
def test_a_burst_of_a_source_that_usually_emits_little_is_no_steady_input(burst_count, kind):
    # It once was, and the subtask that got the burst was accused of a callback.
    side = VertexId("side")
    topology = Topology(
        (Vertex(side, "side", 4), *chain().vertices), (*chain().edges, Edge(side, chain().vertices[1].id, "HASH"))
    )
    rows = sparse(busy=0.1)
    for n, s in enumerate(range(4, 64, 10)):
        count = n + (burst_count if s >= 54 else 0)
        rows.append(replace(reading(SOURCE, [0.1] * 4, at_s=s), vertex_id=side, records_out_count=(count,) * 4))
    found = judged(slow(first=[20, 20, 7_000, 20]), pressure=rows, topology=topology)

    assert found.kind is kind


def spread(rates, *, every_s=10, from_s=7):
    """Build readings of the source that are far apart. ``rates`` are the records in a second between them."""
    rows, emitted = [], 0
    for n, rate in enumerate([0, *rates]):
        emitted += rate * every_s
        rows.append(replace(reading(SOURCE, [0.1] * 4, at_s=from_s + n * every_s), records_out_count=(emitted,) * 4))
    return rows


@pytest.mark.parametrize(
    ("rates", "every_s", "is_named"),
    [
        ([100] * 8 + [800] * 2, 10, True),
        ([100] * 10, 10, False),
        # The burst is over before the checkpoint, or comes after it.
        ([100] * 6 + [800, 100, 100, 100], 10, False),
        ([100] * 9 + [800], 10, False),
        # Readings that are still further apart do not show the input of a few seconds.
        ([100] * 2 + [800], 30, False),
    ],
)
def test_a_burst_is_named_by_readings_that_are_further_apart_than_it_counts_for_a_checkpoint(rates, every_s, is_named):
    """The checkpoints are 10 s apart. No time between two readings has its middle shortly before a quick one."""
    before = [quick(n, every_s=10) for n in range(1, 9)]
    checkpoint = slow(9, first=[3_000, 3_100, 5_000, 3_000])
    checkpoint = replace(checkpoint, header=replace(checkpoint.header, triggered_at=START + timedelta(seconds=90)))
    found = judged(checkpoint, before, spread(rates, every_s=every_s))

    assert ("the input was 8.0 times as high as around the others" in found.outlier.differences) is is_named
    assert is_named or not any("input" in words for words in found.outlier.differences)


def test_steady_input_is_not_called_different():
    found = judged(slow(first=[3_000, 3_100, 5_000, 3_000]), pressure=steady())

    assert found.outlier.differences == (
        "the way of the barrier to all 4 subtasks of last took 5.0 s instead of 38 ms",
    )


def test_events_just_before_the_checkpoint_are_told():
    restarted = (START + timedelta(seconds=43), "java.io.IOException: disk full")
    found = judged(slow(sync=4_000), exceptions=(restarted,), restart_count=1)
    assert "the job had failed and restarted 2.0 s before it" in found.outlier.differences
    long_ago = (START + timedelta(seconds=12), "java.io.IOException: disk full")
    found = judged(slow(sync=4_000), exceptions=(long_ago,), restart_count=1)
    assert not any("restarted" in words for words in found.outlier.differences)

    savepoint = quick(20, 6_000, every_s=2.2)
    savepoint = replace(savepoint, header=replace(savepoint.header, kind=CheckpointKind.SAVEPOINT))
    found = judged(slow(sync=4_000), [*BEFORE, savepoint])
    assert "savepoint 20 ran at the same time" in found.outlier.differences

    before = replace(LONG, interval_ms=5_000, is_unaligned_enabled=True)
    found = judged(slow(sync=4_000), config_before=before)
    assert (
        "the settings had changed before it: interval from 5.0 s to 1 min and unaligned checkpoints from on to off"
    ) in found.outlier.differences


def test_after_a_rescale_the_change_of_the_parallelism_is_told():
    before = [quick(n, topology=chain(parallelism=2)) for n in range(1, 9)]
    found = judged(slow(sync=4_000), before)

    assert "the parallelism had changed from 2 to 4 before it" in found.outlier.differences
    assert found.outlier.phase is Phase.SYNC
    # The subtasks cannot be matched, so it is not known what is usual.
    assert found.outlier.usual_phase_ms is None
    assert found.outlier.differences[0].endswith("took 4.0 s")


def test_a_setting_that_was_not_reported_has_not_changed():
    before = replace(LONG, timeout_ms=None, is_unaligned_enabled=None, state_backend="hashmap")
    found = judged(slow(sync=4_000), config_before=before)
    assert not any("settings" in words for words in found.outlier.differences)
    assert set(_SETTING_WORDS) == {f.name for f in fields(CheckpointConfig)}


def test_a_savepoint_that_still_runs_is_told():
    savepoint = in_progress(8, *quick(8).details, every_s=5.4)
    savepoint = replace(savepoint, header=replace(savepoint.header, kind=CheckpointKind.SAVEPOINT))
    found = judged(slow(sync=4_000), [*BEFORE[:7], savepoint])
    assert "savepoint 8 ran at the same time" in found.outlier.differences


def test_a_phase_that_had_not_ended_has_a_lower_bound_and_no_duration():
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9] * 4), detail(LAST, first=[None, 9, 9, 9])
    found = judged(failed(9, *rows, after_ms=30_000)).outlier
    assert found.phase_ms is None
    assert found.differences[0] == (
        "the way of the barrier to last subtask 0 had not ended after at least 30.0 s, and usually takes 38 ms"
    )


@pytest.mark.parametrize("emitted", [lambda s: 0, lambda s: int(s >= 46)])
def test_a_job_without_input_or_with_a_few_records_has_no_burst(emitted):
    rows = [replace(reading(SOURCE, [0.1] * 4, at_s=s), records_out_count=(emitted(s),) * 4) for s in range(60)]
    assert not any("input" in words for words in judged(slow(sync=4_000), pressure=rows).outlier.differences)


def test_a_load_that_alternates_all_the_time_is_not_called_different():
    rows = [reading(LAST, [0.3 if s % 2 else 0.9] * 4, at_s=s) for s in range(60)]
    rows = [r for r in rows if r.observed_at != START + timedelta(seconds=40)]
    found = judged(slow(sync=4_000), pressure=rows)
    assert not any("busy" in words for words in found.outlier.differences)


def test_without_a_place_every_difference_has_a_row():
    restarted = (START + timedelta(seconds=43), "java.io.IOException: disk full")
    bare = replace(slow(sync=4_000), details=())
    found = judged(bare, exceptions=(restarted,), restart_count=1)
    assert found.outlier.extra_ms is None
    assert set(found.outlier.differences) <= {row.statement for row in found.evidence}


def test_more_written_bytes_are_told():
    before = [
        replace(c, header=replace(c.header, checkpointed_size_bytes=2_000_000, persisted_bytes=0)) for c in BEFORE
    ]
    one = slow(async_=4_000)
    one = replace(one, header=replace(one.header, checkpointed_size_bytes=90_000_000, persisted_bytes=0))

    assert "it wrote 90.0 MB instead of 2.0 MB" in judged(one, before).outlier.differences


def test_expired_and_open_checkpoints_are_compared_too_and_declined_ones_are_not():
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9] * 4), detail(LAST, first=[None, 9, 9, 9])
    expired = judged(failed(9, *rows, after_ms=30_000))
    assert expired.sentence.startswith("Expired after 30.0 s (all 8 checkpoints before it took about 40 ms)")
    assert (expired.outlier.vertex, expired.outlier.subtasks) == ("last", (0,))
    opened = judged(in_progress(9, *rows))
    assert opened.sentence.startswith("Open for 17.0 s with 11 of 12 subtasks acknowledged (all 8 checkpoints")
    declined = judged(failed(9, *rows, after_ms=30_000, reason=FailureReason.ASYNC_FAILURE))
    assert declined.outlier is None


def test_without_the_values_of_the_subtasks_only_the_durations_are_compared():
    bare = slow(sync=4_000)
    found = judged(replace(bare, details=()))

    assert found.outlier.times > 90
    assert (found.outlier.vertex, found.outlier.phase, found.outlier.differences) == (None, None, ())


def test_readings_are_asked_for_around_the_newest_quick_neighbours_only_if_they_matter():
    long = slow(sync=4_000)
    evidence = job([*BEFORE, long], [reading(LAST, [0.1] * 4, at_s=44)], config=LONG)
    spans = reading_spans(long, evidence)

    # Of neighbours 5 s apart, one time has the readings around all of them.
    assert spans == [(START + timedelta(seconds=13), START + timedelta(seconds=44))]
    apart = [quick(n, every_s=60) for n in range(1, 9)]
    late = replace(long, header=replace(long.header, triggered_at=START + timedelta(seconds=540)))
    spans = reading_spans(late, job([*apart, late], config=LONG))
    assert len(spans) == 3
    assert all(a < b for a, b in spans)
    assert all(a[1] <= b[0] for a, b in pairwise(spans)), "they do not overlap"
    for (since, until), number in zip(spans, (6, 7, 8), strict=True):
        # Readings 10 s apart show what came in the seconds before the trigger.
        trigger = START + timedelta(seconds=60 * number)
        assert since <= trigger - timedelta(seconds=15)
        assert until >= trigger + timedelta(seconds=10)
    assert reading_spans(quick(9), replace(evidence, checkpoints=(*BEFORE, quick(9)))) == []
