"""Tests of the roles' garbage collection: cycles are still collected, but the passes over all objects are few."""

from __future__ import annotations

import gc
import weakref

import pytest

from backend.cli.garbage import collect_garbage_less_often


@pytest.fixture(autouse=True)
def _as_before():
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class _Node:
    other: _Node


def test_a_growing_cache_is_not_looked_through_again_and_again():
    collect_garbage_less_often()
    before = [generation["collections"] for generation in gc.get_stats()]
    cache = [[n] for n in range(300_000)]
    young, middle, old = (g["collections"] - n for g, n in zip(gc.get_stats(), before, strict=True))

    assert len(cache) == 300_000
    # Each pass looks through some thousand new objects, so that none stops the other threads for long.
    assert 120 <= young <= 170
    assert middle <= 17
    assert old == 0


def test_new_cycles_are_still_freed():
    collect_garbage_less_often()
    one, two = _Node(), _Node()
    one.other, two.other = two, one
    gone = weakref.ref(one)
    del one, two
    kept = [[n] for n in range(60_000)]

    assert len(kept) == 60_000
    assert gone() is None
