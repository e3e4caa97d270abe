"""Health and verdict of a Spark query: whether its micro-batches keep up, and which part of them holds them.

There is no barrier on Spark, so nobody holds one: what can be told is whether batches keep up with the input, by the
signs of ``micro_batches``, and what most of a batch's time goes to. A query whose newest batch failed is failing: it
has ended, and whoever starts it again begins with that same batch. So is one whose driver tells nothing any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from backend.analysis import micro_batches as batches
from backend.analysis import sentences as say
from backend.analysis.evidence import JobEvidence
from backend.analysis.micro_batches import BatchPart, BatchReport
from backend.analysis.thresholds import CONFIDENT_COUNT, HEALTH_MIN_COUNT
from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.micro_batch import PressureSign
from backend.domain.verdict import Basis, Confidence, Diagnosis, Evidence, Health, Verdict, VerdictKind

PART_MIN_SHARE = 0.5
"""A part rules the batches when it takes half of their time."""

_KINDS = {
    BatchPart.RUN: VerdictKind.CAPACITY,
    BatchPart.STATE_COMMIT: VerdictKind.STORE,
    BatchPart.LOG: VerdictKind.STORE,
    BatchPart.SOURCE: VerdictKind.LATE_INPUT,
}
_WORDS = {
    BatchPart.RUN: "running the query itself",
    BatchPart.STATE_COMMIT: "committing the state stores",
    BatchPart.LOG: "checkpoint log writing (offsets and commits files)",
    BatchPart.SOURCE: "asking the sources what there is to read",
    BatchPart.PLANNING: "planning",
}
_MEANINGS = {
    BatchPart.RUN: "so the query has not the capacity for its input",
    BatchPart.STATE_COMMIT: "so the store of its state holds it",
    BatchPart.LOG: "so the checkpoint store holds it",
    BatchPart.SOURCE: "so its sources hold it",
}


def diagnose(evidence: JobEvidence) -> Diagnosis:
    """How the micro-batches of a job fare, and what limits them."""
    failed = _newest_failed(evidence.checkpoints)
    found = batches.report(evidence.checkpoints, evidence.config)
    if failed is not None:
        return Diagnosis(Health.FAILING, _failure(failed, found))
    if not found.judged:
        return Diagnosis(Health.TOO_FEW, _nothing_yet())
    if found.is_behind:
        return Diagnosis(Health.SLOW, _behind(found, _behind_lead(found)))
    health = Health.HEALTHY if len(found.judged) >= HEALTH_MIN_COUNT else Health.TOO_FEW
    return Diagnosis(health, _well(found, _well_lead(found, health)))


def silent(told_at: datetime) -> Diagnosis:
    """Of a query whose driver has told nothing since ``told_at``, its own clock: nothing is known, and that is bad."""
    at = f"{told_at:%Y-%m-%d %H:%M:%S} UTC"
    verdict = Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"The driver has told nothing since {at}: it was killed, hangs, or cannot reach Barrierscope.",
        confidence=Confidence.LOW,
        evidence=(
            Evidence(f"while a driver lives its listener says so every 10 s; the last word came at {at}", "age"),
        ),
        would_decide=("whether the driver's process lives, and what its log says last",),
    )
    return Diagnosis(Health.FAILING, verdict)


def checkpoint_verdict(checkpoint: Checkpoint, evidence: JobEvidence) -> Verdict:
    """What this one micro-batch spent its time on, and whether the query kept up when it ran."""
    if checkpoint.header.status is CheckpointStatus.FAILED:
        return _failure(checkpoint, batches.report(evidence.checkpoints, evidence.config))
    number, took = checkpoint.header.checkpoint_id, checkpoint.header.end_to_end_duration_ms
    if took is None:
        return _nothing_yet()
    lead = f"Batch {number} took {say.duration(took)}"
    upto = [c for c in evidence.checkpoints if c.header.checkpoint_id <= number]
    around = batches.report(upto, evidence.config)
    own = batches.report([checkpoint], evidence.config)
    # Its own parts, beside the signs of the batches up to it: one batch alone has none.
    found = BatchReport(own.judged, around.interval, around.signs, own.shares)
    if around.is_behind:
        return _behind(found, f"{lead} while the query was behind")
    return _well(found, lead)


def count_of(evidence: JobEvidence) -> int:
    """How many micro-batches ``diagnose`` judges."""
    return len(batches.report(evidence.checkpoints, evidence.config).judged)


def _newest_failed(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    ended = [c for c in checkpoints if c.header.status.is_terminal]
    return ended[-1] if ended and ended[-1].header.status is CheckpointStatus.FAILED else None


def _failure(failed: Checkpoint, found: BatchReport) -> Verdict:
    message = failed.header.failure_message or "an error without a message"
    number = failed.header.checkpoint_id
    rows = [
        Evidence(f"Spark's error: {message}", "failure message"),
        Evidence(
            f"batch {number} follows the last one that completed; Spark reports no number of a failed batch",
            "batch number",
            Basis.RECONSTRUCTED,
        ),
    ]
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence=f"The query ended in batch {number} with {_short(message)}: it begins with that same batch when it is "
        "started again.",
        confidence=Confidence.MEDIUM,
        evidence=(*rows, *_rows(found)),
        would_decide=("the error in full, among the job's events and in the driver's log",),
    )


def _nothing_yet() -> Verdict:
    return Verdict(
        kind=VerdictKind.UNDECIDED,
        sentence="No micro-batch has ended yet: there is nothing yet to judge by.",
        confidence=Confidence.LOW,
        would_decide=("a micro-batch that has ended",),
    )


def _behind(found: BatchReport, lead: str) -> Verdict:
    part, share = found.shares[0] if found.shares else (None, 0.0)
    is_told = part is not None and share >= PART_MIN_SHARE and part in _KINDS
    why = "no part of it takes half of the time"
    if part is not None and share >= PART_MIN_SHARE:
        why = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
        why += f", {_MEANINGS[part]}" if part in _MEANINGS else ""
    is_by_pauses_alone = all(s.sign is PressureSign.UTILISATION for s in found.raised)
    confidence = Confidence.HIGH if len(found.judged) >= CONFIDENT_COUNT else Confidence.MEDIUM
    return Verdict(
        kind=_KINDS[part] if is_told and part is not None else VerdictKind.UNDECIDED,
        sentence=f"{lead}; {why}.",
        confidence=Confidence.MEDIUM if is_by_pauses_alone else confidence,
        evidence=tuple(_rows(found)),
        would_decide=_missing(found) if is_by_pauses_alone else (),
    )


def _missing(found: BatchReport) -> tuple[str, ...]:
    # A query that is told to go on at once never pauses either, and files do not tell how many wait.
    missing = ["how far behind the sources are, which these do not report"]
    if found.interval is None:
        missing.insert(
            0, "the trigger's interval (trigger_interval_ms of the listener): with none, no pause is no fault"
        )
    return tuple(missing)


def _well(found: BatchReport, lead: str) -> Verdict:
    most = ""
    if found.shares and found.shares[0][1] >= PART_MIN_SHARE:
        part, share = found.shares[0]
        most = f"; {say.percent(share)} of the time goes to {_WORDS[part]}"
    raised = [s for s in found.raised if s.sign is PressureSign.UTILISATION]
    pause = " and the next batch is taken at once" if raised else ""
    many = len(found.judged)
    confidence = Confidence.HIGH if many >= CONFIDENT_COUNT and not raised else Confidence.MEDIUM
    return Verdict(
        kind=VerdictKind.NONE,
        sentence=f"{lead}: it keeps up{pause}{most}.",
        confidence=confidence if many >= HEALTH_MIN_COUNT else Confidence.LOW,
        evidence=tuple(_rows(found)),
    )


def _behind_lead(found: BatchReport) -> str:
    signs = {s.sign: s for s in found.raised}
    said = []
    if (overrun := signs.get(PressureSign.OVERRUN)) is not None and found.interval is not None:
        said.append(f"{say.times(overrun.value or 0)} the trigger's interval of {say.duration(found.interval.ms)}")
    if (backlog := signs.get(PressureSign.BACKLOG_GROWTH)) is not None:
        said.append(f"the backlog grows by {backlog.value:.0f} a batch")
    if (rows := signs.get(PressureSign.ROWS_GROWTH)) is not None:
        said.append(f"each reads {rows.value:.1f} times the rows of the one before or more")
    if not said:
        said.append("one follows the other without a pause")
    took = say.duration(found.duration_median_ms or 0)
    return f"The query is behind: a batch takes {took} (median of {len(found.judged)}), {say.listed(said)}"


def _well_lead(found: BatchReport, health: Health) -> str:
    took = say.duration(found.duration_median_ms or 0)
    many = len(found.judged)
    every = f", one each {say.duration(found.interval.ms)}" if found.interval is not None else ""
    if health is Health.TOO_FEW:
        return f"Only {many} micro-batch{'' if many == 1 else 'es'} so far, {took} (median)"
    return f"Micro-batches are healthy at {took} (median of {many}{every})"


def _rows(found: BatchReport) -> list[Evidence]:
    rows = [
        Evidence(s.statement, s.sign.value, s.basis, None if s.value is None else say.rounded(s.value), "ratio")
        if s.sign is not PressureSign.BACKLOG_GROWTH
        else Evidence(s.statement, s.sign.value, s.basis, s.value, "count" if s.value is not None else None)
        for s in found.signs
    ]
    for part, share in found.shares:
        is_mean = part in (BatchPart.STATE_COMMIT, BatchPart.RUN) and found.share(BatchPart.STATE_COMMIT) is not None
        basis = Basis.RECONSTRUCTED if is_mean else Basis.MEASURED
        text = f"{say.percent(share)} of the time goes to {_WORDS[part]}"
        rows.append(Evidence(text, f"share of {part.value}", basis, say.rounded(share), "ratio"))
    last = found.judged[-1].batch if found.judged else None
    if last is not None and last.state is not None:
        rows += _state_rows(last.state.row_count, last.state.snapshot_lag)
    return rows


def _state_rows(row_count: int | None, snapshot_lag: int | None) -> list[Evidence]:
    rows = []
    if row_count is not None:
        rows.append(Evidence(f"the state holds {row_count} rows", "state rows", value=row_count, unit="count"))
    if snapshot_lag is not None:
        text = f"a recovery would replay {snapshot_lag} batches since the newest snapshot of the state"
        rows.append(Evidence(text, "snapshot lag", Basis.RECONSTRUCTED, snapshot_lag, "count"))
    return rows


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= 160 else f"{line[:159]}…"
