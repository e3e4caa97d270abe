"""Holds what the collector must remember about one run from one poll to the next.

Invariant: a poll works on a copy, which replaces the memory only if the poll succeeds. So after a failed poll, data
that was not returned is not marked as read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeAlias

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import CheckpointConfig, CheckpointHeader, ClusterSettings, Values, VertexDetail
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import VertexId
from backend.domain.losses import Loss
from backend.domain.topology import Topology
from collectors.flink.document import RowCache
from collectors.flink.freshness import FetchInterval, Freshness
from collectors.flink.gauges import GaugeCandidate, GaugeMemory
from collectors.flink.parse_metrics import Readings
from collectors.flink.pressure import MetricNames

CheckpointKey: TypeAlias = tuple[int, datetime]
"""Checkpoint id and trigger time. The id alone may repeat within a run, if the coordinator lost its counter."""

Pending: TypeAlias = Mapping[VertexId, frozenset[int]]


def key_of(header: CheckpointHeader) -> CheckpointKey:
    """Return the key that identifies a checkpoint within its run."""
    return header.checkpoint_id, header.triggered_at


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The engine at the target.

    ``names_unaligned``: see ``parse.EngineInfo``. ``offset`` is the engine's clock minus ours. ``fetch_interval`` is
    how often the engine fetches its metrics. If ``has_job_clocks``, each job has its own clock, and the engine caches
    no response. ``debloat_target_ms`` is the cluster's target of buffer debloating; None if it is off or not known.
    ``cluster_settings`` are the settings of the cluster that concern checkpoints; None if the cluster has none of its
    own or refuses to return them.
    """

    capabilities: EngineCapabilities
    version: str
    fetch_interval: FetchInterval
    has_job_clocks: bool = False
    names_unaligned: bool = True
    offset: timedelta = timedelta(0)
    debloat_target_ms: int | None = None
    cluster_settings: ClusterSettings | None = None


@dataclass(frozen=True, slots=True)
class RisenCommits:
    """Failed commits that one reading found: as a loss, with the counters that rose and the time of the reading."""

    loss: Loss
    counters: frozenset[tuple[int, str]]
    read_at: datetime


@dataclass(frozen=True, slots=True)
class Watch:
    """An expired checkpoint whose missing first barriers are looked for until ``until`` (on the engine's clock)."""

    header: CheckpointHeader
    pending: Pending
    details: tuple[VertexDetail, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class SecondLook:
    """A failed checkpoint whose details are read once more at ``due_at`` (on the engine's clock).

    ``details`` are those of the first reading. Flink adds what a subtask reports after the end of the checkpoint.
    """

    details: tuple[VertexDetail, ...]
    due_at: datetime


@dataclass(frozen=True, slots=True)
class Offered:
    """The metrics that one vertex offers.

    ``is_settled`` is True once the list was read a second time, some time later.
    """

    names: MetricNames
    first_at: datetime
    is_settled: bool = False


@dataclass(slots=True)
class RunMemory:
    """What the collector remembers about one run between two polls."""

    name: str = ""
    topology: Topology | None = None
    config: CheckpointConfig | None = None
    config_at: datetime | None = None
    has_checkpoints: bool = True
    """False once the engine reported that the job takes no checkpoints."""
    changed_at_ms: int | None = None
    """The job's time of last modification, as it was when graph, tasks, exceptions and restarts were last read."""
    looked_at: datetime | None = None
    restored_ms: int | None = None
    restart_count: int | None = None
    ended_counts: dict[VertexId, int] = field(default_factory=dict)
    """How many subtasks of each vertex had ended when the job's description was read last."""
    attempts: dict[VertexId, Values] = field(default_factory=dict)
    """The attempt number of each subtask. If it changes, the subtask was restarted, which reset its gauges."""
    handed_on: set[CheckpointKey] = field(default_factory=set)
    """Terminal checkpoints whose header was already returned in an observation."""
    detailed: set[CheckpointKey] = field(default_factory=set)
    """Terminal checkpoints whose detail was already returned, or can no longer be read from the target."""
    discarded: set[CheckpointKey] = field(default_factory=set)
    """Checkpoints that were already returned as discarded. A terminal checkpoint can change in no other way."""
    acknowledged: dict[CheckpointKey, dict[VertexId, VertexDetail]] = field(default_factory=dict)
    """For each open checkpoint, the details of the vertices of which all subtasks acknowledged. They are final, so
    they are not read again when the checkpoint ends.
    """
    second_looks: dict[CheckpointKey, SecondLook] = field(default_factory=dict)
    """Failed checkpoints whose details are read once more."""
    waiting_count: int = 0
    """Number of checkpoint details that the last poll did not read, because its budget was used up."""
    not_found: dict[CheckpointKey, int] = field(default_factory=dict)
    """For each checkpoint, how often its detail was missing or belonged to another run."""
    newest_id: int | None = None
    newest_at: datetime | None = None
    """The id and the trigger time of the checkpoint with the latest trigger time that the history has listed."""
    is_watched_from_start: bool = False
    """Whether the run began while this collector was watching the target. Then each checkpoint of the run that the
    first history no longer lists is lost.
    """
    lost: tuple[range, ...] = ()
    """The ids that were counted as lost last. If a cached, older history lists one, it stays lost."""
    counted_total: int | None = None
    """Number of checkpoints that the coordinator had counted at the last poll."""
    seen_open: set[CheckpointKey] = field(default_factory=set)
    """Checkpoints that were in progress at the previous poll."""
    watches: dict[int, Watch] = field(default_factory=dict)
    candidates: dict[int, GaugeCandidate] = field(default_factory=dict)
    gauges: GaugeMemory = field(default_factory=GaugeMemory)
    offered: dict[VertexId, Offered] = field(default_factory=dict)
    failed_commits: dict[VertexId, Readings] = field(default_factory=dict)
    """The failed commits of each operator that commits, as counted in the present attempt."""
    risen_commits: dict[VertexId, tuple[RisenCommits, ...]] = field(default_factory=dict)
    """The commits that failed in the present attempt and are not reported yet. They are lost if the attempt goes on."""
    freshness: Freshness = field(default_factory=Freshness)
    """When backpressure was last read, and whether the engine's metrics are new since."""
    late_count: int = 0
    """Number of consecutive attempts to read this job in which the target did not respond in time."""
    late_reason: str = ""
    retry_at: datetime | None = None
    """The job is not read before this instant, because the target did not respond in time at the last attempt."""
    poll_within_s: float | None = None
    history: RowCache[CheckpointHeader] = field(default_factory=RowCache)
    """The parsed entries of the history. Copies share this cache, because a parsed entry stays valid even if the poll
    that parsed it fails.
    """
    is_done: bool = False
    """Whether the run has ended and needs no more reading."""

    def copy(self) -> RunMemory:
        """Return an independent copy."""
        return replace(
            self,
            handed_on=set(self.handed_on),
            detailed=set(self.detailed),
            discarded=set(self.discarded),
            acknowledged={key: dict(found) for key, found in self.acknowledged.items()},
            second_looks=dict(self.second_looks),
            not_found=dict(self.not_found),
            seen_open=set(self.seen_open),
            watches=dict(self.watches),
            candidates=dict(self.candidates),
            gauges=self.gauges.copy(),
            offered=dict(self.offered),
            failed_commits=dict(self.failed_commits),
            risen_commits=dict(self.risen_commits),
            attempts=dict(self.attempts),
        )

    def forget_tasks(self) -> None:
        """Forget gauges and metric names after a restart of tasks, because the gauges of new tasks start at 0."""
        self.gauges = GaugeMemory(late=self.gauges.late)
        self.watches.clear()
        self.offered.clear()
        self.failed_commits.clear()
        self.risen_commits.clear()
        self.freshness = Freshness()

    def keep_listed(self, listed: set[CheckpointKey]) -> None:
        """Forget the checkpoints that the engine no longer lists, because it never lists them again."""
        self.handed_on &= listed
        self.detailed &= listed
        self.discarded &= listed
        self.seen_open &= listed
        self.acknowledged = {key: d for key, d in self.acknowledged.items() if key in listed - self.detailed}
        self.second_looks = {key: look for key, look in self.second_looks.items() if key in listed}
        self.not_found = {key: n for key, n in self.not_found.items() if key in listed}


@dataclass(frozen=True, slots=True)
class Detail:
    """The details of one checkpoint for all vertices, and its barrier events if the engine records them."""

    vertices: tuple[VertexDetail, ...]
    barriers: tuple[BarrierEvent, ...] | None = ()
    """None if the engine has the events, but its response cannot be read."""

    @property
    def pending(self) -> Pending:
        """The subtasks that have not acknowledged, by vertex."""
        return {d.vertex_id: frozenset(d.pending) for d in self.vertices if d.pending}
