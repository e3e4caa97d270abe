"""Histories of jobs in memory, as the backtest reads them. A test sets their checkpoints, readings and settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from backend.backtest.stored import Chunk, StoredCheckpoint, StoredRun
from backend.domain.checkpoint import Checkpoint, CheckpointConfig
from backend.domain.engines import RUNTIME, EngineCapabilities
from backend.domain.pressure import VertexPressure
from tests.support.advised_jobs import EXACTLY_ONCE, readings
from tests.support.handwritten_jobs import START, chain, held_back

BEGIN = START - timedelta(hours=1)
CHUNK = 7


@dataclass
class Past:
    """The history of one job with one run. It is read in chunks of a few checkpoints."""

    checkpoints: Sequence[StoredCheckpoint]
    readings: Sequence[VertexPressure] = ()
    configs: Sequence[tuple[datetime, CheckpointConfig]] = ((BEGIN, EXACTLY_ONCE),)
    restarts: Sequence[tuple[datetime, int]] = ()
    exceptions: Sequence[tuple[datetime, str]] = ()
    engine: EngineCapabilities = RUNTIME
    chunk_count: int = CHUNK
    runs: dict[str, StoredRun] = field(init=False)

    def __post_init__(self) -> None:
        self.runs = {
            "r": StoredRun(
                id="r",
                engine=self.engine,
                engine_version="1.20.5",
                ahead=timedelta(),
                placements=(),
                versions={"topology": [(BEGIN, chain())], "config": list(self.configs)},
                started_at=BEGIN,
                restarts=self.restarts,
                exceptions=self.exceptions,
            )
        }

    def chunks(self) -> Iterator[Chunk]:
        read_until = BEGIN
        rows = sorted(self.checkpoints, key=lambda s: (s.header.triggered_at, s.header.checkpoint_id))
        for begin in range(0, len(rows), self.chunk_count):
            part = rows[begin : begin + self.chunk_count]
            until = max(s.ended_at for s in part)
            found = [r for r in self.readings if read_until < r.observed_at <= until]
            read_until = max(read_until, until)
            yield Chunk(part, {"r": found})


def stored(checkpoints: Sequence[Checkpoint], judged: tuple[str, str | None] | None = None) -> list[StoredCheckpoint]:
    """Return the checkpoints as they are stored, all with the same stored verdict."""
    return [StoredCheckpoint("r", c, judged=judged) for c in checkpoints]


def slow(first: int, count: int, *, last_ms: int = 4_800) -> list[Checkpoint]:
    """Build completed checkpoints whose barrier waits in front of the last vertex."""
    delays = {"source": [5] * 4, "middle": [1_500] * 4, "last": [last_ms] * 4}
    return [held_back(n, delays) for n in range(first, first + count)]


def loaded(until_s: float, **values: object) -> list[VertexPressure]:
    """Build readings of a job whose last vertex is full, from the start until ``until_s``."""
    found: list[VertexPressure] = []
    for n in range(int(until_s // 10) + 2):
        for r in readings(**values):
            # The counts go on from those of the ten seconds before.
            taken = tuple((v or 0) + n * 2_500_000 for v in r.bytes_in_count)
            counted = tuple((v or 0) + n * 2_500 for v in r.records_in_count)
            at = r.observed_at + timedelta(seconds=10 * n - 52)
            found.append(replace(r, observed_at=at, bytes_in_count=taken, records_in_count=counted))
    return found
