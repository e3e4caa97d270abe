"""Tests of a vertex's delays: the delay at its input, the delay that it adds, and the delay that it passes on."""

from __future__ import annotations

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from backend.analysis.measures.delay import vertex_delays
from backend.domain.ids import VertexId
from backend.domain.topology import Edge, Topology, Vertex
from backend.domain.verdict import Basis
from tests.support.handwritten_jobs import completed, detail, subtask_phases


def _delays(start_delays_ms, edges):
    """Return, for each vertex, the delay at its input, the delay that it adds, and the delay that it passes on.

    ``start_delays_ms`` has a list for each vertex, with one value per subtask.
    """
    topology = Topology(
        tuple(Vertex(VertexId(v), v, len(delays)) for v, delays in start_delays_ms.items()),
        tuple(Edge(VertexId(a), VertexId(b)) for a, b in edges),
    )
    phases = {}
    for v, delays in start_delays_ms.items():
        # A subtask without a start delay has not acknowledged.
        row = detail(VertexId(v), first=delays, ack=[None if d is None else d + 50 for d in delays])
        phases[VertexId(v)] = subtask_phases(completed(1, row).header, row, None, False)
    found = vertex_delays(topology, phases)
    for delay in found.values():
        assert delay.delay_basis is (None if delay.delay_passed_on_ms is None else Basis.RECONSTRUCTED)
    return {v: astuple(delay)[1:4] for v, delay in found.items()}


def _chain(count):
    return [(f"v{i}", f"v{i + 1}") for i in range(count - 1)]


def test_a_vertex_adds_what_lies_between_its_latest_first_barrier_and_the_latest_one_downstream():
    found = _delays({"v0": [3, 5], "v1": [10, 12], "v2": [2_000, 4_012]}, _chain(3))

    assert found == {"v0": (5, 7, 12), "v1": (12, 4_000, 4_012), "v2": (4_012, None, None)}


def test_a_vertex_with_two_outputs_passes_the_later_one_on():
    found = _delays({"v0": [5], "v1": [100], "v2": [900]}, [("v0", "v1"), ("v0", "v2")])

    assert found["v0"] == (5, 895, 900)


def test_the_delay_added_is_negative_if_the_first_barrier_came_from_a_quicker_subtask():
    found = _delays({"v0": [5, 3_000], "v1": [20, 25]}, _chain(2))

    assert found["v0"] == (3_000, -2_975, 25)


def test_one_unknown_start_delay_makes_the_vertex_unknown_and_not_zero():
    found = _delays({"v0": [5, 6], "v1": [100, None], "v2": [7, 8]}, _chain(3))

    assert found == {"v0": (6, None, None), "v1": (None, None, 8), "v2": (8, None, None)}


def test_a_downstream_vertex_without_detail_is_unknown():
    topology = Topology((Vertex(VertexId("v0"), "v0", 1),), (Edge(VertexId("v0"), VertexId("v1")),))
    row = detail(VertexId("v0"), first=[4])
    phases = {VertexId("v0"): subtask_phases(completed(1, row).header, row, None, False)}

    assert astuple(vertex_delays(topology, phases)[VertexId("v0")]) == ("v0", 4, None, None, None)


@given(st.lists(st.lists(st.integers(-1_000, 600_000), min_size=1, max_size=5), min_size=2, max_size=8))
def test_along_a_chain_the_delays_added_sum_up_to_the_last_start_delay_less_the_first(rows):
    found = _delays({f"v{i}": row for i, row in enumerate(rows)}, _chain(len(rows)))

    added = [delay for _, delay, _ in found.values()][:-1]
    assert sum(added) == max(rows[-1]) - max(rows[0])
