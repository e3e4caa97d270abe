"""Reads what a stored card contains: its recommendation, and whether its change can be undone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from backend.advisor.advice import Recommendation
from backend.contracts.advice import RecommendationOut
from backend.domain.observation import JobState
from backend.store.advice.cards import CardRecord
from backend.store.jobs.reader import JobRecord

CARDS_READ: Final = 50
"""So many cards of a job are read, the newest."""
_COMPUTED_AT = "computed_at"


def document_of(advice: Recommendation, now: datetime) -> Mapping[str, object]:
    """Return a recommendation as it is stored, with the time at which it was computed."""
    return RecommendationOut.model_validate(advice).model_dump(mode="json") | {_COMPUTED_AT: now.isoformat()}


def content_of(card: CardRecord) -> tuple[RecommendationOut, datetime | None]:
    """Return the recommendation of a card, and when it was computed if that was stored with it."""
    document = dict(card.document)
    at = document.pop(_COMPUTED_AT, None)
    return RecommendationOut.model_validate(document), datetime.fromisoformat(at) if isinstance(at, str) else None


def is_reversible(record: JobRecord, advice: RecommendationOut) -> bool:
    """Return whether the engine can undo the change of ``advice`` while the job runs."""
    run, how_to = record.run, advice.how_to
    is_able = run.state is not JobState.ENDED and run.engine.can_apply_settings_live
    # Without the value before of each setting, only a part of the change could be undone.
    return is_able and how_to.patch.keys() == how_to.rollback_patch.keys() != set()
