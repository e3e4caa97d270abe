"""Tests of the panel of a checkpoint in progress. Its callbacks are called as a browser calls them."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import pytest
from dash.exceptions import PreventUpdate

from backend.contracts.progress import ProgressOut
from dashboard.client import ApiClient
from dashboard.pages import in_progress
from tests.support.dash_calls import LOOK, texts

pytestmark = pytest.mark.anyio


async def test_the_checkpoint_in_progress_shows_what_it_waits_for_and_a_judgement(ui, clock):
    clock.now += timedelta(seconds=5)
    target = {"job": "jruntime", "run": "rruntime", "checkpoint": 24}

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    head = texts(answer["job-progress-head"]["children"])
    assert "Checkpoint 24 slow" in head
    assert "nine of ten earlier checkpoints" in head
    waiting = texts(answer["job-progress-waiting"]["children"])
    assert "Waiting on" in waiting
    assert "ledger-sink 0/4 0, 1, 2, 3" in waiting
    own = next(t for t in answer["job-acks-graph"]["figure"]["data"] if t["name"] == "this checkpoint")
    assert own["x"][-1] == 5000


async def test_an_ended_checkpoint_names_subtasks_that_never_acknowledged(ui):
    target = {"job": "jE", "run": "rE", "checkpoint": ui.fake.jobs["jE"].checkpoints[-1].checkpoint_id}

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    assert "Never acknowledged" in texts(answer["job-progress-waiting"]["children"])


async def test_a_checkpoint_that_does_not_advance_is_drawn_again_only_when_the_viewer_sees_a_difference(ui):
    stuck = ui.fake._progress("jruntime", 24)

    class Client:
        elapsed_ms = 600_000

        async def progress(self, *_key: object) -> ProgressOut:
            return stuck.model_copy(update={"elapsed_ms": self.elapsed_ms, "judgement_rule": f"{self.elapsed_ms} ms"})

    client = Client()
    target = {"job": "jruntime", "run": "rruntime", "checkpoint": 24}
    values = {"tick": 1, "look": LOOK["look.data"], "target": target, "trigger": "tick"}
    first = await in_progress.refresh(cast(ApiClient, client), "job", **values, before=None)
    client.elapsed_ms += 1_000
    with pytest.raises(PreventUpdate):
        await in_progress.refresh(cast(ApiClient, client), "job", **values, before=first["digest"])
    client.elapsed_ms += 9_000
    later = await in_progress.refresh(cast(ApiClient, client), "job", **values, before=first["digest"])

    assert "610000 ms" in texts(later["head"])
