"""Checks which commands a task's input handler gives for each event of concurrent unaligned checkpoints (CC-4)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.protocols.base import Began, Block, Command, Ended, GiveUp, Keeper, Persist, Resume, Snapshot
from backend.runtime.protocols.mode import TaskView
from backend.runtime.protocols.registry import keeper_of

SUBSUMED, CANCELLED = FailureReason.DECLINED_SUBSUMED, FailureReason.DECLINED_ON_CANCELLATION
Step = Callable[[Keeper], list[Command]]


def uc(checkpoint_id: int) -> Barrier:
    return Barrier(checkpoint_id, checkpoint_id * 1_000, Alignment.UNALIGNED)


def al(checkpoint_id: int) -> Barrier:
    return Barrier(checkpoint_id, checkpoint_id * 1_000, Alignment.ALIGNED)


def on(channel: int, barrier: Barrier) -> Step:
    return lambda keeper: keeper.barrier(channel, barrier, 9_000)


def end(channel: int) -> Step:
    return lambda keeper: keeper.end_of_partition(channel, 9_000)


def cancel(channel: int, checkpoint_id: int) -> Step:
    return lambda keeper: keeper.cancel(checkpoint_id, channel)


def aborted(checkpoint_id: int) -> Step:
    return lambda keeper: keeper.aborted(checkpoint_id)


def begun(checkpoint_id: int) -> list[Command]:
    barrier = uc(checkpoint_id)
    return [Began(barrier), Persist(), Snapshot(barrier)]


@pytest.mark.parametrize(
    ("before", "step", "commands"),
    [
        ([], on(0, uc(5)), begun(5)),
        # A newer checkpoint begins without ending the older one.
        ([on(0, uc(5))], on(0, uc(6)), begun(6)),
        # Each checkpoint ends when its own last barrier arrives.
        ([on(0, uc(5)), on(0, uc(6))], on(1, uc(5)), [Ended(5)]),
        ([on(0, uc(5)), on(0, uc(6)), on(1, uc(5))], on(1, uc(6)), [Ended(6)]),
        # UC-3: after a newer barrier, a channel delivers no older barrier, so the older checkpoint is given up.
        ([on(0, uc(5))], on(1, uc(6)), [Ended(5), GiveUp(5, SUBSUMED), *begun(6)]),
        ([on(0, uc(5)), on(0, uc(6)), on(0, uc(7))], on(1, uc(7)), [
            Ended(5), GiveUp(5, SUBSUMED), Ended(6), GiveUp(6, SUBSUMED), Ended(7)]),
        # The barrier of an older or ended checkpoint has no effect, except that an aligned barrier resumes its
        # channel.
        ([on(0, uc(6))], on(1, uc(5)), []),
        ([on(0, uc(6))], on(1, al(5)), [Resume(1)]),
        ([on(0, uc(5)), on(1, uc(5))], on(0, uc(5)), []),
        # A channel that ended counts as if it had delivered the barrier of every pending checkpoint.
        ([on(0, uc(5)), on(0, uc(6))], end(1), [Ended(5), Ended(6)]),
        ([end(1)], on(0, uc(5)), [*begun(5), Ended(5)]),
        # A cancel marker ends its own checkpoint, and each older checkpoint whose barrier has not arrived on that
        # channel.
        ([on(0, uc(5)), on(1, uc(5)), on(0, uc(6))], cancel(1, 6), [Ended(6), GiveUp(6, CANCELLED)]),
        ([on(0, uc(5)), on(0, uc(6))], cancel(1, 5), [Ended(5), GiveUp(5, CANCELLED)]),
        ([on(0, uc(5))], cancel(1, 6), [Ended(5), GiveUp(5, SUBSUMED), GiveUp(6, CANCELLED)]),
        ([on(0, uc(5))], cancel(0, 6), [GiveUp(6, CANCELLED)]),
        ([on(0, uc(5)), cancel(0, 6)], on(1, uc(6)), [Ended(5), GiveUp(5, SUBSUMED)]),
        ([on(0, uc(5)), on(1, uc(5))], cancel(0, 5), []),
        # The coordinator's abort ends only the checkpoint that it names. If the abort comes before the barrier, the
        # receivers get a cancel marker.
        ([on(0, uc(5)), on(0, uc(6))], aborted(5), [Ended(5)]),
        ([on(0, uc(5)), on(0, uc(6)), aborted(5)], on(1, uc(6)), [Ended(6)]),
        ([aborted(5)], on(0, uc(5)), [GiveUp(5, CANCELLED)]),
        ([aborted(5), on(0, uc(5))], on(1, uc(5)), []),
        ([aborted(5)], on(0, uc(6)), begun(6)),
        # A savepoint is aligned separately, even if checkpoints are still pending because their abort was lost.
        ([on(0, uc(5)), on(1, uc(5)), on(0, al(6))], on(1, al(6)), [
            Block(1), Ended(6), Snapshot(al(6)), Resume(0), Resume(1)]),
        ([on(0, al(5))], on(1, uc(6)), [Ended(5), Resume(0), GiveUp(5, SUBSUMED), *begun(6)]),
        ([on(0, uc(5))], lambda keeper: keeper.timer(5, 9_000), []),
        ([on(0, uc(5))], lambda keeper: keeper.announcement(1, uc(5), 9_000), []),
        ([on(0, uc(5))], lambda keeper: keeper.recheck(9_000), []),
    ],
)  # fmt: skip
def test_each_pending_checkpoint_reacts_to_its_own_events(
    before: list[Step], step: Step, commands: list[Command]
) -> None:
    keeper = keeper_of(2, RuntimeConfig(is_unaligned_concurrent=True), TaskView())
    for each in before:
        each(keeper)
    assert step(keeper) == commands


def test_the_newest_checkpoint_in_progress_is_the_pending_one() -> None:
    keeper = keeper_of(2, RuntimeConfig(is_unaligned_concurrent=True), TaskView())
    assert keeper.pending_id is None
    for barrier in (uc(5), uc(6)):
        keeper.barrier(0, barrier, 0)
    assert (keeper.pending_id, keeper.current_id) == (6, 6)
    keeper.barrier(1, uc(5), 0)
    keeper.barrier(1, uc(6), 0)
    assert (keeper.pending_id, keeper.current_id) == (None, 6)
