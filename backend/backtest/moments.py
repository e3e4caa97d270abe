"""Goes through the history of a job, and returns the evidence as it was known at the end of each checkpoint.

Nothing that became known later is part of it: no later checkpoint, reading, setting, restart or exception. A checkpoint
that had begun by then and ended later is part of it as one in progress.

Two things are not stored for each time. The coordinator's counters are left out. The placement of the subtasks is used
if the job has not restarted since. A checkpoint's details count as known when it ended, although they may have been
read some polls later.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from backend.analysis.assembling import (
    EVIDENCE_COUNT,
    EXCEPTIONS_COUNT,
    LOSSES_COUNT,
    NEVER,
    POD_ENDS_COUNT,
    READ_WITHIN,
    RunAt,
    first_trigger_under,
    is_governed,
    model_readings_since,
    newest_readings,
    with_earlier,
)
from backend.analysis.health.struck_spans import struck_spans
from backend.analysis.measures.evidence import JobEvidence
from backend.backtest.stored import Chunk, JobHistory, StoredCheckpoint, StoredRun, as_open
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, LateBarrier
from backend.domain.pressure import VertexPressure


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a checkpoint, and what was known of the job then.

    ``settings_since`` is when the settings were first read, on the engine's clock, and ``first_trigger_at`` the first
    trigger under them; both are None if the settings had not changed while the job ran.
    """

    run: StoredRun
    stored: StoredCheckpoint
    at: datetime
    evidence: JobEvidence
    settings_since: datetime | None
    first_trigger_at: datetime | None
    readings_between: Callable[[datetime, datetime], tuple[VertexPressure, ...]] = lambda since, until: ()
    """Returns readings of the run, as far back as its evidence. It holds until the next moment is made."""

    def modelled(self) -> JobEvidence:
        """Return the evidence for a model of the job: checkpoints under its settings, and the readings of their time.

        It is what the service builds models from (``EvidenceReader.under_current_settings``).
        """
        first = self.first_trigger_at
        kept = tuple(c for c in self.evidence.checkpoints if is_governed(c.header, first))
        if not kept:
            return replace(self.evidence, checkpoints=())
        begin = model_readings_since(kept[0].header, self.at)
        return replace(self.evidence, checkpoints=kept, pressure=self.readings_between(begin, self.at))

    @property
    def under_settings(self) -> list[CheckpointHeader]:
        """The headers of the known checkpoints that the settings of this time governed, oldest first."""
        first = self.first_trigger_at
        return [c.header for c in self.evidence.checkpoints if is_governed(c.header, first)]


@dataclass(slots=True)
class _Known:
    """What is known of one run: its newest ended checkpoints, and its readings, some of which may be of later times."""

    run: StoredRun
    ended: deque[StoredCheckpoint] = field(default_factory=lambda: deque(maxlen=EVIDENCE_COUNT))
    readings: list[VertexPressure] = field(default_factory=list)

    def add(self, readings: Sequence[VertexPressure]) -> None:
        begin = self.ended[0].header.triggered_at - READ_WITHIN if self.ended else None
        if begin is not None and self.readings:
            del self.readings[: bisect_left(self.readings, begin, key=_READ_AT)]
        self.readings += readings

    def between(self, since: datetime, until: datetime) -> tuple[VertexPressure, ...]:
        """Return the readings from ``since`` to ``until``, both inclusive."""
        first = bisect_left(self.readings, since, key=_READ_AT)
        return tuple(self.readings[first : bisect_right(self.readings, until, key=_READ_AT)])


_READ_AT: Final = attrgetter("observed_at")


class Moments:
    """Makes a moment for each checkpoint of a job that is no savepoint, in the order of their ends.

    ``feed`` takes the chunks of the job, whose checkpoints are in the order of their triggers. Few of them are in
    memory at a time.
    """

    def __init__(self, runs: Mapping[str, StoredRun]) -> None:
        self._runs = runs
        self._known: dict[str, _Known] = {}
        # The checkpoints that were triggered and have not ended yet. The number makes the order unique.
        self._pending: list[tuple[datetime, int, StoredCheckpoint]] = []
        self._count = 0

    def feed(self, chunk: Chunk) -> Iterator[Moment]:
        """Yield the moments that no later chunk can change."""
        for run_id, readings in chunk.readings.items():
            if run_id in self._runs:
                self._of(run_id).add(readings)
        for stored in chunk.checkpoints:
            if stored.run_id not in self._runs:
                continue
            # Later checkpoints are triggered later, so they end later than all that ended before this trigger.
            yield from self._ended(until=stored.header.triggered_at)
            heapq.heappush(self._pending, (stored.ended_at, self._count, stored))
            self._count += 1

    def finish(self) -> Iterator[Moment]:
        """Yield the moments that are left after the last chunk."""
        yield from self._ended(until=NEVER)

    def _of(self, run_id: str) -> _Known:
        return self._known.setdefault(run_id, _Known(self._runs[run_id]))

    def _ended(self, *, until: datetime) -> Iterator[Moment]:
        while self._pending and self._pending[0][0] <= until:
            at, _, stored = heapq.heappop(self._pending)
            known = self._of(stored.run_id)
            known.ended.append(stored)
            if stored.header.kind is CheckpointKind.CHECKPOINT:
                others = [s for _, _, s in self._pending if s.run_id == stored.run_id and s.header.triggered_at <= at]
                yield _moment(known, stored, at, others)


def newest_moment(history: JobHistory) -> Moment | None:
    """Return the last of the moments of a history: the end of the newest checkpoint. None if no checkpoint has ended.

    Use it for short histories: all moments are made.
    """
    moments, last = Moments(history.runs), None
    for chunk in history.chunks():
        for moment in moments.feed(chunk):
            last = moment
    for moment in moments.finish():
        last = moment
    return last


def _moment(known: _Known, stored: StoredCheckpoint, at: datetime, others: Sequence[StoredCheckpoint]) -> Moment:
    run = known.run
    shape = run.shape_at(at)
    changed_at = run.settings_changed_at(at)
    checkpoints = [s.checkpoint for s in known.ended] + [as_open(s, at) for s in others]
    evidence = RunAt(
        topology=shape.topology,
        config=shape.config,
        cluster_settings=shape.cluster,
        placements=run.placements_at(at),
        exceptions=run.exceptions_at(at, limit=EXCEPTIONS_COUNT),
        losses=run.losses_at(at, limit=LOSSES_COUNT),
        pod_ends=run.pod_ends_at(at, limit=POD_ENDS_COUNT),
        restart_count=run.restart_count_at(at),
        started_at=run.started_at,
        engine=run.engine,
        engine_version=run.engine_version,
    ).evidence_on_job(
        now=at,
        checkpoints=sorted(checkpoints, key=lambda c: (c.header.triggered_at, c.header.checkpoint_id)),
        readings=newest_readings(known.between(at - READ_WITHIN, at)),
        late={s.header.checkpoint_id: late for s in (*known.ended, *others) if (late := _late(s, run, at))},
    )
    return Moment(
        run,
        stored,
        at,
        evidence if run.engine.is_micro_batched else _with_struck(evidence, known),
        None if changed_at is None else changed_at + run.ahead,
        first_trigger_under(changed_at, [(s.ended_at - run.ahead, s.header.triggered_at) for s in known.ended]),
        known.between,
    )


def _late(stored: StoredCheckpoint, run: StoredRun, at: datetime) -> tuple[LateBarrier, ...]:
    return tuple(barrier for barrier in stored.late if barrier.seen_at <= at - run.ahead)


def _with_struck(evidence: JobEvidence, known: _Known) -> JobEvidence:
    spans = struck_spans(evidence)
    return with_earlier(evidence, [r for since, until in spans for r in known.between(since, until)])
