"""Blocking calls on folders: one that hangs costs its own place only, and not for long."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from collectors.spark.folder_threads import AtMostOne, FolderThreads, MountHangsError, mount_of
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
LONG_S = 30.0


class Hanging:
    """Calls that do not end until the test does. ``names`` are the folders that were asked."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.released = threading.Event()
        self.names: list[str] = []
        self.threads = FolderThreads(
            "folder", at_once=2, late_s=20.0, hung_max=3, monotonic_s=lambda: self.now_s, find_mount=_first_part
        )

    def hang(self, name: str):
        """Ask a folder that does not answer."""

        def call() -> str:
            self.names.append(name)
            self.released.wait(LONG_S)
            return name

        return self.threads.submit(Path(name), call)

    async def answer(self, name: str) -> str:
        async with asyncio.timeout(LONG_S):
            return await self.threads.result(Path(name), lambda: name)

    def begun(self, *calls) -> list[bool]:
        return [call.began_s is not None for call in calls]


def _first_part(folder: Path) -> str:
    return f"/{folder.parts[1]}"


@pytest.fixture
def hanging():
    made = Hanging()
    yield made
    made.released.set()


async def test_hung_mounts_keep_no_other_mount_waiting(hanging):
    hung = [hanging.hang(f"/mount-{n}/x") for n in range(20)]

    assert all(hanging.begun(*hung))
    assert await hanging.answer("/other/x") == "/other/x"


async def test_a_hung_folder_gives_its_place_to_others_of_its_mount(hanging):
    hung = [hanging.hang("/nfs/a"), hanging.hang("/nfs/b")]
    waiting = asyncio.ensure_future(hanging.answer("/nfs/c"))
    await asyncio.sleep(0)
    hanging.threads.begin_due("/nfs")
    assert hanging.begun(*hung) == [True, True]
    assert not waiting.done()

    hanging.now_s += 20
    hanging.threads.begin_due("/nfs")
    assert await waiting == "/nfs/c"


async def test_so_many_folders_of_one_mount_may_hang_and_the_next_begins_when_one_ends(hanging):
    hung = []
    for n in range(3):
        hung.append(hanging.hang(f"/nfs/{n}"))
        hanging.now_s += 20
    left = hanging.hang("/nfs/left")
    assert hanging.begun(*hung, left) == [True, True, True, False]

    hanging.released.set()
    assert await asyncio.wrap_future(left.future) == "/nfs/left"


async def test_a_call_that_is_given_up_while_it_waits_never_begins(hanging):
    hanging.hang("/nfs/a")
    hanging.hang("/nfs/b")
    given_up = asyncio.ensure_future(hanging.threads.result(Path("/nfs/c"), lambda: hanging.names.append("c")))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait({given_up})
    hanging.now_s += 20

    assert await hanging.answer("/nfs/d") == "/nfs/d"
    assert "c" not in hanging.names


async def test_an_error_of_a_call_is_raised_and_frees_its_place(hanging):
    def fail() -> str:
        raise PermissionError("no")

    for _ in range(5):
        with pytest.raises(PermissionError):
            await hanging.threads.result(Path("/nfs/a"), fail)
    assert await hanging.answer("/nfs/a") == "/nfs/a"
    assert not hanging.threads._mounts


async def test_a_hung_folder_is_asked_once_and_one_that_waits_for_its_mount_says_so(hanging):
    asked: list[int] = []

    def hang() -> None:
        asked.append(1)
        hanging.released.wait(LONG_S)

    one = AtMostOne(hanging.threads, Path("/nfs/a"))
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await one.result(hang, wait_s=0)
        hanging.now_s += 60
    assert len(asked) == 1

    for n in range(2):
        hanging.hang(f"/nfs/{n}")
        hanging.now_s += 60
    last = AtMostOne(hanging.threads, Path("/nfs/last"))
    with pytest.raises(MountHangsError, match=r"other folders of its mount \(/nfs\) do not answer"):
        await last.result(lambda: None, wait_s=0)


async def test_a_call_that_waits_for_slow_ones_is_no_sign_of_a_mount_that_hangs(hanging):
    slow = [hanging.hang(f"/nfs/{n}") for n in range(3)]
    waiting = AtMostOne(hanging.threads, Path("/nfs/last"))
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await waiting.result(lambda: "last", wait_s=0)
    assert hanging.begun(*slow) == [True, True, False]

    hanging.released.set()
    assert await waiting.result(lambda: "another", wait_s=LONG_S) == "last"


async def test_a_thread_that_cannot_be_started_fails_its_call_and_no_other_one(hanging, monkeypatch):
    hung = [hanging.hang("/nfs/a"), hanging.hang("/nfs/b")]
    until(lambda: len(hanging.names) == 2, "both have begun")
    left = hanging.hang("/nfs/c")

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        hanging.released.set()
        assert [await asyncio.wrap_future(call.future) for call in hung] == ["/nfs/a", "/nfs/b"]
        with pytest.raises(OSError, match="no thread can be started"):
            await asyncio.wait_for(asyncio.wrap_future(left.future), LONG_S)
        with pytest.raises(OSError, match="no thread can be started"):
            await hanging.answer("/nfs/d")
    assert await hanging.answer("/nfs/e") == "/nfs/e"
    assert not hanging.threads._mounts


async def test_a_call_has_ended_although_the_next_one_cannot_begin(hanging, monkeypatch):
    hung = hanging.hang("/nfs/a")
    until(lambda: len(hanging.names) == 1, "it has begun")
    errors = []
    monkeypatch.setattr(threading, "excepthook", lambda found: errors.append(found.exc_type))

    def fail(threads: FolderThreads, mount: str) -> None:
        raise ValueError(mount)

    monkeypatch.setattr(FolderThreads, "_begin", fail)
    hanging.released.set()
    assert await asyncio.wait_for(asyncio.wrap_future(hung.future), LONG_S) == "/nfs/a"
    until(lambda: errors == [ValueError], "the error of the next call")


def test_the_mount_of_a_folder_is_found_by_its_name(tmp_path):
    line = "36 35 98:0 /x {} rw,noatime master:1 - nfs server:/x rw"
    mounts = tmp_path / "mountinfo"
    mounts.write_text("\n".join(line.format(p) for p in ("/", "/mnt", "/mnt/two\\040words", "/mnt/deep")))

    found = [mount_of(Path(p), mounts) for p in ("/srv/x", "/mnt/x", "/mnt/two words/x/y", "/mnt/deeper", "/mnt/deep")]
    assert found == ["/", "/mnt", "/mnt/two words", "/mnt", "/mnt/deep"]
    assert mount_of(Path("/srv/x"), tmp_path / "none") == "/"


def test_the_list_of_this_machine_is_read():
    assert mount_of(Path("/proc/self")) == "/proc"
