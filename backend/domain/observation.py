"""One reading of one target, which a collector passes to the store, the analysis and ``diagnose``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, Progress
from backend.domain.engines import EngineCapabilities
from backend.domain.ids import EngineRunId, TargetId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


class JobState(StrEnum):
    """The state of a run at its engine, simplified. The engine's own word is stored too."""

    RUNNING = "running"
    RESTARTING = "restarting"
    ENDED = "ended"
    UNKNOWN = "unknown"


class JobEventKind(StrEnum):
    """The kind of an event in a job's history."""

    RUN_STARTED = "run-started"
    RUN_ENDED = "run-ended"
    RESTARTED = "restarted"
    CONFIGURATION_CHANGED = "configuration-changed"
    RESCALED = "rescaled"
    EXCEPTION = "exception"


@dataclass(frozen=True, slots=True)
class JobObservation:
    """The data of one run in one poll. An empty tuple means that the poll did not fetch it, not that there is none.

    ``config`` and ``topology`` are None if the poll did not fetch them. ``counts.failed`` may exceed the number of
    listed failed checkpoints. The store keeps the difference (failures without id, time or cause) as a count.
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
    counts: CheckpointCounts | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    progress: tuple[Progress, ...] = ()
    pressure: tuple[VertexPressure, ...] = ()
    barriers: tuple[tuple[int, tuple[BarrierEvent, ...]], ...] = ()
    """(checkpoint id, its events), if the engine has channel events."""
    exceptions: tuple[tuple[datetime, str], ...] = ()
    restart_count: int | None = None
    problems: tuple[str, ...] = ()
    """The errors in reading this run, one line each."""
    clock_offset_ms: int | None = None
    """The run's clock minus ours at this poll, if the runs of a target use different clocks; else None."""


@dataclass(frozen=True, slots=True)
class PollCost:
    """The cost of one poll for the target."""

    request_count: int
    response_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Observation:
    """One successful poll of one target. ``engine_version`` is the engine's own text."""

    target_id: TargetId
    observed_at: datetime
    engine: EngineCapabilities
    engine_version: str | None
    jobs: tuple[JobObservation, ...]
    cost: PollCost
    clock_offset_ms: int | None = None
    """The engine's clock minus ours, as measured by the poll. Ages are corrected by it."""
    received_at: datetime | None = None
    """For pushed data: the time of arrival on our clock. ``observed_at`` is then on the job's clock."""
