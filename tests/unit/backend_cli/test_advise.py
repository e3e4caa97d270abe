"""Tests of ``barrierscope advise``: what a dry run prints, bad input, and advice for a stale job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import pytest

from backend.cli import advise
from backend.cli.app import run
from backend.domain.freshness import Freshness
from tests.support.api_examples import example, stale
from tests.support.fake_api import FakeApi
from tests.support.streamed_answers import streamed

_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


@pytest.fixture
def fake(monkeypatch):
    fake = FakeApi(now=lambda: _NOON)
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=streamed(fake.handle)))
    return fake


def _changes(fake):
    return [r for r in fake.requests if not r.startswith("GET ")]


def test_a_dry_run_names_the_target_the_changes_and_the_answer_of_each_open_card(fake, capsys):
    assert run(["advise", "jruntime", "--dry-run"]) == 0

    tried = example("dry_run")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == fake.alerting.card.recommendation.headline
    assert lines[1] == f"  to {tried.target} ({tried.url}), run {tried.engine_run_id}"
    assert lines[2] == f"  {tried.changes[0].key}: {tried.changes[0].current} -> {tried.changes[0].proposed}"
    assert lines[-1] == "  the target was asked and accepts it; nothing was changed"
    assert _changes(fake) == []


def test_a_refusal_is_told_and_json_has_the_whole_answer(fake, capsys):
    fake.alerting.refusals = ["Flink takes these settings when the job starts"]

    assert run(["advise", "jruntime", "--dry-run"]) == 0
    assert "  would be refused: Flink takes these settings when the job starts" in capsys.readouterr().out
    assert run(["advise", "jruntime", "--dry-run", "--format", "json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)
    assert (one["is_accepted"], one["refusals"]) == (False, fake.alerting.refusals)


def test_without_open_advice_a_dry_run_says_so(fake, capsys):
    fake.alerting.verify()

    assert run(["advise", "jruntime", "--dry-run"]) == 0
    assert capsys.readouterr().out == "no advice is open, so nothing would be sent\n"
    assert run(["advise", "jruntime", "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["jmissing", "--dry-run"], "jmissing"),
        (["jruntime", "--dry-run", "--export", "job-file"], "it cannot be combined with --dry-run"),
        (["jruntime", "--dry-run", "--format", "markdown"], "a dry run has no markdown"),
        (["jruntime", "--dry-run", "--format", "pdf"], "pdf"),
    ],
)
def test_bad_input_is_one_line_without_output(given, words, capsys):
    assert run(["advise", *given]) != 0
    printed = capsys.readouterr()
    assert (printed.out, words in printed.err) == ("", True), printed.err
    assert len(printed.err.strip().splitlines()) == 1, printed.err


def test_an_api_that_does_not_respond_is_named_with_what_to_do(fake, capsys):
    fake.is_down = True

    assert run(["advise", "jruntime", "--dry-run"]) != 0
    assert "http://" in capsys.readouterr().err


def test_advice_for_a_stale_job_says_how_old_it_is_and_why():
    found = example("job_advice").model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})
    found = found.model_copy(update={"as_of": found.as_of + timedelta(minutes=2)})
    old = "stale: last read 2026-11-21 12:00:00 UTC (2 min ago), no collector runs"

    assert advise._text(found)[1] == old
    assert advise._markdown(found)[2] == old
    assert old not in advise._text(example("job_advice"))


def test_a_change_that_missed_a_prediction_is_not_called_verified():
    found, card = example("job_advice"), example("card_verified")
    missed = (card.measured[0].model_copy(update={"is_inside": False}), *card.measured[1:])

    held, not_held = (
        found.model_copy(update={"cards": [card.model_copy(update={"measured": rows})]})
        for rows in (tuple(m.model_copy(update={"is_inside": True}) for m in card.measured), missed)
    )

    for words in (advise._text, advise._markdown):
        assert any(f"verified: {card.state_reason}" in line for line in words(held))
        assert any(f"not as predicted: {card.state_reason}" in line for line in words(not_held))
