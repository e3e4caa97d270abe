"""Builds the JSON of jobs and vertices of the live runtime, with the names, units and sentinels of Flink 1.20.

The source is recordings of a real cluster (``tests/contract``), not documentation. Flink's peculiarities are repeated
on purpose: ``end-time`` is -1 while the job runs, the busy time is a float among integers, and each backpressure
field appears twice.

Fields that Flink does not have get names that Flink does not use: ``barrierscope-runtime`` and ``lag-ms``. Fields
that the reference runtime does not have (heap, free slots) are 0. The functions have no side effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backend.contracts.flink import NAN_TEXT, NOT_YET
from backend.live.view import FlinkJobState, JobView, SubtaskView, TaskState, VertexView
from backend.live.wire import Json, Object, quantile

FLINK_VERSION = "1.20"
"""The version of Flink whose REST this is. The collector recognises the live runtime by ``barrierscope-runtime``."""

# As in Flink, the state of a vertex is that of the subtask that is furthest from running. The list begins with the
# state that is furthest from running. A vertex is FINISHED only if every subtask has finished.
_DECIDES_FIRST = (
    TaskState.FAILED,
    TaskState.CANCELED,
    TaskState.CANCELING,
    TaskState.CREATED,
    TaskState.SCHEDULED,
    TaskState.DEPLOYING,
    TaskState.INITIALIZING,
    TaskState.RUNNING,
)
_OVERVIEW_STATES = (
    "running",
    "canceling",
    "canceled",
    "total",
    "created",
    "scheduled",
    "deploying",
    "reconciling",
    "finished",
    "initializing",
    "failed",
)
# The shares of backpressured time above which Flink reports the levels "low" and "high" (runtime.md ME-20).
_LOW_ABOVE = 0.10
_HIGH_ABOVE = 0.50


# --- the cluster --------------------------------------------------------------------------------------------------


def config(version: str, lag_ms: int) -> Object:
    """Return the JSON of ``/config``."""
    return {
        "refresh-interval": 1000,
        "timezone-name": "Coordinated Universal Time",
        "timezone-offset": 0,
        "flink-version": FLINK_VERSION,
        "flink-revision": f"barrierscope {version}",
        "features": {"web-submit": False, "web-cancel": False, "web-rescale": False, "web-history": False},
        "barrierscope-runtime": version,
        "lag-ms": lag_ms,
    }


def overview(jobs: Sequence[JobView], version: str) -> Object:
    """Return the JSON of ``/overview``."""
    slots = _slots(jobs)
    return {
        "taskmanagers": 1,
        "slots-total": slots,
        "slots-available": 0,
        "jobs-running": sum(j.state in {FlinkJobState.RUNNING, FlinkJobState.RESTARTING} for j in jobs),
        "jobs-finished": sum(j.state is FlinkJobState.FINISHED for j in jobs),
        "jobs-cancelled": sum(j.state is FlinkJobState.CANCELED for j in jobs),
        "jobs-failed": sum(j.state is FlinkJobState.FAILED for j in jobs),
        "flink-version": FLINK_VERSION,
        "flink-commit": f"barrierscope {version}",
    }


def jobs(views: Sequence[JobView]) -> Object:
    """Return the JSON of ``/jobs``."""
    return {"jobs": [{"id": j.id, "status": j.state} for j in views]}


def jobs_overview(views: Sequence[JobView]) -> Object:
    """Return the JSON of ``/jobs/overview``."""
    return {"jobs": [_overview_row(j) for j in views]}


def task_managers(views: Sequence[JobView], task_manager_id: str) -> Object:
    """Return the JSON of ``/taskmanagers``. It lists one TaskManager, because one process runs everything."""
    return {"taskmanagers": [_task_manager(views, task_manager_id)]}


def _overview_row(job: JobView) -> Object:
    tasks: dict[str, Json] = dict.fromkeys(_OVERVIEW_STATES, 0)
    statuses = [s.status.lower() for v in job.vertices for s in v.subtasks]
    for status in statuses:
        tasks[status] = statuses.count(status)
    tasks["total"] = len(statuses)
    # A loss counts as a change, so that a collector reads the exceptions again although no task has changed.
    lost_us = [each.at_us for each in (*job.losses, *job.effects)]
    changed_us = max([s.started_at_us for v in job.vertices for s in v.subtasks] + [job.ended_at_us or 0, *lost_us])
    return {
        "jid": job.id,
        "name": job.name,
        "start-time": job.epoch_ms(job.began_at_us),
        "end-time": _end(job),
        "duration": _until_end(job, job.began_at_us),
        "state": job.state,
        "last-modification": job.epoch_ms(changed_us),
        "tasks": tasks,
    }


def _task_manager(views: Sequence[JobView], task_manager_id: str) -> Object:
    resource: Object = {
        "cpuCores": 1.0,
        "taskHeapMemory": 0,
        "taskOffHeapMemory": 0,
        "managedMemory": 0,
        "networkMemory": 0,
        "extendedResources": {},
    }
    memory: Object = dict.fromkeys(
        (
            "frameworkHeap",
            "taskHeap",
            "frameworkOffHeap",
            "taskOffHeap",
            "networkMemory",
            "managedMemory",
            "jvmMetaspace",
            "jvmOverhead",
            "totalFlinkMemory",
            "totalProcessMemory",
        ),
        0,
    )
    return {
        "id": task_manager_id,
        "path": f"barrierscope-runtime://{task_manager_id}",
        "dataPort": -1,
        "jmxPort": -1,
        "timeSinceLastHeartbeat": max((j.epoch_ms(j.now_us) for j in views), default=0),
        "slotsNumber": _slots(views),
        "freeSlots": 0,
        "totalResource": resource,
        "freeResource": resource,
        "hardware": {"cpuCores": 1, "physicalMemory": 0, "freeMemory": 0, "managedMemory": 0},
        "memoryConfiguration": memory,
    }


def _slots(views: Sequence[JobView]) -> int:
    # With Flink's slot sharing, a job needs as many slots as its widest vertex has subtasks.
    return sum(max((v.parallelism for v in j.vertices), default=0) for j in views)


# --- a job --------------------------------------------------------------------------------------------------------


def job(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id``."""
    stamps: dict[str, Json] = {state.value: 0 for state in FlinkJobState}
    stamps |= {
        state.value: view.epoch_ms(view.began_at_us)
        for state in (FlinkJobState.INITIALIZING, FlinkJobState.CREATED, FlinkJobState.RUNNING)
    }
    if view.ended_at_us is not None:
        stamps[view.state.value] = view.epoch_ms(view.ended_at_us)
    return {
        "jid": view.id,
        "name": view.name,
        "isStoppable": False,
        "state": view.state,
        "job-type": "STREAMING",
        "start-time": view.epoch_ms(view.began_at_us),
        "end-time": _end(view),
        "duration": _until_end(view, view.began_at_us),
        "maxParallelism": NOT_YET,
        "now": view.epoch_ms(view.now_us),
        "timestamps": stamps,
        "vertices": [_job_vertex(view, v) for v in view.vertices],
        "status-counts": _state_counts([_vertex_status(v) for v in view.vertices]),
        "plan": _plan(view),
        "lag-ms": view.lag_ms,
    }


def plan(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id/plan``."""
    return {"plan": _plan(view)}


def job_config(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id/config``."""
    return {
        "jid": view.id,
        "name": view.name,
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": "Cluster level default restart strategy",
            "job-parallelism": max((v.parallelism for v in view.vertices), default=1),
            "object-reuse-mode": False,
            "user-config": {},
        },
    }


def exceptions(view: JobView) -> Object:
    """Return the JSON of ``/jobs/:id/exceptions``."""
    failures = sorted((*view.exceptions, *view.losses), key=lambda e: -e.at_us)
    newest = next(iter(failures), None)
    every = sorted((*failures, *view.effects), key=lambda e: -e.at_us)
    return {
        "root-exception": None if newest is None else f"{newest.name}: {newest.message}",
        "timestamp": None if newest is None else view.epoch_ms(newest.at_us),
        "all-exceptions": [],
        "truncated": False,
        "exceptionHistory": {
            "entries": [
                {
                    "exceptionName": e.name,
                    "stacktrace": f"{e.name}: {e.message}",
                    "timestamp": view.epoch_ms(e.at_us),
                    "failureLabels": {},
                    # Flink leaves this field out if the exception was not caused by a task.
                    **({} if e.task is None else {"taskName": e.task}),
                    "concurrentExceptions": [],
                }
                for e in every
            ],
            "truncated": False,
        },
    }


def _plan(view: JobView) -> Object:
    # Flink lists the nodes from the sinks to the sources.
    return {
        "jid": view.id,
        "name": view.name,
        "type": "STREAMING",
        "nodes": [_node(v) for v in reversed(view.vertices)],
    }


def _node(vertex: VertexView) -> Object:
    node: Object = {
        "id": vertex.id,
        "parallelism": vertex.parallelism,
        "operator": "",
        "operator_strategy": "",
        "description": f"{vertex.name}<br/>",
    }
    if vertex.inputs:
        node["inputs"] = [
            {"num": n, "id": i.source_id, "ship_strategy": i.ship_strategy, "exchange": "pipelined_bounded"}
            for n, i in enumerate(vertex.inputs)
        ]
    return node | {"optimizer_properties": {}}


def _job_vertex(view: JobView, vertex: VertexView) -> Object:
    start_us = min(s.started_at_us for s in vertex.subtasks)
    ends = [s.ended_at_us for s in vertex.subtasks]
    end_us = None if None in ends else max(e for e in ends if e is not None)
    totals = [_io_metrics(s) for s in vertex.subtasks]
    return {
        "id": vertex.id,
        # All vertices share one slot sharing group, as is Flink's default.
        "slotSharingGroupId": view.id,
        "name": vertex.name,
        "maxParallelism": vertex.max_parallelism,
        "parallelism": vertex.parallelism,
        "status": _vertex_status(vertex),
        "start-time": view.epoch_ms(start_us),
        "end-time": NOT_YET if end_us is None else view.epoch_ms(end_us),
        "duration": ((view.now_us if end_us is None else end_us) - start_us) // 1000,
        "tasks": _state_counts([s.status for s in vertex.subtasks]),
        "metrics": {key: value if isinstance(value, bool) else _total(totals, key) for key, value in totals[0].items()},
    }


def _total(rows: Sequence[Mapping[str, int | float | bool | str]], key: str) -> int | float | str:
    numbers = [row[key] for row in rows]
    # As in Flink, the sum is NaN if any of its values is NaN.
    return NAN_TEXT if NAN_TEXT in numbers else sum(n for n in numbers if not isinstance(n, str))


def _vertex_status(vertex: VertexView) -> TaskState:
    statuses = {s.status for s in vertex.subtasks}
    return next((state for state in _DECIDES_FIRST if state in statuses), TaskState.FINISHED)


def _state_counts(statuses: Sequence[TaskState]) -> Object:
    return {state.value: statuses.count(state) for state in TaskState}


def _end(view: JobView) -> int:
    return NOT_YET if view.ended_at_us is None else view.epoch_ms(view.ended_at_us)


def _until_end(view: JobView, since_us: int) -> int:
    return ((view.now_us if view.ended_at_us is None else view.ended_at_us) - since_us) // 1000


def _io_metrics(subtask: SubtaskView) -> dict[str, int | float | bool | str]:
    return {
        "read-bytes": subtask.bytes_in,
        "read-bytes-complete": True,
        "write-bytes": subtask.bytes_out,
        "write-bytes-complete": True,
        "read-records": subtask.records_in,
        "read-records-complete": True,
        "write-records": subtask.records_out,
        "write-records-complete": True,
        "accumulated-backpressured-time": subtask.backpressured_us // 1000,
        "accumulated-idle-time": subtask.idle_us // 1000,
        "accumulated-busy-time": NAN_TEXT if subtask.busy_us is None else float(subtask.busy_us // 1000),
    }


# --- a vertex -----------------------------------------------------------------------------------------------------


def vertex(view: JobView, one: VertexView, task_manager_id: str) -> Object:
    """Return the JSON of ``/jobs/:id/vertices/:vid``."""
    rows = [_vertex_subtask(view, n, s, task_manager_id) for n, s in enumerate(one.subtasks)]
    totals = [_io_metrics(s) for s in one.subtasks]
    numeric = [key for key, value in totals[0].items() if not isinstance(value, bool)]
    spent = [_time_in_states(view, s) for s in one.subtasks]
    return {
        "id": one.id,
        "name": one.name,
        "parallelism": one.parallelism,
        "maxParallelism": one.max_parallelism,
        "now": view.epoch_ms(view.now_us),
        "subtasks": rows,
        "aggregated": {
            # Flink reports -1 instead of NaN here, as it does before a vertex runs.
            "metrics": {
                key: _aggregate([-1 if t[key] == NAN_TEXT else int(t[key]) for t in totals]) for key in numeric
            },
            "status-duration": {state: _aggregate([t[state] for t in spent]) for state in spent[0]},
        },
    }


def backpressure(view: JobView, one: VertexView) -> Object:
    """Return the JSON of ``/jobs/:id/vertices/:vid/backpressure``."""
    ratios = [_backpressured(s) for s in one.subtasks]
    level = _level(max(ratios))
    rows: list[Json] = [
        {
            "subtask": n,
            "backpressureLevel": _level(ratio),
            "ratio": ratio,
            "idleRatio": s.idle_ms_per_s / 1000,
            "busyRatio": NAN_TEXT if s.busy_ms_per_s is None else s.busy_ms_per_s / 1000,
            "backpressure-level": _level(ratio),
        }
        for n, (s, ratio) in enumerate(zip(one.subtasks, ratios, strict=True))
    ]
    return {
        "status": "ok",
        "backpressureLevel": level,
        "end-timestamp": view.epoch_ms(view.now_us),
        "subtasks": rows,
        "backpressure-level": level,
    }


def _backpressured(subtask: SubtaskView) -> float:
    return (subtask.soft_backpressured_ms_per_s + subtask.hard_backpressured_ms_per_s) / 1000


def _level(ratio: float) -> str:
    return "ok" if ratio <= _LOW_ABOVE else "low" if ratio <= _HIGH_ABOVE else "high"


def _vertex_subtask(view: JobView, index: int, subtask: SubtaskView, task_manager_id: str) -> Object:
    end_us = view.now_us if subtask.ended_at_us is None else subtask.ended_at_us
    return {
        "subtask": index,
        "status": subtask.status,
        "attempt": subtask.attempt,
        "host": subtask.host,
        "endpoint": f"{subtask.host}:0",
        "start-time": view.epoch_ms(subtask.started_at_us),
        "end-time": NOT_YET if subtask.ended_at_us is None else view.epoch_ms(subtask.ended_at_us),
        "duration": (end_us - subtask.started_at_us) // 1000,
        "metrics": _io_metrics(subtask),
        "taskmanager-id": task_manager_id,
        "status-duration": _time_in_states(view, subtask),
        "start_time": view.epoch_ms(subtask.started_at_us),
    }


def _time_in_states(view: JobView, subtask: SubtaskView) -> dict[str, int]:
    # The deployment of a subtask takes no virtual time, so these durations are 0. Flink reports -1 for a state that
    # was skipped, but no recording contains one.
    end_us = view.now_us if subtask.ended_at_us is None else subtask.ended_at_us
    waiting = dict.fromkeys(("CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING"), 0)
    return waiting | {"RUNNING": (end_us - subtask.started_at_us) // 1000}


def _aggregate(values: Sequence[int]) -> Object:
    row = sorted(values)
    at: Object = {
        name: int(quantile(row, q)) for name, q in (("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("p95", 0.95))
    }
    return {"min": row[0], "max": row[-1], "avg": sum(row) // len(row), "sum": sum(row)} | at
