"""Advice on jobs: derived with the verdict, kept as cards, and followed until checkpoints after a change measure it.

A loop in the API's process updates the cards, and so does every request for a job's advice. Therefore shown advice is
never older than the verdict next to it, and jobs without requests are followed too. Both take the job's lock first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol, cast
from urllib.parse import urlsplit

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.advisor import lifecycle
from backend.advisor.advice import UNITS, Interval, Recommendation, Setting, recommendation_id
from backend.advisor.lifecycle import Card, Observed, Step
from backend.contracts.advice import (
    CardOut,
    JobAdviceOut,
    MeasuredOut,
    RecommendationOut,
    SettingOut,
    SilenceOut,
)
from backend.contracts.api import Page
from backend.domain.advice import AdviceState, Topic
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError
from backend.domain.observation import JobState
from backend.domain.target import TargetOrigin
from backend.services.jobs.evidence import EvidenceReader, JobCase
from backend.services.paging import decode_cursor, page_of
from backend.services.targets.targets import TargetRules
from backend.store.advice import cards as store
from backend.store.advice.cards import CardEvent, CardRecord
from backend.store.jobs.reader import JobRecord, get_job, list_current
from backend.store.postgres.connections import reading, writing
from backend.store.targets.targets import TargetRepository

_CARDS_READ = 50
_REFRESH_EVERY = timedelta(minutes=10)
_GIVEN_EVERY = timedelta(minutes=1)
_PATCH_TIMEOUT_S = 8.0
# Cards that are always shown; of the verified and rolled-back ones, only the newest of a topic is.
_SHOWN = (AdviceState.NEW, AdviceState.ACCEPTED, AdviceState.APPLIED)


class ChangeSettings(Protocol):
    """Changes settings of the job that runs as ``engine_run_id`` on the target of ``kind`` at ``url``."""

    async def __call__(
        self,
        url: str,
        engine_run_id: str,
        settings: Mapping[str, str],
        timeout_s: float,
        token: str | None,
        *,
        kind: str,
    ) -> None:
        """Raise ``UpstreamError`` if the target does not make the change, ``ConflictError`` if its engine cannot."""
        ...


class AdviceService:
    """Answers requests about advice; one instance per process."""

    def __init__(
        self,
        engine: AsyncEngine,
        clock: Clock,
        evidence: EvidenceReader,
        rules: TargetRules,
        change: ChangeSettings | None,
        token: str | None = None,
    ) -> None:
        """``token`` authorises changes to the built-in runtime; no other target receives it."""
        self._engine = engine
        self._clock = clock
        self._evidence = evidence
        self._rules = rules
        self._change = change
        self._token = token

    async def of_job(self, job_id: str) -> JobAdviceOut:
        """Return the recommendations for a job now, and the reasons for topics without one.

        Raises:
            UnknownEntityError: there is no such job.

        """
        case = await self._case(job_id)
        await self._keep(case)
        async with reading(self._engine) as connection:
            cards = await store.list_cards(connection, job_id, limit=_CARDS_READ)
            shown = _shown(cards)
            events = await store.events_of(connection, [c.id for c in shown])
        advice = case.finding.advice
        topics = {c.topic for c in shown if c.state.is_open}
        return JobAdviceOut(
            job=case.record.name,
            job_id=case.record.id,
            as_of=self._clock.now(),
            considered_count=advice.considered_count,
            cards=[_card_out(c, events.get(c.id, ()), case.record) for c in shown],
            silences=[SilenceOut.model_validate(s) for s in advice.silences if s.topic not in topics],
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
        found = [_card_out(c, events.get(c.id, ()), record) for c in items]
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
        return _card_out(card, events.get(card_id, ()), record)

    async def accept(self, job_id: str, card_id: str) -> CardOut:
        """Mark a card as accepted: a person intends to make the change.

        Raises:
            UnknownEntityError: there is no such job or card.
            ConflictError: the card is already decided.

        """
        return await self._decide(
            job_id, card_id, AdviceState.ACCEPTED, "accepted; waiting for the engine to report it"
        )

    async def dismiss(self, job_id: str, card_id: str, reason: str) -> CardOut:
        """Mark a card as dismissed: the change is not wanted. Errors as ``accept``."""
        return await self._decide(job_id, card_id, AdviceState.DISMISSED, reason.strip())

    async def apply(self, job_id: str, card_id: str) -> CardOut:
        """Make the change on the running target, if its engine can change settings of a running job.

        Raises:
            UnknownEntityError: there is no such job or card.
            ConflictError: the card is already decided, or the change needs a restart, which only a person can do, or
                this process has no way to change settings.
            InvalidInputError: the target's address is no longer allowed, or the target refuses the values.
            TargetUnavailableError: the target does not answer.
            TargetProtocolError: the target's answer is malformed.

        """
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
        _must_be_open(card)
        advice = RecommendationOut.model_validate(card.document)
        if not _can_apply(card, record, advice):
            text = f"{record.run.engine.name} takes these settings when the job starts: change them and restart it"
            raise ConflictError(text, kind="restart-needed")
        target = await TargetRepository(self._engine).get(record.run.target_id)
        if target.origin is TargetOrigin.API:
            # Its address was allowed when it was added, but the allow-list may have changed since.
            self._rules.check(urlsplit(target.url).hostname or "")
        if self._change is None:
            raise ConflictError("this process cannot change the settings of targets", kind="apply-unavailable")
        # Only the built-in target's address comes from the configuration; another may belong to a third party.
        token = self._token if target.origin is TargetOrigin.BUILT_IN else None
        await self._change(
            target.url, record.run.engine_run_id, advice.how_to.patch, _PATCH_TIMEOUT_S, token, kind=target.kind
        )
        return await self._decide(
            job_id, card_id, AdviceState.ACCEPTED, "sent to the target; waiting for it to report the new settings"
        )

    async def keep_all(self) -> int:
        """Bring the cards of every watched job up to date; return the number of jobs."""
        async with reading(self._engine) as connection:
            records = await list_current(connection)
            cases = await self._evidence.cases(connection, records)
        for case in cases:
            await self._keep(case)
        return len(cases)

    async def _case(self, job_id: str) -> JobCase:
        async with reading(self._engine) as connection:
            record = await get_job(connection, job_id)
            (case,) = await self._evidence.cases(connection, [record])
        return case

    async def _keep(self, case: JobCase) -> None:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, case.record.id)
            cards = await store.list_cards(connection, case.record.id, limit=_CARDS_READ)
            kept = [await self._follow(connection, case, card) for card in cards]
            if case.record.run.state is not JobState.ENDED:
                for advice in case.finding.advice.recommendations:
                    await self._give(connection, case, advice, kept)

    async def _follow(self, connection: AsyncConnection, case: JobCase, card: CardRecord) -> CardRecord:
        advice = case.finding.advice
        silence = next((s.reason for s in advice.silences if s.topic is card.topic), "the rules advise another change")
        is_given = any(r.kind == card.kind for r in advice.recommendations)
        settings = case.finding.settings
        seen = Observed(
            now=self._clock.now(),
            config=case.shape.config,
            settings_since=None if settings is None else settings.seen_at,
            checkpoints=[
                h.header for h in case.headers if settings is None or h.header.triggered_at >= settings.first_trigger_at
            ],
            is_given=is_given,
            why_not=silence,
        )
        step = lifecycle.next_step(_values_of(card), seen)
        if step is None:
            return card
        return await store.move_card(
            connection,
            card,
            step.state,
            step.reason,
            step.at,
            applied_at=step.at if step.state is AdviceState.APPLIED else None,
            measured=_measured_document(step),
        )

    async def _give(
        self, connection: AsyncConnection, case: JobCase, advice: Recommendation, cards: Sequence[CardRecord]
    ) -> None:
        now = self._clock.now()
        there = next((c for c in cards if c.topic is advice.topic and c.state.is_open), None)
        if there is not None:
            await _refresh(connection, there, advice, now)
            return
        if any(_keeps_out(card, advice, now) for card in cards):
            return
        card = CardRecord(
            id=recommendation_id(case.record.id, advice.kind, now),
            job_id=case.record.id,
            run_id=case.record.run.id,
            topic=advice.topic,
            kind=advice.kind,
            state=AdviceState.NEW,
            state_reason="given by the rules",
            created_at=now,
            changed_at=now,
            last_given_at=now,
            applied_at=None,
            document=_document(advice),
            measured=None,
        )
        await store.add_card(connection, card)

    async def _decide(self, job_id: str, card_id: str, state: AdviceState, reason: str) -> CardOut:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, job_id)
            record = await get_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            _must_be_open(card)
            moved = await store.move_card(connection, card, state, reason, self._clock.now())
            events = await store.events_of(connection, [card_id])
        return _card_out(moved, events.get(card_id, ()), record)


def _must_be_open(card: CardRecord) -> None:
    if not card.state.is_open:
        raise ConflictError(f"it is already {card.state.value}: {card.state_reason}", kind="recommendation-decided")


def _shown(cards: Sequence[CardRecord]) -> list[CardRecord]:
    found = [c for c in cards if c.state in _SHOWN]
    told: set[Topic] = {c.topic for c in found if c.state is AdviceState.APPLIED}
    for card in cards:
        if card.state in (AdviceState.VERIFIED, AdviceState.ROLLED_BACK) and card.topic not in told:
            told.add(card.topic)
            found.append(card)
    return found


async def _refresh(connection: AsyncConnection, card: CardRecord, advice: Recommendation, now: datetime) -> None:
    """Record that the open card's advice was given again; while the card is new, also refresh its text at times."""
    if card.kind != advice.kind:
        return
    document = None
    if card.state is AdviceState.NEW:
        is_other = _setting(card.document["proposed"]) != advice.proposed
        if is_other or now - card.last_given_at >= _REFRESH_EVERY:
            document = _document(advice)
    if document is not None or now - card.last_given_at >= _GIVEN_EVERY:
        await store.refresh_card(connection, card.id, now, document)


def _keeps_out(card: CardRecord, advice: Recommendation, now: datetime) -> bool:
    # An applied change is measured before anything else is advised on its topic.
    if card.topic is advice.topic and card.state is AdviceState.APPLIED:
        return True
    if card.kind != advice.kind:
        return False
    return lifecycle.is_suppressed(card.state, card.changed_at, _setting(card.document["current"]), advice.current, now)


def _values_of(card: CardRecord) -> Card:
    told = RecommendationOut.model_validate(card.document)
    return Card(
        state=card.state,
        created_at=card.created_at,
        last_given_at=card.last_given_at,
        applied_at=card.applied_at,
        current=_setting(card.document["current"]),
        proposed=_setting(card.document["proposed"]),
        expected=tuple(
            (e.metric, Interval(e.predicted.value, e.predicted.low, e.predicted.high)) for e in told.expected
        ),
    )


def _setting(document: Mapping[str, object]) -> Setting:
    return Setting(**SettingOut.model_validate(document).model_dump())


def _document(advice: Recommendation) -> Mapping[str, object]:
    return RecommendationOut.model_validate(advice).model_dump(mode="json")


def _measured_document(step: Step) -> Mapping[str, object] | None:
    if not step.measured:
        return None
    rows = [MeasuredOut.of(m, unit=UNITS[m.metric]).model_dump(mode="json") for m in step.measured]
    return {"rows": rows, "ids": list(step.checkpoint_ids)}


def _can_apply(card: CardRecord, record: JobRecord, advice: RecommendationOut) -> bool:
    run = record.run
    is_able = run.state is not JobState.ENDED and run.engine.can_apply_settings_live
    return card.state.is_open and is_able and bool(advice.how_to.patch)


def _card_out(card: CardRecord, events: Sequence[CardEvent], record: JobRecord) -> CardOut:
    advice = RecommendationOut.model_validate(card.document)
    measured = card.measured or {"rows": [], "ids": []}
    return CardOut.of(
        card,
        updated_at=card.changed_at,
        can_apply=_can_apply(card, record, advice),
        recommendation=advice,
        measured=tuple(MeasuredOut.model_validate(row) for row in measured["rows"]),
        measured_ids=tuple(measured["ids"]),
        history=tuple(events),
    )
