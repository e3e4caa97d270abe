"""The data that one poll has read of one job so far."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass, field
from datetime import datetime

from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointConfig, CheckpointCounts, Progress
from backend.domain.errors import TargetProtocolError
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Placement, Topology


@dataclass(slots=True)
class Found:
    """The data that one poll has read of one job."""

    topology: Topology | None = None
    placements: tuple[Placement, ...] = ()
    config: CheckpointConfig | None = None
    counts: CheckpointCounts | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    pressure: list[VertexPressure] = field(default_factory=list)
    barriers: list[tuple[int, tuple[BarrierEvent, ...]]] = field(default_factory=list)
    exceptions: tuple[tuple[datetime, str], ...] = ()
    problems: list[str] = field(default_factory=list)

    async def attempt(self, step: Awaitable[None]) -> None:
        """Run an optional step: a malformed answer becomes a problem line instead of an error."""
        try:
            await step
        except TargetProtocolError as error:
            self.problems.append(str(error))
