"""Advises on settings for checkpoints that fail.

These are the timeout (R-TO), the number of tolerated failures (R-TOL), and how many checkpoints are retained (R-RET).
No rule raises the timeout of checkpoints that expire, because a longer timeout does not remove the cause. Settings
that are known to cause trouble by themselves are found by ``lints``; the rules here propose values.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from backend.advisor.advice import EvidenceRow, Expected, Interval, NoAdvice, Precondition, Recommendation, Setting
from backend.advisor.proposing import Proposal, expect, proposal, share_interval
from backend.advisor.rules.aligned_timeout import nice_ms
from backend.advisor.rules.intervals import transaction_timeout_ms
from backend.advisor.rules.lints import retained_count
from backend.advisor.rules.tolerance import UNLIMITED_COUNT
from backend.advisor.sentences import cause_words
from backend.advisor.situation import Situation
from backend.advisor.thresholds import (
    CHECKPOINTS_MIN_COUNT,
    FAILOVERS_PER_DAY_MAX,
    PASSING_MAX_RATIO,
    REPLAY_BUDGET_MS,
    STUCK_FACTOR,
    TIMEOUT_FACTOR,
    TIMEOUT_MARGIN,
    TIMEOUT_MIN_MS,
)
from backend.analysis.numbers.statistics import median, quantile
from backend.analysis.words import sentences as say
from backend.domain.advice import Metric, Topic
from backend.domain.checkpoint import CheckpointHeader, CheckpointKind, CheckpointStatus
from backend.domain.verdict import Basis, Confidence, VerdictKind

_DAY_MS = 86_400_000.0
_RETAINED = 2
_TOLERATED_MAX = 100
# Fewer restarts a day than this are not distinguished.
_SHOWN_MIN = 0.01
# A larger factor would have digits that the text of the duration does not have.
_TIMES_MAX = 100.0


# --- the checkpoint timeout -----------------------------------------------------------------------------------------


def advise_timeout(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend a checkpoint timeout, or return the reason for none (R-TO-1)."""
    config = situation.evidence.config
    timeout_ms = config.timeout_ms if config is not None else None
    if config is None or timeout_ms is None:
        return _no_timeout("the checkpoint timeout is not known")
    expired = [r for r in situation.recorded if r.is_expired]
    if expired and situation.diagnosis.verdict.kind in (VerdictKind.CALLBACK, VerdictKind.COMMIT):
        return _no_timeout("it must cover the work that the verdict names: shorten that, or raise it")
    if situation.is_cut_off:
        return _no_timeout("most checkpoints expire, and a longer timeout would not remove the cause")
    took = [r.duration_ms for r in situation.recorded if not r.is_failed]
    if len(took) < CHECKPOINTS_MIN_COUNT:
        return _no_timeout(f"only {say.checkpoints(len(took))} completed; {CHECKPOINTS_MIN_COUNT} are needed")
    longest = quantile(took, 0.99) or 0.0
    least = max(
        TIMEOUT_FACTOR * longest, config.interval_ms or 0.0, TIMEOUT_MARGIN * (situation.aligned_timeout_ms or 0)
    )
    if expired:
        wanted = nice_ms(max(least, TIMEOUT_MIN_MS))
        if not _hang_alone(situation):
            return _no_timeout("after most of those that expired, no checkpoint completed next: find the cause first")
        if timeout_ms >= STUCK_FACTOR * longest and wanted <= timeout_ms / TIMEOUT_FACTOR:
            return _shorter(situation, timeout_ms, wanted, longest, tuple(r.id for r in expired))
        which = f"{len(expired)} of the last {say.checkpoints(len(situation.recorded))}"
        return _no_timeout(f"{which} expired: find the cause before you change the timeout")
    if situation.diagnosis.verdict.kind is VerdictKind.COORDINATOR:
        return _no_timeout("the coordinator (JobManager) is the cause, which a longer timeout would not remove")
    if timeout_ms < TIMEOUT_FACTOR * longest:
        return _higher(situation, timeout_ms, nice_ms(least), longest)
    times = timeout_ms / longest if longest > 0 else None
    room = "leaves room"
    if times is not None:
        many = say.times(times) if times < _TIMES_MAX else f"more than {say.times(_TIMES_MAX)}"
        room = f"is {many} the longest duration of {say.duration(longest)}"
    return _no_timeout(f"the timeout of {say.duration(timeout_ms)} {room}, and no checkpoint expired")


def _hang_alone(situation: Situation) -> bool:
    """Return whether the next checkpoint completed after at least half of the expired ones.

    Only this shows that a new attempt would have completed.
    """
    pairs = list(pairwise(situation.recorded))
    completed = sum(not after.is_failed for before, after in pairs if before.is_expired)
    return 2 * completed >= sum(r.is_expired for r in situation.recorded)


def _no_timeout(reason: str) -> NoAdvice:
    return NoAdvice(Topic.TIMEOUT, "R-TO-1", reason)


def _timeout_rows(situation: Situation, timeout_ms: int, longest: float) -> tuple[EvidenceRow, ...]:
    values = tuple(r.duration_ms for r in situation.recorded)
    text = "duration of a completed checkpoint, p99"
    return (
        EvidenceRow(text, "duration", Basis.MEASURED, longest, "ms", checkpoint_ids=situation.ids, values=values),
        EvidenceRow("checkpoint timeout", "timeout", Basis.MEASURED, float(timeout_ms), "ms"),
    )


def _expiring(situation: Situation, timeout_ms: int) -> tuple[Expected, ...]:
    """Return the share of the checkpoints that a timeout would end, as predicted from the recorded ones if need be."""
    count = sum(r.is_expired or r.duration_ms >= timeout_ms for r in situation.recorded)
    method = "share of the recorded checkpoints that would reach the timeout; Wilson interval at 90 %"
    by_rule = expect(Metric.EXPIRED, situation.expired_ratio, share_interval(count, len(situation.recorded)), method)
    return situation.predictor.expected(Setting(timeout_ms=timeout_ms), (by_rule,))


def _higher(situation: Situation, timeout_ms: int, wanted: int, longest: float) -> Recommendation:
    made = Proposal(
        topic=Topic.TIMEOUT,
        rules=("R-TO-1",),
        direction="raise",
        headline=f"Raise the checkpoint timeout from {say.duration(timeout_ms)} to {say.duration(wanted)}",
        reason=(
            f"Checkpoints take up to {say.duration(longest)} and complete. The timeout leaves less than"
            f" {TIMEOUT_FACTOR:.0f} times that, so a checkpoint that is a little slower expires."
        ),
        current=Setting(timeout_ms=timeout_ms),
        proposed=Setting(timeout_ms=wanted),
        evidence=_timeout_rows(situation, timeout_ms, longest),
        expected=_expiring(situation, wanted),
        confidence_reason=f"{len(situation.recorded)} checkpoints, none of which expired",
        preconditions=_transaction(situation, wanted, longest),
        risks=("a checkpoint that is stuck holds the next one for longer",),
        will_not_cure=(cause_words(situation),),
        withdrawn_if=("checkpoints expire: then their cause comes first",),
    )
    return proposal(situation.engine, made, situation.ids)


def _shorter(
    situation: Situation, timeout_ms: int, wanted: int, longest: float, ids: tuple[int, ...]
) -> Recommendation:
    row = EvidenceRow(
        "checkpoints that hung until the timeout",
        "failureReason",
        Basis.MEASURED,
        float(len(ids)),
        "count",
        checkpoint_ids=ids,
    )
    made = Proposal(
        topic=Topic.TIMEOUT,
        rules=("R-TO-1",),
        direction="lower",
        headline=f"Lower the checkpoint timeout from {say.duration(timeout_ms)} to {say.duration(wanted)}",
        reason=(
            f"{len(ids)} of the last {say.checkpoints(len(situation.recorded))} hung for {say.duration(timeout_ms)},"
            f" while the others took at most {say.duration(longest)}. A new attempt would have completed long before."
        ),
        current=Setting(timeout_ms=timeout_ms),
        proposed=Setting(timeout_ms=wanted),
        evidence=(*_timeout_rows(situation, timeout_ms, longest), row),
        expected=_expiring(situation, wanted),
        unpredicted=("no prediction of how often a checkpoint hangs: its cause is not known",),
        confidence=Confidence.LOW if len(ids) < 2 else Confidence.MEDIUM,
        confidence_reason=f"{say.checkpoints(len(ids))} hung",
        preconditions=_tolerating(situation),
        risks=("under more load or with more state, checkpoints may reach the shorter timeout",),
        will_not_cure=("what made the checkpoints hang",),
        withdrawn_if=(f"completed checkpoints take more than {say.duration(wanted / TIMEOUT_FACTOR)}",),
    )
    return proposal(situation.engine, made, situation.ids)


def _tolerating(situation: Situation) -> tuple[Precondition, ...]:
    config = situation.evidence.config
    count = config.tolerable_failed_count if config is not None else None
    return (Precondition("at least one failed checkpoint is tolerated", None if count is None else count > 0),)


def _transaction(situation: Situation, timeout_ms: int, longest: float) -> tuple[Precondition, ...]:
    config = situation.evidence.config
    tolerated = config.tolerable_failed_count if config is not None else None
    needed = transaction_timeout_ms(config, float((config.interval_ms if config else 0) or 0), longest)
    if needed is None or config is None:
        return ()
    more = (tolerated or 0) * max(0, timeout_ms - (config.timeout_ms or 0))
    text = f"transactional sinks wait more than {say.duration(needed + more)} and a restart for their commit"
    return (Precondition(text, None),)


# --- tolerated failures ---------------------------------------------------------------------------------------------


def failovers_per_day(attempts: float, failing: float, tolerated: int) -> float:
    """Return how often a day ``tolerated + 1`` checkpoints fail one after the other by chance (R-TOL-1).

    ``attempts`` is the number of checkpoints of a day, and ``failing`` the probability that one fails, below 1.
    """
    run = failing ** (tolerated + 1)
    return attempts * run * (1 - failing) / (1 - run)


def advise_tolerance(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend the number of tolerable failures, or return the reason for none (R-TOL)."""
    config = situation.evidence.config
    tolerated = config.tolerable_failed_count if config is not None else None
    if config is None or tolerated is None:
        return _no_number("the number of tolerable failures is not known")
    if tolerated >= UNLIMITED_COUNT:
        return _no_number("any number of failures is tolerated: alerts have to show those that last")
    if situation.diagnosis.verdict.kind is VerdictKind.FAILING_SUBTASK:
        text = "checkpoints fail at a subtask for a lasting reason, which no number of tolerated failures cures"
        return NoAdvice(Topic.TOLERANCE, "R-TOL-2", text)
    ended = _ended(situation)
    failed = [h for h in ended if h.status is CheckpointStatus.FAILED and _is_counted(h)]
    if not failed:
        return _no_number(f"none of the last {say.checkpoints(len(ended))} failed in a way that counts")
    if len(failed) > 1 and failed == ended[-len(failed) :]:
        several = len(failed)
        text = (
            f"the newest {several} checkpoints failed one after the other, which is not by chance: find the cause first"
        )
        return _no_number(text)
    share = share_interval(len(failed), len(ended))
    if share.value >= PASSING_MAX_RATIO:
        text = f"{len(failed)} of {say.checkpoints(len(ended))} failed, which is not by chance: find the cause first"
        return _no_number(text)
    period = max(situation.every_ms or 0.0, median(r.duration_ms for r in situation.recorded) or 0.0, 1.0)
    attempts = _DAY_MS / period
    now = failovers_per_day(attempts, share.value, tolerated)
    if now <= FAILOVERS_PER_DAY_MAX:
        often = f"{now:.2g}" if now >= _SHOWN_MIN else f"fewer than {_SHOWN_MIN}"
        many = "1 tolerable failure suffices" if tolerated == 1 else f"{tolerated} tolerable failures suffice"
        return _no_number(f"{many}: {often} restarts a day are expected")
    wanted = next(
        n
        for n in range(tolerated + 1, _TOLERATED_MAX + 1)
        if failovers_per_day(attempts, share.value, n) <= FAILOVERS_PER_DAY_MAX or n == _TOLERATED_MAX
    )
    each = period + (config.timeout_ms or 0)
    most = int(REPLAY_BUDGET_MS // each) - 1
    if most <= tolerated:
        text = (
            f"{'a failure' if tolerated == 0 else f'{tolerated + 1} failures in a row'} already"
            f" {'means' if tolerated == 0 else 'mean'} {say.duration((tolerated + 2) * each)} of input to replay:"
            " shorten the timeout first"
        )
        return _no_number(text)
    return _tolerate(
        situation, tolerated, min(wanted, most), share, attempts, tuple(h.checkpoint_id for h in failed), each
    )


def _in_a_row(count: int) -> str:
    return "A single failure restarts" if count == 1 else f"{count} failures in a row restart"


def _no_number(reason: str) -> NoAdvice:
    return NoAdvice(Topic.TOLERANCE, "R-TOL-1", reason)


def _ended(situation: Situation) -> list[CheckpointHeader]:
    headers = [c.header for c in situation.evidence.checkpoints]
    return [h for h in headers if h.status.is_terminal and h.kind is CheckpointKind.CHECKPOINT]


def _is_counted(header: CheckpointHeader) -> bool:
    return header.failure_reason is not None and header.failure_reason.is_counted


def _tolerate(
    situation: Situation, now: int, wanted: int, share: Interval, attempts: float, ids: tuple[int, ...], each_ms: float
) -> Recommendation:
    def rate(n: int) -> Interval:
        value, low, high = (failovers_per_day(attempts, min(s, 0.999), n) for s in (share.value, share.low, share.high))
        return Interval(value, min(low, value), max(high, value))

    method = (
        "chance that the tolerated number and one more fail one after the other, if each fails by itself; the interval"
        " is that of the share of failures, at 90 %"
    )
    text = "share of the checkpoints that failed in a way that counts"
    made = Proposal(
        topic=Topic.TOLERANCE,
        rules=("R-TOL-1", "R-TOL-2"),
        direction="raise",
        headline=f"Tolerate {wanted} failed checkpoints instead of {now}",
        reason=(
            f"{say.of_the_last(len(ids), len(_ended(situation)))} failed, and others completed."
            f" {_in_a_row(now + 1)} the job, which replays its input."
        ),
        current=Setting(tolerable_failed_count=now),
        proposed=Setting(tolerable_failed_count=wanted),
        evidence=(EvidenceRow(text, "failureReason", Basis.MEASURED, share.value, "ratio", checkpoint_ids=ids),),
        expected=(expect(Metric.FAILOVERS, rate(now).value, rate(wanted), method),),
        confidence=Confidence.LOW,
        confidence_reason=f"{len(ids)} failures; failures that come together restart the job more often",
        preconditions=(
            Precondition(f"{say.duration((wanted + 1) * each_ms)} of input may be replayed after a failure", None),
            Precondition("an alert reports failing checkpoints before the limit is reached", None),
        ),
        risks=("a lasting fault restarts the job later, and more input is replayed then",),
        will_not_cure=("the failures themselves",),
        withdrawn_if=("no checkpoint fails any more", "most checkpoints fail: then their cause comes first"),
    )
    return proposal(situation.engine, made, situation.ids)


# --- retained checkpoints -------------------------------------------------------------------------------------------


def advise_retention(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend how many checkpoints are retained, or return the reason for none (R-RET-1)."""
    count = retained_count(situation)
    if count is None:
        return _no_retention("the cluster does not report how many checkpoints it keeps")
    if count >= _RETAINED:
        return _no_retention(f"{count} checkpoints are kept")
    if not situation.evidence.exceptions and not situation.evidence.restart_count:
        return _no_retention("only the newest checkpoint is kept; nothing shows that an older one would be needed")
    full = median(r.checkpoint.header.full_state_size_bytes for r in situation.recorded if not r.is_failed)
    expected: tuple[Expected, ...] = ()
    if full is not None:
        method = "as many times the size of the state; incremental checkpoints share files and need less"
        expected = (expect(Metric.STORED, full, Interval(_RETAINED * full, full, _RETAINED * full), method),)
    restarts = situation.evidence.restart_count
    row = EvidenceRow(
        "restarts of the job",
        "numRestarts",
        value=None if restarts is None else float(restarts),
        unit="count",
    )
    made = Proposal(
        topic=Topic.RETENTION,
        rules=("R-RET-1",),
        direction="raise",
        headline=f"Keep {_RETAINED} checkpoints instead of {count}",
        reason=(
            "Only the newest checkpoint is kept, and the job has restarted: if that checkpoint is damaged or contains"
            " the fault, there is no earlier one to restart from."
        ),
        current=Setting(retained_count=count),
        proposed=Setting(retained_count=_RETAINED),
        evidence=(row,),
        expected=expected,
        unpredicted=("no prediction of how often an older checkpoint is needed",),
        confidence_reason="the setting is the cluster's; the job may override it",
        preconditions=(Precondition("a savepoint, or an aligned checkpoint, is kept for upgrades", None),),
        risks=("the checkpoint store needs more space",),
        will_not_cure=("faults that are noticed after two more checkpoints",),
        withdrawn_if=("the job overrides the cluster's setting",),
    )
    return proposal(situation.engine, made, situation.ids)


def _no_retention(reason: str) -> NoAdvice:
    return NoAdvice(Topic.RETENTION, "R-RET-1", reason)


LINT_OF: Mapping[Topic, str] = {
    Topic.TOLERANCE: "tolerable-0",
    Topic.TIMEOUT: "timeout-below-interval",
    Topic.RETENTION: "retained-1",
}
"""The lint that says less than a recommendation on the topic, and is left out if there is one."""
