"""Judges a Spark query: whether its micro-batches keep up, and which part takes most of their time.

Spark has no barriers. The signs of ``micro_batches`` show whether batches keep up with the input. The phases of a
batch show what takes its time. A query is failing if its newest batch failed: the query has ended, and a restart
begins with the same batch. A query is failing too if its driver has stopped reporting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from backend.analysis.measures import samples
from backend.analysis.measures.evidence import JobEvidence
from backend.analysis.queries import micro_batches as batches
from backend.analysis.queries import runs
from backend.analysis.queries import verdict_ended as ended
from backend.analysis.queries.causes import ASYNC_CURE, found_causes, is_by_pauses_alone, is_late, leading
from backend.analysis.queries.facts import Found, facts_of, is_kafka
from backend.analysis.queries.micro_batches import BatchPart, BatchReport, Sign
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CONFIDENT_COUNT, HEALTH_MIN_COUNT
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import PressureSign
from backend.domain.verdict import Basis, Confidence, Diagnosis, Evidence, Health, SecondCause, Verdict, VerdictKind

PART_MIN_SHARE = 0.5
"""A part is the cause if it takes at least this share of the batches' time."""

_KINDS = {
    BatchPart.RUN: VerdictKind.CAPACITY,
    BatchPart.STATE_COMMIT: VerdictKind.STORE,
    BatchPart.LOG: VerdictKind.STORE,
    BatchPart.SOURCE: VerdictKind.LATE_INPUT,
}
_WORDS = {
    BatchPart.RUN: "running the query and writing to its sink",
    BatchPart.STATE_COMMIT: "committing the state stores",
    BatchPart.LOG: "writing the checkpoint log (the folders offsets and commits)",
    BatchPart.SOURCE: "asking the sources for new data",
    BatchPart.PLANNING: "planning",
}
_CULPRITS = {
    BatchPart.RUN: "it lacks capacity for its input",
    BatchPart.STATE_COMMIT: "its state store is slow",
    BatchPart.LOG: "the checkpoint store is slow",
    BatchPart.SOURCE: "its sources are slow",
}


_TOLD = (PressureSign.BACKLOG_GROWTH, PressureSign.ROWS_GROWTH)
_SPIRAL = "Each batch reads what came during the one before it, so that they get longer and longer"
_LIMIT = (
    "a limit of each batch (maxOffsetsPerTrigger, maxFilesPerTrigger), so that batches end and a restart repeats"
    " little; by itself it does not reduce the backlog"
)
_CURES = {
    BatchPart.RUN: (
        ("more cores for the query and as many partitions, or less work on each row",),
        ("a limit of the batches' rows: batches get shorter, and the backlog waits at the source",),
    ),
    BatchPart.LOG: (
        ("fewer and larger batches, and a faster store for the checkpoint folder",),
        ("more executors, because the driver writes the log",),
    ),
    BatchPart.SOURCE: (
        ("fewer files, partitions or commits for the source to list",),
        ("more executors, because the driver asks the sources",),
    ),
    BatchPart.STATE_COMMIT: (("a faster store for the checkpoint folder, or a changelog of the state",), ()),
    BatchPart.PLANNING: (
        ("fewer files and partitions in the tables that the query reads",),
        ("more executors, because the driver plans",),
    ),
}


_HEADLINES = {
    BatchPart.RUN: "The query lacks capacity for its input",
    BatchPart.STATE_COMMIT: "The state store is slow",
    BatchPart.LOG: "The checkpoint store is slow",
    BatchPart.SOURCE: "The sources are slow",
}


def diagnose(evidence: JobEvidence) -> Diagnosis:
    """Return the health of a job's micro-batches, and the verdict."""
    failed = _newest_failed(evidence.checkpoints)
    found = batches.report(evidence.checkpoints, evidence.config)
    repeated = runs.repeated_ends(evidence)
    if failed is not None:
        return Diagnosis(Health.FAILING, ended.failure(failed, evidence.exceptions, _rows(found), repeated))
    if repeated is not None:
        return Diagnosis(Health.RESTARTING, ended.restarting(repeated, _rows(found)))
    if not found.judged:
        return Diagnosis(Health.TOO_FEW, _nothing_yet(evidence))
    beside = runs.run_beside(evidence)
    if beside is not None:
        return Diagnosis(Health.INTERMITTENT, ended.beside(beside, _rows(found)))
    causes = found_causes(facts_of(evidence.checkpoints, found))
    # A run that reads all there is and then ends (AvailableNow, Once) never pauses.
    is_scheduled = is_by_pauses_alone(found) and runs.is_scheduled(evidence)
    if is_late(found, causes) and not is_scheduled:
        first = leading(found, causes)
        is_by_turns = first is not None and first.health is Health.INTERMITTENT
        health = Health.INTERMITTENT if is_by_turns else Health.SLOW
        return Diagnosis(health, _behind(found, "The query is behind", causes))
    health = Health.HEALTHY if len(found.judged) >= HEALTH_MIN_COUNT else Health.TOO_FEW
    if health is Health.HEALTHY and any(c.health is Health.INTERMITTENT for c in causes):
        health = Health.INTERMITTENT
    if found.is_open and not is_scheduled:
        return Diagnosis(
            health, _open(found, f"Micro-batches take {say.duration(found.duration_median_ms or 0)}", causes)
        )
    return Diagnosis(health, _well(found, _well_lead(found, health, has_all=samples.has_all(evidence)), causes))


def silent(heard_at: datetime) -> Diagnosis:
    """Return the diagnosis of a query whose driver has sent nothing since ``heard_at``: the query is failing.

    ``heard_at`` is a time on the driver's clock.
    """
    at = f"{heard_at:%Y-%m-%d %H:%M:%S} UTC"
    verdict = Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"The driver has sent nothing since {at}: it was killed, hangs, or cannot reach Barrierscope.",
        confidence=Confidence.LOW,
        evidence=(Evidence(f"a live driver's listener reports every 10 s; its last report came at {at}", "age"),),
        would_decide=("whether the driver's process runs, and the end of its log",),
        headline="The driver is silent",
        detail=f"It has sent nothing since {at}: it was killed, hangs, or cannot reach Barrierscope.",
    )
    return Diagnosis(Health.FAILING, verdict)


def checkpoint_verdict(checkpoint: Checkpoint, evidence: JobEvidence) -> Verdict:
    """Return the verdict on one micro-batch: which part took most of its time, and whether the query kept up then."""
    if checkpoint.header.status is CheckpointStatus.FAILED:
        found = batches.report(evidence.checkpoints, evidence.config)
        return ended.failure(checkpoint, evidence.exceptions, _rows(found))
    number, took = checkpoint.header.checkpoint_id, checkpoint.header.end_to_end_duration_ms
    if took is None:
        return _not_ended(checkpoint)
    lead = f"Batch {number} took {say.duration(took)}"
    upto = [c for c in evidence.checkpoints if c.header.checkpoint_id <= number]
    around = batches.report(upto, evidence.config)
    own = batches.report([checkpoint], evidence.config)
    # Combine the parts of this batch with the signs of the batches up to it, because a single batch shows no sign.
    found = BatchReport(own.judged, around.interval, around.signs, own.shares)
    facts = facts_of(upto, around)
    is_struck = facts.rhythm is not None and any(r.number == number for r in facts.rhythm.slow)
    causes = tuple(c for c in found_causes(facts) if is_struck or c.name != "compaction")
    if is_late(around, causes):
        return _behind(found, f"{lead}; the query was behind", causes)
    if around.is_open:
        return _open(found, lead, causes)
    return _well(found, lead, causes)


def count_of(evidence: JobEvidence) -> int:
    """Return how many micro-batches ``diagnose`` judges."""
    return len(batches.report(evidence.checkpoints, evidence.config).judged)


def _newest_failed(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    ended = [c for c in checkpoints if c.header.status.is_terminal]
    return ended[-1] if ended and ended[-1].header.status is CheckpointStatus.FAILED else None


def _nothing_yet(evidence: JobEvidence) -> Verdict:
    is_none = samples.none_completed(evidence)
    return _undecided("No micro-batch has ended yet" if is_none else "No micro-batch that has ended is known")


def _not_ended(checkpoint: Checkpoint) -> Verdict:
    number = checkpoint.header.checkpoint_id
    if checkpoint.header.status.is_terminal:
        return _undecided(f"The duration of batch {number} is not known")
    return _undecided(f"Batch {number} has not ended yet")


def _undecided(lead: str) -> Verdict:
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"{lead}; there is nothing to judge.",
        confidence=Confidence.LOW,
        would_decide=("a micro-batch that has ended",),
        headline=lead,
        detail="There is nothing to judge.",
    )


def _behind(found: BatchReport, lead: str, causes: Sequence[Found] = ()) -> Verdict:
    """Return the verdict on a query that is behind: what its batches show, or else the part that takes most of them."""
    is_alone = is_by_pauses_alone(found)
    real = [c for c in causes if not c.is_note]
    first = leading(found, causes)
    if first is not None:
        others = [c for c in real if c is not first]
        # If the only sign is that the query never pauses, it may keep up.
        return _of_cause(first, found, "" if is_alone else f"{lead}. ", others, causes)
    verdict = _by_part(found, lead, is_alone=is_alone)
    rows = (*verdict.evidence, *(row for c in causes for row in c.rows))
    return replace(verdict, evidence=rows, second=_second(real))


def _by_part(found: BatchReport, lead: str, *, is_alone: bool) -> Verdict:
    part, share = found.shares[0] if found.shares else (BatchPart.PLANNING, 0.0)
    is_ruled = share >= PART_MIN_SHARE
    most = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
    why = "; no part of a batch takes half of its time"
    headline, detail = lead, "No part of a batch takes half of its time."
    if is_ruled and part in _CULPRITS:
        why = f" because {_CULPRITS[part]}: {most}"
        headline, detail = _HEADLINES[part], f"{lead}: {most}."
    elif is_ruled:
        why = f"; {most}"
        detail = f"{most[:1].upper()}{most[1:]}."
    more = "".join(f". {_as_sentence(s)}" for s in found.raised if s.sign in _TOLD)
    confidence = Confidence.HIGH if len(found.judged) >= CONFIDENT_COUNT else Confidence.MEDIUM
    return Verdict(
        kind=_KINDS.get(part, VerdictKind.UNDECIDED) if is_ruled else VerdictKind.UNDECIDED,
        sentence=f"{lead}{why}{more}.",
        confidence=Confidence.MEDIUM if is_alone else confidence,
        evidence=(*_rows(found), *_cure_rows(found, part if is_ruled else None)),
        would_decide=_missing(found) if is_alone else (),
        headline=headline,
        detail=detail,
    )


def _as_sentence(sign: Sign) -> str:
    if sign.sign is PressureSign.ROWS_GROWTH:
        return _SPIRAL
    return f"{sign.statement[:1].upper()}{sign.statement[1:]}"


def _cure_rows(found: BatchReport, part: BatchPart | None) -> list[Evidence]:
    cures, no_cures = _CURES.get(part, ((), ())) if part is not None else ((), ())
    newest = found.judged[-1].batch if found.judged else None
    if part is BatchPart.LOG and newest is not None and newest.state is None and is_kafka(newest.sink):
        cures = (*cures, ASYNC_CURE)
    if any(s.sign is PressureSign.ROWS_GROWTH for s in found.raised):
        cures, no_cures = ((_LIMIT, *cures), ())
    return [
        *(Evidence(f"what cures it: {text}", "cure") for text in cures),
        *(Evidence(f"what does not help: {text}", "no cure") for text in no_cures),
    ]


def _of_cause(cause: Found, found: BatchReport, lead: str, others: Sequence[Found], causes: Sequence[Found]) -> Verdict:
    rest = [c for c in causes if c is not cause]
    return Verdict(
        kind=cause.kind,
        sentence=f"{lead}{cause.sentence}.",
        confidence=cause.confidence,
        evidence=(*cause.rows, *_rows(found), *(row for c in rest for row in (_said(c), *c.rows))),
        would_decide=cause.would_decide,
        headline=cause.headline,
        detail=f"{cause.sentence}.",
        second=_second(others),
    )


def _said(cause: Found) -> Evidence:
    return Evidence(cause.sentence, cause.name, Basis.RECONSTRUCTED)


def _second(causes: Sequence[Found]) -> SecondCause | None:
    return SecondCause(causes[0].kind, f"{causes[0].sentence}.") if causes else None


def _missing(found: BatchReport) -> tuple[str, ...]:
    # The only sign is that the query never pauses. This proves nothing, because a query without a trigger interval
    # never pauses, and because file sources report no backlog. The verdict therefore lists the readings that would
    # decide.
    interval = "the trigger's interval (trigger_interval_ms of the listener): without an interval, a query never pauses"
    backlog = "the backlog of the sources, which these do not report"
    return tuple(
        text
        for text, is_known in ((interval, found.interval is not None), (backlog, found.has_backlog))
        if not is_known
    )


def _open(found: BatchReport, lead: str, causes: Sequence[Found]) -> Verdict:
    """Return the verdict on a query that never pauses, if nothing shows whether it keeps up."""
    real = [c for c in causes if not c.is_note]
    said = f"{lead}: the query is busy all the time, and whether it keeps up with its input is not known"
    if real:
        named = _of_cause(real[0], found, f"{said}. ", real[1:], causes)
        return replace(named, would_decide=(*named.would_decide, *_missing(found)))
    notes = "".join(f" {c.sentence}." for c in causes if c.is_said)
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"{said}.{notes}",
        confidence=Confidence.LOW,
        evidence=(*_rows(found), *(row for c in causes for row in (_said(c), *c.rows))),
        would_decide=(*_missing(found), *(text for c in causes for text in c.would_decide)),
        headline="The query is busy all the time",
        detail=f"Whether it keeps up with its input is not known.{notes}",
    )


def _well(found: BatchReport, lead: str, causes: Sequence[Found] = ()) -> Verdict:
    real = [c for c in causes if not c.is_note]
    if real:
        keeps_up = f"{lead}. " if real[0].health is Health.HEALTHY else ""
        return _of_cause(real[0], found, keeps_up, real[1:], causes)
    is_busy = any(s.sign is PressureSign.UTILISATION for s in found.raised)
    many = len(found.judged)
    confidence = Confidence.HIGH if many >= CONFIDENT_COUNT and not is_busy else Confidence.MEDIUM
    said = "".join(f" {c.sentence}." for c in causes if c.is_said)
    return Verdict(
        kind=VerdictKind.NONE,
        sentence=f"{lead}: the query keeps up with its input.{said}",
        confidence=confidence if many >= HEALTH_MIN_COUNT else Confidence.LOW,
        evidence=(*_rows(found), *(row for c in causes for row in (_said(c), *c.rows))),
        would_decide=tuple(text for c in causes for text in c.would_decide),
        headline=lead,
        detail=f"The query keeps up with its input.{said}",
    )


def _well_lead(found: BatchReport, health: Health, *, has_all: bool) -> str:
    took, many = say.duration(found.duration_median_ms or 0), len(found.judged)
    if health is Health.TOO_FEW:
        return f"Only {many} micro-batch{'' if many == 1 else 'es'}{' so far' if has_all else ' known'}, at {took}"
    return f"Micro-batches are healthy at {took}"


def _rows(found: BatchReport) -> tuple[Evidence, ...]:
    """Return the rows in order: raised signs, the parts of a batch, its duration, other signs, state."""
    raised = [_sign_row(s) for s in found.signs if s.is_raised]
    others = [_sign_row(s) for s in found.signs if not s.is_raised]
    return (*raised, *_part_rows(found), *_duration_rows(found), *others, *_state_rows(found))


def _sign_row(sign: Sign) -> Evidence:
    unit = "count" if sign.sign is PressureSign.BACKLOG_GROWTH else "ratio"
    value = None if sign.value is None else say.rounded(sign.value)
    return Evidence(sign.statement, sign.sign.value, sign.basis, value, None if value is None else unit)


def _part_rows(found: BatchReport) -> list[Evidence]:
    rows = []
    for part, share in found.shares:
        is_mean = part in (BatchPart.STATE_COMMIT, BatchPart.RUN) and found.share(BatchPart.STATE_COMMIT) is not None
        basis = Basis.RECONSTRUCTED if is_mean else Basis.MEASURED
        text = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
        rows.append(Evidence(text, f"share of {part.value}", basis, say.rounded(share), "ratio"))
    return rows


def _duration_rows(found: BatchReport) -> list[Evidence]:
    took, many = found.duration_median_ms, len(found.judged)
    if took is None:
        return []
    number = found.judged[0].header.checkpoint_id
    text = f"duration of batch {number}" if many == 1 else f"median duration of {many} batches"
    rows = [Evidence(text, "batchDuration", value=say.rounded(took), unit="ms")]
    if found.interval is not None:
        rows.append(Evidence("trigger interval", "interval", found.interval.basis, found.interval.ms, "ms"))
    return rows


def _state_rows(found: BatchReport) -> list[Evidence]:
    last = found.judged[-1].batch if found.judged else None
    if last is None or last.state is None:
        return []
    rows = []
    row_count, snapshot_lag = last.state.row_count, last.state.snapshot_lag
    if row_count is not None:
        rows.append(Evidence(f"the state holds {row_count} rows", "state rows", value=row_count, unit="count"))
    if snapshot_lag is not None:
        text = f"a recovery would replay {snapshot_lag} batches since the newest snapshot of the state"
        rows.append(Evidence(text, "snapshot lag", Basis.RECONSTRUCTED, snapshot_lag, "count"))
    return rows
