"""One reading of one target. A collector passes it to the store, to the analysis and to ``diagnose``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, ClusterSettings, Progress
from backend.domain.checkpoint_files import CheckpointFiles
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.losses import Loss
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


class JobState(StrEnum):
    """The state of a run at its engine, reduced to a few values. The engine's own word is stored too."""

    STARTING = "starting"
    """The engine prepares the run. It has no graph and takes no checkpoints yet."""
    RUNNING = "running"
    RESTARTING = "restarting"
    ENDED = "ended"
    UNREADABLE = "unreadable"
    """The engine lists a run that has not ended, but what it reports about the run cannot be read."""
    UNKNOWN = "unknown"


class JobEventKind(StrEnum):
    """The kind of an event in a job's history."""

    RUN_STARTED = "run-started"
    RUN_ENDED = "run-ended"
    RESTARTED = "restarted"
    CONFIGURATION_CHANGED = "configuration-changed"
    RESCALED = "rescaled"
    EXCEPTION = "exception"
    ROWS_LOST = "rows-lost"
    """Output was lost although no checkpoint failed. ``losses`` reads its text."""
    POD_ENDED = "pod-ended"
    """Kubernetes ended the pod of a TaskManager. ``pod_ends`` reads its text."""
    RESTORED = "restored"
    """A restore changed something for the records of the job. ``restore_effects`` has the words."""


@dataclass(frozen=True, slots=True)
class Shed:
    """Counts of terminal checkpoints that a collector could not read in time.

    ``checkpoint_count`` are checkpoints of which nothing was read. ``detail_count`` are checkpoints that were stored
    without the details of their subtasks.
    """

    checkpoint_count: int = 0
    detail_count: int = 0

    def __add__(self, other: Shed) -> Shed:
        return Shed(self.checkpoint_count + other.checkpoint_count, self.detail_count + other.detail_count)


NOTHING_SHED: Final = Shed()


NOT_LISTED: Final = "NOT LISTED"
"""The engine state of a run that its target no longer lists. The run has ended, and how it ended is not known."""


@dataclass(frozen=True, slots=True)
class JobObservation:
    """The data of one run in one poll.

    An empty tuple means that the poll did not fetch the data, not that there is none. ``config`` and ``topology`` are
    None if the poll did not fetch them. ``counts.failed`` may exceed the number of listed failed checkpoints, because
    some failures have no id, time or cause. The store keeps the difference as a count.
    """

    engine_run_id: EngineRunId
    name: str
    state: JobState
    engine_state: str
    started_at: datetime
    ended_at: datetime | None = None
    topology: Topology | None = None
    placements: tuple[Placement, ...] = ()
    config: CheckpointConfig | None = None
    cluster_settings: ClusterSettings | None = None
    """The settings of the cluster that concern checkpoints. They are read together with ``config``."""
    counts: CheckpointCounts | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    progress: tuple[Progress, ...] = ()
    pressure: tuple[VertexPressure, ...] = ()
    barriers: tuple[tuple[int, tuple[BarrierEvent, ...]], ...] = ()
    """For each checkpoint: (checkpoint id, its barrier events). Empty if the engine reports no events of channels.

    An entry without events is of an ended checkpoint whose events cannot be read. The store removes events of it that
    were read while it was open, because they are incomplete.
    """
    exceptions: tuple[tuple[datetime, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    effects: tuple[tuple[datetime, str], ...] = ()
    """What restores changed for the records of the job: the engine's time and a sentence."""
    restart_count: int | None = None
    problems: tuple[str, ...] = ()
    """One line for each error that occurred while this run was read."""
    shed: Shed = NOTHING_SHED
    """Counts of what was not read of this run, because the target dropped it first or because it was too much."""
    clock_offset_ms: int | None = None
    """The run's clock minus our clock at this poll. It is set only if the runs of a target use different clocks."""


@dataclass(frozen=True, slots=True)
class PollCost:
    """The cost that one poll causes at the target."""

    request_count: int
    response_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What a collector must know about a stored run when it reads the run's target for the first time.

    ``newest_id`` is the id of the newest terminal checkpoint that is stored. It is None if there is none.
    """

    name: str
    newest_id: int | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The result of one successful poll of one target. ``engine_version`` is the engine's own text."""

    target_id: TargetId
    observed_at: datetime
    engine: EngineCapabilities
    engine_version: str | None
    jobs: tuple[JobObservation, ...]
    cost: PollCost
    clock_offset_ms: int | None = None
    """The engine's clock minus our clock, as measured by the poll. It is used to correct ages."""
    received_at: datetime | None = None
    """For pushed data, the time of arrival on our clock; ``observed_at`` is then a time on the job's clock."""
    shed: Shed = NOTHING_SHED
    """What was read earlier and lost before it was stored."""
    set_interval_s: float | None = None
    """The interval at which the collector is set to poll the target, however long its polls take."""
    left_out: str | None = None
    """What the target's list leaves out, in words. None if it has everything."""
    folder: CheckpointFiles | None = None
    """What the target's checkpoint folder holds. None if the target is none, or if this poll did not read it."""

    @property
    def shed_in_all(self) -> Shed:
        """The counts of all jobs, plus what was read earlier and lost before it was stored."""
        return sum((job.shed for job in self.jobs), self.shed)
