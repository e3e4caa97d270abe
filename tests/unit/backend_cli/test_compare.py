"""Tests of ``barrierscope compare``: what it asks the API for, and what it prints."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial

import httpx
import pytest

from backend.cli.app import run
from backend.domain.freshness import Freshness
from tests.support.api_examples import stale
from tests.support.fake_api import FakeApi
from tests.support.streamed_answers import streamed

_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture
def fake():
    return FakeApi(now=lambda: _NOON)


@pytest.fixture(autouse=True)
def asked(monkeypatch, fake):
    """Answer by the fake API, and return the queries of the comparisons."""
    found = []

    def handle(request):
        if request.url.path.endswith("/compare"):
            found.append(dict(request.url.params))
        return fake.handle(request)

    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=streamed(handle)))
    return found


def test_a_checkpoint_is_compared_with_the_last_healthy_one_settings_first(asked, capsys):
    assert run(["compare", "jruntime", "--checkpoint", "23"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert asked == [{"a": "jruntime", "b": "jruntime", "a_checkpoint": "rruntime:23"}]
    assert lines[0] == "same settings"
    assert lines[2].startswith("#23 took 7.2 s, #1 ")
    assert "sample: one checkpoint on each side" in lines
    assert any(line.split()[:3] == ["orders-source", "duration", "7.2"] or "start-delay" in line for line in lines)


def test_checkpoints_of_two_jobs_are_compared(asked, capsys):
    assert run(["compare", "jruntime", "jE", "--checkpoint", "23", "--against", "rE:9"]) == 0

    assert asked[0]["b_checkpoint"] == "rE:9"
    assert "vertices of B #9 only: " in capsys.readouterr().out


def test_without_options_the_newest_hour_is_compared_with_yesterday(asked, capsys):
    assert run(["compare", "jE"]) == 0

    assert asked == [{"a": "jE", "b": "jE", "width_s": "3600"}]
    assert "sample: " in capsys.readouterr().out


def test_times_of_a_stale_job_say_so(fake, capsys):
    job = fake.jobs["jE"]
    job.detail = job.detail.model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})

    assert run(["compare", "jE"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("after is stale: last read ") and "no collector runs" in line]


def test_the_time_before_an_instant_is_compared_with_the_time_after_it(asked, capsys):
    assert run(["compare", "jE", "--at", "2026-11-23T11:00:00Z", "--width", "30min", "--json"]) == 0

    assert (asked[0]["b_from"], asked[0]["a_to"]) == ("2026-11-23T10:30:00+00:00", "2026-11-23T11:30:00+00:00")
    assert json.loads(capsys.readouterr().out)["kind"] == "windows"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--against", "3"], "--checkpoint"),
        (["--at", "2026-11-23T11:00:00Z", "--checkpoint", "3"], "--at"),
        (["jE", "--at", "2026-11-23T11:00:00Z"], "--at"),
        (["--width", "1s"], "--width"),
        (["--width", "300d"], "--width"),
    ],
)
def test_options_that_do_not_fit_are_refused(asked, capsys, options, words):
    assert run(["compare", "jruntime", *options]) != 0

    assert words in capsys.readouterr().err
    assert asked == []
