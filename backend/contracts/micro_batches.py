"""The JSON of the micro-batches of a Spark query in our API."""

from __future__ import annotations

from datetime import datetime

from backend.contracts.channels import BatchChannelOut, ChannelOut, DisagreementOut
from backend.contracts.model import Model
from backend.domain.channel import Channel
from backend.domain.micro_batch import BatchPhase
from backend.domain.verdict import Basis


class BatchPhaseOut(Model):
    """The duration of one phase of a micro-batch."""

    phase: BatchPhase
    duration_ms: int


class OperatorStateOut(Model):
    """The state stores of one stateful operator of a micro-batch. Null means *not reported*."""

    name: str | None
    """Spark's name of the operator."""
    row_count: int | None
    updated_row_count: int | None
    removed_row_count: int | None
    dropped_row_count: int | None
    """Input rows that came after the watermark."""
    memory_bytes: int | None
    size_bytes: int | None
    """The size of RocksDB's files or, of the other state store, of the current version in memory."""
    store_count: int | None
    commit_total_ms: int | None
    """A sum over its state stores."""


class BatchStateOut(Model):
    """The state stores of a micro-batch, summed over its stateful operators; null means *not reported*."""

    row_count: int | None
    updated_row_count: int | None
    memory_bytes: int | None
    commit_ms: int | None
    """Mean commit time over the state stores, as a part of the phase ``add-batch``.

    It is reconstructed, because Spark reports only the sum, ``commit_total_ms``.
    """
    commit_total_ms: int | None
    upload_total_ms: int | None
    store_count: int | None
    snapshot_lag: int | None
    """Number of batches that a recovery would replay, for the reported state store that is furthest behind."""
    by_operator: list[OperatorStateOut] = []
    """The values of each operator, in the order of Spark's report. Empty if they were not kept."""


class BatchSourceOut(Model):
    """One source of a micro-batch. The offsets are the source's own JSON."""

    description: str
    start_offset: str | None
    end_offset: str | None
    latest_offset: str | None
    input_row_count: int | None
    backlog: int | None
    """Amount of data that waits in the source after the end of the batch, in the source's own units (offsets, rows).

    Null if the source does not report it.
    """


class StageWorkOut(Model):
    """One attempt of one stage of a micro-batch. Null means *not reported*."""

    stage_id: int
    attempt: int
    name: str
    task_count: int
    failed_task_count: int | None
    duration_ms: int | None
    """From its submission to its completion."""
    task_median_ms: int | None
    """Time of a task from launch to finish: the median of the successful tasks."""
    task_max_ms: int | None
    task_ratio: float | None
    """How many times as long as the median task the longest one took."""
    rows_median: int | None
    """Rows that a task read from the shuffle or, if it reads none, from its input."""
    rows_max: int | None
    rows_ratio: float | None
    run_ms: int | None
    """Time in which executors ran the tasks, summed over the tasks."""
    gc_ms: int | None
    """The part of it in garbage collection."""
    gc_ratio: float | None
    memory_spill_bytes: int | None
    disk_spill_bytes: int | None
    input_bytes: int | None
    shuffle_read_bytes: int | None
    shuffle_write_bytes: int | None


class BatchWorkOut(Model):
    """The Spark jobs and stages of one micro-batch, from the event log or from the driver's REST API."""

    app_id: str | None
    attempt_id: str | None
    execution_id: int | None
    """The SQL execution of the batch."""
    job_ids: list[int]
    """The first ids of its Spark jobs."""
    job_count: int
    stage_count: int
    jobs_ms: int | None
    """Time in which at least one of its Spark jobs ran."""
    outside_ms: int | None
    """The part of the batch's duration in which none of its Spark jobs ran, so that only the driver worked or waited.

    It is reconstructed.
    """
    stages: list[StageWorkOut]
    """The stages that took longest, the longest one first."""
    channel: Channel | None = None
    """The kind of channel that reported them. Null if it is not known."""
    target_name: str | None = None
    """The target that reported them. Null if it is not known, or if the run has one target."""


class MicroBatchOut(Model):
    """A micro-batch, which is the checkpoint of Spark. It has no vertices, subtasks or barriers."""

    checkpoint_id: int
    run_id: str
    triggered_at: datetime
    duration_ms: int | None
    number_basis: Basis
    """The basis of the batch's number and trigger.

    Both are reconstructed for a failed batch, because Spark reports neither of them.
    """
    phases: list[BatchPhaseOut]
    """The reported phases, in the order in which Spark runs them."""
    other_ms: int | None
    """The part of the duration that no reported phase covers."""
    input_row_count: int | None
    processed_rows_per_s: float | None
    watermark_at: datetime | None
    state: BatchStateOut | None
    """Null for a query without state."""
    sources: list[BatchSourceOut]
    channels: list[BatchChannelOut] = []
    """The channels that reported the batch. Empty if the run has one channel, from which every value is."""
    disagreements: list[DisagreementOut] = []
    """Values of which two channels report something else."""
    work: BatchWorkOut | None = None
    """Its Spark jobs and stages. Null if the channel does not report them, or if the batch was not chosen.

    Chosen are the first batch of a run that is read, each batch that takes 1 s or longer and 1.5 times the median of up
    to 20 batches before it, and one batch of 1 s or longer every 15 s.
    """


class WithBatches(Model):
    """The micro-batches of a job, and where they are read."""

    batches: list[MicroBatchOut] = []
    """Spark only: the newest micro-batches of the current run, oldest first."""
    channels: list[ChannelOut] = []
    """Spark only: the targets that report the current run, the one that says its state first."""
