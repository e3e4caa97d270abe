"""Named failpoints (runtime.md 7.2): points in the code where a fault can be induced, and the plan that induces faults.

The code calls ``passed(point)`` at a point. If the plan names this pass of the point, the call raises
``InducedFailure``, which kills the job there: everything that is not yet durable is lost. At the points of messages,
the code calls ``message(point)`` instead, which returns the fault to apply to the message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from backend.runtime.core.prng import mix64
from backend.runtime.job.graph import FaultAction, FaultSpec


class FinishStep(StrEnum):
    """The steps by which a subtask ends (runtime.md 6.6), in their usual order. Each step is a failpoint too."""

    TIMERS_FIRED = "finish.timers-fired"
    MAX_WATERMARK = "finish.max-watermark"
    END_INPUT = "finish.end-input"
    FINISH = "finish.finish"
    END_OF_DATA = "finish.end-of-data"
    CLOSE = "finish.close"
    END_OF_PARTITION = "finish.end-of-partition"
    CLEANUP = "finish.cleanup"


COORDINATOR_POINTS = (
    "coordinator.before-id",
    "coordinator.after-id",
    "coordinator.before-location",
    "coordinator.before-first-rpc",
    "coordinator.between-rpcs",
    "coordinator.after-last-rpc",
    "coordinator.on-ack",
    "coordinator.before-metadata",
    "coordinator.mid-metadata",
    "coordinator.after-metadata",
    "coordinator.on-subsume",
    "coordinator.after-store",
    "coordinator.between-notifies",
    "coordinator.on-expiry",
)
TASK_POINTS = (
    "task.before-first-barrier",
    "task.after-first-barrier",
    "task.between-barriers",
    "task.before-forward",
    "task.between-outputs",
    "task.before-sync",
    "task.in-sync",
    "task.after-sync",
    "task.mid-upload",
    "task.before-ack",
    "task.after-ack",
    "task.in-notify",
)
UNALIGNED_POINTS = ("task.mid-channel-state",)
TIMEOUT_POINTS = ("task.after-announcement", "task.input-switch", "task.output-switch")
TIMER_POINTS = ("task.between-timers",)
SINK_POINTS = (
    "sink.before-pre-commit",
    "sink.after-pre-commit",
    "sink.before-commit",
    "sink.between-commits",
    "sink.after-commit",
)
SOURCE_POINTS = ("source.after-emit",)
FINISH_POINTS = tuple(step.value for step in FinishStep)
RECOVERY_POINTS = (
    "recovery.before-output",
    "recovery.mid-output",
    "recovery.in-operator",
    "recovery.mid-input",
    "recovery.before-new-data",
)
MESSAGE_POINTS = ("rpc.trigger", "rpc.ack", "rpc.notify", "rpc.abort", "rpc.decline")
STORE_POINTS = ("store.write", "coordinator.location", "coordinator.metadata")
"""Points of writes to the store.

With the action ``error``, the write of a snapshot, of a checkpoint's location or of its metadata fails. With the action
``delay``, the write of a snapshot takes longer.
"""
READ_POINTS = ("store.read",)
"""Points of reads from the store.

With the action ``error``, a restart fails to read its checkpoint, and is tried again. With the action ``corrupt``, one
bit of the checkpoint that is read is flipped.
"""
LINK_POINTS = ("link.send",)
"""Points of messages on a link between task managers.

The action ``delay`` delays a message and all later messages on the link. The action ``stall`` stops the link in both
directions for a while.
"""
POINTS = (
    *COORDINATOR_POINTS,
    *TASK_POINTS,
    *UNALIGNED_POINTS,
    *TIMEOUT_POINTS,
    *TIMER_POINTS,
    *SINK_POINTS,
    *SOURCE_POINTS,
    *RECOVERY_POINTS,
    *MESSAGE_POINTS,
    *STORE_POINTS,
    *READ_POINTS,
    *LINK_POINTS,
)


def actions_at(point: str) -> tuple[FaultAction, ...]:
    """Return the actions that are possible at a point."""
    if point in MESSAGE_POINTS:
        return (FaultAction.DROP, FaultAction.DUPLICATE, FaultAction.DELAY)
    if point in STORE_POINTS:
        return (FaultAction.ERROR, FaultAction.DELAY) if point == "store.write" else (FaultAction.ERROR,)
    if point in READ_POINTS:
        return (FaultAction.ERROR, FaultAction.CORRUPT)
    return (FaultAction.DELAY, FaultAction.STALL) if point in LINK_POINTS else (FaultAction.CRASH,)


class InducedFailure(Exception):  # noqa: N818 - the field says failure
    """Raised at a failpoint to kill the job. It is not a defect: the engine catches it and restarts the job."""

    def __init__(self, point: str, task: str | None) -> None:
        self.point = point
        self.task = task
        super().__init__(f"induced failure at {point}")


class Faults:
    """The fault plan of one run. It counts how often a fault has struck at each point."""

    def __init__(self, plan: Sequence[FaultSpec], now_us: Callable[[], int]) -> None:
        self.struck: Counter[str] = Counter()
        self._now_us = now_us
        self._waiting: dict[str, list[FaultSpec]] = {}
        self._armed: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
        for fault in plan:
            self._waiting.setdefault(fault.point, []).append(fault)

    def passed(self, point: str, task: str | None = None) -> None:
        """Check whether the plan induces a failure at this pass of ``point``.

        Raises:
            InducedFailure: the plan induces a failure at this pass.
        """
        if self._waiting.get(point) and self._due(point) is not None:
            raise InducedFailure(point, task)

    def message(self, point: str) -> FaultSpec | None:
        """Return the fault to apply to a message, or None if the message is to be handled as usual."""
        return self._due(point)

    def concerns(self, point: str) -> bool:
        """Return whether the plan names the point."""
        return point in self._waiting

    def _due(self, point: str) -> FaultSpec | None:
        waiting = self._waiting.get(point)
        if not waiting:
            return None
        now_us = self._now_us()
        for fault in waiting:
            if now_us < fault.at_us:
                continue
            self._armed[point] += 1
            if self._armed[point] >= fault.hit:
                self.struck[point] += 1
                self._repeated[point] += 1
                if self._repeated[point] >= fault.times:
                    waiting.remove(fault)
                    self._armed[point] = self._repeated[point] = 0
                return fault
            return None
        return None


def corrupted(metadata: bytes, files: Mapping[str, bytes], *, draw: int) -> tuple[bytes, dict[str, bytes]]:
    """Return a checkpoint's metadata and files with one bit flipped. ``draw`` determines which bit."""
    damaged = dict(files)
    written = [name for name in sorted(files) if files[name]]
    name = [*written, None][mix64(draw) % (len(written) + 1)]
    part = metadata if name is None else files[name]
    bit = mix64(draw + 1) % (len(part) * 8)
    part = b"".join((part[: bit // 8], bytes([part[bit // 8] ^ 1 << bit % 8]), part[bit // 8 + 1 :]))
    if name is None:
        return part, damaged
    damaged[name] = part
    return metadata, damaged
