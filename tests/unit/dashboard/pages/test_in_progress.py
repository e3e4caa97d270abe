"""The panel of the checkpoint in progress, called as a browser does."""

from __future__ import annotations

from datetime import timedelta

import pytest

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
