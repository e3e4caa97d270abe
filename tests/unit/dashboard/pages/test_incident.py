"""Tests of the actions and the parts of the page of an incident."""

from __future__ import annotations

import re
from datetime import UTC
from typing import Any, cast

import pytest
from dash.exceptions import PreventUpdate

from backend.contracts.alerts import LinkedCheckpointOut
from backend.domain.errors import ApiRefusedError
from dashboard.client import ApiClient
from dashboard.figures.incident import Signal
from dashboard.pages import incident
from tests.support.api_examples import example
from tests.support.dash_calls import texts

pytestmark = pytest.mark.anyio
_ROUTE = {"incident": "i1"}


class _Client:
    """Records the calls, and refuses a claim that is not a takeover."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    async def claim_incident(self, *values: Any, claimed_by: str | None) -> None:
        self.calls.append((*values, claimed_by))
        if claimed_by is None:
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
    assert client.calls == [("i1", "ann", None), ("i1", "ann", "ben")]


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


def test_the_checkpoints_of_the_newest_run_come_first():
    found = example("incident_detail")
    listed = {"new": (1, 2), "old": (899, 900)}
    alerts = [
        found.alerts[0].model_copy(
            update={"checkpoints": [LinkedCheckpointOut(run_id=run, checkpoint_id=n, link="/x") for n in numbers]}
        )
        for run, numbers in listed.items()
    ]

    card = incident.checkpoints(found.model_copy(update={"alerts": alerts}), Signal())

    assert re.findall(r"Checkpoint (\d+)", texts(card)) == ["2", "1", "900", "899"]


def test_changes_before_the_incident_are_apart_from_those_during_it():
    (change, *_) = example("incident_detail").changes
    during = change.model_copy(update={"is_before": False, "text": "restarted"})
    before = change.model_copy(update={"is_before": True, "text": "deployed"})

    both, only = (texts(incident.changes(found, UTC)) for found in ([during, before], [during]))

    assert both.index("deployed") < both.index("During the incident") < both.index("restarted")
    assert only.index("No change was read in the 24 hours before") < only.index("restarted")
