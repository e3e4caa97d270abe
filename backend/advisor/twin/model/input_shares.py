"""The share of its input that each subtask of a vertex gets: from counts, queues and the waits of barriers.

A full subtask reads less than its share, so what is queued for it counts too. If only the sum of the queues is known,
the shares are guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from backend.advisor.twin.model import hidden_shares, snapshots
from backend.advisor.twin.model.flows import VertexFlow
from backend.advisor.twin.model.model import NetworkModel
from backend.advisor.twin.model.observed import ObservedJob
from backend.analysis.numbers.arrays import Floats
from backend.domain.ids import VertexId
from backend.domain.topology import Vertex

_REACHED_RATIO: Final = 0.9


class InputShares:
    """Finds the input shares of the vertices of a job.

    ``network`` bounds what can be queued. ``services`` are the service times of the subtasks of each vertex. What has
    to be assumed is added to the job's assumptions.
    """

    def __init__(self, job: ObservedJob, network: NetworkModel, services: Mapping[VertexId, Floats]) -> None:
        self._job = job
        self._network = network
        self._services = services

    def of(self, vertex: Vertex, flow: VertexFlow) -> tuple[Floats, list[Floats]]:
        """Return the shares of the subtasks, and all guesses of them if they are guessed."""
        if self._job.is_source(vertex.id):
            emitted = np.nan_to_num(flow.records_out)
            return emitted / emitted.sum() if emitted.sum() > 0 else np.full(emitted.size, 1.0 / emitted.size), []
        guessed: list[Floats] = []
        queued = self._queued_records(vertex, flow)
        shares = flow.shares(np.zeros(vertex.parallelism) if queued is None else queued)
        if (queued is None or not queued.any()) and self._can_be_even(vertex, flow):
            shares = np.full(vertex.parallelism, 1.0 / vertex.parallelism)
            self._job.assume(
                f"input shares of {vertex.name}", "equal", "its counts and its queues do not contradict equal shares"
            )
        elif queued is None:
            guessed = self._guesses(vertex, flow)
            shares = guessed[hidden_shares.chosen(len(guessed), 0, 1)] if guessed else shares
        if np.nansum(flow.counted_in) <= 0:
            self._job.assume(f"input shares of {vertex.name}", "equal", "it read no record between the readings")
        return shares, guessed

    def _can_be_even(self, vertex: Vertex, flow: VertexFlow) -> bool:
        """Return whether the subtasks may have equal shares: their counts differ by chance and by their queues."""
        if not self._job.is_hashed(vertex):
            return False
        queued, room = self._queues(vertex, flow)
        return queued is not None and flow.can_be_even(queued, room)

    def _queues(self, vertex: Vertex, flow: VertexFlow) -> tuple[float | None, float]:
        """Return the records queued for all subtasks together, and those that can be queued for one of them.

        The records are None if their size is not known.
        """
        above = self._job.topology.upstream(vertex.id)
        size = float(np.nansum(flow.bytes_in)) / max(float(np.nansum(flow.records_in)), 1e-9)
        if size <= 0:
            return None, 0.0
        queued = sum(self._job.flows[u].queued_out_last for u in above) + flow.queued_in_last
        network = self._network
        senders = sum(self._job.flows[u].busy.size for u in above)
        room = senders * network.max_buffers_per_channel * network.segment_bytes * (1 + network.is_remote_ratio)
        return queued / size, room / size

    def _queued_records(self, vertex: Vertex, flow: VertexFlow) -> Floats | None:
        """Return the records queued for each subtask behind a hash exchange; None if only their sum is known.

        An aligned barrier shows them: it waits as long as the subtask needs to read them.
        """
        none = np.zeros(vertex.parallelism)
        above = self._job.topology.upstream(vertex.id)
        if not flow.full.any() or not self._job.is_hashed(vertex):
            return none
        config = self._job.evidence.config
        waits_ms = None if config is None else snapshots.waits_ms(self._job.recorded, vertex.id, above)
        waited = (
            none if waits_ms is None else np.where(flow.full, np.nan_to_num(waits_ms * flow.records_in / 1000), 0.0)
        )
        if waits_ms is not None and config is not None and not config.is_unaligned_enabled:
            return waited
        queued, _ = self._queues(vertex, flow)
        if not queued or not flow.is_young:
            return none
        timeout_ms = float(config.aligned_timeout_ms or 0.0) if config is not None else 0.0
        if waits_ms is not None and timeout_ms and (flow.full & (waits_ms >= _REACHED_RATIO * timeout_ms)).any():
            # Barriers that waited until the timeout show the least that is queued. What no wait shows is theirs.
            late = flow.full & (waits_ms >= _REACHED_RATIO * timeout_ms)
            rest = max(0.0, queued - float(waited.sum()))
            return waited + np.where(late, rest / late.sum(), 0.0)
        return None

    def _guesses(self, vertex: Vertex, flow: VertexFlow) -> list[Floats]:
        """Return guesses of the shares, if only the sum of the queues of the full subtasks is known."""
        queued, room = self._queues(vertex, flow)
        read = np.nan_to_num(flow.total_in)
        shown = np.where(flow.full, np.nan_to_num(flow.queued_in), 0.0)
        if queued is None or read.sum() + queued <= 0:
            return []
        if shown.sum() > 0:
            # Channels between task managers show the queues of their receivers.
            return hidden_shares.by_weight(read, shown, queued)
        if flow.full.sum() < hidden_shares.MANY_FULL:
            how = "most of it for the one that read most"
        else:
            how = "in one of several likely ways"
        self._job.assume(
            f"input shares of {vertex.name}",
            f"what its senders hold is queued for its full subtasks, {how}",
            "full subtasks read less than their share, and without aligned checkpoints no barrier shows the difference",
        )
        steady = queued * self._steady_ratio(vertex, flow)
        never_idle, passing = flow.never_idle, flow.passing_queues
        passing *= min(1.0, steady / 2 / max(float(passing.sum()), 1e-9))
        rest = steady - float(passing.sum())
        passing += (queued - steady) / read.size
        if flow.full.sum() < hidden_shares.MANY_FULL:
            return hidden_shares.by_rank(read + passing, never_idle, rest)
        return hidden_shares.guesses(read + passing, never_idle, rest, room=room, service=self._services[vertex.id])

    def _steady_ratio(self, vertex: Vertex, flow: VertexFlow) -> float:
        """Return the part of the queues that was there in each of the last readings.

        The queue of a subtask that is never idle changes slowly. So what comes and goes is queued for all subtasks. If
        the least sum of a queue is not known, all of the queues count as steady.
        """
        above = self._job.topology.upstream(vertex.id)
        queued = sum(self._job.flows[u].queued_out_last for u in above) + flow.queued_in_last
        least = sum(self._job.flows[u].queued_out_least for u in above) + flow.queued_in_least
        return 1.0 if queued <= 0 or np.isnan(least) else min(1.0, least / queued)
