"""Named failpoints (runtime.md 7.2): places in the runtime where a fault can be induced, and the plan that induces it.

Code calls ``passed(point)``; a plan that names the point and the pass raises ``InducedFailure`` there, which kills the
job at exactly this place: whatever was not yet durable is lost. Points of messages answer with what is to become of
the message instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from backend.runtime.core.prng import mix64
from backend.runtime.job.graph import FaultAction, FaultSpec

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
RECOVERY_POINTS = (
    "recovery.before-output",
    "recovery.mid-output",
    "recovery.in-operator",
    "recovery.mid-input",
    "recovery.before-new-data",
)
MESSAGE_POINTS = ("rpc.trigger", "rpc.ack", "rpc.notify", "rpc.abort", "rpc.decline")
STORE_POINTS = ("store.write", "coordinator.location", "coordinator.metadata")
"""With the action ``error`` a write fails: of a snapshot, of a checkpoint's place, of its metadata. ``delay`` makes a
snapshot's write slow."""
READ_POINTS = ("store.read",)
"""With ``error`` a restart cannot read its checkpoint and tries again; with ``corrupt`` a bit of it is turned."""
LINK_POINTS = ("link.send",)
"""With the action ``delay`` what is sent arrives late, and all behind it; with ``stall`` nothing passes meanwhile in
either direction."""
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
    """The actions that are possible at a point."""
    if point in MESSAGE_POINTS:
        return (FaultAction.DROP, FaultAction.DUPLICATE, FaultAction.DELAY)
    if point in STORE_POINTS:
        return (FaultAction.ERROR, FaultAction.DELAY) if point == "store.write" else (FaultAction.ERROR,)
    if point in READ_POINTS:
        return (FaultAction.ERROR, FaultAction.CORRUPT)
    return (FaultAction.DELAY, FaultAction.STALL) if point in LINK_POINTS else (FaultAction.CRASH,)


class InducedFailure(Exception):  # noqa: N818 - the field says failure
    """The job dies here, on purpose. Not an error of ours: the engine catches it and restarts the job."""

    def __init__(self, point: str, task: str | None) -> None:
        self.point = point
        self.task = task
        super().__init__(f"induced failure at {point}")


class Faults:
    """The plan of one run, and what of it has struck."""

    def __init__(self, plan: Sequence[FaultSpec], now_us: Callable[[], int]) -> None:
        self.struck: Counter[str] = Counter()
        self._now_us = now_us
        self._waiting: dict[str, list[FaultSpec]] = {}
        self._armed: Counter[str] = Counter()
        self._repeated: Counter[str] = Counter()
        for fault in plan:
            self._waiting.setdefault(fault.point, []).append(fault)

    def passed(self, point: str, task: str | None = None) -> None:
        """The run is at ``point``.

        Raises:
            InducedFailure: the plan says that it ends here.

        """
        if self._waiting.get(point) and self._due(point) is not None:
            raise InducedFailure(point, task)

    def message(self, point: str) -> FaultSpec | None:
        """What is to become of a message; None: nothing unusual."""
        return self._due(point)

    def concerns(self, point: str) -> bool:
        """Whether the plan names the point at all."""
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
    """A checkpoint's bytes with one bit turned, in the metadata or in a file: which one, the draw says."""
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
