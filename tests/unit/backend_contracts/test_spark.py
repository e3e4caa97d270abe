"""Tests of the JSON of Spark: what an older version leaves out is taken from what it has."""

from __future__ import annotations

import pytest

from backend.contracts.spark import ProgressIn

_OLD = {"id": "a", "runId": "b", "timestamp": "2026-11-21T10:00:00.000Z", "batchId": 3}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"durationMs": {"addBatch": 300, "triggerExecution": 420}}, 420),
        ({"batchDuration": 400, "durationMs": {"triggerExecution": 420}}, 400),
        ({"durationMs": {"addBatch": 300}}, None),
        ({"durationMs": {"triggerExecution": -5}}, None),
        ({"durationMs": {"triggerExecution": 2**50}}, None),
        ({}, None),
    ],
)
def test_the_duration_before_spark_4_is_that_of_the_trigger(more, expected):
    assert ProgressIn.model_validate(_OLD | more).batch_duration == expected
