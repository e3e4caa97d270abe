"""Tests of what the exceptions of restarts tell: a known message is evidence, and clears or accuses the checkpoints."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.verdict import Confidence, Health, VerdictKind
from tests.support.handwritten_jobs import CHAIN, START, completed, detail, job
from tests.support.handwritten_runs import CALM, HEALTHY_RUN

INNOCENT = "are not the cause"
FENCED = (
    "sink (1/4) - execution #3\norg.apache.flink.util.FlinkRuntimeException: Committing one of transactions failed,"
    " logging first encountered failure\n\tat a.B.c(B.java:1)\nCaused by: org.apache.kafka.common.errors."
    "ProducerFencedException: Producer attempted an operation with an old epoch. Either there is a newer producer with"
    " the same transactionalId, or the producer's transaction has been expired by the broker."
)
INVALID_PID = (
    "java.lang.Exception: Could not perform checkpoint 7 for operator sink (1/4)#0.\nCaused by: org.apache.kafka.common"
    ".errors.InvalidPidMappingException: The producer attempted to use a producer id which is not currently assigned to"
    " its transactional id."
)
INVALID_STATE = (
    "org.apache.kafka.common.KafkaException: it failed\nCaused by: org.apache.kafka.common.errors."
    "InvalidTxnStateException: The producer attempted a transactional operation in an invalid state."
)
NAMED_TIMEOUT = (
    "java.io.IOException: Unable to commit transaction (CommitRequestImpl@1) because its producer is already fenced."
    " This means that you either have a different producer with the same 'transactional.id' or recovery took longer"
    " than 'transaction.timeout.ms' ({ms}ms)."
)
LOST = "java.util.concurrent.TimeoutException: Heartbeat of TaskManager with id container_1(host-a:8041) timed out.\n"
POISON = "java.lang.IllegalStateException: poison\n\tat Foo"


def restarted(*texts, every_s=30.0):
    """Return an exception for each text; the last is 50 s after the start of the run."""
    last = START + timedelta(seconds=50)
    return tuple((last - timedelta(seconds=every_s * (len(texts) - 1 - i)), text) for i, text in enumerate(texts))


def diagnosed(*texts, every_s=30.0, interval_ms=None):
    evidence = job(HEALTHY_RUN, CALM, restart_count=len(texts), exceptions=restarted(*texts, every_s=every_s))
    if interval_ms is not None:
        evidence = replace(evidence, config=replace(evidence.config, interval_ms=interval_ms))
    return diagnose(evidence)


@pytest.mark.parametrize("text", [FENCED, INVALID_PID, INVALID_STATE, NAMED_TIMEOUT.format(ms=900_000)])
def test_checkpoints_are_not_cleared_if_a_restart_says_that_a_transaction_had_ended(text):
    found = diagnosed(text, text, text, text)

    assert (found.health, found.verdict.kind) == (Health.RESTARTING, VerdictKind.RESTARTS)
    assert INNOCENT not in found.verdict.sentence
    assert "4 of its 4 exceptions say that" in found.verdict.sentence
    assert any("transaction" in row.statement for row in found.verdict.evidence)
    assert any(row.statement.startswith("what cures it: ") for row in found.verdict.evidence)


def test_the_sentence_quotes_the_line_that_has_the_message_and_not_the_task():
    sentence = diagnosed(FENCED, FENCED, FENCED).verdict.sentence

    assert '("org.apache.kafka.common.errors.ProducerFencedException: Producer attempted' in sentence


def test_an_interval_longer_than_the_timeout_of_transactions_is_said():
    found = diagnosed(*[NAMED_TIMEOUT.format(ms=900_000)] * 3, interval_ms=1_200_000).verdict

    assert "interval + duration of a checkpoint, 20 min, which is longer than its timeout of 15 min" in found.sentence
    assert found.would_decide == ()
    assert {(r.metric, r.value) for r in found.evidence} >= {("transaction.timeout.ms", 900_000.0)}


def test_an_interval_shorter_than_the_timeout_of_transactions_leaves_the_outage():
    sentence = diagnosed(*[NAMED_TIMEOUT.format(ms=900_000)] * 3, interval_ms=60_000).verdict.sentence

    assert "and for as long as the job is down, but at most for its timeout of 15 min" in sentence
    assert "longer than its timeout" not in sentence


def test_an_unknown_timeout_of_transactions_would_decide():
    found = diagnosed(INVALID_STATE, INVALID_STATE, INVALID_STATE, interval_ms=1_200_000).verdict

    assert any(text.startswith("transaction.timeout.ms of the sink") for text in found.would_decide)


def test_restarts_by_transactions_are_told_although_twenty_minutes_lie_between_them():
    found = diagnosed(FENCED, FENCED, every_s=1_200)

    assert (found.health, found.verdict.kind) == (Health.RESTARTING, VerdictKind.RESTARTS)
    assert found.verdict.confidence is Confidence.MEDIUM


def test_other_restarts_that_are_so_far_apart_leave_the_job_healthy():
    assert diagnosed(LOST, LOST, LOST, every_s=1_200).health is Health.HEALTHY


def test_as_many_transactions_that_had_ended_as_lost_hosts_before_them_are_more_telling():
    sentence = diagnosed(LOST, LOST, FENCED, FENCED).verdict.sentence

    assert "2 of its 4 exceptions say that the broker" in sentence
    assert INNOCENT not in sentence


def test_one_transaction_that_had_ended_is_not_more_telling_than_many_lost_hosts():
    sentence = diagnosed(FENCED, LOST, LOST, LOST).verdict.sentence

    assert "3 of its 4 exceptions say that a process did not answer" in sentence
    assert INNOCENT not in sentence, "one of them has to do with checkpoints"


def test_transactions_with_different_messages_count_together():
    assert "the broker" in diagnosed(LOST, LOST, LOST, FENCED, FENCED, INVALID_PID).verdict.sentence


def days_ago(text, count=1):
    return tuple((START - timedelta(days=25, minutes=n), text) for n in range(count))


def test_an_exception_of_weeks_ago_does_not_explain_a_loop_of_today():
    evidence = job(HEALTHY_RUN, CALM, restart_count=5, exceptions=days_ago(FENCED) + restarted(*[LOST] * 4))

    sentence = diagnose(evidence).verdict.sentence

    assert f"so they {INNOCENT}: 4 of its 4 newest exceptions say that a process did not answer" in sentence
    unknown = replace(evidence, exceptions=days_ago(NAMED_TIMEOUT.format(ms=9), 5) + restarted(*[POISON] * 4))
    assert diagnose(unknown).verdict.sentence == diagnosed(POISON, POISON, POISON, POISON).verdict.sentence


def test_an_exception_of_weeks_ago_is_no_evidence_for_a_healthy_job():
    found = diagnose(job(HEALTHY_RUN, CALM, restart_count=1, exceptions=days_ago(FENCED)))
    never = diagnose(job(HEALTHY_RUN, CALM, restart_count=1))

    assert found == never


def test_the_rows_on_exceptions_say_when_these_were():
    loop = [row.statement for row in diagnosed(FENCED, FENCED, FENCED).verdict.evidence]
    healthy = [row.statement for row in diagnosed(FENCED).verdict.evidence]

    at = f"{restarted(FENCED)[0][0]:%Y-%m-%d %H:%M} UTC"
    assert any(text.startswith(f"newest exception ({at}): sink (1/4)") for text in loop)
    assert any(text.endswith(f"(newest: {at})") for text in healthy)


def test_a_lost_task_manager_clears_the_checkpoints_and_says_what_happened():
    found = diagnosed(LOST, LOST, LOST, POISON).verdict

    most = f"so they {INNOCENT} of most restarts: 3 of its 4 exceptions say that a process did not answer"
    assert most in found.sentence
    assert 'it is not known what the others mean: "java.lang.IllegalStateException: poison"' in found.sentence
    assert found.would_decide == ()


@pytest.mark.parametrize(
    "texts",
    [
        (POISON, POISON, LOST, POISON),
        (POISON, POISON, POISON, LOST),
        (POISON, POISON, LOST, LOST),
        (POISON, POISON, FENCED, POISON),
    ],
)
def test_a_known_message_of_a_few_restarts_neither_clears_nor_accuses_the_checkpoints(texts):
    found = diagnosed(*texts).verdict
    known = texts.count(LOST) + texts.count(FENCED)

    assert INNOCENT not in found.sentence
    unknown = f"{4 - known} of its 4 exceptions have no known message, and what they say decides"
    assert f'complete (40 ms), but {unknown}: "java.lang.IllegalStateException: poison"; {known} of' in found.sentence
    if texts[-1] == POISON:
        assert not any(row.statement.startswith("what cures it") for row in found.evidence)


def test_a_lost_task_manager_in_all_restarts_clears_the_checkpoints():
    assert f"so they {INNOCENT}: 3 of its 3 exceptions say" in diagnosed(LOST, LOST, LOST).verdict.sentence


def test_a_store_that_refuses_does_not_clear_the_checkpoints():
    slow_down = (
        "com.amazonaws.services.s3.model.AmazonS3Exception: Please reduce your request rate. (Service: Amazon S3;"
        " Status Code: 503; Error Code: SlowDown)"
    )

    assert INNOCENT not in diagnosed(slow_down, slow_down, slow_down).verdict.sentence


def test_an_exception_of_the_job_s_own_code_is_quoted_as_before():
    assert diagnosed(POISON, POISON, POISON).verdict.sentence.endswith(
        "its checkpoints complete (40 ms), and what its newest exception says decides:"
        ' "java.lang.IllegalStateException: poison".'
    )


def test_one_restart_by_a_transaction_is_evidence_although_the_checkpoints_are_well():
    found = diagnosed(FENCED)

    assert (found.health, found.verdict.kind) == (Health.HEALTHY, VerdictKind.NONE)
    statements = [row.statement for row in found.verdict.evidence]
    assert any(text.startswith("its exception says that the broker gave") for text in statements)
    assert any(text.startswith("what cures it: ") for text in statements)
    assert len(statements) == len(set(statements))


def test_restarts_by_transactions_are_evidence_if_another_cause_makes_the_checkpoints_slow():
    slow = [completed(n, *(detail(v, first=[40] * 4, ack=[9_000] * 4) for v in CHAIN)) for n in range(1, 9)]
    texts = (FENCED, FENCED, FENCED)

    found = diagnose(job(slow, CALM, restart_count=3, exceptions=restarted(*texts))).verdict

    assert found.kind is not VerdictKind.RESTARTS
    assert any("3 of its 3 exceptions say that" in row.statement for row in found.evidence)
    clear = diagnose(job(slow, CALM, restart_count=3, exceptions=restarted(POISON, POISON, POISON))).verdict
    assert not any("exceptions say that" in row.statement for row in clear.evidence)
    assert found.sentence == clear.sentence
