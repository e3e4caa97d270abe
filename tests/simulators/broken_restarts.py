"""Broken variants of rescaling, of at-least-once mode, and of reports on repeated and lost records (T-9).

An invariant must catch each variant. As in ``broken_protocols.py``, a variant consists of a patch of the runtime with
one error, and a job in which the error has an effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from backend.runtime.coordinator.rescales import Rescale, Rescaler, RescaleSpec
from backend.runtime.coordinator.restore_point import RestorePoint
from backend.runtime.core.elements import Barrier, VirtualChannel
from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.graph import FaultSpec
from backend.runtime.measure.requested import Savepoint
from backend.runtime.network import rescaling
from backend.runtime.network.channel import InputChannel
from backend.runtime.network.rescaling import EdgeRescale
from backend.runtime.operators.redistribution import restored_operator
from backend.runtime.operators.storage import TransactionLedger
from backend.runtime.protocols.at_least_once import AtLeastOnce
from backend.runtime.snapshot import restoring
from backend.runtime.snapshot.metadata import read_checkpoint
from backend.runtime.task.checkpointing import TaskCheckpointing
from backend.runtime.task.recovery import Recovery
from backend.runtime.task.restarts import Restart
from tests.simulators.broken_protocols import Variant, pass_by_the_end_of_recovery, read_new_input_first
from tests.simulators.fault_plans import AT_LEAST_ONCE

_UP = (RescaleSpec(200_000, {"map": 3, "keyed": 3}),)
_DOWN = (RescaleSpec(200_000, {"map": 1, "keyed": 1}),)
_MAP_ONLY = (RescaleSpec(200_000, {"map": 3}),)
_OF_SOURCES = (RescaleSpec(200_000, {"source": 1, "map": 3}),)
_MORE_SOURCES = (RescaleSpec(200_000, {"source": 3}),)
_SAVED = (RescaleSpec(150_000, {"keyed": 3}, from_savepoint=True),)
_CRASH = (FaultSpec("coordinator.between-notifies", hit=8),)
_CP = "execution.checkpointing."


# --- rescaling --------------------------------------------------------------------------------------------------------


def do_not_filter(patch: pytest.MonkeyPatch) -> None:
    """Let every new subtask process all records of an ambiguous channel (RS-9)."""
    patch.setattr(Recovery, "_keeps", lambda self, edge: lambda record: True)


def give_channel_state_to_the_wrong_subtask(patch: pytest.MonkeyPatch) -> None:
    """Give an old subtask's channel state to the correct subtask's neighbour, on both ends of the channel (RS-5)."""
    mapping = rescaling.old_subtasks

    def shifted(mapper: Any, new: int, *, new_count: int, **named: Any) -> Any:
        return mapping(mapper, (new + 1) % new_count, new_count=new_count, **named)

    patch.setattr(rescaling, "old_subtasks", shifted)


def put_channel_state_into_the_wrong_channel(patch: pytest.MonkeyPatch) -> None:
    """Assign the receiver's part and the sender's part of a channel to two different senders (RS-6)."""
    new_sender = EdgeRescale.new_sender
    patch.setattr(EdgeRescale, "new_sender", lambda self, old: (new_sender(self, old) + 1) % len(self.senders))


def stay_with_the_first_old_channel(patch: pytest.MonkeyPatch) -> None:
    """Decode the data of all old channels of a new channel as if it came from the first old channel (RS-8)."""
    turn_to = InputChannel.turn_to

    def turn_once(self: InputChannel, virtual: VirtualChannel) -> None:
        if self.virtual is None:
            turn_to(self, virtual)

    patch.setattr(InputChannel, "turn_to", turn_once)


def restore_the_last_chunk_first(patch: pytest.MonkeyPatch) -> None:
    """Restore the chunks that a receiver persisted for an old channel in reverse order (RS-8)."""
    restore = Recovery._restore_input
    patch.setattr(
        Recovery, "_restore_input", lambda self, inputs: restore(self, {k: c[::-1] for k, c in inputs.items()})
    )


def lose_an_old_channels_output(patch: pytest.MonkeyPatch) -> None:
    """If a subtask takes over several senders, restore only the output of the first one (RS-5)."""
    restore = Recovery._restore_output

    def first_only(self: Recovery, outputs: Any) -> None:
        kept = {}
        for key, chunks in outputs.items():
            olds = self._rescaled[key.edge].senders[self._task.index] if key.edge in self._rescaled else ()
            if key.source_subtask in olds[:1] or not olds:
                kept[key] = chunks
        restore(self, kept)

    patch.setattr(Recovery, "_restore_output", first_only)


def leave_moved_keys_behind(patch: pytest.MonkeyPatch) -> None:
    """Restore at each subtask only the key groups that the old subtask with the same index owned (RS-1)."""

    def own_only(old: Any, subtask: int, **named: Any) -> Any:
        whole = restored_operator(old, subtask, **named)
        before = old[subtask].keyed if subtask < len(old) else {}
        return replace(whole, keyed={group: data for group, data in whole.keyed.items() if group in before})

    patch.setattr(restoring, "restored_operator", own_only)


def deal_splits_out_twice(patch: pytest.MonkeyPatch) -> None:
    """Let every subtask restore all splits, so that several subtasks read the same split (RS-2)."""
    patch.setattr(restoring, "restored_operator", lambda old, subtask, **named: _all_splits(old, subtask, **named))


def _all_splits(old: Any, subtask: int, **named: Any) -> Any:
    whole = restored_operator(old, subtask, **named)
    states = tuple(
        replace(state, entries=tuple(dict.fromkeys(entry for each in old for entry in each.entries(state.name))))
        if state.name == "splits"
        else state
        for state in whole.states
    )
    return replace(whole, states=states)


def go_back_behind_a_newer_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """Restore the requested savepoint even if a newer checkpoint has completed since (CO-8)."""
    newest, saved = RestorePoint._newest_completed, Rescaler._saved
    patch.setattr(RestorePoint, "_newest_completed", lambda self: newest(self) if self.begun_from is None else None)

    def read(self: Rescaler, savepoint: Savepoint) -> Any:
        kept = self._coordinator.savepoints[savepoint.checkpoint_id or 0]
        return read_checkpoint(kept.stored(kept.record.graph))

    def later(self: Rescaler, rescale: Rescale, savepoint: Savepoint) -> None:
        """Pass the savepoint late to the code that requested it, so that a newer checkpoint can complete."""
        then = partial(saved, self, rescale, savepoint)
        self._env.scheduler.after(200_000, EventClass.TIMER, lambda _: then())

    patch.setattr(Rescaler, "_read", read)
    patch.setattr(Rescaler, "_saved", later)


# --- records that a restart repeats or loses --------------------------------------------------------------------------


def take_a_snapshot_with_the_first_barrier(patch: pytest.MonkeyPatch) -> None:
    """In at-least-once mode, take the state at the first barrier. Records of slower channels are then lost (ALO-1)."""

    barrier = AtLeastOnce.barrier

    def hasty(self: AtLeastOnce, channel: int, which: Barrier, now_us: int) -> list[Any]:
        if which.checkpoint_id <= self.current_id:
            return []
        opened, self._open = self._open, 1
        commands = barrier(self, channel, which, now_us)
        self._open, self.current_id = opened, which.checkpoint_id
        return commands

    patch.setattr(AtLeastOnce, "barrier", hasty)


def do_not_count_what_comes_again(patch: pytest.MonkeyPatch) -> None:
    """Leave some records out of the count of repeated records (ALO-5).

    These are the records that a task processes after a barrier, and that its state contains.
    """
    patch.setattr(TaskCheckpointing, "processed", lambda self, channel, element: self.recheck(None))


def do_not_tell_what_a_restart_repeats(patch: pytest.MonkeyPatch) -> None:
    """Report that a restart repeats no records."""
    _constant(patch, "repeated_records")


def do_not_tell_what_a_restart_leaves_out(patch: pytest.MonkeyPatch) -> None:
    """Report that a restart without channel state lost nothing (RC-8)."""
    _constant(patch, "lost_channel_bytes")


def _constant(patch: pytest.MonkeyPatch, name: str) -> None:
    patch.setattr(Restart, name, property(lambda self: 0, lambda self, value: None))


def lose_transactions_and_do_not_name_them(patch: pytest.MonkeyPatch) -> None:
    """Do not report that a transaction which timed out is lost (SNK-4)."""
    commit = TransactionLedger.commit

    def silent(self: TransactionLedger, transaction: str) -> None:
        commit(self, transaction)
        self.lost.clear()

    patch.setattr(TransactionLedger, "commit", silent)


def show_what_has_timed_out(patch: pytest.MonkeyPatch) -> None:
    """Report a transaction as lost, but show its rows (SNK-4)."""
    commit = TransactionLedger.commit

    def shown(self: TransactionLedger, transaction: str) -> None:
        rows = list(self._open[transaction].rows) if transaction in self._open else []
        lost = len(self.lost)
        commit(self, transaction)
        if len(self.lost) > lost:
            self.rows.extend(rows)

    patch.setattr(TransactionLedger, "commit", shown)


_DROPPING: dict[str, object] = {f"{_CP}recover-without-channel-state.checkpoint-id": 3}
_DROPPED = (FaultSpec("coordinator.on-ack", hit=20),)
_SHORT: dict[str, object] = {"runtime.transaction-timeout": "140 ms"}


def _of(*variants: Variant) -> Iterator[tuple[str, Variant]]:
    for each in variants:
        name = each.breaks.__name__
        yield f"{name}-rescaled" if each.partitioner and each.breaks.__module__ != __name__ else name, each


VARIANTS: dict[str, Variant] = dict(
    _of(
        Variant(do_not_filter, "INV-4", partitioner="hash", rescales=_MAP_ONLY),
        Variant(give_channel_state_to_the_wrong_subtask, "INV-1", partitioner="rebalance", rescales=_MAP_ONLY),
        # The runtime itself detects that sender and receiver disagree on the channel (RS-6).
        Variant(put_channel_state_into_the_wrong_channel, "INV-8", partitioner="rebalance", rescales=_MAP_ONLY),
        Variant(stay_with_the_first_old_channel, "INV-1", partitioner="rebalance", rescales=_DOWN),
        Variant(restore_the_last_chunk_first, "INV-1", partitioner="rebalance", rescales=_DOWN),
        Variant(lose_an_old_channels_output, "INV-1", partitioner="rebalance", rescales=_OF_SOURCES),
        Variant(read_new_input_first, "INV-1", partitioner="rebalance", rescales=_UP),
        Variant(pass_by_the_end_of_recovery, "INV-1", partitioner="rebalance", rescales=_UP),
        Variant(leave_moved_keys_behind, "INV-4", protocol="aligned", partitioner="hash", rescales=_UP),
        Variant(deal_splits_out_twice, "INV-4", protocol="aligned", partitioner="hash", rescales=_MORE_SOURCES),
        Variant(go_back_behind_a_newer_checkpoint, "INV-10", partitioner="hash", rescales=_SAVED),
        Variant(take_a_snapshot_with_the_first_barrier, "INV-2", protocol=AT_LEAST_ONCE),
        Variant(do_not_count_what_comes_again, "INV-15", protocol=AT_LEAST_ONCE),
        Variant(do_not_tell_what_a_restart_repeats, "INV-15", protocol=AT_LEAST_ONCE, plan=_CRASH),
        Variant(do_not_tell_what_a_restart_leaves_out, "INV-15", plan=_DROPPED, config=_DROPPING),
        Variant(lose_transactions_and_do_not_name_them, "INV-15", config=_SHORT),
        Variant(show_what_has_timed_out, "INV-5", config=_SHORT),
    )
)
