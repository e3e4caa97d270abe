"""Tests of ``barrierscope whatif``: what it prints, its exit code, and how it follows and cancels a confirmation."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from types import SimpleNamespace

import httpx
import pytest

from backend.cli import what_if
from backend.cli.app import run
from backend.cli.what_if_text import lines_of
from backend.contracts.replay_debt import ReplayDebtOut
from backend.contracts.simulations import SimulationState
from backend.contracts.whatif import WhatIfOut
from backend.domain.freshness import Freshness
from backend.domain.replay_debt import DebtOrigin, ReplayBound
from tests.support.api_examples import stale
from tests.support.fake_api import FakeApi
from tests.support.streamed_answers import streamed

_NOON = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
_UNALIGNED = "execution.checkpointing.unaligned.enabled=true"


@pytest.fixture
def fake(monkeypatch):
    fake = FakeApi(now=lambda: _NOON)
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=streamed(fake.handle)))
    monkeypatch.setattr(what_if, "_POLL_S", 0.0)
    return fake


@pytest.mark.usefixtures("fake")
def test_a_what_if_shows_measured_and_predicted_values_the_error_of_the_model_and_how_to_make_the_change(capsys):
    assert run(["whatif", "jruntime", "--set", _UNALIGNED]) == 0

    lines = capsys.readouterr().out.splitlines()
    (duration,) = [line for line in lines if line.startswith("end_to_end_duration_ms")]
    assert duration.split()[1:3] == ["3.7", "s"]
    assert "3.7 s (3.6 to 3.8 s)" in duration
    assert duration.count(" to ") == 3
    assert duration.endswith("+5 %")
    (head,) = [line for line in lines if line.split()[:1] == ["measured"] and line.endswith("model error")]
    assert len(head) == len(duration), "the columns are as wide as their widest cell"
    # The fake measured no restore, and its model was not scored on one.
    (restore,) = [line for line in lines if line.startswith("restore_ms")]
    assert restore.split()[1] == "-"
    assert restore.endswith("not scored")
    restart = "compare the prediction with the next restart of the job"
    assert f"note: not scored (restore_ms, replay_ms): checkpoints do not show what a failure costs; {restart}" in lines
    assert any(
        line.endswith(": no later checkpoint has a measured value; the next ones may have one") for line in lines
    )
    assert "predicted by the tier fast; an interval holds 90 % of the next checkpoints" in lines
    assert "assumed: speed of the store: 40 MB/s (no upload was large enough to measure it)" in lines
    assert "  execution.checkpointing.unaligned.enabled: true" in lines


def test_a_what_if_of_a_stale_job_says_so_beside_the_answer(fake, capsys):
    job = fake.jobs["jruntime"]
    job.detail = job.detail.model_copy(update={"freshness": stale(Freshness.NO_COLLECTOR)})

    assert run(["whatif", "jruntime", "--set", "mode=unaligned"]) == 0
    told = "the job is stale: last read 2026-11-21 12:00:00 UTC, no collector runs"
    assert capsys.readouterr().err == f"barrierscope: {told}\n"


@pytest.mark.usefixtures("fake")
def test_a_share_of_few_checkpoints_is_their_count(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned"]) == 0

    (expired,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("expired_ratio")]
    assert expired.split()[1:4] == ["0", "of", "8"]
    assert "0 of 8 (0 to 25 %)" in " ".join(expired.split())


@pytest.mark.usefixtures("fake")
def test_a_range_becomes_one_row_for_each_value_and_the_pareto_front_is_marked(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--vary", "interval=5 s..60 s", "--steps", "3"]) == 0

    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("interval=")]
    assert [row.split(",")[0] for row in rows] == ["interval=5000 ms", "interval=17321 ms", "interval=60000 ms"]
    assert any(row.endswith("*") for row in rows)


@pytest.mark.usefixtures("fake")
def test_json_is_the_whole_answer_of_the_api(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--json"]) == 0

    answer = WhatIfOut.model_validate(json.loads(capsys.readouterr().out))
    assert answer.asked.settings == {"mode": "unaligned"}


@pytest.mark.usefixtures("fake")
def test_an_export_is_the_settings_alone_in_the_form_that_was_asked_for(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--export", "job-file"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["[config]", f'{_UNALIGNED.split("=")[0]} = "true"']

    # The engine does not take this form.
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--export", "flink-sql"]) != 0
    printed = capsys.readouterr()
    assert (printed.out, "allowed" in printed.err or "job-file" in printed.err) == ("", True)


@pytest.mark.usefixtures("fake")
def test_the_cost_of_each_kind_of_failure_has_an_interval_and_says_what_it_is_taken_from(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned"]) == 0

    lines = capsys.readouterr().out.splitlines()
    title = "if a task fails (no failure is on record; the outage is assumed"
    (at,) = [i for i, line in enumerate(lines) if line.startswith(title)]
    assert lines[at + 1].split() == ["as", "it", "is", "changed"]
    assert [line[:18].strip() for line in lines[at + 2 : at + 6]] == [
        "outage", "input read again", "catch-up", "until caught up"
    ]  # fmt: skip
    assert lines[at + 2].count(" to ") == 2


@pytest.mark.usefixtures("fake")
def test_a_replay_without_a_limit_is_the_debt_and_a_second_more_each_second(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--json"]) == 0
    found = WhatIfOut.model_validate_json(capsys.readouterr().out)
    (cost, *_) = found.asked.failures
    endless = cost.model_copy(update={"replay_ms": None, "replay_bound": ReplayBound.ENDLESS})
    opened = cost.model_copy(update={"replay_bound": ReplayBound.OPEN})
    debt = ReplayDebtOut(since=_NOON, origin=DebtOrigin.CHECKPOINT)
    lines = lines_of(
        found.model_copy(
            update={
                "replay_debt": debt,
                "replay_debt_ms": 2_100_000.0,
                "current": found.current.model_copy(update={"failures": [endless]}),
                "asked": found.asked.model_copy(update={"failures": [opened]}),
            }
        )
    )

    assert "a failure now would replay 35 min of input (measured)" in lines
    (row,) = [line for line in lines if line.startswith("  input read again")]
    assert "35 min, and a second more each second" in row
    assert row.endswith(" or more)")


def test_a_dry_run_says_what_would_be_sent_where_and_what_refuses_it(fake, capsys):
    given = ["whatif", "jruntime", "--set", "mode=unaligned", "--dry-run"]
    assert run(given) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["mode=unaligned", "  to demo (http://127.0.0.1:8050/runtime/v1), run 0001"]
    assert f"  {_UNALIGNED.split('=')[0]}: false -> true" in lines
    assert lines[-1] == "  the target was asked and accepts it; nothing was changed"

    fake.what_ifs.is_refused = True
    assert run(given) == 0
    assert "  would be refused: it fails a rule of the target" in capsys.readouterr().out
    assert run([*given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["refusals"] == ["it fails a rule of the target"]
    assert fake.what_ifs.sent == []


@pytest.mark.usefixtures("fake")
def test_a_dry_run_of_nothing_and_of_an_unknown_setting_is_one_line(capsys):
    assert run(["whatif", "jruntime", "--dry-run"]) != 0
    assert "no setting would change" in capsys.readouterr().err
    assert run(["whatif", "jruntime", "--set", "colour=red", "--dry-run"]) != 0
    printed = capsys.readouterr()
    assert (printed.out, "colour" in printed.err) == ("", True)


@pytest.mark.usefixtures("fake")
def test_a_confirmation_is_followed_until_it_has_a_result(capsys):
    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--confirm"]) == 0

    shown = capsys.readouterr().out
    assert "confirmed on the reference runtime:" in shown
    assert shown.count("end_to_end_duration_ms") == 2


def test_ctrl_c_cancels_the_confirmation(fake, monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    fake.what_ifs.is_held = True
    # Not the function of the module `time`: a thread that another test left would be interrupted too.
    monkeypatch.setattr(what_if, "time", SimpleNamespace(sleep=interrupt))

    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--confirm"]) == 130

    (confirmation,) = fake.what_ifs.known.values()
    assert confirmation.state is SimulationState.CANCELLED
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        "barrierscope: interrupted; the confirmation is cancelled, and the server stops it within seconds"
    ]


def test_ctrl_c_while_the_api_is_away_says_that_the_confirmation_may_still_run(fake, monkeypatch, capsys):
    def interrupt(_):
        fake.is_down = True
        raise KeyboardInterrupt

    fake.what_ifs.is_held = True
    monkeypatch.setattr(what_if, "time", SimpleNamespace(sleep=interrupt))

    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--confirm"]) == 130

    (line,) = capsys.readouterr().err.splitlines()
    assert "could not be cancelled, and may still run on the server" in line


@pytest.mark.usefixtures("fake")
def test_ctrl_c_before_the_answer_says_that_a_confirmation_may_still_run(monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(what_if.Client, "post", interrupt)

    assert run(["whatif", "jruntime", "--set", "mode=unaligned", "--confirm"]) == 130
    (line,) = capsys.readouterr().err.splitlines()
    assert "a confirmation may still run there" in line
    assert run(["whatif", "jruntime", "--set", "mode=unaligned"]) == 130
    assert capsys.readouterr().err == ""


def test_a_refusal_says_once_what_is_wrong_and_what_would_help(monkeypatch, capsys):
    detail = "the job cannot be modelled: it has ended; start it"
    errors = [{"pointer": "job", "detail": "it has ended", "allowed": "start it"}]
    problem = {"type": "urn:x", "title": "Unprocessable", "status": 422, "detail": detail, "errors": errors}
    answer = streamed(lambda _: httpx.Response(422, json=problem))
    monkeypatch.setattr(httpx, "AsyncClient", partial(httpx.AsyncClient, transport=answer))

    assert run(["whatif", "jruntime", "--set", "mode=unaligned"]) != 0
    assert capsys.readouterr().err == f"barrierscope: {detail}\n"


@pytest.mark.usefixtures("fake")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["jnone"], "job 'jnone'"),
        (["jruntime", "--set", "colour=red"], "settings.colour"),
        (["jruntime", "--set", "colour"], "--set"),
        (["jruntime", "--set", "interval="], "--set: interval: String should have at least 1 character"),
        (["jruntime", "--set", f"interval={'5' * 60}"], "at most 50 characters"),
        (["jruntime", *(f"--set=key-{n}=1" for n in range(25))], "at most 24"),
        (["jruntime", "--vary", f"interval=5s..{'9' * 60}"], "--vary: high: "),
        (["jruntime", "--set", "mode=unaligned", "--set", "mode=aligned"], "mode is set twice"),
        (["jruntime", "--vary", "interval=5s"], "is not KEY=FROM..TO"),
        (["jruntime", "--vary", "mode=a..b"], "has no range"),
        (["jruntime", "--set", "mode=unaligned", "--dry-run", "--confirm"], "--confirm"),
        (["jruntime", "--set", "mode=unaligned", "--dry-run", "--export", "flink-conf"], "--export"),
        (["jruntime", "--set", "mode=unaligned", "--dry-run", "--vary", "interval=5 s..9 s"], "--vary"),
    ],
)
def test_bad_input_is_one_line_on_standard_error(arguments, words, capsys):
    assert run(["whatif", *arguments]) != 0

    printed = capsys.readouterr()
    assert printed.out == ""
    assert words in printed.err
    assert len(printed.err.splitlines()) == 1
