"""Broken variants of Chandy-Lamport checkpoints (T-9). Each variant has one error, which an invariant must catch."""

from __future__ import annotations

from typing import Any

import pytest

from backend.runtime.core.elements import Barrier
from backend.runtime.network.channel import InputChannel
from backend.runtime.protocols.base import COORDINATOR, Ended, Persist, Snapshot
from backend.runtime.protocols.chandy_lamport import ChandyLamport
from tests.simulators.broken_protocols import Variant, forward_one_record_late

_MARKERS = "chandy-lamport"
_EVERY_TASK: dict[str, object] = {"runtime.chandy-lamport.initiation": "all-tasks", "runtime.cost.trigger": "3 ms"}


def snapshot_at_the_last_marker(patch: pytest.MonkeyPatch) -> None:
    """Log from the first marker on, but take the state at the last marker (CL-9).

    The records between these markers are then both logged and in the state.
    """

    def start(self: ChandyLamport, barrier: Barrier) -> list[Any]:
        self._is_snapshot_taken = True
        self._late = barrier
        return [Persist()]

    def complete(self: ChandyLamport) -> list[Any]:
        if not self._is_snapshot_taken or not self._open <= self._arrived:
            return []
        self.is_done = True
        return [Snapshot(self._late), Ended()]

    patch.setattr(ChandyLamport, "start", start)
    patch.setattr(ChandyLamport, "_complete", complete)


def start_with_the_coordinators_message_only(patch: pytest.MonkeyPatch) -> None:
    """Ignore the markers that arrive before the coordinator's message (CL-1)."""
    barrier = ChandyLamport.barrier

    def deaf(self: ChandyLamport, channel: int, which: Barrier, now_us: int) -> list[Any]:
        if channel != COORDINATOR and not self._is_snapshot_taken:
            self._arrived.add(channel)
            return []
        return barrier(self, channel, which, now_us)

    patch.setattr(ChandyLamport, "barrier", deaf)


def forward_the_marker_late(patch: pytest.MonkeyPatch) -> None:
    """Send the marker after the next record, although the snapshot does not include this record (CL-2)."""
    forward_one_record_late(patch)


def log_behind_the_marker(patch: pytest.MonkeyPatch) -> None:
    """Continue to log a channel after its marker has arrived (CL-3)."""
    patch.setattr(InputChannel, "_barrier_came", lambda *_: None)


def log_nothing(patch: pytest.MonkeyPatch) -> None:
    """Take the snapshot at the first marker, but log no channel (CL-3)."""
    patch.setattr(InputChannel, "start_persisting", lambda *_: None)


VARIANTS: dict[str, Variant] = {
    each.breaks.__name__: each
    for each in (
        Variant(snapshot_at_the_last_marker, "INV-3", protocol=_MARKERS),
        Variant(start_with_the_coordinators_message_only, "INV-3", protocol=_MARKERS, config=_EVERY_TASK),
        Variant(forward_the_marker_late, "INV-2", protocol=_MARKERS),
        Variant(log_behind_the_marker, "INV-2", protocol=_MARKERS),
        Variant(log_nothing, "INV-2", protocol=_MARKERS),
    )
}
