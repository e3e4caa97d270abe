"""The actions on a checkpoint in progress: what each engine allows, what is sent to the target, and the annotation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.contracts.annotations import AnnotationOut
from backend.contracts.api import JobOut, Page, Problem
from backend.contracts.checkpoint_actions import ActionTakenOut
from backend.contracts.progress import ProgressOut
from backend.domain.checkpoint import CheckpointConfig, Guarantee
from backend.domain.engines import FLINK, RUNTIME
from backend.domain.job_request import AbortCheckpoint, StartFrom, StopWithSavepoint, TriggerSavepoint
from backend.domain.observation import JobState
from backend.domain.protocols import Protocol
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, completed, in_progress, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_URL = "http://127.0.0.1:18050/runtime/v1"
_ALIGNED = CheckpointConfig(
    mode="exactly_once", interval_ms=10_000, timeout_ms=60_000, is_unaligned_enabled=False, max_concurrent=1
)
_TIMEOUT, _UNALIGNED = "execution.checkpointing.timeout", "execution.checkpointing.unaligned.enabled"


class Room:
    """A job with an open checkpoint, the API over it, and the changes that reached its target."""

    def __init__(self, engine, writer, clock):
        self.engine, self.writer, self.clock = engine, writer, clock
        self.sent = []

    async def change(self, url, run, change, timeout_s, token, *, kind, reach):
        self.sent.append((url, run, change))

    async def open(self, of=RUNTIME, config=_ALIGNED, checkpoint=None, *, has_job_ended=False):
        self.clock.at = NOW
        new = NewTarget(url=_URL, name="demo", origin=TargetOrigin.API)
        target = (await TargetRepository(self.engine).add(new, at=NOW)).id
        seen = replace(job([checkpoint or in_progress(4, acknowledged_count=4)]), config=config)
        if has_job_ended:
            seen = replace(seen, state=JobState.ENDED, engine_state="FINISHED", ended_at=NOW)
        await self.writer.write(replace(observation(target, seen), engine=of, engine_version=None))

    async def get(self, client, path, model):
        answer = await client.get(path)
        assert answer.status_code == 200, answer.text
        return model.model_validate_json(answer.content)

    async def root(self, client):
        (row,) = (await self.get(client, "/api/v1/jobs", Page[JobOut])).items
        return f"/api/v1/jobs/{row.id}", f"/api/v1/jobs/{row.id}/runs/{row.run_id}/checkpoints/4"


@pytest.fixture
async def room(engine, writer, clock):
    return Room(engine, writer, clock)


@pytest.fixture
async def client(engine, clock, room):
    async with asking(api_over(engine, clock, change_settings=room.change)) as opened:
        yield opened


async def test_each_action_is_sent_as_it_was_confirmed_and_becomes_an_annotation(client, room):
    await room.open()
    job_root, root = await room.root(client)
    found = await room.get(client, f"{root}/progress", ProgressOut)
    assert [(a.action, a.is_possible) for a in found.actions] == [
        ("extend-timeout", True),
        ("switch-to-unaligned", True),
        ("savepoint", True),
        ("abort", True),
        ("stop-with-savepoint", True),
    ]
    for action in found.actions:
        body = {"action": action.action, "settings": {c.key: c.proposed for c in action.changes}, "author": "ann"}
        answer = await client.post(f"{root}/actions", json=body)
        assert answer.status_code == 200, answer.text
        assert ActionTakenOut.model_validate_json(answer.content).action is action.action

    assert [change for _, _, change in room.sent] == [
        {_TIMEOUT: "120000 ms"},
        {_UNALIGNED: "true"},
        TriggerSavepoint(),
        AbortCheckpoint(4),
        StopWithSavepoint(),
    ]
    assert {(url, run) for url, run, _ in room.sent} == {(_URL, "a" * 32)}
    notes = (await room.get(client, f"{job_root}/annotations", Page[AnnotationOut])).items
    assert {n.text for n in notes} == {
        f"checkpoint 4: timeout extended ({_TIMEOUT}: 120000 ms)",
        f"checkpoint 4: switched to unaligned ({_UNALIGNED}: true)",
        "checkpoint 4: savepoint triggered",
        "checkpoint 4: aborted",
        "checkpoint 4: stop of the job with a savepoint requested",
    }
    assert all((n.tags, n.author) == (["action"], "ann") for n in notes)


async def test_flink_takes_a_savepoint_and_the_other_actions_state_why_they_are_not_possible(client, room):
    await room.open(FLINK)
    _, root = await room.root(client)
    actions = (await room.get(client, f"{root}/progress", ProgressOut)).actions
    assert {a.action.value: a.reason for a in actions} == {
        "extend-timeout": "Flink takes the timeout when the job starts",
        "switch-to-unaligned": "Flink takes the mode when the job starts",
        "savepoint": None,
        "abort": "Flink has no request that aborts a checkpoint",
    }
    refused = await client.post(f"{root}/actions", json={"action": "abort"})
    taken = await client.post(f"{root}/actions", json={"action": "savepoint"})

    assert (refused.status_code, taken.status_code) == (409, 200)
    problem = Problem.model_validate_json(refused.content)
    assert (problem.type.endswith("action-not-available"), "no request" in problem.detail) == (True, True)
    assert [change for _, _, change in room.sent] == [TriggerSavepoint()]


async def test_other_values_than_those_that_were_confirmed_are_not_set(client, room):
    await room.open()
    _, root = await room.root(client)
    for settings in ({}, {_TIMEOUT: "90000 ms"}):
        answer = await client.post(f"{root}/actions", json={"action": "extend-timeout", "settings": settings})
        assert answer.status_code == 409, answer.text
        assert answer.json()["type"].endswith("settings-changed")
    wrong = await client.post(f"{root}/actions", json={"action": "restart"})

    assert wrong.status_code == 422
    assert room.sent == []


@pytest.mark.parametrize(
    ("changes", "has_job_ended", "reason", "rule"),
    [
        ({}, False, "the job still runs, and both would write to its external system", "SNK-3"),
        ({}, True, None, None),
        ({"is_discarded": True}, True, "it was dropped after newer ones were complete", "CO-12"),
        ({"external_path": None}, True, "its location is not known", "CK-3"),
    ],
)
async def test_a_job_is_stopped_with_a_savepoint_and_started_from_an_ended_checkpoint(
    client, room, changes, has_job_ended, reason, rule
):
    ended = completed(4)
    location = f"runtime:/{'a' * 32}/chk-4"
    header = replace(ended.header, **{"external_path": location, "is_discarded": False} | changes)
    await room.open(checkpoint=replace(ended, header=header), has_job_ended=has_job_ended)
    _, root = await room.root(client)
    stop, start = (await room.get(client, f"{root}/progress", ProgressOut)).actions
    assert (stop.action, stop.rule) == ("stop-with-savepoint", "SV-3" if has_job_ended else None)
    assert (start.action, start.reason, start.rule) == ("start-from", reason, rule)
    for action, request in ((stop, StopWithSavepoint()), (start, StartFrom(location))):
        room.sent.clear()
        answer = await client.post(f"{root}/actions", json={"action": action.action})
        assert answer.status_code == (200 if action.is_possible else 409), answer.text
        assert [change for _, _, change in room.sent] == ([request] if action.is_possible else [])
        if not action.is_possible:
            assert Problem.model_validate_json(answer.content).detail == f"{action.reason} ({action.rule})"


async def test_an_ended_checkpoint_of_flink_takes_no_action(client, room):
    await room.open(FLINK, checkpoint=completed(4))
    _, root = await room.root(client)
    refused = await client.post(f"{root}/actions", json={"action": "abort"})
    assert refused.status_code == 409, refused.text
    assert (
        Problem.model_validate_json(refused.content).detail == "the checkpoint has ended, or its engine has no actions"
    )
    assert room.sent == []


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (
            {"is_unaligned_enabled": True, "aligned_timeout_ms": 0},
            "checkpoints are unaligned from their trigger already",
        ),
        ({"is_unaligned_enabled": None}, "the mode is not known"),
        (
            {"is_unaligned_enabled": True, "aligned_timeout_ms": 0, "protocol": Protocol.CHANDY_LAMPORT},
            "the job takes Chandy-Lamport checkpoints, whose markers overtake nothing",
        ),
        ({"mode": "at_least_once"}, "only exactly-once checkpoints can be unaligned"),
        ({"is_unaligned_enabled": True, "aligned_timeout_ms": 2000}, None),
    ],
)
async def test_the_switch_to_unaligned_is_offered_only_where_it_changes_something(client, room, config, reason):
    changed = replace(_ALIGNED, **config)
    assert (changed.guarantee is Guarantee.EXACTLY_ONCE) == ("mode" not in config)
    await room.open(config=changed)
    _, root = await room.root(client)
    actions = (await room.get(client, f"{root}/progress", ProgressOut)).actions
    switch = next(a for a in actions if a.action == "switch-to-unaligned")

    assert switch.reason == reason
    assert [c.proposed for c in switch.changes] == ([] if reason else ["0 ms"])
