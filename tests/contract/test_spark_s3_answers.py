"""Reads event logs from a server of S3 that redirects, answers without end, or answers what is no list."""

from __future__ import annotations

import time

import pytest

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.errors import UpstreamError
from backend.domain.target import TargetOrigin
from collectors.spark import log_folder, remote_folder, s3_files
from collectors.spark.kind import SPARK
from collectors.spark.remote_files import Listing
from collectors.spark.remote_folder import RemoteFolder
from tests.support.answering_s3 import Answer, answering_s3, page
from tests.support.collector_targets import Row

pytestmark = pytest.mark.anyio

_BUCKET = "spark-logs"
_LIMIT_BYTES = 8 * 2**20


@pytest.fixture(autouse=True)
def _keys(monkeypatch, tmp_path):
    names = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token-of-reader"}
    for name, value in {**names, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def run(monkeypatch):
    """Return what polls a folder of a server, and returns the reason of the error, or None."""

    async def polled(endpoint: str) -> str | None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        assert SPARK.open is not None
        async with SPARK.open(
            Row("spark", f"s3://{_BUCKET}/events", origin=TargetOrigin.CONFIGURATION), {}, reach=ANYWHERE
        ) as collector:
            try:
                await collector.collect(from_epoch_ms(round(1000 * time.time())))
            except UpstreamError as error:
                return str(error)
        return None

    return polled


@pytest.mark.parametrize("region", [{}, {"x-amz-bucket-region": "eu-north-1"}])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_token_of_the_session_stays_here(run, status, region):
    with answering_s3(lambda path, query: Answer()) as other:
        place = {"Location": f"{other.endpoint}/taken"} | region
        with answering_s3(lambda path, query: Answer(status=status, headers=place)) as s3:
            reason = await run(s3.endpoint)

    assert other.asked == []
    assert s3.asked[0][1]["x-amz-security-token"] == "token-of-reader"
    assert reason is not None
    assert f"S3 redirects to another address ({status}), which is not followed" in reason
    assert "are AWS_ENDPOINT_URL_S3 and the region of the bucket right?" in reason


@pytest.mark.parametrize("status", [200, 500])
async def test_a_list_without_end_is_given_up_at_the_limit(run, status):
    def endless():
        for _ in range(16 * _LIMIT_BYTES // 2**16):
            yield b" " * 2**16

    with answering_s3(lambda path, query: Answer(endless(), status=status)) as s3:
        reason = await run(s3.endpoint)

    assert reason is not None
    assert "an answer of S3 is larger than 8 MiB" in reason
    # What is on its way in the buffers of the machine counts as sent.
    assert s3.sent_bytes / len(s3.asked) < 3 * _LIMIT_BYTES


@pytest.mark.parametrize("body", [b"", b"<?xml version='1.0'?><Other/>"])
async def test_an_answer_that_is_no_list_is_no_empty_folder(run, body):
    with answering_s3(lambda path, query: Answer([body])) as s3:
        reason = await run(s3.endpoint)

    assert reason is not None
    assert "the answer has no list of objects" in reason


@pytest.mark.parametrize("status", [200, 403, 503])
@pytest.mark.parametrize("body", [b"<!DOCTYPE html><title>Log in<br></html>", b"<html/>"])
async def test_a_page_of_a_login_is_named_as_one(run, body, status):
    with answering_s3(lambda path, query: Answer([body], status=status)) as s3:
        reason = await run(s3.endpoint)

    assert reason is not None
    assert "a page has answered and not S3, such as that of a login: does AWS_ENDPOINT_URL_S3" in reason


async def test_an_error_of_the_server_says_what_comes_next(run):
    body = b"<?xml version='1.0'?><Error><Code>InternalError</Code></Error>"
    with answering_s3(lambda path, query: Answer([body], status=500)) as s3:
        reason = await run(s3.endpoint)

    assert reason is not None
    assert "S3 answers with an error (InternalError): it is asked again" in reason


async def test_a_list_that_does_not_go_on_is_given_up(run):
    body = page([("events/local-1", 5, 1)], bucket=_BUCKET, token="again")
    with answering_s3(lambda path, query: Answer([body])) as s3:
        reason = await run(s3.endpoint)

    assert len(s3.asked) == 2
    assert reason is not None
    assert "says that more objects follow, but names no later one" in reason


def folder(names: list[str], *, size: int):
    """Answer lists of a folder, with ``size`` objects a page, the last of which is the newest."""

    def answer(path, query):
        after = query.get("start-after", [""])[0].encode()
        keys = [f"events/{name}" for name in names]
        left = [(key, 5, at % 60) for at, key in enumerate(keys) if key.encode() > after]
        return Answer([page(left[:size], bucket=_BUCKET, token="more" if len(left) > size else None)])

    return answer


async def listed(endpoint: str, monkeypatch, *, count: int) -> list[Listing]:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    async with s3_files.open_s3(f"s3://{_BUCKET}/events", timeout_s=10.0, reach=ANYWHERE) as files:
        return [await files.listed() for _ in range(count)]


async def test_a_list_longer_than_a_poll_goes_on_in_the_next_and_what_was_found_stays(monkeypatch):
    monkeypatch.setattr(s3_files, "_PAGES_MAX", 2)
    names = [f"local-{number}" for number in range(10, 20)]
    with answering_s3(folder(names, size=2)) as s3:
        found = await listed(s3.endpoint, monkeypatch, count=4)

    assert [(len(f.files), f.is_partial, f.is_cut) for f in found] == [
        (4, True, False),
        (8, True, False),
        (10, False, False),
        (10, True, False),
    ]


async def test_a_list_that_later_polls_end_leaves_nothing_out(monkeypatch):
    monkeypatch.setattr(s3_files, "_PAGES_MAX", 2)
    names = [f"local-{number}" for number in range(10, 20)]
    with answering_s3(folder(names, size=2)) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        async with s3_files.open_s3(f"s3://{_BUCKET}/events", timeout_s=10.0, reach=ANYWHERE) as files:
            source = RemoteFolder(files)
            found = []
            for _ in range(4):
                count = len(await source.list_since(from_epoch_ms(0)))
                found.append((count, source.is_partial, source.problem))

    assert found == [(4, True, None), (8, True, None), (10, False, None), (10, True, None)]


@pytest.mark.parametrize(("pages", "is_whole"), [(2, False), (3, True)])
async def test_the_test_of_the_connection_says_that_the_list_goes_on_and_may_leave_more_out(
    monkeypatch, pages, is_whole
):
    monkeypatch.setattr(s3_files, "FILES_MAX", 3)
    monkeypatch.setattr(s3_files, "_PAGES_MAX", pages)
    with answering_s3(folder([f"local-{number}" for number in range(10, 15)], size=2)) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        probed = await SPARK.probe(f"s3://{_BUCKET}/events", 10.0, reach=ANYWHERE)

    assert "; the folder has more files than are kept, so the oldest are left out" in probed.summary
    assert probed.summary.endswith("not known yet what the rest of the list leaves out") is not is_whole


async def test_a_folder_that_is_cut_is_so_in_each_round(monkeypatch):
    monkeypatch.setattr(s3_files, "FILES_MAX", 4)
    monkeypatch.setattr(s3_files, "_PAGES_MAX", 1)
    newest_first = [(f"events/local-{number}", 5, 59 - number) for number in range(10, 19)]

    def answer(path, query):
        after = query.get("start-after", [""])[0]
        left = [entry for entry in newest_first if entry[0] > after]
        return Answer([page(left[:1], bucket=_BUCKET, token="more" if len(left) > 1 else None)])

    with answering_s3(answer) as s3:
        found = await listed(s3.endpoint, monkeypatch, count=18)

    assert all(f.is_cut for f in found[8:])


async def test_of_too_many_logs_only_those_that_a_poll_would_read_count_as_left_out(monkeypatch):
    for module in (log_folder, remote_folder):
        monkeypatch.setattr(module, "LISTED_MAX", 3)
    names = [f"local-{number}" for number in range(10, 16)]
    with answering_s3(folder(names, size=10)) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        async with s3_files.open_s3(f"s3://{_BUCKET}/events", timeout_s=10.0, reach=ANYWHERE) as files:
            source = RemoteFolder(files)
            await source.list_since(from_epoch_ms(0))
            all_of_them = source.problem
            times = sorted(log.changed_ms for log in source._logs.values())
            await source.list_since(from_epoch_ms(times[0]) - files.clock_ahead)

            assert (all_of_them, source.problem) == ("the oldest 3 of more than 3 logs are left out", None)
            await source.check()
            assert source.problem is None


async def test_a_page_with_only_deleted_objects_does_not_end_the_list(monkeypatch):
    def answer(path, query):
        if "continuation-token" in query:
            return Answer([page([("events/local-1", 5, 1)], bucket=_BUCKET)])
        return Answer([page([], bucket=_BUCKET, token="more")])

    with answering_s3(answer) as s3:
        (found,) = await listed(s3.endpoint, monkeypatch, count=1)

    assert [f.path for f in found.files] == ["local-1"]


async def test_a_list_stops_after_its_time_and_an_object_that_is_gone_goes(monkeypatch):
    monkeypatch.setattr(s3_files, "_LIST_S", 0.0)
    names = [f"local-{number}" for number in range(10, 14)]
    with answering_s3(folder(names, size=2)) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3.endpoint)
        async with s3_files.open_s3(f"s3://{_BUCKET}/events", timeout_s=10.0, reach=ANYWHERE) as files:
            before = [len((await files.listed()).files) for _ in range(2)]
            names.remove("local-10")
            after = [f.path for f in (await files.listed()).files]

    assert before == [2, 4]
    assert sorted(after) == ["local-11", "local-12", "local-13"]


async def test_of_more_objects_than_are_kept_the_newest_are(monkeypatch):
    monkeypatch.setattr(s3_files, "FILES_MAX", 4)
    names = [f"local-{number}" for number in range(10, 30)]
    with answering_s3(folder(names, size=3)) as s3:
        (found,) = await listed(s3.endpoint, monkeypatch, count=1)

    assert sorted(f.path for f in found.files) == ["local-26", "local-27", "local-28", "local-29"]
    assert found.is_cut


async def test_the_objects_of_another_program_cost_no_page_each(monkeypatch):
    others = [f"data/part-{number}" for number in range(100, 200)]
    deep = [f"eventlog_v2_app-1/old/part-{number}" for number in range(100, 200)]
    names = [*others, "eventlog_v2_app-1/appstatus_app-1", "eventlog_v2_app-1/events_1_app-1", *deep, "local-1"]
    with answering_s3(folder(names, size=3)) as s3:
        (found,) = await listed(s3.endpoint, monkeypatch, count=1)

    assert sorted(f.path for f in found.files) == [names[100], names[101], "local-1"]
    assert len(s3.asked) == 3
