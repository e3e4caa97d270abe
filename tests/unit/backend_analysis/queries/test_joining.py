"""One batch as several channels reported it: what is shown, where it is from, and what differs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest

from backend.analysis.queries.joining import joined, values_of
from backend.domain.batch_work import BatchWork
from backend.domain.channel import BatchReport, Channel
from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, BatchState, MicroBatch, OperatorState, SourceProgress
from backend.domain.verdict import Basis

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
BATCH = Checkpoint(
    CheckpointHeader(7, CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, AT, end_to_end_duration_ms=900),
    batch=MicroBatch(
        phases_ms=((BatchPhase.ADD_BATCH, 800),),
        input_row_count=100,
        processed_rows_per_s=111.11111111,
        watermark_at=AT - timedelta(seconds=10),
        state=BatchState(row_count=5),
        sources=(SourceProgress("Kafka", end_offset="12"),),
        sink="Noop",
    ),
)
EXECUTION = Checkpoint(
    replace(BATCH.header, triggered_at=AT + timedelta(milliseconds=50), end_to_end_duration_ms=780), batch=MicroBatch()
)


def report(channel, checkpoint=BATCH, *, header=None, **batch):
    made = replace(checkpoint, header=replace(checkpoint.header, **(header or {})))
    return BatchReport(channel.value, channel, replace(made, batch=replace(made.batch or MicroBatch(), **batch)))


def joined_of(*reports):
    """The joined batch, which does not depend on the order of the reports."""
    first, *others = [joined(order) for order in permutations(reports)]
    assert all(other == first for other in others)
    return first


def differences(*reports):
    return {d.name: [(v.channel.value, v.text) for v in d.values] for d in joined_of(*reports).disagreements}


def test_channels_that_agree_have_no_disagreement_and_the_first_has_every_value():
    found = joined_of(report(Channel.LISTENER), report(Channel.HISTORY_SERVER), report(Channel.DRIVER, EXECUTION))

    assert found.checkpoint == BATCH
    assert found.disagreements == ()
    assert dict(found.origins) == dict.fromkeys(values_of(BATCH), "listener")


def test_a_value_that_one_channel_lacks_is_from_the_next_one():
    found = joined_of(report(Channel.LISTENER, phases_ms=(), state=None), report(Channel.EVENT_LOGS))

    assert found.checkpoint == BATCH
    assert {name for name, target in found.origins if target == "event logs"} == {"phase add-batch", "state rows"}


def test_what_no_channel_knows_is_missing():
    found = joined_of(report(Channel.DRIVER, EXECUTION))

    assert found.checkpoint == EXECUTION
    assert {name for name, _ in found.origins} == {"status", "trigger", "duration"}


@pytest.mark.parametrize(
    ("name", "change", "texts"),
    [
        ("input rows", {"input_row_count": 120}, ["100", "120"]),
        ("input rows", {"input_row_count": 0}, ["100", "0"]),
        ("phase add-batch", {"phases_ms": ((BatchPhase.ADD_BATCH, 801),)}, ["800 ms", "801 ms"]),
        ("duration", {"header": {"end_to_end_duration_ms": 901}}, ["900 ms", "901 ms"]),
        ("state rows", {"state": BatchState(row_count=6)}, ["5", "6"]),
        ("source 1 end offset", {"sources": (SourceProgress("Kafka", end_offset="13"),)}, ["12", "13"]),
        ("sink", {"sink": "Delta"}, ["Noop", "Delta"]),
        ("processed rows/s", {"processed_rows_per_s": 111.2}, ["111.1", "111.2"]),
        ("trigger", {"header": {"triggered_at": AT + timedelta(milliseconds=1)}}, ["12:00:00.000", "12:00:00.001"]),
    ],
)
def test_a_value_that_differs_is_said_with_both_channels(name, change, texts):
    found = differences(report(Channel.LISTENER), report(Channel.HISTORY_SERVER, **change))

    assert found == {name: list(zip(["listener", "history server"], texts, strict=True))}


@pytest.mark.parametrize("rate", [111.1, 111.11, 111.11111111000001])
def test_a_rate_is_compared_after_rounding_to_the_coarser_one(rate):
    assert not differences(report(Channel.LISTENER), report(Channel.EVENT_LOGS, processed_rows_per_s=rate))


def test_zero_is_a_value_that_no_other_channel_fills():
    found = joined_of(report(Channel.LISTENER, input_row_count=0), report(Channel.EVENT_LOGS))

    assert found.checkpoint.batch.input_row_count == 0
    assert dict(found.origins)["input rows"] == "listener"


def test_an_execution_lies_within_its_batch_or_differs():
    late = {"triggered_at": AT + timedelta(seconds=30)}

    assert not differences(report(Channel.LISTENER), report(Channel.DRIVER, EXECUTION))
    assert differences(report(Channel.LISTENER), report(Channel.DRIVER, EXECUTION, header=late)) == {
        "time": [("listener", "12:00:00.000 to 12:00:00.900"), ("driver", "12:00:30.000 to 12:00:30.780")]
    }


def test_a_measured_failure_is_preferred_to_a_reconstructed_one():
    failed = {"status": CheckpointStatus.FAILED}
    guess = report(
        Channel.LISTENER,
        header=failed | {"end_to_end_duration_ms": None},
        number_basis=Basis.RECONSTRUCTED,
        **dict.fromkeys(("input_row_count", "processed_rows_per_s", "watermark_at", "state", "sink")),
        phases_ms=(),
        sources=(),
    )

    found = joined_of(guess, report(Channel.DRIVER, EXECUTION, header=failed))

    assert (found.checkpoint.header.end_to_end_duration_ms, found.disagreements) == (780, ())


def guessed_failure(*, reason="no space left", at=AT + timedelta(seconds=2)):
    """What a listener reports of the batch in which its query failed."""
    ended = {"status": CheckpointStatus.FAILED, "failure_message": reason, "failed_at": at}
    header = ended | {"triggered_at": AT - timedelta(seconds=3), "end_to_end_duration_ms": None}
    return report(Channel.LISTENER, Checkpoint(BATCH.header), header=header, number_basis=Basis.RECONSTRUCTED)


def test_a_completed_execution_does_not_hide_that_its_batch_failed():
    guess, measured = guessed_failure(), report(Channel.DRIVER, EXECUTION)

    found = joined_of(guess, measured)

    header = found.checkpoint.header
    assert (header.status, header.failure_message) == (CheckpointStatus.FAILED, "no space left")
    times = (EXECUTION.header.triggered_at, EXECUTION.header.end_to_end_duration_ms)
    assert (header.triggered_at, header.end_to_end_duration_ms) == times
    assert dict(found.origins) == {
        **dict.fromkeys(("status", "error", "end"), "listener"),
        **dict.fromkeys(("trigger", "duration"), "driver"),
    }
    (said,) = found.disagreements
    assert (said.name, [v.target for v in said.values]) == ("status", ["listener", "driver"])


def test_a_failure_that_was_only_guessed_yields_to_a_channel_that_measured_the_whole_batch():
    found = joined_of(guessed_failure(), report(Channel.HISTORY_SERVER), report(Channel.DRIVER, EXECUTION))

    assert found.checkpoint == BATCH


def test_an_open_batch_yields_to_its_end():
    is_open = {"status": CheckpointStatus.IN_PROGRESS, "end_to_end_duration_ms": None}

    found = joined_of(report(Channel.DRIVER, EXECUTION, header=is_open), report(Channel.HISTORY_SERVER))

    assert (found.checkpoint, found.disagreements) == (BATCH, ())


def test_the_spark_jobs_are_from_the_channel_that_has_them_and_are_never_compared():
    of_driver = report(Channel.DRIVER, EXECUTION, work=BatchWork(job_count=2))
    of_log = report(Channel.EVENT_LOGS, work=BatchWork(job_count=3))

    assert dict(joined_of(report(Channel.LISTENER), of_driver).origins)["Spark jobs"] == "driver"
    assert dict(joined_of(report(Channel.LISTENER), of_driver, of_log).origins)["Spark jobs"] == "event logs"
    assert differences(of_driver, of_log, report(Channel.HISTORY_SERVER, work=BatchWork(job_count=4))) == {}


def test_the_spark_jobs_of_a_batch_that_failed_afterwards_are_from_the_channel_of_its_execution():
    work = BatchWork(job_count=2)

    found = joined_of(guessed_failure(), report(Channel.DRIVER, EXECUTION, work=work))

    assert (found.checkpoint.batch.work, dict(found.origins)["Spark jobs"]) == (work, "driver")


def test_operators_that_two_channels_report_differently_are_said_in_words():
    mine, theirs = (BatchState(by_operator=(OperatorState("dedupe", row_count=n, memory_bytes=64),)) for n in (5, 6))

    assert differences(report(Channel.LISTENER, state=mine), report(Channel.EVENT_LOGS, state=theirs)) == {
        "state by operator": [("listener", "dedupe (rows 5, memory 64)"), ("event logs", "dedupe (rows 6, memory 64)")]
    }
