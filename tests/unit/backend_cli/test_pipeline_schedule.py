"""When rollups run: at once where hours wait, then after every hour; what fails is tried again, and said."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backend.cli import pipeline_schedule
from backend.cli.pipeline_schedule import Schedule, next_run_after
from backend.domain.errors import StoreUnavailableError
from backend.pipeline.java import JavaOrigin, JavaRuntime, SparkMissing, SparkRuntime

_AT = datetime(2026, 11, 21, 12, 40, tzinfo=UTC)
_SPARK = SparkRuntime(JavaRuntime(Path("/java"), 21, JavaOrigin.PATH), {})
_MISSING = SparkMissing(("no java on the path",))


class _Ledger:
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
def ledger(monkeypatch: pytest.MonkeyPatch) -> _Ledger:
    made = _Ledger()
    monkeypatch.setattr(pipeline_schedule, "open_ledger", made.open)
    return made


def _schedule(code: str = "", spark=_SPARK, stop: threading.Event | None = None) -> tuple[Schedule, list]:
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str) -> subprocess.Popen[bytes]:
        assert url == "postgresql://x"
        started.append(subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE))
        return started[-1]

    made = Schedule("postgresql://x", lambda: spark, _Clock(), stop or threading.Event(), start)
    made._look_for_spark()
    return made, started


@pytest.mark.parametrize(
    ("now", "due"),
    [("12:40", "13:03"), ("13:00", "13:03"), ("13:02", "13:03"), ("13:03", "14:03"), ("23:59", "00:03")],
)
def test_the_regular_run_is_three_minutes_after_the_hour(now, due):
    at = datetime.fromisoformat(f"2026-11-21T{now}:00+00:00")

    assert f"{next_run_after(at):%H:%M}" == due
    assert timedelta(0) < next_run_after(at) - at <= timedelta(hours=1)


def test_hours_that_wait_are_done_and_spark_is_gone_afterwards(ledger):
    schedule, started = _schedule()

    assert schedule.turn() == datetime(2026, 11, 21, 13, 3, tzinfo=UTC)
    assert [p.returncode for p in started] == [0]


def test_where_nothing_changed_spark_is_not_started(ledger):
    ledger.stale = []
    schedule, started = _schedule()

    assert schedule.turn() == datetime(2026, 11, 21, 13, 3, tzinfo=UTC)
    assert started == []


def test_a_run_that_fails_is_tried_again_after_ten_minutes(ledger):
    schedule, started = _schedule("raise SystemExit(1)")

    assert schedule.turn() == _AT + timedelta(minutes=10)
    assert len(started) == 1


def test_while_the_store_is_away_it_is_asked_again_each_minute(ledger):
    ledger.is_away = True
    schedule, started = _schedule()

    assert schedule.turn() == _AT + timedelta(minutes=1)
    schedule._tell(_AT)
    assert started == []


def test_without_spark_the_store_is_told_why_and_nothing_is_started(ledger):
    schedule, started = _schedule(spark=_MISSING)

    assert schedule.turn() == datetime(2026, 11, 21, 13, 3, tzinfo=UTC)
    schedule._tell(_AT)

    assert started == []
    assert ledger.told == [(None, f"no java on the path; {SparkMissing.FIX}")]


def test_asked_to_stop_it_stops_the_run_at_work_and_ends(ledger):
    stop = threading.Event()
    stop.set()
    schedule, started = _schedule("input()", stop=stop)

    schedule.turn()
    schedule.run()

    assert len(started) == 1
    assert started[0].returncode < 0
