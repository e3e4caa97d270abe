"""What the rules on a query know of it, and what a rule says.

The facts are computed once from the evidence, and each rule reads them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from backend.analysis.numbers.statistics import median
from backend.analysis.queries import series, stored_state
from backend.analysis.queries.micro_batches import BatchReport
from backend.analysis.queries.series import Growth, Rhythm, Row
from backend.analysis.queries.stored_state import SnapshotLag, StateGrowth
from backend.domain.checkpoint import Checkpoint
from backend.domain.verdict import Confidence, Evidence, Health, VerdictKind

# Spark describes a sink by its class, and in brackets by the path or the name of a table, which may be any word.
_DELTA: Final = re.compile(r"[^\[(]*delta", re.IGNORECASE)
_KAFKA: Final = re.compile(r"[^\[(]*kafka", re.IGNORECASE)

INSIDE_MIN_COUNT: Final = 2
"""The Spark jobs of so many batches must be known, or those of one batch would decide."""
INSIDE_AGE_MAX: Final = 13
"""One of them must be among so many of the newest batches. Of batches of 1.2 s, one in 13 is chosen."""
UNUSUAL_TIMES: Final = 1.5
"""A batch that takes this many times the median does not stand for the others."""
NEWEST_COUNT: Final = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one query. ``report`` has the signs, and ``rows`` are the batches that are compared."""

    report: BatchReport
    rows: tuple[Row, ...]
    rhythm: Rhythm | None
    growth: Growth | None
    state: StateGrowth | None
    lag: SnapshotLag | None
    inside: tuple[Row, ...] = ()
    """The batches of which the Spark jobs are known, and which stand for the query; see ``_inside``."""

    @property
    def sink(self) -> str | None:
        """Spark's description of the sink; None if it is not known."""
        return self.rows[-1].batch.sink if self.rows else None

    @property
    def sources(self) -> tuple[str, ...]:
        """Spark's descriptions of the sources."""
        return tuple(s.description for s in self.rows[-1].batch.sources) if self.rows else ()

    @property
    def is_file_sink(self) -> bool:
        """Whether the query writes files, with a log of them in the folder ``_spark_metadata``."""
        return "FileSink" in (self.sink or "")

    @property
    def is_file_source(self) -> bool:
        """Whether the query reads files, with a log of them in the checkpoint folder."""
        return any("FileStreamSource" in s for s in self.sources)

    @property
    def is_delta_sink(self) -> bool:
        """Whether the query writes a Delta table, of whose log a checkpoint is written after every 10 commits."""
        return is_delta(self.sink)

    @property
    def has_state(self) -> bool:
        """Whether the query keeps state from batch to batch."""
        return any(r.batch.state is not None for r in self.rows)

    @property
    def may_track_asynchronously(self) -> bool:
        """Whether asynchronous progress tracking is possible: it is refused except for a Kafka sink without state."""
        return not self.has_state and is_kafka(self.sink)


def is_delta(sink: str | None) -> bool:
    """Return whether Spark describes a sink that writes a Delta table."""
    return _DELTA.match(sink or "") is not None


def is_kafka(sink: str | None) -> bool:
    """Return whether Spark describes a sink that writes to Kafka."""
    return _KAFKA.match(sink or "") is not None


def is_usual_rhythm(sink: str | None, period: int, remainder: int) -> bool:
    """Return whether slow batches with this period are those of a log that is known to be compacted."""
    if period != series.USUAL_PERIOD:
        return False
    return remainder == series.USUAL_PERIOD - 1 or is_delta(sink)


def facts_of(checkpoints: Sequence[Checkpoint], report: BatchReport) -> Facts:
    """Return the facts of the batches of one run, oldest first."""
    rows = series.window_of(checkpoints)
    sink = rows[-1].batch.sink if rows else None
    rhythm = series.rhythm_of(rows, is_usual=lambda p, r: is_usual_rhythm(sink, p, r))
    steady = tuple(r for r in rows if rhythm is None or r not in rhythm.slow)
    return Facts(
        report=report,
        rows=rows,
        rhythm=rhythm,
        growth=series.growth_of(steady),
        state=stored_state.state_growth(rows),
        lag=stored_state.snapshot_lag(rows),
        inside=_inside(rows),
    )


def _inside(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the batches of which the Spark jobs are known; none if they are too few or too old to stand for the query.

    A batch that took much longer than the others is left out: what made it slow does not say why the others are. If the
    newest batches all take longer, each is compared with those.
    """
    usual_ms = max(median(r.took_ms for r in rows) or 0.0, median(r.took_ms for r in rows[-NEWEST_COUNT:]) or 0.0)
    known = tuple(r for r in rows if r.batch.work is not None and r.took_ms < UNUSUAL_TIMES * usual_ms)
    if len(known) < INSIDE_MIN_COUNT or known[-1].number < rows[-INSIDE_AGE_MAX:][0].number:
        return ()
    return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a rule says. ``sentence`` is a sentence without its full stop, and ``headline`` says it in a few words.

    ``explains_delay`` is whether it is a reason for a query to be behind. ``health`` is what the cause alone makes of a
    query that is not behind. A note (``is_note``) is about a query that is well.
    """

    name: str
    kind: VerdictKind
    headline: str
    sentence: str
    confidence: Confidence
    evidence: tuple[Evidence, ...] = ()
    cures: tuple[str, ...] = ()
    no_cures: tuple[str, ...] = ()
    would_decide: tuple[str, ...] = ()
    explains_delay: bool = False
    health: Health = Health.HEALTHY
    is_note: bool = False
    is_said: bool = True
    """Whether the verdict's sentence says a note. If not, it is among the evidence only."""

    @property
    def rows(self) -> tuple[Evidence, ...]:
        """The rows of evidence, with what cures and what does not."""
        cures = [Evidence(f"what cures it: {text}", "cure") for text in self.cures]
        no_cures = [Evidence(f"what does not help: {text}", "no cure") for text in self.no_cures]
        return (*self.evidence, *cures, *no_cures)
