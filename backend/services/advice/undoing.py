"""Rolls a change back by itself if the checkpoints are worse after it. Off unless a setting allows it.

Only a change that Barrierscope itself sent to the target is undone, once for each card and at most ``_PER_DAY`` times
in a day for each job. So a job whose load grows cannot be changed to and fro. The roll back is written to the history
of the card before it is sent: if this process ends in between, it is not sent again, and a person can send it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from backend.domain.advice import AdviceState, AdviceStep
from backend.domain.clock import Clock
from backend.domain.errors import BarrierscopeError
from backend.services.advice.contents import content_of, is_reversible, is_rolling_back
from backend.services.targets.changing import JobChanger
from backend.store.advice import cards as store
from backend.store.advice.cards import CardRecord
from backend.store.jobs.reader import JobRecord
from backend.store.postgres.connections import writing

_PER_DAY: Final = 1
_DAY: Final = timedelta(days=1)
_CARDS_READ: Final = 50
AUTOMATIC: Final = "automatic roll back: "
"""The begin of the reason of a step that records an automatic roll back. Why it was sent follows."""
FAILED: Final = "the automatic roll back failed"

_log = structlog.get_logger(__name__)


class AutoRollBack:
    """Sends the roll backs of regressed cards. Each process has at most one instance."""

    def __init__(self, engine: AsyncEngine, clock: Clock, changer: JobChanger) -> None:
        self._engine = engine
        self._clock = clock
        self._changer = changer

    async def follow(self, record: JobRecord, cards: Sequence[CardRecord]) -> None:
        """Roll back the regressed ones of a job's ``cards``, within the limits."""
        for card in cards:
            if card.state is AdviceState.REGRESSED:
                await self._roll_back(record, card.id)

    async def _roll_back(self, record: JobRecord, card_id: str) -> None:
        async with writing(self._engine) as connection:
            await store.lock_job(connection, record.id)
            card = await store.get_card(connection, record.id, card_id)
            if not await self._is_allowed(connection, record, card):
                return
            reason = f"{AUTOMATIC}{card.state_reason}"
            await store.note_step(connection, card, reason, self._clock.now(), AdviceStep.AUTO_ROLL_BACK)
        advice, _ = content_of(card)
        try:
            await self._changer.send(record.run, advice.how_to.rollback_patch)
        except BarrierscopeError as error:
            _log.warning("an automatic roll back failed", job=record.id, card=card_id, error=str(error))
            async with writing(self._engine) as connection:
                await store.lock_job(connection, record.id)
                card = await store.get_card(connection, record.id, card_id)
                if card.state.is_in_force:
                    failed = f"{FAILED} ({error}); roll it back by hand"
                    await store.note_step(connection, card, failed, self._clock.now(), AdviceStep.STATE)

    async def _is_allowed(self, connection: AsyncConnection, record: JobRecord, card: CardRecord) -> bool:
        now = self._clock.now()
        cards = await store.list_cards(connection, record.id, limit=_CARDS_READ)
        events = await store.events_of(connection, [c.id for c in cards])
        own = events.get(card.id, ())
        recent = sum(
            e.kind is AdviceStep.AUTO_ROLL_BACK and now - e.at < _DAY for steps in events.values() for e in steps
        )
        advice, _ = content_of(card)
        return (
            card.state is AdviceState.REGRESSED
            and any(e.kind is AdviceStep.APPLY for e in own)
            and not any(e.kind is AdviceStep.AUTO_ROLL_BACK for e in own)
            and not is_rolling_back(card, own, now)
            and recent < _PER_DAY
            and is_reversible(record, advice)
        )
