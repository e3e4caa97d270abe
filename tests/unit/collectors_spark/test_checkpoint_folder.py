"""Tests of the reader of checkpoint folders: those of Spark's own tests, damaged ones, and folders of another kind."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backend.domain.errors import InvalidInputError
from collectors.spark import checkpoint_folder
from collectors.spark.checkpoint_folder import is_checkpoint_folder, read_folder
from tests.support.spark_checkpoints import BEGAN, QUERY, MadeCheckpoint

FOLDER = Path(__file__).resolve().parents[2] / "contract" / "recordings_spark_checkpoints"


@pytest.mark.parametrize(
    ("name", "offsets", "commits", "sources", "partitions", "version"),
    [
        ("spark-2.1.0", [0, 1], [], 1, [1, 2, 3, 4, 6, 7, 9], 2),
        ("spark-2.3.1", [0, 1], [0, 1], 2, None, None),
        ("spark-2.3.1-inconsistent", [1, 2, 4], [], 1, None, None),
        ("spark-3.2.0", [0, 1], [0, 1], 1, [0, 1, 2, 3, 4], 2),
        ("spark-4.0.0", [2], [2], 1, [0, 1, 2, 3, 4], 3),
    ],
)
def test_the_folders_of_sparks_own_tests_are_read(name, offsets, commits, sources, partitions, version):
    found = read_folder(str(FOLDER / name))

    assert (sorted(found.offsets), sorted(found.commits), found.problems) == (offsets, commits, [])
    newest = found.newest_offsets
    assert newest is not None
    assert newest.source_count == sources
    assert len(found.query_id or "") == 36
    if partitions is not None:
        assert sorted(found.operators[0].partitions) == partitions
        assert max(p.version or 0 for p in found.operators[0].partitions.values()) == version


def test_times_settings_and_watermarks_are_those_in_the_files():
    found = read_folder(str(FOLDER / "spark-2.3.1"))

    last = found.offsets[1]
    assert last.triggered_at == datetime(2018, 7, 9, 21, 48, 22, 217_000, tzinfo=UTC)
    assert last.watermark_at == datetime(1970, 1, 1, 0, 0, 10, tzinfo=UTC)
    # Spark writes 0 if there is no watermark yet.
    assert found.offsets[0].watermark_at is None
    assert last.settings["spark.sql.shuffle.partitions"] == "10"
    assert read_folder(str(FOLDER / "spark-4.0.0")).operators[0].name == "dedupe"


def test_the_files_of_both_kinds_of_state_are_told_apart(tmp_path):
    made = MadeCheckpoint(tmp_path).run(range(3))
    for name, size in (("1.delta", 10), ("2.delta", 10), ("2.snapshot", 500), ("3.delta", 30)):
        made.state(f"0/0/{name}", size)
    for name in ("left-keyToNumValues/3.delta", "left-keyToNumValues/.3.delta.crc", "_metadata/schema"):
        made.state(f"0/1/{name}", 7)
    made.state("1/0/2_0553710b-fef8-4db4-b20b-81ef6b5cc117.changelog", 100)
    made.state("1/0/1.zip", 100)
    made.state("1/0/SSTs/000007-5f.sst", 2_000)
    made.write("sources/0/9.compact", "v1")
    made.write("sources/0/10", "v1")
    made.write("offsets/.7.0b-1.tmp", "")

    found = read_folder(str(tmp_path))

    hdfs, rocks = found.operators[0].partitions, found.operators[1].partitions
    assert (hdfs[0].version, hdfs[0].snapshot_version, hdfs[0].size_bytes, hdfs[0].file_count) == (3, 2, 550, 4)
    assert hdfs[0].snapshots == {"": {2: 500}}
    assert (hdfs[1].version, hdfs[1].file_count) == (3, 1)
    assert (rocks[0].version, rocks[0].snapshot_version, rocks[0].size_bytes, rocks[0].snapshots) == (2, 1, 2_200, {})
    assert found.source_files == {0: 2}
    files = found.files
    assert (files.checksum_count, files.temporary_count, files.small_count) == (1, 1, files.count - 1)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "offsets/1 is broken"),
        (b'v1\n{"batchWater', "offsets/1 is broken"),
        (b"v1\n[1, 2]\n", "offsets/1 is broken"),
        (b'v1\n{"conf": 3}', "offsets/1 is broken"),
        (b"\xff\xfe\x00", "offsets/1 is broken"),
        (b'v1\n{"batchTimestampMs": 99999999999999999999}', "offsets/1 is broken"),
        (b"v9\n{}", "offsets/1 is written in the format v9, which is not known: only its time is used"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_its_batch_is_kept(content, problem, tmp_path):
    made = MadeCheckpoint(tmp_path).run(range(2))
    made.write("offsets/1", content)

    found = read_folder(str(tmp_path))

    assert [line for line in found.problems if line.startswith(problem)] == found.problems
    assert len(found.problems) == 1
    assert sorted(found.offsets) == [0, 1]
    assert (found.offsets[1].triggered_at, found.offsets[1].written_at) == (None, BEGAN)


def test_continuous_mode_writes_an_empty_line_which_is_no_problem(tmp_path):
    made = MadeCheckpoint(tmp_path)
    made.write("offsets/0", "v1\n\n5")

    found = read_folder(str(tmp_path))

    assert (found.problems, found.offsets[0].version, found.offsets[0].source_count) == ([], "v1", None)


@pytest.mark.parametrize("content", ["", "{}", "[]", "no JSON"])
def test_a_broken_id_is_a_problem_and_not_an_error(content, tmp_path):
    made = MadeCheckpoint(tmp_path).run(range(1))
    assert read_folder(str(tmp_path)).query_id == QUERY
    made.write("metadata", content)

    found = read_folder(str(tmp_path))

    assert found.query_id is None
    assert found.problems == ["the file metadata has no id: Spark refuses to start the query"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "is empty"),
        (["a.txt"], "has neither offsets nor commits nor metadata"),
        (["_spark_metadata/0"], "is the output of a file sink"),
        (["_delta_log/0.json"], "is a Delta table"),
        (["chk-7/_metadata"], "is the checkpoints of a Flink job"),
        (["_metadata"], "is a checkpoint of Flink"),
        (["checkpoint-1489085905000"], "is a checkpoint of the older DStreams"),
        (["orders/offsets/0", "clicks/commits/0"], "holds the checkpoint folders clicks, orders"),
    ],
)
def test_another_folder_is_refused_with_what_it_is(names, message, tmp_path):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")

    with pytest.raises(InvalidInputError) as error:
        read_folder(str(tmp_path))

    assert message in str(error.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [("s3://bucket/orders", "is an address"), ("/no/such/folder", "does not exist"), (__file__, "is a file")],
)
def test_what_is_no_folder_on_this_machine_is_refused(name, message):
    with pytest.raises(InvalidInputError, match=message):
        read_folder(name)


def test_a_folder_that_may_not_be_entered_is_no_checkpoint_and_is_refused_with_the_reason(tmp_path, monkeypatch):
    """The tests run as root, who may enter every folder."""
    MadeCheckpoint(tmp_path).run(range(1))
    stat = os.stat

    def denied(path, *args, **kwargs):
        if str(path).startswith(str(tmp_path)):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", denied)

    assert not is_checkpoint_folder(tmp_path)
    with pytest.raises(InvalidInputError, match=r"cannot be read \(Permission denied\)"):
        read_folder(str(tmp_path))


@pytest.mark.parametrize("seconds", [1e12, 1e300, -1e300])
def test_a_file_with_a_time_that_no_calendar_has_is_refused_with_its_name(seconds, tmp_path, monkeypatch):
    """Some file systems keep such a time, others cut it."""
    made = MadeCheckpoint(tmp_path).run(range(2))
    at, written_at = checkpoint_folder._at, made.at(0).timestamp() + 0.1
    given = {written_at: seconds}
    monkeypatch.setattr(checkpoint_folder, "_at", lambda own: at(given.get(round(own, 1), own)))

    with pytest.raises(InvalidInputError, match=r"cannot be read \(offsets/0 has a time that no calendar has\)"):
        read_folder(str(tmp_path))


@pytest.fixture
def running(tmp_path: Path) -> Path:
    """The folder of a query that runs: two batches, and the state of one partition."""
    for name in ("offsets/0", "offsets/1", "commits/0", "commits/1", "state/0/0/1.delta", "state/0/1/2.delta"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        content = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1796034132104,"conf":{}}\n{}'
        (tmp_path / name).write_text(content if name.startswith("offsets") else "v1\n{}")
    return tmp_path


@pytest.mark.parametrize(
    ("gone", "offsets", "file_count"),
    [("offsets/0", [1], 5), ("state/0/0/1.delta", [0, 1], 5), ("state/0/0", [0, 1], 5)],
)
def test_what_a_running_query_removes_after_it_was_listed_is_left_out(
    gone, offsets, file_count, running, monkeypatch, tmp_path_factory
):
    scandir = os.scandir

    def listed(path):
        entries = list(scandir(path))
        if (running / gone).parent == Path(path) and (running / gone).exists():
            (running / gone).rename(tmp_path_factory.mktemp("removed") / "it")
        return nullcontext(iter(entries))

    monkeypatch.setattr(os, "scandir", listed)
    found = read_folder(str(running))

    assert not (running / gone).exists()
    assert (sorted(found.offsets), found.files.count) == (offsets, file_count)


def test_a_log_file_that_a_running_query_removes_before_it_is_read_is_left_out(running, monkeypatch):
    content = checkpoint_folder._content

    def read(file, *size_max):
        (running / "offsets/0").unlink(missing_ok=True)
        return content(file, *size_max)

    monkeypatch.setattr(checkpoint_folder, "_content", read)
    found = read_folder(str(running))

    assert (sorted(found.offsets), sorted(found.commits)) == ([1], [0, 1])


def objects_in(value: object) -> int:
    """Return how many objects a reading keeps."""
    if isinstance(value, dict):
        return 1 + sum(objects_in(one) for pair in value.items() for one in pair)
    if isinstance(value, list | tuple):
        return 1 + sum(map(objects_in, value))
    if is_dataclass(value):
        return 1 + sum(objects_in(getattr(value, one.name)) for one in fields(value))
    return 1


def test_offsets_with_any_number_of_lines_and_settings_keep_few_objects(tmp_path):
    made = MadeCheckpoint(tmp_path)
    settings = ",".join(f'"k{number}":"{"v" * 50}"' for number in range(5_000))
    head = f'{{"batchWatermarkMs":0,"conf":{{"spark.sql.shuffle.partitions":"{"9" * 5_000}",{settings}}}}}'
    made.write("offsets/3", f"v1\n{head}\n" + "1\n" * 500_000)

    found = read_folder(str(tmp_path))

    entry = found.offsets[3]
    assert (entry.source_count, entry.offsets) == (500_001, ("1",) * 20)
    assert entry.settings == {"spark.sql.shuffle.partitions": "9" * 300}
    assert objects_in(found) < 100


def test_of_a_log_with_very_many_files_the_newest_are_kept_and_the_others_counted(tmp_path):
    made = MadeCheckpoint(tmp_path).run(range(1))
    for number in range(5_000):
        (tmp_path / f"offsets/{number}").write_text("")
    made.run(range(4_999, 5_000))

    found = read_folder(str(tmp_path))

    assert (found.offsets_count, found.commits_count) == (5_000, 2)
    assert list(found.offsets) == list(range(4_600, 5_000))
    assert found.offsets[4_999].triggered_at == made.at(4_999)


def test_of_a_folder_with_very_many_folders_and_partitions_few_are_kept_and_it_is_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_folder, "_KEPT_MAX", 50)
    made = MadeCheckpoint(tmp_path).run(range(1))
    for number in range(40):
        made.state(f"{number}/0/1.delta")
        made.state(f"0/{number}/1.delta")
        made.write(f"sources/{number}/0", "v1")

    found = read_folder(str(tmp_path))

    assert found.files.is_cut
    kept = len(found.operators) + sum(len(o.partitions) for o in found.operators.values()) + len(found.source_files)
    assert 0 < kept <= 50


def test_of_a_partition_with_very_many_stores_few_are_kept(tmp_path):
    made = MadeCheckpoint(tmp_path).run(range(1))
    for number in range(40):
        made.state(f"0/0/store-{number}/1.snapshot")

    (partition,) = read_folder(str(tmp_path)).operators[0].partitions.values()

    assert (len(partition.snapshots), partition.snapshot_count) == (8, 40)


def test_a_commit_that_is_longer_than_is_read_is_not_broken(tmp_path):
    """RocksDB with checkpoint ids names each store of each partition in the commit."""
    made = MadeCheckpoint(tmp_path).run(range(1))
    made.write("commits/0", 'v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":{"0":["' + "x" * 100_000 + '"]}}')

    found = read_folder(str(tmp_path))

    assert (found.problems, found.commits[0].version, found.commits_count) == ([], "v2", 1)
