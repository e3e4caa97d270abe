"""Tests of R-CAP-1: when a cap on in-flight data, or buffer debloating, is advised."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.advisor.advice import NoAdvice, Recommendation
from backend.domain.engines import RUNTIME
from tests.support.advised_jobs import (
    UNALIGNED,
    advised,
    in_flight_of,
    persisting,
    readings,
    slow_run,
)
from tests.support.handwritten_jobs import quick

# --- R-CAP-1 ---


def writing_too_much(subtask_bytes=2_000_000, async_ms=2_400):
    """Return checkpoints that write 24 MB of in-flight data at 10 MB/s."""
    return [persisting(quick(n, 50), subtask_bytes, async_ms) for n in range(1, 9)]


def test_r_cap_1_proposes_a_cap_on_the_runtime_if_writing_takes_too_long():
    config = replace(UNALIGNED, timeout_ms=60_000)
    fast = readings(rate_bytes_per_s=5_000_000)
    advice = advised(writing_too_much(), fast, config=config, engine=RUNTIME, version="0.1.0")
    found = in_flight_of(advice)

    assert isinstance(found, Recommendation), found
    assert found.rules == ("R-CAP-1",)
    assert dict(found.how_to.patch) == {"runtime.inflight-cap.bytes": str(found.proposed.inflight_cap_bytes)}
    assert found.proposed.inflight_cap_bytes == 1_000_000
    assert not found.how_to.needs_restart


def test_r_cap_1_proposes_debloating_on_flink_which_has_no_cap():
    found = in_flight_of(advised(writing_too_much(), readings(rate_bytes_per_s=250_000), config=UNALIGNED))

    assert isinstance(found, Recommendation), found
    assert not any("runtime." in line for line in found.how_to.lines)
    assert "taskmanager.network.memory.buffer-debloat.enabled: true" in found.how_to.lines
    assert found.proposed.debloat_target_ms is not None


@pytest.mark.parametrize(("async_ms", "speaks"), [(1_100, False), (1_300, True)])
def test_r_cap_1_applies_from_half_of_the_time_that_the_interval_leaves(async_ms, speaks):
    """A healthy checkpoint may use half of the interval of 5 s. The rule applies from half of that time, 1.25 s."""
    config = replace(UNALIGNED, timeout_ms=60_000)
    run = writing_too_much(async_ms=async_ms)
    found = in_flight_of(advised(run, readings(rate_bytes_per_s=5_000_000), config=config, engine=RUNTIME))
    assert isinstance(found, Recommendation) is speaks, found


def test_r_cap_1_applies_from_a_sixth_of_the_timeout():
    config = replace(UNALIGNED, interval_ms=60_000, timeout_ms=3_000)
    run = writing_too_much(async_ms=700)
    found = in_flight_of(advised(run, readings(rate_bytes_per_s=5_000_000), config=config, engine=RUNTIME))
    assert "within the limits" not in found.reason


def test_r_cap_1_does_not_change_a_cap_that_is_low_enough():
    config = replace(UNALIGNED, timeout_ms=60_000, inflight_cap_bytes=1_000_000)
    fast = readings(rate_bytes_per_s=5_000_000)
    found = in_flight_of(advised(writing_too_much(), fast, config=config, engine=RUNTIME))
    assert isinstance(found, NoAdvice), found
    assert "already low enough" in found.reason


def test_r_cap_1_gives_no_advice_if_in_flight_data_fits_or_there_is_none():
    fits = [persisting(quick(n), 400_000) for n in range(1, 9)]
    assert isinstance(in_flight_of(advised(fits, config=UNALIGNED)), NoAdvice)
    assert "aligned" in in_flight_of(advised(slow_run())).reason
