"""Returns incidents in the API's shape, and records what people do with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, cast

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.alerting.lifecycle import Alert, summary_of
from backend.alerting.payloads import Links
from backend.contracts import api
from backend.contracts import incidents as wire
from backend.contracts.freshness import FreshnessOut
from backend.domain.advice import OUTCOME_WORDS, THE_SERVICE, AdviceState, AdviceStep, author_words
from backend.domain.clock import Clock
from backend.domain.errors import ConflictError, UnknownEntityError
from backend.services.alerts.actions import actions_of, with_actions
from backend.services.alerts.episodes import ATTEMPTS_MAX, alert_fields, alert_values, delivery_fields
from backend.services.alerts.freshness import AlertFreshness
from backend.services.paging import decode_cursor, page_of
from backend.services.presenting import API_ROOT
from backend.store.advice.cards import CardEvent, list_cards
from backend.store.advice.cards import events_of as events_of_cards
from backend.store.alerts import incidents as stored
from backend.store.alerts.deliveries import attempts_of, deliveries_of_alerts
from backend.store.alerts.episodes import alerts_of_incidents, events_of, get_alerts
from backend.store.alerts.incidents import Grouping, IncidentFilter, IncidentRecord, NoteKind
from backend.store.alerts.silences import Silence, silences_at
from backend.store.jobs.annotations import list_annotations
from backend.store.jobs.reader import get_job, list_events
from backend.store.postgres.connections import reading, writing

_ALERTS_MAX: Final = 100
COMMENTS_MAX: Final = 200
"""The largest number of comments on one incident."""
_CLAIMS_KEPT: Final = 100
# An incident is acknowledged once.
_NOTES_MAX: Final = COMMENTS_MAX + _CLAIMS_KEPT + 1
_CHANGES_MAX: Final = 20
_CARDS_MAX: Final = 20
_CHANGED_WITHIN: Final = timedelta(hours=24)
# The largest number of open alerts that are read to count the silenced ones of one page of the list.
_OPEN_MAX: Final = 10_000
# The states of a recommendation that mark a change of the job, or what came of it. The others only record an opinion.
_ADVICE_CHANGES: Final = frozenset(
    {AdviceState.ACCEPTED, AdviceState.ROLLED_BACK, *(s for s in AdviceState if s.is_in_force)}
)
# A change that heals a job ends its incident. What was then measured belongs to this incident too, for so long.
_FOLLOWED_FOR: Final = timedelta(hours=24)


_Change = tuple[datetime, str, str]
"""When, the kind of the change, and its text."""


class IncidentService:
    """Handles requests for incidents."""

    def __init__(self, engine: AsyncEngine, clock: Clock, links: Links) -> None:
        self._engine = engine
        self._clock = clock
        self._links = links

    async def page(
        self, wanted: IncidentFilter, *, grouping: Grouping | None, cursor: str | None, limit: int
    ) -> api.Page[wire.IncidentOut]:
        """Return one page of incidents, sorted by group, urgency and beginning.

        An incident that ends while a client reads the pages moves towards the end of the list, so it may appear twice.

        Raises:
            InvalidInputError: the cursor does not belong to this list.
        """
        after = cast(stored.Position | None, decode_cursor(cursor, (str, int, datetime, str)))
        now = self._clock.now()
        async with reading(self._engine) as connection:
            incidents = await stored.list_incidents(connection, wanted, grouping=grouping, after=after, limit=limit + 1)
            items, following = page_of(incidents, limit, lambda i: (i.group, i.rank, i.began_at, i.id))
            shown = await self._shown(connection, items, now)
        return api.Page[wire.IncidentOut](items=shown, next=following, as_of=now)

    async def detail(self, incident_id: str) -> wire.IncidentDetailOut:
        """Return one incident with its alerts, messages, notes and changes.

        Raises:
            UnknownEntityError: there is no incident with this id.
        """
        now = self._clock.now()
        async with reading(self._engine) as connection:
            record = await stored.get_incident(connection, incident_id)
            (shown,) = await self._shown(connection, [record], now)
            stored_alerts = await alerts_of_incidents(connection, [incident_id], limit=_ALERTS_MAX)
            alerts = list((await with_actions(connection, {a.id: a for a in stored_alerts})).values())
            dates = await AlertFreshness.read(connection, (a.identity.job_id for a in alerts), now)
            lead = await _lead(connection, record, alerts)
            silences = await silences_at(connection, now)
            events = await events_of(connection, [a.id for a in alerts])
            sent = await deliveries_of_alerts(connection, [a.id for a in alerts])
            attempts = await attempts_of(connection, [d.id for d in sent], limit=ATTEMPTS_MAX)
            notes = await stored.notes_of(connection, incident_id, limit=_NOTES_MAX)
            changes = await _changes(connection, record, now)
            actions = await actions_of(connection, [record.job_id]) if record.ended_at is None else {}
        rules: dict[str, str] = {a.id: a.identity.rule for a in alerts}
        texts: Mapping[str, str] = {} if lead is None else lead.reading.annotations
        return wire.IncidentDetailOut.of(
            shown,
            description=texts.get("description", shown.headline),
            action=actions.get(record.job_id or ""),
            alerts=[
                wire.IncidentAlertOut.of(
                    *alert_values(a),
                    **alert_fields(a, silences, dates, self._links, now),
                    events=events.get(a.id, []),
                )
                for a in alerts
            ],
            deliveries=[
                wire.IncidentDeliveryOut.of(d, **delivery_fields(d, attempts.get(d.id, [])), rule=rules[d.alert_id])
                for d in reversed(sent)
            ],
            notes=notes,
            changes=changes,
            as_of=now,
        )

    # --- actions --------------------------------------------------------------------------------------------------

    async def acknowledge(self, incident_id: str, author: str) -> wire.IncidentOut:
        """Record that somebody has seen the incident. If it is acknowledged already, nothing changes.

        Raises:
            UnknownEntityError: there is no incident with this id.
            ConflictError: the incident is over.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            record = await self._open_one(connection, incident_id)
            if record.acknowledged_at is None:
                await stored.acknowledge(connection, incident_id, author, now)
                await stored.add_note(
                    connection, incident_id, at=now, author=author, kind=NoteKind.ACKNOWLEDGED, text=""
                )
            return await self._one(connection, incident_id, now)

    async def claim(
        self, incident_id: str, author: str, *, is_taking_over: bool, claimed_by: str | None
    ) -> wire.IncidentOut:
        """Record that somebody works on the incident.

        ``claimed_by`` is who had the incident when the caller last read it, or None if the caller does not state it.

        Raises:
            UnknownEntityError: there is no incident with this id.
            ConflictError: the incident is over; or somebody else has it, and ``is_taking_over`` is False or
                ``claimed_by`` is a third person.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            record = await self._open_one(connection, incident_id)
            before = record.claimed_by
            is_agreed = is_taking_over and claimed_by in (None, before)
            if before not in (None, author) and not is_agreed:
                raise ConflictError(f"{before} has taken this incident", kind="incident-claimed")
            if before != author:
                text = "" if before is None else f"taken over from {before}"
                await stored.claim(connection, incident_id, author, now)
                await stored.add_note(connection, incident_id, at=now, author=author, kind=NoteKind.CLAIMED, text=text)
                await stored.drop_old_claims(connection, incident_id, kept=_CLAIMS_KEPT)
            return await self._one(connection, incident_id, now)

    async def release(self, incident_id: str, author: str) -> wire.IncidentOut:
        """Record that nobody works on the incident any longer. If nobody does, nothing changes.

        Raises:
            UnknownEntityError: there is no incident with this id.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            record = await stored.get_incident(connection, incident_id, is_locked=True)
            if record.claimed_by is not None:
                await stored.claim(connection, incident_id, None, now)
                text = "" if record.claimed_by == author else f"was taken by {record.claimed_by}"
                await stored.add_note(connection, incident_id, at=now, author=author, kind=NoteKind.RELEASED, text=text)
                await stored.drop_old_claims(connection, incident_id, kept=_CLAIMS_KEPT)
            return await self._one(connection, incident_id, now)

    async def comment(self, incident_id: str, author: str, text: str) -> wire.IncidentNoteOut:
        """Add a comment. An incident that is over accepts comments too.

        Raises:
            UnknownEntityError: there is no incident with this id.
            ConflictError: the incident has ``COMMENTS_MAX`` comments.
        """
        now = self._clock.now()
        async with writing(self._engine) as connection:
            # The lock makes other comments wait, so that the number stays within its limit.
            await stored.get_incident(connection, incident_id, is_locked=True)
            if (await stored.comment_counts(connection, [incident_id])).get(incident_id, 0) >= COMMENTS_MAX:
                raise ConflictError(f"an incident has at most {COMMENTS_MAX} comments", kind="too-many-comments")
            note = await stored.add_note(
                connection, incident_id, at=now, author=author, kind=NoteKind.COMMENT, text=text
            )
        return wire.IncidentNoteOut.model_validate(note)

    async def _open_one(self, connection: AsyncConnection, incident_id: str) -> IncidentRecord:
        record = await stored.get_incident(connection, incident_id, is_locked=True)
        if record.ended_at is not None:
            raise ConflictError("this incident is over; comments can still be added", kind="incident-closed")
        return record

    async def _one(self, connection: AsyncConnection, incident_id: str, now: datetime) -> wire.IncidentOut:
        (shown,) = await self._shown(connection, [await stored.get_incident(connection, incident_id)], now)
        return shown

    async def _shown(
        self, connection: AsyncConnection, records: Sequence[IncidentRecord], now: datetime
    ) -> list[wire.IncidentOut]:
        ids = [r.id for r in records]
        leads = await get_alerts(connection, [r.lead_alert_id for r in records if r.lead_alert_id is not None])
        silences = await silences_at(connection, now)
        opened = [r.id for r in records if r.open_count] if silences else []
        found = await alerts_of_incidents(connection, opened, is_open=True, limit=_OPEN_MAX) if opened else []
        hidden = [a.incident_id for a in found if any(s.hides(a.identity.matched, now) for s in silences)]
        comments = await stored.comment_counts(connection, ids)
        dates = await AlertFreshness.read(connection, (r.job_id for r in records), now)
        notified: dict[str, list[stored.Notified]] = {}
        for message in await stored.notified_of(connection, ids):
            notified.setdefault(message.incident_id, []).append(message)
        return [
            wire.IncidentOut.of(
                r,
                **_texts(r, leads.get(r.lead_alert_id or "")),
                silenced_count=hidden.count(r.id),
                notified=notified.get(r.id, []),
                comment_count=comments.get(r.id, 0),
                freshness=_freshness(dates, r, leads.get(r.lead_alert_id or "")),
                link=f"{API_ROOT}/incidents/{r.id}",
                permalink=self._links.incident(r.id),
            )
            for r in records
        ]


def hidden_by(silence: Silence, opened: Sequence[Alert], now: datetime) -> wire.SilencePreviewOut:
    """Return what a silence would hide among the open alerts. The watchdog is not counted, because it always fires."""
    hidden = [a for a in opened if a.identity.severity != "none" and silence.hides(a.identity.matched, now)]
    return wire.SilencePreviewOut(
        alert_count=len(hidden),
        job_count=len({a.identity.job_id for a in hidden if a.identity.job_id is not None}),
        summaries=[summary_of(a) for a in hidden[:5]],
    )


def _freshness(dates: AlertFreshness, record: IncidentRecord, lead: Alert | None) -> FreshnessOut | None:
    evaluated_at = None if lead is None else lead.evaluated_at
    return dates.of(record.job_id, is_open=record.open_count > 0, evaluated_at=evaluated_at)


def _texts(record: IncidentRecord, lead: Alert | None) -> dict[str, object]:
    """Return the fields that describe the incident in words, from its leading episode if that is still stored."""
    if lead is None:
        return {"headline": ", ".join(record.rules) or record.id}
    texts = lead.reading.annotations
    places = {n: texts.get(n) for n in ("vertex", "subtasks", "hosts", "phase")}
    known = {n: None if value == "not known" else value for n, value in places.items()}
    return {"headline": summary_of(lead), "replay_debt": texts.get("replay_debt"), **known}


async def _lead(connection: AsyncConnection, record: IncidentRecord, alerts: Sequence[Alert]) -> Alert | None:
    alert = next((a for a in alerts if a.id == record.lead_alert_id), None)
    if alert is None and record.lead_alert_id is not None:
        alert = (await get_alerts(connection, [record.lead_alert_id])).get(record.lead_alert_id)
    return alert


async def _changes(connection: AsyncConnection, record: IncidentRecord, now: datetime) -> list[wire.IncidentChangeOut]:
    """Return the changes of the job from a day before the incident until its end, newest first.

    The changes before the incident and the changes during it have separate limits. With one limit, the many changes of
    a job that restarts again and again would displace the earlier change that caused them.
    """
    if record.job_id is None:
        return []
    try:
        job = await get_job(connection, record.job_id)
    except UnknownEntityError:
        return []
    offset = timedelta(milliseconds=job.clock_offset_ms or 0)
    until = record.ended_at or now
    cards = await _advice_changes(connection, record.job_id)
    advice = [step for steps in cards for step in steps]
    late = _measured_later(cards, record.began_at, until)
    changes: list[wire.IncidentChangeOut] = []
    for begin, end in ((record.began_at, until), (record.began_at - _CHANGED_WITHIN, record.began_at)):
        events = await list_events(connection, record.job_id, before=(end + offset, "", "", ""), limit=_CHANGES_MAX)
        noted = await list_annotations(
            connection, record.job_id, begin + offset, end + offset, before=None, limit=_CHANGES_MAX
        )
        found = [*advice, *((e.at - offset, e.kind.value, e.text) for e in events)]
        found += [(a.at, "annotation", a.text if a.author is None else f"{a.text} ({a.author})") for a in noted]
        changes += [
            wire.IncidentChangeOut(at=at, kind=kind, text=text, is_before=at < record.began_at)
            for at, kind, text in sorted((c for c in found if begin <= c[0] < end), reverse=True)[:_CHANGES_MAX]
        ]
    return [
        *(wire.IncidentChangeOut(at=at, kind=kind, text=text, is_before=False) for at, kind, text in late),
        *changes,
    ]


def _measured_later(cards: Sequence[Sequence[_Change]], begin: datetime, end: datetime) -> list[_Change]:
    """Return what became of the changes that were made during an incident after its end, newest first."""
    made = [steps for steps in cards if any(begin <= at < end for at, _, _ in steps)]
    steps_later = (step for steps in made for step in steps if end <= step[0] < end + _FOLLOWED_FOR)
    return sorted(steps_later, reverse=True)[:_CHANGES_MAX]


async def _advice_changes(connection: AsyncConnection, job_id: str) -> list[list[_Change]]:
    """Return, for each recommendation of a job, the steps that changed the job, and what was measured after them."""
    advice_changes = []
    cards = {c.id: c for c in await list_cards(connection, job_id, limit=_CARDS_MAX)}
    for card_id, steps in (await events_of_cards(connection, list(cards))).items():
        topic = cards[card_id].topic.value.replace("-", " ")
        advice_changes.append(
            [
                (s.at, "advice", f"{topic}: {word} ({_who(s)}). {s.reason}")
                for s in steps
                if (word := _word_of(s)) is not None
            ]
        )
    return advice_changes


def _who(step: CardEvent) -> str:
    """Return who took a step. The service only notes a state: who changed the settings is in the reason, if known."""
    is_noted = step.kind is AdviceStep.STATE and step.author == THE_SERVICE
    return f"noted by {THE_SERVICE}" if is_noted else author_words(step.author)


def _word_of(step: CardEvent) -> str | None:
    """Return the word for a step of a recommendation, or None if the step does not change the job."""
    if step.kind is AdviceStep.STATE and step.outcome is not None:
        return OUTCOME_WORDS[step.outcome]
    if step.kind.is_roll_back:
        return "automatic roll back" if step.kind is AdviceStep.AUTO_ROLL_BACK else "roll back"
    if step.kind.is_apply:
        return "change sent, with an automatic roll back" if step.kind is AdviceStep.GUARDED_APPLY else "change sent"
    return step.state.word().replace("-", " ") if step.state in _ADVICE_CHANGES else None
