"""Stores each piece of advice on a job as a card, and follows the card until the effect of the change is measured.

A loop in the API's process updates the cards, and so does every request for a job's advice. Therefore shown advice is
never older than the verdict next to it, and the cards of jobs that nobody requests are updated too. The loop and the
requests lock a job's cards before they update them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.advisor import lifecycle
from backend.advisor.advice import UNITS, Change, HowTo, Interval, Recommendation, Setting, recommendation_id
from backend.advisor.exporting import exports_of
from backend.advisor.lifecycle import Card, Observed, SentRollBack, Step
from backend.analysis.measures.windows import Tally
from backend.contracts.advice import (
    CardOut,
    ChangeOut,
    ChosenByOut,
    DryRunOut,
    EffectOut,
    ExportOut,
    JobAdviceOut,
    LintOut,
    MeasuredOut,
    RecommendationOut,
    SettingOut,
    SilenceOut,
    WatchOut,
)
from backend.contracts.api import Page
from backend.domain.advice import AdviceOutcome, AdviceState, AdviceStep, Metric, Topic
from backend.domain.clock import Clock
from backend.domain.connection import Reach
from backend.domain.errors import ConflictError, StoreUnavailableError
from backend.domain.ids import JobId, RunId
from backend.domain.observation import JobState
from backend.services.advice import sending
from backend.services.advice.contents import CARDS_READ, content_of, document_of, is_reversible
from backend.services.advice.dry_runs import dry_run_of
from backend.services.advice.sending import CardSender
from backend.services.advice.undoing import AutoRollBack
from backend.services.jobs.analysed import AnalysedJobs
from backend.services.jobs.evidence import EvidenceReader, JobCase, RecalledJob, case_now
from backend.services.jobs.freshness import freshness_now
from backend.services.jobs.watched import WatchedJob
from backend.services.paging import decode_cursor, page_of
from backend.services.targets.changing import ChangeSettings, JobChanger
from backend.store.advice import cards as store
from backend.store.advice.cards import CardEvent, CardRecord
from backend.store.jobs.reader import JobRecord, get_job
from backend.store.postgres.connections import reading, writing

_GIVEN_EVERY = timedelta(minutes=1)
# Cards in these states are always shown. Of verified and rolled-back cards, only the newest one of each topic is
# shown.
_SHOWN = (AdviceState.NEW, AdviceState.ACCEPTED, AdviceState.APPLIED, AdviceState.REGRESSED)
# A what-if that was accepted waits this long for the engine to report its settings.
_WHAT_IF_LASTS = timedelta(days=1)
_AWAITED = "accepted; waiting for the engine to report the settings"
# The states of a card for which something may have been sent. What was sent is read from its history.
_MAYBE_SENT = frozenset(s for s in AdviceState if s.is_in_force or s in (AdviceState.ACCEPTED, AdviceState.ROLLED_BACK))


class AdviceService:
    """Handles requests about advice, and keeps the cards of all jobs up to date. Each process has one instance."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        evidence: EvidenceReader,
        limits: Reach,
        change: ChangeSettings | None,
        token: str | None = None,
        jobs: AnalysedJobs | None = None,
        *,
        auto_roll_back: bool = False,
    ) -> None:
        """``token`` authorises changes to the built-in runtime. It is sent to no other target.

        A change that this service sent is rolled back if the checkpoints are worse after it, and if ``auto_roll_back``
        or the person who applied it asked for this.
        """
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._changer = JobChanger(engine, limits, change, token)
        self._jobs = jobs or AnalysedJobs(clock, evidence)
        self._sender = CardSender(engine, clock, self._changer)
        self._undoing = AutoRollBack(engine, clock, self._sender, is_always_on=auto_roll_back)
        self._is_always_guarded = auto_roll_back
        # The version of each job whose cards are up to date, and when they were last updated.
        self._done: dict[JobId, tuple[int, datetime]] = {}

    async def of_job(self, job_id: str) -> JobAdviceOut:
        """Return the current recommendations for a job, and the reason for each topic without a recommendation.

        Raises:
            UnknownEntityError: there is no such job.
        """
        case = await self._case(job_id)
        # If the cards cannot be written, for example on a full disk, the stored ones are shown.
        with contextlib.suppress(StoreUnavailableError):
            await self._keep(case)
        async with reading(self._engine) as connection:
            cards = await store.list_cards(connection, job_id, limit=CARDS_READ)
            shown = _shown(cards)
            events = await store.events_of(connection, [c.id for c in shown])
            now = self._clock.now()
            dated = await freshness_now(connection, case.record, now)
        advice = case.finding.advice
        topics = {c.topic for c in shown if c.state.is_open}
        return JobAdviceOut(
            job=case.record.name,
            job_id=case.record.id,
            freshness=dated,
            as_of=now,
            considered_count=advice.considered_count,
            cards=[self._out(c, events.get(c.id, ()), case.record, case) for c in shown],
            silences=[SilenceOut.model_validate(s) for s in advice.silences if s.topic not in topics],
            lints=[LintOut.model_validate(lint) for lint in advice.lints],
            chosen_by=None if advice.chosen_by is None else ChosenByOut.model_validate(advice.chosen_by),
        )

    async def history(self, job_id: str, *, cursor: str | None, limit: int) -> Page[CardOut]:
        """Return one page of a job's cards in any state, newest first.

        Raises:
            UnknownEntityError: there is no such job.
            InvalidInputError: the cursor does not belong to this list.
        """
        before = cast("tuple[datetime, str] | None", decode_cursor(cursor, (datetime, str)))
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            cards = await store.list_cards(connection, job_id, before=before, limit=limit + 1)
            items, following = page_of(cards, limit, lambda c: (c.created_at, c.id))
            events = await store.events_of(connection, [c.id for c in items])
        found = [self._out(c, events.get(c.id, ()), record) for c in items]
        return Page[CardOut](items=found, next=following, as_of=self._clock.now())

    async def card(self, job_id: str, card_id: str) -> CardOut:
        """Return one card.

        Raises:
            UnknownEntityError: there is no such job or card.
        """
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            events = await store.events_of(connection, [card_id])
            (case,) = await self._evidence.cases(connection, [record]) if card.state.is_in_force else (None,)
        return self._out(card, events.get(card_id, ()), record, case)

    async def accept(self, job_id: str, card_id: str, *, author: str | None = None) -> CardOut:
        """Mark a card as accepted, which means that a person intends to make the change. ``author`` is the person.

        Raises:
            UnknownEntityError: there is no such job or card.
            ConflictError: the card is already decided.
        """
        return await self._decide(job_id, card_id, AdviceState.ACCEPTED, _AWAITED, author)

    async def dismiss(self, job_id: str, card_id: str, reason: str, *, author: str | None = None) -> CardOut:
        """Mark a card as dismissed, because a person does not want the change. Raises the same errors as ``accept``."""
        return await self._decide(job_id, card_id, AdviceState.DISMISSED, reason.strip(), author)

    async def apply(self, job_id: str, card_id: str, *, is_guarded: bool = False, author: str | None = None) -> CardOut:
        """Make the change on the running target, if its engine can change settings of a running job.

        If ``is_guarded``, the change is rolled back by itself if the checkpoints are worse after it.

        Raises:
            UnknownEntityError: there is no such job or card.
            ConflictError: the card is already decided, its change was sent in the last minutes, it needs a restart,
                which only a person can do, the target refuses it, or this process cannot change settings.
            InvalidInputError: the target's address is no longer allowed, or the target refuses the values.
            TargetUnavailableError: the target does not respond.
            TargetProtocolError: the target's response is malformed.
        """
        record, card, events = await self._record_and_card(job_id, card_id)
        sending.must_be_open(card, events, self._clock.now())
        if not _can_send(record, content_of(card)[0]):
            text = f"{record.run.engine.name} takes these settings when the job starts: change them and restart it"
            raise ConflictError(text, kind="restart-needed")
        await self._sender.apply(record.run, job_id, card_id, is_guarded=is_guarded, author=author)
        return await self.card(job_id, card_id)

    async def roll_back(self, job_id: str, card_id: str, *, author: str | None = None) -> CardOut:
        """Undo an applied change on the running target. The card stays applied until the engine reports the values.

        Raises:
            ConflictError: the change is not in force, its values before are not known, it needs a restart, a roll
                back was sent in the last minutes, or the target refuses it.
            UnknownEntityError, InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``apply``.
        """
        record, card, events = await self._record_and_card(job_id, card_id)
        sending.must_be_in_force(card, events, self._clock.now())
        if not is_reversible(record, content_of(card)[0]):
            text = f"{record.run.engine.name} takes these settings when the job starts: undo them and restart it"
            raise ConflictError(text, kind="restart-needed")
        await self._sender.roll_back(record.run, job_id, card_id, author=author)
        return await self.card(job_id, card_id)

    async def dry_run(self, job_id: str, card_id: str, *, is_roll_back: bool = False) -> DryRunOut:
        """Return what ``apply``, or ``roll_back``, would send now, and why it would be refused. Nothing changes.

        Raises:
            UnknownEntityError: there is no such job or card, or its target was removed.
        """
        record, card, events = await self._record_and_card(job_id, card_id)
        advice, _ = content_of(card)
        refusals: list[str] = []
        try:
            check = sending.must_be_in_force if is_roll_back else sending.must_be_open
            check(card, events, self._clock.now())
        except ConflictError as error:
            refusals.append(str(error))
        can_send = is_reversible(record, advice) if is_roll_back else _can_send(record, advice)
        if not can_send:
            refusals.append(f"{record.run.engine.name} takes these settings when the job starts")
        patch = advice.how_to.rollback_patch if is_roll_back else advice.how_to.patch
        return await dry_run_of(self._changer, record, patch, advice.changes, refusals, self._clock.now())

    async def dry_run_what_if(
        self, record: JobRecord, how_to: HowTo, changes: Sequence[Change], refusals: Sequence[str]
    ) -> DryRunOut:
        """Return what making the change of a what-if would send now, and why it would be refused. Nothing changes.

        Raises:
            UnknownEntityError: the target was removed.
        """
        shown = [ChangeOut.model_validate(c) for c in changes]
        return await dry_run_of(self._changer, record, how_to.patch, shown, refusals, self._clock.now())

    async def open_proposals(self, job_id: str) -> list[tuple[Topic, Setting]]:
        """Return the topic and the proposed settings of each open recommendation for a job."""
        async with reading(self._engine) as connection:
            cards = await store.list_cards(connection, job_id, limit=CARDS_READ)
        return [(c.topic, _setting(c.document["proposed"])) for c in cards if c.state.is_open]

    async def keep_what_if(
        self,
        record: JobRecord,
        advice: Recommendation,
        *,
        is_sent: bool,
        is_guarded: bool = False,
        author: str | None = None,
    ) -> CardOut:
        """Keep a what-if that a person chose as an accepted card. If ``is_sent``, make its change on the target.

        An earlier what-if that is not applied yet is dismissed. So is this one if the target refuses it.

        Raises:
            ConflictError, InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``apply``.
        """
        now = self._clock.now()
        step = AdviceStep.GUARDED_APPLY if is_guarded else AdviceStep.APPLY
        async with writing(self._engine) as connection:
            await store.lock_job(connection, record.id)
            for old in await store.list_cards(connection, record.id, limit=CARDS_READ):
                if old.topic is Topic.WHAT_IF and old.state.is_open:
                    reason = "replaced by another what-if"
                    await store.move_card(connection, old, AdviceState.DISMISSED, reason, now, author=author)
            card = _new_card(record, advice, now, AdviceState.ACCEPTED, sending.SENDING if is_sent else _AWAITED)
            awaited = AdviceOutcome.AWAITED if is_sent else None
            kind = step if is_sent else AdviceStep.STATE
            await store.add_card(connection, card, kind, outcome=awaited, author=author)
        if is_sent:
            dismissed = AdviceState.DISMISSED
            await self._sender.send_noted(record.run, record.id, card.id, advice.how_to.patch, before=dismissed)
        return await self.card(record.id, card.id)

    def _out(
        self, card: CardRecord, events: Sequence[CardEvent], record: JobRecord, case: JobCase | None = None
    ) -> CardOut:
        """Convert a card to the API's shape. How far its change was watched is known only with ``case``."""
        now = self._clock.now()
        watched = None if case is None else lifecycle.watched(_values_of(card, events), _observed(case, now))
        watch = None if watched is None else WatchOut.model_validate(watched)
        out = _card_out(card, events, record, now, is_always_guarded=self._is_always_guarded)
        return out.model_copy(update={"watch": watch})

    async def _record_and_card(self, job_id: str, card_id: str) -> tuple[JobRecord, CardRecord, Sequence[CardEvent]]:
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            return record, card, (await store.events_of(connection, [card_id])).get(card_id, ())

    async def keep_all(self) -> bool:
        """Update the cards of watched jobs. Return whether some jobs are left for the next call.

        The cards of a job are updated if the job has changed. Cards that can still change by themselves are also
        updated once a minute.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            jobs, _ = await self._jobs.refresh(connection)
            followed = await store.followed_jobs(connection)
        for job_id, version, case in _judged(jobs, now):
            done = self._done.get(job_id)
            is_changed = done is None or done[0] != version
            has_cards = job_id in followed
            is_due = has_cards and (done is None or now - done[1] >= _GIVEN_EVERY)
            if is_due or (is_changed and (has_cards or case.finding.advice.recommendations)):
                kept = await self._keep(case)
                await self._undoing.follow(case.record, kept)
                self._done[job_id] = version, now
            elif is_changed:
                self._done[job_id] = version, now
        known = {w.job.record.id for w in jobs}
        self._done = {job_id: done for job_id, done in self._done.items() if job_id in known}
        return self._jobs.is_behind

    async def _case(self, job_id: str) -> JobCase:
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            (case,) = await self._evidence.cases(connection, [record])
        return case

    async def _keep(self, case: JobCase) -> list[CardRecord]:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, case.record.id)
            cards = await store.list_cards(connection, case.record.id, limit=CARDS_READ)
            sent = [c.id for c in cards if c.state in _MAYBE_SENT]
            events = await store.events_of(connection, sent) if sent else {}
            kept = [await self._follow(connection, case, card, events.get(card.id, ())) for card in cards]
            if case.record.run.state is not JobState.ENDED:
                for advice in case.finding.advice.recommendations:
                    await self._give(connection, case, advice, kept, events)
        return kept

    async def _follow(
        self, connection: AsyncConnection, case: JobCase, card: CardRecord, events: Sequence[CardEvent]
    ) -> CardRecord:
        card = await _with_outcome(connection, card, events, self._clock.now())
        advice = case.finding.advice
        silence = next((s.reason for s in advice.silences if s.topic is card.topic), "the rules advise another change")
        why_not = f"the rules no longer give it: {silence}"
        is_given = any(r.kind == card.kind for r in advice.recommendations)
        if card.topic is Topic.WHAT_IF:
            # A person chose it, so no rule gives it. A restart of the job may take a person some time.
            is_given = self._clock.now() - card.created_at < _WHAT_IF_LASTS
            why_not = "the engine did not report the settings within a day"
        if case.record.run.state is JobState.ENDED and card.state is AdviceState.NEW:
            # After the end of the job, the numbers of this card are not computed again. If the job starts again, it
            # gets a new card.
            is_given, why_not = False, "the rules no longer give it: the job ended"
        seen = _observed(case, self._clock.now(), is_given=is_given, why_not=why_not)
        step = lifecycle.next_step(_values_of(card, events), seen)
        if step is None:
            return card
        return await store.move_card(
            connection,
            card,
            step.state,
            step.reason,
            step.at,
            applied_at=step.at if step.state is AdviceState.APPLIED else None,
            measured=_measured_document(step, case.record.run.id),
        )

    async def _give(
        self,
        connection: AsyncConnection,
        case: JobCase,
        advice: Recommendation,
        cards: Sequence[CardRecord],
        events: Mapping[str, Sequence[CardEvent]],
    ) -> None:
        now = self._clock.now()
        there = next((c for c in cards if c.topic is advice.topic and c.state.is_open), None)
        if there is not None:
            await _refresh(connection, there, advice, now)
            return
        if any(_keeps_out(card, events.get(card.id, ()), advice, now) for card in cards):
            return
        reason = "given by the rules" if advice.chosen_by is None else "chosen by the fast simulation"
        await store.add_card(connection, _new_card(case.record, advice, now, AdviceState.NEW, reason))

    async def _decide(self, job_id: str, card_id: str, state: AdviceState, reason: str, author: str | None) -> CardOut:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, job_id)
            record = await get_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            events = await store.events_of(connection, [card_id])
            sending.must_be_open(card, events.get(card_id, ()), self._clock.now())
            moved = await store.move_card(connection, card, state, reason, self._clock.now(), author=author)
            events = await store.events_of(connection, [card_id])
        return self._out(moved, events.get(card_id, ()), record)


def _judged(jobs: Iterable[WatchedJob[RecalledJob]], now: datetime) -> Iterator[tuple[JobId, int, JobCase]]:
    """Yield the jobs with a finding that holds, each with its version."""
    for watched in jobs:
        job = watched.job
        if job.finding is not None and job.is_current:
            case = JobCase(job.record, job.shape, job.headers, job.open_checkpoint, job.finding)
            yield job.record.id, watched.version, case_now(case, now)


def _new_card(record: JobRecord, advice: Recommendation, now: datetime, state: AdviceState, reason: str) -> CardRecord:
    return CardRecord(
        id=recommendation_id(record.id, advice.kind, now),
        job_id=record.id,
        run_id=record.run.id,
        topic=advice.topic,
        kind=advice.kind,
        state=state,
        state_reason=reason,
        created_at=now,
        changed_at=now,
        last_given_at=now,
        applied_at=None,
        document=document_of(advice, now),
        measured=None,
    )


def _observed(case: JobCase, now: datetime, *, is_given: bool = True, why_not: str = "") -> Observed:
    settings = case.finding.settings
    headers = (h.header for h in case.headers)
    return Observed(
        now=now,
        config=case.shape.config,
        settings_since=None if settings is None else settings.seen_at,
        checkpoints=[h for h in headers if settings is None or h.triggered_at >= settings.first_trigger_at],
        is_given=is_given,
        why_not=why_not,
        parallelism={v.id: v.parallelism for v in case.shape.topology.vertices},
    )


async def _with_outcome(
    connection: AsyncConnection, card: CardRecord, events: Sequence[CardEvent], now: datetime
) -> CardRecord:
    """Record that a request of a process that has ended has no outcome. Automatic roll backs are sent again instead."""
    cut = sending.without_outcome(events, now)
    if cut is None or cut.kind is AdviceStep.AUTO_ROLL_BACK:
        return card
    cut_short = AdviceOutcome.CUT_SHORT
    return await store.note_step(connection, card, sending.CUT_SHORT, now, AdviceStep.STATE, outcome=cut_short)


def _shown(cards: Sequence[CardRecord]) -> list[CardRecord]:
    ranks = {topic: rank for rank, topic in enumerate(Topic)}
    records = sorted((c for c in cards if c.state in _SHOWN), key=lambda c: ranks[c.topic])
    topics: set[Topic] = {c.topic for c in records if c.state is AdviceState.APPLIED}
    for card in cards:
        if card.state in (AdviceState.VERIFIED, AdviceState.ROLLED_BACK) and card.topic not in topics:
            topics.add(card.topic)
            records.append(card)
    return records


async def _refresh(connection: AsyncConnection, card: CardRecord, advice: Recommendation, now: datetime) -> None:
    """Record that the rules still give the advice of this open card: once a minute, or if the proposal has changed.

    If the card is in the state ``NEW``, its content is replaced too. Once a person has accepted the card, its content
    stays.
    """
    if card.kind != advice.kind:
        return
    is_other = card.state is AdviceState.NEW and _setting(card.document["proposed"]) != advice.proposed
    if is_other or now - card.last_given_at >= _GIVEN_EVERY:
        document = document_of(advice, now) if card.state is AdviceState.NEW else None
        await store.refresh_card(connection, card.id, now, document)


def _keeps_out(card: CardRecord, events: Sequence[CardEvent], advice: Recommendation, now: datetime) -> bool:
    # Until an applied change is measured, the advisor makes no other recommendation on its topic.
    if card.topic is advice.topic and card.state is AdviceState.APPLIED:
        return True
    if card.kind != advice.kind:
        return False
    # A roll back by a person is no judgement: only a change that made the checkpoints worse is not advised again.
    if card.state is AdviceState.ROLLED_BACK and not any(e.state is AdviceState.REGRESSED for e in events):
        return False
    return lifecycle.is_suppressed(card.state, card.changed_at, _setting(card.document["current"]), advice.current, now)


def _values_of(card: CardRecord, events: Sequence[CardEvent]) -> Card:
    advice, _ = content_of(card)
    expired = next((e.before for e in advice.expected if e.metric is Metric.EXPIRED), None)
    durations = [e.before_values for e in advice.expected if e.metric is Metric.DURATION]
    before_ms = tuple(ms for values in durations for ms in values if ms is not None)
    failed_count = None if expired is None else round(expired * len(before_ms))
    return Card(
        state=card.state,
        created_at=card.created_at,
        last_given_at=card.last_given_at,
        applied_at=card.applied_at,
        current=_setting(card.document["current"]),
        proposed=_setting(card.document["proposed"]),
        expected=tuple(
            (e.metric, Interval(e.predicted.value, e.predicted.low, e.predicted.high)) for e in advice.expected
        ),
        before_ms=before_ms,
        before=None if failed_count is None else Tally(len(before_ms) - failed_count, failed_count),
        measured_count=0 if card.measured is None else len(card.measured["ids"]),
        roll_back=_roll_back_of(events),
    )


def _roll_back_of(events: Sequence[CardEvent]) -> SentRollBack | None:
    """Return the last roll back that was sent; None if there was none, or if the target refused it."""
    sent = sending.last_sent(events, is_roll_back=True)
    if sent is None or sent.is_refused:
        return None
    is_automatic = sent.kind is AdviceStep.AUTO_ROLL_BACK
    return SentRollBack(is_automatic, sending.why_automatic(sent.reason) if is_automatic else "")


def _setting(document: Mapping[str, object]) -> Setting:
    return Setting(**SettingOut.model_validate(document).model_dump())


def _changes(advice: RecommendationOut) -> list[Change]:
    return [Change(change.key, change.current, change.proposed) for change in advice.changes]


def _measured_document(step: Step, run_id: RunId) -> Mapping[str, object] | None:
    if not step.checkpoint_ids:
        return None
    rows = [MeasuredOut.of(m, unit=UNITS[m.metric]).model_dump(mode="json") for m in step.measured]
    # A change that needs a restart is measured on a later run than that of the card.
    moved = None if step.effect is None else EffectOut.model_validate(step.effect).model_dump(mode="json")
    return {"rows": rows, "ids": list(step.checkpoint_ids), "run": run_id, "effect": moved}


def _can_send(record: JobRecord, advice: RecommendationOut) -> bool:
    run = record.run
    is_able = run.state is not JobState.ENDED and run.engine.can_apply_settings_live
    return is_able and bool(advice.how_to.patch)


def _card_out(
    card: CardRecord, events: Sequence[CardEvent], record: JobRecord, now: datetime, *, is_always_guarded: bool
) -> CardOut:
    advice, computed_at = content_of(card)
    measured = card.measured or {"rows": [], "ids": []}
    is_applying = sending.is_applying(card, events, now)
    is_undoing = sending.is_rolling_back(card, events, now)
    applied = sending.last_sent(events, is_roll_back=False)
    return CardOut.of(
        card,
        updated_at=card.changed_at,
        computed_at=computed_at,
        can_apply=card.state.is_open and not is_applying and _can_send(record, advice),
        is_applying=is_applying,
        is_guarded=sending.is_guarded(events) or (is_always_guarded and applied is not None and not applied.is_refused),
        can_roll_back=card.state.is_in_force and not is_undoing and is_reversible(record, advice),
        is_rolling_back=is_undoing,
        recommendation=advice,
        exports=tuple(ExportOut.model_validate(e) for e in exports_of(record.run.engine, _changes(advice))),
        measured=tuple(MeasuredOut.model_validate(row) for row in measured["rows"]),
        effect=measured.get("effect"),
        measured_ids=tuple(measured["ids"]),
        # Results that were stored before this field existed do not name the run.
        measured_run_id=measured.get("run", card.run_id) if measured["ids"] else None,
        history=tuple(events),
    )
