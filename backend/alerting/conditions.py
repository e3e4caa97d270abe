"""The condition of each rule: (rule, signal) -> reading. The texts name the job, vertex, subtasks, hosts and phase.

Data that is not current gives the reading *unknown*, which neither raises nor resolves an alert. A job that has ended,
or a target that is no longer watched, gives the reading *gone*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from itertools import pairwise
from statistics import median

from backend.alerting import target_conditions, unlisted_conditions
from backend.alerting.lifecycle import OVER, LinkedCheckpoint, Reading, ReadingKind
from backend.alerting.readings import active, clear
from backend.alerting.rules import RuleName, RuleSettings
from backend.alerting.signals import (
    FAILURES_COUNTED_MAX,
    EndedCheckpoint,
    JobSignal,
    OpenSignal,
    Place,
    ServiceSignal,
    Signal,
    TargetSignal,
)
from backend.analysis.health.finish import is_warned, predict, warned_from
from backend.analysis.health.health import restart_loop
from backend.analysis.health.progress import Judged
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import EXPIRY_SLACK_MS, FINISH_LATELY_COUNT, FINISH_UNKNOWN_RATIO
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.failure import FailureReason
from backend.domain.observation import JobState
from backend.domain.replay_debt import debt_sentence, origin_words
from backend.domain.text import capitalised
from backend.domain.verdict import VerdictKind

_TOLERABLE_MAX = 3
# A run that starts this soon after the end of the previous run counts as its continuation. Kubernetes waits up to
# five minutes before it restarts a container that keeps failing.
_REDEPLOYED_WITHIN = timedelta(minutes=6)
_GAPS_MIN = 3
_UNDECIDED_RATIO = 0.5


def read(settings: RuleSettings, signal: Signal) -> Reading:
    """Evaluate the rule for the job, target or service of the signal."""
    if not settings.is_enabled:
        return Reading(ReadingKind.GONE, "the rule was switched off")
    match signal:
        case JobSignal():
            return _of_job(settings, signal)
        case TargetSignal():
            return _TARGET_RULES[settings.rule.name](settings, signal)
        case ServiceSignal():
            return _SERVICE_RULES[settings.rule.name](settings, signal)


def health_window_ms(signal: JobSignal) -> float | None:
    """Return max(interval, timeout) x (min(tolerable failures, 3) + 2) in milliseconds, or None if a part is not known.

    The interval is the one that the engine reports, or the minimum pause or the median time between triggers if that is
    longer. Checkpoints that take longer than their interval are triggered further apart.
    """
    longest_ms = _longest_ms(signal)
    if signal.config is None or longest_ms is None:
        return None
    tolerable = min(max(0, signal.config.tolerable_failed_count or 0), _TOLERABLE_MAX)
    return longest_ms * (tolerable + 2)


def _longest_ms(signal: JobSignal) -> float | None:
    """Return max(interval, timeout) in milliseconds, or None if one of them is not known.

    If triggers are further apart than the configured interval, their median distance replaces the interval. So does a
    longer minimum pause between checkpoints.
    """
    config = signal.config
    if config is None or not config.interval_ms or not config.timeout_ms:
        return None
    gaps_ms = [(b - a) / timedelta(milliseconds=1) for a, b in pairwise(signal.triggers)]
    observed_ms = median(gaps_ms) if len(gaps_ms) >= _GAPS_MIN else 0.0
    return max(config.interval_ms, config.min_pause_ms or 0, observed_ms, config.timeout_ms)


# --- jobs ---------------------------------------------------------------------------------------------------------


def _of_job(settings: RuleSettings, signal: JobSignal) -> Reading:
    if not signal.is_watched:
        return Reading(ReadingKind.GONE, "its target is no longer watched")
    if signal.state is JobState.ENDED:
        return _of_ended(settings, signal)
    if signal.stale_reason is not None and not _is_about_reading(settings, signal):
        return Reading(ReadingKind.UNKNOWN, signal.stale_reason)
    is_off = signal.config is not None and signal.config.is_off and signal.opened is None
    if is_off and settings.rule.name not in _WITHOUT_CHECKPOINTS:
        return clear(signal, "checkpointing is off")
    return _JOB_RULES[settings.rule.name](settings, signal)


def _is_about_reading(settings: RuleSettings, signal: JobSignal) -> bool:
    """Return whether the values are not current for the reason of which the rule warns."""
    return settings.rule.name is RuleName.JOB_UNREADABLE and signal.unread_reason is not None


def _of_ended(settings: RuleSettings, signal: JobSignal) -> Reading:
    ago_s = signal.ended_ago_s
    is_per_job = settings.rule.name is RuleName.NO_COMPLETED_CHECKPOINT
    if is_per_job and ago_s is not None and timedelta(seconds=ago_s) <= _REDEPLOYED_WITHIN:
        # The job may be restarting repeatedly, so the end of one run does not resolve the alert.
        return Reading(ReadingKind.UNKNOWN, f"the run ended {say.duration(max(0.0, ago_s * 1000))} ago")
    return Reading(ReadingKind.GONE, "the job ended")


def _expired(settings: RuleSettings, signal: JobSignal) -> Reading:
    newest = signal.ended[-int(settings["window_count"]) :]
    expired = [c for c in newest if c.reason is FailureReason.EXPIRED]
    if not newest:
        return clear(signal, "no checkpoint has ended yet")
    if len(expired) < settings["expired_min_count"]:
        return clear(signal, f"{len(expired)} of the {len(newest)} newest ended checkpoints expired")
    last = expired[-1]
    after = f" after {say.duration(last.duration_ms)}" if last.duration_ms is not None else ""
    summary = f"{signal.name}: checkpoint {last.checkpoint_id} expired{after}"
    more = f"{say.of_the_last(len(expired), len(newest))} expired. " if len(expired) > 1 else ""
    return active(signal, summary, f"{more}{_how_often(signal)}", signal.place, _linked(expired), value=len(expired))


def _consecutive(settings: RuleSettings, signal: JobSignal) -> Reading:
    row: list[EndedCheckpoint] = []
    for checkpoint in reversed(signal.ended):
        if checkpoint.status is CheckpointStatus.COMPLETED:
            break
        if checkpoint.is_failure:
            row.insert(0, checkpoint)
    if len(row) < settings["failures_min_count"]:
        return clear(signal, f"{len(row)} failures in a row")
    reasons = [c.reason.value for c in row if c.reason is not None]
    commonest = max(reasons, key=lambda r: (reasons.count(r), r), default="unknown")
    # The signal lists only the newest checkpoints, so ``row`` may be shorter than the number of failures that it
    # counts.
    count = max(len(row), signal.failures_in_row_count)
    more = " or more" if count >= FAILURES_COUNTED_MAX else ""
    summary = f"{signal.name}: the last {count}{more} checkpoints failed"
    return active(signal, summary, f"Most frequent reason: {commonest}. ", signal.place, _linked(row), value=count)


def _none_completed(settings: RuleSettings, signal: JobSignal) -> Reading:
    window_ms, longest_ms = health_window_ms(signal), _longest_ms(signal)
    if window_ms is None or longest_ms is None:
        return Reading(ReadingKind.UNKNOWN, "the checkpoint interval or timeout is not known")
    window_ms *= settings["window_ratio"]
    ran, own, run_count = _ran_without_one(signal)
    age_ms = ran / timedelta(milliseconds=1)
    runs = f" over {run_count} runs" if run_count > 1 else ""
    # A healthy job that was redeployed may have waited for one checkpoint before the redeployment and for another one
    # after it, so a job with several runs gets more time.
    if own / timedelta(milliseconds=1) <= window_ms and age_ms <= window_ms + 2 * longest_ms * (run_count > 1):
        words = f"it ran {say.duration(max(0.0, age_ms))}{runs} since its last completed checkpoint or its start"
        return clear(signal, f"{words}, within the health window of {say.duration(window_ms)}")
    summary = f"{signal.name}: no checkpoint completed for {say.duration(age_ms)}{runs}"
    last = (
        "" if signal.last_completed is None else f"The last completed one was checkpoint {signal.last_completed[1]}. "
    )
    more = f"At least one was due within the health window of {say.duration(window_ms)}. {last}"
    newest = _linked([c for c in signal.ended if c.is_failure][-3:])
    if signal.opened is not None:
        newest = (*newest, LinkedCheckpoint(signal.opened.run_id, signal.opened.checkpoint_id))
    if not newest and signal.last_completed is not None:
        newest = (LinkedCheckpoint(*signal.last_completed),)
    return active(signal, summary, more, signal.place, newest, value=age_ms / 1000)


def _ran_without_one(signal: JobSignal) -> tuple[timedelta, timedelta, int]:
    """Return how long the job ran without completing a checkpoint.

    The second value is the part of that time in the newest run, the third is the number of runs.

    Earlier runs count if each was followed closely by the next one. The time between two runs does not count, because
    the job takes no checkpoints then.
    """
    completed_at = signal.last_completed_at
    begin = signal.run_started_at
    ran = own = signal.now_engine - (begin if completed_at is None else max(begin, completed_at))
    count = 1
    for run in signal.runs_before:
        if begin - run.ended_at > _REDEPLOYED_WITHIN:
            break
        since = run.started_at if completed_at is None else max(run.started_at, completed_at)
        # The time in which two runs overlap counts once.
        ran += max(timedelta(), min(run.ended_at, begin) - since)
        begin, count = min(begin, run.started_at), count + 1
    return ran, own, count


def _replay_debt(settings: RuleSettings, signal: JobSignal) -> Reading:
    """Evaluate what a failure now would cost, whatever the reason for which no newer checkpoint completed.

    A healthy job that takes no more than the health window from one completed checkpoint to the next stays below it.
    """
    debt, window_ms = signal.debt, health_window_ms(signal)
    if debt is None:
        return Reading(ReadingKind.UNKNOWN, "it is not known what a failure would restore")
    if window_ms is None:
        return Reading(ReadingKind.UNKNOWN, "the checkpoint interval or timeout is not known")
    age_ms = debt.age_ms(signal.now_engine)
    limit_ms = max(1000 * settings["debt_min_s"], settings["window_ratio"] * window_ms)
    if age_ms <= limit_ms:
        return clear(signal, f"{debt_sentence(age_ms, is_at_least=debt.is_at_least)}, at most {say.duration(limit_ms)}")
    summary = f"{signal.name}: {debt_sentence(age_ms, is_at_least=debt.is_at_least)}"
    since = f"It counts {origin_words(debt.origin, debt.checkpoint_id)}. "
    newest = _linked([c for c in signal.ended if c.is_failure][-3:])
    if debt.checkpoint_id is not None:
        newest = (LinkedCheckpoint(signal.run_id, debt.checkpoint_id), *newest)
    return active(signal, summary, since, signal.place, newest, value=age_ms / 1000)


def _will_time_out(settings: RuleSettings, signal: JobSignal) -> Reading:
    opened = signal.opened
    timeout_ms = opened.running.timeout_ms if opened is not None else None
    if opened is None:
        return _calm(settings, signal, "no checkpoint is running")
    if not timeout_ms:
        return _calm(settings, signal, "the timeout is not known")
    if (unread := _unread(signal)) is not None:
        return unread
    finish = predict(opened.running, opened.past, past_min_count=int(settings["past_min_count"]))
    if finish is None:
        return _calm(settings, signal, "every subtask has acknowledged")
    age_ms, usual_ratio = opened.running.elapsed_ms, settings["confidence_min_ratio"]
    lately = any(c.reason is FailureReason.EXPIRED for c in signal.ended[-FINISH_LATELY_COUNT:])
    is_one = is_warned(
        finish.expiry_ratio,
        age_ms=age_ms,
        timeout_ms=timeout_ms,
        has_expired_lately=lately,
        warn_ratio=usual_ratio,
    )
    if finish.expiry_ratio is None:
        if not is_one:
            return _calm(settings, signal, finish.words)
        used = say.percent(FINISH_UNKNOWN_RATIO)
        summary = f"has used up more than {used} of its timeout of {say.duration(timeout_ms)}"
        return _times_out(signal, opened, summary, f"Its finish is {finish.words}", FINISH_UNKNOWN_RATIO)
    if not is_one:
        why = f"checkpoint {opened.checkpoint_id} {finish.words}"
        if finish.expiry_ratio >= _UNDECIDED_RATIO:
            # A probability near the limit crosses it many times. The reading is unknown, so that not every crossing
            # begins or ends an episode.
            return Reading(ReadingKind.UNKNOWN, why)
        return _calm(settings, signal, why)
    summary = f"will probably exceed its timeout of {say.duration(timeout_ms)}"
    words = f"It {finish.words}"
    least, why_less = warned_from(usual_ratio, age_ms=age_ms, timeout_ms=timeout_ms, has_expired_lately=lately)
    if why_less is not None and finish.expiry_ratio < usual_ratio:
        # Whoever compares the probability with the setting would ask why the alert fires.
        enough = f"from {say.percent(least)} on instead of {say.percent(usual_ratio)}"
        words += f". The alert fires {enough}, because {why_less}"
    return _times_out(signal, opened, summary, words, finish.expiry_ratio)


def _times_out(signal: JobSignal, opened: OpenSignal, what: str, words: str, value: float) -> Reading:
    summary = f"{signal.name}: checkpoint {opened.checkpoint_id} {what}"
    far = f"{opened.running.acknowledged_count} of {opened.running.subtask_count} subtasks have acknowledged after"
    more = f"{words}. {far} {say.duration(opened.running.elapsed_ms)}. "
    linked = (LinkedCheckpoint(opened.run_id, opened.checkpoint_id),)
    return active(signal, summary, more, _merged(signal.place, opened.waiting), linked, value=value)


def _calm(settings: RuleSettings, signal: JobSignal, why: str) -> Reading:
    """Return the reading if nothing is wrong with the running checkpoint, for the reason ``why``.

    It is clear only if the newest ended checkpoints completed, or else unknown. In a job whose checkpoints all fail,
    each new checkpoint has nothing wrong at first. This must not end the alert, which would fire again seconds later.
    """
    count = int(settings["completed_min_count"])
    newest = signal.ended[-count:]
    done = [c for c in newest if c.status is CheckpointStatus.COMPLETED]
    if len(done) == count:
        which = "the newest ended checkpoint" if count == 1 else f"the {count} newest ended checkpoints"
        return clear(signal, f"{why}; {which} completed")
    done_words = "the newest ended checkpoint did not complete"
    if count > 1:
        done_words = f"only {len(done)} of the {count} newest ended checkpoints completed"
    # What the alert said of an earlier checkpoint is not true of the running one.
    return Reading(ReadingKind.UNKNOWN, f"{why}; {done_words}", annotations={OVER: why})


def _unread(signal: JobSignal) -> Reading | None:
    """Return an unknown reading if the checkpoint cannot be judged by the data that was read, or else None.

    There are two possible reasons. The past checkpoints with which the checkpoint is compared may not have been read
    yet. Or the checkpoint is past its timeout: then its end may not have been read yet, or the clocks differ.
    """
    opened = signal.opened
    if opened is not None and not opened.is_past_read:
        return Reading(ReadingKind.UNKNOWN, "the past checkpoints of the job have not been read yet")
    if opened is None or not opened.running.timeout_ms:
        return None
    if opened.running.elapsed_ms <= opened.running.timeout_ms + EXPIRY_SLACK_MS:
        return None
    over = say.duration(opened.running.elapsed_ms - opened.running.timeout_ms)
    why = "its end may not have been read yet, or the clocks differ"
    return Reading(ReadingKind.UNKNOWN, f"checkpoint {opened.checkpoint_id} is {over} past its timeout; {why}")


def _stuck(settings: RuleSettings, signal: JobSignal) -> Reading:
    opened = signal.opened
    if opened is None:
        return _calm(settings, signal, "no checkpoint is running")
    if (unread := _unread(signal)) is not None:
        return unread
    is_stuck = opened.judgement.state is Judged.STUCK
    if not is_stuck or opened.silent_ms < settings["silence_min_s"] * 1000:
        return _calm(settings, signal, opened.judgement.rule)
    summary = f"{signal.name}: checkpoint {opened.checkpoint_id} is stuck"
    more = f"{capitalised(opened.judgement.rule)}. "
    linked = (LinkedCheckpoint(opened.run_id, opened.checkpoint_id),)
    place = _merged(signal.place, opened.waiting)
    return active(signal, summary, more, place, linked, value=opened.silent_ms / 1000)


def _restarts(settings: RuleSettings, signal: JobSignal) -> Reading:
    loop = restart_loop(signal.restarted_at, signal.now_engine)
    if len(loop) < settings["restarts_min_count"]:
        known = f"{len(signal.restarted_at)} known" if signal.restarted_at else "none known"
        return clear(signal, f"it does not restart again and again ({known})")
    usual_ms = median((b - a) / timedelta(milliseconds=1) for a, b in pairwise(loop))
    summary = f"{signal.name}: the job restarts every {say.duration(usual_ms)}"
    since = loop[0].strftime("%Y-%m-%d %H:%M:%S UTC")
    more = f"{len(loop)} restarts since {since}. "
    if signal.place.cause is not VerdictKind.RESTARTS:
        # Otherwise the sentence of the verdict, which follows, says this and quotes the newest exception.
        more += "The exceptions of the job name the cause. "
    newest = _linked([c for c in signal.ended if c.is_failure][-3:] or list(signal.ended[-1:]))
    return active(signal, summary, more, signal.place, newest, value=len(loop))


def _unreadable(settings: RuleSettings, signal: JobSignal) -> Reading:
    why = signal.unread_reason
    if why is None:
        return clear(signal, "it is read")
    summary = f"{signal.name}: what {signal.target_name} reports about it cannot be read"
    cause = f"{capitalised(why)}. " if why else ""
    annotations = {
        "summary": summary,
        "description": f"{summary}. {cause}Nothing is known about its checkpoints now.",
        "job": signal.name,
    }
    return Reading(ReadingKind.ACTIVE, summary, annotations=annotations)


def _how_often(signal: JobSignal) -> str:
    """Return a sentence on a cause that strikes only some checkpoints, or an empty text."""
    intermittence = signal.intermittence
    if intermittence is None:
        return ""
    when = f", {intermittence.condition}" if intermittence.condition is not None else ""
    since = intermittence.since.strftime("%Y-%m-%d %H:%M:%S UTC")
    struck = f"{intermittence.struck_count} of {intermittence.checkpoint_count} checkpoints since {since}"
    return f"The cause is intermittent: it struck {struck}{when}. "


# --- words --------------------------------------------------------------------------------------------------------


def _merged(verdict: Place, waiting: Place) -> Place:
    """Return the verdict's place, or the subtasks that the checkpoint waits for if the verdict names no vertex."""
    if verdict.vertex is not None:
        return verdict
    return Place(waiting.vertex, waiting.subtasks, waiting.hosts, verdict.phase or waiting.phase, verdict.sentence)


def _linked(checkpoints: list[EndedCheckpoint]) -> tuple[LinkedCheckpoint, ...]:
    return tuple(LinkedCheckpoint(c.run_id, c.checkpoint_id) for c in checkpoints)


_JOB_RULES: Mapping[RuleName, Callable[[RuleSettings, JobSignal], Reading]] = {
    RuleName.CHECKPOINT_EXPIRED: _expired,
    RuleName.CONSECUTIVE_FAILURES: _consecutive,
    RuleName.CHECKPOINTS_REFUSED: unlisted_conditions.refused,
    RuleName.NO_COMPLETED_CHECKPOINT: _none_completed,
    RuleName.REPLAY_DEBT: _replay_debt,
    RuleName.CHECKPOINT_WILL_TIME_OUT: _will_time_out,
    RuleName.CHECKPOINT_STUCK: _stuck,
    RuleName.STATE_GROWING: unlisted_conditions.growing,
    RuleName.JOB_RESTARTS: _restarts,
    RuleName.ROWS_LOST: unlisted_conditions.losing,
    RuleName.JOB_UNREADABLE: _unreadable,
}
_WITHOUT_CHECKPOINTS = (RuleName.JOB_RESTARTS, RuleName.ROWS_LOST)
_TARGET_RULES: Mapping[RuleName, Callable[[RuleSettings, TargetSignal], Reading]] = {
    RuleName.TARGET_UNREACHABLE: target_conditions.unreachable,
    RuleName.COLLECTOR_STALE: target_conditions.stale,
}

_SERVICE_RULES: Mapping[RuleName, Callable[[RuleSettings, ServiceSignal], Reading]] = {
    RuleName.HISTORY_TOO_SHORT: target_conditions.history_too_short,
    RuleName.TARGETS_FILE_INVALID: target_conditions.targets_file_invalid,
    RuleName.WATCHDOG: target_conditions.watchdog,
}
