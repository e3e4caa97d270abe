"""The comparison of the channels finds what differs, what is missing, and what no channel may know."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from backend.domain.checkpoint import Checkpoint, CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.micro_batch import BatchPhase, MicroBatch
from tests.simulators.spark_channels import CHANNELS, compare, table

AT = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
RUN = "query/run"


def batch(number, **values):
    header = CheckpointHeader(
        number, CheckpointKind.CHECKPOINT, CheckpointStatus.COMPLETED, AT, end_to_end_duration_ms=900
    )
    known = {"phases_ms": ((BatchPhase.ADD_BATCH, 800),), "input_row_count": 10} | values
    return Checkpoint(header, batch=MicroBatch(**known))


def execution(number, *, after_ms=50):
    made = batch(number)
    begun = replace(made.header, triggered_at=AT + timedelta(milliseconds=after_ms), end_to_end_duration_ms=700)
    return Checkpoint(begun, batch=MicroBatch())


def known(**changed):
    """The batches of each channel: two that all have alike, unless a channel is changed."""
    channels = {name: {(RUN, n): batch(n) for n in (0, 1)} for name in CHANNELS}
    channels["driver"] = {(RUN, n): execution(n) for n in (0, 1)}
    return {**channels, **changed}


def test_equal_channels_have_equal_counts_and_no_line():
    result = compare("4.3", known(), [])

    assert result.lines == []
    assert result.equal["input rows"] == dict.fromkeys(("Python", "jar", "history", "logs"), 2)
    assert result.equal["execution within the batch"] == {"driver": 2}


def test_a_value_that_differs_is_counted_and_named():
    result = compare("4.3", known(history={(RUN, 0): batch(0), (RUN, 1): batch(1, input_row_count=11)}), [])

    assert not result.is_good
    assert result.lines == [f"history {(RUN, 1)} input rows: 10, 11"]
    assert "1/1" in next(line for line in table(result).splitlines() if line.startswith("input rows"))


def test_a_batch_that_a_channel_lacks_or_has_alone_is_a_difference():
    lacking = compare("4.3", known(jar={(RUN, 0): batch(0)}), [])
    alone = compare("4.3", known(driver={(RUN, n): execution(n) for n in (0, 1, 5)}), [])

    assert lacking.lines == [f"jar {(RUN, 1)}: jar has no such batch"]
    assert alone.lines == [f"driver {(RUN, 5)}: Python has no such batch"]


def test_only_a_driver_has_the_batch_in_which_its_query_was_stopped():
    stopped = known(driver={(RUN, n): execution(n) for n in (0, 1, 2)})

    assert compare("4.3", stopped, []).lines == []


def test_an_execution_outside_its_batch_is_a_difference():
    late = known(driver={(RUN, 0): execution(0), (RUN, 1): execution(1, after_ms=60_000)})

    assert len(compare("4.3", late, []).lines) == 1


def test_a_run_without_a_channel_is_not_good():
    assert not compare("4.3", known(), []).is_good
