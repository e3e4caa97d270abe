"""Tests of the footer: its warning that the stored history will exceed the size limit, and the rewriting of a day."""

from __future__ import annotations

from datetime import date

from backend.contracts.status import HistoryOut, RewritingOut, StatusOut
from dashboard.components.shell import history_state, rewriting_state, service_state
from tests.support.api_examples import example
from tests.support.dash_calls import texts

_SHORT = {"is_short": True, "held_days": 3.5, "needed_bytes": 5 * 2**30}


def _status(**changed):
    found = StatusOut.model_validate(example("status"))
    assert found.history is not None
    return found.model_copy(update={"history": found.history.model_copy(update=changed)})


def test_a_history_that_does_not_fit_is_a_warning_with_the_size_that_it_needs():
    short = _status(**_SHORT)

    assert "history holds 3.5 of 7 days" in texts(service_state(short))
    title = history_state(short.history).to_plotly_json()["props"]["title"]
    assert "limit of 2048 MiB" in title
    assert "fits into 5120 MiB" in title


def test_the_progress_of_a_day_that_is_rewritten_is_shown():
    found = RewritingOut(day=date(2026, 11, 16), table="checkpoint_details", percent=40)
    rewriting = _status(rewriting=found)

    assert "rewriting 2026-11-16: 40 %" in texts(service_state(rewriting))
    assert rewriting_state(rewriting.history) is not None
    assert rewriting_state(_status().history) is None
    assert rewriting_state(None) is None


def test_a_history_that_fits_or_is_not_known_yet_is_no_warning():
    assert "history holds" not in texts(service_state(_status()))
    assert history_state(None) is None
    assert history_state(_status(is_short=False, held_days=None).history) is None
    assert isinstance(_status().history, HistoryOut)
