"""Tests of roles without a server: each shows that it is running by touching a file repeatedly.

Such a role also waits for a store that starts later than the role.
"""

from __future__ import annotations

import os

import anyio
import pytest

from backend.cli import heartbeat
from backend.cli.heartbeat import beating
from backend.cli.waiting import until_the_store_answers
from backend.domain.errors import HostError, StoreUnavailableError


@pytest.mark.anyio
async def test_the_heartbeat_file_is_touched_repeatedly_and_removed_at_the_end(tmp_path, monkeypatch):
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
async def test_an_error_inside_the_heartbeat_is_raised_unchanged(tmp_path):
    with pytest.raises(StoreUnavailableError):
        async with beating(tmp_path / "heartbeat"):
            raise StoreUnavailableError("away")


@pytest.mark.anyio
async def test_a_heartbeat_file_without_write_access_is_reported_in_one_line(tmp_path):
    with pytest.raises(HostError, match="BARRIERSCOPE_HEARTBEAT_FILE"):
        async with beating(tmp_path / "no-such-folder" / "heartbeat"):
            pass


class Store:
    """A store that is unreachable in the first ``away_count`` calls, and a clock that only ``pause`` advances."""

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


def test_a_store_that_does_not_start_in_time_raises_its_error():
    store = Store(away_count=1000)
    with pytest.raises(StoreUnavailableError):
        store.wait(5)

    assert store.now_s == 5


def test_without_a_wait_the_store_is_tried_once():
    store = Store(away_count=1)
    with pytest.raises(StoreUnavailableError):
        store.wait(0)

    assert store.now_s == 0
