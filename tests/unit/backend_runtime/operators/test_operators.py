"""Tests of the map operator: how many records it emits, and their size."""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import Record
from backend.runtime.job.graph import VertexKind, VertexSpec
from backend.runtime.operators.operators import Map

_RECORDS = [Record(n, n, 0, 0, 500) for n in range(4000)]


def _map(vertex: int = 1, fan_out: float = 1, output_bytes: int = 0) -> Map:
    return Map(VertexSpec("m", VertexKind.MAP, "m", fan_out=fan_out, output_bytes=output_bytes), vertex)


@pytest.mark.parametrize("fan_out", [0.0, 0.25, 1.0, 1.5, 3.0])
def test_fan_out_is_the_mean_number_of_records_and_the_same_in_every_attempt(fan_out: float):
    counts = [len(_map(fan_out=fan_out).process(record)) for record in _RECORDS]

    assert sum(counts) / len(counts) == pytest.approx(fan_out, abs=0.03)
    assert set(counts) <= {int(fan_out), int(-(-fan_out // 1))}
    again = _map(fan_out=fan_out)
    assert [len(again.process(record)) for record in reversed(_RECORDS)] == counts[::-1]


def test_two_maps_keep_different_records():
    kept = [{r.origin for r in _RECORDS if _map(vertex, 0.5).process(r)} for vertex in (1, 2)]

    assert len(kept[0] & kept[1]) == pytest.approx(1000, abs=100)


def test_records_get_the_size_of_the_output():
    (out,) = _map(output_bytes=80).process(_RECORDS[7])

    assert (out.size_bytes, out.origin, out.key) == (80, 7, 7)
    assert _map(output_bytes=80).in_bulk() is None
    assert _map(fan_out=0.5).in_bulk() is None
    assert _map().in_bulk() is not None
