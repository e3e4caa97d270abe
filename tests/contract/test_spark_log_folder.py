"""Reads event logs from a folder: plain and rolling files, files that are still written, and what is no log."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from backend.contracts.targets_file import parse_targets
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.errors import InvalidInputError, TargetProtocolError, TargetUnavailableError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from collectors.spark.kind import SPARK
from collectors.spark.log_folder import LogFolder
from tests.support.collector_targets import Row
from tests.support.spark_history import query_lines as lines
from tests.support.spark_history import zstd

pytestmark = pytest.mark.anyio


class Folder:
    """A folder of logs, and a collector that reads it. Its files change at a time that tests choose."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at_ms = 1_796_034_600_000

    def write(self, name: str, content: bytes) -> Path:
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        self.at_ms += 1000
        os.utime(path, (self.at_ms / 1000, self.at_ms / 1000))
        return path

    @property
    def url(self) -> str:
        return f"file://{self.path}"

    def open(self, origin: TargetOrigin = TargetOrigin.CONFIGURATION):
        assert SPARK.open is not None
        return SPARK.open(Row("spark", self.url, origin=origin), {}, reach=ANYWHERE)

    async def poll(self, collector) -> list[tuple[str, JobState, list[int]]]:
        found = await collector.collect(from_epoch_ms(self.at_ms))
        return [(job.name, job.state, [c.header.checkpoint_id for c in job.checkpoints]) for job in found.jobs]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


async def test_a_plain_log_is_read_on_from_where_it_was_read_and_under_its_new_name(folder):
    name = "orders-app: orders-windowed"
    open_file = folder.write("local-1.inprogress", lines(-1, 0) + lines(1)[:-30])
    async with folder.open() as collector:
        first = await folder.poll(collector)
        folder.write("local-1.inprogress", lines(-1, 0, 1, 2))
        second = await collector.collect(from_epoch_ms(folder.at_ms))
        open_file.unlink()
        folder.write("local-1", lines(-1, 0, 1, 2, 3))
        third = await folder.poll(collector)

    assert first == [(name, JobState.RUNNING, [0])]
    assert [c.header.checkpoint_id for c in second.jobs[0].checkpoints] == [1, 2]
    assert second.cost.response_bytes == len(lines(1, 2))
    assert third == [(name, JobState.ENDED, [3])]


async def test_the_finished_files_of_a_rolling_log_are_not_opened_again(folder):
    rolling = "eventlog_v2_app-1"
    folder.write(f"{rolling}/appstatus_app-1.inprogress", b"")
    folder.write(f"{rolling}/events_2_app-1.zstd", zstd(lines(1)))
    finished = folder.write(f"{rolling}/events_1_app-1.zstd", zstd(lines(-1, 0)))
    async with folder.open() as collector:
        first = await folder.poll(collector)
        finished.write_bytes(b"not read any more")
        folder.write(f"{rolling}/events_2_app-1.zstd", zstd(lines(1, 2)))
        folder.write(f"{rolling}/events_10_app-1.zstd", zstd(lines(3))[:-5])
        second = await folder.poll(collector)

    assert [numbers for _, _, numbers in first] == [[0, 1]]
    assert second[0][2][0] == 2


async def test_links_and_pipes_and_what_is_no_log_are_left_alone(folder, tmp_path_factory):
    secret = tmp_path_factory.mktemp("secret") / "events_1_x"
    secret.write_bytes(lines(-1, 0))
    (folder.path / "local-2").symlink_to(secret)
    os.mkfifo(folder.path / "local-3")
    (folder.path / "other").mkdir()
    rolling = folder.path / "eventlog_v2_app-2"
    rolling.mkdir()
    (rolling / "events_1_app-2").symlink_to(secret)
    folder.write(".local-4.crc", b"x")
    folder.write("local-1", lines(-1, 0))
    async with folder.open() as collector:
        found = await folder.poll(collector)

    assert [numbers for _, _, numbers in found] == [[0]]


async def test_a_file_that_is_no_log_is_one_sentence_and_the_others_are_read(folder):
    folder.write("local-1", lines(-1, 0))
    folder.write("notes.txt", b"hello")
    async with folder.open() as collector:
        assert [numbers for _, _, numbers in await folder.poll(collector)] == [[0]]


async def test_a_log_of_another_user_leaves_the_others_as_they_are(folder, monkeypatch):
    folder.write("local-1", lines(-1, 0))
    folder.write("eventlog_v2_app-2/events_1_app-2", lines(-1, 0))
    listdir = os.listdir

    def refused(path):
        # The tests run as root, whom no mode refuses.
        if str(path).endswith("eventlog_v2_app-2"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", refused)
    async with folder.open() as collector:
        assert [numbers for _, _, numbers in await folder.poll(collector)] == [[0]]
    probed = await SPARK.probe(folder.url, 10.0, reach=ANYWHERE)  # type: ignore[misc]
    (folder.path / "local-1").unlink()
    with pytest.raises(TargetProtocolError, match="has no log that can be read: 1 entry of the folder cannot be read"):
        await LogFolder(folder.path).list_since(from_epoch_ms(0))

    assert "; 1 entry of the folder cannot be read (such as eventlog_v2_app-2: Permission denied)" in probed.summary


async def test_a_log_that_is_renamed_while_the_folder_is_listed_is_found_under_its_new_name(folder, monkeypatch):
    folder.write("local-1", lines(-1, 0))
    folder.write("local-2.inprogress", lines(-1, 0))
    scandir = os.scandir

    def listed(path):
        entries = list(scandir(path))
        open_file = folder.path / "local-2.inprogress"
        if open_file.exists() and is_ending:
            open_file.rename(folder.path / "local-2")
        return nullcontext(iter(entries))

    is_ending = False
    monkeypatch.setattr(os, "scandir", listed)
    async with folder.open() as collector:
        await folder.poll(collector)
        is_ending = True
        ended = await folder.poll(collector)

    assert [(state, numbers) for _, state, numbers in ended] == [(JobState.ENDED, [])]


async def test_of_too_many_logs_those_that_are_written_and_the_newest_are_listed(folder, monkeypatch):
    monkeypatch.setattr("collectors.spark.log_folder.LISTED_MAX", 3)
    folder.write("running.inprogress", b"")
    for number in range(1, 6):
        folder.write(f"ended-{number}", b"")
    source = LogFolder(folder.path)

    found = await source.list_since(from_epoch_ms(0))

    assert {attempt.app_id for attempt in found} == {"running", "ended-5", "ended-4"}
    assert source.problem == "the oldest 3 of more than 3 logs are left out"


class _Dated:
    """An entry of a folder with a time of its own: the file system of the tests may not keep it."""

    def __init__(self, entry: os.DirEntry[str], at_s: float) -> None:
        self.name, self.path = entry.name, entry.path
        self.is_file, self.is_dir = entry.is_file, entry.is_dir
        self._at_s = at_s

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        assert not follow_symlinks
        return os.stat_result((0,) * 7 + (0, self._at_s, 0))


@pytest.mark.parametrize("at_s", [1e12, -1e12, 253_402_300_800, -62_135_596_801, 9.2e18, -9.2e18])
async def test_a_time_that_no_calendar_has_costs_only_its_log(folder, monkeypatch, at_s):
    folder.write("local-1", lines(-1, 0))
    folder.write("local-2", lines(-1, 0))
    scandir = os.scandir

    def listed(path):
        entries = list(scandir(path))
        return nullcontext(_Dated(e, at_s) if e.name == "local-2" else e for e in entries)

    monkeypatch.setattr(os, "scandir", listed)
    async with folder.open() as collector:
        found = await collector.collect(from_epoch_ms(folder.at_ms))

    assert [[c.header.checkpoint_id for c in job.checkpoints] for job in found.jobs] == [[0]]
    assert found.left_out == (
        "1 entry of the folder cannot be read (such as local-2: its time is not one of the years 2 to 9998)"
    )


async def test_a_rolling_log_with_a_file_of_no_calendar_is_left_out(folder, monkeypatch):
    folder.write("local-1", lines(-1, 0))
    folder.write("eventlog_v2_app-2/events_1_app-2", lines(-1, 0))
    folder.write("eventlog_v2_app-2/events_2_app-2", lines(1))
    lstat = os.lstat

    def dated(path):
        return os.stat_result((0,) * 7 + (0, 1e12, 0)) if str(path).endswith("events_2_app-2") else lstat(path)

    monkeypatch.setattr(os, "lstat", dated)
    async with folder.open() as collector:
        found = await collector.collect(from_epoch_ms(folder.at_ms))

    assert [[c.header.checkpoint_id for c in job.checkpoints] for job in found.jobs] == [[0]]
    assert "eventlog_v2_app-2: its time is not" in (found.left_out or "")


async def test_what_a_poll_leaves_out_is_in_its_observation_until_nothing_is(folder, monkeypatch):
    monkeypatch.setattr("collectors.spark.log_folder.LISTED_MAX", 1)
    older = folder.write("local-1", lines(-1, 0))
    folder.write("local-2", lines(-1, 0))
    async with folder.open() as collector:
        first = await collector.collect(from_epoch_ms(folder.at_ms))
        older.unlink()
        second = await collector.collect(from_epoch_ms(folder.at_ms))

    assert (first.left_out, second.left_out) == ("the oldest 1 of more than 1 logs are left out", None)


async def test_logs_that_no_poll_would_read_are_not_left_out(folder, monkeypatch):
    monkeypatch.setattr("collectors.spark.log_folder.LISTED_MAX", 2)
    for number in range(4):
        folder.write(f"old-{number}", lines(-1, 0))
    folder.at_ms += 7_200_000
    folder.write("local-1", lines(-1, 0))
    source = LogFolder(folder.path)
    since = from_epoch_ms(folder.at_ms - 3_600_000)

    assert [a.app_id for a in await source.list_since(since)] == ["local-1"]
    assert source.problem is None
    await source.check()
    (attempt,) = await source.list_since(since)
    assert await source.look_up(attempt) == [attempt]
    assert source.problem is None, "other questions do not say what the list leaves out"

    for number in range(2, 5):
        folder.write(f"local-{number}.inprogress", b"")
    await source.list_since(since)
    assert source.problem == "the oldest 2 of more than 2 logs are left out"


async def test_what_was_read_before_a_file_that_cannot_be_read_is_kept(folder):
    folder.write("eventlog_v2_app-1/events_4_app-1", lines(-1, 0))
    folder.write("eventlog_v2_app-1/events_5_app-1", b"\x00binary")
    folder.write("local-2", lines())
    async with folder.open() as collector:
        found = await collector.collect(from_epoch_ms(folder.at_ms))

    (job,) = found.jobs
    assert [c.header.checkpoint_id for c in job.checkpoints] == [0]
    assert job.state is JobState.UNREADABLE
    assert "it is no event log" in job.problems[0]


async def test_only_the_operator_may_name_a_folder(folder):
    with pytest.raises(InvalidInputError, match="which only the targets file may name"):
        async with folder.open(TargetOrigin.API):
            pass


async def test_a_folder_that_does_not_exist_is_told(tmp_path):
    with pytest.raises(TargetUnavailableError, match="cannot be read on the machine of the collector"):
        await LogFolder(tmp_path / "none").list_since(from_epoch_ms(0))


def declared(text: str):
    return parse_targets(text.encode(), where=Path("targets.yaml")).targets


def test_the_targets_file_may_name_a_folder():
    (target,) = declared("targets:\n  - url: file:///srv/./events/\n    kind: spark\n")

    assert (target.url, target.name) == ("file:///srv/events", "/srv/events")


@pytest.mark.parametrize(
    ("url", "kind", "said"),
    [
        ("file:///srv/events", "flink", "is a folder, which no target of kind flink is"),
        ("file://host/srv", "spark", "is no absolute path of this machine"),
        ("file:srv", "spark", "is no absolute path of this machine"),
        ("file:///srv/../etc", "spark", "has a part .."),
    ],
)
def test_a_wrong_folder_is_told_with_its_line(url, kind, said):
    with pytest.raises(InvalidInputError, match=said) as raised:
        declared(f"targets:\n  - url: {url}\n    kind: {kind}\n")
    assert "targets.yaml:2" in str(raised.value)
