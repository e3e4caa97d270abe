"""Reads event logs from HDFS by WebHDFS. The server is a fake that follows the documentation: no HDFS runs here."""

from __future__ import annotations

import asyncio
import json
import re
import time

import pytest

from backend.cli import app
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE, ConnectionOptions, Proxy, Reach, parse_reference, problems_of
from backend.domain.errors import InvalidInputError, TargetProtocolError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.domain.target_url import normalised_store
from collectors.spark import webhdfs_files
from collectors.spark.kind import SPARK
from collectors.spark.remote_folder import logs_of
from tests.support.collector_targets import Row
from tests.support.fake_webhdfs import FakeHdfs, running_hdfs
from tests.support.nginx import forward_proxy
from tests.support.spark_history import query_lines as lines
from tests.support.spark_history import zstd

pytestmark = pytest.mark.anyio

_NAME = "orders-app: orders-windowed"
_ROLLING = "eventlog_v2_app-1"


@pytest.fixture
async def hdfs():
    async with running_hdfs() as running:
        yield running


def opened(hdfs: FakeHdfs, *, origin: TargetOrigin = TargetOrigin.CONFIGURATION, reach: Reach = ANYWHERE):
    assert SPARK.open is not None
    return SPARK.open(Row("spark", hdfs.url, origin=origin), {}, reach=reach)


async def polled(collector) -> list[tuple[str, JobState, list[int]]]:
    found = await collector.collect(from_epoch_ms(round(1000 * time.time())))
    return [(job.name, job.state, [c.header.checkpoint_id for c in job.checkpoints]) for job in found.jobs]


def taken(hdfs: FakeHdfs) -> list[str]:
    asked, hdfs.asked[:] = list(hdfs.asked), []
    return asked


async def test_a_plain_log_is_read_on_from_where_it_was_read_and_under_its_new_name(hdfs):
    hdfs.write("local-1.inprogress", lines(-1, 0) + lines(1)[:-30])
    async with opened(hdfs) as collector:
        first = await polled(collector)
        hdfs.write("local-1.inprogress", lines(-1, 0, 1, 2))
        before = hdfs.sent_bytes
        second = await polled(collector)
        grown_bytes = hdfs.sent_bytes - before
        hdfs.remove("local-1.inprogress")
        hdfs.write("local-1", lines(-1, 0, 1, 2, 3))
        third = await polled(collector)

    assert first == [(_NAME, JobState.RUNNING, [0])]
    assert second == [(_NAME, JobState.RUNNING, [1, 2])]
    # One byte shows that the file has grown. A line that was not whole is read again.
    assert grown_bytes == 1 + len(lines(1, 2))
    assert third == [(_NAME, JobState.ENDED, [3])]


async def test_a_rolling_log_that_has_ended_costs_no_request_and_one_that_is_idle_three(hdfs):
    hdfs.write("eventlog_v2_app-2/appstatus_app-2", b"")
    hdfs.write("eventlog_v2_app-2/events_1_app-2.zstd", zstd(lines(-1, 0)))
    hdfs.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    hdfs.write(f"{_ROLLING}/events_1_app-1", lines(-1, 0))
    async with opened(hdfs) as collector:
        await polled(collector)
        taken(hdfs)
        await polled(collector)

    # The byte after the end of the file that is still written is asked for, as HDFS does not know its size.
    end = len(lines(-1, 0))
    name = f"{_ROLLING}/events_1_app-1"
    assert taken(hdfs) == ["LISTSTATUS ", f"LISTSTATUS {_ROLLING}", f"OPEN {name}", f"READ {name} {end}"]


async def test_the_finished_files_of_a_rolling_log_are_not_opened_again(hdfs):
    hdfs.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    hdfs.write(f"{_ROLLING}/events_1_app-1.zstd", zstd(lines(-1, 0)))
    async with opened(hdfs) as collector:
        first = await polled(collector)
        hdfs.write(f"{_ROLLING}/events_2_app-1.zstd", zstd(lines(1, 2)))
        second = await polled(collector)
        taken(hdfs)
        hdfs.write(f"{_ROLLING}/events_3_app-1.zstd.compact", zstd(lines(-1)))
        hdfs.write(f"{_ROLLING}/events_4_app-1.zstd", zstd(lines(3)))
        third = await polled(collector)

    assert [numbers for _, _, numbers in first] == [[0]]
    assert [numbers for _, _, numbers in second] == [[1, 2]]
    assert [numbers for _, _, numbers in third] == [[3]]
    assert not [asked for asked in taken(hdfs) if "events_1" in asked]


async def test_credentials_are_references_and_never_reach_another_host(hdfs, monkeypatch):
    hdfs.write("local-1", lines(-1, 0))
    options = ConnectionOptions(bearer=parse_reference("env:HDFS_TOKEN"))
    reach = Reach(options=options, environment={"HDFS_TOKEN": "secret-token"})
    async with opened(hdfs, reach=reach) as collector:
        await polled(collector)

    assert [h.get("Authorization") for h in hdfs.headers] == ["Bearer secret-token", "Bearer secret-token", None]


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.2:1", "not allowed"),
        ("http://localhost:1", "not allowed"),
        ("http://169.254.169.254", "not allowed"),
        ("http://[::1]:1", "not allowed"),
        ("ftp://127.0.0.1", "no address of WebHDFS"),
        ("http://127.0.0.1:1/latest/meta-data?x=", "no address of WebHDFS"),
        ("not an address", "no address of WebHDFS"),
    ],
)
async def test_a_name_node_cannot_lead_to_an_address_of_this_machine_or_of_its_cloud(hdfs, location, reason):
    hdfs.write("local-1", lines(-1, 0))
    hdfs.location = location
    async with opened(hdfs) as collector:
        with pytest.raises(TargetProtocolError, match=reason):
            await polled(collector)


@pytest.mark.parametrize("origin", [TargetOrigin.API, TargetOrigin.DISCOVERY])
async def test_only_the_operator_may_declare_the_folder(hdfs, origin):
    with pytest.raises(InvalidInputError, match="only the targets file may name"):
        async with opened(hdfs, origin=origin):
            pass
    assert hdfs.asked == []


async def test_a_folder_that_is_missing_or_forbidden_gets_one_sentence(hdfs):
    hdfs.write("local-1", lines(-1, 0))
    async with opened(hdfs) as collector:
        collector.folder.files.url = hdfs.url.replace("spark@", "mallory@")
        with pytest.raises(TargetProtocolError, match="403"):
            await polled(collector)


async def test_a_hostile_list_ends_in_our_words(hdfs):
    hdfs.write("../../etc/passwd", b"x")
    hdfs.folders.clear()
    hdfs.files = {"..": hdfs.files.popitem()[1]}
    async with opened(hdfs) as collector:
        with pytest.raises(TargetProtocolError, match="no name of a file"):
            await polled(collector)


@pytest.mark.parametrize("tail", ["", "/local-1", f"/{_ROLLING}"])
async def test_diagnose_reads_a_folder_a_file_and_a_rolling_log(hdfs, capsys, tail):
    hdfs.write("local-1", lines(-1, 0, 1, 2))
    hdfs.write(f"{_ROLLING}/appstatus_app-1", b"")
    hdfs.write(f"{_ROLLING}/events_2_app-1.zstd", zstd(lines(1, 2)))
    hdfs.write(f"{_ROLLING}/events_1_app-1.zstd", zstd(lines(-1, 0)))

    code = await asyncio.to_thread(app.run, ["diagnose", "--event-log", hdfs.url + tail, "--format", "json"])

    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (code, job["job"]) == (0, "orders-windowed")


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("hdfs://namenode:8020/logs", "HDFS' own protocol"),
        ("webhdfs://spark:secret@namenode/logs", "holds a password"),
        ("webhdfs:///logs", "has no host"),
        ("webhdfs://namenode/logs/../etc", "a part . or .."),
        ("webhdfs://namenode/logs?op=DELETE", "has a query"),
        ("webhdfs://a b/logs", "has no host"),
        ("webhdfs://us%2Fer@namenode/logs", "none of HDFS"),
        ("webhdfs://namenode:99999/logs", "is not an address"),
    ],
)
def test_an_address_that_is_wrong_gets_a_sentence_without_its_password(address, problem):
    with pytest.raises(InvalidInputError, match=re.escape(problem)) as error:
        normalised_store(address)
    assert "secret" not in str(error.value)


def test_the_usual_port_is_added_and_hostile_options_are_refused():
    assert normalised_store("WebHDFS://NameNode/logs/") == "webhdfs://namenode:9870/logs"
    assert normalised_store("swebhdfs://u@[::1]/logs") == "swebhdfs://u@[::1]:9871/logs"
    options = ConnectionOptions(ca=parse_reference("file:ca.pem"))
    assert [p.allowed for p in problems_of(options, "webhdfs://n:9870/logs")] == ["swebhdfs://"]
    assert problems_of(options, "swebhdfs://n:9871/logs") == ()


async def test_a_running_query_that_is_quiet_stays_ahead_of_newer_logs_and_all_logs_come_in_turn(hdfs, monkeypatch):
    monkeypatch.setattr(webhdfs_files, "_FOLDERS_MAX", 3)
    hdfs.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    hdfs.write(f"{_ROLLING}/events_1_app-1", lines(-1, 0))
    async with opened(hdfs) as collector:
        first = await polled(collector)
        for number in range(2, 10):
            hdfs.write(f"eventlog_v2_app-{number}/appstatus_app-{number}", b"")
            hdfs.write(f"eventlog_v2_app-{number}/events_1_app-{number}", lines(-1, 0))
            hdfs.folders[f"eventlog_v2_app-{number}"] += 60_000
        seen = []
        for _ in range(5):
            found = await collector.folder.files.listed()
            logs = logs_of(found)
            seen.append((len(logs), logs["app-1"].is_open, found.waiting_count))
            taken(hdfs)

    assert first == [(_NAME, JobState.RUNNING, [0])]
    assert seen == [(3, True, 6), (5, True, 4), (7, True, 2), (9, True, 0), (9, True, 0)]


async def test_lists_of_rolling_logs_stop_after_their_time_and_the_next_poll_lists_the_others(hdfs, monkeypatch):
    monkeypatch.setattr(webhdfs_files, "_LIST_S", 0.0)
    for number in range(10, 30):
        hdfs.write(f"eventlog_v2_app-{number}/appstatus_app-{number}", b"")
        hdfs.write(f"eventlog_v2_app-{number}/events_1_app-{number}", lines(-1, 0))
    async with opened(hdfs) as collector:
        found = [await collector.folder.files.listed() for _ in range(3)]

    assert [(len(logs_of(f)), f.waiting_count) for f in found] == [(8, 12), (16, 4), (20, 0)]


async def test_a_rolling_log_that_cannot_be_listed_for_a_moment_keeps_its_files(hdfs):
    hdfs.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    hdfs.write(f"{_ROLLING}/events_1_app-1", lines(-1, 0))
    hdfs.write("local-2", lines(-1))
    async with opened(hdfs) as collector:
        await polled(collector)
        hdfs.unlisted = (403, "AccessControlException", "Permission denied")
        found = await collector.folder.files.listed()

    assert logs_of(found)["app-1"].is_open
    assert (found.unreadable_count, found.unreadable) == (1, f"{_ROLLING}: HTTP 403: Permission denied")


async def test_a_folder_whose_list_is_too_large_is_listed_in_batches(hdfs):
    for number in range(10, 15):
        hdfs.write(f"local-{number} a", lines(-1, 0))
    hdfs.batch_size = 2
    async with opened(hdfs) as collector:
        found = await collector.folder.files.listed()
        first = taken(hdfs)
        await collector.folder.files.listed()

    assert sorted(f.path for f in found.files) == [f"local-{number} a" for number in range(10, 15)]
    assert first == ["LISTSTATUS ", *["LISTSTATUS_BATCH "] * 3]
    assert taken(hdfs) == ["LISTSTATUS_BATCH "] * 3


async def test_without_batches_the_sentence_names_the_limit(hdfs):
    hdfs.batch_size = 0
    async with opened(hdfs) as collector:
        with pytest.raises(TargetProtocolError, match="larger than 8 MiB"):
            await polled(collector)


async def test_a_data_node_is_reached_through_the_proxy_of_the_target(hdfs):
    hdfs.write("local-1", lines(-1, 0))
    async with forward_proxy() as proxy:
        reach = Reach(options=ConnectionOptions(proxy=Proxy(proxy.url)))
        async with opened(hdfs, reach=reach) as collector:
            found = await polled(collector)
        asked = list(proxy.asked)
        hdfs.location = "http://127.0.0.2:1"
        async with opened(hdfs, reach=reach) as collector:
            with pytest.raises(TargetProtocolError, match="not allowed"):
                await polled(collector)

    assert found == [(_NAME, JobState.ENDED, [0])]
    assert [line for line in asked if f"127.0.0.1:{hdfs.data_port}/webhdfs/v1" in line]
    assert not [line for line in proxy.asked if "127.0.0.2" in line]


_END = "Offset=900 out of the range [0, 800); OPEN, path=/spark-events/local-1.inprogress"


@pytest.mark.parametrize(
    ("refused", "is_shown"),
    [
        ((403, "IOException", _END), False),
        ((403, "AccessControlException", "Permission denied: user=spark"), True),
        ((401, "AuthorizationException", "Token has expired"), True),
        ((500, "RuntimeException", "no live nodes"), True),
        ((503, "StandbyException", "not active"), True),
    ],
)
async def test_a_file_that_has_grown_and_is_refused_once_is_read_later(hdfs, refused, is_shown, monkeypatch):
    hdfs.write("local-1.inprogress", lines(-1, 0))
    async with opened(hdfs) as collector:
        await polled(collector)
        hdfs.write("local-1.inprogress", lines(-1, 0, 1, 2))
        # The file is refused between the poll that saw a new byte and the reading of the log.
        checked = collector.folder.files._with_growth

        async def refusing(files):
            found = await checked(files)
            hdfs.opening = refused
            return found

        with monkeypatch.context() as patched:
            patched.setattr(type(collector.folder.files), "_with_growth", lambda self, files: refusing(files))
            collected = await collector.collect(from_epoch_ms(round(1000 * time.time())))
        hdfs.opening = None
        for app in collector.logs._apps.values():
            app.due_s = 0.0
        later = await polled(collector)

    problems = [problem for job in collected.jobs for problem in job.problems]
    assert bool(problems) == is_shown
    if is_shown:
        assert refused[2] in problems[0]
    assert later == [(_NAME, JobState.RUNNING, [1, 2])]


@pytest.mark.parametrize("at_ms", [2**63 - 1, 253_402_300_800_000])
async def test_a_time_that_no_calendar_has_costs_only_its_log(hdfs, at_ms):
    hdfs.write("local-1", lines(-1, 0))
    hdfs.write("local-2", lines(-1, 0))
    hdfs.files["local-2"].changed_ms = at_ms
    async with opened(hdfs) as collector:
        found = await collector.collect(from_epoch_ms(round(1000 * time.time())))

    assert [[c.header.checkpoint_id for c in job.checkpoints] for job in found.jobs] == [[0]]
    assert found.left_out == (
        "1 entry of the folder cannot be read (such as local-2: its time is not one of the years 2 to 9998)"
    )
