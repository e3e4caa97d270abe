"""Tests of the start of the role ``alert`` while PostgreSQL is down."""

from __future__ import annotations

import asyncio

import pytest

from backend.cli.alert_role import _once_stored
from backend.domain.errors import StoreUnavailableError

pytestmark = pytest.mark.anyio


async def test_the_start_waits_for_the_store():
    answers = [StoreUnavailableError("the database system is starting up"), StoreUnavailableError("refused"), None]

    async def watch():
        if (error := answers.pop(0)) is not None:
            raise error

    await _once_stored(watch, asyncio.Event(), pause_s=0.0)

    assert answers == []


async def test_a_stop_ends_the_wait():
    stop, calls = asyncio.Event(), []

    async def watch():
        calls.append(1)
        stop.set()
        raise StoreUnavailableError("refused")

    await _once_stored(watch, stop, pause_s=600.0)

    assert calls == [1]
