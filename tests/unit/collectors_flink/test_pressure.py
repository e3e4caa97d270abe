"""Tests of reading metrics: few requests, none longer than the limit of a request line.

A value that is not a number counts as missing.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from backend.contracts import flink
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from collectors.flink.document import Document
from collectors.flink.parse_metrics import vertex_metrics
from collectors.flink.pressure import MetricNames, gauge_values, request_paths, vertex_pressure, wanted_of

JOB, VERTEX = "a" * 32, VertexId("b" * 32)
NAMES_1_20 = frozenset(
    {
        "busyTimeMsPerSecond",
        "backPressuredTimeMsPerSecond",
        "idleTimeMsPerSecond",
        "checkpointStartDelayNanos",
        "checkpointAlignmentTime",
        "numRecordsIn",
        "numRecordsOut",
        "numBytesIn",
        "numRecordsInPerSecond",
        "numRecordsOutPerSecond",
        "buffers.inPoolUsage",
        "Shuffle.Netty.Input.Buffers.inPoolUsage",
        "buffers.outPoolUsage",
        "buffers.inputQueueSize",
        "buffers.outputQueueSize",
    }
)


def document(value: object) -> Document:
    return Document(value, "http://flink")


def test_a_small_vertex_needs_one_request() -> None:
    names = wanted_of(NAMES_1_20, is_source=False).pressure
    assert len(list(request_paths(JOB, VERTEX, range(4), names, prefix_bytes=30))) == 1


@pytest.mark.parametrize("parallelism", [1, 4, 37, 128, 1000])
@pytest.mark.parametrize("prefix_bytes", [0, 40, 900])
def test_every_metric_of_every_subtask_is_requested_once_in_lines_within_the_limit(
    parallelism: int, prefix_bytes: int
) -> None:
    names = wanted_of(NAMES_1_20, is_source=False).pressure
    paths = list(request_paths(JOB, VERTEX, range(parallelism), names, prefix_bytes=prefix_bytes))
    asked = [metric for path in paths for metric in path.partition("?get=")[2].split(",")]
    assert sorted(asked) == sorted(f"{n}.{name}" for n in range(parallelism) for name in names)
    for path in paths:
        assert len(f"GET {path} HTTP/1.1") + prefix_bytes < flink.REQUEST_LINE_MAX_BYTES
    # All requests but the last are full: another metric with the longest name would not have fitted.
    longest = max(map(len, asked)) + 1
    for path in paths[:-1]:
        assert len(path) + prefix_bytes + longest > flink.REQUEST_LINE_MAX_BYTES - 300


def test_the_shorter_of_two_metric_names_is_used_or_the_only_one() -> None:
    assert wanted_of(NAMES_1_20, is_source=False).in_pool_usage == "buffers.inPoolUsage"
    in_2_x = frozenset({"Shuffle.Netty.Input.Buffers.inPoolUsage"})
    assert wanted_of(in_2_x, is_source=False).in_pool_usage == "Shuffle.Netty.Input.Buffers.inPoolUsage"
    assert wanted_of(frozenset(), is_source=False).pressure == ()


def test_one_rate_is_read_of_each_vertex_to_keep_requests_few() -> None:
    source, other = (wanted_of(NAMES_1_20, is_source=of) for of in (True, False))
    rates = {"numRecordsInPerSecond", "numRecordsOutPerSecond"}
    assert rates & set(source.pressure) == {"numRecordsOutPerSecond"}
    assert rates & set(other.pressure) == {"numRecordsInPerSecond"}
    # A version that does not offer a rate is not asked for it.
    assert wanted_of(NAMES_1_20 - {"numRecordsInPerSecond"}, is_source=False).records_in_per_s is None
    # Nine subtasks were one request without the rate too.
    paths = request_paths(JOB, VERTEX, range(9), other.pressure, prefix_bytes=30)
    assert len(paths) == 1


def test_a_rate_is_kept_as_flink_reports_it_and_an_unset_one_is_missing() -> None:
    def read(*values: str, is_source: bool = False) -> VertexPressure:
        names = wanted_of(NAMES_1_20, is_source=is_source)
        metric = "numRecordsOutPerSecond" if is_source else "numRecordsInPerSecond"
        rows = [{"id": f"{n}.{metric}", "value": value} for n, value in enumerate(values)]
        at = datetime(2026, 11, 21, tzinfo=UTC)
        readings = {**vertex_metrics(document(rows)), (0, "busyTimeMsPerSecond"): 1.0}
        found = vertex_pressure(VERTEX, parallelism=len(values), readings=readings, names=names, at=at)
        assert found is not None
        return found

    found = read("1836.2333333333333", "NaN", "-1.0", "0.0")
    assert found.records_in_per_s == (1836.2333333333333, None, None, 0.0)
    assert found.records_out_per_s == ()
    assert read("NaN", "NaN").records_in_per_s == (), "not offered"
    assert read("5.5", is_source=True).records_out_per_s == (5.5,)


def test_a_reading_keeps_measured_values_and_omits_the_others() -> None:
    names = wanted_of(NAMES_1_20, is_source=False)
    rows = [
        ("0.busyTimeMsPerSecond", "1000"),
        ("1.busyTimeMsPerSecond", "NaN"),
        ("0.checkpointStartDelayNanos", "2500000000"),
        ("1.checkpointStartDelayNanos", "0"),
        ("0.buffers.inPoolUsage", "0.5"),
        ("1.buffers.inPoolUsage", "-1.0"),
        ("0.numRecordsIn", str(2**63)),
        ("no-index", "3"),
        ("99999999.busyTimeMsPerSecond", "1"),
    ]
    readings = vertex_metrics(document([{"id": name, "value": value} for name, value in rows]))
    at = datetime(2026, 11, 21, tzinfo=UTC)
    pressure = vertex_pressure(VERTEX, parallelism=2, readings=readings, names=names, at=at)
    assert pressure is not None
    assert pressure.busy_ratio == (1.0, None)
    assert pressure.backpressured_ratio == (None, None)
    assert pressure.start_delay_gauge_ms == (2500, 0)
    assert pressure.in_pool_usage_ratio == (0.5, None)
    assert pressure.records_in_count == ()
    assert gauge_values(readings, names.start_delay) == {0: 2_500_000_000, 1: 0}
    assert vertex_pressure(VERTEX, parallelism=2, readings={}, names=names, at=at) is None


def test_a_whole_reading_includes_the_gauges() -> None:
    names: MetricNames = wanted_of(NAMES_1_20, is_source=False)
    assert set(names.gauges) == {"checkpointStartDelayNanos", "checkpointAlignmentTime"}
    assert set(names.gauges) <= set(names.pressure)
