"""Advises on the parallelism of the vertex that limits the job (rules R-PAR, R-REC-2, R-UC-3).

Settings of checkpoints do not cure a lack of capacity. If all subtasks of a vertex are busy, it gets more subtasks. If
only some are, more subtasks would not help (R-PAR-2). An overloaded job is rescaled from an unaligned checkpoint: a
savepoint is aligned and waits behind the queues (R-REC-2).
"""

from __future__ import annotations

from math import ceil

from backend.advisor import rescaling
from backend.advisor.advice import EvidenceRow, Expected, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.predictor import method_of
from backend.advisor.proposing import Proposal, expect, proposal
from backend.advisor.replay import Recordings
from backend.advisor.rules.lints import rescaling_error
from backend.advisor.sentences import ms_span
from backend.advisor.situation import RecordRate, Situation
from backend.advisor.thresholds import BUSY_TARGET_RATIO, SCALE_STEP_MAX
from backend.analysis.measures.input_rates import input_per_s
from backend.analysis.numbers.arrays import mean_of
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Mode, Topic
from backend.domain.topology import Vertex
from backend.domain.verdict import Basis, VerdictKind

_MOST_RATIO = 0.5

_NOT_CURED = {
    VerdictKind.SKEW: (
        "R-PAR-2",
        "more records than at the siblings, which more subtasks do not change. Spread the keys (salting), or aggregate"
        " before the exchange",
    ),
    VerdictKind.STRAGGLER: ("R-PAR-2", "each record takes longer than at the siblings: look at the machine"),
    VerdictKind.SLOW_HOST: ("R-PAR-2", "the machine is slow: move the subtasks or replace the machine"),
    VerdictKind.CALLBACK: (
        "R-UC-6",
        "a long callback holds up everything, and more subtasks shorten it only if they share its work",
    ),
    VerdictKind.COMMIT: ("R-UC-6", "the sink waits for an outside commit, and not for processing"),
}


def advise_parallelism(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend more subtasks for the vertex that limits the job, or return the reason for none."""
    verdict = situation.diagnosis.verdict
    where = verdict.vertex or "the job"
    if verdict.kind in _NOT_CURED:
        rule, why = _NOT_CURED[verdict.kind]
        who = f" {say.subtasks(verdict.subtasks)}" if verdict.subtasks else ""
        return NoAdvice(Topic.PARALLELISM, rule, f"{say.vertex(where)}{who}: {why}", verdict.vertex, verdict.subtasks)
    vertex = situation.evidence.topology.vertex(verdict.vertex_id) if verdict.vertex_id is not None else None
    if verdict.kind is not VerdictKind.CAPACITY or vertex is None:
        text = "no vertex is busy all the time and holds the ones before it back"
        if situation.held is None:
            text = "whether a vertex is busy all the time and holds the ones before it back is not known"
        return NoAdvice(Topic.PARALLELISM, "R-PAR-1", text)
    load = situation.case.loads.get(vertex.id)
    busy = None if load is None else mean_of(load.busy)
    rate = situation.records_per_s.get(vertex.id)
    if busy is None:
        text = f"{say.vertex(where)} lacks capacity, but how busy its subtasks are is not known"
        return NoAdvice(Topic.PARALLELISM, "R-PAR-1", text, verdict.vertex, verdict.subtasks)
    return _more(situation, vertex, busy, rate)


def _more(situation: Situation, vertex: Vertex, busy: float, rate: RecordRate | None) -> Recommendation | NoAdvice:
    held = _source_held(situation)
    # Sources that are held back for a share b of the time would emit at most 1 / (1 - b) times as much.
    load_max = SCALE_STEP_MAX if held is None or held >= 1 - 1 / SCALE_STEP_MAX else 1 / (1 - held)
    wanted = min(
        ceil(vertex.parallelism * busy * load_max / BUSY_TARGET_RATIO), ceil(vertex.parallelism * SCALE_STEP_MAX)
    )
    if vertex.max_parallelism is not None:
        wanted = min(wanted, vertex.max_parallelism)
    name = say.vertex(vertex.name)
    if wanted <= vertex.parallelism:
        text = f"{name} lacks capacity, and already has as many subtasks as its max parallelism allows"
        return NoAdvice(Topic.PARALLELISM, "R-PAR-1", text, vertex.name)
    proposed = Setting(parallelism=wanted, vertex_id=vertex.id)
    expected, unpredicted = _effect(situation, proposed, rate, wanted / vertex.parallelism, load_max)
    sql, settings = (
        rescaling.is_sql(v.name for v in situation.evidence.topology.vertices),
        situation.evidence.cluster_settings,
    )
    made = Proposal(
        topic=Topic.PARALLELISM,
        rules=("R-PAR-1", "R-UC-3"),
        direction="raise",
        headline=f"Run {name} with {wanted} subtasks instead of {vertex.parallelism}",
        reason=(
            f"All subtasks of {name} are busy ({say.percent(busy)}) and hold back the vertices before it. With"
            f" {wanted} subtasks it has room to catch up after a failure."
        ),
        current=Setting(parallelism=vertex.parallelism, vertex_id=vertex.id),
        proposed=proposed,
        evidence=_rows(situation, vertex, busy, rate, held),
        expected=expected,
        unpredicted=unpredicted,
        confidence=situation.diagnosis.verdict.confidence,
        confidence_reason="as of the verdict; the load behind the back-pressure is estimated from the sources",
        preconditions=(
            Precondition(f"{wanted - vertex.parallelism} more slots are free", None),
            Precondition("the sources' partitions and the keys suffice for this number of subtasks", None),
            *rescaling.conditions_of(situation.engine),
            *_way_of_rescaling(situation),
        ),
        risks=(
            "the change restarts the job, and its state is distributed again",
            "the vertex that is next to its limit may hold the job back at once",
        ),
        will_not_cure=("keys that carry much more than the others",),
        withdrawn_if=("the vertex is busy for less than three quarters of the time",),
        changes=rescaling.changes_of(situation.engine, vertex, wanted, sql=sql),
        steps=rescaling.steps_of(
            situation.engine,
            vertex,
            wanted,
            sql=sql,
            adaptive=rescaling.is_adaptive(dict(settings) if settings is not None else None),
        ),
    )
    return proposal(situation.engine, made, situation.ids)


def _way_of_rescaling(situation: Situation) -> tuple[Precondition, ...]:
    """Return from what the overloaded job is rescaled (R-REC-2); nothing if a savepoint is quick or not known."""
    if situation.mode is None or situation.protocol is not None or not situation.engine.has_unaligned_checkpoints:
        return ()
    took, is_late = _savepoint(situation)
    if took is None:
        return ()
    error = rescaling_error(situation)
    if error is not None:
        first = ": lower the load first" if is_late else ""
        text = f"the job restarts from a savepoint, because of {error.code}; under this load it {took}{first}"
    elif situation.mode is not Mode.ALIGNED:
        text = f"the job restarts from its newest checkpoint: a savepoint is aligned and {took}"
    elif is_late:
        text = f"unaligned checkpoints are enabled before, and the job restarts from one: a savepoint {took}"
    else:
        return ()
    return (Precondition(text, None),)


def _savepoint(situation: Situation) -> tuple[str | None, bool]:
    """Return how long a savepoint would take under this load, in words, and whether it would expire.

    A savepoint is aligned, so it takes as long as aligned checkpoints do, or as their replay (CM-3). The words are None
    if that is not known.
    """
    if situation.mode is Mode.ALIGNED:
        if situation.duration_ms is None:
            return None, False
        took = say.duration(situation.duration_ms)
        return (
            (f"would expire after {took} as checkpoints do", True)
            if situation.is_cut_off
            else (f"would take {took}", False)
        )
    natural = Recordings(situation).replay(None)
    if natural is None:
        return None, False
    if natural.expired_ratio is not None and natural.expired_ratio.value > _MOST_RATIO:
        return "would expire", True
    return f"would take {ms_span(natural.duration_ms)}", False


def _effect(
    situation: Situation, proposed: Setting, rate: RecordRate | None, gain: float, load_max: float
) -> tuple[tuple[Expected, ...], tuple[str, ...]]:
    """Return what more subtasks change, and what is not predicted.

    If the what-if has an answer, the throughput is that of all sources. Otherwise it is that of the vertex.
    """
    answer = situation.predictor.of(proposed)
    if answer is not None and answer.records_per_s is not None and answer.duration_ms is not None:
        method = method_of(answer.tier)
        return (
            expect(Metric.THROUGHPUT, input_per_s(situation.evidence), answer.records_per_s, method),
            expect(Metric.DURATION, situation.duration_ms, answer.duration_ms, method),
        ), ()
    unpredicted = ("no prediction of durations: queues behind the vertex depend on what limits the job next",)
    if rate is None:
        return (), (*unpredicted, "no prediction of the throughput: how many records the vertex reads is not known")
    return (_throughput(rate.value, gain, load_max),), unpredicted


def _throughput(rate: float, gain: float, load_max: float) -> Expected:
    after = Interval(rate * min(gain, max(load_max, 1.0)), rate, rate * gain)
    method = (
        "the vertex's records in a second, at most in proportion to its subtasks, and no more than the sources would"
        " emit if nothing held them back; the interval begins at no effect"
    )
    return expect(Metric.THROUGHPUT, rate, after, method)


def _source_held(situation: Situation) -> float | None:
    """Return the share of the time for which the sources are held back; None if it is not known."""
    topology = situation.evidence.topology
    loads = [
        situation.case.loads[v.id]
        for v in topology.vertices
        if v.id in situation.case.loads and not topology.upstream(v.id)
    ]
    shares = [s for load in loads if (s := mean_of(load.backpressured)) is not None]
    return max(shares, default=None)


def _rows(
    situation: Situation, vertex: Vertex, busy: float, rate: RecordRate | None, held: float | None
) -> tuple[EvidenceRow, ...]:
    rows = [
        EvidenceRow(
            "share of the time for which its subtasks are busy, mean",
            "busyTime",
            Basis.MEASURED,
            busy,
            "ratio",
            vertex=vertex.name,
            since=situation.since,
            until=situation.until,
        ),
    ]
    if rate is not None:
        rows.append(
            EvidenceRow(
                "records that it reads",
                "numRecordsInPerSecond" if rate.is_measured else "numRecordsIn",
                rate.basis,
                rate.value,
                "records/s",
                vertex=vertex.name,
                since=situation.since,
                until=situation.until,
            )
        )
    if held is not None:
        text = "share of the time for which the sources are held back"
        rows.append(
            EvidenceRow(
                text, "backpressureRatio", Basis.MEASURED, held, "ratio", since=situation.since, until=situation.until
            )
        )
    return tuple(rows)
