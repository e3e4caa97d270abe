"""Tests of slow hosts: slow in every vertex that shows their speed, or not named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.topology import Placement
from backend.domain.verdict import VerdictKind
from tests.support.handwritten_jobs import CHAIN, LAST, MIDDLE, SOURCE, job, reading
from tests.support.handwritten_runs import SLOW_RUN, two_readings

HOSTS = ("a", "b", "a", "b")


def evidence(middle_busy):
    """Build a job whose last vertex is full at the subtasks on host b."""
    pressure = [
        *two_readings(reading(SOURCE, [0.1, 0.4, 0.1, 0.4], [0.6] * 4, records=[1_000] * 4)),
        *two_readings(reading(MIDDLE, middle_busy, [0.5] * 4, records=[1_000] * 4)),
        *two_readings(reading(LAST, [0.2, 1.0, 0.2, 1.0], records=[1_000] * 4)),
    ]
    placements = tuple(Placement(v, HOSTS, HOSTS, (1,) * 4, ("RUNNING",) * 4) for v in CHAIN)
    return job(SLOW_RUN, pressure, placements=placements)


def test_a_host_that_is_slow_in_every_vertex_is_named():
    found = diagnose(evidence([0.1, 0.4, 0.1, 0.4])).verdict

    assert (found.kind, found.vertex, found.subtasks, found.hosts) == (VerdictKind.SLOW_HOST, "last", (1, 3), ("b",))
    assert "host b is slow: at source, middle and last, a record takes at least 4.0 times as long" in found.sentence


@pytest.mark.parametrize("middle_busy", [[0.1] * 4, [0.4, 0.1, 0.4, 0.1]])
def test_subtasks_that_are_slow_in_one_vertex_only_are_stragglers(middle_busy):
    assert diagnose(evidence(middle_busy)).verdict.kind is VerdictKind.STRAGGLER


def test_without_a_second_host_no_host_is_named():
    one = replace(evidence([0.1, 0.4, 0.1, 0.4]), placements=())

    assert diagnose(one).verdict.kind is VerdictKind.STRAGGLER
