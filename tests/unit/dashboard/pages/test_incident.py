"""Tests of the actions and the parts of the page of an incident."""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from typing import Any, cast

import httpx
import pytest
from dash.exceptions import PreventUpdate
from pydantic import ValidationError

from backend.contracts.alerts import LinkedCheckpointOut
from backend.contracts.freshness import FreshnessOut
from backend.contracts.incidents import CommentIn
from backend.domain.errors import ApiRefusedError
from backend.domain.freshness import Freshness
from dashboard.client import ApiClient
from dashboard.components import cards, incidents
from dashboard.figures.incident import Signal
from dashboard.live import Look
from dashboard.pages import alert, incident
from dashboard.palette import LIGHT
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, texts

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
        if values[-1] == "too much":
            raise ApiRefusedError("an incident has at most 1000 comments")

    async def acknowledge_incident(self, *values: Any) -> None:
        self.calls.append(values)


async def _claim(client, **values):
    given = {"clicks": 1, "route": _ROUTE, "author": "ann", "said": None, **values}
    return await incident.claim(cast(ApiClient, client), **given)


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


async def test_a_name_or_comment_that_is_too_long_is_refused_with_the_reason_for_the_first():
    client = ApiClient(transport=httpx.MockTransport(lambda _: httpx.Response(500)), base_url="http://api.test")
    refused = await incident.say(client, clicks=1, route=_ROUTE, author="a" * 1000, said="s" * 100_000)

    with pytest.raises(ValidationError) as raised:
        CommentIn(author="a" * 1000, text="s" * 100_000)
    of_name, of_text = (error["msg"] for error in raised.value.errors())
    assert of_name != of_text
    assert texts(refused["answer"]) == texts(cards.answer(False, of_name))
    assert refused["answer"].className == cards.answer(False, "").className != cards.answer(True, "").className
    assert "changed" not in refused


async def test_an_acknowledgement_adds_the_comment_that_was_typed_beside_it():
    client = _Client()
    values = {"clicks": 1, "route": _ROUTE, "author": "ann"}

    done = await incident.acknowledge(cast(ApiClient, client), **values, said=" disk full, I replace it ")
    bare = await incident.acknowledge(cast(ApiClient, client), **values, said=" ")
    lost = await incident.acknowledge(cast(ApiClient, client), **values, said="too much")
    refused = await _claim(client, claimant=None, said="mine")

    assert client.calls[:3] == [("i1", "ann"), ("i1", "ann", "disk full, I replace it"), ("i1", "ann")]
    assert (done["said"], done["changed"]) == ("", 1)
    assert "said" not in bare
    # The text stays in the field if it could not be added.
    assert ("said" in lost, lost["changed"]) == (False, 1)
    assert "The incident is acknowledged" in texts(lost["answer"])
    assert "at most 1000 comments" in texts(lost["answer"])
    assert "said" not in refused
    assert client.calls[-1] == ("i1", "ann", None)


def test_the_page_says_what_to_do_first():
    found = example("incident_detail")

    shown = texts(incident._words(found.model_copy(update={"action": "Add subtasks to enrich"}), UTC, None))
    without = texts(incident._words(found.model_copy(update={"action": None}), UTC, None))

    assert "Do first: Add subtasks to enrich" in shown
    assert "Do first" not in without


def test_an_incident_that_somebody_has_seen_or_silenced_does_not_call_for_anybody():
    found = example("incident_detail").model_copy(
        update={
            "ended_at": None, "open_count": 2, "alert_count": 6, "silenced_count": 0, "acknowledged_by": None,
            "claimed_by": None, "freshness": None,
        }
    )  # fmt: skip

    def edge(**changes):
        return re.search(r"edge-(\w+)", incidents.card(found.model_copy(update=changes), UTC).className)[1]

    assert edge() in ("warn", "bad")
    assert edge(silenced_count=1) in ("warn", "bad")
    assert [edge(silenced_count=2), edge(acknowledged_by="ann"), edge(claimed_by="ben")] == ["quiet"] * 3
    assert "2 open, 6 alerts so far: " in texts(incidents.card(found, UTC))
    assert incidents.counts(found.model_copy(update={"alert_count": 2})) == "2 open"


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


@pytest.mark.parametrize(("page", "asked"), [(incident, "incident"), (alert, "alert")])
async def test_the_page_of_what_has_ended_is_called_final(ui, monkeypatch, page, asked):
    final = FreshnessOut(state=Freshness.FINAL, is_stale=False, reason=None, read_at=None, stale_after_s=None)
    ended = example(f"{asked}_detail").model_copy(update={"freshness": final})

    async def read(_, name):
        return ended

    monkeypatch.setattr(ApiClient, asked, read)
    client = ApiClient(transport=httpx.MockTransport(ui.fake.handle), base_url="http://api.test")
    values = {"tick": None, "look": LOOK["look.data"], "route": {asked: ended.id}, "before": None}
    more = {"changed": None, "silenced": None, "matchers": "job=orders"} if page is incident else {}

    shown = await page.refresh(client, **values, **more)

    assert "'data-stale': 'final'" in str(shown["stale"].to_plotly_json())


@pytest.mark.parametrize(("kind", "word"), [("pod-ended", "pod ended"), ("rows-lost", "rows lost"), ("other", "other")])
def test_a_change_is_named_and_stands_out_if_it_came_before_the_incident(kind, word):
    (change, *_) = example("incident_detail").changes
    before, during = (change.model_copy(update={"kind": kind, "is_before": is_before}) for is_before in (True, False))

    assert texts(incident._change(before, UTC)).startswith(word)
    tones = [incident._change(change, UTC).children[0].className for change in (before, during)]
    assert tones == ["badge tone-info", "badge tone-quiet"]


@pytest.mark.parametrize(
    ("ended_min", "window_min"), [(None, (-10, 50)), (10, (-5, 15)), (40, (-8, 48)), (48, (-9.6, 50))]
)
async def test_the_chart_begins_before_the_incident_and_goes_on_after_its_end_but_not_after_now(ended_min, window_min):
    """The engine's clock is two minutes ahead."""
    found, asked = example("incident_detail"), []
    began = found.began_at
    ended = None if ended_min is None else began + timedelta(minutes=ended_min)
    found = found.model_copy(update={"ended_at": ended, "as_of": began + timedelta(minutes=50)})
    shape = example("job_detail").model_copy(update={"clock_offset_ms": 120_000})

    class Answers:
        async def graph(self, _):
            return shape

        async def checkpoints_between(self, _, since, until):
            asked.append([(at - began).total_seconds() / 60 for at in (since, until)])
            return [], False

    view = Look(LIGHT, UTC, is_narrow=False)
    _, signal = await incident._chart(cast(ApiClient, Answers()), found, view)

    (window,) = asked
    assert window == [minutes + 2 for minutes in window_min]
    assert signal.offset == timedelta(minutes=2)
    assert signal.timeout_ms == shape.config.timeout_ms


def test_the_description_loses_its_address_and_each_rule_has_its_newest_alert():
    found = example("incident_detail")
    alert = found.alerts[0]
    rules = [("CheckpointStuck", "stuck now"), ("CheckpointExpired", "expired"), ("CheckpointStuck", "stuck before")]
    alerts = [alert.model_copy(update={"rule": rule, "summary": summary}) for rule, summary in rules]
    update = {"description": "It is stuck. See http://here/x", "alerts": alerts, "alert_count": 3}

    shown = texts(incident._words(found.model_copy(update=update), UTC, None))

    assert "It is stuck. See" in shown
    assert "http" not in shown
    assert "stuck now" in shown
    assert "stuck before" not in shown
    assert "these and 1 earlier episode of these rules" in shown
    assert "No address" in texts(incident._words(found.model_copy(update={"description": "No address"}), UTC, None))


def test_a_message_shows_when_it_was_delivered_or_last_tried_or_added():
    found = example("incident_detail")
    (sent,) = found.deliveries
    first = sent.attempts[0]
    later = first.model_copy(update={"at": first.at + timedelta(minutes=7)})
    tried = sent.model_copy(update={"delivered_at": None, "state": "due", "attempts": [first, later]})
    added = tried.model_copy(update={"attempts": []})

    def shown(delivery):
        return texts(incident._deliveries(found.model_copy(update={"deliveries": [delivery]}), UTC))

    assert ["12:00:01" in shown(sent), "12:07:01" in shown(tried), "12:00:00" in shown(added)] == [True] * 3
    assert ["delivered" in shown(sent), "waiting" in shown(tried)] == [True, True]
    without = found.model_copy(update={"deliveries": []})
    assert "None was sent" in texts(incident._deliveries(without, UTC))
    assert "Silenced." in texts(incident._deliveries(without.model_copy(update={"silenced_count": 1}), UTC))


def test_the_thread_shows_who_did_and_said_what():
    notes = example("incident_detail").notes

    assert texts(incident._thread([], UTC)) == "No acknowledgement, claim or comment yet."
    shown = texts(incident._thread(notes, UTC))
    assert "acknowledged the incident" in shown
    assert "The host of worker-3 is being replaced." in shown


async def test_an_answer_that_refuses_looks_like_a_refusal():
    values = {"clicks": 1, "route": _ROUTE, "author": "ann"}
    refused = await incident.say(cast(ApiClient, _Client()), **values, said=" ")
    done = await incident.say(cast(ApiClient, _Client()), **values, said="seen")

    assert str(refused["answer"]) == str(cards.answer(False, "Enter a comment."))
    assert str(done["answer"]) == str(cards.answer(True, "The comment was added."))
