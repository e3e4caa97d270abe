"""Simulates a curve over the cap on in-flight data (CAP-6): aligned checkpoints, caps in ascending order, unaligned.

The ends are simulated first. If the request names no caps, they are shares of the most in-flight data that a subtask
persists without a cap, so each of them but the last one binds. All runs have the same job, settings and seed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

import anyio.to_thread
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.contracts.cap_curves import CapCurveIn, CapCurveOut, CapPointOut, cap_curve_id_of
from backend.contracts.simulations import SimulationIn
from backend.domain.clock import Clock
from backend.domain.errors import FieldProblem, InvalidInputError, TooLargeError
from backend.runtime.engine.kernel import JobEngine
from backend.runtime.measure.measures import CheckpointState, MeasuredCheckpoint
from backend.services.simulations.catalog import CAP, LIMITS, Limits, PlannedRun, plan, record_steps_per_s
from backend.services.simulations.measured import checkpoint_of
from backend.services.simulations.queueing import SimulationQueue
from backend.services.simulations.simulating import Progress, Result, bounded_slices
from backend.store.simulations.simulations import SimulationRecord

KIND: Final = "cap-curve"
ALIGNED, CAPPED, UNALIGNED = "aligned", "capped", "unaligned"
SHARES: Final = (0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0)
"""The caps that are chosen for a job, as shares of the most that one subtask persists without a cap."""


def plan_curve(request: CapCurveIn, cap_bytes: int | None, protocol: str, limits: Limits = LIMITS) -> PlannedRun:
    """Check a request for one of its runs, and return the run.

    Raises:
        InvalidInputError: a word or a setting is unknown, or a value is out of bounds.
        PlanError: the settings contradict each other.
        TooLargeError: the run would exceed a limit.
    """
    if CAP in request.settings:
        raise InvalidInputError(
            [FieldProblem(f"settings.{CAP}", "is what the curve changes", "leave it out, or set caps_bytes")],
            what="curve",
        )
    # The request is that of the protocol with a cap, because its settings are those that the curve may have.
    asked = SimulationIn(
        shape=request.shape,
        protocol=CAPPED,
        second_protocol=None if protocol == CAPPED else protocol,
        settings=request.settings | {CAP: f"{cap_bytes or 0} b"},
        parallelism=request.parallelism,
        duration_s=request.duration_s,
        seed=request.seed,
    )
    # ``check_curve`` bounds the records of all runs together.
    return plan(asked, replace(limits, record_steps_max=sys.maxsize))[-1]


def check_curve(request: CapCurveIn, limits: Limits = LIMITS) -> None:
    """Raise the errors of ``plan_curve``, and ``TooLargeError`` if all runs together would be too large."""
    planned = plan_curve(request, 0, ALIGNED, limits)
    count = 2 + len(SHARES if request.caps_bytes is None else set(request.caps_bytes))
    steps = record_steps_per_s(planned.spec.graph) * request.duration_s * count
    if steps > limits.curve_record_steps_max:
        fitting_s = int(request.duration_s * limits.curve_record_steps_max / steps)
        raise TooLargeError(
            "curve",
            f"about {steps:,.0f} records to process in {count} runs are more than {limits.curve_record_steps_max:,}",
            field="duration_s",
            fix=f"run at most {fitting_s} s, or with less parallelism or fewer caps",
        )


def run(
    document: Mapping[str, Any],
    progress: Progress,
    limits: Limits = LIMITS,
    cpu_s: Callable[[], float] = time.thread_time,
) -> Result:
    """Simulate the curve of a document of the queue. ``cpu_s`` returns the CPU time of the calling thread.

    Raises:
        SimulationStoppedError: ``progress.is_stopped`` was set.
        TooLargeError: the simulation used more CPU time than a limit allows.
        InvalidInputError: the request is invalid.
    """
    request = CapCurveIn.model_validate(document["request"])
    check_curve(request, limits)
    began_s, done = cpu_s(), 0
    count = 2 + len(SHARES if request.caps_bytes is None else set(request.caps_bytes))

    def point(protocol: str, cap_bytes: int | None = None) -> CapPointOut:
        nonlocal done
        planned = plan_curve(request, cap_bytes, protocol, limits)
        engine = JobEngine(planned.spec, is_size_only=True)
        ended: list[MeasuredCheckpoint] = []
        engine.coordinator.on_terminal = ended.append

        for ratio in bounded_slices(engine, request.duration_s, progress, lambda: cpu_s() - began_s, limits):
            progress.ratio = min(1.0, (done + ratio) / count)
        done += 1
        return point_of(protocol, cap_bytes, ended)

    aligned, unaligned = point(ALIGNED), point(UNALIGNED)
    caps = caps_of(unaligned) if request.caps_bytes is None else sorted(set(request.caps_bytes))
    return Result([aligned, *(point(CAPPED, cap) for cap in caps), unaligned], [])


def caps_of(unaligned: CapPointOut) -> list[int]:
    """Return the caps for a job whose unaligned checkpoints persist what this point says. Without data, only 0."""
    most = unaligned.subtask_persisted_max_bytes or 0
    return sorted({round(share * most) for share in SHARES})


def point_of(protocol: str, cap_bytes: int | None, ended: Iterable[MeasuredCheckpoint]) -> CapPointOut:
    """Return what a run measured. Durations have whole milliseconds, as in the results of the Lab."""
    records = list(ended)
    completed = [r for r in records if r.state is CheckpointState.COMPLETED]
    durations = [d for r in completed if (d := checkpoint_of(r).header.end_to_end_duration_ms) is not None]
    persisted = [r.persisted_bytes for r in completed]
    return CapPointOut(
        protocol=protocol,
        cap_bytes=cap_bytes,
        completed_count=len(completed),
        failed_count=sum(r.state is CheckpointState.FAILED for r in records),
        duration_p50_ms=median(durations) if durations else None,
        duration_max_ms=max(durations, default=None),
        persisted_p50_bytes=median(persisted) if persisted else None,
        persisted_max_bytes=max(persisted, default=None),
        subtask_persisted_max_bytes=max(
            (ack.measured.persisted_bytes for r in completed for ack in r.acks.values()), default=None
        ),
    )


class CapCurveService:
    """Queues, shows and cancels curves."""

    def __init__(self, engine: AsyncEngine, clock: Clock, limits: Limits = LIMITS) -> None:
        self._clock = clock
        self._limits = limits
        self._queue = SimulationQueue(engine, clock, KIND, limits)

    async def submit(self, request: CapCurveIn, *, caller: str) -> CapCurveOut:
        """Queue a curve. If the same request is queued, running or completed, return that curve.

        Raises:
            InvalidInputError: a word or a setting is unknown, or a value is out of bounds.
            TooLargeError: the curve would exceed a limit.
            RateLimitedError: the queue is full, or this caller has too many simulations in it.
        """
        await anyio.to_thread.run_sync(check_curve, request, self._limits)
        document = {"kind": KIND, "request": request.model_dump(mode="json")}
        return self._out(*await self._queue.put(cap_curve_id_of(request), document, caller=caller))

    async def get(self, curve_id: str) -> CapCurveOut:
        """Return a curve with its state and, if it is completed, its points.

        Raises:
            UnknownEntityError: there is no such curve, or it has expired.
        """
        return self._out(*await self._queue.get(curve_id))

    async def cancel(self, curve_id: str) -> None:
        """Cancel a curve. A running one stops within seconds; nothing happens to an ended one.

        Raises:
            UnknownEntityError: there is no such curve, or it has expired.
        """
        await self._queue.cancel(curve_id)

    def _out(self, record: SimulationRecord, position: int | None) -> CapCurveOut:
        return CapCurveOut.of(
            record,
            request=record.request["request"],
            points=record.runs or [],
            queue_position=position,
            as_of=self._clock.now(),
        )
