"""Runs the runs of one simulation, and returns their result as the API's documents.

This is the only part of a simulation that uses much CPU. It reads no store, so the worker calls it in a thread.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, NoReturn

from backend.analysis.assembling import EVIDENCE_COUNT, RunAt
from backend.analysis.measures.critical_path import CriticalPath, critical_path
from backend.analysis.measures.cut import check_cut
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.measures.phases import checkpoint_phases
from backend.analysis.space_time import measured as measured_trace
from backend.analysis.space_time import reconstructed as reconstructed_trace
from backend.analysis.space_time.folding import LaneVertex, fold
from backend.analysis.verdict.verdict import checkpoint_verdict
from backend.contracts import api
from backend.contracts.barriers import BarrierEventOut, BarriersOut
from backend.contracts.causes import CriticalPathOut
from backend.contracts.engines import CapabilitiesOut
from backend.contracts.model import Model
from backend.contracts.simulations import SimulatedCheckpointOut, SimulationIn, SimulationRunOut, simulation_id_of
from backend.contracts.space_time import SpaceTimeOut
from backend.domain.barriers import BarrierEvent
from backend.domain.checkpoint import Checkpoint, CheckpointStatus, largest
from backend.domain.checkpoint_mode import course_of_checkpoint, mode_of_checkpoint
from backend.domain.engines import RUNTIME
from backend.domain.errors import BarrierscopeError, TooLargeError
from backend.domain.ids import VertexId
from backend.domain.verdict import Basis
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.job import config as settings
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.services.checkpoints.reconstruction import reconstructed_events
from backend.services.checkpoints.space_time import space_time_out
from backend.services.presenting import API_ROOT, graph_out, phases_out
from backend.services.simulations.catalog import LIMITS, Limits, PlannedRun, plan
from backend.services.simulations.measured import at, checkpoint_of, config_of, in_time_order, topology_of
from backend.store.simulations.simulations import StoredCheckpoint

# After each slice of this virtual time, the simulation checks its CPU time and whether it must stop. A few hundred
# records are processed in a slice.
_SLICE_US: Final = 20_000
_US: Final = 1_000_000
EVENTS_MAX: Final = 40_000
"""The largest number of barrier events that a simulation keeps."""
_BYTES_MAX: Final = 8 * 2**20
"""The largest size of the compressed checkpoints of a simulation."""
_EVENTS_LEFT_OUT: Final = (
    f"reconstructed from the phases of the subtasks: a simulation keeps at most {EVENTS_MAX:,} barrier events;"
    " run a shorter time or with less parallelism to see each channel"
)
_CHANNELS_LEFT_OUT: Final = f"a simulation keeps at most {EVENTS_MAX:,} barrier events"


class SimulationStoppedError(BarrierscopeError):
    """The simulation ended early, because it was cancelled or because its worker stops."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a simulation: the documents of its runs, and their checkpoints as they are stored."""

    runs: Sequence[Model]
    checkpoints: Sequence[StoredCheckpoint]


@dataclass(slots=True)
class Progress:
    """What a worker and the thread of its simulation share. Each field has one writer."""

    ratio: float = 0.0
    is_stopped: bool = False


@dataclass(slots=True)
class Recorded:
    """The checkpoints of one run, in the order in which they ended, with their barrier events if these are kept."""

    engine: JobEngine
    events_left: int
    found: list[tuple[MeasuredCheckpoint, Sequence[BarrierEvent] | None]] = field(default_factory=list)

    def add(self, record: MeasuredCheckpoint) -> None:
        """Record a checkpoint that has ended."""
        events = self.engine.barriers(record.id)
        if events is not None and len(events) > self.events_left:
            events = None
        self.events_left -= len(events or ())
        self.found.append((record, events))


def run(
    request: SimulationIn,
    progress: Progress,
    limits: Limits = LIMITS,
    cpu_s: Callable[[], float] = time.thread_time,
) -> Result:
    """Run a simulation. ``cpu_s`` returns the CPU time of the calling thread.

    Raises:
        SimulationStoppedError: ``progress.is_stopped`` was set.
        TooLargeError: the simulation used more CPU time than a limit allows, or its result is too large.
        InvalidInputError: the request is invalid.
    """
    planned = plan(request, limits)
    root = f"{API_ROOT}/simulations/{simulation_id_of(request)}/runs"
    began_s = cpu_s()
    runs: list[SimulationRunOut] = []
    stored: list[StoredCheckpoint] = []
    for number, each in enumerate(planned):
        engine = JobEngine(each.spec, is_size_only=True)
        recorded = Recorded(engine, EVENTS_MAX // len(planned))
        engine.coordinator.on_terminal = recorded.add
        for ratio in bounded_slices(engine, request.duration_s, progress, lambda: cpu_s() - began_s, limits):
            progress.ratio = (number + ratio) / len(planned)
        for record in reversed(engine.coordinator.history):
            if record.state is CheckpointState.IN_PROGRESS:
                recorded.add(record)
        document, checkpoints = documented(each, recorded, number, root)
        runs.append(document)
        stored += checkpoints
        if sum(len(s.document) for s in stored) > _BYTES_MAX:
            _refuse(f"its result has more than {_BYTES_MAX // 2**20} MiB")
    return Result(runs, stored)


def documented(
    planned: PlannedRun, recorded: Recorded, number: int, root: str
) -> tuple[SimulationRunOut, list[StoredCheckpoint]]:
    """Return the documents of one run, which has this number, and of its recorded checkpoints.

    Links to checkpoints begin with ``root``.
    """
    ended = [checkpoint_of(record) for record, _ in recorded.found]
    found = [_document(planned, recorded, ended[: i + 1], f"{root}/{number}") for i in range(len(ended))]
    stored = [StoredCheckpoint(number, d.checkpoint.checkpoint_id, _packed(d)) for d in found]
    return _run_out(planned, recorded.engine, [d.checkpoint for d in found]), stored


def unpacked(document: bytes) -> SimulatedCheckpointOut:
    """Return a checkpoint from the form in which it is stored."""
    return SimulatedCheckpointOut.model_validate_json(zlib.decompress(document))


def _packed(document: SimulatedCheckpointOut) -> bytes:
    return zlib.compress(document.model_dump_json().encode(), 6)


def bounded_slices(
    engine: JobEngine, duration_s: float, progress: Progress, used_s: Callable[[], float], limits: Limits
) -> Iterator[float]:
    """Run the job in short slices. After each slice, yield the share of ``duration_s`` that is done.

    Stop early if the job ends. ``used_s`` returns the CPU time of the whole simulation.

    Raises:
        SimulationStoppedError: ``progress.is_stopped`` was set.
        TooLargeError: the simulation used more CPU time than a limit allows.
    """
    at_us, duration_us = 0, round(duration_s * _US)
    while at_us < duration_us and engine.ended_at_us is None:
        at_us = min(duration_us, at_us + _SLICE_US)
        engine.run_until(at_us)
        if progress.is_stopped:
            raise SimulationStoppedError
        if used_s() > limits.cpu_max_s:
            _refuse(f"it needs more than {limits.cpu_max_s:g} s of CPU time")
        yield at_us / duration_us


def _refuse(problem: str) -> NoReturn:
    raise TooLargeError("simulation", problem, field="duration_s", fix="run a shorter time or with less parallelism")


def _document(
    planned: PlannedRun, recorded: Recorded, known: Sequence[Checkpoint], root: str
) -> SimulatedCheckpointOut:
    """Return the last of the checkpoints ``known`` of a run. Those before it are evidence for its verdict."""
    index, checkpoint = len(known) - 1, known[-1]
    record, events = recorded.found[index]
    topology, config = topology_of(record.graph), config_of(planned.spec.config)
    ended = tuple(c for c in known[-EVIDENCE_COUNT - 1 :] if c.header.status.is_terminal)
    run = RunAt(topology=topology, config=config, engine=RUNTIME)
    evidence = run.evidence(now=at(recorded.engine.now_us), checkpoints=ended)
    path = critical_path(checkpoint, topology, config)
    verdict = checkpoint_verdict(checkpoint, evidence)
    ids = [r.id for r, _ in recorded.found]
    header = checkpoint.header
    detail = api.CheckpointDetailOut.of(
        header,
        **_row(checkpoint, planned, f"{root}/checkpoints/{header.checkpoint_id}"),
        job=planned.spec.name,
        timeout_ms=config.timeout_ms,
        aligned_timeout_ms=config.aligned_timeout_ms,
        vertices=phases_out(topology, (), checkpoint_phases(checkpoint, config)),
        critical_path=None if path is None else CriticalPathOut.model_validate(path),
        verdict=api.VerdictOut.model_validate(verdict),
        has_barriers=events is not None,
        engine=RUNTIME.kind,
        capabilities=CapabilitiesOut.model_validate(RUNTIME),
        previous_id=ids[index - 1] if index > 0 else None,
        next_id=ids[index + 1] if index + 1 < len(ids) else None,
    )
    return SimulatedCheckpointOut(
        checkpoint=detail,
        barriers=_barriers(checkpoint, evidence, events),
        space_time=_space_time(checkpoint, evidence, path, events, opened=verdict.vertex_id),
    )


def _space_time(
    checkpoint: Checkpoint,
    evidence: JobEvidence,
    path: CriticalPath | None,
    events: Sequence[BarrierEvent] | None,
    *,
    opened: VertexId | None,
) -> SpaceTimeOut:
    """Return the diagram. If it is folded, it shows the subtasks of ``opened``, or else of the last vertex."""
    topology = evidence.topology
    if events is None:
        trace = reconstructed_trace.trace_of(checkpoint_phases(checkpoint, evidence.config), topology)
    else:
        trace = measured_trace.trace_of(in_time_order(events))
    pinned = [] if path is None else [(s.vertex_id, s.subtask) for s in path.steps]
    vertices = [LaneVertex(v.id, v.name, v.parallelism) for v in topology.vertices]
    is_completed = checkpoint.header.status is CheckpointStatus.COMPLETED
    return space_time_out(
        fold(trace, vertices, opened={opened or topology.vertices[-1].id}, pinned=pinned),
        trace.basis,
        None if events is None else check_cut(events, is_completed=is_completed),
        max(trace.end_ms, float(checkpoint.header.end_to_end_duration_ms or 0)),
        topology,
        why=_CHANNELS_LEFT_OUT,
    )


def _barriers(checkpoint: Checkpoint, evidence: JobEvidence, events: Sequence[BarrierEvent] | None) -> BarriersOut:
    if events is None:
        found = reconstructed_events(checkpoint, evidence, ())
        return BarriersOut(basis=Basis.RECONSTRUCTED, events=found, note=_EVENTS_LEFT_OUT)
    ordered = [BarrierEventOut.of(e, at_ms=e.at_us / 1000) for e in in_time_order(events)]
    return BarriersOut(basis=Basis.MEASURED, events=ordered)


def _row(checkpoint: Checkpoint, planned: PlannedRun, link: str) -> dict[str, Any]:
    """Return the fields of ``CheckpointOut`` that the header does not have."""
    details, config = checkpoint.details, config_of(planned.spec.config)
    return {
        "job_id": planned.spec.name,
        "run_id": planned.protocol,
        "mode": mode_of_checkpoint(checkpoint.header, config),
        "course": course_of_checkpoint(checkpoint.header, config),
        "start_delay_max_ms": largest([v for d in details for v in d.start_delay_ms]),
        "alignment_max_ms": largest([v for d in details for v in d.alignment_duration_ms]),
        "sync_max_ms": largest([v for d in details for v in d.sync_duration_ms]),
        "async_max_ms": largest([v for d in details for v in d.async_duration_ms]),
        "is_lower_bound": checkpoint.header.is_partly_acknowledged,
        "link": link,
    }


def _records_in_sinks(engine: JobEngine) -> int:
    return sum(task.records_in for task in engine.tasks if task.spec.kind.has_sink)


def _run_out(
    planned: PlannedRun, engine: JobEngine, checkpoint_details: Sequence[api.CheckpointDetailOut]
) -> SimulationRunOut:
    vertices, edges = graph_out(topology_of(planned.spec.graph), ())
    coordinator, config = engine.coordinator, config_of(planned.spec.config)
    completed = [c for c in checkpoint_details if c.status is CheckpointStatus.COMPLETED]
    durations = [c.end_to_end_duration_ms for c in completed if c.end_to_end_duration_ms is not None]
    return SimulationRunOut(
        protocol=planned.protocol,
        settings=settings.show(engine.config),
        status=engine.status.value,
        trace_hash=engine.trace_hash,
        virtual_time_s=engine.now_us / _US,
        completed_count=coordinator.completed_count,
        failed_count=coordinator.failed_count,
        in_progress_count=coordinator.in_progress_count,
        restart_count=engine.restart_count,
        committed_records=engine.ledger.committed_count,
        processed_records=None if engine.restart_count else _records_in_sinks(engine),
        duration_p50_ms=median(durations) if durations else None,
        duration_max_ms=max(durations, default=None),
        persisted_max_bytes=largest([c.persisted_bytes for c in completed]),
        timeout_ms=config.timeout_ms,
        interval_ms=config.interval_ms,
        vertices=vertices,
        edges=edges,
        checkpoints=[api.CheckpointOut.of(c) for c in sorted(checkpoint_details, key=lambda c: c.checkpoint_id)],
    )
