"""Tests of the match of the vertices of two job graphs."""

from __future__ import annotations

from backend.analysis.measures.matching import matched
from backend.domain.ids import VertexId
from backend.domain.topology import Topology, Vertex


def _graph(*vertices):
    return Topology(tuple(Vertex(VertexId(id_), name, 2) for id_, name in vertices))


def test_vertices_of_two_jobs_are_matched_by_name_even_if_an_id_means_another_vertex():
    first = _graph(("1", "source"), ("2", "map"), ("3", "sink"))
    second = _graph(("1", "source"), ("2", "sink"), ("3", "filter"))

    found = matched(first, second, is_same_job=False)

    assert found.ids == {"1": "1", "2": "3", "3": "3 of b"}
    assert [v.name for v in found.only_first] == ["map"]
    assert [v.name for v in found.only_second] == ["filter"]


def test_of_several_vertices_with_one_name_equal_ids_and_then_the_order_decide():
    first = _graph(("1", "map"), ("2", "map"), ("3", "map"))

    assert matched(first, _graph(("8", "map"), ("2", "map"), ("9", "map")), is_same_job=False).ids == {
        "2": "2", "8": "1", "9": "3",
    }  # fmt: skip


def test_within_one_job_a_renamed_vertex_is_found_by_its_id():
    first, second = _graph(("1", "source"), ("2", "map v2")), _graph(("1", "source"), ("2", "map v1"))

    assert matched(first, second, is_same_job=True).ids == {"1": "1", "2": "2"}
    of_two_jobs = matched(first, second, is_same_job=False)
    assert (of_two_jobs.only_first, of_two_jobs.only_second) == (first.vertices[1:], second.vertices[1:])


def test_a_graph_that_is_not_known_shows_no_vertex_as_missing():
    found = matched(_graph(), _graph(("1", "map")), is_same_job=False)

    assert (found.ids, found.only_first, found.only_second) == ({"1": "1"}, (), ())
