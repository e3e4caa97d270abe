"""Tests of the comparison of two checkpoints: differences, the step that lost the time, and the sentence about it."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from backend.analysis.measures.comparison import (
    Side,
    batch_parts,
    cause_of,
    headline,
    signed,
    subtask_differences,
    vertex_differences,
)
from backend.analysis.measures.phases import checkpoint_phases
from backend.domain.checkpoint import Checkpoint, LateBarrier, SubtaskMeasure
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.micro_batch import BatchPhase, MicroBatch
from backend.domain.verdict import Basis, Phase
from tests.support.handwritten_jobs import (
    ALIGNED,
    LAST,
    MIDDLE,
    SOURCE,
    START,
    chain,
    completed,
    detail,
    failed,
    in_progress,
)


def _side(checkpoint, parallelism=4, late=(), maxima_ms=None):
    topology = chain(parallelism=parallelism)
    phases = checkpoint_phases(checkpoint, ALIGNED, late)
    return Side(f"#{checkpoint.header.checkpoint_id}", checkpoint, topology, phases, maxima_ms or {})


def _healthy(number=38):
    return _side(
        completed(
            number,
            detail(SOURCE, first=[3] * 4, async_=20),
            detail(MIDDLE, first=[10] * 4, alignment=5, async_=20),
            detail(LAST, first=[30, 31, 32, 33], alignment=6, async_=20),
        )
    )


def _held(number=42):
    """Return a checkpoint in which subtask 2 of the middle vertex aligns for 12.9 s.

    All vertices downstream get the barrier late.
    """
    return _side(
        completed(
            number,
            detail(SOURCE, first=[3] * 4, async_=20),
            detail(MIDDLE, first=[10] * 4, alignment=[5, 7, 12_905, 6], async_=20),
            detail(LAST, first=[30, 31, 32, 33], alignment=12_890, async_=20),
        )
    )


def test_the_cause_is_the_phase_in_which_the_longer_checkpoint_lost_its_time():
    cause = cause_of(_held(), _healthy())

    assert (cause.phase, cause.vertex, cause.subtask) == (Phase.ALIGNMENT, "middle", 2)
    assert cause.difference_ms == 12_900
    assert cause.basis is Basis.RECONSTRUCTED


def test_a_shorter_checkpoint_has_the_negative_difference_and_the_same_cause():
    there, back = cause_of(_held(), _healthy()), cause_of(_healthy(), _held())

    assert back == replace(there, difference_ms=-there.difference_ms, phase_difference_ms=-there.phase_difference_ms)


def test_the_headline_names_both_durations_and_the_cause():
    a, b = _held(), _healthy()

    assert headline(a, b, cause_of(a, b)) == "#42 took 12.9 s, #38 59 ms: +12.9 s of alignment at middle subtask 2."
    assert headline(b, a, cause_of(b, a)) == "#38 took 59 ms, #42 12.9 s: -12.9 s of alignment at middle subtask 2."


def test_two_equal_checkpoints_have_no_cause():
    a, b = _healthy(39), _healthy(38)

    assert cause_of(a, b) is None
    assert headline(a, b, None) == "#39 took 59 ms, #38 59 ms: they differ by less than 100 ms."


def test_the_lateness_of_the_steps_sums_to_the_difference_of_the_durations():
    # With one subtask per vertex, there is only one path, so its steps must account for the whole difference.
    for seed in range(60):
        rnd = random.Random(seed)

        def drawn(number, rnd=rnd):
            at, rows = 0, []
            for v in (SOURCE, MIDDLE, LAST):
                first, align = at + rnd.randrange(2_000), rnd.randrange(2_000)
                rows.append(detail(v, first=[first], alignment=align, sync=rnd.randrange(50), async_=1))
                at = first + align
            return _side(completed(number, *rows), parallelism=1)

        a, b = drawn(2), drawn(1)
        cause = cause_of(a, b)
        total = a.header.end_to_end_duration_ms - b.header.end_to_end_duration_ms
        if abs(total) < 100:
            assert cause is None, f"seed {seed}"
        else:
            # The largest of 12 parts (4 for each vertex) is at least a twelfth of the whole.
            assert cause.difference_ms * total > 0, f"seed {seed}"
            assert abs(cause.difference_ms) >= abs(total) / 12, f"seed {seed}"


def test_a_checkpoint_that_expired_is_the_longer_one_and_its_pending_subtask_is_named():
    rows = (
        detail(SOURCE, first=[3] * 4, async_=20),
        detail(MIDDLE, first=[10] * 4, alignment=5, async_=20),
        detail(LAST, first=[30, None, 31, 33], alignment=6, async_=20),
    )
    a, b = _side(failed(42, *rows, after_ms=3_000)), _healthy()

    cause = cause_of(a, b)

    assert (cause.vertex, cause.subtask, cause.is_at_least) == ("last", 1, True)
    assert cause.difference_ms == pytest.approx(2_969, abs=20)
    assert headline(a, b, cause) == (
        "#42 expired after 3.0 s, #38 took 59 ms: at least +3.0 s of start delay at last subtask 1, which did not "
        "acknowledge."
    )


def _expired(number, first, alignment=5):
    rows = detail(SOURCE, first=[3] * 4), detail(MIDDLE, first=first, alignment=alignment)
    return _side(failed(number, *rows, after_ms=3_000))


def test_two_expired_checkpoints_are_compared_by_what_their_subtasks_reported():
    """Both took as long as the timeout, which says nothing. They were only called expired."""
    a, b = _expired(2, [10, 1_900, 10, None], [5, 900, 5, 5]), _expired(1, [10] * 4)
    cause = cause_of(a, b)

    assert (cause.phase, cause.vertex, cause.subtask) == (Phase.START_DELAY, "middle", 1)
    assert (cause.difference_ms, cause.is_at_least, cause.basis) == (1_890, True, Basis.MEASURED)
    assert headline(a, b, cause) == (
        "#2 expired after 3.0 s, #1 expired after 3.0 s: both would have taken longer; acknowledged: 7 of 8 "
        "subtasks in #2, 8 of 8 subtasks in #1; of what is known, the largest start delay of middle differs most: at "
        "least +1.9 s at subtask 1."
    )
    assert cause_of(b, a) == replace(cause, difference_ms=-1_890, phase_difference_ms=-1_890)


def test_a_phase_of_two_expired_checkpoints_is_not_compared_if_the_smaller_value_is_a_lower_bound():
    a, b = _expired(2, [10, 1_900, 10, 10]), _expired(1, [10, None, 10, 10])
    assert cause_of(a, b) is None
    assert headline(a, b, None).endswith("#1; no phase that is known differs by 100 ms.")


def test_the_headline_says_that_a_phase_contains_what_arose_before_it():
    """The headline had +477 ms, and the chart +866 ms of the same phase at the same vertex."""

    def run(number, alignment, last):
        rows = detail(SOURCE, first=[3] * 4), detail(MIDDLE, first=[10] * 4, alignment=alignment)
        return _side(completed(number, *rows, detail(LAST, first=[last] * 4)))

    a, b = run(42, 394, 886), run(38, 5, 20)
    cause = cause_of(a, b)

    assert (cause.difference_ms, cause.phase_difference_ms) == (477, 866)
    assert headline(a, b, cause).endswith(
        ": +477 ms of start delay at last subtask 0 (its largest start delay differs by +866 ms, with what arose "
        "before it)."
    )


def test_a_declined_checkpoint_has_no_cause_because_its_duration_tells_nothing():
    a = _side(failed(42, detail(SOURCE, first=[3] * 4), reason=FailureReason.DECLINED, after_ms=200))

    assert cause_of(a, _healthy()) is None
    assert headline(a, _healthy(), None) == "#42 failed after 200 ms (declined), #38 took 59 ms."


def test_an_open_checkpoint_has_no_cause():
    a = _side(in_progress(42, detail(SOURCE, first=[3] * 4)))

    assert cause_of(a, _healthy()) is None
    assert headline(a, _healthy(), None) == "#42 has not ended, #38 took 59 ms."


def test_without_subtasks_the_largest_phases_name_the_cause():
    def bare(number, took, alignment):
        header = replace(completed(number).header, end_to_end_duration_ms=took)
        return _side(Checkpoint(header), maxima_ms={Phase.START_DELAY: 30, Phase.ALIGNMENT: alignment})

    a, b = bare(42, 5_000, 4_700), bare(38, 300, 20)
    cause = cause_of(a, b)

    assert (cause.phase, cause.difference_ms, cause.vertex) == (Phase.ALIGNMENT, 4_680, None)
    assert headline(a, b, cause) == "#42 took 5.0 s, #38 300 ms: +4.7 s of alignment, at the slowest subtask."
    assert cause_of(bare(42, 5_000, None), b) is None


def test_a_vertex_has_the_largest_time_of_its_subtasks_and_the_sum_of_their_bytes():
    (source, middle, last) = vertex_differences(_held(), _healthy())
    by = {m.measure: m for m in middle.measures}

    assert [v.vertex for v in (source, middle, last)] == ["source", "middle", "last"]
    assert (by[SubtaskMeasure.ALIGNMENT].a, by[SubtaskMeasure.ALIGNMENT].a_subtask) == (12_905, 2)
    assert by[SubtaskMeasure.ALIGNMENT].difference == 12_900
    assert by[SubtaskMeasure.CHECKPOINTED].a == 4_000
    assert by[SubtaskMeasure.CHECKPOINTED].difference == 0


def test_a_missing_value_is_missing_and_not_zero():
    other = _side(completed(38, detail(SOURCE, first=[3] * 4)))
    pending = _side(failed(42, detail(SOURCE, first=[3, None, 3, 3]), detail(LAST, first=[None] * 4)))

    rows = {v.vertex: {m.measure: m for m in v.measures} for v in vertex_differences(pending, other)}

    assert rows["last"][SubtaskMeasure.ALIGNMENT].a is None
    assert rows["last"][SubtaskMeasure.ALIGNMENT].b is None
    assert rows["last"][SubtaskMeasure.ALIGNMENT].difference is None
    # A subtask that has not acknowledged would have been the slowest one.
    assert rows["source"][SubtaskMeasure.DURATION].a is None
    assert rows["source"][SubtaskMeasure.DURATION].b is not None
    assert "middle" not in rows


def test_the_subtasks_that_differ_most_come_first_and_unknown_ones_last():
    a = _side(completed(2, detail(SOURCE, first=[3, 900, 40, 7, 5])), parallelism=5)
    b = _side(completed(1, detail(SOURCE, first=[3, 10, 900, 7])), parallelism=4)

    found = subtask_differences(a, b, SOURCE, SubtaskMeasure.START_DELAY, limit=5)

    assert [s.subtask for s in found] == [1, 2, 0, 3, 4]
    pending = _side(
        failed(3, detail(SOURCE, first=[3, None, 40, None])), late=[LateBarrier(SOURCE, 3, 900, START, 500)]
    )
    assert [s.subtask for s in subtask_differences(pending, b, SOURCE, SubtaskMeasure.DURATION, limit=5)] == [
        2,
        0,
        3,
        1,
    ]
    first = {m.measure: m for m in found[0].measures}
    assert first[SubtaskMeasure.START_DELAY].difference == 890
    last = {m.measure: m for m in found[-1].measures}
    assert (last[SubtaskMeasure.START_DELAY].a, last[SubtaskMeasure.START_DELAY].b) == (5, None)
    assert len(subtask_differences(a, b, SOURCE, SubtaskMeasure.SYNC, limit=2)) == 2
    assert subtask_differences(a, b, VertexId("unknown"), SubtaskMeasure.SYNC, limit=2) == ()


def test_micro_batches_are_compared_by_their_parts():
    def batch(number, took, **parts):
        header = replace(completed(number).header, end_to_end_duration_ms=took)
        phases = tuple((BatchPhase(name.replace("_", "-")), ms) for name, ms in parts.items())
        return _side(Checkpoint(header, batch=MicroBatch(phases_ms=phases)))

    a, b = batch(42, 9_000, add_batch=8_600, wal_commit=100), batch(38, 700, add_batch=600)

    assert list(batch_parts(a, b)) == [
        (BatchPhase.WAL_COMMIT, 100, None),
        (BatchPhase.ADD_BATCH, 8_600, 600),
        (None, 300, 100),
    ]
    assert cause_of(a, b).batch_phase is BatchPhase.ADD_BATCH
    assert headline(a, b, cause_of(a, b)) == "#42 took 9.0 s, #38 700 ms: +8.0 s of add batch."


@pytest.mark.parametrize(("ms", "words"), [(12_900, "+12.9 s"), (-40, "-40 ms"), (0, "0 ms")])
def test_a_difference_is_written_with_its_sign(ms, words):
    assert signed(ms) == words


def test_the_time_of_a_comparison_grows_about_as_the_number_of_subtasks():
    ids = [VertexId(f"v{i}") for i in range(40)]
    rnd = random.Random(7)

    def drawn(number, count):
        rows = (detail(v, first=[100 * i + rnd.randrange(90) for _ in range(count)]) for i, v in enumerate(ids))
        checkpoint = completed(number, *rows)
        return Side("#", checkpoint, chain(*ids, parallelism=count), checkpoint_phases(checkpoint, ALIGNED), {})

    def quickest_s(count):
        a, b = drawn(2, count), drawn(1, count)
        took = []
        for _ in range(3):
            began = time.process_time()
            cause_of(a, b)
            assert len(vertex_differences(a, b)) == 40
            subtask_differences(a, b, ids[7], SubtaskMeasure.DURATION, limit=20)
            took.append(time.process_time() - began)
        return min(took)

    # The time must not grow with the square of the number of subtasks. The ratio would then be 100.
    assert quickest_s(1000) < 40 * quickest_s(100)
