"""Recommends aligned or unaligned checkpoints, or gives the reason for no advice on the mode (rules R-UC).

Unaligned checkpoints help if barriers wait behind queued data, and if writing this data takes less time than waiting
(R-UC-1, CM-6). They do not help if something else takes the time: the store (R-UC-2), the sync part (R-UC-4), a late
source (R-UC-5), a long callback or an outside commit (R-UC-6), or a subtask that fails. Nor do they at an exchange
where barriers cannot overtake data (R-UC-7). Healthy checkpoints need no change (R-UC-12). The rules apply only to
engines that have unaligned checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from backend.advisor.advice import UNITS, Candidate, EvidenceRow, Expected, Interval, NoAdvice, Recommendation, Setting
from backend.advisor.engine_settings import changes_of, how_to
from backend.advisor.losses import Loss, Losses, loss_method, loss_rows, lost_words
from backend.advisor.proposing import expect
from backend.advisor.replay import Recordings, Replay, write_ms
from backend.advisor.rules import aligned_timeout, spiral, version_faults
from backend.advisor.rules.aligned_timeout import Choice
from backend.advisor.rules.intervals import risks_of_longer, transactions
from backend.advisor.rules.lints import lints_of, version_of
from backend.advisor.rules.mode_effects import effects_of, of_checkpoints
from backend.advisor.rules.mode_evidence import mode_rows, parallelism, verdict_row, write_rows
from backend.advisor.rules.unaligned_needs import forced_risk, with_needed
from backend.advisor.sentences import bytes_span, ms_span, unaligned_preconditions, unaligned_risks, will_not_cure
from backend.advisor.sentences import withdrawn_if as withdrawn_if_
from backend.advisor.situation import Situation, drain_times
from backend.advisor.thresholds import GAIN_MIN_MS, LOST_MORE_MAX_RATIO, STORE_MIN_RATIO, TRAVEL_MIN_RATIO
from backend.advisor.twin.model.outcomes import Outcome
from backend.analysis.measures.travel import hops
from backend.analysis.numbers.statistics import highest, median, quantile, ratio
from backend.analysis.verdict.forwarded import FORWARDED
from backend.analysis.verdict.piece_of_work import queued_before
from backend.analysis.words import sentences as say
from backend.analysis.words.thresholds import BACKPRESSURED_HIGH_RATIO, BACKPRESSURED_OK_RATIO, HOP_MIN_MS, SLOW_MIN_MS
from backend.domain import protocols
from backend.domain.advice import LintEffect, Metric, Mode, Topic
from backend.domain.ids import VertexId
from backend.domain.verdict import Confidence, Health, Verdict, VerdictKind

_SURE_READINGS = 4
_QUICK = 0.25
# A simulation knows neither these causes nor their end.
_ENDS_CHECKPOINTS = (
    VerdictKind.FAILING_SUBTASK,
    VerdictKind.COORDINATOR,
    VerdictKind.REPLAY,
    VerdictKind.RESTARTS,
    VerdictKind.REFUSED,
    VerdictKind.CHECKPOINTING_OFF,
)


def advise_mode(situation: Situation) -> Recommendation | NoAdvice:
    """Recommend a checkpoint mode, or return the reason for giving no advice on it."""
    held_back = _not_about_the_mode(situation)
    if held_back is not None:
        return held_back
    if situation.diagnosis.health is Health.HEALTHY:
        return _while_healthy(situation)
    if situation.mode is Mode.UNALIGNED:
        return _silence("R-AT-6", "checkpoints are already unaligned from their trigger on: no other mode is faster")
    useless = _useless(situation)
    if useless is not None:
        return useless
    missing = _missing(situation)
    return missing if missing is not None else _by_replay(situation)


def refusal_of_settings(situation: Situation) -> str | None:
    """Return why no setting of this job may be chosen by a simulation; None if it may."""
    if not situation.is_exactly_once or situation.mode is None or situation.protocol is not None:
        found = _not_about_the_mode(situation)
        return found.reason if found is not None else "the current settings are not known"
    kind = situation.diagnosis.verdict.kind
    if kind in _ENDS_CHECKPOINTS:
        found = _not_about_the_mode(situation)
        return found.reason if found is not None else None
    return None


def refusal_of_modes(situation: Situation) -> str | None:
    """Return why the mode of this job must stay as it is, whatever a simulation predicts; None if it need not.

    A store whose writes hang now and then is no reason. Without the wait for barriers, more checkpoints survive a hang.
    """
    cause = _not_about_the_mode(situation)
    if cause is not None and cause.rule == "R-UC-2" and not _is_write_bound(situation):
        cause = None
    refusal = cause or _useless(situation)
    if refusal is not None:
        return refusal.reason
    stuck = _not_overtaken(situation)
    return None if stuck is None else f"barriers do not overtake data before {situation.name(stuck)}"


def _is_write_bound(situation: Situation) -> bool:
    """Return whether three quarters of the writes take long, and most of the duration of their checkpoints."""
    rows = [(r.own_async_ms, r.duration_ms) for r in situation.recorded if r.own_async_ms is not None]
    writing, duration = (quantile(column, _QUICK) or 0.0 for column in ([w for w, _ in rows], [d for _, d in rows]))
    return writing >= SLOW_MIN_MS and writing > STORE_MIN_RATIO * duration


def _silence(rule: str, reason: str, *evidence: EvidenceRow, about: Verdict | None = None) -> NoAdvice:
    if about is None:
        return NoAdvice(Topic.MODE, rule, reason, evidence=evidence)
    return NoAdvice(Topic.MODE, rule, reason, about.vertex, about.subtasks, evidence)


def _not_about_the_mode(situation: Situation) -> NoAdvice | None:
    verdict = situation.diagnosis.verdict
    if not situation.is_exactly_once:
        return _silence("R-UC-10", "unaligned checkpoints need exactly-once; these are at-least-once")
    if situation.mode is None:
        return _silence("R-UC-1", "the current settings are not known")
    if situation.protocol is not None:
        reason = "no measured rule compares this protocol with aligned and unaligned barriers"
        return _silence("R-UC-1", f"the job takes {protocols.TRAITS[situation.protocol].family} checkpoints: {reason}")
    where = (
        ""
        if verdict.vertex is None
        else say.where(say.vertex(verdict.vertex), verdict.subtasks, parallelism(situation))
    )
    match verdict.kind:
        case VerdictKind.FAILING_SUBTASK:
            text = f"checkpoints fail at {where}, in every mode: see the log of its task manager for the cause"
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.STORE if not verdict.subtasks:
            # The verdict on a slow store names the subtasks that write. One without them is on a store that refuses.
            text = "writing to the checkpoint store fails, in every mode: see the log of a task manager for the error"
            return _silence("R-UC-2", text, verdict_row(situation), about=verdict)
        case VerdictKind.STORE:
            text = (
                f"the checkpoint store is the bottleneck, at {where}, and unaligned checkpoints would write more."
                " Write less (incremental or changelog checkpoints, fewer files) or give the store more bandwidth"
            )
            return _silence("R-UC-2", text, verdict_row(situation), *write_rows(situation), about=verdict)
        case VerdictKind.SYNC:
            text = f"the sync part of {where} takes most of the time, and no mode shortens it"
            return _silence("R-UC-4", text, verdict_row(situation), about=verdict)
        case VerdictKind.UNDECIDED if FORWARDED.verdict_of(situation.case) is not None:
            text = f"{where} forwarded the barrier in time, so no queue delays it, and no mode shortens a snapshot"
            return _silence("R-UC-4", text, verdict_row(situation), about=verdict)
        case VerdictKind.UNDECIDED if (
            verdict.vertex_id is None and situation.case.is_suffering and situation.case.loads
        ):
            text = "it is not decided what the barriers wait for, and unaligned barriers overtake queues only"
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.LATE_INPUT:
            text = f"{where} {_verb('emit', verdict)} the barrier late, before any queue: no mode changes that"
            return _silence("R-UC-5", text, verdict_row(situation), about=verdict)
        case VerdictKind.CALLBACK if (piece := queued_before(situation.case, verdict)) is not None:
            text = (
                f"barriers wait behind the long records that are queued before {where}: unaligned barriers overtake"
                f" these, but still wait for the one in work, about {say.duration(piece.record_ms)}. How much they"
                " gain is not predicted. Split the work of a record, or do it asynchronously"
            )
            return _silence("R-UC-6", text, verdict_row(situation), about=verdict)
        case VerdictKind.CALLBACK:
            key = situation.engine.settings.interruptible_timers
            text = (
                f"{where} {_verb('take', verdict)} no barrier during a long callback, whatever the mode. Split the work"
                f" of the record, timer or window, or do it asynchronously"
                f"{'' if key is None else f', or let barriers interrupt timers ({key})'}"
                ". Until then, the checkpoint timeout must cover the longest piece of work"
            )
            return _silence("R-UC-6", text, verdict_row(situation), about=verdict)
        case VerdictKind.COMMIT:
            text = (
                f"{where} {_verb('take', verdict)} no barrier during an outside commit, whatever the mode: make the"
                " commit quicker, or move it out of the task's thread. Until then, the timeout must cover it"
            )
            return _silence("R-UC-6", text, verdict_row(situation), about=verdict)
        case VerdictKind.COORDINATOR:
            text = (
                "the coordinator is the cause, not the barriers: no mode changes that. Look at the JobManager's log and"
                " load"
            )
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.REPLAY:
            text = (
                f"{where} still {_verb('process', verdict)} restored in-flight data: wait until checkpoints begin again"
            )
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.RESTARTS:
            text = "the job restarts again and again, and no mode changes what its exceptions say"
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.REFUSED:
            text = "no checkpoint begins at present, in any mode: first remove what the verdict names"
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.GROWTH:
            text = "what each checkpoint reads or keeps grows, and no mode changes that"
            return _silence("R-UC-1", text, verdict_row(situation), about=verdict)
        case VerdictKind.CHECKPOINTING_OFF:
            return _silence("R-UC-1", "checkpointing is off", about=verdict)
    return None


def _verb(verb: str, verdict: Verdict) -> str:
    """Return the verb, to follow the names of the verdict's subtasks."""
    if len(verdict.subtasks) > 1:
        return verb
    return f"{verb}es" if verb.endswith("s") else f"{verb}s"


def _useless(situation: Situation) -> NoAdvice | None:
    """Return why unaligned checkpoints of this version are not advised: they do harm, or may have no effect."""
    harm = version_faults.unsafe(situation, version_of(situation.version))
    if harm is not None:
        return _silence(harm[0], f"in {situation.engine_words}, unaligned checkpoints are not safe: {harm[1]}")
    useless = next((lint for lint in lints_of(situation) if lint.effect is LintEffect.NO_GAIN), None)
    if useless is None:
        return None
    text = f"in {situation.engine_words}, unaligned checkpoints may have no effect ({useless.code}). {useless.cure}"
    return _silence(useless.code, text)


def _while_healthy(situation: Situation) -> Recommendation | NoAdvice:
    raised = aligned_timeout.healthy_but_unaligned(situation)
    if raised is not None:
        return _raise_timeout(situation, *raised)
    took = say.duration(situation.duration_ms or 0.0)
    if situation.mode is not Mode.ALIGNED:
        mode = situation.mode.value if situation.mode is not None else ""
        return _silence("R-AT-3", f"checkpoints are {mode} and healthy at {took}")
    cheaper = _by_loss(situation)
    if cheaper is not None:
        return cheaper
    if situation.held is None:
        text = f"aligned checkpoints are healthy at {took}, and whether a vertex is back-pressured is not known"
        return _silence("R-UC-12", text)
    if situation.held[1] <= BACKPRESSURED_OK_RATIO:
        return _silence("R-UC-12", f"nothing is back-pressured and aligned checkpoints are healthy at {took}")
    text = f"checkpoints are healthy at {took}: interval and timeout leave enough time for them"
    return _silence("R-UC-12", text)


def _missing(situation: Situation) -> NoAdvice | None:
    if not situation.slow:
        text = "only the checkpoint in progress is slow, which is not enough to recommend a change"
        return _silence("AD-3", text)
    if not any(r.phases for r in situation.recorded):
        return _silence("R-UC-1", "the subtasks of these checkpoints are not known, and every prediction needs them")
    if situation.unread is not None:
        return _silence("R-UC-1", f"{situation.unread}, and every prediction needs that")
    return None


def _by_replay(situation: Situation) -> Recommendation | NoAdvice:
    writing = median(ratio(r.own_async_ms, r.duration_ms) for r in situation.slow)
    if writing is not None and writing > STORE_MIN_RATIO and (situation.duration_ms or 0.0) >= SLOW_MIN_MS:
        part = say.percent(writing)
        text = f"writing takes {part} of the duration: unaligned checkpoints would write even more"
        return _silence("R-UC-2", text, *write_rows(situation))
    travel = median(ratio(r.travel_ms, r.duration_ms) for r in situation.slow)
    if travel is None or travel <= TRAVEL_MIN_RATIO:
        part = "an unknown part" if travel is None else say.percent(travel)
        return _silence("R-UC-1", f"the barrier travels for {part} of the duration: another mode would change little")
    held_id, held = situation.held or ("", 0.0)
    cheaper = _by_loss(situation)
    if cheaper is not None:
        return cheaper
    if held < BACKPRESSURED_HIGH_RATIO and not _is_stuck_in_queues(situation):
        text = f"no vertex is back-pressured more than {say.percent(held)} of the time: something else delays barriers"
        return _silence("R-UC-1", text)
    stuck = _not_overtaken(situation)
    if stuck is not None:
        where = situation.name(stuck)
        text = f"the queue is before {where}, whose input is broadcast or pointwise: barriers do not overtake there"
        return _silence("R-UC-7", text)
    recordings = Recordings(situation)
    choice = aligned_timeout.choose(situation, recordings)
    natural = recordings.replay(None)
    if choice is None or natural is None:
        text = (
            "no aligned timeout suits both healthy and slow checkpoints, and back-pressure is not constant: give the"
            " job more capacity"
        )
        if situation.engine.aligned_timeout_stops_at_senders:
            text = (
                f"in {situation.engine_words} an aligned timeout does not reach a barrier in the output buffers of its"
                " sender (FLINK-27251, mended in 1.16), and 0 suits constant back-pressure only: give the job more"
                " capacity, or upgrade"
            )
        return _silence("R-AT-4", text)
    if choice.chosen.mode is situation.mode and choice.timeout_ms == (situation.aligned_timeout_ms or 0):
        # The checkpoints of the first minute after a change may be slow for what was before it.
        return _silence(
            "R-UC-1", "the replayed checkpoints choose the mode and the aligned timeout that are already set"
        )
    refused = _no_gain(situation, natural, choice) or _costs_more(situation, choice)
    return refused if refused is not None else _recommend(situation, natural, choice, held_id, held)


def _is_stuck_in_queues(situation: Situation) -> bool:
    """Return whether checkpoints expire behind a queue that takes most of the timeout to drain.

    A hot key holds back its senders for a small part of the time only, but its own queue is long.
    """
    longest = max(drain_times(situation), default=0.0)
    return situation.is_cut_off and longest >= TRAVEL_MIN_RATIO * (situation.duration_ms or 0.0)


def _by_loss(situation: Situation) -> Recommendation | None:
    """Return the mode and the interval with the least loss to checkpoints and failures, if it is clearly less.

    Return None as well if the fast simulation decides that, if the time between failures is not known, or if no
    back-pressure explains late barriers.
    """
    if situation.undecided is not None:
        return None
    losses = Losses.of_job(situation)
    if (
        losses is None
        or situation.held is None
        or _useless(situation) is not None
        or _not_overtaken(situation) is not None
    ):
        return None
    held_count = sum(peak is not None and peak >= BACKPRESSURED_HIGH_RATIO for _, peak in situation.peaks)
    if held_count < _SURE_READINGS and not _is_stuck_in_queues(situation):
        return None
    if losses.is_store_late:
        return None
    recordings = Recordings(situation)
    natural, found = recordings.replay(None), aligned_timeout.choose_by_loss(situation, recordings, losses)
    if natural is None or found is None:
        return None
    choice, loss = found
    return _recommend(situation, natural, choice, *situation.held, losses, loss)


def _costs_more(situation: Situation, choice: Choice) -> NoAdvice | None:
    """Return the reason for no advice if the quicker mode would cost clearly more than it saves in failures."""
    losses = Losses.of_job(situation)
    then = losses.of(choice.timeout_ms, losses.now.interval_ms) if losses is not None else None
    if losses is None or then is None or then.ratio.value - losses.now.ratio.value < LOST_MORE_MAX_RATIO:
        return None
    text = (
        f"{_name(choice)}, checkpoints and failures would take {lost_words(then)} of the time instead of"
        f" {lost_words(losses.now)}: writing in-flight data costs more than is saved"
    )
    return _silence("R-INT-1", text)


def _no_gain(situation: Situation, natural: Replay, choice: Choice) -> NoAdvice | None:
    gains = [
        a.duration_ms.value - b.duration_ms.high
        for r, a, b in zip(situation.recorded, natural.outcomes, choice.chosen.outcomes, strict=False)
        if r in situation.slow
    ]
    gain = median(gains)
    proposed = _settings(situation, choice)[1]
    answer = situation.predictor.of(proposed)
    if gain is not None and gain >= GAIN_MIN_MS and (answer is None or _is_better(situation, answer)):
        return None
    duration, persisted = of_checkpoints(effects_of(situation, choice.chosen, proposed))
    size = persisted.value
    written, speed = write_ms(situation, size, size), situation.store_bytes_per_ms
    if speed is not None and written.value > GAIN_MIN_MS:
        text = (
            f"writing {say.size(size)} of in-flight data would take {ms_span(written)} on a store that accepts"
            f" {speed / 1000:.1f} MB/s: no faster than waiting for the barriers"
        )
        return _silence("R-UC-2", text, *write_rows(situation))
    took, would = say.duration(natural.duration_ms.value), ms_span(duration)
    return _silence("R-UC-1", f"{_name(choice)}, checkpoints would take {would}: no certain gain over {took}")


def _is_better(situation: Situation, answer: Outcome) -> bool:
    """Return whether checkpoints would clearly be quicker than the slow ones now, or fewer of them would expire."""
    now = median(r.duration_ms for r in situation.slow)
    then, expired = answer.duration_ms, answer.expired_ratio
    is_kept = expired is not None and expired.value < (situation.expired_ratio or 0.0)
    return is_kept or (now is not None and then is not None and now - then.value >= GAIN_MIN_MS)


def _recommend(
    situation: Situation,
    natural: Replay,
    choice: Choice,
    held_id: VertexId | str,
    held: float,
    losses: Losses | None = None,
    loss: Loss | None = None,
) -> Recommendation:
    """Return the recommendation of a choice. If it was chosen by its loss, ``losses`` and ``loss`` are given."""
    current, proposed = _settings(situation, choice)
    if loss is not None and losses is not None and loss.interval_ms != losses.now.interval_ms:
        proposed = replace(proposed, interval_ms=loss.interval_ms)
        current = replace(current, interval_ms=losses.now.interval_ms)
    expected = effects_of(situation, choice.chosen, proposed)
    duration, persisted = of_checkpoints(expected)
    rows, saves = choice.reasons, ""
    preconditions, risks = unaligned_preconditions(situation), (*forced_risk(proposed), *risks_of_version(situation))
    withdrawn_if = withdrawn_if_(situation, proposed)
    if losses is not None and loss is not None:
        if loss.interval_ms != losses.now.interval_ms:
            preconditions += transactions(situation, loss.interval_ms, duration.high)
            risks += risks_of_longer() if loss.interval_ms > losses.now.interval_ms else ()
        withdrawn_if = ("the time between failures changes, or back-pressure ends", *withdrawn_if[1:])
        rows += loss_rows(situation, losses)
        saves = (
            f" Checkpoints and failures would take {lost_words(loss)} of the time instead of {lost_words(losses.now)}."
        )
    changes = changes_of(situation.engine, current, proposed)
    if losses is not None and loss is not None:
        lost = Expected(Metric.LOST, UNITS[Metric.LOST], losses.now.ratio.value, loss.ratio, loss_method(losses))
        expected = (*expected, lost)
    restore = next((e.predicted for e in expected if e.metric is Metric.RESTORE), None)
    preconditions += spiral.conditions(situation, duration, restore, proposed.interval_ms)
    took = say.duration(situation.duration_ms or 0.0)
    before = f"expire after {took}" if situation.is_cut_off else f"take {took}"
    confidence, why = _confidence(situation)
    return Recommendation(
        topic=Topic.MODE,
        rules=("R-UC-1", *choice.rules),
        headline=_headline(situation, choice, proposed.interval_ms),
        reason=(
            f"Checkpoints {before} because barriers wait behind queued data. If {_name(choice)}, they would"
            f" take {ms_span(duration)} and write {bytes_span(persisted)} of"
            f" in-flight data.{saves}"
        ),
        current=current,
        proposed=proposed,
        changes=changes,
        expected=expected,
        candidates=_candidates(situation, natural, choice, proposed),
        evidence=(*mode_rows(situation, held_id, held), *rows),
        confidence=confidence,
        confidence_reason=why,
        preconditions=preconditions,
        risks=(*unaligned_risks(situation, persisted, restore, every_ms=proposed.interval_ms), *risks),
        will_not_cure=will_not_cure(situation),
        withdrawn_if=withdrawn_if,
        how_to=how_to(situation.engine, changes),
        checkpoint_ids=situation.ids,
    )


def _raise_timeout(situation: Situation, needed_ms: int, switched: tuple[int, ...]) -> Recommendation:
    proposed = Setting(mode=Mode.ALIGNED_WITH_TIMEOUT, aligned_timeout_ms=needed_ms)
    current = Setting(mode=situation.mode, aligned_timeout_ms=situation.aligned_timeout_ms)
    changes = changes_of(situation.engine, current, proposed)
    duration, persisted = situation.duration_ms or 0.0, median(r.persisted_bytes for r in situation.recorded) or 0.0
    travel = highest(r.travel_ms for r in situation.healthy) or 0.0
    row = EvidenceRow(
        f"{len(switched)} of {len(situation.healthy)} checkpoints without back-pressure persisted in-flight data",
        "persistedData",
        value=float(len(switched)),
        unit="count",
        checkpoint_ids=switched,
        since=situation.since,
        until=situation.until,
    )
    method = "healthy barriers no longer overtake; durations grow by the rest of the barriers' travel time"
    return Recommendation(
        topic=Topic.MODE,
        rules=("R-AT-1", "R-AT-2"),
        headline=f"Raise the aligned timeout from {situation.aligned_timeout_ms} ms to {needed_ms} ms",
        reason="Healthy checkpoints become unaligned before their barriers arrive, and persist data without need.",
        current=current,
        proposed=proposed,
        changes=changes,
        expected=situation.predictor.expected(
            proposed,
            (
                expect(Metric.PERSISTED, persisted, Interval(0.0, 0.0, persisted), method),
                expect(
                    Metric.DURATION,
                    duration,
                    Interval(duration, duration / 2, max(duration, float(needed_ms)) + 100.0),
                    method,
                ),
            ),
        ),
        candidates=(),
        evidence=(
            row,
            EvidenceRow(
                "longest travel time of a barrier without back-pressure",
                "startDelay",
                value=travel,
                unit="ms",
                checkpoint_ids=tuple(r.id for r in situation.healthy),
                values=tuple(r.travel_ms for r in situation.healthy),
            ),
        ),
        confidence=Confidence.MEDIUM,
        confidence_reason="the travel time of an aligned barrier is known only up to the timeout",
        preconditions=unaligned_preconditions(situation),
        risks=("under back-pressure checkpoints become unaligned later, and take longer by the same time",),
        will_not_cure=will_not_cure(situation),
        withdrawn_if=("a vertex becomes back-pressured",),
        how_to=how_to(situation.engine, changes),
        checkpoint_ids=situation.ids,
    )


def risks_of_version(situation: Situation) -> tuple[str, ...]:
    """Return what is known to go wrong with unaligned checkpoints in the version of the job's engine."""
    lints = [lint for lint in lints_of(situation) if lint.effect is LintEffect.RISK]
    return tuple(f"{lint.headline} ({lint.code}). {lint.cure}" for lint in lints)


def _headline(situation: Situation, choice: Choice, interval_ms: int | None) -> str:
    every = "" if interval_ms is None else f", every {say.duration(interval_ms)}"
    if situation.mode is Mode.ALIGNED_WITH_TIMEOUT:
        return f"Change the aligned timeout from {situation.aligned_timeout_ms} ms to {choice.timeout_ms} ms{every}"
    if choice.timeout_ms:
        return f"Enable unaligned checkpoints with an aligned timeout of {say.duration(choice.timeout_ms)}{every}"
    return f"Enable unaligned checkpoints{every}"


def _name(choice: Choice) -> str:
    return f"unaligned after {say.duration(choice.timeout_ms)}" if choice.timeout_ms else "unaligned"


def _settings(situation: Situation, choice: Choice) -> tuple[Setting, Setting]:
    """Return the present settings and those of a choice."""
    return with_needed(
        situation,
        Setting(mode=situation.mode, aligned_timeout_ms=situation.aligned_timeout_ms),
        Setting(mode=choice.chosen.mode, aligned_timeout_ms=choice.timeout_ms),
    )


def _candidates(situation: Situation, natural: Replay, choice: Choice, proposed: Setting) -> tuple[Candidate, ...]:
    def is_current(r: Replay) -> bool:
        return r.mode is situation.mode and r.aligned_timeout_ms == situation.aligned_timeout_ms

    shown = (
        r.candidate(is_current=is_current(r), is_proposed=r is choice.chosen) for r in (natural, *choice.considered)
    )
    return situation.predictor.candidates([(c, _setting_of(c, proposed)) for c in shown])


def _setting_of(one: Candidate, proposed: Setting) -> Setting:
    """Return what a candidate would change. It is compared with the others at the present interval."""
    if one.is_current:
        return Setting()
    return proposed if one.is_proposed else Setting(mode=one.mode, aligned_timeout_ms=one.aligned_timeout_ms)


def _not_overtaken(situation: Situation) -> VertexId | None:
    """Return the vertex to which the barrier took longest, if barriers cannot overtake data at one of its inputs.

    This is rule R-UC-7. Return None if barriers can overtake there, or if there is no real queue.
    """
    topology = situation.evidence.topology
    found = hops(topology, [(r.phases, round(r.duration_ms)) for r in situation.slow if r.phases])
    longest = max(found, key=lambda h: h.longest_ms, default=None)
    if longest is None or longest.longest_ms < HOP_MIN_MS:
        return None
    strategies = {e.ship_strategy for e in topology.edges if e.target == longest.vertex_id}
    return longest.vertex_id if strategies & {"BROADCAST", "FORWARD", "RESCALE"} else None


def _confidence(situation: Situation) -> tuple[Confidence, str]:
    count = len(situation.recorded)
    readings = situation.queues.reading_count if situation.queues is not None else 0
    reasons = [f"{count} checkpoints", f"{readings} reading{'' if readings == 1 else 's'} of the queues"]
    worst = situation.diagnosis.verdict.confidence
    if worst is Confidence.LOW:
        return Confidence.LOW, f"{say.listed(reasons)}; the verdict has low confidence"
    if situation.is_cut_off:
        return (
            Confidence.MEDIUM,
            f"{say.listed(reasons)}; the timeout cut checkpoints off, so their full duration is not known",
        )
    if readings < _SURE_READINGS:
        return Confidence.MEDIUM, f"{say.listed(reasons)}: few readings"
    return worst, say.listed(reasons)
