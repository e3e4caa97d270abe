"""Reads event logs from S3. The server is that of moto, and the client the one that people install."""

from __future__ import annotations

import builtins
import json
import logging
import time
from pathlib import Path

import pytest

from backend.cli import app
from backend.contracts.targets_file import parse_targets
from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE, BasicAuth, ConnectionOptions, Reach, parse_reference
from backend.domain.errors import InvalidInputError, TargetUnavailableError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from collectors.spark import remote_folder, s3_files
from collectors.spark.kind import SPARK
from tests.support.collector_targets import Row
from tests.support.s3_server import BUCKET, KEYS, S3Server, running_s3
from tests.support.spark_history import query_lines as lines
from tests.support.spark_history import zstd

pytestmark = pytest.mark.anyio

_NAME = "orders-app: orders-windowed"
_ROLLING = "eventlog_v2_app-1"


@pytest.fixture(scope="module")
def server():
    with running_s3() as running:
        yield running


@pytest.fixture
def s3(server: S3Server, monkeypatch, tmp_path):
    for name, value in {**KEYS, "AWS_ENDPOINT_URL_S3": server.endpoint}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server.is_noting = False
    for found in server.client.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        server.client.delete_object(Bucket=BUCKET, Key=found["Key"])
    server.is_noting = True
    server.users.clear()
    server.taken()
    return server


def opened(
    url: str = f"s3://{BUCKET}/events", *, origin: TargetOrigin = TargetOrigin.CONFIGURATION, reach: Reach = ANYWHERE
):
    assert SPARK.open is not None
    return SPARK.open(Row("spark", url, origin=origin), {}, reach=reach)


async def polled(collector) -> list[tuple[str, JobState, list[int]]]:
    found = await collector.collect(from_epoch_ms(round(1000 * time.time())))
    return [(job.name, job.state, [c.header.checkpoint_id for c in job.checkpoints]) for job in found.jobs]


async def test_a_rolling_log_grows_by_whole_files_and_finished_ones_are_not_read_again(s3):
    s3.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    s3.write(f"{_ROLLING}/events_1_app-1.zstd", zstd(lines(-1, 0)))
    async with opened() as collector:
        first = await polled(collector)
        s3.taken()
        idle = await polled(collector)
        idle_asked = s3.taken()
        s3.write(f"{_ROLLING}/events_2_app-1.zstd", zstd(lines(1, 2)))
        second = await polled(collector)
        second_asked = s3.taken()
        s3.remove(f"{_ROLLING}/appstatus_app-1.inprogress")
        s3.write(f"{_ROLLING}/appstatus_app-1", b"")
        s3.write(f"{_ROLLING}/events_3_app-1.zstd", zstd(lines(3)))
        third = await polled(collector)

    assert first == [(_NAME, JobState.RUNNING, [0])]
    assert idle == [(_NAME, JobState.RUNNING, [])]
    assert idle_asked == [("GET", "", None)]
    assert second == [(_NAME, JobState.RUNNING, [1, 2])]
    assert second_asked == [("GET", "", None), ("GET", f"/{_ROLLING}/events_2_app-1.zstd", "bytes=0-")]
    assert third == [(_NAME, JobState.ENDED, [3])]


async def test_of_a_plain_log_that_has_grown_only_the_new_bytes_are_read(s3):
    whole = lines(-1, 0)
    s3.write("local-1.inprogress", whole)
    async with opened() as collector:
        first = await polled(collector)
        s3.write("local-1.inprogress", lines(-1, 0, 1, 2))
        s3.taken()
        found = await collector.collect(from_epoch_ms(round(1000 * time.time())))
        asked = s3.taken()
        s3.remove("local-1.inprogress")
        s3.write("local-1", lines(-1, 0, 1, 2, 3))
        third = await polled(collector)

    assert first == [(_NAME, JobState.RUNNING, [0])]
    assert [c.header.checkpoint_id for c in found.jobs[0].checkpoints] == [1, 2]
    assert asked == [("GET", "", None), ("GET", "/local-1.inprogress", f"bytes={len(whole)}-")]
    assert found.cost.response_bytes == len(lines(1, 2))
    assert third == [(_NAME, JobState.ENDED, [3])]


async def test_an_object_without_bytes_does_not_make_its_log_unreadable(s3):
    s3.write(f"{_ROLLING}/appstatus_app-1.inprogress", b"")
    s3.write(f"{_ROLLING}/events_1_app-1", lines(-1, 0))
    s3.write(f"{_ROLLING}/events_2_app-1", b"")
    async with opened() as collector:
        found = await polled(collector)
        s3.write(f"{_ROLLING}/events_2_app-1", lines(1))
        later = await polled(collector)

    assert found == [(_NAME, JobState.RUNNING, [0])]
    assert later == [(_NAME, JobState.RUNNING, [1])]


async def test_a_thousand_idle_applications_cost_one_request_a_thousand_objects(s3, monkeypatch):
    for number in range(1, 31):
        s3.write(f"local-{number}", lines(-1, 0))
    s3.write("local-31/of/another/program", b"x")
    s3.write(".hidden", b"x")
    async with opened() as collector:
        first = await polled(collector)
        s3.taken()
        await polled(collector)
        idle = s3.taken()

    assert len(first) == 30
    assert idle == [("GET", "", None)]


async def test_keys_are_references_and_are_read_anew_when_they_are_replaced(s3, tmp_path, monkeypatch, caplog):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    secret = tmp_path / "secret"
    secret.write_text("first-secret\n")
    s3.write("local-1", lines(-1, 0))
    options = ConnectionOptions(basic=BasicAuth("of-target", parse_reference(f"file:{secret}")))
    caplog.set_level(logging.DEBUG)
    async with opened(reach=Reach(options=options)) as collector:
        found = await polled(collector)
        known = collector.folder.files._fs
        secret.write_text("second-secret\n")
        await polled(collector)
        is_new = collector.folder.files._fs is not known
        shown = repr(collector.folder.files)

    assert found == [(_NAME, JobState.ENDED, [0])]
    assert s3.users == {"of-target"}
    assert is_new
    assert "-secret" not in shown
    assert not [r for r in caplog.records if "first-secret" in r.getMessage() or "second-secret" in r.getMessage()]


async def test_a_secret_that_is_missing_is_named_and_the_bucket_is_not_asked(s3):
    options = ConnectionOptions(basic=BasicAuth("of-target", parse_reference("env:NO_SUCH_SECRET")))
    async with opened(reach=Reach(options=options)) as collector:
        with pytest.raises(TargetUnavailableError, match="env:NO_SUCH_SECRET"):
            await polled(collector)
    assert s3.taken() == []


async def test_without_keys_the_sentence_names_what_to_set(s3, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    async with opened() as collector:
        with pytest.raises(TargetUnavailableError, match=r"no credentials for S3 were found: set connection\.basic"):
            await polled(collector)


async def test_a_bucket_that_does_not_exist_gets_one_sentence(s3):
    async with opened("s3://no-such-bucket/events") as collector:
        with pytest.raises(TargetUnavailableError, match="S3 has no such bucket"):
            await polled(collector)


async def test_a_server_that_is_away_gets_one_sentence(s3, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    async with opened() as collector:
        with pytest.raises(TargetUnavailableError, match="no connection to S3 is possible"):
            await polled(collector)


@pytest.mark.parametrize("origin", [TargetOrigin.API, TargetOrigin.DISCOVERY])
async def test_only_the_operator_may_declare_a_bucket(s3, origin):
    with pytest.raises(InvalidInputError, match="only the targets file may name"):
        async with opened(origin=origin):
            pass
    assert s3.taken() == []


async def test_without_s3fs_the_sentence_has_the_command_that_installs_it(monkeypatch):
    real = builtins.__import__

    def missing(name: str):
        if name == "s3fs":
            raise ModuleNotFoundError("No module named 's3fs'", name="s3fs")
        return real(name)

    monkeypatch.setattr(s3_files, "import_module", missing)
    with pytest.raises(InvalidInputError, match=r"needs the package s3fs: pip install 'barrierscope\[s3\]'"):
        async with opened():
            pass


async def test_a_log_is_read_in_pieces_however_large_it_is(s3, monkeypatch):
    sizes: list[int] = []
    real = remote_folder.parsed

    async def noted(read, work, threads):
        async def counted(size):
            piece = await read(size)
            sizes.append(len(piece))
            return piece

        await real(counted, work, threads)

    monkeypatch.setattr(remote_folder, "parsed", noted)
    filler = b'{"Event":"SparkListenerTaskStart","Stage ID":1,"x":"' + b"x" * 5_000 + b'"}\n'
    s3.write("local-1", lines(-1, 0) + filler * 2_000 + lines(1))
    async with opened() as collector:
        found = await polled(collector)

    assert found == [(_NAME, JobState.ENDED, [0, 1])]
    assert sum(sizes) > 10_000_000
    assert max(sizes) <= 256 * 1024


@pytest.mark.parametrize("tail", ["events", "events/", "events/local-1.zstd", f"events/{_ROLLING}"])
def test_diagnose_reads_a_folder_a_file_and_a_rolling_log(s3, capsys, tail):
    s3.write("local-1.zstd", zstd(lines(-1, 0, 1, 2)))
    s3.write(f"{_ROLLING}/appstatus_app-1", b"")
    s3.write(f"{_ROLLING}/events_2_app-1", lines(1, 2))
    s3.write(f"{_ROLLING}/events_1_app-1", lines(-1, 0))

    assert app.run(["diagnose", "--event-log", f"s3a://{BUCKET}/{tail}", "--format", "json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["job"] == "orders-windowed"


@pytest.mark.parametrize(
    ("address", "code", "said"),
    [
        (f"s3://{BUCKET}/other", 2, "has no event log"),
        ("s3://no-such-bucket/events", 1, "S3 has no such bucket"),
        ("s3://spark-logs:80/events", 2, "has no bucket"),
        ("s3://reader:secret@spark-logs/events", 2, "holds a password"),
        ("hdfs://namenode:8020/spark-events", 2, "webhdfs://[USER@]HOST:PORT/PATH"),
    ],
)
def test_diagnose_says_in_one_line_what_is_wrong_with_an_address(s3, capsys, address, code, said):
    assert app.run(["diagnose", "--event-log", address]) == code
    error = capsys.readouterr().err.rpartition("\r")[2]
    assert said in error
    assert "secret" not in error
    assert error.count("\n") == 1


def test_a_target_of_the_file_has_the_options_that_s3_has():
    text = "targets: [{url: 's3a://spark-logs/events/', kind: spark, connection: {basic: {user: a, password: env:B}}}]"
    (target,) = parse_targets(text.encode(), where=Path("t.yaml")).targets

    assert target.url == "s3://spark-logs/events"
    with pytest.raises(InvalidInputError, match="bearer: is not used for S3"):
        parse_targets(text.replace("basic: {user: a, password: env:B}", "bearer: env:B").encode(), where=Path("t.yaml"))
    with pytest.raises(InvalidInputError, match="is a folder of a store, which no target of kind flink is"):
        parse_targets(text.replace("kind: spark", "kind: flink").encode(), where=Path("t.yaml"))
