"""Handwritten runs that several tests share: eight checkpoints of one kind, and matching readings."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from backend.domain.failure import FailureReason
from backend.domain.topology import Edge, Topology, Vertex
from tests.support.handwritten_jobs import LAST, MIDDLE, SOURCE, completed, detail, failed, held_back, quick, reading

FOUR = [1.0] * 4
HEALTHY_RUN = [quick(n) for n in range(1, 9)]
SLOW_DELAYS = {SOURCE: [5] * 4, MIDDLE: [1_500, 1_600, 1_900, 1_700], LAST: [5_000, 3_200, 1_900, 3_100]}
SLOW_RUN = [held_back(n, SLOW_DELAYS) for n in range(1, 9)]


def two_readings(*readings):
    return [*readings, *(replace(r, observed_at=r.observed_at + timedelta(seconds=2)) for r in readings)]


def counted(vertex, busy, held, before, after):
    """Build two readings, two seconds apart, with the record counters ``before`` and ``after``."""
    return [reading(vertex, busy, held, before, at_s=60), reading(vertex, busy, held, after, at_s=62)]


HELD_UP = [*two_readings(reading(SOURCE, [0.0] * 4, FOUR)), *two_readings(reading(MIDDLE, [0.0] * 4, FOUR))]
FULL_LAST = [*HELD_UP, *two_readings(reading(LAST, [1.0, 0.97, 0.95, 1.0]))]


CALM = two_readings(reading(SOURCE, [0.1] * 4), reading(MIDDLE, [0.1] * 4), reading(LAST, [0.1] * 4))


def snapshotting(number, sync=0, async_=0):
    return completed(
        number,
        detail(SOURCE, first=[5] * 4),
        detail(MIDDLE, first=[10] * 4),
        detail(LAST, first=[20] * 4, sync=sync, async_=async_, size_bytes=50_000_000),
    )


def silent(number, first=(None,) * 4):
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9] * 4), detail(LAST, first=list(first))
    return failed(number, *rows, after_ms=10_000)


def declined(number, pending, reason=FailureReason.ASYNC_FAILURE, message="Asynchronous task checkpoint failed."):
    row = [None if i in pending else 20 for i in range(4)]
    rows = detail(SOURCE, first=[5] * 4), detail(MIDDLE, first=[9] * 4), detail(LAST, first=row)
    return failed(number, *rows, reason=reason, after_ms=50, message=message)


def joined():
    """Build a job in which one vertex reads from two sources, ``fast`` and ``late``."""
    vertices = tuple(Vertex(v, v, 2) for v in ("fast", "late", "join"))
    return Topology(vertices, (Edge("fast", "join", "HASH"), Edge("late", "join", "HASH")))


def late_run(delay_ms=4_000):
    """Build checkpoints of ``joined`` whose barrier leaves a subtask of ``late`` after this time."""
    return [
        completed(
            n,
            detail("fast", first=[5, 5]),
            detail("late", first=[delay_ms, 5]),
            detail("join", first=[20, 20], alignment=delay_ms),
        )
        for n in range(1, 7)
    ]
