"""Tests of slow hosts: slow in every vertex that shows their speed, or not named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from backend.analysis.verdict.verdict import diagnose
from backend.domain.topology import Placement
from backend.domain.verdict import Confidence, VerdictKind
from tests.support.handwritten_jobs import CHAIN, LAST, MIDDLE, SOURCE, chain, held_back, job, reading
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


# --- a host that stands still ---------------------------------------------------------------------------------------

STILL = {SOURCE: [5, 3_500, 5, 3_400], MIDDLE: [20, 3_490, 20, 3_400], LAST: [30, 3_500, 30, 3_500]}


def standing(delays=STILL, *, topology=None, hosts=HOSTS, struck=8):
    """Return the verdict on a job of 8 checkpoints with these start delays; those that are not struck are quick."""
    quick = {v: [20] * 4 for v in CHAIN}
    run = [held_back(n, delays if n <= struck else {**quick, SOURCE: delays[SOURCE]}) for n in range(1, 9)]
    readings = [reading(v, [0.1] * 4, records=[100 * at] * 4, at_s=at) for at in (40, 50, 60) for v in CHAIN]
    placements = tuple(Placement(v, hosts, hosts, (1,) * 4, ("RUNNING",) * 4) for v in CHAIN)
    return diagnose(job(run, readings, topology=topology, placements=placements)).verdict


def test_a_host_on_which_sources_emit_late_and_first_barriers_come_late_stands_still():
    """Goal: a garbage collection is not called a fault of the source."""
    found = standing()

    assert (found.kind, found.vertex, found.subtasks, found.hosts) == (VerdictKind.SLOW_HOST, "source", (1, 3), ("b",))
    assert "host b stands still or cannot be reached for a while" in found.sentence
    assert "middle and last on this host get none for as long, although the other hosts do" in found.sentence
    assert "garbage collection log of the TaskManager on b" in found.would_decide[0]
    assert [row.value for row in found.evidence[1:4]] == [3_400, 30, 8]


@pytest.mark.parametrize(
    "delays",
    [
        pytest.param({**STILL, MIDDLE: [20] * 4, LAST: [30] * 4}, id="first barriers are quick everywhere"),
        pytest.param({**STILL, LAST: [30, 30, 30, 3_500]}, id="one subtask on the host gets its barrier at once"),
        pytest.param({**STILL, MIDDLE: [3_490] * 4, LAST: [3_500] * 4}, id="first barriers are late everywhere"),
    ],
)
def test_a_source_that_is_late_alone_is_named_with_its_host(delays):
    found = standing(delays)

    assert (found.kind, found.vertex, found.subtasks) == (VerdictKind.LATE_INPUT, "source", (1, 3))
    assert "source subtasks 1 and 3 on b emit the barrier only 3.5 s after the trigger" in found.sentence


def test_a_subtask_that_gets_its_barrier_from_the_late_source_alone_shows_no_host():
    assert standing(topology=chain(ship="FORWARD")).kind is VerdictKind.LATE_INPUT


def test_one_vertex_alone_does_not_surely_show_that_a_host_stands_still():
    several, one = standing(), standing(topology=chain(SOURCE, LAST))

    assert (several.kind, several.confidence) == (VerdictKind.SLOW_HOST, Confidence.HIGH)
    assert (one.kind, one.confidence) == (VerdictKind.SLOW_HOST, Confidence.MEDIUM)


def test_late_subtasks_on_several_hosts_or_on_the_only_one_name_no_host():
    spread, only = (standing(hosts=names) for names in (("a", "b", "a", "c"), ("a",) * 4))

    assert {v.kind for v in (spread, only)} == {VerdictKind.LATE_INPUT}
    assert " on b" not in spread.sentence
    assert "source subtasks 1 and 3 emit the barrier" in only.sentence


@pytest.mark.parametrize(("struck", "kind"), [(5, VerdictKind.SLOW_HOST), (4, VerdictKind.LATE_INPUT)])
def test_most_checkpoints_must_show_that_a_host_stands_still(struck, kind):
    assert standing(struck=struck).kind is kind


@pytest.mark.parametrize("seed", range(5))
def test_a_drawn_host_that_stands_still_is_named(seed):
    rnd = random.Random(seed)
    still, names = rnd.randrange(4), rnd.sample(["w1", "w2", "w3", "w4"], 4)
    late = rnd.randint(2_600, 20_000)
    delays = {v: [rnd.randint(late - 400, late) if i == still else rnd.randint(1, 60) for i in range(4)] for v in CHAIN}
    found = standing(delays, hosts=tuple(names))

    assert (found.kind, found.hosts, found.subtasks) == (VerdictKind.SLOW_HOST, (names[still],), (still,)), seed
