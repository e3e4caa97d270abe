"""Converts JSON responses of Flink's monitoring REST API to values of ``backend.domain``. Does no I/O.

Sentinels for missing values become None, never zero. Flink's names and units are converted to ours. A field of the
wrong type or out of range raises ``TargetProtocolError``, which names the address and the field. A field that only
some versions have may be missing. Sources: recordings of Flink 1.20.5 and 1.13.6 (``tests/contract``), the differences
in 2.3.0, and the classes of the answers in 1.13 to 1.16.

Before 1.15 there is no ``checkpointed_size``: ``state_size`` has its meaning, the bytes that the checkpoint wrote
(``PlaceholderStreamStateHandle.getStateSize`` is 0), and nothing reports the full size of an incremental checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice

from backend.contracts import flink
from backend.domain.checkpoint import (
    CheckpointConfig,
    CheckpointCounts,
    CheckpointHeader,
    CheckpointKind,
    CheckpointStatus,
    RestoredFrom,
    SavepointFormat,
    VertexDetail,
)
from backend.domain.clock import to_epoch_ms
from backend.domain.engines import RUNTIME, EngineCapabilities, release_of
from backend.domain.engines import flink as flink_in
from backend.domain.errors import TargetProtocolError
from backend.domain.failure import reason_of_message
from backend.domain.ids import EngineRunId, VertexId
from backend.domain.observation import JobState
from backend.domain.protocols import Protocol
from backend.domain.text import clean, clean_lines
from backend.domain.topology import Edge, Placement, Topology, Vertex
from collectors.flink.document import Document, RowCache
from collectors.flink.subtask_columns import (
    checked_columns_of,
    columns_of,
    if_given,
    index_of,
    milliseconds,
    placed,
    size_bytes,
    without_finished,
)

NAME_MAX = 500
# The longest path on Linux. Object stores have shorter keys.
PATH_MAX = 4096
MESSAGE_MAX = 2000
STACKTRACE_MAX = 8000
# A longer setting (31 years) means *never*: Flink uses one of Java's largest numbers for it, such as the interval
# 2^63 - 1 of a job without periodic checkpoints (CheckpointCoordinatorConfiguration).
_SETTING_MS_MAX = 10**12
_LEFT_OUT_MAX = 100

_ID = re.compile(r"[0-9a-f]{32}")
_STATUS = {
    flink.STATUS_IN_PROGRESS: CheckpointStatus.IN_PROGRESS,
    flink.STATUS_COMPLETED: CheckpointStatus.COMPLETED,
    flink.STATUS_FAILED: CheckpointStatus.FAILED,
}
_SAVEPOINT_FORMATS = {"CANONICAL": SavepointFormat.CANONICAL, "NATIVE": SavepointFormat.NATIVE}
_UNALIGNED = {flink.TYPE_CHECKPOINT: False, flink.TYPE_UNALIGNED: True}
_UNALIGNED_SINCE = (1, 16)
# About 32 years. A row of the list of jobs with a longer duration is not believed.
DURATION_MAX_MS = 10**12


# --- the cluster and its jobs -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine at a target. ``version`` is as reported. If ``has_job_clocks``, each job has its own clock.

    ``names_unaligned`` is whether the type of a checkpoint tells whether it is unaligned. Before 1.16, Flink calls both
    kinds ``CHECKPOINT`` (``RestAPICheckpointType``).
    """

    engine: EngineCapabilities
    version: str
    has_job_clocks: bool = False
    names_unaligned: bool = True


def engine_info(document: Document) -> EngineInfo:
    """Read ``/config`` and return the engine: Flink, or our live runtime, which adds a field of its own there."""
    runtime = document.find(flink.RUNTIME_FIELD)
    if runtime is not None:
        return EngineInfo(RUNTIME, runtime.text(length_max=NAME_MAX), has_job_clocks=True)
    version = document.get("flink-version").text(length_max=NAME_MAX)
    release = release_of(version)
    return EngineInfo(flink_in(version), version, names_unaligned=release is None or release >= _UNALIGNED_SINCE)


@dataclass(frozen=True, slots=True)
class JobEntry:
    """One row of ``/jobs/overview``. ``changed_at_ms`` changes whenever one of the job's tasks changes its state."""

    engine_run_id: EngineRunId
    name: str
    engine_state: str
    state: JobState
    started_at: datetime
    ended_at: datetime | None
    duration_ms: int
    changed_at_ms: int

    @property
    def unchanged_for(self) -> timedelta:
        """For how long no task has changed its state, when the engine made this row, or zero if that is not known.

        Both times are on the engine's clock.
        """
        if not 0 <= self.duration_ms <= DURATION_MAX_MS:
            return timedelta(0)
        unchanged_ms = to_epoch_ms(self.started_at) + self.duration_ms - self.changed_at_ms
        return timedelta(milliseconds=unchanged_ms if 0 <= unchanged_ms <= DURATION_MAX_MS else 0)


def jobs_overview(document: Document, known: RowCache[JobEntry] | None = None) -> tuple[JobEntry, ...]:
    """Read ``/jobs/overview``: every job of the target. ``known`` is the cache of this target's jobs."""
    return (known or RowCache()).read(document.get("jobs"), _job_entry, key="jid")


def _job_entry(row: Document) -> JobEntry:
    word = row.get("state").text(length_max=NAME_MAX)
    return JobEntry(
        engine_run_id=EngineRunId(_id(row.get("jid"))),
        name=row.get("name").text(length_max=NAME_MAX),
        engine_state=word,
        state=_job_state(word),
        started_at=row.get("start-time").instant_known(),
        ended_at=row.get("end-time").instant(),
        duration_ms=row.get("duration").whole(),
        changed_at_ms=row.get("last-modification").whole(),
    )


def _job_state(word: str) -> JobState:
    if word in flink.JOB_STATES_ENDED:
        return JobState.ENDED
    if word in flink.JOB_STATES_STARTING:
        return JobState.STARTING
    if word in flink.JOB_STATES_RESTARTING:
        return JobState.RESTARTING
    return JobState.RUNNING if word == flink.JOB_STATE_RUNNING else JobState.UNKNOWN


def job_started_at(document: Document) -> datetime:
    """Read ``/jobs/:id``: the instant at which this run of the job started."""
    return document.get("start-time").instant_known()


def topology(document: Document) -> Topology:
    """Read the graph of a job from ``/jobs/:id``.

    Edges are taken from the field ``plan``. Vertices are taken from the field ``vertices``, because the plan's names
    contain HTML.
    """
    vertices = {v.id: v for v in (_vertex(row) for row in document.get("vertices").items())}
    edges: list[Edge] = []
    nodes = document.get("plan").find("nodes")
    # The plan of a job that starts is an empty object.
    for node in () if nodes is None else nodes.items():
        target = VertexId(_id(node.get("id")))
        inputs = node.find("inputs")
        for source in inputs.items() if inputs is not None else ():
            edge = Edge(VertexId(_id(source.get("id"))), target, _optional_text(source.find("ship_strategy")))
            if edge.source in vertices and edge.target in vertices:
                edges.append(edge)
    order = _topological(tuple(vertices), edges)
    position = {vertex_id: n for n, vertex_id in enumerate(order)}
    # A verdict follows the edges without looking back. Flink has no cycles, so edges that close one are left out.
    edges = [e for e in edges if position[e.source] < position[e.target]]
    edges.sort(key=lambda e: (position[e.source], position[e.target]))
    kind = _optional_text(document.get("plan").find("type"))
    return Topology(tuple(vertices[v] for v in order), tuple(edges), True if kind == flink.PLAN_BATCH else None)


def _vertex(row: Document) -> Vertex:
    max_parallelism = row.find("maxParallelism")
    limit = None if max_parallelism is None else max_parallelism.whole()
    return Vertex(
        id=VertexId(_id(row.get("id"))),
        name=row.get("name").text(length_max=NAME_MAX),
        parallelism=_subtask_count(row.get("parallelism")),
        max_parallelism=None if limit is None or limit < 0 else limit,
    )


def _topological(vertices: tuple[VertexId, ...], edges: Iterable[Edge]) -> list[VertexId]:
    # Flink already lists vertices in topological order. Vertices in a cycle, which Flink does not allow, are put at
    # the end.
    missing = dict.fromkeys(vertices, 0)
    after: dict[VertexId, list[VertexId]] = {v: [] for v in vertices}
    for edge in edges:
        missing[edge.target] += 1
        after[edge.source].append(edge.target)
    order = [v for v in vertices if missing[v] == 0]
    for done in order:
        for target in after[done]:
            missing[target] -= 1
            if missing[target] == 0:
                order.append(target)
    return order + [v for v in vertices if missing[v] > 0]


def ended_counts(document: Document) -> dict[VertexId, int]:
    """Read from ``/jobs/:id`` how many subtasks of each vertex have ended without a failure."""
    counts = {}
    for row in document.get("vertices").items():
        tasks = row.find("tasks")
        count = None if tasks is None else tasks.find(flink.TASK_STATE_FINISHED)
        counts[VertexId(_id(row.get("id")))] = 0 if count is None else count.count()
    return counts


def placement(document: Document) -> Placement:
    """Read ``/jobs/:id/vertices/:vid``: the host, TaskManager, attempt and status of each subtask.

    Flink 2.x has ``endpoint`` (host:port) instead of ``host``.
    """
    rows = list(document.get("subtasks").items())
    hosts: list[str | None] = [None] * len(rows)
    managers, statuses = hosts.copy(), hosts.copy()
    attempts: list[int | None] = [None] * len(rows)
    for row in rows:
        n = index_of(row.get("subtask"), len(rows))
        endpoint = _optional_text(row.find("endpoint"))
        hosts[n] = _optional_text(row.find("host")) or (endpoint.rpartition(":")[0] if endpoint else None) or None
        managers[n] = _optional_text(row.find("taskmanager-id"))
        attempt = row.find("attempt")
        attempts[n] = None if attempt is None else attempt.count()
        statuses[n] = _optional_text(row.find("status"))
    return Placement(VertexId(_id(document.get("id"))), tuple(hosts), tuple(managers), tuple(attempts), tuple(statuses))


def exceptions(document: Document) -> tuple[tuple[tuple[datetime, str], ...], tuple[str, ...]]:
    """Read ``/jobs/:id/exceptions``. Return the time and the text of each exception, oldest first.

    The text is the task and the stack trace, cut to a limit. The second result has the error of each exception that
    cannot be read.
    """
    history = document.find("exceptionHistory")
    found: list[tuple[datetime, str]] = []
    problems: list[str] = []
    for row in () if history is None else history.get("entries").items():
        try:
            found.append((row.get("timestamp").instant_known(), _exception_text(row)))
        except TargetProtocolError as error:
            problems.append(str(error))
    return tuple(sorted(found)), tuple(problems)


def _exception_text(row: Document) -> str:
    task = _optional_text(row.find("taskName"))
    trace = row.find("stacktrace") or row.get("exceptionName")
    if not isinstance(trace.value, str):
        raise trace.fail("is not text")
    text = clean_lines(trace.value, length_max=STACKTRACE_MAX).strip()
    return f"{task}: {text}" if task else text


# --- checkpoints --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointsAnswer:
    """The content of ``/jobs/:id/checkpoints``.

    ``headers`` are newest first, as Flink lists them. ``restored_ms`` is the time of the last restore. ``problems`` has
    the error of each entry of the history that could not be read.
    """

    counts: CheckpointCounts
    headers: tuple[CheckpointHeader, ...]
    restored_ms: int | None
    problems: tuple[str, ...] = ()


def checkpoints(
    document: Document, known: RowCache[CheckpointHeader] | None = None, *, names_unaligned: bool = True
) -> CheckpointsAnswer:
    """Read ``/jobs/:id/checkpoints``: the counts, the history, and the time of the last restore.

    ``known`` is the cache of this job's history. ``names_unaligned``: see ``EngineInfo``. An entry that cannot be read
    is left out. If there are entries and none can be read, the error of the first one is raised.
    """
    problems: list[str] = []
    read_header = partial(header, names_unaligned=names_unaligned)
    counts = document.get("counts")
    latest = document.get("latest")
    # Savepoints are listed apart, under ``savepoint``.
    restored, completed = latest.find("restored"), latest.find("completed")
    return CheckpointsAnswer(
        counts=CheckpointCounts(
            restored=counts.get("restored").count(),
            total=counts.get("total").count(),
            in_progress=counts.get("in_progress").count(),
            completed=counts.get("completed").count(),
            failed=counts.get("failed").count(),
            restored_at=None if restored is None else restored.get("restore_timestamp").instant(),
            restored_from=None if restored is None else _restored_from(restored, problems),
            newest_completed_id=None if completed is None else completed.get("id").count(),
            newest_triggered_at=None if completed is None else completed.get("trigger_timestamp").instant(),
        ),
        headers=(known or RowCache()).read(document.get("history"), read_header, key="id", problems=problems),
        restored_ms=None if restored is None else restored.get("restore_timestamp").whole(),
        problems=tuple(problems),
    )


def _restored_from(document: Document, problems: list[str]) -> RestoredFrom | None:
    """Read what a run was restored from, which only explains a run: what cannot be read is one of ``problems``."""
    try:
        return _origin(document)
    except TargetProtocolError as error:
        problems.append(str(error))
        return None


def _origin(document: Document) -> RestoredFrom | None:
    """Read the checkpoint. The reference runtime adds some fields if another job took it."""
    number, is_savepoint = document.find("id"), document.find("is_savepoint")
    if number is None or is_savepoint is None:
        return None
    claimed, operators = document.find("is-claimed"), document.find("left-out-operators")
    listed = () if operators is None else islice(operators.items(), _LEFT_OUT_MAX)
    return RestoredFrom(
        checkpoint_id=number.count(),
        is_savepoint=is_savepoint.truth(),
        location=_path(document),
        job=_words(document.find("job-name")),
        kind=_words(document.find("kind")),
        is_claimed=None if claimed is None else claimed.truth(),
        left_out=None if operators is None else tuple(o.text(length_max=NAME_MAX) for o in listed),
        left_out_more=0 if operators is None else max(0, len(operators.array()) - _LEFT_OUT_MAX),
    )


def _path(document: Document) -> str | None:
    path = document.find("external_path")
    return None if path is None else path.text(length_max=PATH_MAX)


def _words(document: Document | None) -> str | None:
    return (_optional_text(document) or "").strip() or None


def header(document: Document, *, names_unaligned: bool = True) -> CheckpointHeader:
    """Read the header of a checkpoint, from an entry of the history or from the checkpoint's details.

    ``names_unaligned``: see ``EngineInfo``.
    """
    status = _status(document)
    acknowledged = document.get("num_acknowledged_subtasks").count()
    message = document.find("failure_message")
    text = None if message is None else message.text(length_max=MESSAGE_MAX)
    failed = document.find("failure_timestamp")
    discarded = document.find("discarded")
    # Until a subtask has acknowledged, the sums of sizes have no meaning.
    size = size_bytes if acknowledged else _nothing
    written, full = _sizes(document)
    kind = _optional_text(document.find("checkpoint_type")) or ""
    return CheckpointHeader(
        checkpoint_id=document.get("id").count(),
        kind=_checkpoint_kind(document),
        status=status,
        triggered_at=document.get("trigger_timestamp").instant_known(),
        is_unaligned=_UNALIGNED.get(kind) if names_unaligned else None,
        latest_ack_at=document.get("latest_ack_timestamp").instant(),
        # For a checkpoint in progress, Flink reports the time to its latest acknowledgement, not the elapsed time.
        end_to_end_duration_ms=milliseconds(document.get("end_to_end_duration")) if status.is_terminal else None,
        checkpointed_size_bytes=size(written),
        full_state_size_bytes=None if full is None else size(full),
        processed_bytes=if_given(size, document.find("processed_data")),
        persisted_bytes=if_given(size, document.find("persisted_data")),
        subtask_count=document.get("num_subtasks").count(),
        acknowledged_count=acknowledged,
        failure_reason=reason_of_message(text) if status is CheckpointStatus.FAILED else None,
        failure_message=text,
        failed_at=None if failed is None else failed.instant(),
        external_path=_path(document),
        is_discarded=None if discarded is None else discarded.truth(),
        savepoint_format=_SAVEPOINT_FORMATS.get(_optional_text(document.find("savepointFormat")) or ""),
        protocol=_protocol(document),
        cap_bound_count=if_given(Document.count, document.find(flink.RUNTIME_CAP_BOUND)),
    )


def _sizes(document: Document) -> tuple[Document, Document | None]:
    """Return the bytes that a checkpoint wrote, and the bytes of its whole state if the version reports them."""
    written, state = document.find(flink.CHECKPOINTED_SIZE), document.get("state_size")
    if written is not None:
        return written, state
    # A savepoint contains the whole state in every version.
    return state, state if document.get("is_savepoint").truth() else None


def _protocol(document: Document) -> Protocol | None:
    word = _optional_text(document.find(flink.RUNTIME_PROTOCOL))
    return Protocol(word) if word in set(Protocol) else None


def _checkpoint_kind(document: Document) -> CheckpointKind:
    if not document.get("is_savepoint").truth():
        return CheckpointKind.CHECKPOINT
    word = _optional_text(document.find("checkpoint_type"))
    return CheckpointKind.SYNC_SAVEPOINT if word == flink.TYPE_SYNC_SAVEPOINT else CheckpointKind.SAVEPOINT


@dataclass(frozen=True, slots=True)
class VertexAcks:
    """The number of subtasks of one vertex, and how many of them acknowledged one checkpoint."""

    vertex_id: VertexId
    acknowledged_count: int
    subtask_count: int


def details(document: Document, *, names_unaligned: bool = True) -> tuple[CheckpointHeader, tuple[VertexAcks, ...]]:
    """Read ``/jobs/:id/checkpoints/details/:cid``: the header, and the number of acknowledgements of each vertex."""
    tasks = tuple(
        VertexAcks(
            VertexId(_id_text(key, task)),
            task.get("num_acknowledged_subtasks").count(),
            _subtask_count(task.get("num_subtasks")),
        )
        for key, task in document.get("tasks").members()
    )
    return header(document, names_unaligned=names_unaligned), tasks


@dataclass(frozen=True, slots=True)
class SubtasksAnswer:
    """The detail of one vertex for one checkpoint, and the status of the checkpoint when it was read.

    ``triggered_ms`` is the trigger time: the time of an acknowledgement minus its end-to-end duration. None if no
    subtask acknowledged. ``finished_count`` is the number of subtasks that look as if they had finished before.
    """

    checkpoint_id: int
    status: CheckpointStatus
    detail: VertexDetail
    triggered_ms: int | None
    finished_count: int

    def is_of(self, header: CheckpointHeader) -> bool:
        """Return whether this is the checkpoint of ``header``, not another run's checkpoint with the same id."""
        is_same_id = self.checkpoint_id == header.checkpoint_id
        return is_same_id and self.triggered_ms in (None, to_epoch_ms(header.triggered_at))


def subtasks(document: Document, vertex_id: VertexId, *, may_have_finished: bool = True) -> SubtasksAnswer:
    """Read ``/jobs/:id/checkpoints/details/:cid/subtasks/:vid``.

    It contains what each subtask of a vertex reported when it acknowledged the checkpoint.

    For a subtask that had finished before, Flink reports zeros that nobody measured. Its acknowledgement is the time at
    which the coordinator created the checkpoint (``CheckpointCoordinator.reportFinishedTasks``): some milliseconds
    after the trigger, and before the first message to a task. So a subtask had finished if it has only zeros, and if no
    subtask of the vertex acknowledged earlier. A running subtask has only zeros too if it has no state and its clock is
    behind.
    Pass ``may_have_finished=False`` if too few subtasks of the vertex have ended.
    """
    count = _subtask_count(document.get("num_subtasks"))
    rows = document.get("subtasks")
    read = columns_of(rows.array(), count) or checked_columns_of(rows, count)
    columns, finished = read.columns, 0
    if may_have_finished and 0 in columns[0]:
        columns, finished = without_finished(columns, read.instants_ms)
    detail = VertexDetail(vertex_id, *(placed(column, read.places, count) for column in columns))
    return SubtasksAnswer(document.get("id").count(), _status(document), detail, read.triggered_ms, finished)


def checkpoint_config(document: Document) -> CheckpointConfig:
    """Read ``/jobs/:id/checkpoints/config``: the checkpoint settings of a job."""
    unaligned = document.find("unaligned_checkpoints")
    is_unaligned = None if unaligned is None else unaligned.truth()
    timeout = document.find("aligned_checkpoint_timeout")
    interval_ms = document.get("interval").whole()
    tolerable = document.find("tolerable_failed_checkpoints")
    after_finish = document.find("checkpoints_after_tasks_finish")
    cap, debloat = document.find(flink.RUNTIME_INFLIGHT_CAP), document.find(flink.RUNTIME_DEBLOAT_TARGET)
    return CheckpointConfig(
        mode=_optional_text(document.find("mode")),
        interval_ms=interval_ms if 0 < interval_ms <= _SETTING_MS_MAX else None,
        timeout_ms=_setting_ms(document.get("timeout")),
        min_pause_ms=_setting_ms(document.get("min_pause")),
        max_concurrent=size_bytes(document.get("max_concurrent")),
        is_unaligned_enabled=is_unaligned,
        aligned_timeout_ms=_setting_ms(timeout) if is_unaligned and timeout is not None else None,
        tolerable_failed_count=None if tolerable is None else size_bytes(tolerable),
        state_backend=_optional_text(document.find("state_backend")),
        checkpoint_storage=_optional_text(document.find("checkpoint_storage")),
        inflight_cap_bytes=None if cap is None else size_bytes(cap),
        debloat_target_ms=None if debloat is None else _setting_ms(debloat),
        protocol=_protocol(document),
        spilling=_optional_text(document.find(flink.RUNTIME_SPILLING)),
        is_off=True if interval_ms > _SETTING_MS_MAX else None,
        ends_with_first_task=True if after_finish is not None and not after_finish.truth() else None,
    )


def with_mode(header: CheckpointHeader, details: Sequence[VertexDetail]) -> CheckpointHeader:
    """Return the header of a checkpoint with the mode that its subtasks report, if the engine does not name it.

    Flink 1.16 and later derive the mode in the same way: a checkpoint is unaligned if one of its subtasks is.
    """
    if header.is_unaligned is not None or header.kind is not CheckpointKind.CHECKPOINT:
        return header
    flags = {flag for detail in details for flag in detail.unaligned}
    if 1 in flags:
        return replace(header, is_unaligned=True)
    is_whole = header.status is CheckpointStatus.COMPLETED and 0 in flags
    return replace(header, is_unaligned=False) if is_whole else header


# --- single values ------------------------------------------------------------------------------------------------


def _id(document: Document) -> str:
    return _id_text(document.value, document)


def _id_text(value: object, document: Document) -> str:
    # The id becomes part of the next request's path, so it must be well formed.
    if not isinstance(value, str) or _ID.fullmatch(value) is None:
        raise document.fail(f"has the id {clean(str(value), length_max=60)!r}, 32 hexadecimal digits are needed")
    return value


def _status(document: Document) -> CheckpointStatus:
    status = document.get("status")
    checkpoint_status = _STATUS.get(str(status.value))
    if checkpoint_status is None:
        raise status.fail(f"is {clean(str(status.value), length_max=60)!r}, one of {', '.join(_STATUS)} is needed")
    return checkpoint_status


def _optional_text(document: Document | None) -> str | None:
    return None if document is None else document.text(length_max=NAME_MAX)


def _subtask_count(document: Document) -> int:
    count = document.count()
    if count > flink.PARALLELISM_MAX:
        raise document.fail(f"is {count}, at most {flink.PARALLELISM_MAX} subtasks are possible")
    return count


def _setting_ms(document: Document) -> int | None:
    value = document.whole()
    return value if 0 <= value <= _SETTING_MS_MAX else None


def _nothing(document: Document) -> None:
    document.whole()
