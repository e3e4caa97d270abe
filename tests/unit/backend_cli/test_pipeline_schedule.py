"""Tests of when rollups run: soon after the start, and then after every hour. A failed run is repeated."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from backend.cli import pipeline_schedule
from backend.cli.pipeline_schedule import Schedule, next_run_after
from backend.domain.errors import StoreUnavailableError

_AT = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)


class _RunLog:
    def __init__(self) -> None:
        self.stale = [_AT]
        self.told: list[tuple[datetime | None, str | None]] = []
        self.is_away = False

    @contextmanager
    def open(self, _url):
        if self.is_away:
            raise StoreUnavailableError("it is away")
        yield self

    def stale_hours(self, _now):
        return self.stale

    def schedule(self, _now, *, next_run_at, reason):
        self.told.append((next_run_at, reason))


class _Clock:
    def __init__(self) -> None:
        self.at = _AT

    def now(self) -> datetime:
        return self.at

    def monotonic_s(self) -> float:
        return self.at.timestamp()


@pytest.fixture
def run_log(monkeypatch: pytest.MonkeyPatch) -> _RunLog:
    made = _RunLog()
    monkeypatch.setattr(pipeline_schedule, "open_run_log", made.open)
    return made


def _schedule(code: str = "", stop: threading.Event | None = None) -> tuple[Schedule, list]:
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str) -> subprocess.Popen[bytes]:
        assert url == "postgresql://x"
        started.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        return started[-1]

    return Schedule("postgresql://x", _Clock(), stop or threading.Event(), start), started


@pytest.mark.parametrize(
    ("now", "due"),
    [("12:40", "13:03"), ("13:00", "13:03"), ("13:02", "13:03"), ("13:03", "14:03"), ("23:59", "00:03")],
)
def test_the_regular_run_is_three_minutes_after_the_hour(now, due):
    at = datetime.fromisoformat(f"2026-11-21T{now}:00+00:00")

    assert f"{next_run_after(at):%H:%M}" == due
    assert timedelta(0) < next_run_after(at) - at <= timedelta(hours=1)


def test_stale_hours_start_a_run_and_the_turn_waits_for_its_end(run_log):
    schedule, started = _schedule()

    assert schedule.turn() == datetime(2026, 11, 21, 13, 3, tzinfo=UTC)
    assert [p.returncode for p in started] == [0]


def test_without_stale_hours_no_run_is_started(run_log):
    run_log.stale = []
    schedule, started = _schedule()

    assert schedule.turn() == datetime(2026, 11, 21, 13, 3, tzinfo=UTC)
    assert started == []


def test_a_run_that_fails_is_tried_again_after_ten_minutes(run_log):
    schedule, started = _schedule("raise SystemExit(1)")

    assert schedule.turn() == _AT + timedelta(minutes=10)
    assert len(started) == 1


def test_an_unreachable_store_is_tried_again_after_a_minute(run_log):
    run_log.is_away = True
    schedule, started = _schedule()

    assert schedule.turn() == _AT + timedelta(minutes=1)
    schedule._record_due(_AT)
    assert started == []


def test_a_stop_request_ends_the_current_run_and_the_schedule(run_log):
    stop = threading.Event()
    stop.set()
    schedule, started = _schedule("input()", stop=stop)

    schedule.turn()
    schedule.run()

    assert len(started) == 1
    assert started[0].returncode < 0


class _Walked(threading.Event):
    """A stop event whose ``wait`` advances the clock without waiting.

    It is set once the clock has reached ``until``.
    """

    def __init__(self, clock: _Clock, until: datetime, *, slept: timedelta = timedelta(0)) -> None:
        super().__init__()
        self._clock, self._until, self._slept = clock, until, slept

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.at += timedelta(seconds=timeout) + self._slept
        self._slept = timedelta(0)
        if self._clock.at >= self._until:
            self.set()
        return self.is_set()


class _Done:
    stdin = None

    def poll(self) -> int:
        return 0

    def wait(self, timeout: float | None = None) -> int:
        return 0


def _runs(run_log, began: str, until: str, **more) -> list[str]:
    clock = _Clock()
    clock.at = datetime.fromisoformat(f"2026-11-21T{began}+00:00")
    stop = _Walked(clock, datetime.fromisoformat(f"2026-11-21T{until}+00:00"), **more)
    at: list[str] = []

    def start(_url):
        at.append(f"{clock.at:%H:%M:%S}")
        return _Done()

    Schedule("postgresql://x", clock, stop, start).run()
    return at


def test_runs_start_soon_after_the_start_and_then_after_each_hour(run_log):
    assert _runs(run_log, "12:59:30", "15:30:00") == ["12:59:50", "13:03:00", "14:03:00", "15:03:00"]
    # Before each wait, the time of the next run is reported.
    told = [f"{due:%H:%M:%S}" for due, _ in run_log.told]
    assert told == ["12:59:50", "13:03:00", "14:03:00", "15:03:00", "16:03:00"]


def test_after_the_machine_has_slept_a_run_starts_at_once(run_log):
    asleep = timedelta(hours=6, minutes=20)

    assert _runs(run_log, "01:00:00", "08:10:00", slept=asleep) == ["07:20:15", "08:03:00"]
