"""Tests of the actions on the page of an incident."""

from __future__ import annotations

from typing import Any, cast

import pytest
from dash.exceptions import PreventUpdate

from backend.domain.errors import ApiRefusedError
from dashboard.client import ApiClient
from dashboard.pages import incident
from tests.support.dash_calls import texts

pytestmark = pytest.mark.anyio
_ROUTE = {"incident": "i1"}


class _Client:
    """Notes the calls, and refuses a claim that is no takeover."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def claim_incident(self, *values: Any, is_taking_over: bool) -> None:
        self.calls.append((*values, is_taking_over))
        if not is_taking_over:
            raise ApiRefusedError("ben has taken this incident")

    async def comment_incident(self, *values: Any) -> None:
        self.calls.append(values)


async def _claim(client, **values):
    return await incident.claim(cast(ApiClient, client), **{"clicks": 1, "route": _ROUTE, "author": "ann", **values})


async def test_an_incident_is_taken_over_only_if_the_button_names_who_has_it():
    client = _Client()

    refused = await _claim(client, claimant=None)
    taken = await _claim(client, claimant="ben")

    assert "ben has taken" in texts(refused["answer"])
    assert "changed" not in refused
    assert taken["changed"] == 1
    assert client.calls == [("i1", "ann", False), ("i1", "ann", True)]


async def test_an_action_needs_a_name_and_a_comment_needs_a_text():
    client = _Client()
    values = {"clicks": 1, "route": _ROUTE}

    unnamed = await _claim(client, claimant=None, author=" ")
    silent = await incident.say(cast(ApiClient, client), **values, author="ann", said=" ")
    said = await incident.say(cast(ApiClient, client), **values, author="ann", said=" disk full ")

    assert "Enter your name" in texts(unnamed["answer"])
    assert "Enter a comment" in texts(silent["answer"])
    assert (said["said"], client.calls) == ("", [("i1", "ann", "disk full")])
    with pytest.raises(PreventUpdate):
        await _claim(client, claimant=None, clicks=None)
