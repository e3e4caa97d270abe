"""Tests of the panel of a checkpoint in progress. Its callbacks are called as a browser calls them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import cast

import pytest
from dash.exceptions import PreventUpdate

from backend.contracts.checkpoint_actions import ActionOut
from backend.contracts.progress import ProgressOut, UnalignedOut
from backend.domain.checkpoint import CheckpointStatus
from backend.domain.checkpoint_action import CheckpointAction
from backend.domain.observation import JobState
from backend.domain.progress import Outlook
from dashboard import text
from dashboard.client import ApiClient
from dashboard.components import progress
from dashboard.pages import in_progress
from tests.support.api_examples import example
from tests.support.dash_calls import LOOK, job_values, texts

pytestmark = pytest.mark.anyio


async def test_the_checkpoint_in_progress_shows_what_it_waits_for_and_a_judgement(ui, clock):
    clock.now += timedelta(seconds=5)
    target = {"job": "jruntime", "run": "rruntime", "checkpoint": 24}

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    head = texts(answer["job-progress-head"]["children"])
    assert "Checkpoint 24 slow" in head
    assert "acknowledged after 5.0 s, within 7.9 s" in head
    assert "after its trigger" in head
    assert "predicted" in head
    assert "Unaligned now would persist 5.3 MB predicted" in head
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
    past = ui.fake._progress("jE", target["checkpoint"]).past_acks
    ends = sorted(text.duration(curve[-1].elapsed_ms) for curve in past)
    head = texts(answer["job-progress-head"]["children"])
    assert f"The last acknowledgement of {len(past)} earlier completed checkpoints came {ends[0]}" in head
    assert "is-last" not in repr(answer["job-progress-head"]["children"])


async def test_an_ended_checkpoint_shows_its_phases_and_links_where_one_in_progress_has_its_prediction_and_buttons(ui):
    made = ui.fake.jobs["jE"]
    made.checkpoints[-1] = made.checkpoints[-1].model_copy(update={"is_lower_bound": True, "start_delay_max_ms": 2_800})
    job = await ui.call("job-head.children", job_values("jE"), by="tick.n_intervals")
    target = job["job-progress-target"]["data"]

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    assert "Start delay, max > 2.8 s" in texts(answer["job-progress-head"]["children"])
    assert texts(answer["job-progress-actions"]["children"]).split() == ["Phases", "Compare", "Space-time"]
    # A checkpoint in progress has no largest value yet.
    running = await ui.call("job-head.children", job_values("jruntime"), by="tick.n_intervals")
    assert "phases" not in running["job-progress-target"]["data"]


@pytest.mark.parametrize("page", ["job", "cp"])
def test_an_ended_checkpoint_has_buttons_for_its_job_and_a_refusal_names_its_rule(page):
    ended = example("progress").model_copy(update={"status": CheckpointStatus.COMPLETED})
    stop = ActionOut(action=CheckpointAction.STOP, is_possible=True, reason=None, effect="it ends")
    start = ActionOut(
        action=CheckpointAction.START, is_possible=False, reason="the job still runs", rule="SNK-3", effect="it starts"
    )
    shown = texts(progress.actions(page, ended.model_copy(update={"actions": [stop, start]})))
    buttons = "Stop with savepoint Start from this checkpoint"
    refusal = "Start from this checkpoint is not possible: the job still runs (SNK-3)."
    assert shown == ("Phases Compare Space-time " if page == "job" else "") + f"{buttons} {refusal}"
    assert progress.actions("cp", ended.model_copy(update={"actions": []})) == []


async def test_the_panel_of_an_ended_job_has_no_room_for_another_checkpoint(ui):
    made = ui.fake.jobs["jE"]
    made.detail = made.detail.model_copy(update={"state": JobState.ENDED})
    job = await ui.call("job-head.children", job_values("jE"), by="tick.n_intervals")
    target = job["job-progress-target"]["data"]
    assert target["is_last"]

    answer = await ui.call(
        "job-progress-head.children", LOOK | {"job-progress-target.data": target}, by="tick.n_intervals"
    )

    assert "is-last" in repr(answer["job-progress-head"]["children"])


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


@pytest.mark.parametrize(
    ("outlook", "look", "mark"),
    [
        (Outlook.FINISHES, "icon-clock", True),
        (Outlook.TIMES_OUT, "icon-warning", True),
        (Outlook.UNKNOWN, "icon-question", False),
    ],
)
def test_a_prediction_is_marked_and_a_missing_one_states_its_reason(outlook, look, mark):
    found = example("progress")
    changes = {"outlook": outlook, "words": "not predictable yet: no history"}
    if outlook is Outlook.UNKNOWN:
        changes["expiry_ratio"] = None
    finish = found.finish.model_copy(update=changes)
    shown = repr(progress.head(found.model_copy(update={"finish": finish})))

    assert "Not predictable yet: no history." in shown
    assert look in shown
    unmarked = repr(progress.head(found.model_copy(update={"finish": None})))
    assert (shown.count("basis-predicted") > unmarked.count("basis-predicted")) == mark


def test_without_queues_the_panel_does_not_show_zero_for_what_unaligned_would_persist():
    head = texts(progress.head(example("progress").model_copy(update={"unaligned_now": None})))

    assert "Unaligned now would persist –" in head


async def test_an_action_is_taken_with_the_settings_that_the_dialog_showed_and_the_name_that_was_typed(ui):
    target = {"job": "jruntime", "run": "rruntime", "checkpoint": 24}
    button = {"type": "cp-act", "action": "extend-timeout"}
    by = json.dumps(button, separators=(",", ":"), sort_keys=True) + ".n_clicks"
    asked = await ui.call("cp-action-question.children", {by: 1, "cp-progress-target.data": target}, by=by)
    subject = asked["cp-action-subject"]["data"]

    assert asked["cp-action-dialog"]["opened"]
    question = texts(asked["cp-action-question"]["children"])
    assert "Extend the timeout (checkpoint 24 of job demo-backpressured ) now?" in question
    assert "- execution.checkpointing.timeout: 60000 ms" in question
    assert ui.fake.actions_taken == []
    sent = await ui.call(
        "cp-action-message",
        {
            "cp-action-confirm.n_clicks": 1,
            "cp-action-subject.data": subject,
            '{"of":"cp-action","type":"viewer-name"}.value': " ann ",
        },
        by="cp-action-confirm.n_clicks",
    )
    ((number, wanted),) = ui.fake.actions_taken
    assert (number, wanted.settings) == (24, {"execution.checkpointing.timeout": "120000 ms"})
    assert wanted.author == "ann"
    assert "Sent." in str(sent)


async def test_an_action_that_is_not_possible_any_more_is_not_asked_for(ui):
    target = {"job": "jE", "run": "rE", "checkpoint": 14}
    by = '{"action":"abort","type":"cp-act"}.n_clicks'
    asked = await ui.call("cp-action-question.children", {by: 1, "cp-progress-target.data": target}, by=by)

    assert "not possible any more: checkpoint 14 has ended" in str(asked)
    assert "cp-action-dialog" not in asked


@pytest.mark.parametrize(
    ("queued_bytes", "hint"),
    [(None, "no queued bytes are reported"), (7, "the queues in front of the barriers were not read")],
)
def test_the_panel_says_why_it_does_not_know_what_unaligned_would_persist(queued_bytes, hint):
    update = {"unaligned_now": None, "queued_bytes": queued_bytes}

    assert hint in repr(progress.head(example("progress").model_copy(update=update)))


def test_if_nothing_is_in_front_of_the_barriers_the_panel_shows_zero():
    none = UnalignedOut(value=0, low=0, high=0)
    shown = progress.head(example("progress").model_copy(update={"unaligned_now": none}))

    assert "Unaligned now would persist 0 B predicted" in texts(shown)
    assert "no bytes are queued in front of the barriers" in repr(shown)
