"""Tests of ``barrierscope alerts``: what the list says of an open alert."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import httpx
import pytest

from backend.cli.app import run
from tests.support.api_examples import example
from tests.support.fake_api import FakeApi
from tests.support.streamed_answers import streamed

_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture
def fake(monkeypatch):
    fake = FakeApi(now=lambda: _NOON)
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=streamed(fake.handle)))
    return fake


@pytest.mark.parametrize(
    ("action", "end"), [("Enable unaligned checkpoints", " Do first: Enable unaligned checkpoints."), (None, "")]
)
def test_an_open_alert_is_told_with_its_whole_sentence_and_what_to_do_first(fake, capsys, monkeypatch, action, end):
    alert = example("alert").model_copy(update={"action": action})
    monkeypatch.setattr(fake.alerting, "_alert", lambda: alert)

    assert run(["alerts"]) == 0

    first, second = capsys.readouterr().out.splitlines()
    assert alert.summary in first
    assert second == f"    {alert.description}{end}"
