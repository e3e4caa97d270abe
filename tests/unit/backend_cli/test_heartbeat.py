"""A role without a server shows that it lives by a file's age, and waits for a store that comes up later."""

from __future__ import annotations

import os

import anyio
import pytest

from backend.cli import heartbeat
from backend.cli.heartbeat import beating
from backend.cli.waiting import until_the_store_answers
from backend.domain.errors import HostError, StoreUnavailableError


@pytest.mark.anyio
async def test_the_file_is_touched_again_and_again_and_gone_at_the_end(tmp_path, monkeypatch):
    path, again = tmp_path / "heartbeat", anyio.Event()
    touch = heartbeat._touch
    async with beating(path, interval_s=0.001):
        os.utime(path, (0, 0))
        monkeypatch.setattr(heartbeat, "_touch", lambda file: (touch(file), again.set()))
        with anyio.fail_after(10):
            await again.wait()
        assert path.stat().st_mtime > 0

    assert not path.exists()


@pytest.mark.anyio
async def test_without_a_file_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with beating(None):
        pass

    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_what_fails_inside_is_what_is_raised(tmp_path):
    with pytest.raises(StoreUnavailableError):
        async with beating(tmp_path / "heartbeat"):
            raise StoreUnavailableError("away")


@pytest.mark.anyio
async def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(HostError, match="BARRIERSCOPE_HEARTBEAT_FILE"):
        async with beating(tmp_path / "no-such-folder" / "heartbeat"):
            pass


class Store:
    """Away for the first ``away_count`` calls; time passes only by pausing."""

    def __init__(self, away_count: int) -> None:
        self.left = away_count
        self.now_s = 0.0

    def __call__(self) -> None:
        if self.left:
            self.left -= 1
            raise StoreUnavailableError("connection refused")

    def pause(self, pause_s: float) -> None:
        self.now_s += pause_s

    def wait(self, wait_s: float) -> None:
        until_the_store_answers(self, wait_s=wait_s, monotonic=lambda: self.now_s, pause=self.pause)


def test_a_store_that_comes_up_in_time_is_waited_for():
    store = Store(away_count=4)
    store.wait(60)

    assert (store.left, store.now_s) == (0, 8.0)


def test_a_store_that_does_not_come_up_in_time_is_the_error():
    store = Store(away_count=1000)
    with pytest.raises(StoreUnavailableError):
        store.wait(5)

    assert store.now_s == 5


def test_without_a_wait_it_is_tried_once():
    store = Store(away_count=1)
    with pytest.raises(StoreUnavailableError):
        store.wait(0)

    assert store.now_s == 0
