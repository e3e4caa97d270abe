"""Goal: each checkpoint persists, for each channel, exactly the bytes between the two snapshots (INV-2, INV-3).

Method: every byte written to a channel is recorded (``tests/support/channel_oracle.py``). *sent* is the number
of bytes written when the sender takes its snapshot. *done* is the number of bytes read when the receiver takes
its snapshot. The persisted input followed by the persisted output must equal the bytes (done, sent], in order.
For aligned checkpoints, both must be empty. Twenty seeds for each protocol choose schedules and record sizes.
"""

from __future__ import annotations

import pytest

from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.graph import FaultAction, FaultSpec
from tests.support.invariants import Watch
from tests.support.runtime_jobs import late_triggers, small_job


@pytest.mark.parametrize("protocol", ["aligned", "unaligned", "aligned-timeout", "capped"])
def test_persisted_bytes_are_those_between_the_snapshots(protocol: str) -> None:
    checked = persisted = 0
    for seed in range(20):
        size = (60, 120, 700, 1500)[seed % 4]
        plan = tuple(late_triggers()) if seed % 3 else ()
        config: dict[str, object] = {}
        if seed % 5 == 4:
            # Checkpoints expire while their barriers are still on the way. No abort message arrives, so the next
            # checkpoint supersedes them.
            config["execution.checkpointing.timeout"] = "60 ms"
            plan += tuple(FaultSpec("rpc.abort", hit=1, action=FaultAction.DROP) for _ in range(400))
        spec = small_job(
            protocol,
            seed=seed,
            fuzz=seed,
            task_managers=1 + seed % 2,
            record_bytes=size,
            plan=plan,
            parallelism=2 + seed // 2 % 3,
            config=config,
        )
        watch = Watch(JobEngine(spec))
        try:
            watch.run_until(1_450_000)
        except AssertionError as error:
            raise AssertionError(f"{protocol}, seed {seed}: {error}") from None
        checked += watch.checked_checkpoints
        persisted += watch.checked_bytes
    assert checked > 45
    assert (persisted == 0) == (protocol == "aligned")
