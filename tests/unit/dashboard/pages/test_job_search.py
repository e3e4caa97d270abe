"""Tests of the list that chooses one of all jobs."""

from __future__ import annotations

import pytest

from dashboard.components import job_picker
from tests.support.dash_calls import LOOK

pytestmark = pytest.mark.anyio

_OPTIONS = "comparison-other-found.data"
CHOSEN = {"value": "jE", "label": "payments · production-eu"}


async def _found(ui, typed):
    values = LOOK | {
        "comparison-other.searchValue": typed,
        "comparison-other.value": "jE",
        "comparison-other.data": [CHOSEN],
    }
    answer = await ui.call(_OPTIONS, values, by="comparison-other.searchValue")
    return [o["value"] for o in answer["comparison-other-found"]["data"]["options"]]


async def test_the_list_has_the_jobs_that_match_and_the_chosen_one(ui):
    assert await _found(ui, "backpressured") == ["jruntime", "jE"]
    assert await _found(ui, "no such") == ["jE"]


async def test_the_text_of_the_chosen_job_is_no_search(ui):
    assert len(await _found(ui, CHOSEN["label"])) > 2


async def test_nothing_is_searched_for_a_job_that_was_just_chosen_before_the_list_has_its_value(ui):
    values = LOOK | {
        "comparison-other.searchValue": CHOSEN["label"],
        "comparison-other.value": "jruntime",
        "comparison-other.data": [CHOSEN],
    }
    assert await ui.call(_OPTIONS, values, by="comparison-other.searchValue") is None


async def test_of_very_many_jobs_a_few_are_listed(ui, monkeypatch):
    monkeypatch.setattr(job_picker, "SHOWN_MAX", 2)

    assert len(await _found(ui, "")) <= 3
