"""Tests of ``barrierscope targets change``: what is sent, and what is refused."""

from __future__ import annotations

from functools import partial

import httpx
import pytest

from backend.cli.app import run
from backend.contracts.api import TargetPatch
from backend.contracts.connection import ConnectionDoc
from tests.support.fake_api import FakeApi
from tests.support.observations import NOW


@pytest.fixture
def fake(monkeypatch):
    made = FakeApi(now=lambda: NOW)
    connection = ConnectionDoc.model_validate({"bearer": "env:A", "headers": {"X-Key": "env:B"}})
    made.targets["tflink"] = made.targets["tflink"].model_copy(
        update={"connection": connection, "labels": {"team": "pay", "old": "x"}}
    )

    def streamed(request: httpx.Request) -> httpx.Response:
        answer = made.handle(request)
        return httpx.Response(answer.status_code, headers=answer.headers, stream=httpx.ByteStream(answer.content))

    transport = httpx.MockTransport(streamed)
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=transport))
    return made


def _change(*options: str) -> int:
    return run(["targets", "change", "production-eu", *options, "--api", "http://api.test"])


def test_what_is_not_named_stays(fake, capsys):
    options = ["--label", "team=orders", "--remove-label", "old", "--interval", "5s", "--bearer", "env:C", "--pause"]
    assert _change(*options) == 0

    changed = fake.targets["tflink"]
    assert (changed.name, changed.labels, changed.interval_s) == ("production-eu", {"team": "orders"}, 5.0)
    assert (changed.is_enabled, changed.url) == (False, "http://flink.example:8081")
    assert changed.connection.model_dump(exclude_none=True) == {"bearer": "env:C", "headers": {"X-Key": "env:B"}}
    assert capsys.readouterr().out == "changed production-eu (http://flink.example:8081)\n"


def test_a_change_of_somebody_else_at_the_same_moment_stays(fake, monkeypatch, capsys):
    read, theirs = fake._listed, TargetPatch(labels={"team": "theirs"})

    def reading(asked):
        page = read(asked)
        fake._patch("tflink", theirs)
        return page

    monkeypatch.setattr(fake, "_listed", reading)
    assert _change("--label", "team=mine") != 0

    said = "the target production-eu was changed meanwhile; read it again and repeat the change"
    assert said in capsys.readouterr().err
    assert fake.targets["tflink"].labels == {"team": "theirs"}


def test_a_target_that_is_changed_before_its_removal_stays(fake, monkeypatch, capsys):
    read = fake._listed

    def reading(asked):
        page = read(asked)
        fake._patch("tflink", TargetPatch(labels={"team": "theirs"}))
        return page

    monkeypatch.setattr(fake, "_listed", reading)
    assert run(["targets", "remove", "production-eu", "--api", "http://api.test"]) != 0

    assert "was changed meanwhile; look at it again and remove it then" in capsys.readouterr().err
    assert "tflink" in fake.targets


def test_a_new_connection_is_tested_after_it_was_stored(fake, capsys):
    assert _change("--plain", "--user", "me=env:P") == 0

    changed = fake.targets["tflink"]
    assert changed.connection.model_dump(exclude_none=True) == {"basic": {"user": "me", "password": "env:P"}}
    assert "it answers with this connection" in capsys.readouterr().out
    assert _change("--plain") == 0
    assert fake.targets["tflink"].connection is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "nothing to change; pass an option"),
        (("--remove-label", "none"), "no label 'none'"),
        (("--bearer", "canary"), "--bearer: is not a reference"),
        (("--ca", "ca.pem"), "--ca: is used by TLS only"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_wrong_option_is_one_sentence_and_nothing_is_changed(fake, capsys, options, words):
    before = fake.targets["tflink"]
    assert _change(*options) != 0

    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert "canary" not in said
    assert fake.targets["tflink"] is before
