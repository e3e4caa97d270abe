"""The closed forms, against numbers computed by hand."""

from __future__ import annotations

import pytest

from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.asking.changing import changed
from backend.advisor.twin.model.outcomes import Tier
from backend.advisor.twin.tiers.formulas import simulate
from backend.domain.advice import Mode
from tests.support.twin_models import three_vertices

_ENDS = (Mode.ALIGNED, Mode.UNALIGNED)


def test_an_aligned_barrier_waits_for_the_full_buffers_to_drain():
    run = simulate(three_vertices())
    (one,) = run.checkpoints

    # Two exchanges with 4 x 16 buffers of 32 kB, which the sink reads at 2000 records of 1000 bytes a second.
    drain_ms = 2 * 4 * 16 * 32768 / 2000
    assert run.tier is Tier.FORMULAS
    assert one.duration_ms == pytest.approx(5 + drain_ms + 1.01, rel=0.001)
    assert (one.persisted_bytes, run.records_per_s) == (0.0, pytest.approx(2000.0))


def test_a_barrier_that_overtakes_waits_for_one_record_on_each_exchange_and_persists_the_buffers():
    (one,) = simulate(changed(three_vertices(), WhatIf(mode=Mode.UNALIGNED))).checkpoints

    buffers = 2 * 4 * 16 * 32768
    assert one.persisted_bytes == buffers
    # The records take 2.02 ms. Each sender writes its own buffers.
    assert one.duration_ms == pytest.approx(5 + 0.02 + 5 + buffers / 8 / 50_000, rel=0.05)


def test_with_an_aligned_timeout_what_has_drained_by_then_is_not_persisted():
    timeout = WhatIf(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=1000.0)
    (one,) = simulate(changed(three_vertices(), timeout)).checkpoints

    assert 1000 < one.duration_ms < 1100
    assert 0 < one.persisted_bytes < 2 * 4 * 16 * 32768 * 0.6


def test_with_a_cap_barriers_wait_until_the_rest_of_the_buffers_fits_it():
    buffers = 2 * 4 * 16 * 32768
    aligned, unaligned = (simulate(changed(three_vertices(), WhatIf(mode=m))).checkpoints[0] for m in _ENDS)
    # Each of the eight senders has its own buffers, and a cap of its own.
    half, free = (
        simulate(changed(three_vertices(), WhatIf(mode=Mode.UNALIGNED, inflight_cap_bytes=cap))).checkpoints[0]
        for cap in (buffers // 16, buffers)
    )

    assert half.persisted_bytes == pytest.approx(buffers / 2)
    assert half.duration_ms == pytest.approx((aligned.duration_ms + unaligned.duration_ms) / 2, rel=0.1)
    assert free == unaligned


def test_debloating_limits_the_wait_and_the_timeout_expires_a_checkpoint():
    debloated = simulate(changed(three_vertices(), WhatIf(debloat_target_ms=200.0))).checkpoints[0]
    expired = simulate(changed(three_vertices(), WhatIf(timeout_ms=500.0))).checkpoints[0]

    assert debloated.duration_ms == pytest.approx(406.0, abs=2.0)
    assert (expired.is_expired, expired.duration_ms) == (True, 500.0)
