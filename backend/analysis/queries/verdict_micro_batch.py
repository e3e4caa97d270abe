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
from backend.analysis.queries.folder_evidence import with_folder
from backend.analysis.queries.micro_batches import BatchPart, BatchReport, Sign
from backend.analysis.queries.series import Row
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import CONFIDENT_COUNT, HEALTH_MIN_COUNT
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.micro_batch import PressureSign
from backend.domain.text import capitalised
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
    return with_folder(_diagnosis(evidence), evidence)


def _diagnosis(evidence: JobEvidence) -> Diagnosis:
    failed = _newest_failed(evidence.checkpoints)
    report = batches.report(evidence.checkpoints, evidence.config)
    repeated = runs.repeated_ends(evidence)
    if failed is not None:
        return Diagnosis(Health.FAILING, ended.failure(failed, evidence.exceptions, _rows(report), repeated))
    if repeated is not None:
        return Diagnosis(Health.RESTARTING, ended.restarting(repeated, _rows(report)))
    if not report.judged:
        return Diagnosis(Health.TOO_FEW, _nothing_yet(evidence))
    beside = runs.run_beside(evidence)
    if beside is not None:
        return Diagnosis(Health.INTERMITTENT, ended.beside(beside, _rows(report)))
    causes = found_causes(facts_of(evidence.checkpoints, report))
    # A run that reads all there is and then ends (AvailableNow, Once) never pauses.
    is_scheduled = is_by_pauses_alone(report) and runs.is_scheduled(evidence)
    if is_late(report, causes) and not is_scheduled:
        first = leading(report, causes)
        is_by_turns = first is not None and first.health is Health.INTERMITTENT
        health = Health.INTERMITTENT if is_by_turns else Health.SLOW
        return Diagnosis(health, _behind(report, "The query is behind", causes))
    health = Health.HEALTHY if len(report.judged) >= HEALTH_MIN_COUNT else Health.TOO_FEW
    if health is Health.HEALTHY and any(c.health is Health.INTERMITTENT for c in causes):
        health = Health.INTERMITTENT
    if report.is_open and not is_scheduled:
        return Diagnosis(
            health, _open(report, f"Micro-batches take {say.duration(report.duration_median_ms or 0)}", causes)
        )
    return Diagnosis(health, _well(report, _well_lead(report, health, has_all=samples.has_all(evidence)), causes))


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
    if _is_stopped(checkpoint):
        stopped = checkpoint.header.checkpoint_id
        return _undecided(f"The query stopped while batch {stopped} ran, and its next start repeats the batch")
    if checkpoint.header.status is CheckpointStatus.FAILED:
        report = batches.report(evidence.checkpoints, evidence.config)
        return ended.failure(checkpoint, evidence.exceptions, _rows(report))
    number, took = checkpoint.header.checkpoint_id, checkpoint.header.end_to_end_duration_ms
    if took is None:
        return _not_ended(checkpoint)
    lead = f"Batch {number} took {say.duration(took)}"
    upto = [c for c in evidence.checkpoints if c.header.checkpoint_id <= number]
    around = batches.report(upto, evidence.config)
    own = batches.report([checkpoint], evidence.config)
    # Combine the parts of this batch with the signs of the batches up to it, because a single batch shows no sign.
    report = BatchReport(own.judged, around.interval, around.signs, own.shares)
    facts = facts_of(upto, around)
    if checkpoint.batch is not None and checkpoint.batch.work is not None:
        # What the jobs of this batch did is known, so those of others do not matter.
        facts = replace(facts, inside=(Row(number, float(took), checkpoint.batch, checkpoint),))
    is_struck = facts.rhythm is not None and any(r.number == number for r in facts.rhythm.slow)
    causes = tuple(c for c in found_causes(facts) if is_struck or c.name != "compaction")
    if is_late(around, causes):
        return _behind(report, f"{lead}; the query was behind", causes)
    if around.is_open:
        return _open(report, lead, causes)
    return _well(report, lead, causes)


def count_of(evidence: JobEvidence) -> int:
    """Return how many micro-batches ``diagnose`` judges."""
    return len(batches.report(evidence.checkpoints, evidence.config).judged)


def _newest_failed(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    ended = [c for c in checkpoints if c.header.status.is_terminal and not _is_stopped(c)]
    return ended[-1] if ended and ended[-1].header.status is CheckpointStatus.FAILED else None


def _is_stopped(checkpoint: Checkpoint) -> bool:
    """Return whether the batch was open when its query stopped, which is no failure."""
    return checkpoint.header.failure_reason is FailureReason.COORDINATOR_SHUTDOWN


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


def _behind(report: BatchReport, lead: str, causes: Sequence[Found] = ()) -> Verdict:
    """Return the verdict on a query that is behind: what its batches show, or else the part that takes most of them."""
    is_alone = is_by_pauses_alone(report)
    real = [c for c in causes if not c.is_note]
    first = leading(report, causes)
    if first is not None:
        others = [c for c in real if c is not first]
        # If the only sign is that the query never pauses, it may keep up.
        return _of_cause(first, report, "" if is_alone else f"{lead}. ", others, causes)
    verdict = _by_part(report, lead, is_alone=is_alone)
    rows = (*verdict.evidence, *(row for c in causes for row in c.rows))
    return replace(verdict, evidence=rows, second=_second(real))


def _by_part(report: BatchReport, lead: str, *, is_alone: bool) -> Verdict:
    part, share = report.shares[0] if report.shares else (BatchPart.PLANNING, 0.0)
    is_ruled = share >= PART_MIN_SHARE
    most = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
    why = "; no part of a batch takes half of its time"
    headline, detail = lead, "No part of a batch takes half of its time."
    if is_ruled and part in _CULPRITS:
        why = f" because {_CULPRITS[part]}: {most}"
        headline, detail = _HEADLINES[part], f"{lead}: {most}."
    elif is_ruled:
        why = f"; {most}"
        detail = f"{capitalised(most)}."
    more = "".join(f". {_as_sentence(s)}" for s in report.raised if s.sign in _TOLD)
    confidence = Confidence.HIGH if len(report.judged) >= CONFIDENT_COUNT else Confidence.MEDIUM
    return Verdict(
        kind=_KINDS.get(part, VerdictKind.UNDECIDED) if is_ruled else VerdictKind.UNDECIDED,
        sentence=f"{lead}{why}{more}.",
        confidence=Confidence.MEDIUM if is_alone else confidence,
        evidence=(*_rows(report), *_cure_rows(report, part if is_ruled else None)),
        would_decide=_missing(report) if is_alone else (),
        headline=headline,
        detail=detail,
    )


def _as_sentence(sign: Sign) -> str:
    if sign.sign is PressureSign.ROWS_GROWTH:
        return _SPIRAL
    return f"{capitalised(sign.statement)}"


def _cure_rows(report: BatchReport, part: BatchPart | None) -> list[Evidence]:
    cures, no_cures = _CURES.get(part, ((), ())) if part is not None else ((), ())
    newest = report.judged[-1].batch if report.judged else None
    if part is BatchPart.LOG and newest is not None and newest.state is None and is_kafka(newest.sink):
        cures = (*cures, ASYNC_CURE)
    if any(s.sign is PressureSign.ROWS_GROWTH for s in report.raised):
        cures, no_cures = ((_LIMIT, *cures), ())
    return [
        *(Evidence(f"what cures it: {text}", "cure") for text in cures),
        *(Evidence(f"what does not help: {text}", "no cure") for text in no_cures),
    ]


def _of_cause(
    cause: Found, report: BatchReport, lead: str, others: Sequence[Found], causes: Sequence[Found]
) -> Verdict:
    rest = [c for c in causes if c is not cause]
    return Verdict(
        kind=cause.kind,
        sentence=f"{lead}{cause.sentence}.",
        confidence=cause.confidence,
        evidence=(*cause.rows, *_rows(report), *(row for c in rest for row in (_said(c), *c.rows))),
        would_decide=cause.would_decide,
        headline=cause.headline,
        detail=f"{cause.sentence}.",
        second=_second(others),
    )


def _said(cause: Found) -> Evidence:
    return Evidence(cause.sentence, cause.name, Basis.RECONSTRUCTED)


def _second(causes: Sequence[Found]) -> SecondCause | None:
    return SecondCause(causes[0].kind, f"{causes[0].sentence}.") if causes else None


def _missing(report: BatchReport) -> tuple[str, ...]:
    # The only sign is that the query never pauses. This proves nothing, because a query without a trigger interval
    # never pauses, and because file sources report no backlog. The verdict therefore lists the readings that would
    # decide.
    interval = "the trigger's interval (trigger_interval_ms of the listener): without an interval, a query never pauses"
    backlog = "the backlog of the sources, which these do not report"
    return tuple(
        text
        for text, is_known in ((interval, report.interval is not None), (backlog, report.has_backlog))
        if not is_known
    )


def _open(report: BatchReport, lead: str, causes: Sequence[Found]) -> Verdict:
    """Return the verdict on a query that never pauses, if nothing shows whether it keeps up."""
    real = [c for c in causes if not c.is_note]
    said = f"{lead}: the query is busy all the time, and whether it keeps up with its input is not known"
    if real:
        named = _of_cause(real[0], report, f"{said}. ", real[1:], causes)
        return replace(named, would_decide=(*named.would_decide, *_missing(report)))
    notes = "".join(f" {c.sentence}." for c in causes if c.is_said)
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"{said}.{notes}",
        confidence=Confidence.LOW,
        evidence=(*_rows(report), *(row for c in causes for row in (_said(c), *c.rows))),
        would_decide=(*_missing(report), *(text for c in causes for text in c.would_decide)),
        headline="The query is busy all the time",
        detail=f"Whether it keeps up with its input is not known.{notes}",
    )


def _well(report: BatchReport, lead: str, causes: Sequence[Found] = ()) -> Verdict:
    real = [c for c in causes if not c.is_note]
    if real:
        keeps_up = f"{lead}. " if real[0].health is Health.HEALTHY else ""
        return _of_cause(real[0], report, keeps_up, real[1:], causes)
    is_busy = any(s.sign is PressureSign.UTILISATION for s in report.raised)
    many = len(report.judged)
    confidence = Confidence.HIGH if many >= CONFIDENT_COUNT and not is_busy else Confidence.MEDIUM
    said = "".join(f" {c.sentence}." for c in causes if c.is_said)
    return Verdict(
        kind=VerdictKind.NONE,
        sentence=f"{lead}: the query keeps up with its input.{said}",
        confidence=confidence if many >= HEALTH_MIN_COUNT else Confidence.LOW,
        evidence=(*_rows(report), *(row for c in causes for row in (_said(c), *c.rows))),
        would_decide=tuple(text for c in causes for text in c.would_decide),
        headline=lead,
        detail=f"The query keeps up with its input.{said}",
    )


def _well_lead(report: BatchReport, health: Health, *, has_all: bool) -> str:
    took, many = say.duration(report.duration_median_ms or 0), len(report.judged)
    if health is Health.TOO_FEW:
        return f"Only {many} micro-batch{'' if many == 1 else 'es'}{' so far' if has_all else ' known'}, at {took}"
    return f"Micro-batches are healthy at {took}"


def _rows(report: BatchReport) -> tuple[Evidence, ...]:
    """Return the rows in order: raised signs, the parts of a batch, its duration, other signs, state."""
    raised = [_sign_row(s) for s in report.signs if s.is_raised]
    others = [_sign_row(s) for s in report.signs if not s.is_raised]
    return (*raised, *_part_rows(report), *_duration_rows(report), *others, *_state_rows(report))


def _sign_row(sign: Sign) -> Evidence:
    unit = "count" if sign.sign is PressureSign.BACKLOG_GROWTH else "ratio"
    value = None if sign.value is None else say.rounded(sign.value)
    return Evidence(sign.statement, sign.sign.value, sign.basis, value, None if value is None else unit)


def _part_rows(report: BatchReport) -> list[Evidence]:
    rows = []
    for part, share in report.shares:
        is_mean = part in (BatchPart.STATE_COMMIT, BatchPart.RUN) and report.share(BatchPart.STATE_COMMIT) is not None
        basis = Basis.RECONSTRUCTED if is_mean else Basis.MEASURED
        text = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
        rows.append(Evidence(text, f"share of {part.value}", basis, say.rounded(share), "ratio"))
    return rows


def _duration_rows(report: BatchReport) -> list[Evidence]:
    took, many = report.duration_median_ms, len(report.judged)
    if took is None:
        return []
    number = report.judged[0].header.checkpoint_id
    text = f"duration of batch {number}" if many == 1 else f"median duration of {many} batches"
    rows = [Evidence(text, "batchDuration", value=say.rounded(took), unit="ms")]
    if report.interval is not None:
        rows.append(Evidence("trigger interval", "interval", report.interval.basis, report.interval.ms, "ms"))
    return rows


def _state_rows(report: BatchReport) -> list[Evidence]:
    last = report.judged[-1].batch if report.judged else None
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
