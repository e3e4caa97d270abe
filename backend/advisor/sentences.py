"""Risks, limits and conditions of advice, in words. Decides nothing but which of them apply."""

from __future__ import annotations

from backend.advisor.advice import Interval, Precondition, Setting
from backend.advisor.situation import Situation
from backend.analysis import sentences as say
from backend.domain.observation import Engine
from backend.domain.verdict import VerdictKind


def ms_span(value: Interval) -> str:
    """``240 ms (110 ms to 380 ms)``."""
    return f"{say.duration(value.value)} ({say.duration(value.low)} to {say.duration(value.high)})"


def bytes_span(value: Interval) -> str:
    """``3.3 MB (2.4 MB to 4.4 MB)``."""
    return f"{say.size(value.value)} ({say.size(value.low)} to {say.size(value.high)})"


def unaligned_preconditions(known: Situation) -> tuple[Precondition, ...]:
    """What unaligned checkpoints need (R-UC-10)."""
    config = known.evidence.config
    concurrent = config.max_concurrent if config is not None else None
    is_one = None if concurrent is None else concurrent == 1
    extra = "" if is_one is not False else f"; {concurrent} may run now: set max-concurrent-checkpoints to 1 first"
    mode = config.mode if config is not None else None
    return (
        Precondition("exactly-once checkpoints", None if mode is None else known.is_exactly_once),
        Precondition(f"one checkpoint at a time{extra}", is_one),
        Precondition("nobody reads the contents of checkpoints, and no change of the job graph is due (R-UC-8)", None),
    )


def unaligned_risks(known: Situation, persisted: Interval, restore: Interval | None) -> tuple[str, ...]:
    """What unaligned checkpoints cost (CM-7, GR-2, GR-4, SV-1, RC-9)."""
    config = known.evidence.config
    every_ms = config.interval_ms if config is not None else None
    hourly = f", up to {say.size(persisted.high * 3_600_000 / every_ms)} an hour" if every_ms else ""
    risks = [
        f"the store writes {bytes_span(persisted)} more for each checkpoint{hourly}",
        "savepoints stay aligned: under this back-pressure they take as long as checkpoints do now, or expire",
        "a checkpoint with in-flight data cannot be restored into a changed job graph, partitioner or record type: keep"
        " an aligned checkpoint or a savepoint for upgrades",
        "after a restore in-flight data is processed before sources send a watermark again: an operator whose output"
        " depends on the current watermark may emit differently",
        "transactional sinks commit when a checkpoint completes, which will be sooner and more often than now",
    ]
    if restore is not None:
        risks.insert(1, f"a restore reads that data back and processes it first: {ms_span(restore)} longer")
    return tuple(risks)


def will_not_cure(known: Situation) -> tuple[str, ...]:
    """What stays as it is whatever the mode is (R-UC-3, R-UC-4)."""
    verdict = known.diagnosis.verdict
    where = ""
    if verdict.vertex is not None:
        vertex = known.evidence.topology.vertex(verdict.vertex_id) if verdict.vertex_id is not None else None
        count = vertex.parallelism if vertex is not None else len(verdict.subtasks)
        where = say.where(say.vertex(verdict.vertex), verdict.subtasks, count)
    cause = {
        VerdictKind.CAPACITY: f"the lack of capacity at {where}: throughput, and how long records wait, stay",
        VerdictKind.SKEW: f"key skew: {where} gets an outsized share of the records, and stays the limit",
        VerdictKind.STRAGGLER: f"{where} takes longer for each record than its siblings, and stays the limit",
    }.get(verdict.kind, "whatever holds the queues up: throughput and the time records wait stay as they are")
    found = [cause, "savepoints, which are always aligned"]
    slow_sync = [r.sync_ms for r in known.recorded if r.sync_ms is not None]
    if slow_sync and max(slow_sync) >= 1:
        found.append(f"the sync phase, up to {say.duration(max(slow_sync))} here")
    return tuple(found)


def withdrawn_if(known: Situation, proposed: Setting) -> tuple[str, ...]:
    """What would make the advice wrong."""
    found = [
        "back-pressure falls below 50 % or checkpoints become healthy by themselves",
        "writing comes to take more than half of the duration: then the store is the bottleneck (R-UC-2)",
        "the vertex behind the queues gets the capacity it lacks",
    ]
    if proposed.aligned_timeout_ms:
        found.append(f"the barrier's way in healthy checkpoints comes near {say.duration(proposed.aligned_timeout_ms)}")
    if known.engine is Engine.FLINK:
        found.append("a broadcast or pointwise exchange carries the queue: unaligned barriers do not overtake there")
    return tuple(found)
