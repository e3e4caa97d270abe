"""The cost of each restart of a job: its parts, and how long each subtask took to initialise (ME-17, RC-11).

The runtime notices a failure in the same event in which the failure happens, so detection takes no time. The other
parts overlap: subtasks load in parallel, and sources replay while other subtasks still process recovered data.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from backend.runtime.measure.measures import SubtaskSnapshot, TaskKey
from backend.runtime.operators.sources import Source, held_splits


@dataclass(slots=True)
class Initialization:
    """The durations of one subtask's initialisation, in microseconds (ME-17).

    The durations follow one another. A time that is None has not been reached.
    """

    deployed_at_us: int
    read_output_us: int = 0
    initialize_state_us: int = 0
    replay_us: int = 0
    """The time to apply the changes of an incremental checkpoint to the whole state that precedes them (IN-9)."""
    read_input_us: int = 0
    gate_restored_at_us: int | None = None
    running_at_us: int | None = None
    state_bytes: int = 0
    channel_bytes: int = 0
    local_bytes: int = 0
    """The part of the state that came from the worker's own copy, without a transfer (RC-10)."""
    records_filtered: int = 0
    """Recovered records that this subtask dropped, because another subtask owns them at the new parallelism (RS-9)."""
    records_before_watermark: int | None = 0
    """The records that an operator with event time took before its watermark was again that of the checkpoint (RC-9).

    None until then. Without the failure, they would have met that watermark or a later one.
    """
    has_stored_watermark: bool = False
    """Whether the operator had stored the watermark, so that these records met it all the same."""

    @property
    def mailbox_start_us(self) -> int:
        """The time from the deployment until the mailbox started to run."""
        return self.read_output_us + self.initialize_state_us + self.replay_us + self.read_input_us

    @property
    def gate_restore_us(self) -> int | None:
        """The time from the start of the mailbox until all recovered input was processed; None until then."""
        if self.gate_restored_at_us is None:
            return None
        return self.gate_restored_at_us - self.deployed_at_us - self.mailbox_start_us

    @property
    def until_running_us(self) -> int | None:
        """The time from the deployment until the subtask was running; None until then."""
        return None if self.running_at_us is None else self.running_at_us - self.deployed_at_us


def initialization(
    snapshot: SubtaskSnapshot | None, *, now_us: int, bytes_per_s: int, has_local_copy: bool = False
) -> Initialization:
    """Return the parts of one subtask's load time. Their sum is the transfer time of all loaded bytes."""
    if snapshot is None:
        return Initialization(now_us)
    local_bytes = 0
    if has_local_copy:
        entries = (entry for operator in snapshot.operators for state in operator.states for entry in state.entries)
        local_bytes = max(0, snapshot.state_bytes - sum(map(len, entries)))
    state_bytes = snapshot.state_bytes - local_bytes
    output_bytes = sum(len(chunk) for chunks in snapshot.channels.outputs.values() for chunk in chunks)
    output_us = output_bytes * 1_000_000 // bytes_per_s
    state_us = (output_bytes + state_bytes) * 1_000_000 // bytes_per_s - output_us
    all_us = (state_bytes + snapshot.persisted_bytes) * 1_000_000 // bytes_per_s
    return Initialization(
        now_us,
        read_output_us=output_us,
        initialize_state_us=state_us,
        read_input_us=all_us - output_us - state_us,
        state_bytes=snapshot.state_bytes,
        channel_bytes=snapshot.persisted_bytes,
        local_bytes=local_bytes,
    )


@dataclass(slots=True)
class Restart:
    """One restart of the job and its cost (RC-11), or its start from a checkpoint of another run.

    Times are virtual microseconds. A value that is None has not been reached, or does not apply.
    """

    failed_at_us: int
    cause: str
    source_offsets: Mapping[TaskKey, int]
    """The offset that each source subtask had reached when the job failed."""
    deployed_at_us: int | None = None
    restored_id: int | None = None
    subtasks: dict[TaskKey, Initialization] = field(default_factory=dict)
    lost_channel_bytes: int = 0
    """The in-flight bytes of the checkpoint that were discarded on request (RC-8)."""
    repeated_records: int = 0
    """The number of records that are processed again although the state contains them (at-least-once mode, ALO-5)."""
    is_interrupted: bool = False
    """Whether the job stopped again before every subtask was running."""
    is_start: bool = False
    """Whether the job started from a checkpoint of another run. Nobody knows then how far that one's sources read."""
    replayed: dict[TaskKey, int] = field(default_factory=dict)
    caught_up: dict[TaskKey, int] = field(default_factory=dict)

    @property
    def restart_us(self) -> int | None:
        """The time from the failure to the deployment; None until then."""
        return None if self.deployed_at_us is None else self.deployed_at_us - self.failed_at_us

    @property
    def state_load_us(self) -> int:
        """The longest time that any subtask took to load its state."""
        return max((i.initialize_state_us + i.replay_us for i in self.subtasks.values()), default=0)

    @property
    def replay_us(self) -> int:
        """The longest time that any subtask took to apply changes, which is part of ``state_load_us`` (IN-9)."""
        return max((i.replay_us for i in self.subtasks.values()), default=0)

    @property
    def channel_load_us(self) -> int:
        """The longest time that any subtask took to load its in-flight data."""
        return max((i.read_output_us + i.read_input_us for i in self.subtasks.values()), default=0)

    @property
    def channel_replay_us(self) -> int | None:
        """The time from the end of the last load until every subtask was running; None until then.

        In that time, subtasks process their recovered data.
        """
        running = self.running_at_us
        if running is None:
            return None
        return running - max(i.deployed_at_us + i.mailbox_start_us for i in self.subtasks.values())

    @property
    def running_at_us(self) -> int | None:
        """When the last subtask started to run; None until all are running."""
        instants = [i.running_at_us for i in self.subtasks.values()]
        return _last(instants) if instants else None

    @property
    def source_replay_us(self) -> int | None:
        """The time from the deployment until every source had reached the offset at which the job failed."""
        return None if self.is_start else self._since_deployed(self.replayed)

    @property
    def catch_up_us(self) -> int | None:
        """The time from the deployment until every source had emitted all records that were due."""
        return self._since_deployed(self.caught_up)

    @property
    def records_before_watermark(self) -> int | None:
        """The records that met another watermark than without the failure, if it were not stored (RC-9); None if open.

        They are those that arrived before the watermark of the checkpoint was reached again.
        """
        return self._records_before(self.subtasks.values())

    @property
    def records_with_other_watermark(self) -> int | None:
        """The records that did meet another watermark than without the failure; None if this is not known yet."""
        return self._records_before(i for i in self.subtasks.values() if not i.has_stored_watermark)

    @staticmethod
    def _records_before(subtasks: Iterable[Initialization]) -> int | None:
        counts = [i.records_before_watermark for i in subtasks]
        return None if None in counts else sum(c for c in counts if c is not None)

    @property
    def costs(self) -> dict[str, int | None]:
        """The costs by name, for display (RC-11). Durations are in microseconds, and overlap."""
        return {
            "state_load_us": self.state_load_us,
            "replay_us": self.replay_us,
            "channel_load_us": self.channel_load_us,
            "channel_replay_us": self.channel_replay_us,
            "source_replay_us": self.source_replay_us,
            "catch_up_us": self.catch_up_us,
            "lost_channel_bytes": self.lost_channel_bytes,
            "repeated_records": self.repeated_records,
            "records_before_watermark": self.records_before_watermark,
            "records_with_other_watermark": self.records_with_other_watermark,
        }

    def _since_deployed(self, instants: Mapping[TaskKey, int]) -> int | None:
        last = _last([instants.get(key) for key in self.source_offsets])
        return None if last is None or self.deployed_at_us is None else last - self.deployed_at_us

    # --- reports from the sources ---------------------------------------------------------------------------------

    def emitted(self, key: TaskKey, offset: int, now_us: int) -> bool:
        """Handle the report that a source emitted a record. Return whether the source must report later records too."""
        if key not in self.replayed and offset >= self.source_offsets.get(key, 0):
            self.replayed[key] = now_us
        return key not in self.caught_up

    def waits(self, key: TaskKey, offset: int, now_us: int) -> None:
        """Handle the report that a source has caught up, which means that none of its records is due."""
        self.emitted(key, offset, now_us)
        self.caught_up.setdefault(key, now_us)


def _last(instants: Sequence[int | None]) -> int | None:
    known = [at for at in instants if at is not None]
    return max(known) if known and len(known) == len(instants) else None


class SourceReader(Protocol):
    """A subtask that may read a source. ``source`` is None if the subtask does not read one."""

    key: TaskKey
    source: Source | None


class OffsetsReached:
    """The highest offset that any attempt has reached in each split of each source.

    It does not matter which subtask read the split.
    """

    def __init__(self) -> None:
        self._offsets: dict[tuple[int, int], int] = {}

    def note(self, tasks: Sequence[SourceReader]) -> None:
        """Store the offsets of these subtasks, whose attempt ends now."""
        for task in tasks:
            for split in task.source.splits if task.source is not None else ():
                name = task.key[0], split.number
                self._offsets[name] = max(self._offsets.get(name, 0), split.offset)

    def of(self, tasks: Sequence[SourceReader], snapshots: Mapping[TaskKey, SubtaskSnapshot]) -> dict[TaskKey, int]:
        """Return, for each source subtask, the sum of the highest offsets of its splits.

        The splits are those of the subtask's snapshot, or those that it reads now if it has no snapshot.
        """
        sums: dict[TaskKey, int] = {}
        for task in tasks:
            if task.source is not None:
                snapshot = snapshots.get(task.key)
                own = held_splits(snapshot.operators[0]) if snapshot else [s.number for s in task.source.splits]
                sums[task.key] = sum(self._offsets.get((task.key[0], split), 0) for split in own)
        return sums
