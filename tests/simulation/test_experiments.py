"""Goal: the test plan of FLIP-76 has the results that its authors expected (T-3 to T-6).

Method: ``barrierscope experiment flip-76`` runs ``backend/experiments/flip76.py`` with twenty seeds and prints medians
and intervals. This test runs each experiment with one seed, and checks which protocol is better and roughly by how
much.
"""

from __future__ import annotations

import pytest

from backend.experiments.flip76 import (
    CHECKPOINTING,
    INTERVALS,
    MTBF,
    SLOW_US,
    overhead,
    progress,
    progress_of,
    times,
)
from backend.experiments.model import medians


def test_unaligned_checkpoints_progress_under_failures_that_let_no_aligned_one_complete() -> None:
    aligned, unaligned = (
        {row.measure: row.value for row in progress_of(protocol, 3, "below", for_us=4_000_000)}
        for protocol in ("aligned", "unaligned")
    )
    assert aligned["progress"] == 0
    assert unaligned["progress"] > 20, unaligned


@pytest.mark.slow
def test_unaligned_times_do_not_depend_on_the_drain_time_and_throughput_does_not_depend_on_the_protocol() -> None:
    found = medians([row for protocol in ("none", *CHECKPOINTING) for row in times(protocol, 2)])
    fast, slow = SLOW_US
    ms = {(p, s): found["times", s, p].value for p in CHECKPOINTING for s in SLOW_US}
    for setting in SLOW_US:
        assert ms["unaligned", setting] < ms["aligned-timeout", setting] < ms["aligned", setting], ms
        per_s = {p: found["throughput", setting, p].value for p in ("none", *CHECKPOINTING)}
        assert min(per_s.values()) > 0.98 * max(per_s.values()), per_s
    # With the slow setting, the sink takes four times as long for a record.
    assert ms["aligned", slow] > 3 * ms["aligned", fast], ms
    assert ms["at-least-once", slow] > 3 * ms["at-least-once", fast], ms
    assert ms["unaligned", slow] < 1.5 * ms["unaligned", fast], ms
    assert ms["unaligned", slow] * 20 < ms["aligned", slow], ms


@pytest.mark.slow
def test_progress_depends_on_the_time_between_failures_and_drops_with_much_in_flight_data() -> None:
    found = medians([row for protocol in ("aligned", "unaligned") for row in progress(protocol, 2)])
    useful = {(p, s): found["progress", f"failures {s}", p].value for p in ("aligned", "unaligned") for s in MTBF}
    assert useful["aligned", "below"] == 0 < useful["unaligned", "below"], useful
    assert useful["aligned", "at"] < useful["unaligned", "at"], useful
    assert min(useful["aligned", "above"], useful["unaligned", "above"]) > 800, useful
    # After a restart, in-flight data is processed before new records and before the next checkpoint. More in-flight
    # data delays both.
    much = "failures at, more in flight"
    assert found["progress", much, "unaligned"].value < useful["unaligned", "at"] / 4
    restart_ms = [found["restart", f"failures above{more}", "unaligned"].value for more in ("", ", more in flight")]
    assert restart_ms[1] > 2 * restart_ms[0], restart_ms


@pytest.mark.slow
def test_checkpoints_cost_throughput_that_grows_with_their_number() -> None:
    found = medians([row for protocol in ("aligned", "unaligned") for row in overhead(protocol, 2)])
    for protocol in ("aligned", "unaligned"):
        percent = [found["overhead", f"every {interval}", protocol].value for interval in INTERVALS]
        assert percent[0] > percent[-1] > -0.5, (protocol, percent)
        assert percent[-1] < 2, (protocol, percent)
