"""The JSON of simulations: runs of the reference runtime that the Lab page and scripts request.

A simulation depends only on its request, so the request determines the id. The same request finds the kept result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field

from backend.contracts.api import CheckpointDetailOut, CheckpointOut, EdgeOut, VertexOut
from backend.contracts.barriers import BarriersOut
from backend.contracts.model import Model, StrictInt, StrictNumber
from backend.contracts.space_time import SpaceTimeOut

_WORD = r"^[a-z0-9-]+$"
SEED_MAX: Final = 2**53 - 1
"""The largest seed. JavaScript, and so a page, has no larger exact integers."""

SettingKey = Annotated[str, Field(max_length=100, pattern=r"^[a-z0-9.-]+$")]
SettingValue = Annotated[str, Field(max_length=50, pattern=r"^[^\x00]*$")]
Word = Annotated[str, Field(max_length=50, pattern=_WORD)]


class SimulationState(StrEnum):
    """The state of a simulation."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the state can no longer change."""
        return self not in (SimulationState.QUEUED, SimulationState.RUNNING)


class SimulationIn(Model):
    """A simulation to run. ``/simulation-catalog`` lists the shapes, the protocols, the settings and the limits."""

    shape: Annotated[Word, Field(examples=["backpressured"])]
    protocol: Annotated[Word, Field(examples=["aligned"])]
    second_protocol: Annotated[Word, Field(examples=["unaligned"])] | None = None
    """A protocol to run beside the first one, with the same job, settings and seed."""
    settings: Annotated[dict[SettingKey, SettingValue], Field(max_length=32)] = {}
    """Settings of the job by key. Absent keys keep the value of the shape."""
    parallelism: Annotated[StrictInt, Field(ge=1, le=32768)] | None = None
    """The parallelism of every vertex. The default is that of the shape."""
    duration_s: Annotated[StrictNumber, Field(gt=0, le=1e9)] = 60.0
    """The virtual time to run, in seconds."""
    seed: Annotated[StrictInt, Field(ge=0, le=SEED_MAX)] = 7


EXAMPLE: Final[Mapping[str, Any]] = {
    "shape": "backpressured",
    "protocol": "aligned",
    "second_protocol": "unaligned",
    "settings": {},
    "parallelism": None,
    "duration_s": 60,
    "seed": 7,
}
"""The request of a visitor of the Lab who comes without one. The role ``lab`` keeps a result of it."""


def simulation_id_of(request: SimulationIn) -> str:
    """Return the id of a request's simulation. Requests with the same content have the same id."""
    plain = request.model_copy(update={"settings": dict(sorted(request.settings.items()))})
    return "s" + hashlib.blake2b(plain.model_dump_json().encode(), digest_size=8).hexdigest()


class SimulationRunOut(Model):
    """One run of a simulation. All its values are measured, on virtual time, which begins at 1970-01-01T00:00:00Z."""

    protocol: str
    settings: dict[str, str]
    """The settings that the run used, by key."""
    status: str
    """The state of the job at the end of the run, such as ``RUNNING`` or ``FINISHED``."""
    trace_hash: str
    """Identifies the events of the run. The same request always has the same hash."""
    virtual_time_s: float
    completed_count: int
    failed_count: int
    in_progress_count: int
    restart_count: int
    committed_records: int
    """Number of records that the sinks committed."""
    processed_records: int | None = None
    """Number of records that the sinks processed, committed or not; null if the job restarted, which resets it."""
    duration_p50_ms: float | None
    """The median end-to-end duration of completed checkpoints; null if none completed."""
    duration_max_ms: int | None
    persisted_max_bytes: int | None
    """The most in-flight data that a completed checkpoint persisted; null if none completed."""
    timeout_ms: int | None
    interval_ms: int | None
    vertices: list[VertexOut]
    edges: list[EdgeOut]
    checkpoints: list[CheckpointOut]
    """Oldest first. ``link`` leads to the subtasks and the barrier events of a checkpoint."""


class QueuedWorkOut(Model):
    """The state of work that waits in the queue of simulations, runs, or ended."""

    id: str
    state: SimulationState
    progress_ratio: float
    """The share of the work that is done: of the virtual time of all runs, or of a backtest's checkpoints."""
    queue_position: int | None = None
    """Number of simulations and backtests that start earlier, for queued work."""
    reason: str | None = None
    """Why it failed."""
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    """When it is deleted."""
    as_of: datetime


class SimulationOut(QueuedWorkOut):
    """A simulation: its request, its state and, if it is completed, its result."""

    request: SimulationIn
    is_example: bool = False
    """Whether the role ``lab`` simulated it by itself, for visitors of the Lab who come without a request."""
    runs: list[SimulationRunOut] = []
    """The run of the first protocol, then that of the second one. Empty until the simulation is completed."""


class SimulatedCheckpointOut(Model):
    """One checkpoint of a run, with its subtasks, its verdict, its barrier events and its space-time diagram."""

    checkpoint: CheckpointDetailOut
    barriers: BarriersOut
    space_time: SpaceTimeOut | None = None
    """Null in results of an older version."""


class ShapeOut(Model):
    """A job that can be simulated."""

    name: str
    title: str
    sentence: str
    vertex_count: int
    parallelism: int
    """The largest parallelism of its vertices."""
    settings: dict[str, str]
    """The values of the common settings that a request can change, and of the others that are not at their default."""


class ProtocolGroup(StrEnum):
    """The groups of the catalog's protocols. The protocols of a group differ in one aspect."""

    BARRIERS = "barriers"
    """How barriers or markers pass through the job."""
    STATE = "state"
    """How keyed state is written. Barriers are aligned."""
    END = "end"
    """What a subtask does after its input has ended. Barriers are aligned."""


class ProtocolOut(Model):
    """A checkpoint protocol that can be simulated."""

    name: str
    title: str
    sentence: str
    group: ProtocolGroup
    settings: dict[str, str]
    """The settings that select the protocol."""


class SimulationSettingOut(Model):
    """A setting that a request can change."""

    key: str
    title: str
    sentence: str
    """What the setting does."""
    group: str
    """The title of its group."""
    allowed: str
    """The values that it can have, in words."""
    default: str
    """Its value in a job that does not set it."""
    words: list[str] = []
    """Its values, if they are few."""
    unit: str = ""
    """``ms``, ``bytes``, ``buffers`` or ``""``. A value of milliseconds is written like ``500 ms``."""
    least: float | None = None
    """The left end of the slider that is offered for a common setting; null for the others."""
    most: float | None = None
    protocols: list[str] | None = None
    """The protocols that use the setting; null if all do."""


class SimulationLimitsOut(Model):
    """The limits of simulations."""

    virtual_max_s: float
    subtasks_max: int
    checkpoints_max: int
    """Of one run."""
    record_steps_max: int
    """Records that vertices process, estimated, over all vertices and runs."""
    curve_record_steps_max: int
    """The same, for all runs of a curve over the cap."""
    cpu_max_s: float
    queue_max: int
    """Simulations that are queued or running."""
    caller_max: int
    """The same, for one caller."""
    kept_max: int
    """Ended simulations that are kept."""
    kept_max_s: float


class SimulationCatalogOut(Model):
    """What can be simulated."""

    shapes: list[ShapeOut]
    protocols: list[ProtocolOut]
    settings: list[SimulationSettingOut]
    limits: SimulationLimitsOut
