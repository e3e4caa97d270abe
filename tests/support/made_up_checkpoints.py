"""Recorded and invented checkpoints, barriers, verdicts and hours, in the models of ``backend.contracts.api``.

The recorded values are those of runs B2 (slow) and E (expiring).
"""

from __future__ import annotations

import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from backend.contracts import api
from backend.contracts.barriers import BarrierChannelOut, BarrierEventOut, BarriersOut
from backend.contracts.causes import CriticalPathOut, CriticalStepOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.progress import AckPointOut, PendingOut
from backend.contracts.rollups import MeasureRollupOut, RollupHourOut
from backend.contracts.subtask_matrix import (
    MatrixCheckpointOut,
    MatrixGroup,
    MatrixRowOut,
    MatrixUnit,
    MatrixVertexOut,
    SubtaskMatrixOut,
)
from backend.domain.barriers import BarrierEventKind as Kind
from backend.domain.checkpoint import CheckpointKind, CheckpointStatus, SubtaskMeasure
from backend.domain.engines import FLINK
from backend.domain.failure import FailureReason
from backend.domain.freshness import Freshness
from backend.domain.rollup import hour_of
from backend.domain.verdict import Basis, Confidence, Health, Phase, VerdictKind
from tests.support.api_examples import stale

RECORDINGS = Path(__file__).parents[1] / "contract" / "recordings"
HOSTILE = "<img src=x onerror=alert(1)> =cmd()|'/c calc'!A1 %{x} <b>bold</b>"
SINK, STAGE, SOURCE = (
    "59fa767824610e31f4a11d6125e09bf4",
    "0a448493b4782967b150582570326227",
    "bc764cd8ddf7a0cff126f51c16239658",
)
NAMES = {SOURCE: "Source: main-source", STAGE: "stage-1", SINK: "slow-stage-2 -> sink: Writer"}


# --- recorded documents -------------------------------------------------------------------------------------------


@cache
def documents_of(run: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with gzip.open(RECORDINGS / run / "rest.jsonl.gz", "rt") as lines:
        for line in lines:
            if "/checkpoints/details/" in line:
                entry = json.loads(line)
                if entry["status"] == 200:
                    found[entry["path"].split("/checkpoints/details/")[1]] = entry["body"]
    return found


def numbers_of(documents: dict[str, Any]) -> list[int]:
    return sorted(int(k) for k in documents if re.fullmatch(r"\d+", k))


def recorded_detail(
    documents: dict[str, Any], number: int, job: str, name: str, timeout_ms: int
) -> api.CheckpointDetailOut:
    body = documents[str(number)]
    trigger = body["trigger_timestamp"]
    vertices = [_recorded_vertex(documents[f"{number}/subtasks/{v}"], v, trigger) for v in (SOURCE, STAGE, SINK)]
    status = {"COMPLETED": CheckpointStatus.COMPLETED, "FAILED": CheckpointStatus.FAILED}[body["status"]]
    reason = None
    if status is CheckpointStatus.FAILED:
        is_expired = "expired" in body["failure_message"]
        reason = FailureReason.EXPIRED if is_expired else FailureReason.COORDINATOR_SUSPENDED
    late = [s.subtask for s in vertices[-1].subtasks if not s.is_acknowledged]
    return document(
        job, name, number, datetime.fromtimestamp(trigger / 1000, UTC), status, body["end_to_end_duration"], vertices,
        verdict=capacity(Health.FAILING if late else Health.SLOW, late), timeout_ms=timeout_ms, has_barriers=False,
        reason=reason, message=body.get("failure_message"),
    )  # fmt: skip


def _recorded_vertex(body: dict[str, Any], vertex: str, trigger: int) -> api.VertexPhasesOut:
    subtasks = [_recorded_subtask(s, trigger, vertex) for s in body["subtasks"]]
    slowest = max(subtasks, key=lambda s: s.ack_ms if s.ack_ms is not None else 10**9)
    return api.VertexPhasesOut(
        vertex_id=vertex,
        vertex=NAMES[vertex],
        acknowledged_count=sum(s.is_acknowledged for s in subtasks),
        subtask_count=len(subtasks),
        slowest_subtask=slowest.subtask,
        subtasks=subtasks,
    )


def _recorded_subtask(s: dict[str, Any], trigger: int, vertex: str) -> api.SubtaskPhasesOut:
    if s["status"] != "completed":
        # As in run E, a metric shows when the late barrier reached each subtask of the sink.
        late_ms = 3_200 + 180 * s["index"] if vertex == SINK else None
        return unacknowledged(phases(s["index"], late_ms or 0, 4, 2), late_ms, resolution_ms=500)
    first, aligned = s["start_delay"], s["alignment"]["duration"]
    sync, later = s["checkpoint"]["sync"], s["checkpoint"]["async"]
    ack = s["ack_timestamp"] - trigger
    end = first + aligned + sync + later
    return api.SubtaskPhasesOut(
        subtask=s["index"],
        host="taskmanager-1",
        is_acknowledged=True,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED,
        alignment_end_ms=first + aligned,
        snapshot_at_ms=first + aligned,
        sync_end_ms=first + aligned + sync,
        async_end_ms=end,
        ack_ms=ack,
        start_delay_ms=first,
        alignment_duration_ms=aligned,
        sync_duration_ms=sync,
        async_duration_ms=later,
        ack_wait_ms=max(0, ack - end),
        has_clock_skew=first < 0 or first > ack,
        is_unaligned=s["unaligned_checkpoint"],
        checkpointed_size_bytes=s["checkpointed_size"],
        full_state_size_bytes=s["state_size"],
        processed_bytes=s["alignment"]["processed"],
        persisted_bytes=s["alignment"]["persisted"],
    )


# --- invented values ----------------------------------------------------------------------------------------------


# The same subtasks occur in every checkpoint of a job, and in every fake service. No test changes one in place.
@cache
def phases(index: int, base_ms: int, parallelism: int, layer: int) -> api.SubtaskPhasesOut:
    spread = (index * 37) % max(1, parallelism) / max(1, parallelism)
    first = int(base_ms * (0.9 + 0.1 * spread))
    aligned = 0 if layer == 0 else int(20 + base_ms * 0.06 * (1 - spread))
    sync, later, wait = 3, 18 + index % 7, 4
    start = first + aligned
    return api.SubtaskPhasesOut(
        subtask=index,
        host=f"worker-{index % 2}",
        is_acknowledged=True,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED,
        alignment_end_ms=start,
        snapshot_at_ms=start,
        sync_end_ms=start + sync,
        async_end_ms=start + sync + later,
        ack_ms=start + sync + later + wait,
        start_delay_ms=first,
        alignment_duration_ms=aligned,
        sync_duration_ms=sync,
        async_duration_ms=later,
        ack_wait_ms=wait,
        is_unaligned=False,
        checkpointed_size_bytes=40_000 + 900 * index,
        full_state_size_bytes=40_000 + 900 * index,
        processed_bytes=12_000,
        persisted_bytes=0,
    )


def unacknowledged(
    s: api.SubtaskPhasesOut, seen_ms: int | None, resolution_ms: int | None = None
) -> api.SubtaskPhasesOut:
    """Return the same subtask as it was before it acknowledged. At most its first barrier is known.

    Without ``resolution_ms``, ``seen_ms`` is the time that has passed since the trigger. With ``resolution_ms``,
    ``seen_ms`` is the time of the first barrier as a metric showed it.
    """
    first = s.first_barrier_ms if resolution_ms is None else seen_ms
    if first is not None and seen_ms is not None and resolution_ms is None and first > seen_ms:
        first = None
    return api.SubtaskPhasesOut(
        subtask=s.subtask,
        host=s.host,
        is_acknowledged=False,
        first_barrier_ms=first,
        first_barrier_basis=Basis.MEASURED if first is not None else None,
        first_barrier_resolution_ms=resolution_ms if first is not None else None,
        alignment_end_ms=None,
        snapshot_at_ms=None,
        sync_end_ms=None,
        async_end_ms=None,
        ack_ms=None,
        start_delay_ms=None,
        alignment_duration_ms=None,
        sync_duration_ms=None,
        async_duration_ms=None,
        ack_wait_ms=None,
    )


def document(
    job: str,
    name: str,
    number: int,
    at: datetime,
    status: CheckpointStatus,
    duration_ms: int | None,
    vertices: list[api.VertexPhasesOut],
    *,
    verdict: api.VerdictOut,
    timeout_ms: int,
    has_barriers: bool,
    reason: FailureReason | None = None,
    message: str | None = None,
) -> api.CheckpointDetailOut:
    subtasks = [s for v in vertices for s in v.subtasks]

    def most(field: str) -> int | None:
        return max((v for s in subtasks if (v := getattr(s, field)) is not None), default=None)

    def total(field: str) -> int:
        return sum(getattr(s, field) or 0 for s in subtasks)

    run = f"r{job[1:]}"
    return api.CheckpointDetailOut(
        engine=FLINK.kind,
        capabilities=CapabilitiesOut.model_validate(FLINK),
        job_id=job,
        run_id=run,
        checkpoint_id=number,
        kind=CheckpointKind.CHECKPOINT,
        status=status,
        mode="aligned",
        triggered_at=at,
        latest_ack_at=at + timedelta(milliseconds=most("ack_ms") or 0),
        end_to_end_duration_ms=duration_ms,
        checkpointed_size_bytes=total("checkpointed_size_bytes"),
        full_state_size_bytes=total("full_state_size_bytes"),
        processed_bytes=total("processed_bytes"),
        persisted_bytes=total("persisted_bytes"),
        subtask_count=len(subtasks),
        acknowledged_count=sum(s.is_acknowledged for s in subtasks),
        failure_reason=reason,
        failure_message=message,
        failed_at=at + timedelta(milliseconds=duration_ms or 0) if reason else None,
        start_delay_max_ms=most("start_delay_ms"),
        alignment_max_ms=most("alignment_duration_ms"),
        sync_max_ms=most("sync_duration_ms"),
        async_max_ms=most("async_duration_ms"),
        link=f"/api/v1/jobs/{job}/runs/{run}/checkpoints/{number}",
        job=name,
        timeout_ms=timeout_ms,
        aligned_timeout_ms=None,
        vertices=vertices,
        freshness=stale(Freshness.FINAL) if status.is_terminal else None,
        critical_path=_path(vertices),
        verdict=verdict,
        has_barriers=has_barriers,
        observed_at=at + timedelta(seconds=6),
    )


def _path(vertices: list[api.VertexPhasesOut]) -> CriticalPathOut | None:
    steps: list[CriticalStepOut] = []
    at = 0
    for vertex in vertices:
        slowest = next((s for s in vertex.subtasks if s.subtask == vertex.slowest_subtask), None)
        if slowest is None or slowest.first_barrier_ms is None:
            break
        marks = (
            (Phase.START_DELAY, slowest.first_barrier_ms),
            (Phase.ALIGNMENT, slowest.alignment_end_ms),
            (Phase.ASYNC, slowest.async_end_ms if vertex is vertices[-1] else None),
        )
        for phase, end in marks:
            if end is not None and end > at:
                steps.append(
                    CriticalStepOut(
                        vertex_id=vertex.vertex_id, vertex=vertex.vertex, subtask=slowest.subtask, phase=phase,
                        start_ms=at, end_ms=end, basis=Basis.RECONSTRUCTED,
                    )
                )  # fmt: skip
                at = end
    if not steps:
        return None
    last = steps[-1]
    return CriticalPathOut(
        steps=steps,
        last_vertex=last.vertex,
        last_subtask=last.subtask,
        without_last_ms=int(last.end_ms * 0.8),
        last_in="last in 7 of 11",
    )


def moved(detail: api.CheckpointDetailOut, shift: timedelta) -> api.CheckpointDetailOut:
    instants = ("triggered_at", "latest_ack_at", "failed_at", "observed_at")
    update = {k: v + shift for k in instants if (v := getattr(detail, k)) is not None}
    return detail.model_copy(update=update)


def linked(detail: api.CheckpointDetailOut, all_of_run: list[api.CheckpointDetailOut]) -> api.CheckpointDetailOut:
    ids = [d.checkpoint_id for d in all_of_run]
    healthy = [
        d for d in all_of_run if d.status is CheckpointStatus.COMPLETED and d.checkpoint_id < detail.checkpoint_id
    ]
    update = {
        "previous_id": max((i for i in ids if i < detail.checkpoint_id), default=None),
        "next_id": min((i for i in ids if i > detail.checkpoint_id), default=None),
        "last_healthy_link": healthy[-1].link if healthy else None,
    }
    return detail.model_copy(update=update)


def vertex(id_: str, name: str, layer: int, parallelism: int) -> api.VertexOut:
    return api.VertexOut(
        id=id_,
        name=name,
        parallelism=parallelism,
        layer=layer,
        row=0,
        hosts=[f"worker-{i % 2}" for i in range(parallelism)],
        task_managers=[f"127.0.0.1:4{i % 2}001-a81c" for i in range(parallelism)],
    )


def waiting(v: api.VertexPhasesOut) -> PendingOut:
    pending = [s for s in v.subtasks if not s.is_acknowledged]
    return PendingOut(
        vertex_id=v.vertex_id,
        vertex=v.vertex,
        acknowledged=v.acknowledged_count,
        total=v.subtask_count,
        pending=[s.subtask for s in pending],
        first_barrier_ms=[s.first_barrier_ms for s in pending],
        aligning_ms=[None] * len(pending),
        hosts=[s.host for s in pending],
    )


def ack_curve(c: api.CheckpointDetailOut) -> list[AckPointOut]:
    times = sorted(s.ack_ms for v in c.vertices for s in v.subtasks if s.ack_ms is not None)
    return [AckPointOut(elapsed_ms=t, acknowledged=i + 1) for i, t in enumerate(times)]


def barriers(c: api.CheckpointDetailOut, *, has_channels: bool) -> BarriersOut:
    events: list[BarrierEventOut] = []

    def event(kind: Kind, v: api.VertexPhasesOut, subtask: int, at_ms: float, **more: Any) -> None:
        made = BarrierEventOut(
            kind=kind, vertex_id=v.vertex_id, subtask=subtask, at_ms=at_ms, lamport=len(events), **more
        )
        events.append(made)

    for index, v in enumerate(c.vertices):
        for s in v.subtasks:
            if s.first_barrier_ms is not None and (index or not has_channels):
                senders = c.vertices[index - 1].subtasks if has_channels else [s]
                for k, sender in enumerate(senders):
                    at = s.first_barrier_ms + k * (s.alignment_duration_ms or 0) / max(1, len(senders) - 1)
                    channel = None
                    if has_channels:
                        channel = BarrierChannelOut(
                            source=c.vertices[index - 1].vertex_id, target=v.vertex_id,
                            source_subtask=sender.subtask, target_subtask=s.subtask,
                        )  # fmt: skip
                    event(Kind.BARRIER_RECEIVED, v, s.subtask, float(at), channel=channel)
            if s.snapshot_at_ms is not None:
                event(Kind.SNAPSHOT_SYNC_START, v, s.subtask, float(s.snapshot_at_ms))
                for receiver in c.vertices[index + 1].subtasks if has_channels and index + 1 < len(c.vertices) else []:
                    channel = BarrierChannelOut(
                        source=v.vertex_id, target=c.vertices[index + 1].vertex_id,
                        source_subtask=s.subtask, target_subtask=receiver.subtask,
                    )  # fmt: skip
                    event(Kind.BARRIER_EMITTED, v, s.subtask, float(s.snapshot_at_ms), channel=channel)
            if s.ack_ms is not None:
                event(Kind.ACKED, v, s.subtask, float(s.ack_ms))
    basis = Basis.MEASURED if has_channels else Basis.RECONSTRUCTED
    return BarriersOut(basis=basis, events=sorted(events, key=lambda e: e.at_ms))


def row_of_job(detail: api.JobDetailOut) -> api.JobOut:
    return api.JobOut.model_validate({k: getattr(detail, k) for k in api.JobOut.model_fields}, from_attributes=True)


def header_of(detail: api.CheckpointDetailOut) -> api.CheckpointOut:
    return api.CheckpointOut.model_validate({k: getattr(detail, k) for k in api.CheckpointOut.model_fields})


def no_verdict() -> api.VerdictOut:
    return api.VerdictOut(
        kind=VerdictKind.NONE,
        vertex=None,
        subtasks=[],
        phase=None,
        sentence="Checkpoints are healthy at 40 ms: nothing holds the barrier and no vertex is back-pressured.",
        evidence=[],
        confidence=Confidence.HIGH,
    )


def capacity(health: Health, late: list[int] | None = None) -> api.VerdictOut:
    who = late if late else [1, 3, 0]
    busy = "because slow-stage-2 is at capacity: all 4 subtasks are busy 99 % of the time."
    expired, slow = f"Expired after 3.0 s {busy}", f"Checkpoints take 5.4 s {busy}"
    return api.VerdictOut(
        kind=VerdictKind.CAPACITY,
        vertex=NAMES[SINK],
        vertex_id=SINK,
        subtasks=who,
        hosts=["taskmanager-1"],
        phase=Phase.START_DELAY,
        sentence=expired if health is Health.FAILING else slow,
        evidence=[
            _row_of("all four subtasks of slow-stage-2 are busy", "busyTimeMsPerSecond", 0.99, "ratio"),
            _row_of("stage-1, upstream, is backpressured", "backPressuredTimeMsPerSecond", 0.91, "ratio"),
            _row_of("the share of records of the busiest subtask is even", "numRecordsIn", 1.07, "ratio"),
            _row_of("its start delay in the last healthy checkpoint", "start_delay", 11, "ms", Basis.RECONSTRUCTED),
        ],
        confidence=Confidence.HIGH,
    )


def _row_of(statement: str, metric: str, value: float, unit: str, basis: Basis = Basis.MEASURED) -> api.EvidenceOut:
    return api.EvidenceOut(statement=statement, metric=metric, basis=basis, value=value, unit=unit)


def late(vertex: str, vertex_id: str) -> api.VerdictOut:
    made = capacity(Health.SLOW)
    sentence = f"Checkpoints take 4.4 s because {vertex} is at capacity: all its subtasks are busy 99 % of the time."
    return made.model_copy(
        update={"vertex": vertex, "vertex_id": vertex_id, "subtasks": [], "hosts": [], "sentence": sentence}
    )


def hours_of(checkpoints: list[api.CheckpointDetailOut]) -> list[RollupHourOut]:
    """Return the hourly rollups of a job.

    The counts are computed from its checkpoints; the percentiles are invented.
    """
    by_hour: dict[datetime, list[api.CheckpointDetailOut]] = {}
    for checkpoint in checkpoints:
        by_hour.setdefault(hour_of(checkpoint.triggered_at), []).append(checkpoint)
    found = []
    for number, (hour, members) in enumerate(sorted(by_hour.items(), reverse=True)):
        done = [c for c in members if c.status is CheckpointStatus.COMPLETED]
        failed = [c for c in members if c.status is CheckpointStatus.FAILED]
        durations = sorted(c.end_to_end_duration_ms for c in done if c.end_to_end_duration_ms is not None)
        measures = {}
        if durations:
            low, high = durations[0], durations[-1]
            measures["end_to_end_duration_ms"] = MeasureRollupOut(
                present_count=len(durations), min=low, max=high, sum=str(sum(durations)), p50=low, p95=high, p99=high
            )
        found.append(
            RollupHourOut(
                hour=hour,
                source="checkpoints" if number == 0 else "rollup",
                triggered_count=len(members),
                completed_count=len(done),
                failed_count=len(failed),
                failed_by_reason={FailureReason.EXPIRED: len(failed)} if failed else {},
                last_completed_at=max((c.triggered_at for c in done), default=None),
                measures=measures,
            )
        )
    return found


_FIELDS: dict[SubtaskMeasure, str] = {
    SubtaskMeasure.DURATION: "ack_ms",
    SubtaskMeasure.START_DELAY: "start_delay_ms",
    SubtaskMeasure.ALIGNMENT: "alignment_duration_ms",
    SubtaskMeasure.SYNC: "sync_duration_ms",
    SubtaskMeasure.ASYNC: "async_duration_ms",
    SubtaskMeasure.PERSISTED: "persisted_bytes",
    SubtaskMeasure.CHECKPOINTED: "checkpointed_size_bytes",
}


def matrix_of(
    checkpoints: list[api.CheckpointDetailOut],
    measure: SubtaskMeasure,
    vertex_id: str | None = None,
    group: MatrixGroup = MatrixGroup.VERTEX,
) -> SubtaskMatrixOut:
    """Return the matrix of the subtasks in the ended checkpoints, which are oldest first."""
    ended = [c for c in checkpoints if c.status.is_terminal]
    vertices = {v.vertex_id: v for c in ended for v in c.vertices}
    shown = [v for v in vertices.values() if vertex_id in (None, v.vertex_id)]
    values = {
        (v.vertex_id, s.subtask, column): getattr(s, _FIELDS[measure])
        for column, c in enumerate(ended)
        for v in c.vertices
        for s in v.subtasks
    }
    rows = [MatrixRowOut(vertex_id=v.vertex_id, subtask=i) for v in shown for i in range(v.subtask_count)]
    if group is MatrixGroup.HOST:
        rows = [r.model_copy(update={"host": f"worker-{(r.subtask or 0) % 3 + 1}"}) for r in rows]
        rows.sort(key=lambda r: r.host or "")
    return SubtaskMatrixOut(
        group=group,
        measure=measure,
        unit=MatrixUnit.BYTES if measure.is_bytes else MatrixUnit.MS,
        is_folded=False,
        checkpoints=[
            MatrixCheckpointOut.of(c, is_unaligned=c.mode == "unaligned", are_arrays_removed=False) for c in ended
        ],
        vertices=[
            MatrixVertexOut(vertex_id=v.vertex_id, vertex=v.vertex, parallelism=v.subtask_count)
            for v in vertices.values()
        ],
        rows=rows,
        values=[[values.get((r.vertex_id, r.subtask, i)) for i in range(len(ended))] for r in rows],
        as_of=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    )
