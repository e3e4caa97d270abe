"""Fixtures for the dashboard over a fake API, whose clock the test moves.

The process that distributes the tests reads this file too, and runs none of them. It would wait for the import of the
dashboard before it starts the others.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest


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
    from tests.support.dash_calls import DashCalls
    from tests.support.fake_api import FakeApi

    async with DashCalls(FakeApi(now=clock)) as calls:
        yield calls
