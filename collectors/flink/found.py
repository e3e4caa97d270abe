"""Collects the data that one poll reads about one job."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, ClusterSettings, Progress
from backend.domain.errors import TargetProtocolError
from backend.domain.losses import Loss
from backend.domain.observation import NOTHING_SHED, Shed
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


@dataclass(slots=True)
class Found:
    """The data that the current poll has read about one job so far."""

    topology: Topology | None = None
    placements: tuple[Placement, ...] = ()
    config: CheckpointConfig | None = None
    cluster_settings: ClusterSettings | None = None
    counts: CheckpointCounts | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    pressure: list[VertexPressure] = field(default_factory=list)
    barriers: list[tuple[int, tuple[BarrierEvent, ...]]] = field(default_factory=list)
    exceptions: tuple[tuple[datetime, str], ...] = ()
    losses: tuple[Loss, ...] = ()
    effects: tuple[tuple[datetime, str], ...] = ()
    problems: list[str] = field(default_factory=list)
    shed: Shed = NOTHING_SHED

    async def attempt(self, step: Awaitable[None]) -> None:
        """Await an optional step.

        If the target's response is malformed, add its error to ``problems`` instead of raising it.
        """
        try:
            await step
        except TargetProtocolError as error:
            self.problems.append(str(error))
