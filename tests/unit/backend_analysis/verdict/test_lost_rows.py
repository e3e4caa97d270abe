"""Tests of verdicts on jobs that lose output because their transactions time out before a checkpoint commits them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain import losses
from backend.domain.verdict import Confidence, Health, VerdictKind
from tests.support.handwritten_jobs import START, completed, job, quick
from tests.support.handwritten_runs import CALM, FULL_LAST, HEALTHY_RUN, SLOW_RUN

NOW = START + timedelta(seconds=62)


def lost(seconds_ago=5.0, rows=100, timeout_ms=1_000):
    at = NOW - timedelta(seconds=seconds_ago)
    return losses.read(at, f"sink/0: {losses.EXCEPTION}: {losses.timed_out(rows, 1, timeout_ms)}")


def test_a_job_that_loses_output_is_told_so_although_its_checkpoints_are_well():
    found = diagnose(job(HEALTHY_RUN, CALM, losses=(lost(5), lost(10, rows=23))))

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.LOST_ROWS)
    assert found.verdict.headline == "Output is lost"
    assert "123 rows in 2 transactions" in found.verdict.sentence
    assert "which is longer than its timeout of 1.0 s" in found.verdict.sentence
    values = {row.metric: row.value for row in found.verdict.evidence}
    assert (values["numRecordsLost"], values["failedCommittables"]) == (123, 2)
    assert values["transaction.timeout.ms"] == 1_000
    assert found.verdict.confidence is Confidence.HIGH
    assert any(row.statement.startswith("what cures it: ") for row in found.verdict.evidence)


def test_commits_that_a_connector_gave_up_are_most_likely_a_loss():
    at = NOW - timedelta(seconds=5)
    given_up = losses.read(at, losses.given_up("Sink: Committer", 3))
    found = diagnose(job(HEALTHY_RUN, CALM, losses=(given_up,))).verdict
    values = {row.metric: row.value for row in found.evidence}

    assert (found.kind, found.confidence) == (VerdictKind.LOST_ROWS, Confidence.MEDIUM)
    assert found.headline == "Output is most likely lost"
    assert "3 transactions failed to commit since" in found.sentence
    assert values["failedCommittables"] == 3
    assert "numRecordsLost" not in values, "Flink does not count the rows"
    assert "transaction.timeout.ms" not in values
    notes = [row.statement for row in found.evidence]
    assert not any(note.startswith("what cures it") for note in notes), "a timeout is one of several reasons"
    (first,) = [note for note in notes if note.startswith("why they failed is not known here")]
    assert first.index("Unable to commit transaction") < first.index("fenced") < first.index("a longer timeout")


def test_a_loss_is_no_restart():
    many = tuple(lost(5 * n) for n in range(1, 9))
    evidence = job(HEALTHY_RUN, CALM, losses=many)

    assert diagnose(evidence).health is Health.HEALTHY


def test_a_loss_counts_for_an_hour_or_while_the_next_one_may_not_be_due_yet():
    rare = replace(job().config, interval_ms=7_200_000)

    def kind(seconds_ago, **more):
        return diagnose(job(HEALTHY_RUN, CALM, losses=(lost(seconds_ago),), **more)).verdict.kind

    assert kind(3_590) is VerdictKind.LOST_ROWS
    assert kind(3_610) is not VerdictKind.LOST_ROWS
    assert kind(3_610, config=rare) is VerdictKind.LOST_ROWS


def test_a_cause_of_slow_checkpoints_comes_first_and_the_loss_is_said_in_addition():
    without = diagnose(job(SLOW_RUN, FULL_LAST)).verdict
    found = diagnose(job(SLOW_RUN, FULL_LAST, losses=(lost(),))).verdict

    assert (found.kind, found.vertex) == (without.kind, without.vertex)
    assert found.sentence.startswith(f"{without.sentence} In addition, output is lost: 100 rows in 1 transaction since")
    assert found.detail.endswith(found.sentence.removeprefix(without.sentence))
    assert found.evidence[: len(without.evidence)] == without.evidence


@pytest.mark.parametrize("run", [[], [quick(1)], [completed(1)]])
def test_too_few_checkpoints_for_a_verdict_do_not_hide_a_loss(run):
    assert diagnose(job(run, losses=(lost(),))).verdict.kind is VerdictKind.LOST_ROWS
