"""Tests of what the what-if page says of a change that was kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import httpx
import pytest

from backend.contracts.advice import CardOut, LifeEventOut
from backend.domain.advice import AdviceState, AdviceStep
from dashboard.client import ApiClient
from dashboard.pages.whatif import applying
from tests.support.api_examples import example

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = AT + timedelta(hours=3)


def kept(state, *, applied_at=None, step=AdviceStep.STATE) -> CardOut:
    card: CardOut = example("card")
    event = LifeEventOut(at=AT, kind=step, state=AdviceState.ACCEPTED, reason="accepted")
    return card.model_copy(update={"state": state, "created_at": AT, "applied_at": applied_at, "history": (event,)})


@pytest.mark.parametrize(
    ("state", "applied_at", "step", "words"),
    [
        (AdviceState.ACCEPTED, None, AdviceStep.APPLY, "A change was sent at {at}."),
        (AdviceState.APPLIED, LATER, AdviceStep.APPLY, "A change was sent at {at}."),
        (AdviceState.ACCEPTED, None, AdviceStep.STATE, "A change by a person is awaited since {at}."),
        (AdviceState.APPLIED, LATER, AdviceStep.STATE, "A change by a person is in force since {later}."),
    ],
)
def test_the_page_says_who_made_the_change_and_when(monkeypatch, state, applied_at, step, words):
    monkeypatch.setattr(applying, "text", SimpleNamespace(instant=lambda at, where: at.isoformat()))

    said = applying._change_words(kept(state, applied_at=applied_at, step=step), None)

    assert said == words.format(at=AT.isoformat(), later=LATER.isoformat())


@pytest.mark.anyio
@pytest.mark.parametrize(("name", "author"), [(" ann ", "ann"), ("", None), (None, None)])
async def test_a_what_if_is_applied_and_accepted_with_the_name_that_was_typed_or_none(ui, name, author):
    route = {"job": "jruntime"}
    answer = {"settings": {"mode": "unaligned"}, "model_id": ui.fake.what_ifs.model_id}
    client = ApiClient(transport=httpx.MockTransport(ui.fake.handle), base_url="http://api.test")

    await applying.apply(client, confirmed=1, subject=answer, guard=True, author=name, route=route)
    await applying.accept(client, clicks=1, answered=answer, author=name, route=route)

    assert ui.fake.what_ifs.authors == [author] * 2
