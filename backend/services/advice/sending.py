"""Sends the change of a card to its target, or its roll back, and records both in the history of the card.

The history gets an entry before the request and one after it, which says what came of it. So a process that ends in
between leaves an entry without an outcome, and ``without_outcome`` finds it: nothing is forgotten. A request whose
outcome is not known may be sent again, because it sets the same values again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.advice import THE_SERVICE, AdviceOutcome, AdviceState, AdviceStep
from backend.domain.clock import Clock
from backend.domain.errors import BarrierscopeError, ConflictError, UpstreamError
from backend.services.advice.contents import content_of
from backend.services.targets.changing import JobChanger
from backend.store.advice import cards as store
from backend.store.advice.cards import CardEvent, CardRecord
from backend.store.jobs.reader import RunRecord
from backend.store.postgres.connections import writing

# If the engine has not reported the settings after this time, they can be sent again.
_REPORTED_WITHIN: Final = timedelta(minutes=5)
# A request ends within a few seconds, so an older entry without an outcome is that of a process that has ended.
_OUTCOME_WITHIN: Final = timedelta(minutes=1)
SENDING: Final = "sending the change to the target"
"""The reason of an entry that records that a change is sent."""
_SENT: Final = "sent to the target; waiting for it to report the new settings"
_SENDING_BACK: Final = "sending the roll back to the target"
_SENT_BACK: Final = "roll back sent to the target; waiting for it to report the earlier settings"
_REFUSED: Final = "refused, so nothing changed: "
_UNANSWERED: Final = "not answered, so the target may have taken it; if it did, it reports it soon: "
CUT_SHORT: Final = "Barrierscope ended while it sent this, so it is not known whether the target took it"
"""The reason of an entry after a request of a process that ended before it knew the outcome."""
_SENDING_BY_ITSELF: Final = "sending the automatic roll back: "
_BY_ITSELF_EARLIER: Final = "automatic roll back: "


@dataclass(frozen=True, slots=True)
class Sent:
    """The last request that was sent for a card: the change itself, or its roll back."""

    kind: AdviceStep
    at: datetime
    reason: str
    outcome: AdviceOutcome

    @property
    def is_refused(self) -> bool:
        """Whether the target did not take it."""
        return self.outcome is AdviceOutcome.REFUSED


def last_sent(events: Sequence[CardEvent], *, is_roll_back: bool) -> Sent | None:
    """Return the last change of a card that was sent, or the last roll back; None if there is none."""
    sent = None
    for n, event in enumerate(events):
        if event.kind.is_roll_back if is_roll_back else event.kind.is_apply:
            sent = Sent(event.kind, event.at, event.reason, _outcome_of(events, n))
    return sent


def _outcome_of(events: Sequence[CardEvent], n: int) -> AdviceOutcome:
    """Return what is known of the request that entry ``n`` records.

    An entry of an earlier version has no outcome, because it was written after the target had taken the request. If
    the engine reports the new settings before the answer is noted, the next entry has none.
    """
    own = events[n].outcome
    if own is not AdviceOutcome.AWAITED or n + 1 == len(events):
        return own or AdviceOutcome.SENT
    return events[n + 1].outcome or AdviceOutcome.SENT


def is_applying(card: CardRecord, events: Sequence[CardEvent], now: datetime) -> bool:
    """Return whether the change was sent lately, and the engine has not reported the new settings yet."""
    return card.state is AdviceState.ACCEPTED and _is_awaited(last_sent(events, is_roll_back=False), now)


def is_rolling_back(card: CardRecord, events: Sequence[CardEvent], now: datetime) -> bool:
    """Return whether a roll back was sent lately, and the engine has not reported the earlier settings yet."""
    return card.state.is_in_force and _is_awaited(last_sent(events, is_roll_back=True), now)


def is_guarded(events: Sequence[CardEvent]) -> bool:
    """Return whether a person asked that the change be rolled back by itself if the checkpoints are worse after it."""
    sent = last_sent(events, is_roll_back=False)
    return sent is not None and sent.kind is AdviceStep.GUARDED_APPLY and not sent.is_refused


def without_outcome(events: Sequence[CardEvent], now: datetime) -> CardEvent | None:
    """Return the last entry of a card, if it records a request of a process that ended before its outcome."""
    last = events[-1] if events else None
    if last is None or last.outcome is not AdviceOutcome.AWAITED:
        return None
    return last if now - last.at >= _OUTCOME_WITHIN else None


def why_automatic(reason: str) -> str:
    """Return why an automatic roll back was sent, from the reason of the entry that records it."""
    return reason.removeprefix(_SENDING_BY_ITSELF).removeprefix(_BY_ITSELF_EARLIER)


def may_repeat(events: Sequence[CardEvent], now: datetime) -> bool:
    """Return whether it is not known, a minute after the last roll back, whether the target took it."""
    sent = last_sent(events, is_roll_back=True)
    is_unknown = sent is not None and (sent.outcome.is_unsure or without_outcome(events, now) is not None)
    return sent is not None and is_unknown and now - sent.at >= _OUTCOME_WITHIN


def must_be_open(card: CardRecord, events: Sequence[CardEvent], now: datetime) -> None:
    """Raise ``ConflictError`` if a card is decided already, or if its change was sent lately."""
    if not card.state.is_open:
        raise ConflictError(f"it is already {card.state.value}: {card.state_reason}", kind="recommendation-decided")
    if is_applying(card, events, now):
        text = "the change was sent already; the engine has not reported the new settings yet"
        raise ConflictError(text, kind="apply-sent")


def must_be_in_force(card: CardRecord, events: Sequence[CardEvent], now: datetime) -> None:
    """Raise ``ConflictError`` if the change of a card is not in force, or if its roll back was sent lately."""
    if not card.state.is_in_force:
        raise ConflictError(f"it is {card.state.value}: {card.state_reason}", kind="recommendation-not-in-force")
    if is_rolling_back(card, events, now):
        text = "a roll back was sent already; the engine has not reported the earlier settings yet"
        raise ConflictError(text, kind="roll-back-sent")


def _is_awaited(sent: Sent | None, now: datetime) -> bool:
    if sent is None or sent.is_refused or sent.outcome.is_unsure:
        return False
    return now - sent.at < (_OUTCOME_WITHIN if sent.outcome is AdviceOutcome.AWAITED else _REPORTED_WITHIN)


class CardSender:
    """Sends the changes of cards, and their roll backs."""

    def __init__(self, engine: AsyncEngine, clock: Clock, changer: JobChanger) -> None:
        self._engine = engine
        self._clock = clock
        self._changer = changer

    async def apply(
        self, run: RunRecord, job_id: str, card_id: str, *, is_guarded: bool, author: str | None = None
    ) -> None:
        """Send the change of an open card. If ``is_guarded``, it is rolled back later if the checkpoints are worse.

        ``author`` is the person who asked for it; None if the name is not known.

        Raises:
            UnknownEntityError: the job has no such card, or its target was removed.
            ConflictError: the card is decided, its change was sent lately, or the target refuses it.
            InvalidInputError: the target's address is no longer allowed, or the target refuses the values.
            TargetUnavailableError: the target does not respond.
            TargetProtocolError: the target's response is malformed.
        """
        kind = AdviceStep.GUARDED_APPLY if is_guarded else AdviceStep.APPLY
        async with writing(self._engine) as connection:
            await store.lock_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            events = (await store.events_of(connection, [card_id])).get(card_id, ())
            now = self._clock.now()
            must_be_open(card, events, now)
            await store.move_card(
                *(connection, card, AdviceState.ACCEPTED, SENDING, now),
                kind=kind,
                outcome=AdviceOutcome.AWAITED,
                author=author,
            )
        patch = content_of(card)[0].how_to.patch
        await self.send_noted(run, job_id, card_id, patch, before=card.state)

    async def send_noted(
        self, run: RunRecord, job_id: str, card_id: str, patch: Mapping[str, str], *, before: AdviceState
    ) -> None:
        """Send a change that is in the history of an accepted card already, and record what came of it.

        If the target refuses it, the card gets the state ``before`` again. Raises the same errors as ``apply``.
        """
        try:
            await self._changer.send(run, patch)
        except BarrierscopeError as error:
            back = None if isinstance(error, UpstreamError) else before
            await self._note(job_id, card_id, *_failure(error), of=AdviceState.ACCEPTED, back=back)
            raise
        await self._note(job_id, card_id, _SENT, AdviceOutcome.SENT, of=AdviceState.ACCEPTED)

    async def roll_back(
        self, run: RunRecord, job_id: str, card_id: str, *, why: str | None = None, author: str | None = None
    ) -> None:
        """Send the values from before the change of a card that is in force. The card keeps its state.

        ``why`` is why Barrierscope does this by itself; None if a person does it, who is ``author``.

        Raises:
            ConflictError: the change is not in force, a roll back was sent lately, or the target refuses it.
            UnknownEntityError, InvalidInputError, TargetUnavailableError, TargetProtocolError: as ``apply``.
        """
        async with writing(self._engine) as connection:
            await store.lock_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            events = (await store.events_of(connection, [card_id])).get(card_id, ())
            now = self._clock.now()
            must_be_in_force(card, events, now)
            kind = AdviceStep.ROLL_BACK if why is None else AdviceStep.AUTO_ROLL_BACK
            reason = _SENDING_BACK if why is None else f"{_SENDING_BY_ITSELF}{why}"
            by = author if why is None else THE_SERVICE
            await store.note_step(connection, card, reason, now, kind, outcome=AdviceOutcome.AWAITED, author=by)
        try:
            await self._changer.send(run, content_of(card)[0].how_to.rollback_patch)
        except BarrierscopeError as error:
            await self._note(job_id, card_id, *_failure(error), of=card.state)
            raise
        text = _SENT_BACK if why is None else f"{_SENT_BACK}; because {why}"
        await self._note(job_id, card_id, text, AdviceOutcome.SENT, of=card.state)

    async def _note(
        self,
        job_id: str,
        card_id: str,
        reason: str,
        outcome: AdviceOutcome,
        *,
        of: AdviceState,
        back: AdviceState | None = None,
    ) -> None:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, job_id)
            card = await store.get_card(connection, job_id, card_id)
            # The engine may have reported the settings already. Then there is nothing to note.
            if card.state is of:
                await store.move_card(connection, card, back or of, reason, self._clock.now(), outcome=outcome)


def _failure(error: BarrierscopeError) -> tuple[str, AdviceOutcome]:
    if isinstance(error, UpstreamError):
        return f"{_UNANSWERED}{error}", AdviceOutcome.UNANSWERED
    return f"{_REFUSED}{error}", AdviceOutcome.REFUSED
