"""The Spark jobs and stages of one micro-batch: what its executors did, and how long.

A micro-batch runs Spark jobs, a job runs stages, and a stage runs one task for each partition. The values are those of
Spark's event log and of a driver's REST API. None means *not reported*, never zero. Units are milliseconds, bytes and
rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STAGES_MAX: Final = 5
"""So many stages of a batch are kept, those that took longest."""
JOB_IDS_MAX: Final = 20
"""So many ids of a batch's Spark jobs are kept, the first ones."""


@dataclass(frozen=True, slots=True)
class StageWork:
    """One attempt of one stage. ``duration_ms`` is the time from its submission to its completion.

    ``task_median_ms`` and ``task_max_ms`` are the times of its successful tasks, from launch to finish. ``rows_median``
    and ``rows_max`` are the rows that a task read from the shuffle or, if it reads none, from its input. The median of
    an even number of values is the larger one of the two in the middle, as Spark has it. ``run_ms`` and ``gc_ms`` are
    sums over the tasks: the time that executors ran them, and the part of it in garbage collection.
    """

    stage_id: int
    attempt: int
    name: str
    task_count: int
    failed_task_count: int | None = None
    duration_ms: int | None = None
    task_median_ms: int | None = None
    task_max_ms: int | None = None
    rows_median: int | None = None
    rows_max: int | None = None
    run_ms: int | None = None
    gc_ms: int | None = None
    memory_spill_bytes: int | None = None
    disk_spill_bytes: int | None = None
    input_bytes: int | None = None
    shuffle_read_bytes: int | None = None
    shuffle_write_bytes: int | None = None

    @property
    def task_ratio(self) -> float | None:
        """How many times as long as the median task the longest one took; None if it is not known."""
        return _ratio(self.task_max_ms, self.task_median_ms)

    @property
    def rows_ratio(self) -> float | None:
        """How many times as many rows as the median task the one with most rows read; None if it is not known."""
        return _ratio(self.rows_max, self.rows_median)

    @property
    def gc_ratio(self) -> float | None:
        """The share of the tasks' time in garbage collection; None if it is not known."""
        return None if self.gc_ms is None or not self.run_ms else min(1.0, self.gc_ms / self.run_ms)


@dataclass(frozen=True, slots=True)
class BatchWork:
    """The Spark jobs and stages of one micro-batch.

    ``app_id`` and ``attempt_id`` name the application, ``execution_id`` is the batch's SQL execution. ``jobs_ms`` is
    the time in which at least one of its Spark jobs ran; None if the time of a job is not known. ``stages`` are the
    longest ``STAGES_MAX`` of the ``stage_count`` stages that ran, the longest one first.
    """

    app_id: str | None = None
    attempt_id: str | None = None
    execution_id: int | None = None
    job_ids: tuple[int, ...] = ()
    job_count: int = 0
    stage_count: int = 0
    jobs_ms: int | None = None
    stages: tuple[StageWork, ...] = ()

    def outside_ms(self, duration_ms: int | None) -> int | None:
        """Return the part of a batch of this duration in which none of its Spark jobs ran; None if it is not known."""
        return None if duration_ms is None or self.jobs_ms is None else max(0, duration_ms - self.jobs_ms)


def longest(stages: list[StageWork]) -> tuple[StageWork, ...]:
    """Return the stages that are kept, the longest one first."""
    return tuple(sorted(stages, key=lambda s: (-(s.duration_ms or 0), s.stage_id, s.attempt))[:STAGES_MAX])


def covered_ms(spans: list[tuple[int, int]]) -> int:
    """Return the time that is covered by at least one of the spans."""
    total, reached = 0, 0
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _ratio(most: int | None, median: int | None) -> float | None:
    return None if most is None or not median else most / median
