"""Spark jobs for the fake API: a query with state that is behind, one without state, and one whose driver went silent.

The numbers resemble those of the recordings. Values that Spark does not report are null, as in the real API. The query
that is behind is read through three channels. Its newest whole batch has the Spark jobs and stages, of which one stage
is skewed and spills, and in one value two channels disagree. The other queries have one channel and no Spark jobs.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from backend.contracts import api
from backend.contracts.channels import BatchChannelOut, ChannelOut, ChannelValueOut, DisagreementOut
from backend.contracts.checkpoint_folders import CheckpointFolderOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.links import LinkOut
from backend.contracts.micro_batches import (
    BatchPhaseOut,
    BatchSourceOut,
    BatchStateOut,
    BatchWorkOut,
    MicroBatchOut,
    OperatorStateOut,
    StageWorkOut,
)
from backend.domain import spelling
from backend.domain.batch_work import BatchWork, StageWork
from backend.domain.channel import Channel
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus
from backend.domain.checkpoint_files import CheckpointFiles, FolderBatch, OperatorFiles, PartitionFiles, SourceLog
from backend.domain.engines import SPARK
from backend.domain.failure import FailureReason
from backend.domain.micro_batch import BatchPhase, OperatorState, PressureSign
from backend.domain.observation import JobState
from backend.domain.verdict import Basis, Confidence, Health, VerdictKind
from backend.store.jobs.checkpoint_folders import FolderRecord
from tests.support.fake_api import FakeApi

TARGET = "tspark"
BEHIND, STATELESS, SILENT = "jspark", "jstateless", "jsilent"
FAILED_BATCH = 12
_APP = "app-20261121074000-0007"
_NAMES = {
    Channel.LISTENER: "lab",
    Channel.HISTORY_SERVER: "http://history.example:18080",
    Channel.DRIVER: "http://driver.example:4040",
}
_OF_LISTENER = (
    *("status", "trigger", "duration", "state size", "input rows", "processed rows/s", "watermark", "sink"),
    *("phase latest-offset", "phase wal-commit", "phase get-batch", "phase query-planning", "phase add-batch"),
    *("phase commit-offsets", "state rows", "state updated rows", "state memory", "state commit", "state stores"),
    *("source 1 description", "source 1 start offset", "source 1 end offset", "source 1 latest offset"),
    *("source 1 input rows", "source 1 backlog"),
)
_INTERVAL_MS = 5_000
_PHASES_MS = {
    BatchPhase.LATEST_OFFSET: 6,
    BatchPhase.WAL_COMMIT: 41,
    BatchPhase.GET_BATCH: 1,
    BatchPhase.QUERY_PLANNING: 19,
    BatchPhase.ADD_BATCH: 5_840,
    BatchPhase.COMMIT_OFFSETS: 38,
}


def add_spark(fake: FakeApi) -> FakeApi:
    """Add a Spark application as a target, with its three jobs, and return the API."""
    now = fake._now()
    fake.targets[TARGET] = _target(now)
    for id_, name in ((BEHIND, "clicks-by-page"), (STATELESS, "orders-copied"), (SILENT, "orders-by-value")):
        checkpoints = [_batch(id_, name, number, now) for number in range(FAILED_BATCH)]
        if id_ == BEHIND:
            checkpoints.append(_failed(id_, name, now))
        detail = _detail(id_, name, checkpoints, now)
        made: Any = SimpleNamespace(detail=detail, checkpoints=checkpoints, pressure=[], events=[], changes=[])
        made.links = {"items": _links() if id_ == BEHIND else []}
        fake.jobs[id_] = made
    return fake


def _links() -> list[LinkOut]:
    pages = (("query", "StreamingQuery/statistics/?id=0c0c"), ("batch", "SQL/execution/?id=41"))
    root = f"{_NAMES[Channel.HISTORY_SERVER]}/history/{_APP}"
    return [LinkOut(name=f"Spark: {name}", origin="engine", url=f"{root}/{path}") for name, path in pages]


def _target(now: datetime) -> api.TargetOut:
    reason = "the driver of orders-by-value has sent nothing for 4 min 2 s"
    return api.TargetOut(
        id=TARGET,
        name="lab",
        url="push:spark/lab",
        engine=SPARK.kind,
        engine_version="4.3.0",
        labels={"deployment": "lab"},
        origin="push",
        is_enabled=True,
        health=api.TargetHealthOut(state="silent", reason=reason, since=now - timedelta(seconds=242)),
        cost=api.PollCostOut(requests_per_poll=0, bytes_per_poll=0, poll_duration_ms=0, poll_interval_s=5.0),
        added_at=now - timedelta(days=1),
    )


def _at(number: int, now: datetime) -> datetime:
    return now - timedelta(milliseconds=_INTERVAL_MS * (FAILED_BATCH + 1 - number))


def _document(job: str, name: str, number: int, at: datetime, **changes: Any) -> api.CheckpointDetailOut:
    run = f"r{job[1:]}"
    values: dict[str, Any] = dict.fromkeys(
        (
            *("mode", "latest_ack_at", "checkpointed_size_bytes", "full_state_size_bytes", "processed_bytes"),
            *("persisted_bytes", "subtask_count", "acknowledged_count", "failure_reason", "failure_message"),
            *("failed_at", "start_delay_max_ms", "alignment_max_ms", "sync_max_ms", "async_max_ms", "timeout_ms"),
            *("aligned_timeout_ms", "critical_path"),
        )
    )
    verdict = _verdict(VerdictKind.NONE, f"Batch {number} took 5.9 s: it keeps up.")
    values |= {
        "engine": SPARK.kind,
        "capabilities": CapabilitiesOut.model_validate(SPARK),
        "job_id": job,
        "run_id": run,
        "checkpoint_id": number,
        "kind": CheckpointKind.CHECKPOINT,
        "triggered_at": at,
        "link": f"/api/v1/jobs/{job}/runs/{run}/checkpoints/{number}",
        "job": name,
        "vertices": [],
        "verdict": verdict,
        "has_barriers": False,
        "observed_at": at + timedelta(seconds=6),
    }
    return api.CheckpointDetailOut(**(values | changes))


def _batch(job: str, name: str, number: int, now: datetime) -> api.CheckpointDetailOut:
    at = _at(number, now)
    duration_ms = sum(_PHASES_MS.values()) + 12 + number
    has_state = job != STATELESS
    batch = MicroBatchOut(
        checkpoint_id=number,
        run_id=f"r{job[1:]}",
        triggered_at=at,
        duration_ms=duration_ms,
        number_basis=Basis.MEASURED,
        phases=[BatchPhaseOut(phase=phase, duration_ms=ms) for phase, ms in _PHASES_MS.items()],
        other_ms=12 + number,
        input_row_count=1_000,
        processed_rows_per_s=168.2,
        watermark_at=at - timedelta(seconds=10) if has_state else None,
        state=_state() if has_state else None,
        sources=[_source(number, has_backlog=has_state)],
    )
    if job == BEHIND:
        batch = _read_thrice(batch)
    size = 81_920 if has_state else None
    return _document(
        job, name, number, at,
        status=CheckpointStatus.COMPLETED, end_to_end_duration_ms=duration_ms, full_state_size_bytes=size, batch=batch,
    )  # fmt: skip


def _read_thrice(batch: MicroBatchOut) -> MicroBatchOut:
    values = {Channel.LISTENER: list(_OF_LISTENER), Channel.HISTORY_SERVER: [], Channel.DRIVER: []}
    changes: dict[str, Any] = {
        "channels": [
            BatchChannelOut(target_id=f"t{kind.name}", target_name=_NAMES[kind], channel=kind, values=values[kind])
            for kind in _NAMES
        ]
    }
    number = batch.checkpoint_id
    if number == FAILED_BATCH - 1:
        said = {Channel.LISTENER: spelling.count(1_000), Channel.HISTORY_SERVER: spelling.count(1_200)}
        words = ", ".join(f"{text} ({kind})" for kind, text in said.items())
        changes["disagreements"] = [
            DisagreementOut(
                name="input rows",
                values=[
                    ChannelValueOut(target_id=f"t{kind.name}", target_name=_NAMES[kind], channel=kind, text=text)
                    for kind, text in said.items()
                ],
                sentence=f"Batch {number}: input rows {words}",
            )
        ]
        changes["work"] = _work(batch)
        # The listener does not know them.
        changes["channels"][1].values.append("Spark jobs")
    return batch.model_copy(update=changes)


def _work(batch: MicroBatchOut) -> BatchWorkOut:
    """Return the Spark jobs of a batch: a stage that reads, one that is skewed and spills, and four short ones."""
    reads = StageWork(
        stage_id=61, attempt=0, name="start at Clicks.scala:48", task_count=8, failed_task_count=1, duration_ms=610,
        task_median_ms=402, task_max_ms=588, rows_median=126, rows_max=140, run_ms=3_310, gc_ms=41,
        memory_spill_bytes=0, disk_spill_bytes=0, input_bytes=1_310_720, shuffle_read_bytes=0,
        shuffle_write_bytes=884_736,
    )  # fmt: skip
    skewed = StageWork(
        stage_id=62, attempt=1, name="start at Clicks.scala:48", task_count=200, failed_task_count=0,
        duration_ms=4_480, task_median_ms=21, task_max_ms=4_391, rows_median=3, rows_max=412, run_ms=9_020,
        gc_ms=1_240, memory_spill_bytes=402_653_184, disk_spill_bytes=96_468_992, input_bytes=0,
        shuffle_read_bytes=884_736, shuffle_write_bytes=0,
    )  # fmt: skip
    short = StageWork(stage_id=63, attempt=0, name="save at Clicks.scala:52", task_count=1, duration_ms=44)
    work = BatchWork(
        app_id=_APP, execution_id=41, job_ids=(31, 32, 33), job_count=3, stage_count=6,
        jobs_ms=5_210, stages=(skewed, reads, short),
    )  # fmt: skip
    stages = [StageWorkOut.of(stage) for stage in work.stages]
    return BatchWorkOut.of(
        work,
        job_ids=list(work.job_ids),
        stages=stages,
        outside_ms=work.outside_ms(batch.duration_ms),
        channel=Channel.HISTORY_SERVER,
        target_name=_NAMES[Channel.HISTORY_SERVER],
    )


def _state() -> BatchStateOut:
    return BatchStateOut(
        row_count=4_200,
        updated_row_count=200,
        memory_bytes=1_048_576,
        commit_ms=17,
        commit_total_ms=34,
        upload_total_ms=None,
        store_count=2,
        snapshot_lag=None,
        by_operator=[
            OperatorStateOut.of(OperatorState("stateStoreSave", 4_000, 200, 0, 12, 1_000_000, 78_000, 2, 30)),
            # This operator came with a version that did not report what it removed.
            OperatorStateOut.of(OperatorState("dedupe", row_count=200, memory_bytes=48_576, store_count=2)),
        ],
    )


def _folder(now: datetime) -> CheckpointFolderOut:
    """Return a folder of two operators: one of 200 partitions of which one is skewed, and one without a snapshot."""
    batches = [
        FolderBatch(
            number=number,
            is_committed=number < FAILED_BATCH,
            triggered_at=_at(number, now) + timedelta(milliseconds=6),
            offsets_at=_at(number, now) + timedelta(milliseconds=47),
            committed_at=_at(number, now) + timedelta(milliseconds=5_940) if number < FAILED_BATCH else None,
            offsets=(f'{{"clicks":{{"0":{1_000 * (number + 1)},"1":{998 * (number + 1)}}}}}', None),
        )
        for number in range(FAILED_BATCH - 3, FAILED_BATCH + 1)
    ]
    skewed = [
        PartitionFiles(number=n, size_bytes=size, file_count=13, delta_count=11, snapshot_count=2, version=12,
                       snapshot_version=10)
        for n, size in ((41, 48_000_000), (7, 700_000), (112, 690_000), (3, 640_000))
    ]  # fmt: skip
    dedupe = [PartitionFiles(number=n, size_bytes=4_100, file_count=12, delta_count=12, snapshot_count=0, version=12)
              for n in range(2)]  # fmt: skip
    files = CheckpointFiles(
        query_id="0b0b", offsets_count=13, commits_count=12, batches=tuple(batches),
        watermark_at=_at(FAILED_BATCH - 1, now) - timedelta(seconds=10), file_count=2_650, small_count=2_438,
        small_bytes=100_000, size_bytes=171_000_000, checksum_count=2_650, temporary_count=1, is_cut=False,
        operators=(
            OperatorFiles(
                number=0, name="stateStoreSave", partition_count=200, file_count=2_600, size_bytes=170_000_000,
                delta_count=2_200, snapshot_count=400, median_bytes=600_000, version=12, snapshot_lag=2,
                partitions=tuple(skewed),
            ),
            OperatorFiles(
                number=1, name=None, partition_count=2, file_count=24, size_bytes=8_200, delta_count=24,
                snapshot_count=0, median_bytes=4_100, version=12, snapshot_lag=12, partitions=tuple(dedupe),
            ),
        ),
        operator_count=2,
        source_logs=(SourceLog(1, 7, 9, 84_000),),
    )  # fmt: skip
    record = FolderRecord(
        target_id="tfolder", target_name="clicks-checkpoint", url="file:///srv/checkpoints/clicks-by-page", files=files,
        observed_at=now - timedelta(seconds=20),
    )  # fmt: skip
    return CheckpointFolderOut.of(record, files)


def _source(number: int, *, has_backlog: bool) -> BatchSourceOut:
    return BatchSourceOut(
        description="KafkaV2[Subscribe[clicks]]" if has_backlog else "FileStreamSource[file:/data/orders]",
        start_offset=str(1_000 * number),
        end_offset=str(1_000 * (number + 1)),
        latest_offset=str(2_200 * (number + 1)) if has_backlog else None,
        input_row_count=1_000,
        backlog=1_200 * (number + 1) if has_backlog else None,
    )


def _failed(job: str, name: str, now: datetime) -> api.CheckpointDetailOut:
    at = _at(FAILED_BATCH, now)
    batch = MicroBatchOut(
        checkpoint_id=FAILED_BATCH, run_id=f"r{job[1:]}", triggered_at=at, duration_ms=None,
        number_basis=Basis.RECONSTRUCTED, phases=[], other_ms=None, input_row_count=None, processed_rows_per_s=None,
        watermark_at=None, state=None, sources=[],
    )  # fmt: skip
    return _document(
        job, name, FAILED_BATCH, at,
        status=CheckpointStatus.FAILED, end_to_end_duration_ms=None, batch=batch, failed_at=now,
        failure_reason=FailureReason.QUERY_FAILURE, failure_message="USER_RAISED_EXCEPTION: no",
    )  # fmt: skip


def _verdict(kind: VerdictKind, sentence: str) -> api.VerdictOut:
    return api.VerdictOut(
        kind=kind, vertex=None, subtasks=[], phase=None, sentence=sentence, evidence=[], confidence=Confidence.HIGH
    )


_JUDGED = {
    BEHIND: (
        Health.SLOW, JobState.RUNNING, "ok", "ACTIVE",
        _verdict(VerdictKind.CAPACITY, "The query is behind: a batch takes 5.9 s; 98 % is running it."),
    ),
    STATELESS: (
        Health.HEALTHY, JobState.RUNNING, "ok", "ACTIVE",
        _verdict(VerdictKind.NONE, "Micro-batches are healthy at 5.9 s."),
    ),
    SILENT: (
        Health.FAILING, JobState.UNKNOWN, "silent", "ACTIVE",
        _verdict(VerdictKind.UNDECIDED, "The driver has sent nothing since 2026-11-21 07:55:58 UTC: it was killed."),
    ),
}  # fmt: skip


def _detail(id_: str, name: str, checkpoints: list[api.CheckpointDetailOut], now: datetime) -> api.JobDetailOut:
    health, state, target_state, engine_state, verdict = _JUDGED[id_]
    done = [c for c in checkpoints if c.end_to_end_duration_ms is not None]
    overrun = api.PressureSignOut(
        sign=PressureSign.OVERRUN,
        is_raised=id_ == BEHIND,
        value=1.19,
        limit=1.0,
        statement="the median batch takes 1.2 times the trigger's interval of 5.0 s",
        basis=Basis.RECONSTRUCTED,
    )
    backlog = api.PressureSignOut(
        sign=PressureSign.BACKLOG_GROWTH,
        is_raised=False,
        value=None,
        limit=0.0,
        statement="no source reports its newest offset",
        basis=Basis.MEASURED,
    )
    return api.JobDetailOut(
        id=id_, name=name, target_id=TARGET, target_name="lab", target_state=target_state, engine=SPARK.kind,
        capabilities=CapabilitiesOut.model_validate(SPARK),
        state=state, run_id=f"r{id_[1:]}", mode=None, health=health, verdict=verdict, interval_ms=_INTERVAL_MS,
        timeout_ms=None, last_completed_at=now, last_completed_age_intervals=1.2,
        replay_debt_ms=7_200.0, completed_24h_count=len(done),
        failed_24h_count=len(checkpoints) - len(done), success_24h_ratio=len(done) / len(checkpoints),
        duration_p50_ms=5_951, duration_p99_ms=5_968, dominant_phase=None, backpressured_max_ratio=None,
        in_progress_checkpoint_id=None,
        sparkline=[
            api.SparkPointOut(at=c.triggered_at, duration_ms=c.end_to_end_duration_ms, status=c.status)
            for c in checkpoints
        ],
        observed_at=now,
        run=api.RunOut(
            id=f"r{id_[1:]}", engine_run_id="0b0b/0c0c", target_id=TARGET, started_at=now - timedelta(minutes=20),
            ended_at=None, state=state, engine_state=engine_state, checkpoint_count=len(checkpoints),
        ),
        vertices=[], edges=[], config=None, counts=None,
        batches=[c.batch for c in checkpoints if c.batch is not None][-10:],
        signs=[overrun, backlog],
        channels=[_channel(kind, now) for kind in (_NAMES if id_ == BEHIND else ())],
        folders=[_folder(now)] if id_ == BEHIND else [],
    )  # fmt: skip


def _channel(kind: Channel, now: datetime) -> ChannelOut:
    return ChannelOut(
        target_id=f"t{kind.name}",
        target_name=_NAMES[kind],
        channel=kind,
        state=JobState.RUNNING,
        heard_at=now - timedelta(seconds=3 if kind is Channel.LISTENER else 12),
        is_speaking=kind is Channel.LISTENER,
        is_watched=kind is not Channel.HISTORY_SERVER,
    )
