"""Chooses the checkpoint interval and the pause between checkpoints (rules R-INT).

Checkpoints that run most of the time leave no time for the work itself: either the interval is longer (R-INT-3) or, if
durations vary, a pause follows each checkpoint (R-INT-5). If checkpoints leave enough time and the job's failures are
known, the interval is the one with the least loss to checkpoints and failures together (R-INT-1, Young and Daly).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

from backend.advisor.advice import EvidenceRow, Expected, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.lifecycle import open_ratio
from backend.advisor.losses import Losses, loss_method, loss_rows, lost_words, mean_time_between_failures_ms
from backend.advisor.predictor import method_of
from backend.advisor.proposing import Proposal, expect, proposal, share_interval
from backend.advisor.rules import version_faults
from backend.advisor.rules.aligned_timeout import nice_ms
from backend.advisor.rules.lints import version_of
from backend.advisor.rules.tolerance import UNLIMITED_COUNT
from backend.advisor.sentences import cause_words
from backend.advisor.situation import Situation
from backend.advisor.thresholds import (
    CHECKPOINTS_MIN_COUNT,
    FAILURES_MIN_COUNT,
    FULL_MIN_RATIO,
    OPEN_MAX_RATIO,
    REPLAY_BUDGET_MS,
    VARIED_MIN_FACTOR,
)
from backend.advisor.twin.model.outages import RESTART_MS
from backend.advisor.twin.model.recovery import ALL_COMPLETE, RecoveryModel, cost_of_failure
from backend.analysis.numbers.arrays import highest_of
from backend.analysis.numbers.statistics import highest, median, quantile, ratio
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_OK_RATIO
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import CheckpointConfig
from backend.domain.verdict import Basis, Confidence, VerdictKind

# A checkpoint waits for these causes and takes hardly any work from the job meanwhile. If fewer checkpoints begin, each
# of them waits as long. A commit is not among them: it follows each completed checkpoint.
_WAITED_FOR = frozenset({VerdictKind.COORDINATOR, VerdictKind.LATE_INPUT, VerdictKind.CALLBACK})
_WAITS = (
    "checkpoints are long because they wait for what the verdict names: with fewer of them, each waits as long."
    " First cure that"
)
_UNKNOWN = (
    "what makes checkpoints long is not decided, and if they only wait for it, each of fewer ones waits as long. First"
    " find out what would decide it"
)
_NO_RECOVERY = "no prediction of the time to recover: how much the job could process is not known"


@dataclass(frozen=True, slots=True)
class _Pace:
    """How checkpoints follow each other. ``open_ratio`` is the share of the time with a checkpoint; None if unknown."""

    interval_ms: float
    pause_ms: float
    median_ms: float
    low_ms: float
    high_ms: float
    """The 95th percentile of the durations."""
    open_ratio: float | None

    @property
    def is_crowded(self) -> bool:
        """Whether checkpoints run for most of the time."""
        return self.open_ratio is not None and self.open_ratio > OPEN_MAX_RATIO

    @property
    def is_varied(self) -> bool:
        """Whether the durations differ so much that one interval does not suit them."""
        return self.high_ms > VARIED_MIN_FACTOR * self.median_ms

    @property
    def period_ms(self) -> float:
        """The usual time from one trigger to the next."""
        return max(self.interval_ms, self.median_ms + self.pause_ms)


def best_interval_ms(cost_ms: float, between_ms: float) -> float:
    """Return the time of work between two checkpoints with the least loss (Daly 2006, after Young 1974).

    ``cost_ms`` is the work that a checkpoint costs, and ``between_ms`` the mean time between failures.
    """
    if cost_ms >= 2 * between_ms:
        return between_ms
    part = cost_ms / (2 * between_ms)
    return sqrt(2 * cost_ms * between_ms) * (1 + sqrt(part) / 3 + part / 9) - cost_ms


def advise_interval(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend a checkpoint interval, or return the reason for none."""
    pace = _pace(situation)
    if isinstance(pace, str):
        return NoAdvice(Topic.INTERVAL, "R-INT-3", pace)
    if situation.diagnosis.verdict.kind is VerdictKind.RESTARTS:
        text = "the job restarts again and again: first cure what its exceptions say"
        return NoAdvice(Topic.INTERVAL, "R-INT-1", text)
    if situation.diagnosis.verdict.kind is VerdictKind.LOST_ROWS:
        text = "transactions time out before they are committed: first raise their timeout or shorten the interval"
        return NoAdvice(Topic.INTERVAL, "R-INT-4", text)
    if situation.undecided is not None:
        text = f"the interval is not chosen by what it loses, because {situation.undecided}"
        return NoAdvice(Topic.INTERVAL, "R-INT-1", text)
    losses = Losses.of_job(situation)
    if losses is not None:
        return _optimal(situation, pace, losses)
    if pace.is_crowded:
        if (useless := _why_useless(situation)) is not None:
            return NoAdvice(Topic.INTERVAL, "R-INT-3", useless)
        if pace.is_varied:
            text = (
                f"durations vary from {say.duration(pace.low_ms)} to {say.duration(pace.high_ms)}: a minimum pause"
                " suits better than another interval"
            )
            return NoAdvice(Topic.INTERVAL, "R-INT-5", text)
        return _longer(situation, pace)
    if mean_time_between_failures_ms(situation) is not None:
        text = "what a checkpoint costs is not known, because the sync parts are not known"
        return NoAdvice(Topic.INTERVAL, "R-INT-2", text)
    seen = len({at for at, _ in situation.evidence.exceptions})
    part = "" if pace.open_ratio is None else f"checkpoints run for {say.percent(pace.open_ratio)} of the time; "
    known_ = {0: "no failure is", 1: "1 failure is"}.get(seen, f"{seen} failures are")
    text = (
        f"{part}the best interval depends on the time between failures, and {known_} known"
        f" ({FAILURES_MIN_COUNT} are needed)"
    )
    return NoAdvice(Topic.INTERVAL, "R-INT-1", text)


def advise_pause(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend a minimum pause between checkpoints, or return the reason for none (R-INT-5)."""
    pace = _pace(situation)
    if isinstance(pace, str):
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-5", pace)
    if not pace.is_crowded:
        part = "a part" if pace.open_ratio is None else say.percent(pace.open_ratio)
        if pace.open_ratio is None:
            text = "checkpoints are missing from the history, so the share of the time in which they run is not known"
        else:
            text = f"checkpoints run for {part} of the time and leave pauses by themselves"
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-5", text)
    if not pace.is_varied:
        text = "durations hardly vary, so another interval does the same as a minimum pause"
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-3", text)
    losses = Losses.of_job(situation)
    if losses is not None:
        text = "the interval is chosen from the known failures; a pause as well would make each of them replay more"
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-1", text)
    if (useless := _why_useless(situation)) is not None:
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-5", useless)
    # With a share p of the time without a checkpoint, the pause is p / (1 - p) times the duration; p is one half.
    wanted = nice_ms(pace.median_ms * (1 - OPEN_MAX_RATIO) / OPEN_MAX_RATIO)
    if wanted <= pace.pause_ms:
        text = f"the pause of {say.duration(pace.pause_ms)} is already as long as a checkpoint"
        return NoAdvice(Topic.MIN_PAUSE, "R-INT-5", text)
    if version_faults.has_fault(situation, version_faults.PAUSE_NOT_KEPT, version_of(situation.version)):
        text = f"{situation.engine_words} may not keep a minimum pause ({version_faults.PAUSE_NOT_KEPT})"
        return NoAdvice(Topic.MIN_PAUSE, version_faults.PAUSE_NOT_KEPT, text)
    proposed = Setting(min_pause_ms=wanted)
    recorded = Interval(pace.median_ms, min(pace.median_ms, pace.low_ms), pace.high_ms)
    method = (
        "duration divided by the sum of duration and pause: for the median, and for the 5th and the 95th percentile"
    )
    open_share = _open(situation, pace, proposed, recorded, method, interval_ms=pace.interval_ms, pause_ms=wanted)
    costs, unpredicted = _after_failure(situation, pace, proposed, max(pace.interval_ms, pace.median_ms + wanted))
    made = Proposal(
        topic=Topic.MIN_PAUSE,
        rules=("R-INT-5",),
        direction="raise",
        headline=f"Pause at least {say.duration(wanted)} between checkpoints",
        reason=(
            f"Checkpoints run for {say.percent(pace.open_ratio or 0.0)} of the time. Their durations vary from"
            f" {say.duration(pace.low_ms)} to {say.duration(pace.high_ms)}, so a pause keeps time for the work where"
            " an interval does not."
        ),
        current=Setting(min_pause_ms=round(pace.pause_ms)),
        proposed=proposed,
        evidence=_rows(situation, pace),
        expected=(open_share, *costs),
        unpredicted=unpredicted,
        confidence=_confidence(situation),
        confidence_reason=f"{len(situation.recorded)} checkpoints; their durations are taken to stay as they are",
        preconditions=transactions(situation, max(pace.interval_ms, pace.high_ms + wanted), pace.high_ms),
        risks=("checkpoints are further apart: a restore replays more input, and transactional sinks commit later",),
        will_not_cure=(cause_words(situation),),
        withdrawn_if=("checkpoints run for less than half of the time without it",),
    )
    return proposal(situation.engine, made, situation.ids)


# --- parts ----------------------------------------------------------------------------------------------------------


def _pace(situation: Situation) -> _Pace | str:
    config = situation.evidence.config
    if config is None or not config.interval_ms:
        return "the interval of the checkpoints is not known"
    if situation.is_cut_off:
        return "most checkpoints expire: another interval does not make them complete"
    durations = [r.duration_ms for r in situation.recorded if not r.is_failed]
    if len(durations) < CHECKPOINTS_MIN_COUNT:
        return f"only {say.checkpoints(len(durations))} completed; {CHECKPOINTS_MIN_COUNT} are needed"
    return _Pace(
        interval_ms=float(config.interval_ms),
        pause_ms=float(config.min_pause_ms or 0),
        median_ms=median(durations) or 0.0,
        low_ms=quantile(durations, 0.05) or 0.0,
        high_ms=quantile(durations, 0.95) or 0.0,
        open_ratio=open_ratio([r.checkpoint.header for r in situation.recorded]),
    )


def _why_useless(situation: Situation) -> str | None:
    """Return why fewer checkpoints do not cure what makes them long; None if they may."""
    kind = situation.diagnosis.verdict.kind
    if kind is VerdictKind.UNDECIDED:
        return _UNKNOWN
    return _WAITS if kind in _WAITED_FOR else None


def _longer(situation: Situation, pace: _Pace) -> Recommendation | NoAdvice:
    config = situation.evidence.config
    wanted = nice_ms(pace.high_ms / OPEN_MAX_RATIO + pace.pause_ms)
    if wanted <= pace.interval_ms:
        text = f"checkpoints take {say.duration(pace.median_ms)}, for which the interval is long enough"
        return NoAdvice(Topic.INTERVAL, "R-INT-3", text)
    if wanted + pace.high_ms > REPLAY_BUDGET_MS:
        text = (
            f"checkpoints take up to {say.duration(pace.high_ms)}: an interval of {say.duration(wanted)} suits them,"
            f" but a failure could then replay more than {say.duration(REPLAY_BUDGET_MS)} of input"
        )
        return NoAdvice(Topic.INTERVAL, "R-INT-3", text)
    # An incremental checkpoint writes what changed since the one before. With a longer interval it writes more.
    grown = wanted / pace.period_ms if _is_incremental(situation) else 1.0
    proposed = Setting(interval_ms=wanted)
    recorded = Interval(pace.median_ms, pace.low_ms, max(pace.high_ms, pace.median_ms * grown))
    method = "recorded durations divided by the interval; incremental checkpoints grow at most with the interval"
    open_share = _open(situation, pace, proposed, recorded, method, interval_ms=wanted, pause_ms=0.0)
    costs, unpredicted = _after_failure(situation, pace, proposed, wanted)
    made = Proposal(
        topic=Topic.INTERVAL,
        rules=("R-INT-3",),
        direction="raise",
        headline=f"Raise the checkpoint interval from {say.duration(pace.interval_ms)} to {say.duration(wanted)}",
        reason=(
            f"Checkpoints take {say.duration(pace.median_ms)} (95th percentile: {say.duration(pace.high_ms)}) and run"
            f" for {say.percent(pace.open_ratio or 0.0)} of the time, one right after the other."
        ),
        current=Setting(interval_ms=config.interval_ms if config is not None else None),
        proposed=proposed,
        evidence=_rows(situation, pace),
        expected=(open_share, *costs),
        unpredicted=unpredicted,
        confidence=_confidence(situation),
        confidence_reason=f"{len(situation.recorded)} checkpoints; their durations are taken to stay as they are",
        preconditions=transactions(situation, wanted, pace.high_ms),
        risks=risks_of_longer(),
        will_not_cure=(cause_words(situation),),
        withdrawn_if=("checkpoints run for less than half of the time without it",),
    )
    return proposal(situation.engine, made, situation.ids)


def _optimal(situation: Situation, pace: _Pace, losses: Losses) -> Recommendation | NoAdvice:
    now, between = losses.now, losses.between
    best = losses.best(situation.aligned_timeout_ms)
    if best is None or not best.is_worth(now) or not best.keeps_bounds(now):
        least = now if best is None else best
        text = (
            f"with a failure every {say.duration(between.value)} the best interval is"
            f" {say.duration(least.interval_ms)}; {say.duration(now.interval_ms)} loses hardly more"
            f" ({lost_words(now)} and {lost_words(least)} of the time)"
        )
        return NoAdvice(Topic.INTERVAL, "R-INT-1", text)
    wanted = best.interval_ms
    proposed = Setting(interval_ms=wanted)
    costs, unpredicted = _after_failure(situation, pace, proposed, wanted)
    verb, direction = ("Raise", "raise") if wanted > now.interval_ms else ("Lower", "lower")
    made = Proposal(
        topic=Topic.INTERVAL,
        rules=("R-INT-1", "R-INT-2", "R-INT-3"),
        direction=direction,
        headline=(f"{verb} the checkpoint interval from {say.duration(now.interval_ms)} to {say.duration(wanted)}"),
        reason=(
            f"The job fails every {say.duration(between.value)}. Checkpoints and failures take {lost_words(now)} of its"
            f" time. At an interval of {say.duration(wanted)} they take least: {lost_words(best)}."
        ),
        current=Setting(interval_ms=now.interval_ms),
        proposed=proposed,
        evidence=(*_rows(situation, pace), *loss_rows(situation, losses), _daly_row(situation, losses)),
        expected=(expect(Metric.LOST, now.ratio.value, best.ratio, loss_method(losses)), *costs),
        unpredicted=unpredicted,
        confidence=Confidence.LOW if len(situation.evidence.exceptions) < 2 * FAILURES_MIN_COUNT else Confidence.MEDIUM,
        confidence_reason=f"{len(situation.evidence.exceptions)} failures are on record",
        preconditions=transactions(situation, wanted, pace.high_ms),
        risks=risks_of_longer() if wanted > now.interval_ms else ("checkpoints load the store more often",),
        will_not_cure=("the failures themselves",),
        withdrawn_if=("the time between failures changes",),
    )
    return proposal(situation.engine, made, situation.ids)


def _daly_row(situation: Situation, losses: Losses) -> EvidenceRow:
    best = max(0.0, best_interval_ms(losses.cost_ms, losses.between.value))
    return EvidenceRow(
        f"interval by Daly's formula, at a cost of {say.duration(losses.cost_ms)} a checkpoint",
        "interval",
        Basis.PREDICTED,
        best,
        "ms",
        checkpoint_ids=situation.ids,
    )


def _is_incremental(situation: Situation) -> bool:
    shares = [
        ratio(r.checkpoint.header.checkpointed_size_bytes, r.checkpoint.header.full_state_size_bytes)
        for r in situation.recorded
        if not r.is_failed
    ]
    share = median(shares)
    return share is not None and share < FULL_MIN_RATIO


def _open(
    situation: Situation,
    pace: _Pace,
    proposed: Setting,
    recorded_ms: Interval,
    method: str,
    *,
    interval_ms: float,
    pause_ms: float,
) -> Expected:
    """Return the share of the time in which a checkpoint runs.

    It follows from the answer on durations, or from what was recorded if there is none.
    """
    answer = situation.predictor.of(proposed)
    took = recorded_ms if answer is None or answer.duration_ms is None else answer.duration_ms
    if answer is not None and took is answer.duration_ms:
        method = method_of(answer.tier)
    shares = (min(1.0, ms / max(interval_ms, ms + pause_ms)) for ms in (took.value, took.low, took.high))
    return expect(Metric.OPEN_RATIO, pace.open_ratio, Interval(*shares), method)


def _after_failure(
    situation: Situation, pace: _Pace, proposed: Setting, period_ms: float
) -> tuple[tuple[Expected, ...], tuple[str, ...]]:
    """Return the predictions of what a failure costs under proposed settings, and what is not predicted.

    ``period_ms`` is the time from one checkpoint to the next under them.
    """
    answered = situation.predictor.answered(proposed, (Metric.REPLAYED, Metric.RECOVERY))
    if answered:
        lacks = all(e.metric is not Metric.RECOVERY for e in answered)
        return answered, (_NO_RECOVERY,) if lacks else ()
    use = _use_ratio(situation)
    recovery = RecoveryModel(
        outage_ms=RESTART_MS,
        replayed_ratio=Interval(0.5, 0.0, 1.0),
        capacity_per_s=None if use is None else 1 / use,
        checkpoint_cost_ms=median(r.sync_ms for r in situation.recorded) or 0.0,
        duration_ms=Interval(pace.median_ms, pace.low_ms, pace.high_ms),
        completed_ratio=_completed_ratio(situation),
        failed_period_ms=max((r.duration_ms for r in situation.recorded if r.is_failed), default=0.0) + pace.pause_ms,
    )
    now, then = (cost_of_failure(recovery, interval_ms=ms, rate_per_s=1.0) for ms in (pace.period_ms, period_ms))
    if now.replay_ms is None or then.replay_ms is None:
        return (), ("no prediction of what a failure replays: no checkpoint completes, so it grows without end",)
    method = "on average a failure comes in the middle between two checkpoints, and loses the running one too"
    failed = sum(r.is_failed for r in situation.recorded)
    if failed:
        method += (
            f"; {failed} of {len(situation.recorded)} checkpoints failed, so the newest completed one is often older"
        )
    effects = [expect(Metric.REPLAYED, now.replay_ms.value, then.replay_ms, method)]
    if then.recovery_ms is None or now.recovery_ms is None:
        return tuple(effects), (_NO_RECOVERY,)
    method = (
        f"a restart of {say.duration(RESTART_MS.value)} (assumed) and the time to work off what was not processed, by a"
        f" job whose busiest subtask is busy {say.percent(use or 0.0)} of the time"
    )
    effects.append(expect(Metric.RECOVERY, now.recovery_ms.value, then.recovery_ms, method))
    return tuple(effects), ()


def _completed_ratio(situation: Situation) -> Interval:
    """Return the share of the recorded checkpoints that completed, with its 90 % interval; all if none failed."""
    failed, count = sum(r.is_failed for r in situation.recorded), len(situation.recorded)
    if not failed:
        return ALL_COMPLETE
    share = share_interval(failed, count)
    return Interval(1.0 - share.value, 1.0 - share.high, 1.0 - share.low)


def _use_ratio(situation: Situation) -> float | None:
    """Return how much of what the job could process it does process; None if something holds it back."""
    loads = situation.case.loads.values()
    if situation.case.suspect is not None or situation.held is None or situation.held[1] > BACKPRESSURED_OK_RATIO:
        return None
    use = highest(highest_of(load.busy) for load in loads)
    return use if use is not None and 0 < use < 1 else None


def _rows(situation: Situation, pace: _Pace) -> tuple[EvidenceRow, ...]:
    durations = tuple(r.duration_ms for r in situation.recorded)
    rows = [
        EvidenceRow(
            "duration of a checkpoint, median",
            "duration",
            Basis.MEASURED,
            pace.median_ms,
            "ms",
            checkpoint_ids=situation.ids,
            values=durations,
        ),
        EvidenceRow(
            "duration of a checkpoint, p95",
            "duration",
            Basis.MEASURED,
            pace.high_ms,
            "ms",
            checkpoint_ids=situation.ids,
        ),
        EvidenceRow("interval of the checkpoints", "interval", Basis.MEASURED, pace.interval_ms, "ms"),
    ]
    if pace.open_ratio is not None:
        text = "share of the time in which a checkpoint runs"
        rows.append(
            EvidenceRow(text, "duration", Basis.RECONSTRUCTED, pace.open_ratio, "ratio", checkpoint_ids=situation.ids)
        )
    return tuple(rows)


def transactions(situation: Situation, period_ms: float, duration_ms: float) -> tuple[Precondition, ...]:
    """Return the condition on the transactions of sinks (R-INT-4)."""
    needed = transaction_timeout_ms(situation.evidence.config, period_ms, duration_ms)
    if needed is None:
        return (Precondition("sinks have no transaction timeout: no number of failures bounds their waiting", None),)
    text = f"transactional sinks wait more than {say.duration(needed)} and a restart for their commit"
    return (Precondition(text, None),)


def transaction_timeout_ms(config: CheckpointConfig | None, period_ms: float, duration_ms: float) -> float | None:
    """Return how long a transaction may stay open, without the time of a restart (R-INT-4); None if forever."""
    tolerated = config.tolerable_failed_count if config is not None else None
    if tolerated is not None and tolerated >= UNLIMITED_COUNT:
        return None
    timeout = (config.timeout_ms if config is not None else None) or 0.0
    return period_ms + duration_ms + (tolerated or 0) * (period_ms + timeout)


def risks_of_longer() -> tuple[str, ...]:
    """Return the risks of a longer interval."""
    return (
        "a restore replays more input, and transactional sinks commit later",
        "if a source reports a backlog, the interval during a backlog is a setting of its own",
    )


def _confidence(situation: Situation) -> Confidence:
    return Confidence.LOW if situation.diagnosis.verdict.confidence is Confidence.LOW else Confidence.MEDIUM
