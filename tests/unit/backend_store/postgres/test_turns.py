"""Values with long arrays that are freed a few at a time."""

from __future__ import annotations

import asyncio
import threading
import weakref

import pytest

from backend.store.postgres.turns import kept

pytestmark = pytest.mark.anyio


class _Item:
    pass


def _made(count, *, is_large):
    values = kept((_Item() for _ in range(count)), is_large=is_large)
    return values, [weakref.ref(value) for value in values]


def _alive(refs):
    return sum(ref() is not None for ref in refs)


async def test_values_of_a_large_job_are_freed_a_few_at_a_time():
    values, refs = _made(100, is_large=True)
    assert (len(values), values[0]) == (100, refs[0]())
    del values
    counts = [_alive(refs)]
    for _ in range(100):
        await asyncio.sleep(0)
        counts.append(_alive(refs))
    assert (counts[0], counts[-1]) == (100, 0)
    assert len(set(counts)) > 2


async def test_they_are_freed_in_the_event_loop_after_their_last_use_in_a_thread():
    values, refs = _made(100, is_large=True)
    held = [values]
    del values
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert _alive(refs) == 100
    for _ in range(100):
        await asyncio.sleep(0)
    assert _alive(refs) == 0


async def test_values_of_any_other_job_are_freed_at_once():
    values, refs = _made(100, is_large=False)
    del values
    assert _alive(refs) == 0


def test_values_that_outlive_their_event_loop_are_freed_without_an_error():
    async def made():
        return _made(100, is_large=True)

    values, refs = asyncio.run(made())
    del values
    assert _alive(refs) == 0
