"""History servers that send a log slowly or break off, and what that leaves to the other targets."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest
from aiohttp import web

from backend.domain.clock import from_epoch_ms
from backend.domain.errors import TargetProtocolError, TargetUnavailableError
from collectors.spark import arriving, history_server, log_folder
from collectors.spark.log_folder import LogFolder, attempt_of
from collectors.spark.log_source import LogFailedError
from collectors.spark.read_application import ReadApplication
from tests.contract.test_spark_history import Handler, job_of, lines, numbers_of, rolling, watching
from tests.support.spark_history import Application, zipped
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


class Dripping(Handler):
    """Sends a byte of a log now and then."""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/logs"):
            return await super().handle(request)
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        await response.prepare(request)
        await response.write(zipped([("local-1", lines(-1, 0))])[:60])
        with suppress(ConnectionError):
            while True:
                await response.write(b"x")
                await asyncio.sleep(0.01)
        return response


async def test_a_server_that_sends_a_log_too_slowly_is_given_up(monkeypatch):
    monkeypatch.setattr("collectors.spark.arriving._RATE_PERIOD_S", 0.3)
    async with watching(rolling(lines(-1, 0)), handler=Dripping) as watch:
        with pytest.raises(TargetProtocolError, match="it arrives too slowly, with less than 64 KiB in 0"):
            await watch.poll()


@pytest.mark.parametrize(("is_behind", "said"), [(True, []), (False, ["slow"])])
async def test_only_the_time_of_the_server_counts_for_its_rate(is_behind, said, monkeypatch):
    now_s = 0.0
    monkeypatch.setattr("collectors.spark.arriving.time.monotonic", lambda: now_s)
    pace = arriving._Pace()

    async def read(size: int) -> bytes:
        nonlocal now_s
        now_s += 0 if is_behind else 16
        return b"x"

    slow = []
    for _ in range(4):
        now_s += 16
        try:
            await pace.taken(read, 1)
        except arriving.TooSlowError:
            slow = ["slow"]
    assert slow == said


async def test_slow_history_servers_keep_no_folder_waiting(tmp_path):
    (tmp_path / "local-1").write_bytes(lines(-1, 0))
    is_free = threading.Event()
    busy = [history_server._THREADS.submit(is_free.wait, 60) for _ in range(history_server._THREADS._max_workers)]
    try:
        async with asyncio.timeout(30):
            (listed,) = await LogFolder(tmp_path).list_since(from_epoch_ms(0))
    finally:
        is_free.set()
    assert all(thread.result() for thread in busy)
    assert listed.app_id == "local-1"


async def test_folders_that_hang_keep_no_other_folder_waiting_and_are_asked_once(tmp_path, monkeypatch):
    monkeypatch.setattr(log_folder, "_WAIT_S", 0.05)
    monkeypatch.setattr(log_folder._LISTS, "find_mount", str)
    is_free, asked = threading.Event(), []
    listed = log_folder._logs

    def hangs(folder):
        asked.append(folder.name)
        if folder.name.startswith("hung"):
            is_free.wait(60)
        return listed(folder)

    monkeypatch.setattr(log_folder, "_logs", hangs)
    (tmp_path / "well").mkdir()
    (tmp_path / "well" / "local-1").write_bytes(lines(-1, 0))
    hung = [LogFolder(tmp_path / f"hung-{n}") for n in range(8)]
    try:
        for _ in range(3):
            for folder in hung:
                with pytest.raises(TargetUnavailableError, match=r"the folder has not answered within 0\.05 s"):
                    await folder.list_since(from_epoch_ms(0))
        monkeypatch.setattr(log_folder, "_WAIT_S", 30.0)
        (found,) = await LogFolder(tmp_path / "well").list_since(from_epoch_ms(0))
    finally:
        is_free.set()
    assert (found.app_id, sorted(asked)) == ("local-1", [*(f"hung-{n}" for n in range(8)), "well"])


class HeldLogs:
    """Logs of which some are read until the test releases them. ``asked`` has those whose reading has begun."""

    def __init__(self, monkeypatch, *, held: str) -> None:
        self.is_free = threading.Event()
        self.asked: list[str] = []
        read = log_folder._read_one

        def reading(path, *args):
            self.asked.append(path.name)
            if path.name.startswith(held):
                self.is_free.wait(60)
            return read(path, *args)

        monkeypatch.setattr(log_folder, "_read_one", reading)


def _held_calls(folder: LogFolder, *names: str) -> list[asyncio.Future[None]]:
    reads = [(attempt_of(name, 0, is_open=True), ReadApplication(name).reading()) for name in names]
    return [asyncio.ensure_future(folder.fetch(attempt, found, {})) for attempt, found in reads]


async def test_logs_that_take_long_keep_no_list_waiting(tmp_path, monkeypatch):
    held = HeldLogs(monkeypatch, held="long")
    names = [f"long-{n}" for n in range(log_folder._THREADS.at_once)]
    for name in names:
        (tmp_path / name).write_bytes(lines(-1, 0))
    folder = LogFolder(tmp_path)
    readings = _held_calls(folder, *names)
    try:
        await asyncio.sleep(0)
        until(lambda: len(held.asked) == len(names), "all are read")
        assert len(await folder.list_since(from_epoch_ms(0))) == len(names)
    finally:
        held.is_free.set()
        await asyncio.gather(*readings)


async def test_a_log_that_hangs_is_a_failure_and_is_not_read_a_second_time_until_it_answers(tmp_path, monkeypatch):
    held = HeldLogs(monkeypatch, held="hung")
    for name in ("hung", "well"):
        (tmp_path / name).write_bytes(lines(-1, 0))
    folder, found = LogFolder(tmp_path), ReadApplication("hung").reading()
    hung, well = (attempt_of(name, 0, is_open=True) for name in ("hung", "well"))
    try:
        monkeypatch.setattr(log_folder, "WHOLE_S", 0.05)
        with pytest.raises(LogFailedError, match=r"hung cannot be read: its reading has not ended within 50 ms"):
            await folder.fetch(hung, found, {})
        monkeypatch.setattr(log_folder, "WHOLE_S", 30.0)
        with pytest.raises(LogFailedError, match="an earlier reading of it has not ended"):
            await folder.fetch(hung, found, {})
        other = ReadApplication("well").reading()
        await folder.fetch(well, other, {})
    finally:
        held.is_free.set()
    until(lambda: all(call.future.done() for call in folder._given_up.values()), "it has ended")
    assert (held.asked, found.packed_bytes, other.packed_bytes) == (["hung", "well"], 0, len(lines(-1, 0)))

    again = ReadApplication("hung").reading()
    await folder.fetch(hung, again, {})
    assert again.packed_bytes == len(lines(-1, 0))


def test_few_logs_of_a_mount_that_are_late_are_read_at_once():
    assert log_folder._THREADS.at_once + log_folder._THREADS.hung_max <= 8


def _broken_off(first: int, suffix: str) -> list[tuple[str, bytes]]:
    """A rolling log whose server sends its files in their order, and breaks off in the second one."""
    parts = (lines(-1, 0), lines(1), lines(2))
    suffixes = (suffix, "", "")
    return [(f"eventlog_v2_x/events_{first + n}_x{suffixes[n]}", part) for n, part in enumerate(parts)]


@pytest.mark.parametrize(
    ("first", "suffix", "taken"), [(1, "", [0]), (4, ".compact", [0]), (4, "", [])], ids=["first", "compacted", "later"]
)
async def test_a_first_reading_that_breaks_off_keeps_what_it_has_read_if_nothing_before_is_missing(
    first, suffix, taken
):
    files = _broken_off(first, suffix)
    whole = zipped(files)
    app = Application(files=files, archive=whole[: whole.index(f"events_{first + 1}_".encode()) + 30])
    other = Application(id="other", files=[("x", b"")])
    async with watching(app, other) as watch:
        broken = await watch.poll()
        app.archive = None
        app.updated_ms += 1
        watch.later(60)
        again = await watch.poll()

    assert [number for job in broken.jobs for number in numbers_of(job)] == taken
    assert numbers_of(job_of(again, "orders-windowed")) == [n for n in (0, 1, 2) if n not in taken]
