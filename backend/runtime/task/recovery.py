"""Restores one subtask (runtime.md 4.2): its output first, then its operators, then its recovered input.

On each channel, the receiver processes its own recovered bytes first, then the sender's recovered bytes, then new bytes
(RC-3). No byte is recovered at both ends (RC-4).

Invariant: no new element is read before the recovered data of every channel is processed (RC-1). An event marks the end
of the sender's recovered data. The event blocks the sender's queue until the events of all channels have arrived
(RC-2).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Protocol

from backend.runtime.core.elements import Record, RecoveryCompletion, VirtualChannel, WatermarkStatus
from backend.runtime.measure.measures import SubtaskSnapshot
from backend.runtime.network.buffers import Data, Subpartition
from backend.runtime.network.channel import ChannelKey, InputChannel
from backend.runtime.network.demultiplexing import Keeps, OldChannels
from backend.runtime.network.rescaling import EdgeRescale
from backend.runtime.network.routes import route
from backend.runtime.operators.sinks import TransactionalSink
from backend.runtime.operators.state import NO_STATE
from backend.runtime.task.event_time import EventTime
from backend.runtime.task.increments import Increments
from backend.runtime.task.ports import TaskPort
from backend.runtime.task.restarts import Initialization


class RecoveringTask(TaskPort, Protocol):
    """The part of a task's interface that ``Recovery`` uses."""

    initialization: Initialization
    increments: Increments
    event_time: EventTime

    def become_running(self) -> None:
        """Set the task to running, because all recovered data is processed (runtime.md 4.2, step 7)."""
        ...


class Recovery:
    """Restores one attempt of one subtask."""

    def __init__(self, task: RecoveringTask) -> None:
        self._task = task
        self._env = task.env
        self._seen: set[int] | None = None
        self._rescaled: Mapping[int, EdgeRescale] = {}

    def restore(
        self,
        snapshot: SubtaskSnapshot | None,
        *,
        checkpoint_id: int,
        has_channel_state: bool,
        rescaled: Mapping[int, EdgeRescale],
    ) -> None:
        """Restore a snapshot. For the parameters, see ``Task.start``."""
        task, faults = self._task, self._env.faults
        self._rescaled = rescaled
        if snapshot is None:
            # There is nothing to restore, but transactions that an earlier attempt left open are aborted (SNK-3).
            for operator in task.operators:
                if isinstance(operator, TransactionalSink):
                    operator.restore(NO_STATE, 0)
            return
        faults.passed("recovery.before-output", task.name)
        self._restore_output(snapshot.channels.outputs)
        # RC-6: recovered output that does not fit the pool is loaded when a segment becomes free. The other steps
        # wait until then.
        then = partial(self._restore_rest, snapshot, checkpoint_id, has_channel_state=has_channel_state)
        task.emission.then(then)

    def _restore_rest(self, snapshot: SubtaskSnapshot, checkpoint_id: int, *, has_channel_state: bool) -> None:
        task = self._task
        late_us = self._env.now - task.initialization.deployed_at_us - task.initialization.mailbox_start_us
        if late_us > 0:
            task.initialization.read_output_us += late_us
        if has_channel_state:
            task.emission.broadcast_event(RecoveryCompletion())
        for operator, data in zip(reversed(task.operators), reversed(snapshot.operators), strict=True):
            operator.restore(data, checkpoint_id)
            self._env.faults.passed("recovery.in-operator", task.name)
        task.event_time.restored(snapshot.watermark_us)
        task.increments.resume(checkpoint_id, snapshot)
        self._demultiplex()
        self._restore_input(snapshot.channels.inputs)
        if has_channel_state:
            self._seen = set()

    def finish_input(self) -> None:
        """Start to read the channels, because all recovered input is processed (runtime.md 4.2, step 5)."""
        task = self._task
        task.gate.is_recovering = False
        task.initialization.gate_restored_at_us = self._env.now
        self._env.faults.passed("recovery.before-new-data", task.name)
        if self._seen is None:
            task.become_running()
        for channel in task.gate.channels:
            channel.attach()

    def on_completion(self, channel: InputChannel) -> None:
        """Handle the end of the sender's recovered output on this channel (RC-2)."""
        if self._seen is None:
            return
        self._seen.add(channel.index)
        channel.end_virtual()
        if channel.is_idle:
            # The sender's new attempt starts as active, so an idle status in the recovered data no longer applies.
            self._task.event_time.on_status(channel, WatermarkStatus(is_idle=False), counts_at_once=True)
        if channel.key.edge in self._rescaled:
            # The sender may read different splits now, so ignore the recovered watermark until the sender emits a new
            # one.
            channel.watermark_us = -1
        if len(self._seen) == len(self._task.gate.channels):
            self._seen = None
            for each in self._task.gate.channels:
                each.resume()
            self._task.become_running()

    # --- channel state --------------------------------------------------------------------------------------------

    def _restore_output(self, outputs: Mapping[ChannelKey, list[Data]]) -> None:
        by_edge = {output.edge: output for output in self._task.outputs}
        for key, chunks in outputs.items():
            output = by_edge[key.edge]
            rescale = self._rescaled.get(key.edge)
            virtual = VirtualChannel(key.source_subtask, key.target_subtask) if rescale else None
            receivers = rescale.new_receivers(key.target_subtask) if rescale else (key.target_subtask,)
            for receiver in receivers:
                subpartition = output.pool.subpartitions[output.targets.index(receiver)]
                for chunk in chunks:
                    self._task.emission.write(partial(self._load, subpartition, virtual, chunk), len(chunk))

    def _load(self, subpartition: Subpartition, virtual: VirtualChannel | None, chunk: Data, at: int) -> int:
        if at == 0 and virtual is not None:
            # RS-7: add an event that names the old channel. If no segment was free, the next try adds the event
            # again, which has no effect.
            subpartition.add_event(virtual)
        at = subpartition.append_recovered(chunk, at)
        if at == len(chunk):
            self._env.faults.passed("recovery.mid-output", self._task.name)
        return at

    def _restore_input(self, inputs: Mapping[ChannelKey, list[Data]]) -> None:
        by_key = {channel.key: channel for channel in self._task.gate.channels}
        for key, chunks in inputs.items():
            rescale = self._rescaled.get(key.edge)
            if rescale is None:
                by_key[key].recovered.extend(chunks)
            else:
                sender = rescale.new_sender(key.source_subtask)
                virtual = VirtualChannel(key.source_subtask, key.target_subtask)
                recovered = by_key[ChannelKey(key.edge, sender, self._task.index)].recovered
                for chunk in chunks:
                    recovered += (virtual, chunk)
            self._env.faults.passed("recovery.mid-input", self._task.name)

    def _demultiplex(self) -> None:
        """Set the decoders that separate old channels inside new ones (RS-7, RS-12).

        Only input edges that are rescaled with data in flight need them.
        """
        keeps = {edge: self._keeps(edge) for edge in self._rescaled}
        for channel in self._task.gate.channels:
            rescale = self._rescaled.get(channel.key.edge)
            if rescale is not None:
                old = OldChannels(channel.key, rescale, keeps[channel.key.edge], self._on_filtered)
                channel.decoder_of = old.decoder

    def _on_filtered(self) -> None:
        self._task.initialization.records_filtered += 1

    def _keeps(self, edge: int) -> Keeps:
        """Return a predicate that is true for records that the edge would now send to this subtask (RS-9)."""
        graph, index = self._env.graph, self._task.index
        spec = graph.edges[edge]
        target = graph.vertex(spec.target)
        chosen = route(
            spec,
            index=edge,
            subtask=0,
            targets=list(range(target.parallelism)),
            max_parallelism=target.effective_max_parallelism,
            parallelism=target.parallelism,
            seed=self._env.seed,
        )

        def keeps(record: Record) -> bool:
            return index in chosen(record)

        return keeps
