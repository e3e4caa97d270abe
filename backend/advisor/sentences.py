"""Writes the risks, limits and conditions of advice in words, and chooses the ones that apply to the job."""

from __future__ import annotations

from backend.advisor.advice import Interval, Precondition, Setting
from backend.advisor.situation import Situation
from backend.analysis.words import sentences as say
from backend.domain.verdict import VerdictKind


def ms_span(value: Interval) -> str:
    """Return a duration with its interval, such as ``240 ms (110 ms to 380 ms)``."""
    return f"{say.duration(value.value)} ({say.duration(value.low)} to {say.duration(value.high)})"


def bytes_span(value: Interval) -> str:
    """Return a size with its interval, such as ``3.3 MB (2.4 MB to 4.4 MB)``."""
    return f"{say.size(value.value)} ({say.size(value.low)} to {say.size(value.high)})"


def unaligned_preconditions(situation: Situation) -> tuple[Precondition, ...]:
    """Return the conditions that must hold before unaligned checkpoints are enabled (R-UC-10)."""
    config = situation.evidence.config
    concurrent = config.max_concurrent if config is not None else None
    is_one = None if concurrent is None else concurrent == 1
    extra = "" if is_one is not False else f"; now {concurrent} may run: set max-concurrent-checkpoints to 1 first"
    if is_one is False and situation.engine.is_flink_release:
        # Flink starts no job with both settings, so that the change has both.
        is_one, extra = None, f"; now {concurrent} may run, and the change allows one"
    mode = config.mode if config is not None else None
    return (
        Precondition("exactly-once checkpoints", None if mode is None else situation.is_exactly_once),
        Precondition(f"one checkpoint at a time{extra}", is_one),
        Precondition("no tool reads the checkpoints' files, and no change of the job graph is planned", None),
    )


def unaligned_risks(
    situation: Situation, persisted: Interval, restore: Interval | None, *, every_ms: int | None = None
) -> tuple[str, ...]:
    """Return the costs and risks of unaligned checkpoints (CM-7, GR-2, GR-4, SV-1, RC-9).

    ``every_ms`` is the proposed interval; None if it stays as it is.
    """
    config = situation.evidence.config
    every_ms = every_ms or (config.interval_ms if config is not None else None)
    hourly = f", up to {say.size(persisted.high * 3_600_000 / every_ms)} an hour" if every_ms else ""
    risks = [
        f"the store writes {bytes_span(persisted)} more for each checkpoint{hourly}",
        "savepoints stay aligned: under this back-pressure they take as long as checkpoints take now, or expire",
        "a checkpoint with in-flight data cannot be restored if the job graph, a partitioner or a record type changes:"
        " keep an aligned checkpoint or a savepoint for upgrades",
        "after a restore, in-flight data is processed before sources send a watermark: the output of an operator that"
        " depends on the current watermark may differ",
        "transactional sinks commit when a checkpoint completes, so they will commit sooner and more often",
    ]
    if restore is not None:
        risks.insert(1, f"a restore takes {ms_span(restore)} longer: it first reads and processes the in-flight data")
    return tuple(risks)


def cause_words(situation: Situation) -> str:
    """Return the cause that the verdict names, as a problem that a change of settings leaves."""
    verdict = situation.diagnosis.verdict
    where = ""
    if verdict.vertex is not None:
        vertex = situation.evidence.topology.vertex(verdict.vertex_id) if verdict.vertex_id is not None else None
        count = vertex.parallelism if vertex is not None else len(verdict.subtasks)
        where = say.where(say.vertex(verdict.vertex), verdict.subtasks, count)
    is_one = len(verdict.subtasks) < 2
    gets, takes, limits = ("gets", "takes", "limits") if is_one else ("get", "take", "limit")
    its = "its" if is_one else "their"
    return {
        VerdictKind.CAPACITY: f"the lack of capacity of {where}: throughput and waiting times stay the same",
        VerdictKind.SKEW: f"key skew: {where} {gets} more records than {its} siblings and still {limits} the job",
        VerdictKind.SLOW_HOST: f"the slow host: {where} {takes} longer for each record and still {limits} the job",
        VerdictKind.STRAGGLER: f"the straggler: {where} {takes} longer for each record and still {limits} the job",
    }.get(verdict.kind, "the cause of the queues: throughput and waiting times stay the same")


def will_not_cure(situation: Situation) -> tuple[str, ...]:
    """Return the problems that remain in every checkpoint mode (R-UC-3, R-UC-4)."""
    sentences = [cause_words(situation), "slow savepoints: they are always aligned"]
    slow_sync = [r.sync_ms for r in situation.recorded if r.sync_ms is not None]
    if slow_sync and max(slow_sync) >= 1:
        sentences.append(f"the sync part of snapshots, here up to {say.duration(max(slow_sync))}")
    return tuple(sentences)


def withdrawn_if(situation: Situation, proposed: Setting) -> tuple[str, ...]:
    """Return the changes after which the advice is no longer valid."""
    conditions = [
        "back-pressure falls below 50 %, or checkpoints become healthy without the change",
        "writing takes more than half of the duration: then the store is the bottleneck",
        "the vertex behind the queues gets more capacity",
    ]
    if proposed.aligned_timeout_ms:
        conditions.append(f"barriers of healthy checkpoints take nearly {say.duration(proposed.aligned_timeout_ms)}")
    if not situation.engine.overtakes_everywhere:
        conditions.append("the queue is at a broadcast or pointwise exchange: unaligned barriers do not overtake there")
    return tuple(conditions)
