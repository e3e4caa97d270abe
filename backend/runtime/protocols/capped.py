"""Unaligned checkpoints with a cap on the persisted in-flight bytes (runtime.md 2.10: CAP-1 to CAP-6).

Barriers overtake queued data. The arrival of a barrier sets the cut of its channel: the task still processes the data
that arrived on the channel before the barrier, and none behind it. The task goes on processing the channels whose
barrier has not arrived. Once every barrier has arrived, the task takes its snapshot as soon as the data that it would
persist fits the cap, or as soon as all input in front of the cuts is processed. In the second case, its barrier waits
in the output until the output in front of it fits the cap, and then overtakes it (CAP-3). The same holds for a source,
which has no input. The function ``in_flight`` returns the size of the data that the task would persist.

A barrier that waits in the output becomes aligned instead if the cap is lower than ``begun_bytes_max``. A receiver
cannot process a record before its end has arrived. If a barrier overtook the ends of such records, their beginnings
would not fit the receiver's cap, however long the receiver waited.

The snapshot never starts before the last barrier. Otherwise the task would have to stop reading some channels to keep
to the cap. A sender that waits until its output is read would then never send its barrier (PROTOCOL.md, CAP-2).
"""

from __future__ import annotations

from collections.abc import Callable

from backend.domain.failure import FailureReason
from backend.runtime.core.elements import Alignment, Barrier, SnapshotType
from backend.runtime.job.config import OnCap, RuntimeConfig
from backend.runtime.measure.cap_decisions import CapAction, CapDecision
from backend.runtime.protocols.base import (
    Began,
    Block,
    Close,
    Command,
    Ended,
    GiveUp,
    Persist,
    Reopen,
    Resume,
    SetStallTimer,
    Snapshot,
)
from backend.runtime.protocols.mode import InFlight, ProtocolMode, TaskView


class Capped:
    """One checkpoint with a cap on in-flight data, at one task."""

    def __init__(
        self,
        open_channels: frozenset[int],
        *,
        cap_bytes: int,
        in_flight: Callable[[], InFlight],
        has_front: Callable[[], bool],
        declines: bool,
        is_partial: bool = False,
        begun_bytes_max: int = 0,
        decided: Callable[[CapDecision], None] = lambda _: None,
    ) -> None:
        self._open = open_channels
        self._cap_bytes = cap_bytes
        self._in_flight = in_flight
        self._has_front = has_front
        self._declines = declines
        self._is_partial = is_partial
        self._begun_bytes_max = begun_bytes_max
        self._decided = decided
        self._complete_since: tuple[int, int] | None = None
        """When the last barrier arrived, and the in-flight bytes at that time. None before the last barrier."""
        self._arrived: set[int] = set()
        self._closed: set[int] = set()
        self._blocked: set[int] = set()
        self._barrier: Barrier | None = None
        self.is_done = False

    @property
    def held(self) -> frozenset[int]:
        """The channels that are blocked after an aligned barrier."""
        return frozenset(self._blocked)

    def announcement(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Do nothing: barriers of capped checkpoints are not announced."""
        return []

    def barrier(self, channel: int, barrier: Barrier, now_us: int) -> list[Command]:
        """Close the channel, or block it if the barrier is aligned.

        Then snapshot if all barriers have arrived and the cap allows it (CAP-2, CAP-3).
        """
        commands: list[Command] = []
        if self._barrier is None:
            self._barrier = barrier
            commands += [Began(barrier), SetStallTimer(self._cap_bytes)]
        self._arrived.add(channel)
        if barrier.is_blocking:
            self._blocked.add(channel)
            commands.append(Block(channel))
        else:
            self._closed.add(channel)
            commands.append(Close(channel))
        return commands + self._advance(now_us)

    def end_of_partition(self, channel: int, now_us: int) -> list[Command]:
        """Stop expecting a barrier from the ended channel (AL-7).

        Then snapshot if all other barriers have arrived and the cap allows it.
        """
        self._open -= {channel}
        for channels in (self._arrived, self._closed, self._blocked):
            channels.discard(channel)
        return [] if self._barrier is None else self._advance(now_us)

    def timer(self, now_us: int) -> list[Command]:
        """Give up the checkpoint, because no data has moved for the stall time (CAP-2)."""
        if self._barrier is None or self.is_done:
            return []
        now = self._in_flight()
        return self._give_up(now.input_bytes + now.output_bytes, now_us)

    def recheck(self, now_us: int) -> list[Command]:
        """Snapshot if the in-flight data fits the cap now, because data has moved (CAP-3)."""
        return [] if self._barrier is None or self.is_done else self._advance(now_us)

    def _advance(self, now_us: int) -> list[Command]:
        assert self._barrier is not None
        if not self._arrived >= self._open:
            return []
        now = self._in_flight()
        in_flight_bytes = now.input_bytes + now.output_bytes
        if self._complete_since is None:
            self._complete_since = (now_us, in_flight_bytes)
        if in_flight_bytes <= self._cap_bytes:
            is_first = self._complete_since[1] <= self._cap_bytes
            self._record(in_flight_bytes, now_us, CapAction.OVERTOOK if is_first else CapAction.WAITED)
            snapshot: list[Command] = [Persist(), Snapshot(self._barrier.as_unaligned())]
        elif self._is_partial and now.input_bytes <= self._cap_bytes:
            self._record(in_flight_bytes, now_us, CapAction.PARTIAL)
            left_bytes = self._cap_bytes - now.input_bytes
            snapshot = [Persist(), Snapshot(self._barrier.as_unaligned(), output_bytes_max=left_bytes)]
        elif now.input_bytes <= self._cap_bytes and not self._has_front():
            # What is left of the input is the beginning of records, whose ends are behind the cuts.
            self._record(in_flight_bytes, now_us, CapAction.ALIGNED)
            waiting = _waiting(self._barrier, self._cap_bytes, now.input_bytes, self._begun_bytes_max)
            snapshot = [Persist(), waiting] if now.input_bytes else [waiting]
        else:
            return self._give_up(in_flight_bytes, now_us) if self._declines else []
        self.is_done = True
        commands = [*snapshot, *self._reopened(), Ended(), *(Resume(c) for c in sorted(self._blocked))]
        self._blocked.clear()
        return commands

    def _reopened(self) -> list[Command]:
        closed = sorted(self._closed)
        self._closed.clear()
        return [Reopen(c) for c in closed]

    def _record(self, in_flight_bytes: int, now_us: int, action: CapAction) -> None:
        since_us, before_bytes = self._complete_since or (now_us, in_flight_bytes)
        self._decided(CapDecision(self._cap_bytes, before_bytes, in_flight_bytes, now_us - since_us, action))

    def _give_up(self, in_flight_bytes: int, now_us: int) -> list[Command]:
        assert self._barrier is not None
        self._record(in_flight_bytes, now_us, CapAction.DECLINED)
        given_up = GiveUp(self._barrier.checkpoint_id, FailureReason.INFLIGHT_LIMIT_EXCEEDED)
        return [Ended(), *self._reopened(), given_up]


def _barrier(_: RuntimeConfig, checkpoint_id: int, now_us: int, __: SnapshotType) -> Barrier:
    return Barrier(checkpoint_id, now_us, Alignment.UNALIGNED, is_capped=True)


def _make(_: Barrier, open_channels: frozenset[int], view: TaskView) -> Capped:
    cap = view.cap
    assert cap is not None
    on_cap = cap.on_cap()
    return Capped(
        open_channels,
        cap_bytes=cap.cap_bytes(),
        in_flight=cap.in_flight,
        has_front=view.has_front,
        declines=on_cap is OnCap.DECLINE,
        is_partial=on_cap is OnCap.PARTIAL,
        begun_bytes_max=cap.begun_bytes_max(),
        decided=cap.decided,
    )


def _waiting(barrier: Barrier, cap_bytes: int, input_bytes: int, begun_bytes_max: int) -> Snapshot:
    """Return the command for a barrier that overtakes once the output in front of it fits the cap (CAP-3)."""
    if cap_bytes < begun_bytes_max:
        return Snapshot(barrier.as_aligned())
    return Snapshot(barrier.as_unaligned(), output_bytes_max=cap_bytes - input_bytes, overtakes_later=True)


def _at_source(barrier: Barrier, view: TaskView) -> list[Command]:
    """Return the commands for a source, which snapshots or declines immediately, because it waits for no input.

    If the queued output does not fit the cap, the settings decide: the barrier overtakes once the output in front of it
    fits, it overtakes only a part of the output, or the source declines the checkpoint (CAP-3 to CAP-5).
    """
    cap = view.cap
    assert cap is not None
    cap_bytes, output_bytes, on_cap = cap.cap_bytes(), cap.in_flight().output_bytes, cap.on_cap()
    command: Command
    if output_bytes <= cap_bytes:
        action, command = CapAction.OVERTOOK, Snapshot(barrier)
    elif on_cap is OnCap.DECLINE:
        action = CapAction.DECLINED
        command = GiveUp(barrier.checkpoint_id, FailureReason.INFLIGHT_LIMIT_EXCEEDED)
    elif on_cap is OnCap.PARTIAL:
        action, command = CapAction.PARTIAL, Snapshot(barrier, output_bytes_max=cap_bytes)
    else:
        action, command = CapAction.ALIGNED, _waiting(barrier, cap_bytes, 0, cap.begun_bytes_max())
    cap.decided(CapDecision(cap_bytes, output_bytes, output_bytes, 0, action))
    return [command]


MODE = ProtocolMode(
    name="unaligned with a cap",
    is_chosen=lambda config: config.is_unaligned and config.has_cap,
    has_channel_state=True,
    barrier=_barrier,
    handles=lambda barrier: barrier.is_capped,
    make=_make,
    at_source=_at_source,
)
