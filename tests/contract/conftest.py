"""Fixtures for contract tests: a real PostgreSQL with one database for each test, and ``diagnose`` without pauses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from collectors import diagnose, pacing
from collectors.flink import requests
from tests.support.databases import Databases, shared_databases
from tests.support.recorded_flink import let_time_pass


@pytest.fixture(scope="session")
def databases(pytestconfig: pytest.Config) -> Databases:
    return shared_databases(pytestconfig)


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    with databases.migrated() as url:
        yield url


class SkippingClock(diagnose.WallClock):
    """A clock on which only pauses take time, and which does not wait for them.

    The recordings that are served go on by the length of each pause.
    """

    def __init__(self) -> None:
        self._began_at = super().now()
        self._skipped_s = 0.0

    def now(self) -> datetime:
        return self._began_at + timedelta(seconds=self._skipped_s)

    def monotonic_s(self) -> float:
        return self._skipped_s

    async def sleep(self, seconds: float) -> None:
        self._skipped_s += seconds
        let_time_pass(seconds)


@pytest.fixture
def diagnose_without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "WallClock", SkippingClock)
    monkeypatch.setattr(pacing, "PER_SECOND_MAX", 1_000_000)
    monkeypatch.setattr(requests, "_PAUSES_S", (0.0, 0.0))
