"""One subtask: the mailbox loop, backpressure and the choice of the next input (runtime.md 1.5).

A step processes one mail or one element. Mails come first (MB-1, BP-5). The effects of a step happen at its start, and
its cost passes before the next step (DET-6). A step that runs out of output buffers is hard-blocked: no mail runs until
its output is written (BP-4). Between steps, a subtask first waits for free output buffers, during which mails still run
(MB-4). Then it waits for input (MB-2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any

from backend.domain.barriers import ChannelId
from backend.domain.ids import VertexId
from backend.runtime.core.elements import (
    Barrier,
    CancelMarker,
    Element,
    EndOfData,
    EndOfPartition,
    Event,
    Record,
    RecoveryCompletion,
    Watermark,
    WatermarkStatus,
)
from backend.runtime.core.rates import MailLatency, Rates, Totals
from backend.runtime.job.graph import PARALLELISM_MAX, Graph, Partitioner, VertexSpec
from backend.runtime.measure.measures import Finished, SubtaskSnapshot, TaskKey, TimeAccount, Usage
from backend.runtime.network.buffers import OutputPool
from backend.runtime.network.channel import ChannelKey, InputChannel
from backend.runtime.network.emission import Emission, Output, SizedEmission
from backend.runtime.network.gate import InputGate
from backend.runtime.network.remote_channel import FloatingPool
from backend.runtime.network.rescaling import EdgeRescale
from backend.runtime.operators.operator_state import BroadcastRules
from backend.runtime.operators.operators import Operator, chain_of, factor_of
from backend.runtime.operators.sources import Source
from backend.runtime.operators.state import KeyedBackend
from backend.runtime.task.checkpointing import TaskCheckpointing
from backend.runtime.task.environment import Environment
from backend.runtime.task.event_time import EventTime
from backend.runtime.task.finishing import Finishing
from backend.runtime.task.increments import ContinuousLog, Increments
from backend.runtime.task.messages import Trigger
from backend.runtime.task.ports import FinishPort
from backend.runtime.task.recovery import Recovery
from backend.runtime.task.restarts import Initialization, initialization
from backend.runtime.task.running_ahead import RunningAhead, StepSums, running_ahead
from backend.runtime.task.sourcing import Sourcing
from backend.runtime.task.stopping import Stopping

_STEP_US_MIN = 1
# These are module constants because every element needs them, and reading an enum member costs as much as a call.
_BUSY, _IDLE, _SOFT, _HARD = Usage.BUSY, Usage.IDLE, Usage.SOFT, Usage.HARD


_ANY_RECORD = Record(0, 0, 0, 0, 0)


class TaskStatus(Enum):
    """The states of one attempt of a subtask."""

    INITIALIZING = "INITIALIZING"
    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    CANCELED = "CANCELED"


class Task:
    """One attempt of one subtask."""

    def __init__(
        self,
        env: Environment,
        spec: VertexSpec,
        key: TaskKey,
        *,
        attempt: int,
        on_running: Callable[[], None],
    ) -> None:
        # Identity.
        self.env = env
        self.spec = spec
        self.key = key
        self.index = key[1]
        self.name = f"{spec.id}/{key[1]}"
        self.number = key[0] * PARALLELISM_MAX + key[1]
        """A number that orders the steps that different subtasks take at the same time."""
        self.attempt = attempt
        # Progress.
        self.status = TaskStatus.INITIALIZING
        self.is_dead = False
        self.started_us = env.now
        self.initialization = Initialization(env.now)
        self.ended_us: int | None = None
        self._on_running = on_running
        # Input, operators and output.
        self.gate = InputGate(on_data=self._on_data, on_priority=self._on_priority)
        self.floating: dict[int, FloatingPool] = {}
        self.increments = Increments(env, spec, key, attempt)
        self.operators = _operators(env, spec, key, attempt, self.increments.backend)
        self.source = self.operators[0] if isinstance(self.operators[0], Source) else None
        self.emission = SizedEmission() if env.is_size_only else Emission()
        self._channel_ids: dict[ChannelKey, ChannelId] = {}
        self._process = self.operators[0].process
        if isinstance(self.operators[0], BroadcastRules):
            self.operators[0].is_rule = partial(_is_broadcast, self.gate, env.graph)
        self._behind_first = self.operators[1:]
        self._may_block = spec.may_block_in_emission
        self._pools: tuple[OutputPool, ...] = ()
        """The pools that must have a free buffer before a step.

        Empty if the subtask may block in the middle of a step.
        """
        # Costs and times of steps.
        self.slow_factor = factor_of(spec.slow_factors, key[1])
        is_fixed = spec.cost_of is None and not spec.cost_ns_per_byte
        self._fixed_cost_us = self._cost_of(_ANY_RECORD) if is_fixed else None
        self.cost_us = 0
        """The cost of the current step in virtual microseconds. Mails add to it."""
        self._scheduler = env.scheduler
        self._step_action = self._step
        self._mails: deque[tuple[Callable[[Any], None], Any, int]] = deque()
        self._is_scheduled = False
        self._epoch = 0
        """Incremented when scheduled steps become invalid. A step of an earlier epoch does nothing."""
        self._free_us = env.now
        # Measurements.
        samples = env.config.metric_window_us // env.config.metric_period_us
        self.account = TimeAccount(env.now, samples)
        self.rates = Rates(env.now, samples)
        self.mail_latency = MailLatency()
        self.steps = StepSums()
        self.lamport = 0
        self._records_in = 0
        # The parts of the task that are in other modules.
        self.ahead: RunningAhead | None = None
        """Plans several steps ahead. None if every step must be an event."""
        self.event_time = EventTime(self)
        self.sourcing = Sourcing(self, self.source) if self.source is not None else None
        self.is_finished_on_restore = False
        """Whether the operators had finished before the checkpoint from which the subtask was restored (FN-16)."""
        self.finishing: FinishPort = Finishing(self) if env.config.tasks_finish else Stopping(self)
        self.checkpointing = TaskCheckpointing(self)
        self._continuous_log = ContinuousLog(self, self.increments)
        self._recovery = Recovery(self)

    # --- life -----------------------------------------------------------------------------------------------------

    def start(
        self,
        snapshot: SubtaskSnapshot | None,
        *,
        checkpoint_id: int,
        has_channel_state: bool,
        rescaled: Mapping[int, EdgeRescale],
    ) -> None:
        """Restore the snapshot, and start to run (runtime.md 4.2).

        ``has_channel_state``: whether any subtask of the checkpoint has in-flight data. ``rescaled``: the edges whose
        channel state is stored under the channels of another parallelism (runtime.md 4.4).
        """
        self.checkpointing.last_id = checkpoint_id
        is_local = False
        if snapshot is not None:
            snapshot, is_local = self.env.local.restored(self.key, checkpoint_id, snapshot)
        self._pools = () if self._may_block else tuple(output.pool for output in self.outputs)
        if snapshot is not None and snapshot.finished is Finished.RESTORED:
            self._pass_through()
        else:
            self.ahead = running_ahead(
                self,
                self._fixed_cost_us,
                reschedule=self._reschedule,
                emitted=None if self.sourcing is None else self.sourcing.emitted,
            )
        for output in self.outputs:
            output.pool.ahead = self.ahead
        config = self.env.config
        self.initialization = initialization(
            snapshot, now_us=self.env.now, bytes_per_s=config.recovery_bytes_per_s, has_local_copy=is_local
        )
        if snapshot is not None:
            self.initialization.replay_us = snapshot.replayed_changes * config.replay_ns_per_change // 1000
        self._recovery.restore(
            snapshot, checkpoint_id=checkpoint_id, has_channel_state=has_channel_state, rescaled=rescaled
        )
        self.gate.is_recovering = True
        self._schedule(self.env.now + self.initialization.mailbox_start_us)
        self._continuous_log.start()

    def _pass_through(self) -> None:
        """Skip the operators, which have finished (FN-16): drop records, and pass watermarks, barriers and ends on."""
        self.is_finished_on_restore = True
        self._process = _drop
        self._behind_first = ()
        self.event_time.pass_through()
        if self.source is not None:
            self.source.give_up_splits()

    def kill(self) -> None:
        """Cancel this attempt, because the job failed or restarts."""
        self._end(TaskStatus.CANCELED)
        self.increments.close()
        self.checkpointing.channel_state.close()
        for output in self.outputs:
            output.pool.is_closed = True

    def finish(self) -> None:
        """End the attempt: the subtask runs no more steps, but its queued output is still sent."""
        if self.env.config.tasks_finish:
            for _, argument, _ in self._mails:
                if isinstance(argument, Trigger):
                    self.checkpointing.decline_at_end(argument.barrier.checkpoint_id)
        self._end(TaskStatus.FINISHED)
        if self.env.config.tasks_finish:
            # An ended subtask counts as idle. Otherwise the time after its last step would count as busy.
            self.account.turn(_IDLE, self.env.now)

    def _end(self, status: TaskStatus) -> None:
        self.interrupt()
        self._epoch += 1
        self.is_dead = True
        self.status = status
        self.ended_us = self.env.now
        self.account.settle(self.env.now)

    def mail(self, action: Callable[[Any], None], argument: Any = None) -> None:
        """Run ``action(argument)`` on this subtask between two elements (MB-1)."""
        if not self.is_dead:
            self._mails.append((action, argument, self.env.scheduler.now))
            self.interrupt()
            self.wake()

    def settle(self) -> None:
        """Carry out the planned steps whose time has come."""
        if self.ahead is not None:
            self.ahead.settle()

    def interrupt(self) -> None:
        """Carry out the planned steps whose time has come, cancel the rest, and schedule the next step as an event."""
        if self.ahead is not None:
            self.ahead.interrupt()

    def go_on_with(self, action: Callable[[Any], None], argument: Any) -> None:
        """Run ``action(argument)`` as the next step, after the cost of the current step has passed (PH-1)."""
        self._mails.appendleft((action, argument, self.env.scheduler.now))

    def sample(self, now_us: int) -> None:
        """Record a sample for the sliding window of the metrics."""
        self.account.sample(now_us)
        self.rates.sample(now_us, self.totals)

    @property
    def totals(self) -> Totals:
        """The values of this attempt's counters."""
        self.settle()
        channels = self.gate.channels
        return Totals(
            self._records_in,
            self.records_out,
            sum(c.bytes_received for c in channels),
            self.bytes_out,
            sum(c.buffers_received for c in channels),
            sum(output.pool.finished_count for output in self.outputs),
            self.mail_latency.count,
            self.event_time.fired_count,
            sum(c.buffers_received for c in channels if c.is_remote),
        )

    @property
    def watermark_us(self) -> int:
        """The watermark of the subtask, or -1 if it is unknown."""
        return self.event_time.watermark_us

    @property
    def mail_count(self) -> int:
        """The number of waiting mails."""
        return len(self._mails)

    def channel_id(self, key: ChannelKey) -> ChannelId:
        """Return the channel's public id, which contains the vertex names."""
        known = self._channel_ids.get(key)
        if known is None:
            edge = self.env.graph.edges[key.edge]
            known = ChannelId(VertexId(edge.source), VertexId(edge.target), key.source_subtask, key.target_subtask)
            self._channel_ids[key] = known
        return known

    # --- the loop -------------------------------------------------------------------------------------------------

    def _schedule(self, at_us: int) -> None:
        self._is_scheduled = True
        self._free_us = at_us
        self._scheduler.step_at(at_us, self.number, self._step_action, self._epoch)

    def _reschedule(self, at_us: int) -> None:
        """Replace the scheduled step by a step at ``at_us``."""
        self._epoch += 1
        self._schedule(at_us)

    def wake(self) -> None:
        """Schedule a step if none is scheduled, because the subtask may have something to do."""
        if not self._is_scheduled and not self.is_dead and self._free_us >= 0:
            now = self.env.scheduler.now
            self._schedule(now if now > self._free_us else self._free_us)

    def _on_data(self) -> None:
        if self.account.usage is _IDLE:
            self.wake()

    def _on_priority(self) -> None:
        self.mail(self.checkpointing.on_priority)

    def on_output_change(self) -> None:
        """If the subtask waits for output buffers, wake it, because an output pool changed.

        If a capped checkpoint waits until its data fits the cap, let it check again.
        """
        usage = self.account.usage
        if usage is _HARD or (usage is _SOFT and self._has_output()):
            self.wake()
        if self.checkpointing.is_waiting_for_room:
            self.mail(self.checkpointing.recheck)

    def _has_output(self) -> bool:
        for output in self.emission.outputs:  # noqa: SIM110 - runs for every returned buffer
            if not output.pool.is_available:
                return False
        return True

    def _step(self, epoch: int) -> int | None:
        """Process one mail or one element. Return the time of the next step, or None if ``wake`` has to schedule it."""
        if epoch != self._epoch:
            return None
        now = self._scheduler.now
        ahead = self.ahead
        if ahead is not None:
            ahead.finish()
        steps = self.steps
        steps.count += 1
        steps.squares += now * now
        self.cost_us = 0
        if self.emission.is_blocked and not self._write_on(now):
            return None
        if self._mails:
            action, argument, mailed_us = self._mails.popleft()
            self.mail_latency.add(now - mailed_us)
            self.account.turn(_BUSY, now)
            action(argument)
        else:
            for pool in self._pools:
                if not pool.is_available:
                    self._wait(_SOFT, now)
                    return None
            channel = self.gate.current
            if channel is not None and channel.elements and not self.event_time.is_firing:
                # The rest of the current buffer can be processed without asking the gate for its next input.
                if self.account.usage is not _BUSY:
                    self.account.turn(_BUSY, now)
                element = channel.elements.pop()
                if type(element) is Record and not self.checkpointing.is_watching:
                    self._take_record(element)
                else:
                    self._take(channel, element)
            elif not self._poll(now):
                self._wait(_IDLE, now)
                return None
        at_us = now + (self.cost_us if self.cost_us > _STEP_US_MIN else _STEP_US_MIN)
        if ahead is not None and not self._mails:
            at_us = self._plan(ahead, at_us)
        self._free_us = at_us
        return at_us

    def _wait(self, usage: Usage, now: int) -> None:
        """Record why the subtask waits. No step is scheduled until ``wake`` is called."""
        self.account.turn(usage, now)
        self._is_scheduled = False

    def _plan(self, ahead: RunningAhead, at_us: int) -> int:
        """Plan steps from ``at_us`` on if possible. Return the time of the next step that is an event."""
        if self.emission.is_blocked:
            return at_us
        for pool in self._pools:
            if not pool.is_available:
                return at_us
        channel, is_watching = self.gate.current, self.checkpointing.is_watching
        if self.sourcing is not None:
            return at_us if is_watching else self.sourcing.plan(ahead, at_us)
        if channel is None or self.event_time.is_firing:
            return at_us
        if not is_watching:
            return ahead.plan(channel, at_us)
        most_bytes = self.checkpointing.unwatched_bytes()
        return ahead.plan(channel, at_us, most_bytes) if most_bytes else at_us

    def count_in(self, count: int) -> None:
        """Increase the number of records taken from the input by ``count``, because planned steps processed them."""
        self._records_in += count

    def _poll(self, now: int) -> bool:
        """Fire a timer, or process the next input or source record. Return whether there was something to do."""
        if self.event_time.is_firing:
            self.account.turn(_BUSY, now)
            self.event_time.fire_on()
            return True
        return self._poll_input(now) if self.sourcing is None else self.sourcing.poll(now)

    def _write_on(self, now: int) -> bool:
        """Write waiting output. Return whether the step may continue.

        Return False if some output still waits, or if an action that had waited for the output used up this step.
        """
        if not self.emission.write_on():
            self._wait(_HARD, now)
            return False
        action = self.emission.behind()
        if action is None:
            return True
        self.account.turn(_BUSY, now)
        action()
        if not (self.is_dead and self.env.config.tasks_finish):
            self._schedule(now + max(self.cost_us, _STEP_US_MIN))
        return False

    def _poll_input(self, now: int) -> bool:
        gate = self.gate
        element = gate.next_element()
        if element is None:
            if gate.is_recovering:
                self._recovery.finish_input()
                return True
            if self.checkpointing.is_waiting_for_room:
                # The last buffer in front of a cut may have ended within a record. Then no element followed it that
                # would have made the waiting checkpoint check again.
                self.checkpointing.recheck(None)
                return not self.checkpointing.is_waiting_for_room
            return False
        if self.account.usage is not _BUSY:
            self.account.turn(_BUSY, now)
        self._take(*element)
        return True

    def _take(self, channel: InputChannel, element: Element | Event) -> None:
        if isinstance(element, Record):
            self._take_record(element)
        elif isinstance(element, Watermark):
            self.event_time.on_watermark(channel, element)
        elif isinstance(element, WatermarkStatus):
            self.event_time.on_status(channel, element)
        else:
            self._on_event(channel, element)
        if self.checkpointing.is_watching:
            self.checkpointing.processed(channel, element)

    def _take_record(self, record: Record) -> None:
        self._records_in += 1
        self.charge(record)
        records = self._process(record)
        if self._behind_first:
            self.pass_on(records)
            return
        for out in records:
            self.emission.emit(out)

    def charge(self, record: Record) -> None:
        """Add the cost of processing the record to the current step."""
        cost_us = self._fixed_cost_us
        self.cost_us += self._cost_of(record) if cost_us is None else cost_us

    def _cost_of(self, record: Record) -> int:
        spec = self.spec
        cost = spec.cost_us + spec.cost_ns_per_byte * record.size_bytes // 1000
        if spec.cost_of is not None:
            cost += spec.cost_of(record)
        return cost if self.slow_factor == 1.0 else int(cost * self.slow_factor)

    def pass_on(self, records: list[Record], behind: int = 1) -> None:
        """Process records with the chained operators from index ``behind`` on, and emit the results."""
        for operator in self._behind_first if behind == 1 else self.operators[behind:]:
            if len(records) == 1:
                records = operator.process(records[0])
            elif records:
                records = [out for record in records for out in operator.process(record)]
        for out in records:
            self.emission.emit(out)

    def _on_event(self, channel: InputChannel, event: Event) -> None:
        if isinstance(event, Barrier):
            self.checkpointing.on_barrier(channel, event)
        elif isinstance(event, CancelMarker):
            self.checkpointing.on_cancel(channel, event.checkpoint_id)
        elif isinstance(event, RecoveryCompletion):
            self._recovery.on_completion(channel)
        elif isinstance(event, EndOfData):
            self.finishing.on_end_of_data(channel, event)
        elif isinstance(event, EndOfPartition):
            channel.is_ended = True
            self.checkpointing.on_end_of_partition(channel)
            self.finishing.on_end_of_partition()

    # --- output ---------------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> list[Output]:
        """The outputs of the task, one per edge."""
        return self.emission.outputs

    @property
    def records_in(self) -> int:
        """The number of records that this attempt has taken from its input."""
        self.settle()
        return self._records_in

    @property
    def records_out(self) -> int:
        """The number of records that this attempt has emitted."""
        self.settle()
        return self.emission.records_out

    @property
    def bytes_out(self) -> int:
        """The bytes of records and watermarks that this attempt wrote.

        A record that goes to several channels counts once for each.
        """
        self.settle()
        return self.emission.bytes_out

    def flush(self) -> None:
        """Emit the records that operators hold back without keeping them as state. Called before a barrier (TE-2)."""
        for behind, operator in enumerate(self.operators, 1):
            held = operator.flush()
            if held:
                self.pass_on(held, behind)

    def become_running(self) -> None:
        """Set the task to running, because all recovered data is processed (runtime.md 4.2, step 7)."""
        self.status = TaskStatus.RUNNING
        self.initialization.running_at_us = self.env.now
        if self.initialization.gate_restored_at_us is None:
            self.initialization.gate_restored_at_us = self.env.now
        self._on_running()


def _is_broadcast(gate: InputGate, graph: Graph) -> bool:
    """Return whether the record that the gate gave last arrived over a broadcast edge."""
    return gate.current is not None and graph.edges[gate.current.key.edge].partitioner is Partitioner.BROADCAST


def _drop(record: Record) -> list[Record]:
    return []


def _operators(
    env: Environment, spec: VertexSpec, key: TaskKey, attempt: int, backend: KeyedBackend | None
) -> tuple[Operator, ...]:
    number = key[0] if spec.number is None else spec.number
    return chain_of(
        spec,
        key[1],
        vertex=number,
        seed=env.seed ^ number,
        attempt=attempt,
        ledger=env.ledger,
        provenance=env.provenance,
        backend=backend,
    )
