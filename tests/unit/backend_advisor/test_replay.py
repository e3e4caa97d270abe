"""Tests of the share of the queued data that barriers overtake. A sum over every channel gives the same share."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from backend.advisor.replay import Recordings, _Arrivals, _Rooms
from backend.advisor.situation import situation
from backend.analysis.measures.evidence import JobEvidence
from backend.domain.engines import FLINK
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Edge, Topology, Vertex
from tests.support.advised_jobs import EXACTLY_ONCE
from tests.support.handwritten_jobs import START, completed, detail

_SECOND = timedelta(seconds=1)


def _situation(rnd):
    """Return the facts of a job of random widths, whose barriers arrive at random times and pass random queues."""
    widths = [rnd.randrange(1, 9) for _ in range(4)]
    vertices = [Vertex(VertexId(f"{i:032x}"), f"v{i}", width) for i, width in enumerate(widths)]
    edges = [Edge(vertices[a].id, vertices[b].id, "HASH") for a, b in ((0, 1), (1, 3), (2, 3))]

    def some(width, most, *, none=0.0):
        return [None if rnd.random() < none else rnd.randrange(most) for _ in range(width)]

    checkpoints = [
        completed(
            n,
            *(
                detail(v.id, first=some(v.parallelism, 3_000 * (i + 1), none=0.1), alignment=some(v.parallelism, 2_000))
                for i, v in enumerate(vertices)
            ),
        )
        for n in range(1, 4)
    ]
    pressure = [
        VertexPressure(
            vertex_id=v.id,
            observed_at=START + n * _SECOND,
            busy_ratio=(0.5,) * v.parallelism,
            backpressured_ratio=(0.5,) * v.parallelism,
            idle_ratio=(0.0,) * v.parallelism,
            queued_out_bytes=tuple(some(v.parallelism, 10**6, none=0.2)),
            queued_in_bytes=tuple(some(v.parallelism, 10**6, none=0.2)),
            bytes_in_count=tuple(n * rate for rate in rates),
        )
        for v in vertices
        for rates in [some(v.parallelism, 10**6)]
        for n in range(3)
    ]
    evidence = JobEvidence(
        topology=Topology(tuple(vertices), tuple(edges)),
        now=START + timedelta(minutes=10),
        config=replace(EXACTLY_ONCE, is_unaligned_enabled=rnd.random() < 0.5, aligned_timeout_ms=2_000),
        checkpoints=tuple(checkpoints),
        pressure=tuple(sorted(pressure, key=lambda r: r.observed_at)),
    )
    return situation(evidence, engine=FLINK, version="1.20.5")


def _left(known, arrivals, sender, subtask, receiver, at_ms):
    """Return the share of one sender's data that is in front of its barriers, as a sum over its channels."""
    row = arrivals.last[sender].tolist()
    sent = row[subtask] if subtask < len(row) else 0.0
    if at_ms <= sent:
        return 1.0
    pairs = list(zip(arrivals.first[receiver].tolist(), arrivals.last[receiver].tolist(), strict=True))
    intake = known.intake_bytes_per_ms.get(receiver, ())
    rates = intake if len(intake) == len(pairs) and sum(intake) > 0 else [1.0] * len(pairs)
    whole = rest = 0.0
    for (first, last), rate in zip(pairs, rates, strict=True):
        arrived = last if sent >= max(row) else max(first, sent)
        whole += rate * max(0.0, arrived - sent)
        rest += rate * max(0.0, arrived - max(at_ms, sent))
    return rest / whole if whole > 0 else 0.0


def _overtaken(known, arrivals, at_ms):
    topology, found = known.evidence.topology, {}
    for v in topology.vertices:
        below = [w for w in topology.downstream(v.id) if w in arrivals.last]
        above = [u for u in topology.upstream(v.id) if u in arrivals.last]
        for i, queued in enumerate(known.queues.out_bytes[v.id]):
            left = [_left(known, arrivals, v.id, i, w, at_ms) for w in below]
            found[v.id, i] = queued * sum(left) / len(left) if left else 0.0
        for i, queued in enumerate(known.queues.in_bytes[v.id]):
            if above and v.id in arrivals.last:
                found[v.id, i] += queued * _left(known, arrivals, above[0], 0, v.id, at_ms)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_overtaken_bytes_equal_the_sum_over_every_channel(seed):
    rnd = random.Random(seed)
    known = _situation(rnd)
    for recorded in known.recorded:
        arrivals = _Arrivals(known, _Rooms.of(known, known.queues), recorded)
        for at_ms in (0, rnd.randrange(1, 6_000), rnd.randrange(6_000, 20_000)):
            found = [v for row in arrivals.overtaken(at_ms) for v in row.tolist()]
            expected = list(_overtaken(known, arrivals, at_ms).values())

            assert found == pytest.approx(expected, rel=1e-9, abs=1e-3), f"seed {seed}, {at_ms} ms"


@pytest.mark.parametrize("seed", range(10))
def test_timeouts_that_are_prepared_together_give_what_each_gives_alone(seed):
    known = _situation(random.Random(seed))
    timeouts = [0, 1, 500, 2_000, 5_000, 10_000]
    together, alone = Recordings(known), Recordings(known)
    together.prepare(timeouts)

    assert [together.replay(t) for t in timeouts] == [alone.replay(t) for t in timeouts]


def test_barriers_that_wait_longer_overtake_less_data():
    known = _situation(random.Random(5))
    replays = [Recordings(known).replay(at_ms) for at_ms in (0, 1_000, 4_000, 20_000)]
    persisted = [r.persisted_bytes.value for r in replays]

    assert persisted == sorted(persisted, reverse=True)
    assert persisted[0] > 0
    assert persisted[-1] == 0
