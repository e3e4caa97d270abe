"""Goal: recovery uses at most the segments of the pool and one read buffer for each channel (RC-6).

Method: jobs with much smaller pools restore checkpoints with much overtaken output. After every event of the restore,
the segments in use are counted. Output that does not fit must wait, in order, and the ledger must be correct.
"""

from __future__ import annotations

import pytest

from backend.runtime.core.scheduler import Scheduler
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import TaskKey
from backend.runtime.task.task import TaskStatus
from tests.support.inside_jobs import take_over
from tests.support.runtime_jobs import exactly_once_violations, small_job

_RECORDS = 700
_FEW: dict[str, object] = {
    "taskmanager.memory.segment-size": 256,
    "taskmanager.network.memory.buffers-per-channel": 1,
    "taskmanager.network.memory.floating-buffers-per-gate": 1,
}


class _Watch:
    """Checks at each event of the run that no restoring subtask uses more segments than its pools have."""

    def __init__(self, engine: JobEngine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._engine = engine
        self.waited: dict[TaskKey, int] = {}
        """The last instant at which each subtask waited for a segment, in microseconds."""
        self.freed: dict[TaskKey, int] = {}
        """The first instant after that wait at which the subtask no longer waited, in microseconds."""
        self.problems: list[str] = []
        at = Scheduler.at

        def watched(
            scheduler: Scheduler, time_us: int, event_class: int, action: object, argument: object = None
        ) -> None:
            self._look()
            at(scheduler, time_us, event_class, action, argument)  # type: ignore[arg-type]

        monkeypatch.setattr(Scheduler, "at", watched)

    def _look(self) -> None:
        for task in self._engine.tasks:
            is_waiting = task.emission.is_blocked and task.records_in == 0
            if not is_waiting and task.key in self.waited:
                self.freed.setdefault(task.key, self._engine.now_us)
            if is_waiting and task.status is TaskStatus.INITIALIZING:
                self.waited[task.key] = self._engine.now_us
                self.freed.pop(task.key, None)
                for output in task.outputs:
                    if output.pool.requested > output.pool.size:
                        self.problems.append(f"{task.name}: {output.pool.requested} of {output.pool.size} segments")


@pytest.mark.parametrize("seed", range(6))
def test_output_is_recovered_through_a_pool_smaller_than_itself(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    managers = 1 + seed % 2
    sizes = {"records": _RECORDS, "record_bytes": (120, 700)[seed // 2 % 2]}
    first = JobEngine(small_job("unaligned", seed=seed, fuzz=seed, task_managers=managers, **sizes), keeps_rows=True)
    first.run_until(500_000)
    newest = first.coordinator.newest
    assert newest is not None
    overtaken = sum(len(c) for s in newest.snapshots.values() for cs in s.channels.outputs.values() for c in cs)
    assert overtaken > 5_000, f"seed {seed}: the checkpoint holds little output"
    stored = newest.stored(first.env.graph)
    few = small_job("unaligned", seed=seed, fuzz=seed, task_managers=managers, config=_FEW, **sizes)
    second = JobEngine(few, keeps_rows=True, restore=stored)
    take_over(second.ledger, first.ledger)
    with monkeypatch.context() as patch:
        watch = _Watch(second, patch)
        second.run_until(400_000)
    assert not watch.problems, f"seed {seed}: {watch.problems[:3]}"
    assert watch.waited, f"seed {seed}: everything fitted at once"
    for task in second.tasks:
        # The wait for segments is part of reading the output. The mailbox starts after this wait (ME-17).
        began_us = task.initialization.deployed_at_us + task.initialization.mailbox_start_us
        if task.key in watch.waited:
            assert watch.waited[task.key] <= began_us <= watch.freed[task.key], f"seed {seed}: {task.name}"
    assert {task.status for task in second.tasks} <= {TaskStatus.RUNNING, TaskStatus.FINISHED}, f"seed {seed}"
    while second.ledger.committed_count < _RECORDS and second.now_us < 20_000_000:
        second.run_until(second.now_us + 100_000)
    assert not exactly_once_violations(second.ledger.rows, _RECORDS), f"seed {seed}"
