"""Fixtures for the dashboard over a fake API, whose clock the test moves."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.dash_calls import DashCalls
from tests.support.fake_api import FakeApi


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def ui(clock):
    async with DashCalls(FakeApi(now=clock)) as calls:
        yield calls
