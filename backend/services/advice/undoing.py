"""Rolls a change back by itself if the checkpoints are worse after it: if the person who applied it asked for that.

A setting allows it for all changes. Only a change that Barrierscope itself sent to the target is undone, once for each
card. Those that no person asked for are undone at most ``_PER_DAY`` times in a day for each job, so that a job whose
load grows cannot be changed to and fro. A roll back that the target did not answer, or whose process ended while it
sent it, is sent again, ``_ATTEMPTS_MAX`` times in all: it sets the same values again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from backend.domain.advice import AdviceState, AdviceStep
from backend.domain.clock import Clock
from backend.domain.errors import BarrierscopeError
from backend.services.advice import sending
from backend.services.advice.contents import CARDS_READ, content_of, is_reversible
from backend.services.advice.sending import CardSender
from backend.store.advice import cards as store
from backend.store.advice.cards import CardEvent, CardRecord
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import reading

_PER_DAY: Final = 1
_DAY: Final = timedelta(days=1)
_ATTEMPTS_MAX: Final = 3

_log = structlog.get_logger(__name__)


class AutoRollBack:
    """Sends the roll backs of regressed cards. If ``is_always_on``, also of those without a guard of their own."""

    def __init__(self, engine: AsyncEngine, clock: Clock, sender: CardSender, *, is_always_on: bool) -> None:
        self._engine = engine
        self._clock = clock
        self._sender = sender
        self._is_always_on = is_always_on

    async def follow(self, record: JobRecord, cards: Sequence[CardRecord]) -> None:
        """Roll back the regressed ones of a job's ``cards``, within the limits."""
        for card in cards:
            if card.state is AdviceState.REGRESSED and (why := await self._reason(record, card)) is not None:
                try:
                    await self._sender.roll_back(record.run, record.id, card.id, why=why)
                except BarrierscopeError as error:
                    # The history of the card has it too, and a person can roll back by hand.
                    _log.warning("an automatic roll back failed", job=record.id, card=card.id, error=str(error))

    async def _reason(self, record: JobRecord, card: CardRecord) -> str | None:
        """Return why a card is to be rolled back now, or None if it is not."""
        async with reading(self._engine) as connection:
            cards = await store.list_cards(connection, record.id, limit=CARDS_READ)
            events = await store.events_of(connection, [c.id for c in cards])
        own = events.get(card.id, ())
        if not any(e.kind.is_apply for e in own) or not is_reversible(record, content_of(card)[0]):
            return None
        before = [e for e in own if e.kind is AdviceStep.AUTO_ROLL_BACK]
        if before:
            is_repeated = sending.may_repeat(own, self._clock.now()) and len(before) < _ATTEMPTS_MAX
            return sending.why_automatic(before[0].reason) if is_repeated else None
        if sending.is_guarded(own) or (self._is_always_on and self._automatic_count(events) < _PER_DAY):
            return card.state_reason
        return None

    def _automatic_count(self, events: Mapping[str, Sequence[CardEvent]]) -> int:
        """Return how many roll backs Barrierscope sent by itself to the job in the last day."""
        steps: list[CardEvent] = [e for rows in events.values() for e in rows]
        return sum(e.kind is AdviceStep.AUTO_ROLL_BACK and self._clock.now() - e.at < _DAY for e in steps)
