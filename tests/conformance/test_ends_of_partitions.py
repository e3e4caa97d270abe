"""Checks that a task gives up its checkpoint if a channel ends and checkpoints after the end of tasks are off (AL-7).

The expected commands are those of Flink's ``processEndOfPartition`` (``SingleCheckpointBarrierHandler`` and
``CheckpointBarrierTracker``). If checkpoints after the end of tasks are switched on, an ended channel counts as if its
barrier had arrived. The tables of the handlers test that setting.
"""

from __future__ import annotations

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import Command, Ended, GiveUp, Resume
from backend.runtime.protocols.mode import TaskView
from backend.runtime.protocols.registry import keeper_of
from tests.support.runtime_jobs import small_job

_ENDED = FailureReason.DECLINED_INPUT_END_OF_STREAM
_AL, _UC = Barrier(5, 0, Alignment.ALIGNED), Barrier(5, 0, Alignment.UNALIGNED)
_AT = Barrier(5, 0, Alignment.ALIGNED, aligned_timeout_us=9_000)
_LO = Barrier(5, 0, Alignment.AT_LEAST_ONCE)


@pytest.mark.parametrize(
    ("barrier", "is_concurrent", "commands"),
    [
        (_AL, False, [Ended(), Resume(0), GiveUp(5, _ENDED)]),
        (_AT, False, [Ended(), Resume(0), GiveUp(5, _ENDED)]),
        (_UC, False, [Ended(), GiveUp(5, _ENDED)]),
        (_UC, True, [Ended(5), GiveUp(5, _ENDED)]),
        (_LO, False, [GiveUp(5, _ENDED)]),
    ],
)
def test_the_pending_checkpoint_is_given_up_and_the_next_counts_only_open_channels(
    barrier: Barrier, is_concurrent: bool, commands: list[Command]
) -> None:
    is_exactly_once = barrier.alignment is not Alignment.AT_LEAST_ONCE
    config = RuntimeConfig(
        is_exactly_once=is_exactly_once, is_unaligned_concurrent=is_concurrent, counts_ended_channels=False
    )
    keeper = keeper_of(3, config, TaskView())
    assert keeper.end_of_partition(2, 0) == []
    keeper.barrier(0, barrier, 0)
    assert keeper.end_of_partition(1, 0) == commands
    assert keeper.pending_id is None
    newer = Barrier(6, 0, barrier.alignment, barrier.aligned_timeout_us)
    told = keeper.barrier(0, newer, 0)
    assert any(type(command).__name__ == "Snapshot" for command in told), told
    assert keeper.pending_id is None


def test_all_concurrently_counted_checkpoints_are_given_up() -> None:
    keeper = keeper_of(2, RuntimeConfig(is_exactly_once=False, counts_ended_channels=False), TaskView())
    for k in (5, 6):
        keeper.barrier(0, Barrier(k, 0, Alignment.AT_LEAST_ONCE), 0)
    keeper.cancel(5, 1)
    assert keeper.end_of_partition(1, 0) == [GiveUp(6, _ENDED)]


def test_the_setting_has_flinks_name() -> None:
    name = "execution.checkpointing.checkpoints-after-tasks-finish"
    for counts in (True, False):
        engine = JobEngine(small_job("aligned", config={name: counts}))
        engine.run_until(1_000)
        assert engine.tasks[-1].checkpointing._keeper()._counts_ended is counts
