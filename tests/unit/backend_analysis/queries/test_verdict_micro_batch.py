"""Tests of the headline of a Spark verdict, and of the line below it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.queries import verdict_micro_batch
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, MicroBatch
from backend.domain.topology import Topology

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def batch(number, *, took_ms=1_000, phase=BatchPhase.ADD_BATCH, is_failed=False):
    header = CheckpointHeader(
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=CheckpointStatus.FAILED if is_failed else CheckpointStatus.COMPLETED,
        triggered_at=NOW + timedelta(seconds=10 * number),
        end_to_end_duration_ms=None if is_failed else took_ms,
        failure_message="java.lang.IllegalStateException: no" if is_failed else None,
    )
    phases = ((phase, round(took_ms * 0.9)),)
    return Checkpoint(header, batch=MicroBatch(phases, input_row_count=100))


def verdict_of(*checkpoints, interval_ms=10_000):
    config = CheckpointConfig(interval_ms=interval_ms)
    evidence = JobEvidence(
        topology=Topology(()), now=NOW, config=config, checkpoints=checkpoints, is_micro_batched=True
    )
    return verdict_micro_batch.diagnose(evidence).verdict


@pytest.mark.parametrize(
    ("phase", "headline"),
    [
        (BatchPhase.ADD_BATCH, "The query lacks capacity for its input"),
        (BatchPhase.WAL_COMMIT, "The checkpoint store is slow"),
        (BatchPhase.LATEST_OFFSET, "The sources are slow"),
        (BatchPhase.QUERY_PLANNING, "The query is behind"),
    ],
)
def test_a_query_that_is_behind_has_its_cause_as_the_headline(phase, headline):
    verdict = verdict_of(*(batch(n, took_ms=15_000, phase=phase) for n in range(10)))

    assert verdict.headline == headline
    assert "90 % of the time goes to" in verdict.detail
    assert verdict.sentence.startswith("The query is behind")


def test_a_query_that_keeps_up_has_its_state_as_the_headline():
    verdict = verdict_of(*(batch(n) for n in range(10)))

    assert (verdict.headline, verdict.detail) == (
        "Micro-batches are healthy at 1.0 s",
        "The query keeps up with its input.",
    )


def test_a_query_that_ended_has_its_error_below_the_headline():
    verdict = verdict_of(batch(1), batch(2, is_failed=True))

    assert verdict.headline == "The query ended in batch 2"
    assert verdict.detail == "java.lang.IllegalStateException: no."


def test_a_query_without_batches_and_a_silent_driver_have_two_lines_too():
    silent = verdict_micro_batch.silent(NOW).verdict

    assert verdict_of().headline == "No micro-batch has ended yet"
    assert silent.headline == "The driver is silent"
    assert "2026-11-21 08:00:00 UTC" in silent.detail
