"""If the output exceeds the cap, a barrier overtakes only as much of the queue's end as fits the cap (CAP-5).

The rest of the output is sent before the barrier.
"""

from __future__ import annotations

import pytest

from backend.runtime.core.elements import Alignment, Barrier, CancelMarker
from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.cap_decisions import CapAction, CapDecision
from backend.runtime.network.buffers import DataBuffer, OutputPool
from backend.runtime.protocols.base import Began, Close, Ended, Persist, Reopen, SetStallTimer, Snapshot
from backend.runtime.protocols.capped import Capped
from backend.runtime.protocols.mode import InFlight
from tests.support.invariants import Watch
from tests.support.runtime_jobs import RECORDS, late_triggers, small_job

_CAP_BYTES = 2_000
_UC = Barrier(5, 0, Alignment.UNALIGNED, is_capped=True)


@pytest.mark.parametrize("seed", [1, 2, 4])
def test_a_partly_overtaken_output_is_a_consistent_cut_within_the_cap(seed: int) -> None:
    config = {"runtime.inflight-cap.bytes": _CAP_BYTES, "runtime.inflight-cap.on-cap": "partial"}
    spec = small_job(
        "capped",
        seed=seed,
        fuzz=seed,
        task_managers=1 + seed % 2,
        record_bytes=(60, 120, 700)[seed % 3],
        plan=tuple(late_triggers()) if seed % 2 else (),
        config=config,
    )
    watch = Watch(JobEngine(spec, keeps_rows=True), records=RECORDS)
    watch.run_to_the_end()
    acks = [a.measured for r in watch.engine.coordinator.all_completed for a in r.acks.values()]
    partly = [m for m in acks if m.cap is not None and m.cap.action is CapAction.PARTIAL]
    assert partly, f"seed {seed}: everything fitted"
    assert any(0 < m.persisted_bytes < m.cap.in_flight_bytes for m in partly if m.cap is not None), f"seed {seed}"
    assert max(m.persisted_bytes for m in acks) <= _CAP_BYTES, f"seed {seed}"
    assert watch.checked_bytes > 0, f"seed {seed}"


@pytest.mark.parametrize(
    ("input_bytes", "output_bytes", "action", "left_bytes"),
    [
        (300, 700, CapAction.OVERTOOK, None),
        (300, 701, CapAction.PARTIAL, 700),
        (1_000, 1, CapAction.PARTIAL, 0),
        (0, 5_000, CapAction.PARTIAL, 1_000),
        # A barrier cannot overtake only a part of the input before the cut, so the checkpoint waits until this input
        # fits the cap.
        (1_001, 0, None, None),
    ],
)
def test_as_much_output_is_overtaken_as_the_input_leaves_room_for(
    input_bytes: int, output_bytes: int, action: CapAction | None, left_bytes: int | None
) -> None:
    told: list[CapDecision] = []
    protocol = Capped(
        frozenset([0]),
        cap_bytes=1_000,
        in_flight=lambda: InFlight(input_bytes, output_bytes),
        has_front=lambda: input_bytes > 0,
        declines=False,
        is_partial=True,
        decided=told.append,
    )
    commands = protocol.barrier(0, _UC, 0)
    begun = [Began(_UC), SetStallTimer(1_000), Close(0)]
    if action is None:
        assert (commands, told) == (begun, [])
        return
    snapshot = Snapshot(_UC.as_unaligned(), output_bytes_max=left_bytes)
    assert commands == [*begun, Persist(), snapshot, Reopen(0), Ended()]
    assert [decision.action for decision in told] == [action]


@pytest.mark.parametrize(
    ("most_bytes", "overtaken"), [(None, [0, 1, 2, 3]), (256, [0, 1, 2, 3]), (255, [1, 2, 3]), (64, [3]), (63, [])]
)
def test_the_barrier_is_placed_before_the_buffers_that_fit(most_bytes: int | None, overtaken: list[int]) -> None:
    pool = OutputPool(
        Scheduler(),
        channels=1,
        segment_bytes=64,
        size=8,
        max_per_channel=8,
        max_overdraft=0,
        flush_timeout_us=1_000,
        on_change=lambda: None,
    )
    subpartition = pool.subpartitions[0]
    for number in range(4):
        subpartition.append(bytes([number]) * 64)
        if number == 2:
            subpartition.add_event(CancelMarker(4))
    data = subpartition.overtake(_UC, most_bytes)
    assert [bytes(each)[0] for each in data] == overtaken
    order = [item.data[0] if isinstance(item, DataBuffer) else item for item in iter(subpartition.poll, None)]
    barrier_at = order.index(_UC)
    assert [item for item in order[barrier_at:] if isinstance(item, int)] == overtaken
    assert [item for item in order if isinstance(item, int)] == [0, 1, 2, 3]
