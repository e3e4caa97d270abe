"""For any measured numbers, the verdict does not depend on the order of subtasks, a common delay or missing values."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

from hypothesis import given, note, settings
from hypothesis import strategies as st

from backend.analysis.health.progress import AckCurve, Judged, OpenCheckpoint, judge
from backend.analysis.measures.critical_path import critical_path, kept_pace_ms
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.verdict.verdict import checkpoint_verdict, diagnose
from backend.domain.checkpoint import (
    DETAIL_ARRAYS,
    Checkpoint,
    CheckpointConfig,
    LateBarrier,
    VertexDetail,
)
from backend.domain.failure import FailureReason
from backend.domain.pressure import VertexPressure
from backend.domain.verdict import Confidence, VerdictKind
from tests.support.handwritten_jobs import (
    ALIGNED,
    CHAIN,
    LAST,
    START,
    UNALIGNED,
    aligned_timeout,
    chain,
    completed,
    detail,
    failed,
    in_progress,
    job,
    reading,
    subtask_phases,
)

WIDTH = 3
MS = st.integers(0, 20_000)
CONFIGS = st.sampled_from([ALIGNED, UNALIGNED, aligned_timeout(1_000), CheckpointConfig(), None])
REASONS = st.sampled_from([FailureReason.EXPIRED, FailureReason.ASYNC_FAILURE, FailureReason.UNKNOWN])
TOPOLOGY = chain(parallelism=WIDTH)


@st.composite
def details(draw, vertex_id):
    first = draw(st.lists(st.one_of(st.none(), MS), min_size=WIDTH, max_size=WIDTH))
    parts = {part: draw(st.lists(MS, min_size=WIDTH, max_size=WIDTH)) for part in ("alignment", "sync", "async_")}
    return detail(vertex_id, first=first, **parts)


@st.composite
def checkpoints(draw, number=1):
    rows = [draw(details(v)) for v in CHAIN]
    if any(d.pending for d in rows):
        if draw(st.booleans()):
            return in_progress(number, *rows)
        return failed(number, *rows, reason=draw(REASONS), after_ms=draw(st.integers(1, 30_000)))
    return completed(number, *rows)


@st.composite
def ended(draw):
    """A checkpoint that completed: the barrier reached every subtask."""
    lists = {part: st.lists(MS, min_size=WIDTH, max_size=WIDTH) for part in ("first", "alignment", "sync", "async_")}
    return completed(1, *(detail(v, **draw(st.fixed_dictionaries(lists))) for v in CHAIN))


@st.composite
def readings(draw):
    found = []
    for at_s in (60, 61):
        for vertex in CHAIN:
            busy, held, records = [], [], []
            for _ in range(WIDTH):
                is_there = draw(st.booleans()) or draw(st.booleans())
                share = draw(st.sampled_from([0.0, 0.1, 0.3, 0.65, 0.9, 1.0]))
                back = draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]))
                busy.append(share if is_there else None)
                held.append(min(back, 1 - share) if is_there else None)
                records.append(draw(st.one_of(st.none(), st.integers(0, 1_000))) if is_there else None)
            found.append(reading(vertex, busy, held, records, at_s=at_s))
    return found


@st.composite
def evidences(draw):
    count = draw(st.integers(0, 6))
    run = [draw(checkpoints(number=n + 1)) for n in range(count)]
    pressure = draw(st.one_of(st.just([]), readings()))
    late = {
        c.header.checkpoint_id: tuple(
            LateBarrier(d.vertex_id, i, draw(MS), START, 1_000)
            for d in c.details
            for i in d.pending
            if draw(st.booleans())
        )
        for c in run
    }
    return job(run, pressure, topology=TOPOLOGY, config=draw(CONFIGS), late_barriers=late)


def permuted(evidence, order):
    """Return the same job with the subtasks of every vertex renumbered. Subtask ``order[n]`` becomes subtask ``n``."""

    def moved(values):
        return tuple(values[i] for i in order) if len(values) == len(order) else values

    def of_detail(d: VertexDetail) -> VertexDetail:
        return replace(d, **{name: moved(getattr(d, name)) for name in DETAIL_ARRAYS})

    def of_reading(r: VertexPressure) -> VertexPressure:
        arrays = [f.name for f in fields(r) if isinstance(getattr(r, f.name), tuple)]
        return replace(r, **{name: moved(getattr(r, name)) for name in arrays})

    back = {old: new for new, old in enumerate(order)}
    return replace(
        evidence,
        checkpoints=tuple(Checkpoint(c.header, tuple(of_detail(d) for d in c.details)) for c in evidence.checkpoints),
        pressure=tuple(of_reading(r) for r in evidence.pressure),
        late_barriers={
            n: tuple(replace(b, subtask=back[b.subtask]) for b in rows) for n, rows in evidence.late_barriers.items()
        },
    )


@settings(max_examples=150)
@given(evidences(), st.permutations(range(WIDTH)))
def test_renumbering_the_subtasks_renumbers_the_verdict(evidence, order):
    before, after = diagnose(evidence), diagnose(permuted(evidence, order))
    note(before.verdict.sentence)

    assert after.health is before.health
    assert after.verdict.kind is before.verdict.kind
    assert after.verdict.vertex_id == before.verdict.vertex_id
    assert after.verdict.confidence is before.verdict.confidence
    assert {order[i] for i in after.verdict.subtasks} == set(before.verdict.subtasks)


@given(evidences(), st.integers(0, 600_000))
def test_a_delay_of_all_subtasks_does_not_change_a_culprit_that_readings_show(evidence, shared_ms):
    """If every barrier arrives later by the same amount, the readings still show the same culprit."""
    named = {VerdictKind.CAPACITY, VerdictKind.SKEW, VerdictKind.STRAGGLER}
    before = diagnose(evidence).verdict
    later = replace(
        evidence,
        checkpoints=tuple(
            Checkpoint(
                replace(
                    c.header,
                    end_to_end_duration_ms=None
                    if c.header.end_to_end_duration_ms is None
                    else c.header.end_to_end_duration_ms + shared_ms,
                ),
                tuple(
                    replace(
                        d,
                        start_delay_ms=tuple(None if v is None else v + shared_ms for v in d.start_delay_ms),
                        ack_delay_ms=tuple(None if v is None else v + shared_ms for v in d.ack_delay_ms),
                    )
                    # A source that emits its barrier late would be a different culprit, so the values of sources do
                    # not change.
                    if TOPOLOGY.upstream(d.vertex_id)
                    else d
                    for d in c.details
                ),
            )
            for c in evidence.checkpoints
        ),
    )
    after = diagnose(later).verdict
    note(f"{before.sentence}\n{after.sentence}")

    if before.kind in named and after.kind in named and before.confidence is not Confidence.LOW:
        assert (after.kind, after.vertex_id, after.subtasks) == (before.kind, before.vertex_id, before.subtasks)


@given(evidences())
def test_every_verdict_has_its_parts(evidence):
    found = [diagnose(evidence).verdict, *(checkpoint_verdict(c, evidence) for c in evidence.checkpoints)]

    for verdict in found:
        note(verdict.sentence)
        assert verdict.sentence.endswith(".")
        assert "None" not in verdict.sentence
        assert "nan" not in verdict.sentence.split()
        assert all(0 <= i < WIDTH for i in verdict.subtasks)
        assert len(set(verdict.subtasks)) == len(verdict.subtasks)
        if verdict.kind not in (VerdictKind.NONE, VerdictKind.UNDECIDED):
            is_outside = verdict.kind in (VerdictKind.COORDINATOR, VerdictKind.RESTARTS)
            # A store that refuses what several vertices write is no subtask's fault.
            is_refused = verdict.kind is VerdictKind.STORE and not verdict.subtasks
            assert is_refused or (verdict.vertex is None) == is_outside
            assert bool(verdict.subtasks) != (is_outside or is_refused)
            assert verdict.evidence
            assert verdict.would_decide or not is_refused
        if verdict.kind is VerdictKind.UNDECIDED:
            assert verdict.would_decide
            assert verdict.confidence is Confidence.LOW
        for row in verdict.evidence:
            assert row.value is None or row.value == row.value


@given(checkpoints(), CONFIGS)
def test_no_phase_is_negative_and_their_order_holds_unless_clocks_differ(checkpoint, config):
    timeout = config.aligned_timeout_ms if config else None
    for row in checkpoint.details:
        for p in subtask_phases(checkpoint.header, row, timeout, config.is_unaligned_enabled if config else None):
            if p.has_clock_skew or not p.is_acknowledged:
                continue
            times = [0, p.first_barrier_ms, p.snapshot_at_ms, p.sync_end_ms, p.async_end_ms]
            assert times == sorted(times)
            assert p.snapshot_at_ms <= p.alignment_end_ms
            assert p.ack_wait_ms >= 0
            assert p.is_alignment_overlaid == (p.snapshot_at_ms < p.alignment_end_ms)


@given(checkpoints(), CONFIGS)
def test_a_value_that_was_not_reported_stays_unknown(checkpoint, config):
    timeout = config.aligned_timeout_ms if config else None
    for row in checkpoint.details:
        for p in subtask_phases(checkpoint.header, row, timeout, config.is_unaligned_enabled if config else None):
            if row.ack_delay_ms[p.subtask] is None:
                values = [getattr(p, f.name) for f in fields(p) if f.name.endswith(("_ms", "_bytes"))]
                assert values == [None] * len(values)


@given(checkpoints(), CONFIGS)
def test_a_critical_path_has_no_gap_no_overlap_and_begins_at_the_trigger(checkpoint, config):
    path = critical_path(checkpoint, TOPOLOGY, config)
    if path is None or not path.steps:
        return
    steps = path.steps

    assert steps[0].start_ms == 0
    assert all(a.end_ms == b.start_ms for a, b in pairwise(steps))
    assert all(s.end_ms > s.start_ms for s in steps)
    if not any(d.pending for d in checkpoint.details):
        latest = max(a for d in checkpoint.details for a in d.ack_delay_ms)
        assert steps[-1].end_ms == latest


@given(
    st.lists(st.lists(MS, min_size=4, max_size=4).map(sorted).map(tuple).map(AckCurve), max_size=4),
    st.integers(0, 4),
    st.integers(0, 60_000),
    st.integers(0, 60_000),
    st.one_of(st.none(), st.integers(1, 60_000)),
)
def test_more_elapsed_time_never_makes_the_judgement_better(past, acknowledged, elapsed, more, timeout):
    rank = [Judged.PROGRESSING, Judged.SLOW, Judged.STUCK]
    last = min(elapsed, 5_000) if acknowledged else None

    sooner = judge(OpenCheckpoint(elapsed, acknowledged, 4, last, timeout), past).state
    later = judge(OpenCheckpoint(elapsed + more, acknowledged, 4, last, timeout), past).state

    assert rank.index(later) >= rank.index(sooner)


@given(st.lists(st.one_of(st.none(), MS), min_size=WIDTH, max_size=WIDTH))
def test_a_gauge_fills_in_its_own_subtask_only(first):
    row = detail(LAST, first=first)
    pending = row.pending
    late = [LateBarrier(LAST, i, 7, START, 1_000) for i in pending[:1]]

    phases = subtask_phases(failed(1, row).header, row, None, False, late)

    assert [p.subtask for p in phases if not p.is_acknowledged and p.first_barrier_ms is not None] == list(pending[:1])


@given(
    ended(),
    CONFIGS,
    st.sampled_from(CHAIN),
    st.sets(st.integers(0, WIDTH - 1), min_size=1),
    st.integers(0, WIDTH - 1),
    st.integers(-5_000, 5_000),
)
def test_taking_the_slowest_out_never_makes_a_checkpoint_longer(checkpoint, config, vertex, slow, other, late_ms):
    """The header may be older than the acknowledgements (``late_ms``), and a larger set never helps less."""
    took_ms = checkpoint.header.end_to_end_duration_ms
    if took_ms is not None:
        took_ms = max(0, took_ms - late_ms)
        header = replace(checkpoint.header, end_to_end_duration_ms=took_ms)
        checkpoint = replace(checkpoint, header=header)
    phases = checkpoint_phases(checkpoint, config, ())
    path = critical_path(checkpoint, TOPOLOGY, config)
    less, more = (kept_pace_ms(phases, TOPOLOGY, vertex, who, took_ms=took_ms) for who in (slow, slow | {other}))

    for instead_ms in (less, more, path and path.without_last_ms):
        if instead_ms is not None and took_ms is not None:
            assert 0 <= instead_ms <= took_ms
    if less is not None and more is not None:
        assert more <= less


@settings(max_examples=150)
@given(st.lists(ended(), min_size=1, max_size=4), readings(), CONFIGS, st.integers(0, 15_000))
def test_no_evidence_says_that_a_checkpoint_would_have_been_longer_without_its_slowest(run, pressure, config, late_ms):
    """The duration of every header is older than its acknowledgements by ``late_ms``."""
    durations: dict[int, int] = {}
    aged = []
    for number, one in enumerate(run, 1):
        durations[number] = max(0, one.header.end_to_end_duration_ms - late_ms)
        header = replace(one.header, checkpoint_id=number, end_to_end_duration_ms=durations[number])
        aged.append(replace(one, header=header))
    found = diagnose(job(aged, pressure, topology=TOPOLOGY, config=config)).verdict
    for row in found.evidence:
        if " had kept pace " in row.statement:
            note(row.statement)
            assert row.value < durations[int(row.statement.split("duration of checkpoint ")[1].split()[0])]
