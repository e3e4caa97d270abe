"""Long histories of a job, drawn by a seed: checkpoints, and readings of all vertices every few seconds.

The job is a chain. For some of the time it is well, for some of the time its last vertex but one is full, so that
checkpoints become slow and then expire, and now and then a single checkpoint is slow.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from backend.domain.checkpoint import Checkpoint, CheckpointConfig, VertexDetail
from backend.domain.failure import FailureReason
from backend.domain.ids import VertexId
from backend.domain.pressure import VertexPressure
from backend.domain.topology import Topology
from tests.support import handwritten_jobs
from tests.support.advised_jobs import EXACTLY_ONCE
from tests.support.handwritten_jobs import START

TIMEOUT_MS = 30_000
_WELL, _FULL, _EXPIRING = "well", "full", "expiring"


@dataclass(frozen=True)
class LongPast:
    """A job of ``vertices`` with ``parallelism`` subtasks each. Checkpoints are triggered every ``interval_s``."""

    vertices: int = 6
    parallelism: int = 16
    checkpoints: int = 1000
    interval_s: float = 10.0
    reading_every_s: float = 5.0
    seed: int = 1
    begin: datetime = START

    @property
    def names(self) -> tuple[VertexId, ...]:
        """The ids of the vertices, from the source on."""
        return tuple(VertexId(f"{n:032x}") for n in range(self.vertices))

    def topology(self) -> Topology:
        """Return the graph: a chain whose exchanges are all keyed."""
        return handwritten_jobs.chain(*self.names, parallelism=self.parallelism)

    def config(self) -> CheckpointConfig:
        """Return the settings, which never change."""
        return replace(EXACTLY_ONCE, interval_ms=round(self.interval_s * 1000), timeout_ms=TIMEOUT_MS)

    def rows(self) -> Iterator[Checkpoint]:
        """Yield the checkpoints, all of which have ended."""
        rng = random.Random(self.seed)
        for number in range(1, self.checkpoints + 1):
            yield self._checkpoint(rng, number)

    def readings(self) -> Iterator[VertexPressure]:
        """Yield the readings of all vertices, oldest first."""
        rng = random.Random(self.seed + 1)
        last_s = (self.checkpoints + 1) * self.interval_s
        for step in range(int(last_s / self.reading_every_s)):
            at_s = step * self.reading_every_s
            for place in range(self.vertices):
                yield self._reading(rng, place, at_s)

    def _phase(self, at_s: float) -> str:
        """Return how the job is: 60 % of each ten minutes it is well, then it is full, and at last they expire."""
        share = (at_s + 97 * self.seed) % 600 / 600
        return _WELL if share < 0.6 else _FULL if share < 0.9 else _EXPIRING

    def _checkpoint(self, rng: random.Random, number: int) -> Checkpoint:
        at = self.begin + timedelta(seconds=number * self.interval_s)
        phase = self._phase(number * self.interval_s)
        held_ms = {_WELL: 150.0, _FULL: 4_000.0, _EXPIRING: 60_000.0}[phase] * (12 if rng.random() < 0.02 else 1)
        full = self.vertices - 2
        details: list[VertexDetail] = []
        for place, name in enumerate(self.names):
            first = [round(self._delay_ms(rng, place, full, held_ms)) for _ in range(self.parallelism)]
            has_it = [ms < TIMEOUT_MS for ms in first]
            details.append(
                handwritten_jobs.detail(
                    name,
                    first=[ms if there else None for ms, there in zip(first, has_it, strict=True)],
                    alignment=[round(rng.lognormvariate(3, 1)) for _ in first],
                    sync=[round(rng.lognormvariate(2, 0.5)) for _ in first],
                    async_=[round(rng.lognormvariate(5, 0.5)) for _ in first],
                    size_bytes=round(rng.lognormvariate(14, 0.5)),
                )
            )
        if all(ack is not None and ack < TIMEOUT_MS for d in details for ack in d.ack_delay_ms):
            made = handwritten_jobs.completed(number, *details)
        else:
            made = handwritten_jobs.failed(number, *details, reason=FailureReason.EXPIRED, after_ms=TIMEOUT_MS)
        shift = at - made.header.triggered_at
        header = made.header
        moved = {
            name: None if value is None else value + shift
            for name in ("triggered_at", "latest_ack_at", "failed_at")
            for value in (getattr(header, name),)
        }
        return replace(made, header=replace(header, **moved))

    def _delay_ms(self, rng: random.Random, place: int, full: int, held_ms: float) -> float:
        ahead = 5 * (place + 1) * rng.lognormvariate(0, 0.4)
        return ahead + (held_ms * rng.lognormvariate(0, 0.15) if place >= full else 0)

    def _reading(self, rng: random.Random, place: int, at_s: float) -> VertexPressure:
        count, full = self.parallelism, self.vertices - 2
        is_full = self._phase(at_s) != _WELL
        busy = [rng.uniform(0.97, 1.0) if is_full and place == full else rng.uniform(0.1, 0.4) for _ in range(count)]
        held = [(1 - b) * rng.uniform(0.9, 1) if is_full and place < full else 0.0 for b in busy]
        records = [round(1000 * at_s * (1 + i / count / 10)) for i in range(count)]
        queued = [rng.randrange(400_000 if is_full and place <= full else 20_000) for _ in range(count)]
        return VertexPressure(
            vertex_id=self.names[place],
            observed_at=self.begin + timedelta(seconds=at_s),
            busy_ratio=tuple(busy),
            backpressured_ratio=tuple(held),
            idle_ratio=tuple(max(0.0, 1 - b - h) for b, h in zip(busy, held, strict=True)),
            out_pool_usage_ratio=tuple(rng.random() for _ in range(count)),
            in_pool_usage_ratio=tuple(rng.random() for _ in range(count)),
            queued_in_bytes=(0,) * count,
            queued_out_bytes=tuple(queued),
            records_in_count=tuple(records),
            records_out_count=tuple(records),
            bytes_in_count=tuple(n * 100 for n in records),
            start_delay_gauge_ms=(0,) * count,
            alignment_gauge_ms=(0,) * count,
        )
