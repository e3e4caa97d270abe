"""Tests of the dialog that changes a target: what was typed stays until it is stored or refused."""

from __future__ import annotations

import httpx
import pytest

from backend.contracts.api import TargetPatch
from backend.contracts.connection import ConnectionDoc
from dashboard.client import ApiClient
from dashboard.pages import target_editing, target_options
from tests.support.dash_calls import texts
from tests.support.fake_api import FakeApi

pytestmark = pytest.mark.anyio
_BUTTON = {"of": "tflink"}


@pytest.fixture
async def fake(clock):
    return FakeApi(now=clock)


@pytest.fixture
async def client(fake):
    opened = ApiClient(transport=httpx.MockTransport(fake.handle), base_url="http://api.test")
    yield opened
    await opened.close()


@pytest.fixture
def sent(client, monkeypatch):
    """Return the patches that the dialog sends."""
    patches: list[TargetPatch] = []
    change = client.change_target

    async def noting(target, patch, *, version=None):
        patches.append(patch)
        return await change(target, patch, version=version)

    monkeypatch.setattr(client, "change_target", noting)
    return patches


def _form(fake, *, name=None, enabled=True, **changed):
    """Return the states of the dialog as it was opened, with what was typed since."""
    target = fake.targets["tflink"]
    values = target_options.values_of(target) | changed
    names = [{"type": target_editing.EDITING, "name": key} for key in values if key != "kind"]
    options = [value for key, value in values.items() if key != "kind"]
    return {"name": [target.name if name is None else name], "enabled": [enabled], "options": options, "names": names}


async def _opened(client):
    return await target_editing.open_dialog(client, clicks=1, pressed=_BUTTON)


async def _saved(client, opened, form):
    return await target_editing.save(client, saves=1, subject=opened["subject"], before=opened["before"], **form)


async def test_the_dialog_shows_what_is_stored_and_that_the_address_stays(client, fake):
    connection = ConnectionDoc.model_validate({"bearer": "env:FLINK_TOKEN", "ca": "file:ca.pem"})
    fake.targets["tflink"] = fake.targets["tflink"].model_copy(update={"connection": connection, "origin": "api"})

    opened = await _opened(client)

    shown = str(opened["body"])
    assert "value='env:FLINK_TOKEN'" in shown
    assert "value='file:ca.pem'" in shown
    assert "The address stays" in texts(opened["body"])
    assert fake.targets["tflink"].url in texts(opened["body"])
    assert (opened["is_open"], opened["no_test"], opened["no_save"]) == (True, False, False)


async def test_a_declared_target_is_shown_with_the_place_where_it_is_changed(client, fake):
    declared = {"declared_by": "targets.yaml", "declared_at": "/etc/barrierscope/targets.yaml"}
    fake.targets["tflink"] = fake.targets["tflink"].model_copy(update={"origin": "configuration", **declared})

    opened = await _opened(client)

    assert "Change it there; it is read within seconds: /etc/barrierscope/targets.yaml" in texts(opened["body"])
    assert "disabled=False" not in str(opened["body"])
    assert (opened["no_test"], opened["no_save"]) == (True, True)
    assert opened["title"] == "Settings of production-eu"


async def test_only_what_was_changed_is_sent(client, fake, sent):
    opened = await _opened(client)
    typed = {"bearer": "env:FLINK_TOKEN", "interval_s": "5", "labels": "team=pay"}
    saved = await _saved(client, opened, _form(fake, name="production", enabled=False, **typed))
    again = await _opened(client)
    emptied = await _saved(client, again, _form(fake, enabled=False, bearer="", interval_s=""))
    nothing = await _saved(client, await _opened(client), _form(fake, enabled=False))

    assert (saved["is_open"], emptied["is_open"], nothing["is_open"]) == (False, False, False)
    assert [patch.model_dump(exclude_unset=True, exclude_none=True) for patch in sent] == [
        {
            "name": "production",
            "labels": {"team": "pay"},
            "interval_s": 5.0,
            "connection": {"bearer": "env:FLINK_TOKEN"},
            "is_enabled": False,
        },
        {"interval_s": 0.0, "connection": {}},
    ]


@pytest.mark.parametrize("labels", [{"team": "a, b=c"}, {"team": "a, b"}, {"team": " a "}])
async def test_labels_that_nobody_changed_stay_as_they_are_when_the_name_is_changed(client, fake, sent, labels):
    headers = {"X-Key": "file:a, b"}
    connection = ConnectionDoc.model_validate({"headers": headers})
    changed = {"labels": labels, "origin": "api", "connection": connection}
    fake.targets["tflink"] = fake.targets["tflink"].model_copy(update=changed)
    saved = await _saved(client, await _opened(client), _form(fake, name="ours"))

    assert saved["is_open"] is False
    assert [patch.model_dump(exclude_unset=True) for patch in sent] == [{"name": "ours"}]


async def test_the_dialog_says_what_a_change_of_the_label_deployment_does(client):
    assert "If you change it, the next run begins a new job" in texts((await _opened(client))["body"])


async def test_what_someone_else_changed_meanwhile_is_not_overwritten(client, fake, sent):
    opened = await _opened(client)
    fake.targets["tflink"] = fake.targets["tflink"].model_copy(update={"labels": {"team": "theirs"}})
    refused = await _saved(client, opened, _form(fake, name="mine"))

    assert "Someone else changed this target meanwhile" in texts(refused["answer"])
    assert "is_open" not in refused, "what was typed stays"
    assert sent == []


async def test_a_change_between_the_last_reading_and_the_own_change_is_not_overwritten(client, fake, monkeypatch):
    opened, read = await _opened(client), client.target

    async def reading(target):
        found = await read(target)
        await client.change_target(target, TargetPatch(labels={"team": "theirs"}))
        return found

    monkeypatch.setattr(client, "target", reading)
    refused = await _saved(client, opened, _form(fake, name="mine"))

    assert "Someone else changed this target meanwhile" in texts(refused["answer"])
    assert "is_open" not in refused
    assert (fake.targets["tflink"].labels, fake.targets["tflink"].name) == ({"team": "theirs"}, "production-eu")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"name": " "}, "Name: write a name"),
        ({"user": "me"}, "fill in both"),
        ({"bearer": "canary"}, "connection.bearer"),
    ],
)
async def test_a_wrong_field_is_named_and_nothing_is_sent(client, fake, sent, typed, words):
    opened = await _opened(client)
    refused = await _saved(client, opened, _form(fake, **typed))

    assert words in texts(refused["answer"])
    assert "canary" not in texts(refused["answer"])
    assert sent == []


async def test_a_connection_that_the_operator_chose_is_neither_shown_nor_sent(client, fake, sent):
    fake.targets["tflink"] = fake.targets["tflink"].model_copy(update={"origin": "built-in"})
    opened = await _opened(client)
    await _saved(client, opened, _form(fake, name="ours"))

    assert "Bearer token" not in texts(opened["body"])
    assert "so the connection is not changed here" in texts(opened["body"])
    assert opened["no_test"] is True
    assert [set(patch.model_fields_set) for patch in sent] == [{"name"}]


async def test_the_test_uses_what_is_typed_and_stores_nothing(client, fake, sent, monkeypatch):
    asked = []
    test_target = client.test_target

    async def noting(target):
        asked.append(target)
        return await test_target(target)

    monkeypatch.setattr(client, "test_target", noting)
    opened = await _opened(client)
    answer = await target_editing.test(client, tests=1, subject=opened["subject"], **_form(fake, ca="file:ca.pem"))

    assert "Connected: flink 1.20.5" in texts(answer["answer"])
    assert (asked[0].url, asked[0].connection.ca) == (fake.targets["tflink"].url, "file:ca.pem")
    assert sent == []


async def test_a_target_that_was_removed_meanwhile_is_said(client, fake):
    opened = await _opened(client)
    form = _form(fake)
    del fake.targets["tflink"]

    assert "not there any more" in texts((await _saved(client, opened, form))["answer"])
    gone = await target_editing.test(client, tests=1, subject="tflink", **form)
    assert "not there any more" in texts(gone["answer"])
    assert "not there any more" in texts((await _opened(client))["message"])
