"""Buffer debloating: sets how many bytes a sender puts into a buffer, so that less data is queued (runtime.md 3.4).

The aim is that the receiver can consume the queued data within a target time, which the settings choose. Each gate (the
channels of one subtask over one edge) measures how many bytes it consumed while the subtask had input. From this
throughput and the number of buffers in use, it computes a smoothed buffer size and announces it to its senders (test
vectors: DB-7, DB-8). The queued data then approaches throughput times target time (DB-10). The number of buffers stays
the same; only the bytes in each buffer change (DB-9). ``next_size`` and ``Estimator`` only compute; ``Debloating``
applies them to one job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backend.runtime.core.scheduler import EventClass
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.measure.measures import TaskKey, Usage
from backend.runtime.network.channel import InputChannel
from backend.runtime.task.environment import Environment
from backend.runtime.task.task import Task, TaskStatus


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the buffer size, and the settings for smoothing and announcing it."""

    bytes_min: int
    bytes_max: int
    target_ms: int
    samples: int
    threshold_percent: int


def next_size(last: int, instant: int, limits: Limits) -> int:
    """Return the exponentially smoothed buffer size in bytes, truncated and limited to the bounds (DB-4).

    Integer arithmetic keeps the size exact.
    """
    weight = limits.samples + 1
    smoothed = (last * weight + 2 * (instant - last)) // weight
    return max(limits.bytes_min, min(smoothed, limits.bytes_max))


class Estimator:
    """Computes one gate's buffer size, the size to announce to its senders, and the time to consume its buffers."""

    def __init__(self, bytes_max: int) -> None:
        self.size_bytes = bytes_max
        self.announced_bytes = bytes_max
        self.time_to_consume_ms = 0

    def update(self, throughput_bytes_per_s: int, buffers_in_use: int, limits: Limits) -> int | None:
        """Update the buffer size (DB-2 to DB-6).

        Return the size to announce to the senders, in bytes, or None if the announced size remains in force.
        """
        in_use = max(1, buffers_in_use)
        desired_total = throughput_bytes_per_s * limits.target_ms // 1000
        instant = min(desired_total // in_use, 2 * self.size_bytes)
        size = self.size_bytes = next_size(self.size_bytes, instant, limits)
        self.time_to_consume_ms = size * in_use * 1000 // max(1, throughput_bytes_per_s)
        if self._is_kept(size, limits):
            return None
        self.announced_bytes = size
        return size

    def _is_kept(self, size: int, limits: Limits) -> bool:
        announced = self.announced_bytes
        if size == announced:
            return True
        if size <= limits.bytes_min or size >= limits.bytes_max:
            return False
        return abs(size - announced) < announced * limits.threshold_percent // 100


class GateDebloater:
    """Measures the throughput of one gate of one subtask (DB-1), and announces buffer sizes to its senders."""

    def __init__(self, task: Task, edge: int, channels: Sequence[InputChannel]) -> None:
        self._task = task
        self._channels = channels
        self.edge = edge
        self.estimator = Estimator(task.env.config.segment_bytes)
        self.throughput_bytes_per_s = 0
        self._measured_us = 0
        self._idle_us = 0
        self._received_bytes = 0
        self.restart()

    @property
    def buffers_in_use(self) -> int:
        """Number of buffers in use at the senders and at this gate. It may be 0, which DB-2 raises to 1."""
        return sum(channel.buffers_in_use for channel in self._channels)

    def restart(self) -> None:
        """Start a new measurement now."""
        now_us = self._task.env.now
        self._measured_us = now_us
        self._idle_us = self._task.account.settle(now_us)[Usage.IDLE.value]
        self._received_bytes = sum(channel.bytes_received for channel in self._channels)

    def recalculate(self) -> None:
        """Update the buffer size at the end of a period. If the subtask had no input, use the last throughput."""
        now_us, idle_before_us = self._task.env.now, self._idle_us
        elapsed_us, before_bytes = now_us - self._measured_us, self._received_bytes
        self.restart()
        active_us = elapsed_us - (self._idle_us - idle_before_us)
        if active_us > 0:
            self.throughput_bytes_per_s = (self._received_bytes - before_bytes) * 1_000_000 // active_us
        limits = limits_of(self._task.env.config)
        announced = self.estimator.update(self.throughput_bytes_per_s, self.buffers_in_use, limits)
        if announced is not None:
            self._announce(announced)

    def switch_off(self) -> None:
        """Announce the full segment size to the senders again."""
        self.estimator = Estimator(self._task.env.config.segment_bytes)
        self._announce(self.estimator.announced_bytes)

    def _announce(self, size_bytes: int) -> None:
        for channel in self._channels:
            channel.announce_buffer_bytes(size_bytes)


class Debloating:
    """Debloats the buffers of all gates of a job. While debloating is off, it schedules no events."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._tasks: Sequence[Task] = ()
        self._gates: dict[TaskKey, tuple[GateDebloater, ...]] = {}
        self._epoch = 0
        self._is_on = False

    def gates(self, key: TaskKey) -> tuple[GateDebloater, ...]:
        """Return the gates of a subtask, in the order of their edges. While debloating is off, return no gates."""
        return self._gates.get(key, ())

    def begin(self, tasks: Sequence[Task]) -> None:
        """Use the new attempts of all tasks from now on, and start new measurements if debloating is on."""
        self._tasks = tasks
        self._is_on = False
        self._gates = {}
        self.reconfigured()

    def reconfigured(self) -> None:
        """Switch debloating on or off if its setting has changed."""
        is_on = self._env.config.is_debloating
        if is_on == self._is_on:
            return
        self._is_on = is_on
        self._epoch += 1
        if is_on:
            self._gates = {task.key: _gates_of(task) for task in self._tasks}
            self._schedule()
        else:
            for gates in self._gates.values():
                for gate in gates:
                    gate.switch_off()
            self._gates = {}

    def _schedule(self) -> None:
        self._env.scheduler.after(self._env.config.debloat_period_us, EventClass.TIMER, self._tick, self._epoch)

    def _tick(self, epoch: int) -> None:
        if epoch != self._epoch:
            return
        for task in self._tasks:
            # Recovered data did not arrive in senders' buffers, so a subtask that is still recovering is not
            # measured.
            if task.status is TaskStatus.RUNNING and self._gates[task.key]:
                task.mail(_recalculate, self._gates[task.key])
        self._schedule()


def limits_of(config: RuntimeConfig) -> Limits:
    """Return the bounds and settings for buffer sizes that follow from ``config``."""
    return Limits(
        bytes_min=min(config.segment_bytes_min, config.segment_bytes),
        bytes_max=config.segment_bytes,
        target_ms=max(1, config.debloat_target_us // 1000),
        samples=config.debloat_samples,
        threshold_percent=config.debloat_threshold_percent,
    )


def _gates_of(task: Task) -> tuple[GateDebloater, ...]:
    by_edge: dict[int, list[InputChannel]] = {}
    for channel in task.gate.channels:
        by_edge.setdefault(channel.key.edge, []).append(channel)
    return tuple(GateDebloater(task, edge, channels) for edge, channels in sorted(by_edge.items()))


def _recalculate(gates: tuple[GateDebloater, ...]) -> None:
    for gate in gates:
        gate.recalculate()
