"""Tests of the logs of continuous spilling: what stays, what is deleted, and the in-flight data between two offsets."""

from __future__ import annotations

import pytest

from backend.domain.errors import ProtocolViolationError
from backend.runtime.measure.measures import ChannelState, Finished, Spilled, SubtaskSnapshot
from backend.runtime.network.channel import ChannelKey
from backend.runtime.network.segments import SegmentStore
from backend.runtime.snapshot.spill_logs import SpillLogs, resolved

SENDER, RECEIVER = (0, 0), (1, 0)
ONE, TWO = ChannelKey(0, 0, 0), ChannelKey(0, 0, 1)


def logs_of(*, file_bytes_max=8, attempt=1):
    """Return the logs of a job, and the log of its one sender, whose files take ``file_bytes_max`` bytes."""
    logs = SpillLogs(SegmentStore())
    return logs, logs.open("source-0", key=SENDER, attempt=attempt, file_bytes_max=file_bytes_max)


def store_of(logs):
    return logs._store


def snapshot(*, sent=None, consumed=None, log=None, attempt=1, finished=Finished.NO):
    spilled = None if sent is None and consumed is None else Spilled(attempt, sent or {}, consumed or {}, log or {})
    return SubtaskSnapshot((), ChannelState(), 0, 0, 0, finished=finished, spilled=spilled)


def checkpoint(log, sent, consumed, *, attempt=1):
    """Return a checkpoint in which the sender has sent, and the receiver has consumed, up to these offsets."""
    return {
        SENDER: snapshot(sent=sent, log=log.up_to(sent), attempt=attempt),
        RECEIVER: snapshot(consumed=consumed, attempt=attempt),
    }


def filled(log, *parts):
    """Append these bytes of channel ONE, one buffer after the other."""
    offset = 0
    for part in parts:
        log.append(ONE, offset, part)
        offset += len(part)


def in_flight(at, until, *parts):
    """Return the in-flight data of a checkpoint with these offsets, of a channel with these buffers."""
    _, log = logs_of()
    filled(log, *parts)
    found = resolved(checkpoint(log, {ONE: until}, {ONE: at}))[SENDER]
    assert found.persisted_bytes == sum(
        len(bytes(part)) for chunks in found.channels.outputs.values() for part in chunks
    )
    return b"".join(bytes(part) for part in found.channels.outputs.get(ONE, []))


@pytest.mark.parametrize(("at", "until"), [(a, b) for b in range(10) for a in range(b + 1)])
def test_the_data_in_flight_is_what_lies_between_the_consumed_and_the_sent_offset(at, until):
    assert in_flight(at, until, b"abcd", b"e", b"fghi") == b"abcdefghi"[at:until]


def test_a_log_without_the_data_between_the_offsets_is_refused():
    with pytest.raises(ProtocolViolationError, match="lacks the bytes 9 to 10"):
        in_flight(3, 10, b"abcd", b"efghi")


def test_a_receiver_that_reports_no_offset_has_nothing_in_flight():
    _, log = logs_of()
    filled(log, b"abcd")
    found = resolved({SENDER: snapshot(sent={ONE: 4}, log=log.up_to({ONE: 4})), RECEIVER: snapshot()})

    assert found[SENDER].channels.outputs == {}
    assert found[RECEIVER].spilled is None


@pytest.mark.parametrize(
    ("sizes", "files"), [((7,), 1), ((8, 1), 2), ((8, 1, 1), 2), ((7, 1, 1), 2), ((7, 3, 1), 2), ((4, 3, 1), 1)]
)
def test_a_file_that_has_reached_its_size_takes_no_more(sizes, files):
    logs, log = logs_of(file_bytes_max=8)
    filled(log, *(b"x" * n for n in sizes))

    assert len(store_of(logs).paths) == files


def test_a_file_is_deleted_when_every_retained_checkpoint_has_consumed_it():
    """Goal: a log of a long run does not grow, and nothing is deleted that a restore reads."""
    logs, log = logs_of()
    filled(log, b"x" * 8, b"y" * 8, b"z")
    older, newer = checkpoint(log, {ONE: 17}, {ONE: 7}), checkpoint(log, {ONE: 17}, {ONE: 16})

    logs.retain([older, newer])
    assert len(store_of(logs).paths) == 3
    logs.retain([checkpoint(log, {ONE: 17}, {ONE: 8}), newer])
    assert len(store_of(logs).paths) == 2
    logs.retain([newer])
    # The last file is still written to, whatever is consumed.
    assert len(store_of(logs).paths) == 1
    assert resolved(newer)[SENDER].persisted_bytes == 1


def test_a_file_stays_while_one_of_its_channels_is_not_consumed():
    logs, log = logs_of()
    log.append(ONE, 0, b"x" * 4)
    log.append(TWO, 0, b"y" * 4)

    logs.retain([checkpoint(log, {ONE: 4, TWO: 4}, {ONE: 4})])
    assert len(store_of(logs).paths) == 1
    logs.retain([checkpoint(log, {ONE: 4, TWO: 4}, {ONE: 4, TWO: 4})])
    assert not store_of(logs).paths


def test_offsets_of_another_attempt_delete_nothing():
    logs, log = logs_of(attempt=2)
    filled(log, b"x" * 8)

    logs.retain([checkpoint(log, {ONE: 8}, {ONE: 8}, attempt=1)])

    assert len(store_of(logs).paths) == 1


@pytest.mark.parametrize(("consumed", "left"), [(3, [0, 4]), (4, [4]), (7, [4]), (8, [])])
def test_a_consumed_part_is_no_longer_found(consumed, left):
    logs, log = logs_of(file_bytes_max=100)
    filled(log, b"abcd", b"efgh")

    logs.retain([checkpoint(log, {ONE: 8}, {ONE: consumed})])

    assert [offset for offset, _ in log.up_to({ONE: 8})[ONE]] == left


def test_a_file_of_a_channel_whose_receiver_reports_no_offset_stays():
    logs, log = logs_of(file_bytes_max=1)
    filled(log, b"x")

    logs.retain([checkpoint(log, {ONE: 1}, {})])

    assert len(store_of(logs).paths) == 1


def test_the_files_of_an_ended_attempt_are_deleted_unless_a_checkpoint_refers_to_them():
    logs, log = logs_of()
    filled(log, b"x" * 8, b"y" * 3)
    restored = resolved(checkpoint(log, {ONE: 11}, {ONE: 8}))
    log.is_closed = True

    logs.retain([restored])
    assert [store_of(logs).content(path) for path in store_of(logs).paths] == [b"yyy"]
    logs.retain([])
    assert not store_of(logs).paths


def test_the_log_of_a_subtask_that_had_finished_before_every_retained_checkpoint_of_its_attempt_is_deleted():
    logs, log = logs_of()
    filled(log, b"x" * 3)
    running = checkpoint(log, {ONE: 3}, {ONE: 3})
    finished = {SENDER: snapshot(finished=Finished.TASK), RECEIVER: snapshot(consumed={ONE: 3})}

    logs.retain([running, finished])
    assert len(store_of(logs).paths) == 1
    logs.retain([finished, finished])
    assert not store_of(logs).paths


def test_a_write_that_ends_after_the_log_was_closed_leaves_no_file():
    logs, log = logs_of()
    log.is_closed = True

    log.append(ONE, 0, b"late")

    assert not store_of(logs).paths
    assert log.up_to({ONE: 4}) == {ONE: ()}


def test_a_log_goes_on_to_be_swept_as_long_as_it_has_files():
    logs, log = logs_of()
    filled(log, b"x" * 3)
    used = resolved(checkpoint(log, {ONE: 3}, {ONE: 0}))
    log.is_closed = True
    for retained, files in (([used], 1), ([used], 1), ([], 0)):
        logs.retain(retained)
        assert len(store_of(logs).paths) == files
