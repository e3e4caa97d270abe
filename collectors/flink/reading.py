"""The memory of one run between two polls.

Invariant: a poll works on a copy, which replaces the memory only when the poll succeeds. So a failed poll marks nothing
as read that was not returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, Values, VertexDetail
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import VertexId
from backend.domain.topology import Topology
from collectors.flink.gauges import Candidate, GaugeMemory
from collectors.flink.pressure import MetricNames

CheckpointKey: TypeAlias = tuple[int, datetime]
"""Checkpoint id and trigger time: an id may repeat in a run whose coordinator lost its counter."""

Pending: TypeAlias = Mapping[VertexId, frozenset[int]]


def key_of(header: CheckpointHeader) -> CheckpointKey:
    """Return the key that identifies a checkpoint within its run."""
    return header.checkpoint_id, header.triggered_at


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The engine at the target. ``offset`` is its clock minus ours; ``fetch_interval`` is how old metrics may be.

    ``has_job_clocks``: each job has a clock of its own, and no answer is cached.
    """

    capabilities: EngineCapabilities
    version: str
    fetch_interval: timedelta
    has_job_clocks: bool = False
    offset: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class Watch:
    """An expired checkpoint whose missing first barriers are looked for until ``until`` (on the engine's clock)."""

    header: CheckpointHeader
    pending: Pending
    details: tuple[VertexDetail, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class Offered:
    """The metrics that one vertex offers; ``is_settled`` once the list was read again after some time."""

    names: MetricNames
    first_at: datetime
    is_settled: bool = False


@dataclass(slots=True)
class RunMemory:
    """The memory of one run."""

    name: str = ""
    topology: Topology | None = None
    config: CheckpointConfig | None = None
    config_at: datetime | None = None
    has_checkpoints: bool = True
    """False once the engine reported that the job takes none."""
    changed_at_ms: int | None = None
    """The job's last modification when graph, tasks, exceptions and restarts were last read."""
    looked_at: datetime | None = None
    restored_ms: int | None = None
    restart_count: int | None = None
    attempts: dict[VertexId, Values] = field(default_factory=dict)
    """Attempt of each subtask: if it changes, the subtask's gauges were reset."""
    handed_on: set[CheckpointKey] = field(default_factory=set)
    """Terminal checkpoints whose header was returned."""
    detailed: set[CheckpointKey] = field(default_factory=set)
    """Terminal checkpoints whose detail was returned, or is gone."""
    discarded: set[CheckpointKey] = field(default_factory=set)
    """Checkpoints that were returned as discarded, which is the only later change of a terminal one."""
    acknowledged: dict[CheckpointKey, dict[VertexId, VertexDetail]] = field(default_factory=dict)
    """Details of vertices with all subtasks acknowledged in an open checkpoint: final, so not read again at its end."""
    waiting_count: int = 0
    """Number of details that the last poll's budget left for later."""
    not_found: dict[CheckpointKey, int] = field(default_factory=dict)
    """How often the detail was missing or of another run."""
    newest_id: int | None = None
    counted_total: int | None = None
    """Checkpoints that the coordinator had counted at the last poll."""
    seen_open: set[CheckpointKey] = field(default_factory=set)
    """Checkpoints in progress at the previous poll."""
    watches: dict[int, Watch] = field(default_factory=dict)
    candidates: dict[int, Candidate] = field(default_factory=dict)
    gauges: GaugeMemory = field(default_factory=GaugeMemory)
    offered: dict[VertexId, Offered] = field(default_factory=dict)
    pressure_at: datetime | None = None
    poll_within_s: float | None = None
    is_done: bool = False
    """Whether the run has ended and needs no more reading."""

    def copy(self) -> RunMemory:
        """An independent copy."""
        return replace(
            self,
            handed_on=set(self.handed_on),
            detailed=set(self.detailed),
            discarded=set(self.discarded),
            acknowledged={key: dict(found) for key, found in self.acknowledged.items()},
            not_found=dict(self.not_found),
            seen_open=set(self.seen_open),
            watches=dict(self.watches),
            candidates=dict(self.candidates),
            gauges=self.gauges.copy(),
            offered=dict(self.offered),
            attempts=dict(self.attempts),
        )

    def forget_tasks(self) -> None:
        """Forget the gauges and metric names of tasks that were restarted: their gauges start at 0 again."""
        self.gauges = GaugeMemory(late=self.gauges.late)
        self.watches.clear()
        self.offered.clear()
        self.pressure_at = None

    def keep_listed(self, listed: set[CheckpointKey]) -> None:
        """Drop the marks of checkpoints that the engine no longer lists, since they cannot be listed again."""
        self.handed_on &= listed
        self.detailed &= listed
        self.discarded &= listed
        self.acknowledged = {key: d for key, d in self.acknowledged.items() if key in listed - self.detailed}
        self.not_found = {key: n for key, n in self.not_found.items() if key in listed}


@dataclass(frozen=True, slots=True)
class Detail:
    """The detail of one checkpoint, all vertices."""

    vertices: tuple[VertexDetail, ...]
    barriers: tuple[BarrierEvent, ...] = ()

    @property
    def pending(self) -> Pending:
        """The subtasks that have not acknowledged, by vertex."""
        return {d.vertex_id: frozenset(d.pending) for d in self.vertices if d.pending}
