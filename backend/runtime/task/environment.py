"""The objects that all parts of one running job share: time, settings, faults, messages, store, log."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from backend.runtime.core.barrier_log import BarrierLog
from backend.runtime.core.provenance import Provenance
from backend.runtime.core.scheduler import Action, EventClass, Scheduler
from backend.runtime.job.config import RuntimeConfig
from backend.runtime.job.faults import Faults, FinishStep
from backend.runtime.job.graph import FaultAction, Graph
from backend.runtime.measure.measures import TaskKey
from backend.runtime.operators.storage import SnapshotStore, TransactionLedger, Upload
from backend.runtime.snapshot.channel_files import ChannelFiles
from backend.runtime.snapshot.local_copies import LocalCopies
from backend.runtime.snapshot.shared_files import SharedFiles
from backend.runtime.task.messages import (
    AckMessage,
    BacklogMessage,
    DeclineMessage,
    EndOfDataMessage,
    FinishedMessage,
)


class CoordinatorPort(Protocol):
    """The part of the coordinator's interface that tasks use."""

    def on_ack(self, message: AckMessage) -> None:
        """Handle a subtask's acknowledgement of a checkpoint."""
        ...

    def on_decline(self, message: DeclineMessage) -> None:
        """Handle a subtask's decline of a checkpoint."""
        ...

    def on_backlog(self, message: BacklogMessage) -> None:
        """Handle a source's report that it started or finished working off a backlog (SRC-5)."""
        ...

    def on_end_of_data(self, message: EndOfDataMessage) -> None:
        """Handle a subtask's report that its data has ended (FN-25)."""
        ...

    def on_finished(self, message: FinishedMessage) -> None:
        """Handle a subtask's report that it has finished (FN-28)."""
        ...

    def cap_bytes(self, task: TaskKey) -> int:
        """Return the in-flight cap of one subtask, in bytes (CAP-6)."""
        ...


class Environment:
    """The objects that the parts of one job share. A change of a setting replaces ``config`` as a whole."""

    coordinator: CoordinatorPort

    def __init__(
        self,
        *,
        scheduler: Scheduler,
        config: RuntimeConfig,
        graph: Graph,
        faults: Faults,
        store: SnapshotStore,
        ledger: TransactionLedger,
        log: BarrierLog,
        provenance: Provenance,
        seed: int,
        is_size_only: bool = False,
        is_stepwise: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.config = config
        self.graph = graph
        self.faults = faults
        self.store = store
        self.ledger = ledger
        self.log = log
        self.provenance = provenance
        self.seed = seed
        self.local = LocalCopies()
        self.files = SharedFiles()
        self.channel_files = ChannelFiles()
        self.finish_steps: list[tuple[int, TaskKey, FinishStep, int | None]] = []
        """The steps by which the subtasks of this attempt have ended: the time, the subtask, the step, and the edge
        that ended at ``FinishStep.END_INPUT``.
        """
        self.is_size_only = is_size_only
        """Whether only the sizes of records are tracked, not their bytes (``network.spans``)."""
        self.coordinator_busy_until_us = 0
        """Until when the coordinator sends trigger messages, if that takes time (CL-7)."""
        self.message_wait_max_us = 0
        """The longest time that another message waited because the coordinator sent trigger messages (CL-7)."""
        self.is_stepwise = is_stepwise
        """Whether every step is a separate event. The run has the same result but is slower (``running_ahead.py``)."""

    @property
    def now(self) -> int:
        """The current virtual time in microseconds."""
        return self.scheduler.now

    def send(self, point: str, action: Action, argument: Any) -> None:
        """Send a message between coordinator and task. ``action(argument)`` runs after the RPC latency.

        A fault at ``point`` may drop, duplicate or delay the message.
        """
        delay_us = self.scheduler.jitter(self.config.rpc_latency_us)
        fault = self.faults.message(point)
        if fault is not None and fault.action == FaultAction.DROP:
            return
        if fault is not None and fault.action == FaultAction.DUPLICATE:
            self.scheduler.after(delay_us * 2, EventClass.RPC, action, argument)
        if fault is not None and fault.action == FaultAction.DELAY:
            delay_us += fault.delay_us
        if self.config.trigger_cost_us and point != "rpc.trigger":
            action = partial(self._when_free, action)
        self.scheduler.after(delay_us, EventClass.RPC, action, argument)

    def _when_free(self, action: Action, argument: Any) -> None:
        """Run the action of a message, once the coordinator no longer sends trigger messages (CL-7)."""
        wait_us = self.coordinator_busy_until_us - self.now
        if wait_us <= 0:
            action(argument)
            return
        self.message_wait_max_us = max(self.message_wait_max_us, wait_us)
        self.scheduler.after(wait_us, EventClass.RPC, action, argument)

    def send_trigger(self, action: Action, argument: Any, number: int) -> None:
        """Send a trigger message of the coordinator, delayed by the time to send ``number`` earlier messages (CL-7).

        Other messages to and from the coordinator wait until the last trigger message is sent.
        """
        wait_us = number * self.config.trigger_cost_us
        self.coordinator_busy_until_us = self.now + wait_us + self.config.trigger_cost_us
        if wait_us:
            self.scheduler.after(wait_us, EventClass.RPC, partial(self.send, "rpc.trigger", action), argument)
        else:
            self.send("rpc.trigger", action, argument)

    def write(
        self, size_bytes: int, done: Callable[[object], None], failed: Callable[[object], None], factor: float
    ) -> Upload | None:
        """Write to the store, and call ``done`` or ``failed``. Neither is called if the returned upload is cancelled.

        Return None if a fault makes the write fail.
        """
        fault = self.faults.message("store.write")
        if fault is not None and fault.action == FaultAction.ERROR:
            self.scheduler.after(self.store.latency_us, EventClass.STORAGE, failed)
            return None
        if fault is not None and fault.action == FaultAction.DELAY:
            self.store.stand_still(fault.delay_us)
        return self.store.write(size_bytes, done, factor=factor)
