"""For any measured numbers, the array code of the analysis returns exactly what a plain pass over subtasks returns."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.measures.critical_path import arrived_below_ms, path_through
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.measures.pressure import vertex_loads
from backend.analysis.measures.travel import hops
from backend.analysis.numbers import arrays, statistics
from backend.analysis.numbers.arrays import Floats, array_of, stacked
from backend.domain.checkpoint import DETAIL_ARRAYS, CheckpointConfig, LateBarrier, VertexDetail
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Phase
from tests.support import plain_analysis as plain
from tests.support.handwritten_jobs import (
    ALIGNED,
    START,
    UNALIGNED,
    aligned_timeout,
    completed,
    failed,
    reading,
)

A, B, C, D = (VertexId(name) for name in "abcd")
NUMBERS = st.floats(-1e6, 1e6)
ROWS = st.lists(st.lists(st.one_of(st.none(), NUMBERS), max_size=12), max_size=12)
MS = st.integers(-50, 20_000)
SHARES = st.one_of(st.none(), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.65, 0.9, 1.0]))
CONFIGS = st.sampled_from([ALIGNED, UNALIGNED, aligned_timeout(1_000), CheckpointConfig(), None])
FLAGS = ("is_acknowledged", "has_clock_skew")
PHASES = (
    "first_barrier_ms",
    "snapshot_at_ms",
    "async_end_ms",
    "ack_ms",
    "alignment_duration_ms",
    "sync_duration_ms",
    "async_duration_ms",
    "travel_ms",
    "own_async_ms",
    "checkpointed_size_bytes",
    "persisted_bytes",
)


def numbers_of(values: Floats) -> tuple[float | None, ...]:
    """Return the values as Python numbers, with None for a missing value."""
    return tuple(None if math.isnan(v) else v for v in values.tolist())


@st.composite
def topologies(draw):
    """Draw a diamond a -> b, a -> c, b -> d, c -> d, whose vertices may differ in parallelism."""
    same = draw(st.integers(1, 4))
    vertices = tuple(Vertex(v, v, draw(st.sampled_from([same, same, same + 1]))) for v in (A, B, C, D))
    ship = st.sampled_from(["FORWARD", "HASH", "BROADCAST"])
    return Topology(vertices, tuple(Edge(a, b, draw(ship)) for a, b in ((A, B), (A, C), (B, D), (C, D))))


@st.composite
def walks(draw):
    """Draw a topology and the phases of a checkpoint. Some of the vertices and values are missing."""
    topology, rows, late = draw(topologies()), [], []
    for vertex in topology.vertices:
        if draw(st.integers(0, 9)) == 0:
            continue
        n = vertex.parallelism

        values = {name: st.one_of(MS, MS, st.none()) for name in DETAIL_ARRAYS}
        if draw(st.booleans()):
            values["ack_delay_ms"] = MS
        drawn = {name: tuple(draw(st.lists(one, min_size=n, max_size=n))) for name, one in values.items()}
        rows.append(VertexDetail(vertex.id, **drawn))
        late += [LateBarrier(vertex.id, i, draw(MS), START, 1_000) for i in range(n) if draw(st.booleans())]
    one = failed(1, *rows) if any(d.pending for d in rows) else completed(1, *rows)
    return topology, one, checkpoint_phases(one, draw(CONFIGS), late)


@given(ROWS)
def test_means_and_medians_of_columns_are_those_of_numpy_over_the_reported_values(rows):
    matrix, columns = stacked([array_of(row) for row in rows]), plain.columns(rows)

    assert list(numbers_of(arrays.column_means(matrix))) == [plain.mean(c) for c in columns]
    assert list(numbers_of(arrays.column_medians(matrix))) == [plain.quantile(c, 0.5) for c in columns]


@given(st.lists(st.one_of(st.none(), NUMBERS), max_size=30), st.floats(0, 1))
def test_quantiles_are_those_of_numpy(values, q):
    assert statistics.quantile(values, q) == plain.quantile(plain.known(values), q)
    assert arrays.median_of(array_of(values)) == plain.quantile(plain.known(values), 0.5)


@given(walks())
def test_the_phases_in_arrays_are_those_of_the_single_subtasks(walk):
    _, _, phases = walk
    for rows in phases.values():
        single = list(rows)
        for name in PHASES:
            assert list(numbers_of(getattr(rows, name))) == [getattr(p, name) for p in single], name
        for name in FLAGS:
            assert getattr(rows, name).tolist() == [getattr(p, name) for p in single], name
        assert rows.pending == tuple(p.subtask for p in single if not p.is_acknowledged)
        assert rows.is_complete == (not rows.pending)


@given(walks())
def test_the_critical_path_goes_through_the_senders_that_a_plain_search_finds(walk):
    topology, one, phases = walk

    path = path_through(phases, topology, end_ms=one.header.end_to_end_duration_ms)

    last = plain.last(topology, phases)
    if last is None:
        assert path is None
        return
    assert (path.last_vertex_id, path.last_subtask) == last
    assert path.without_last_ms == plain.without(phases, *last, end_ms=one.header.end_to_end_duration_ms)
    own = [s for s in path.steps if s.phase in (Phase.START_DELAY, Phase.ALIGNMENT)]
    reached_ms = own[-1].end_ms if own else 0
    (vertex_id, subtask), found = last, []
    while (sender := plain.sender(topology, phases, vertex_id, subtask, reached_ms)) is not None:
        vertex_id, subtask, sent_ms = sender
        reached_ms = min(reached_ms, sent_ms)
        found.append((vertex_id, subtask))
    on_path = dict.fromkeys((s.vertex_id, s.subtask) for s in reversed(own))
    assert [key for key in found if key in on_path] == [key for key in on_path if key != last]


@given(walks())
def test_hops_and_arrivals_are_those_of_a_pass_over_every_channel(walk):
    topology, one, phases = walk
    duration_ms = one.header.end_to_end_duration_ms

    found = {h.vertex_id: list(numbers_of(h.hop_ms)) for h in hops(topology, [(phases, duration_ms)])}

    plainly = {v: plain.hop(topology, phases, v, duration_ms) for v in phases}
    assert found == {v: row for v, row in plainly.items() if any(h is not None for h in row)}
    for vertex_id, rows in phases.items():
        released = arrived_below_ms(topology, vertex_id, phases)
        parts = np.minimum(rows.own_async_ms, np.maximum(0.0, rows.async_end_ms - released))
        assert list(numbers_of(parts)) == plain.async_parts(topology, phases, vertex_id)


@given(st.data())
def test_loads_are_those_of_a_pass_over_every_reading(data):
    width = data.draw(st.integers(1, 4))
    pressure = []
    for number in range(data.draw(st.integers(0, 14))):
        n = data.draw(st.sampled_from([width, width, width, width + 1]))
        busy, held, records = (
            data.draw(st.lists(values, min_size=n, max_size=n))
            for values in (SHARES, SHARES, st.one_of(st.none(), st.integers(0, 1_000)))
        )
        one = reading(data.draw(st.sampled_from([A, B])), busy, held, records, at_s=13 * number)
        pressure.append(one if data.draw(st.booleans()) else replace(one, records_in_count=()))

    found = vertex_loads(pressure)

    assert list(found) == list(plain.loads(pressure))
    for vertex_id, load in plain.loads(pressure).items():
        for name, values in load.items():
            assert list(numbers_of(getattr(found[vertex_id], name))) == values, name
