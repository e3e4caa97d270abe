"""What is kept of a model's evidence is enough for what answers show, and the kept models are bounded by their size."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.proposing import middle_of
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.analysis.measures.evidence import JobEvidence
from backend.contracts.whatif import Measure
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.engines import flink
from backend.domain.failure import FailureReason
from backend.domain.verdict import Basis
from backend.services.whatif.kept_parts import dropped_count, shown_part, subtask_count
from backend.services.whatif.models import ModelledJob
from backend.services.whatif.presenting import _now, measured_of
from tests.support.long_pasts import LongPast

FAILED = CheckpointStatus.FAILED


def _evidence() -> JobEvidence:
    drawn = LongPast(vertices=4, parallelism=6, checkpoints=90, seed=3)
    rows = tuple(drawn.rows())
    # The details of a checkpoint may be missing, and the newest one is still open.
    rows = (*rows[-40:-2], replace(rows[-2], details=()))
    return JobEvidence(
        topology=drawn.topology(),
        now=rows[-1].header.triggered_at + timedelta(seconds=60),
        config=drawn.config(),
        checkpoints=rows,
        pressure=tuple(drawn.readings()),
    )


def _values(evidence: JobEvidence) -> int:
    details = [d for c in evidence.checkpoints for d in c.details]
    arrays = [v for d in details for v in (d.sync_duration_ms, d.ack_delay_ms)]
    arrays += [v for r in evidence.pressure for v in (r.busy_ratio, r.records_in_count, r.records_out_count)]
    return sum(map(len, arrays))


def test_what_was_measured_is_the_same_from_the_kept_part():
    evidence = _evidence()
    tiered = QuickTiers().build(evidence, flink("1.20.5"), "1.20.5")
    whole, part = (ModelledJob(None, e, tiered) for e in (evidence, shown_part(evidence)))

    assert measured_of(part) == measured_of(whole)
    assert {m.measure for m in measured_of(part)[0] if m.value is not None} >= {Measure.SYNC, Measure.THROUGHPUT}
    assert _values(part.evidence) < 0.2 * _values(evidence)
    assert subtask_count(part.evidence) == 24


@pytest.mark.parametrize(("every", "is_bound"), [(1, True), (9, False)])
def test_a_median_that_expired_checkpoints_reach_is_a_lower_bound(every, is_bound):
    evidence = _evidence()
    rows = [
        c if n % every else replace(c, header=replace(c.header, status=FAILED, failure_reason=FailureReason.EXPIRED,
                                                      end_to_end_duration_ms=600_000))
        for n, c in enumerate(evidence.checkpoints)
    ]  # fmt: skip
    evidence = replace(evidence, checkpoints=tuple(rows))
    tiered = QuickTiers().build(evidence, flink("1.20.5"), "1.20.5")

    found = {m.measure: m for m in measured_of(ModelledJob(None, evidence, tiered))[0]}

    assert found[Measure.DURATION].is_lower_bound == is_bound
    assert found[Measure.SYNC].is_lower_bound
    assert not found[Measure.EXPIRED].is_lower_bound
    assert not found[Measure.PERSISTED].is_lower_bound


@pytest.mark.parametrize(
    ("sizes", "dropped"),
    [
        ([], 0),
        ([10], 0),
        ([500], 0),
        ([40, 40, 20], 0),
        ([40, 40, 21], 1),
        ([500, 50, 50], 1),
        ([50, 50, 500], 2),
    ],
)
def test_the_oldest_are_dropped_until_the_others_are_small_enough(sizes, dropped):
    assert dropped_count(sizes, 100) == dropped


@pytest.mark.parametrize(("completed_ms", "is_bound"), [([100.0], True), ([100.0, 110.0], False)])
def test_a_median_between_a_completed_and_an_expired_checkpoint_is_a_lower_bound(completed_ms, is_bound):
    durations = [*completed_ms, 600_000.0]
    expired = [False] * len(completed_ms) + [True]

    shown = _now(Measure.DURATION, middle_of(durations), durations, Basis.MEASURED, expired)

    assert shown.value is not None
    assert shown.value < 600_000
    assert shown.is_lower_bound == is_bound
