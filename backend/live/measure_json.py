"""Builds the JSON of the runtime's measurements that Flink's REST does not have, in microseconds and bytes.

* For a checkpoint: the subtask that acknowledged last, with the parts of its time (ME-13), quantiles over the subtasks
  of each vertex (ME-12), and the number of the coordinator's trigger messages and of writes at one moment (CL-7).
* For each subtask: the kinds of its barriers, the order of its phases, its in-flight data by channel, its files, and
  the state that it wrote and that it refers to (ME-8). Also what its incremental backend did (IN-1, IN-12), and what it
  did when its in-flight data reached the cap (ME-18, CAP-7).
* For a job: the cost of each of the last restarts, by part and by subtask (ME-17, RC-11).

Vertex ids are the same as in the rest of the REST. A value that is not known is null. The functions have no side
effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

from backend.live.wire import Json, Object
from backend.runtime.coordinator.rescales import Rescale
from backend.runtime.job.graph import Graph
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.measure.measures import MeasuredCheckpoint, Persisted, SubtaskCheckpoint
from backend.runtime.measure.summaries import vertex_summary
from backend.runtime.network.channel import ChannelKey
from backend.runtime.task.restarts import Initialization, Restart


def checkpoint(record: MeasuredCheckpoint, graph: Graph, ids: Mapping[str, str]) -> Object:
    """Return the JSON of ``/jobs/:id/checkpoints/:cid/measurements``."""
    vertices: dict[str, Json] = {}
    for index, spec in enumerate(graph.vertices):
        acks = [record.acks.get((index, n)) for n in range(spec.parallelism)]
        summary = vertex_summary(record, index)
        vertices[ids[spec.id]] = {
            "summary": {name: None if d is None else asdict(d) for name, d in summary.items()},
            "subtasks": [None if a is None else _subtask(a.measured, graph, ids) for a in acks],
        }
    return {
        "id": record.id,
        "type": record.barrier.snapshot_type.value,
        "barrier": record.barrier.alignment.value,
        "course": record.course,
        "is_consistent_for_queries": record.is_consistent_for_queries,
        "is_incremental": record.is_incremental,
        "written_bytes": record.written_bytes,
        "state_bytes": record.state_bytes,
        "trigger_messages": record.trigger_count,
        "concurrent_writes_max": record.concurrent_writes_max,
        "critical_path": _critical_path(record, graph, ids),
        "vertices": vertices,
    }


def restarts(every: Sequence[Restart], graph: Graph, ids: Mapping[str, str]) -> list[Json]:
    """Return the JSON of ``/jobs/:id/restarts``, newest first. Instants are microseconds since the job began."""
    return [_restart(one, graph, ids) for one in reversed(every)]


def rescales(every: Sequence[Rescale], ids: Mapping[str, str]) -> list[Json]:
    """Return the JSON of ``/jobs/:id/rescales``, newest first. Instants are microseconds since the job began."""
    return [_rescale(one, ids) for one in reversed(every)]


def _rescale(rescale: Rescale, ids: Mapping[str, str]) -> Object:
    restart = rescale.restart
    return {
        "status": rescale.status,
        "requested_at_us": rescale.requested_at_us,
        "stopped_at_us": rescale.stopped_at_us,
        "running_at_us": None if restart is None else restart.running_at_us,
        "from": "savepoint" if rescale.from_savepoint else "checkpoint",
        "restored_id": rescale.restored_id,
        "persisted_bytes": rescale.persisted_bytes,
        "refusal": None if rescale.refusal is None else str(rescale.refusal),
        "vertices": [
            {"vertex": ids[v], "name": v, "before": rescale.before[v], "after": parallelism}
            for v, parallelism in sorted(rescale.parallelism.items())
            # A job file may request a rescale of an unknown vertex. Such a rescale was refused, and the vertex is
            # left out here.
            if v in rescale.before
        ],
    }


def _subtask(m: SubtaskCheckpoint, graph: Graph, ids: Mapping[str, str]) -> Object:
    return {
        "received": None if m.received is None else m.received.value,
        "forwarded": None if m.forwarded is None else m.forwarded.value,
        "forced_hops": m.forced_hops,
        "order": m.order.value,
        "persisted_inputs": [_channel(k, p, graph, ids) for k, p in sorted(m.inputs.items())],
        "overtaken_outputs": [_channel(k, p, graph, ids) for k, p in sorted(m.outputs.items())],
        "repeatable_records": m.repeatable_records,
        "files": None if m.files is None else m.files._asdict(),
        "state_bytes": m.state_bytes,
        "written_bytes": m.written_bytes,
        "increment": None if m.increment is None else m.increment._asdict(),
        "inflight_cap": None if m.cap is None else _cap(m.cap),
    }


def _critical_path(record: MeasuredCheckpoint, graph: Graph, ids: Mapping[str, str]) -> Object | None:
    path = record.critical_path
    if path is None:
        return None
    vertex, subtask = path.task
    where: Object = {"vertex": ids[graph.vertices[vertex].id], "subtask": subtask}
    return where | {name: value for name, value in path._asdict().items() if name != "task"}


def _channel(key: ChannelKey, persisted: Persisted, graph: Graph, ids: Mapping[str, str]) -> Object:
    edge = graph.edges[key.edge]
    return {
        "source": ids[edge.source],
        "target": ids[edge.target],
        "source_subtask": key.source_subtask,
        "target_subtask": key.target_subtask,
        "buffers": persisted.buffers,
        "bytes": persisted.size_bytes,
    }


def _cap(decision: CapDecision) -> Object:
    return {
        "cap_bytes": decision.cap_bytes,
        "in_flight_before_bytes": decision.in_flight_before_bytes,
        "in_flight_bytes": decision.in_flight_bytes,
        "waited_us": decision.waited_us,
        "action": decision.action.value,
    }


def _restart(restart: Restart, graph: Graph, ids: Mapping[str, str]) -> Object:
    return {
        "failed_at_us": restart.failed_at_us,
        "cause": restart.cause,
        "restored_id": restart.restored_id,
        # The runtime detects a failure in the same event in which the failure happens, so the detection takes no
        # time.
        "detection_us": 0,
        "restart_us": restart.restart_us,
        **restart.costs,
        "subtasks": [
            _initialization(ids[graph.vertices[vertex].id], subtask, one)
            for (vertex, subtask), one in sorted(restart.subtasks.items())
        ],
    }


def _initialization(vertex_id: str, subtask: int, one: Initialization) -> Object:
    return {
        "vertex": vertex_id,
        "subtask": subtask,
        "mailbox_start_us": one.mailbox_start_us,
        "read_output_us": one.read_output_us,
        "initialize_state_us": one.initialize_state_us,
        "replay_us": one.replay_us,
        "read_input_us": one.read_input_us,
        "gate_restore_us": one.gate_restore_us,
        "until_running_us": one.until_running_us,
        "state_bytes": one.state_bytes,
        "channel_bytes": one.channel_bytes,
        "records_filtered": one.records_filtered,
        "records_before_watermark": one.records_before_watermark,
        "has_stored_watermark": one.has_stored_watermark,
        "status": "INITIALIZING" if one.running_at_us is None else "COMPLETED",
    }
