"""The causes that the Spark jobs and stages of micro-batches show: one task, spill, garbage collection, and the driver.

Only some batches have them, those that the collector has chosen, and the listener reports none. A cause must show in at
least half of the batches that have them, and in the newest one. ``facts.inside`` says which batches are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from backend.analysis.numbers.statistics import median
from backend.analysis.queries.facts import Facts, Found
from backend.analysis.queries.micro_batches import BatchPart, parts_of
from backend.analysis.queries.series import Row
from backend.analysis.words import sentences as say
from backend.domain.batch_work import BatchWork, StageWork
from backend.domain.verdict import Basis, Confidence, Evidence, VerdictKind

SHARE_MIN: Final = 0.5
"""A cause takes at least this share of a batch."""
TASK_MIN_TIMES: Final = 3.0
"""One task stands out if it takes this many times as long as the median task of its stage."""
ROWS_UNEVEN_TIMES: Final = 2.0
"""Its rows explain it only if some task reads this many times the rows of the median task."""
ROWS_UNEVEN_MIN: Final = 1_000
"""Its rows explain it only if some task reads this many: a few rows take no time that counts."""
ROWS_OF_TIME_MIN: Final = 0.5
"""Its rows explain it only if the times of the rows are this share of the times of the durations, or more.

Only the maximum of each is known. The task with most rows is the longest one if both are that far apart.
"""
ROWS_EVEN_TIMES: Final = 1.3
"""Its rows do not explain it if no task reads more than this many times the rows of the median task."""
SPILL_MIN_BYTES: Final = 64 * 2**20
"""Tasks spill if those of a stage write this much to disk because memory is short."""
GC_MIN_RATIO: Final = 0.2
"""Garbage collection is named if it takes this share of the tasks' time."""
OUTSIDE_MIN_MS: Final = 1_000.0
SURE_COUNT: Final = 3
"""The confidence is high only with at least this many batches."""


def one_task(facts: Facts) -> Found | None:
    """Return the stage of which one task takes most of the batch, and whether its rows explain that."""
    shown = [(r, s) for r in facts.inside if (s := _lone(r)) is not None]
    if not _holds(facts, [r for r, _ in shown]):
        return None
    row, stage = shown[-1]
    is_uneven = [_is_uneven(s) for _, s in shown]
    lead = (
        f"One of {stage.task_count} tasks of stage {stage.stage_id} takes {say.duration(stage.task_max_ms or 0)} of the"
        f" {say.duration(row.took_ms)} of batch {row.number}, the median task {say.duration(stage.task_median_ms or 0)}"
    )
    if all(is_uneven):
        kind, headline = VerdictKind.SKEW, "One task takes most of the batch, because it has most rows"
        why = (
            f"one task reads {say.count(stage.rows_max or 0)} rows, the median one {say.count(stage.rows_median or 0)}"
        )
        confidence = Confidence.HIGH if len(shown) >= SURE_COUNT else Confidence.MEDIUM
        cures: tuple[str, ...] = (
            "dividing the key that has most rows: a random part in the key and aggregation in two steps, or that key"
            " apart from the others",
            "another partitioning before the stage, if few partitions have all rows",
        )
        no_cures: tuple[str, ...] = ("more executors or cores: one task runs on one core",)
        would: tuple[str, ...] = ()
    elif _is_even(stage):
        kind, headline = VerdictKind.STRAGGLER, "One task takes most of the batch, with as many rows as the others"
        why = "its rows are not more than those of the others, so its executor is slow, or some rows cost more"
        confidence, cures, no_cures = Confidence.MEDIUM, (), ("dividing keys: the tasks have as many rows already",)
        would = ("on which executor the longest task runs, in several batches (Spark's page of the stage)",)
    else:
        kind, headline = VerdictKind.UNDECIDED, "One task takes most of the batch"
        why = "whether by its rows or by its executor is not decided"
        confidence, cures, no_cures = Confidence.MEDIUM, (), ("more executors or cores: one task runs on one core",)
        would = ("the rows that each task of the stage reads, and its executor (Spark's page of the stage)",)
    return _found(
        facts,
        name="one-task",
        kind=kind,
        headline=headline,
        sentence=f"{lead}; {why}",
        confidence=confidence,
        evidence=(*(_task_row(r, s) for r, s in shown[-3:]), *_rows_rows(stage)),
        cures=cures,
        no_cures=no_cures,
        would_decide=would,
    )


def spilling(facts: Facts) -> Found | None:
    """Return the stage whose tasks write to disk because memory is short, if it takes most of the batch."""
    shown = [(r, s) for r in facts.inside if (s := _longest(r)) and (s.disk_spill_bytes or 0) >= SPILL_MIN_BYTES]
    if not _holds(facts, [r for r, _ in shown]):
        return None
    row, stage = shown[-1]
    spilled = say.size(stage.disk_spill_bytes or 0)
    return _found(
        facts,
        name="spill",
        kind=VerdictKind.CAPACITY,
        headline="Tasks have too little memory and spill to disk",
        sentence=(
            f"The tasks of stage {stage.stage_id}, which takes {say.duration(stage.duration_ms or 0)} of the"
            f" {say.duration(row.took_ms)} of batch {row.number}, spill {spilled} to disk because memory is short"
        ),
        confidence=Confidence.MEDIUM,
        evidence=tuple(
            Evidence(
                f"batch {r.number}: stage {s.stage_id} spilled {say.size(s.disk_spill_bytes or 0)} to disk,"
                f" {say.size(s.memory_spill_bytes or 0)} in memory",
                "diskBytesSpilled",
                value=s.disk_spill_bytes,
                unit="bytes",
            )
            for r, s in shown[-3:]
        ),
        cures=(
            "more partitions (spark.sql.shuffle.partitions of a new checkpoint, or repartition), so that each task has"
            " less; or more memory for each core",
        ),
        no_cures=("more cores on the same executors, because more tasks then share the memory",),
    )


def collecting_garbage(facts: Facts) -> Found | None:
    """Return the share of the tasks' time in garbage collection, if the stages take most of the batch."""
    shown = [(r, ratio) for r in facts.inside if (ratio := _gc_ratio(r)) is not None and ratio >= GC_MIN_RATIO]
    if not _holds(facts, [r for r, _ in shown]):
        return None
    ratio = median(ratio for _, ratio in shown) or 0.0
    return _found(
        facts,
        name="garbage-collection",
        kind=VerdictKind.CAPACITY,
        headline="Garbage collection takes the tasks' time",
        sentence=f"Garbage collection takes {say.percent(ratio)} of the tasks' time in the stages that take the batch",
        confidence=Confidence.MEDIUM,
        evidence=tuple(
            Evidence(
                f"batch {r.number}: {say.percent(share)} of the tasks' time went to garbage collection",
                "jvmGCTime / executorRunTime",
                value=say.rounded(share),
                unit="ratio",
            )
            for r, share in shown[-3:]
        ),
        cures=(
            "more memory for each core, or fewer objects: RocksDB as the state store keeps its state outside the heap",
        ),
        no_cures=("more cores on the same executors, because more tasks then share the heap",),
        would_decide=("which executors collect garbage, and their heaps (Spark's page of the executors)",),
    )


def outside_jobs(facts: Facts) -> Found | None:
    """Return the time of a batch in which no Spark job runs, if that is most of it."""
    shown = [(r, ms) for r in facts.inside if (ms := outside_ms(r)) is not None and _is_most(ms, r)]
    if not _holds(facts, [r for r, _ in shown]):
        return None
    row, ms = shown[-1]
    return _found(
        facts,
        name="outside-jobs",
        kind=VerdictKind.UNDECIDED,
        headline="No Spark job runs for most of the batch",
        sentence=(
            f"For {say.duration(ms)} of the {say.duration(row.took_ms)} of batch {row.number}, no Spark job of it runs:"
            " the driver works or waits, in code of foreachBatch, in the commit of the sink or in a table's metadata"
        ),
        confidence=Confidence.MEDIUM,
        evidence=tuple(_outside_row(r, value) for r, value in shown[-3:]),
        no_cures=("more executors, if those there are run no other Spark jobs in that time",),
        would_decide=(
            "threads of the driver while a batch runs (Spark's page of the executors): what `stream execution thread`"
            " does",
        ),
    )


def outside_ms(row: Row) -> float | None:
    """Return the time in which a batch runs and no Spark job of it does; None if it is not known.

    Planning, the checkpoint log and asking the sources are parts of their own, and are not counted.
    """
    work = row.batch.work
    if work is None or work.jobs_ms is None:
        return None
    named = sum(ms for part, ms in parts_of(row.batch).items() if part not in (BatchPart.RUN, BatchPart.STATE_COMMIT))
    return max(0.0, row.took_ms - work.jobs_ms - named)


def outside_rows(rows: Sequence[Row]) -> tuple[Evidence, ...]:
    """Return what is known of the time without a Spark job in these batches, the newest three."""
    known = [(r, ms) for r in rows if (ms := outside_ms(r)) is not None]
    return tuple(_outside_row(r, ms) for r, ms in known[-3:])


def _found(facts: Facts, **said: object) -> Found:
    """Return a cause. It is a note about a query that is neither behind nor busy all the time."""
    is_late = facts.report.is_behind or facts.report.is_open
    return Found(**said, explains_delay=True, is_note=not is_late)  # type: ignore[arg-type]


def _holds(facts: Facts, shown: Sequence[Row]) -> bool:
    return bool(shown) and shown[-1] is facts.inside[-1] and len(shown) >= SHARE_MIN * len(facts.inside)


def _lone(row: Row) -> StageWork | None:
    """Return the stage of which one task takes most of the batch beyond the median task; None if there is none."""
    work = row.batch.work or BatchWork()
    known = [(s, s.task_max_ms, s.task_median_ms) for s in work.stages if s.task_count > 1]
    lone = [
        (most - middle, s)
        for s, most, middle in known
        if most is not None
        and middle is not None
        and most >= TASK_MIN_TIMES * max(1, middle)
        and most - middle >= SHARE_MIN * row.took_ms
    ]
    return max(lone, key=lambda x: x[0])[1] if lone else None


def _is_uneven(stage: StageWork) -> bool:
    if stage.rows_max is None or stage.rows_max < ROWS_UNEVEN_MIN:
        return False
    took_times = (stage.task_max_ms or 0) / max(1, stage.task_median_ms or 0)
    rows_times = stage.rows_max / max(1, stage.rows_median or 0)
    return rows_times >= max(ROWS_UNEVEN_TIMES, ROWS_OF_TIME_MIN * took_times)


def _is_even(stage: StageWork) -> bool:
    if stage.rows_median is None or stage.rows_max is None:
        return False
    return stage.rows_max <= ROWS_EVEN_TIMES * stage.rows_median


def _longest(row: Row) -> StageWork | None:
    """Return the longest stage of a batch if it takes most of it."""
    work = row.batch.work
    stage = work.stages[0] if work is not None and work.stages else None
    return stage if stage is not None and (stage.duration_ms or 0) >= SHARE_MIN * row.took_ms else None


def _gc_ratio(row: Row) -> float | None:
    work = row.batch.work
    if work is None or (work.jobs_ms or 0) < SHARE_MIN * row.took_ms:
        return None
    run = sum(s.run_ms or 0 for s in work.stages)
    return min(1.0, sum(s.gc_ms or 0 for s in work.stages) / run) if run else None


def _is_most(ms: float, row: Row) -> bool:
    return ms >= OUTSIDE_MIN_MS and ms >= SHARE_MIN * row.took_ms


def _task_row(row: Row, stage: StageWork) -> Evidence:
    most, middle = stage.task_max_ms or 0, stage.task_median_ms or 0
    return Evidence(
        f"batch {row.number}: of {stage.task_count} tasks of stage {stage.stage_id} the longest took"
        f" {say.duration(most)}, the median one {say.duration(middle)}",
        "task duration",
        value=most,
        unit="ms",
    )


def _rows_rows(stage: StageWork) -> tuple[Evidence, ...]:
    if stage.rows_max is None or stage.rows_median is None:
        return ()
    text = f"the tasks of stage {stage.stage_id} read {say.count(stage.rows_median)} rows in the median, and at most"
    return (Evidence(f"{text} {say.count(stage.rows_max)}", "rows of a task", value=stage.rows_max, unit="count"),)


def _outside_row(row: Row, ms: float) -> Evidence:
    return Evidence(
        f"batch {row.number}: no Spark job of it ran for {say.duration(ms)} of {say.duration(row.took_ms)}",
        "time outside Spark jobs",
        Basis.RECONSTRUCTED,
        say.rounded(ms),
        "ms",
    )
