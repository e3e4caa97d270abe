"""One reading of one target: what a collector hands to the store, the analysis and ``diagnose``."""

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
    """The state of a run at its engine, coarse: the engine's own word is kept beside it."""

    RUNNING = "running"
    RESTARTING = "restarting"
    ENDED = "ended"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class JobObservation:
    """What one poll saw of one run. Tuples hold what was fetched this time: an empty one is *not asked*, not *none*.

    ``config`` and ``topology`` are None where the poll did not fetch them. ``counts.failed`` may exceed the failed
    checkpoints ever listed: that surplus (failures without id, time or cause) is kept by the store as a count.
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
    """What could not be read of this run this time, one line each."""
    clock_offset_ms: int | None = None
    """The run's own clock minus ours at this poll, where runs of one target keep different times; else None."""


@dataclass(frozen=True, slots=True)
class PollCost:
    """What one poll cost the target."""

    request_count: int
    response_bytes: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Observation:
    """One poll of one target that was answered. ``engine_version`` is the engine's own word."""

    target_id: TargetId
    observed_at: datetime
    engine: EngineCapabilities
    engine_version: str | None
    jobs: tuple[JobObservation, ...]
    cost: PollCost
    clock_offset_ms: int | None = None
    """The engine's clock minus ours, as far as the poll could tell: an age compares the two."""
    received_at: datetime | None = None
    """When it came in by our clock, where a job sent it itself; ``observed_at`` is by the job's clock then."""
