"""Tests of parsing ratios and the metrics fetch interval from Flink's responses."""

from __future__ import annotations

import pytest

from backend.contracts import flink
from collectors.flink.document import Document
from collectors.flink.parse_metrics import cluster_settings, debloat_target_ms, fetch_interval_ms, ratio


def document(value: object) -> Document:
    return Document(value, "http://flink")


@pytest.mark.parametrize(("value", "expected"), [(None, None), (-1, None), (0.0, 0.0), (0.4, 0.4), (1.0004, 1.0)])
def test_a_ratio_of_time_is_between_0_and_1(value: float | None, expected: float | None) -> None:
    assert ratio(value) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1000", 1000),
        ("10 s", 10_000),
        ("2min", 120_000),
        ("500 ms", 500),
        ("soon", 10_000),
        ("9" * 9 + " min", 3_600_000),
    ],
)
def test_the_fetch_interval_is_read_in_every_format(text: str, expected: int) -> None:
    assert fetch_interval_ms(document([{"key": flink.METRICS_FETCH_INTERVAL, "value": text}])) == expected


def test_the_fetch_interval_is_the_default_if_it_is_not_configured() -> None:
    assert fetch_interval_ms(document([{"key": "other", "value": "1"}])) == flink.METRICS_FETCH_INTERVAL_DEFAULT_MS


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({flink.DEBLOAT_TARGET: "500 ms"}, None),
        ({flink.DEBLOAT_ENABLED: "false", flink.DEBLOAT_TARGET: "500 ms"}, None),
        ({flink.DEBLOAT_ENABLED: "true"}, 1_000),
        ({flink.DEBLOAT_ENABLED: "true", flink.DEBLOAT_TARGET: "500 ms"}, 500),
        ({flink.DEBLOAT_ENABLED: "true", flink.DEBLOAT_TARGET: "soon"}, None),
    ],
)
def test_the_debloating_target_is_known_only_if_debloating_is_on(settings: dict[str, str], expected: int) -> None:
    rows = [{"key": key, "value": value} for key, value in settings.items()]
    assert debloat_target_ms(document(rows)) == expected


def test_only_the_settings_of_the_cluster_that_concern_checkpoints_are_read() -> None:
    rows = [
        {"key": "s3.secret-key", "value": "hunter2"},
        {"key": flink.SEGMENT_SIZE, "value": "32768"},
        {"key": flink.RETAINED, "value": " 3 "},
    ]
    assert dict(cluster_settings(document(rows))) == {
        flink.RETAINED: "3",
        flink.SEGMENT_SIZE: "32768",
        flink.METRICS_FETCH_INTERVAL: "10000 ms",
    }
