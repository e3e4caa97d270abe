"""A checkpoint folder as a target: what a poll finds of it, how often it is read, and what it refuses."""

from __future__ import annotations

import asyncio
import errno
import shutil
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.domain.connection import ANYWHERE
from backend.domain.engines import SPARK_CHECKPOINT, SPARK_FOLDER
from backend.domain.errors import InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.ids import TargetId
from backend.domain.target import TargetOrigin
from collectors.spark import checkpoint_collector
from collectors.spark.checkpoint_collector import READ_EVERY_S, CheckpointCollector, files_of
from collectors.spark.checkpoint_folder import read_folder
from collectors.spark.kind import SPARK
from collectors.spark.probe import probe
from tests.support.collector_targets import Row
from tests.support.spark_checkpoints import QUERY, MadeCheckpoint
from tests.support.spark_history import query_lines

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, 10, 5, tzinfo=UTC)
RECORDED = Path(__file__).resolve().parents[2] / "contract" / "recordings_spark_checkpoints"


class Clock:
    def __init__(self):
        self.at = 100.0

    def __call__(self):
        return self.at


@pytest.fixture
def made(tmp_path):
    found = MadeCheckpoint(tmp_path / "orders").run(range(7))
    found.begin(7)
    return found


def opened(path, origin=TargetOrigin.CONFIGURATION):
    assert SPARK.open is not None
    return SPARK.open(Row("spark", f"file://{path}", origin=origin), {}, reach=ANYWHERE)


async def test_a_folder_in_the_targets_file_is_read_without_any_run(made):
    async with opened(made.path) as collector:
        found = await collector.collect(NOW)

    assert (found.jobs, found.engine, found.observed_at) == ((), SPARK_CHECKPOINT, NOW)
    folder = found.folder
    assert (folder.query_id, folder.offsets_count, folder.commits_count) == (QUERY, 8, 7)
    assert [(b.number, b.is_committed) for b in folder.batches] == [(n, n < 7) for n in range(3, 8)]
    last = folder.batches[-2]
    assert (last.triggered_at, last.offsets, last.committed_at) == (
        made.at(6), ("6",), made.at(6) + timedelta(seconds=4)
    )  # fmt: skip


async def test_a_folder_that_has_no_batch_yet_may_be_either_and_is_seen_once_it_has(tmp_path):
    async with opened(tmp_path / "orders") as collector:
        with pytest.raises(TargetUnavailableError):
            await collector.collect(NOW)
        (tmp_path / "orders").mkdir()
        assert (await collector.collect(NOW)).engine == SPARK_FOLDER
        MadeCheckpoint(tmp_path / "orders").run(range(1))
        assert (await collector.collect(NOW)).folder.query_id == QUERY


async def test_a_folder_is_only_the_operators_to_name(made):
    with pytest.raises(InvalidInputError):
        async with opened(made.path, TargetOrigin.API):
            pass


async def test_a_folder_is_read_again_after_a_while_or_when_it_was_lost(made):
    clock = Clock()
    collector = CheckpointCollector(made.path, TargetId("t"), clock)
    assert (await collector.collect(NOW)).folder is not None
    made.commit(7)
    clock.at += READ_EVERY_S - 1
    assert (await collector.collect(NOW)).folder is None
    clock.at += 1
    assert (await collector.collect(NOW)).folder.commits_count == 8
    collector.forget()
    assert (await collector.collect(NOW)).folder is not None


async def test_a_folder_that_takes_long_is_left_alone_the_longer(made):
    clock = Clock()
    collector = CheckpointCollector(made.path, TargetId("t"), clock)
    read = collector._read

    def slow():
        clock.at += 10
        return read()

    CheckpointCollector._read, kept = lambda self: slow(), CheckpointCollector._read
    try:
        await collector.collect(NOW)
        clock.at += 180
        assert (await collector.collect(NOW)).folder is None
        clock.at += 20
        assert (await collector.collect(NOW)).folder is not None
    finally:
        CheckpointCollector._read = kept


@pytest.fixture
def slow(monkeypatch):
    """Let a call of the collector take until it is released; polls wait only shortly for it."""
    monkeypatch.setattr(checkpoint_collector, "_WAIT_S", 0.05)
    released, threads = threading.Event(), []

    def slowed(name):
        call = getattr(checkpoint_collector, name)

        def waiting(path):
            threads.append(threading.current_thread().name)
            released.wait(30)
            return call(path)

        monkeypatch.setattr(checkpoint_collector, name, waiting)
        return released, threads

    yield slowed
    released.set()


async def test_what_takes_longer_than_a_poll_runs_once_and_a_later_poll_takes_its_result(made, slow):
    released, threads = slow("read_folder")
    clock = Clock()
    collector = CheckpointCollector(made.path, TargetId("t"), clock)
    for _ in range(3):
        assert (await collector.collect(NOW)).folder is None
        clock.at += READ_EVERY_S
    assert len(threads) == 1
    assert threads[0].startswith("checkpoint-folder"), "the threads of the loop are for others"

    released.set()
    checkpoint_collector._WAIT_S = 30.0
    assert (await collector.collect(NOW)).folder.query_id == QUERY
    assert (await collector.collect(NOW)).folder is None, "it took long, so that the pause is long"
    assert len(threads) == 1


async def test_a_poll_that_is_cancelled_leaves_its_reading_to_the_next_one(made, slow):
    released, threads = slow("read_folder")
    checkpoint_collector._WAIT_S = 30.0
    collector = CheckpointCollector(made.path, TargetId("t"), Clock())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await collector.collect(NOW)
    released.set()

    assert (await collector.collect(NOW)).folder.query_id == QUERY
    assert len(threads) == 1


async def test_a_reading_that_does_not_end_is_said(made, slow):
    slow("read_folder")
    clock = Clock()
    collector = CheckpointCollector(made.path, TargetId("t"), clock)
    assert (await collector.collect(NOW)).folder is None
    clock.at += 700
    with pytest.raises(TargetUnavailableError, match="a reading of the folder has not ended for 11 min 40 s"):
        await collector.collect(NOW)


async def test_a_folder_that_does_not_answer_keeps_one_thread_and_says_so(made, slow):
    released, threads = slow("is_checkpoint_folder")
    async with opened(made.path) as collector:
        for _ in range(3):
            with pytest.raises(TargetUnavailableError, match="the folder has not answered within"):
                await collector.collect(NOW)
        assert len(threads) == 1
        released.set()
        checkpoint_collector._WAIT_S = 30.0
        assert (await collector.collect(NOW)).folder.query_id == QUERY


async def test_folders_that_hang_keep_no_other_checkpoint_folder_waiting(made, monkeypatch):
    monkeypatch.setattr(checkpoint_collector, "_WAIT_S", 0.05)
    monkeypatch.setattr(checkpoint_collector._THREADS, "find_mount", str)
    released, read = threading.Event(), checkpoint_collector.read_folder

    def reading(path):
        if path != str(made.path):
            released.wait(60)
        return read(path)

    monkeypatch.setattr(checkpoint_collector, "read_folder", reading)
    clock = Clock()
    hung = [CheckpointCollector(made.path.with_name(f"hung-{n}"), TargetId("t"), clock) for n in range(8)]
    try:
        for collector in hung:
            assert (await collector.collect(NOW)).folder is None
        monkeypatch.setattr(checkpoint_collector, "_WAIT_S", 30.0)
        assert (await CheckpointCollector(made.path, TargetId("t"), clock).collect(NOW)).folder.query_id == QUERY
    finally:
        released.set()


async def test_folders_that_wait_for_slow_ones_of_their_mount_are_no_failure(made, slow):
    released, threads = slow("read_folder")
    collectors = [CheckpointCollector(made.path, TargetId("t"), Clock()) for _ in range(6)]
    for _ in range(2):
        for collector in collectors:
            assert (await collector.collect(NOW)).folder is None
    assert len(threads) <= checkpoint_collector._THREADS.at_once
    # That is shorter than the time after which a reading is late.
    checkpoint_collector._WAIT_S = 10.0
    assert await CheckpointCollector(made.path, TargetId("t"), Clock()).is_checkpoint(), "what it is, is known soon"

    released.set()
    checkpoint_collector._WAIT_S = 30.0
    for collector in collectors:
        assert (await collector.collect(NOW)).folder.query_id == QUERY


@pytest.mark.parametrize("call", ["read_folder", "is_checkpoint_folder"])
async def test_an_error_of_the_machine_is_said(made, monkeypatch, call):
    def fail(path):
        raise OSError(errno.EAGAIN, "no thread can be started")

    monkeypatch.setattr(checkpoint_collector, call, fail)
    async with opened(made.path) as collector:
        with pytest.raises(TargetUnavailableError, match=r"the folder cannot be .* \(no thread can be started\)"):
            await collector.collect(NOW)


async def test_what_kind_a_folder_is_is_asked_until_it_is_known(tmp_path, slow):
    released, asked = slow("is_checkpoint_folder")
    released.set()
    checkpoint_collector._WAIT_S = 30.0
    path = tmp_path / "orders"
    path.mkdir()
    async with opened(path) as collector:
        for count in (1, 2):
            await collector.collect(NOW)
            assert len(asked) == count
        MadeCheckpoint(path).run(range(1))
        for _ in range(3):
            assert (await collector.collect(NOW)).engine == SPARK_CHECKPOINT
        assert len(asked) == 3


async def test_what_a_folder_is_is_asked_again_after_it_could_not_be_read(made):
    async with opened(made.path) as collector:
        assert (await collector.collect(NOW)).engine == SPARK_CHECKPOINT
        shutil.rmtree(made.path)
        collector.forget()
        with pytest.raises(TargetUnavailableError, match="does not exist"):
            await collector.collect(NOW)
        made.path.mkdir()
        assert (await collector.collect(NOW)).engine == SPARK_FOLDER


async def test_a_folder_of_logs_is_not_asked_again_whether_it_is_a_checkpoint(tmp_path, slow):
    released, asked = slow("is_checkpoint_folder")
    released.set()
    checkpoint_collector._WAIT_S = 30.0
    path = tmp_path / "orders"
    path.mkdir()
    async with opened(path) as collector:
        log = path / "local-1.inprogress"
        log.write_bytes(query_lines(-1, 0))
        for _ in range(3):
            assert (await collector.collect(NOW)).jobs
        assert len(asked) == 1
        log.unlink()
        path.rmdir()
        with pytest.raises(TargetUnavailableError):
            await collector.collect(NOW)
        MadeCheckpoint(path).run(range(1))
        assert (await collector.collect(NOW)).folder.query_id == QUERY


async def test_a_folder_without_the_id_of_its_query_is_refused_in_one_sentence(made):
    (made.path / "metadata").unlink()
    async with opened(made.path) as collector:
        with pytest.raises(TargetProtocolError, match="the file metadata is missing"):
            await collector.collect(NOW)


async def test_the_test_of_a_connection_says_which_query_it_is(made):
    found = await probe(f"file://{made.path}", 5.0, reach=ANYWHERE)

    assert found.summary == f"Checkpoint folder of the query {QUERY}; batch 7 is the newest"


@pytest.mark.parametrize(
    ("name", "numbers", "partitions", "deltas", "snapshots"),
    [
        ("spark-2.1.0", [0, 1], 7, 10, 0),
        ("spark-2.3.1-inconsistent", [1, 2, 4], None, None, None),
        ("spark-3.2.0", [0, 1], 5, 10, 0),
        ("spark-4.0.0", [2], 5, 5, 0),
    ],
)
def test_the_folders_of_sparks_own_tests_are_kept(name, numbers, partitions, deltas, snapshots):
    found = files_of(read_folder(str(RECORDED / name)))

    assert [b.number for b in found.batches] == numbers
    assert all(len(b.offsets) >= 1 for b in found.batches)
    assert [(o.partition_count, o.delta_count, o.snapshot_count) for o in found.operators[:1]] == (
        [] if partitions is None else [(partitions, deltas, snapshots)]
    )


def test_the_state_is_counted_by_operator_and_partition(made):
    for number, size in ((0, 10), (1, 30), (2, 200)):
        for version in (4, 5, 6):
            made.state(f"0/{number}/{version}.delta", size)
        made.state(f"0/{number}/3.snapshot", size)
    made.state("1/0/left-keyToNumValues/7.delta", 5)

    (joined, second) = files_of(read_folder(str(made.path))).operators

    assert (joined.partition_count, joined.file_count, joined.delta_count, joined.snapshot_count) == (3, 12, 9, 3)
    assert (joined.size_bytes, joined.median_bytes, joined.version, joined.snapshot_lag) == (960, 120, 6, 3)
    assert [(p.number, p.size_bytes, p.snapshot_version) for p in joined.partitions] == [
        (2, 800, 3), (1, 120, 3), (0, 40, 3)
    ]  # fmt: skip
    assert joined.skew_ratio == pytest.approx(800 / 120)
    assert (second.snapshot_count, second.partitions[0].snapshot_version, second.skew_ratio) == (0, None, None)


def test_of_a_folder_that_was_not_read_to_its_end_no_median_and_no_newest_file_is_known(made):
    for number, size in ((0, 10), (1, 200)):
        made.state(f"0/{number}/6.delta", size)
        made.state(f"0/{number}/3.snapshot", size)
    made.write("sources/0/9.compact", b"x")
    folder = read_folder(str(made.path))
    folder.files.is_cut = True

    found = files_of(folder)

    (operator,) = found.operators
    assert (operator.partition_count, operator.file_count, operator.size_bytes) == (2, 4, 420)
    assert (operator.median_bytes, operator.skew_ratio, operator.version, operator.snapshot_lag) == (None,) * 4
    assert {(p.version, p.snapshot_version) for p in operator.partitions} == {(None, None)}
    (log,) = found.source_logs
    assert (log.file_count, log.compact_number, log.compact_bytes) == (1, None, None)


def test_small_files_are_counted_without_checksums(made):
    made.write("offsets/.7.crc", b"x")
    made.state("0/0/5.delta", 200_000)

    found = files_of(read_folder(str(made.path)))

    # The metadata, 8 offsets, 7 commits and one file of the state.
    assert (found.file_count, found.small_count, found.checksum_count) == (17, 16, 1)


def test_the_log_of_a_file_source_has_its_newest_compaction(made):
    for name, size in (("9.compact", 90), ("19.compact", 190), ("20", 10)):
        made.write(f"sources/0/{name}", b"x" * size)
    made.write("sources/1/3", b"x")

    first, second = files_of(read_folder(str(made.path))).source_logs

    assert (first.file_count, first.compact_number, first.compact_bytes) == (3, 19, 190)
    assert (second.file_count, second.compact_number, second.compact_bytes) == (1, None, None)


def test_a_copy_that_lost_the_times_of_its_files_has_none(made):
    for number in range(7):
        made.write(f"commits/{number}", "v1\n{}", NOW + timedelta(days=30))
    for number in range(8):
        text = (made.path / f"offsets/{number}").read_text()
        made.write(f"offsets/{number}", text, NOW + timedelta(days=30))

    batches = files_of(read_folder(str(made.path))).batches

    assert {(b.offsets_at, b.committed_at) for b in batches} == {(None, None)}
    assert [b.is_committed for b in batches] == [True] * 4 + [False]


def test_a_source_that_has_no_offset_yet_is_missing_and_long_offsets_are_cut(made):
    text = (made.path / "offsets/7").read_text().rpartition("\n")[0]
    made.write("offsets/7", f"{text}\n-\n{'9' * 1_000}")

    assert files_of(read_folder(str(made.path))).batches[-1].offsets == (None, "9" * 300)
