"""The causes that the newest micro-batches of a query show, as one ordered list (``CAUSES``).

Each cause has a name, the condition under which it is looked for, and the rule that returns what it says. The first one
found is the verdict's, unless the query is behind for another reason; the next one is the second cause. The order is
that of what explains the others: state that grows makes batches grow, and batches that grow hide a rhythm.

A note is no cause: the query is well, and the note says what takes its time or is not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from backend.analysis.numbers.statistics import quantile
from backend.analysis.queries import accumulating, inside_jobs, rhythms, stored_state
from backend.analysis.queries.facts import Facts, Found
from backend.analysis.queries.micro_batches import BatchPart, BatchReport
from backend.analysis.queries.series import SAME_ROWS_TIMES
from backend.analysis.words import sentences as say
from backend.domain.micro_batch import PressureSign
from backend.domain.verdict import Basis, Confidence, Evidence, VerdictKind

LOG_MIN_RATIO: Final = 0.5
"""Writing the checkpoint log, or listing the input, is named if it takes this share of the batches' time."""
DROPPED_MIN_RATIO: Final = 0.2
"""Rows are dropped if they are this share of those that are read. Spark counts them after it has combined some."""
VARIED_ROWS_TIMES: Final = 3.0
"""Time does not go to the rows if batches take the same time though the larger ones have this many times the rows."""
VARIED_MIN_COUNT: Final = 10
_LOW, _HIGH = 0.1, 0.9

ASYNC_CURE: Final = (
    "asynchronous progress tracking (option asyncProgressTrackingEnabled, since Spark 3.4), if the query"
    " may repeat rows after a failure"
)
"""Spark refuses it to a query with state, and to one that does not write to Kafka."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: its name, the condition in words, and the rule that finds it."""

    name: str
    condition: str
    rule: Callable[[Facts], Found | None]


def found_causes(facts: Facts) -> tuple[Found, ...]:
    """Return what the rules find, in the order of ``CAUSES``."""
    return tuple(found for cause in CAUSES if (found := cause.rule(facts)) is not None)


def is_by_pauses_alone(report: BatchReport) -> bool:
    """Return whether the only sign that a query is behind is that it never pauses, which proves little."""
    return all(s.sign is PressureSign.UTILISATION for s in report.raised)


def is_late(report: BatchReport, causes: Sequence[Found]) -> bool:
    """Return whether the query is behind, or is busy all the time for a cause that explains a delay."""
    first = leading(report, causes)
    return report.is_behind or (report.is_open and first is not None and first.explains_delay)


def leading(report: BatchReport, causes: Sequence[Found]) -> Found | None:
    """Return the cause that the verdict names, or None. If the query is behind, it must explain why."""
    real = [c for c in causes if not c.is_note]
    first = next(iter(real), None)
    if not (report.is_behind or report.is_open):
        return first
    if is_by_pauses_alone(report):
        # That a query never pauses proves less than a cause that its batches show.
        return next((c for c in real if c.explains_delay), first)
    # Some slow batches do not delay a query of which the median batch is too long already.
    return next((c for c in real if c.explains_delay and c.name != "compaction"), None)


def lagging_snapshots(facts: Facts) -> Found | None:
    """Return that no snapshot of the state is taken, so that a recovery replays more with each batch."""
    lag = facts.lag
    if lag is None:
        return None
    span = say.duration(lag.span.total_seconds() * 1000)
    many = f"{lag.batch_count} batches ({span})"
    text = f"No snapshot of the state was uploaded in {many}, so a recovery replays all of them"
    if lag.is_known:
        text = (
            f"The state's snapshots lag: a recovery would replay {many}, which is by design only with a large"
            " minDeltasForSnapshot"
        )
    return Found(
        name="lagging-snapshots",
        kind=VerdictKind.STORE,
        headline="The state's snapshots lag",
        sentence=text,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                f"no snapshot was taken in {len(facts.rows)} batches; by default one is taken after 10",
                "SnapshotLastUploaded",
                value=lag.batch_count,
                unit="count",
            ),
        ),
        cures=(
            "what keeps the executors' maintenance from uploading: errors of the maintenance task in their logs, a slow"
            " store, or too few maintenance threads",
        ),
        no_cures=("a restart, which has to replay these batches first",),
        would_decide=(
            "spark.sql.streaming.stateStore.minDeltasForSnapshot: the number of batches after which a snapshot is"
            " taken, 10 by default",
            "the executors' logs at the maintenance of the state stores",
        ),
        is_note=True,
    )


def fixed_cost(facts: Facts) -> Found | None:
    """Return the cause *fixed cost*: batches take as long with few rows as with many. None if they do not."""
    rows = [(r.batch.input_row_count, r.took_ms) for r in facts.rows if r.batch.input_row_count]
    run = facts.report.share(BatchPart.RUN)
    if len(rows) < VARIED_MIN_COUNT or run is None or run < LOG_MIN_RATIO or not facts.report.is_behind:
        return None
    counts, took = [count for count, _ in rows], [ms for _, ms in rows]
    low, high = quantile(counts, _LOW), quantile(counts, _HIGH)
    short, long = quantile(took, _LOW), quantile(took, _HIGH)
    if not low or high is None or not short or long is None:
        return None
    if high < VARIED_ROWS_TIMES * low or long >= SAME_ROWS_TIMES * short:
        return None
    return Found(
        name="fixed-cost",
        kind=VerdictKind.UNDECIDED,
        headline="A batch takes the same time whatever its rows",
        sentence=(
            f"A batch takes {say.duration(short)} to {say.duration(long)} whether it has {say.count(low)} or"
            f" {say.count(high)} rows, so the time does not go to the rows; to what else is not decided"
        ),
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                f"the larger batches have {say.times(high / low)} the rows and take {say.times(long / short)} the time",
                "numInputRows",
                value=say.rounded(high / low),
                unit="ratio",
            ),
        ),
        cures=("fewer and larger batches: a longer interval of the trigger, as far as results may come later",),
        no_cures=("more executors, if the time is spent in the driver",),
        would_decide=(
            "how long the batch's Spark jobs take together (page SQL, `batch = N`): the rest is the sink's commit, the"
            " table's metadata or code of foreachBatch in the driver",
        ),
        explains_delay=True,
    )


def slow_listing(facts: Facts) -> Found | None:
    """Return that the driver lists the input folder for most of the time of a query that is behind."""
    share = facts.report.share(BatchPart.SOURCE)
    if share is None or share < LOG_MIN_RATIO or not facts.is_file_source or not facts.report.is_behind:
        return None
    return Found(
        name="slow-listing",
        kind=VerdictKind.LATE_INPUT,
        headline="Listing the input folder takes most of the time",
        sentence=(
            f"{say.percent(share)} of the time goes to asking the sources for new data: the driver lists the input"
            " folder for each batch, whatever its rows"
        ),
        confidence=Confidence.MEDIUM,
        cures=(
            "removing or archiving files that were read (option cleanSource), a narrower path, or fewer, larger files",
        ),
        no_cures=("more executors, because the driver lists", "a limit of files in a batch: each batch lists all"),
        would_decide=("how many files the input folder has, and how long its store takes to list them",),
        explains_delay=True,
    )


def late_rows(facts: Facts) -> Found | None:
    """Return the rows that are dropped because they come after the watermark."""
    ratio = stored_state.dropped_ratio(facts.rows)
    if ratio is None or ratio < DROPPED_MIN_RATIO:
        return None
    newest = facts.rows[-1]
    watermark, began_at = newest.batch.watermark_at, newest.checkpoint.header.triggered_at
    is_ahead = watermark is not None and watermark > began_at
    why = "; the watermark is ahead of the clock, so rows with event times in the future have moved it"
    return Found(
        name="late-rows",
        kind=VerdictKind.LATE_INPUT,
        headline="Rows are dropped because they come after the watermark",
        sentence=(
            f"Rows are dropped because they come after the watermark: {say.percent(min(1.0, ratio))} as many as are"
            f" read{why if is_ahead else ''}"
        ),
        confidence=Confidence.HIGH if is_ahead else Confidence.MEDIUM,
        cures=(
            "removing or correcting event times in the future before withWatermark"
            if is_ahead
            else "a longer delay of the watermark; each hour of it keeps the state of an hour more",
        ),
        no_cures=("more executors", "a restart: the checkpoint keeps the watermark"),
        would_decide=() if is_ahead else ("the event times of the rows that are dropped, against the watermark",),
    )


def log_writing(facts: Facts) -> Found | None:
    """Return that writing the checkpoint log takes most of batches that keep up."""
    share = facts.report.share(BatchPart.LOG)
    took = facts.report.duration_median_ms
    if share is None or share < LOG_MIN_RATIO or took is None or facts.report.is_behind:
        # Of a query that is behind, the verdict says it by itself.
        return None
    longer = "fewer and larger batches: a longer interval of the trigger"
    can_avoid = facts.may_track_asynchronously
    cures = (ASYNC_CURE, longer) if can_avoid else (longer,)
    avoided = "; asynchronous progress tracking can avoid it" if can_avoid else ""
    return Found(
        name="log-writing",
        kind=VerdictKind.STORE,
        headline="Writing the checkpoint log takes most of the time",
        sentence=(
            f"{say.percent(share)} of the time goes to writing the checkpoint log (offsets and commits),"
            f" {say.duration(share * took)} of each batch{avoided}"
        ),
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                "a batch writes one file of offsets and one of commits, whatever its rows",
                "walCommit, commitOffsets",
                Basis.RECONSTRUCTED,
                say.rounded(share * took),
                "ms",
            ),
        ),
        cures=cures,
        no_cures=("more executors, because the driver writes the log", "another state store"),
        is_note=True,
    )


CAUSES: Final[tuple[Cause, ...]] = (
    Cause(
        "uncleaned-state",
        "the rows of the state rise from batch to batch, and none is removed",
        accumulating.uncleaned_state,
    ),
    Cause(
        "longer-batches",
        "batches take 1.5 times as long within the window, but not for their rows",
        accumulating.longer_batches,
    ),
    Cause("compaction", "the slow batches are those of every n-th number, with the same rows", rhythms.compaction),
    Cause(
        "one-task",
        "one task of a stage takes half of the batch, and 3 times as long as the median task",
        inside_jobs.one_task,
    ),
    Cause("spill", "a stage takes half of the batch, and its tasks spill 64 MB to disk", inside_jobs.spilling),
    Cause(
        "garbage-collection",
        "stages take half of the batch, and a fifth of their tasks' time is garbage collection",
        inside_jobs.collecting_garbage,
    ),
    Cause("outside-jobs", "no Spark job runs for half of the batch, and for a second", inside_jobs.outside_jobs),
    Cause("fixed-cost", "the query is behind, and batches with 3 times the rows take the same time", fixed_cost),
    Cause("slow-listing", "the query is behind, and asking a file source takes half of the time", slow_listing),
    Cause("log-writing", "the checkpoint log takes half of the time", log_writing),
    Cause("late-rows", "a fifth of the rows or more come after the watermark", late_rows),
    Cause("lagging-snapshots", "no snapshot of the state was taken in the window", lagging_snapshots),
)
