"""What-ifs on a job in a real store: predictions, their confirmation, what then happened, and bad input."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from fastapi import HTTPException

from backend.advisor.advice import Interval
from backend.advisor.twin.asking.changes import WhatIf
from backend.advisor.twin.fast import fast
from backend.advisor.twin.model import outcomes
from backend.advisor.twin.tiers import formulas, predicting
from backend.advisor.twin.tiers.tiers import QuickTiers
from backend.contracts.advice import CardOut, DryRunOut, JobAdviceOut
from backend.contracts.api import JobOut, Page
from backend.contracts.simulations import SimulatedCheckpointOut, SimulationState
from backend.contracts.whatif import ConfirmationOut, FailureKind, Measure, Tier, WhatIfOut
from backend.domain.advice import AdviceState, Metric, Topic
from backend.domain.errors import NotModelledError
from backend.runtime.engine.jobfile import load_job_document
from backend.services.advice.cards import AdviceService
from backend.services.simulations.simulating import SimulationStoppedError
from backend.services.simulations.worker import Pace, SimulationWorker
from backend.services.whatif import confirming, models
from backend.services.whatif.presenting import value_of
from tests.support.modelled_jobs import StoredJob
from tests.support.observations import completed, observation
from tests.support.observations import job as observed_job
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_CP = "execution.checkpointing."
_UNALIGNED = {f"{_CP}unaligned.enabled": "true"}
_SPEC = load_job_document(
    {
        "name": "small",
        "seed": 7,
        "config": {f"{_CP}interval": "5 s", f"{_CP}timeout": "60 s"},
        "vertex": [
            {"id": "orders", "kind": "source", "parallelism": 2, "record_bytes": 2000, "keys": 400, "cost_us": 50},
            {"id": "sums", "kind": "keyed+sink", "parallelism": 2, "record_bytes": 2000, "cost_us": 20_000},
        ],
        "edge": [{"from": "orders", "to": "sums", "partitioner": "hash"}],
    }
)


@pytest.fixture
async def job(engine, clock):
    async with StoredJob(_SPEC, engine, clock) as stored:
        await stored.run(60)
        yield stored


@pytest.fixture
async def client(engine, clock, job):
    async with asking(api_over(engine, clock, change_settings=job.change)) as opened:
        yield opened


@pytest.fixture
def worker(engine, clock):
    others = {confirming.KIND: confirming.run}
    return SimulationWorker(engine, clock, name="in-process", pace=Pace(renew_s=0.01, look_s=0.01), others=others)


async def _root(client):
    (row,) = Page[JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    return f"/api/v1/jobs/{row.id}"


async def _ask(client, body, *, status=200, path="", model=WhatIfOut):
    answer = await client.post(f"{await _root(client)}/whatif{path}", json=body)
    assert answer.status_code == status, answer.text
    return model.model_validate_json(answer.content) if status == 200 else answer.json()


async def _read(client, path, model):
    answer = await client.get(f"{await _root(client)}{path}")
    assert answer.status_code == 200, answer.text
    return model.model_validate_json(answer.content)


async def test_a_what_if_is_predicted_confirmed_applied_and_compared_with_what_happened(client, job, worker):
    found = await _ask(client, {"settings": _UNALIGNED, "candidates": [{"interval": "10 s"}], "confirm": True})
    # The prediction stands beside what was measured.
    measured = {m.measure: m.value for m in found.measured}
    assert measured[Measure.DURATION] > 1000
    assert all(m.low <= m.value <= m.high for m in found.measured)
    assert len(found.checkpoint_ids) == len(found.measured[0].values) >= 5
    assert value_of(found.asked, Measure.DURATION) < measured[Measure.DURATION] / 5
    assert value_of(found.asked, Measure.PERSISTED) > 0
    assert measured[Measure.THROUGHPUT] == pytest.approx(value_of(found.asked, Measure.THROUGHPUT), rel=0.1)
    assert [o.settings["interval"] for o in found.others] == ["10000 ms"]
    assert found.calibration.errors
    assert found.can_apply
    assert found.changes[0].key == f"{_CP}unaligned.enabled"

    # The worker of the Lab confirms it, and its barriers can be read.
    path = f"/whatif/confirmations/{found.confirmation.id}"
    assert found.confirmation.state is SimulationState.QUEUED
    assert await worker.turn(asyncio.Event())
    done = await _read(client, path, ConfirmationOut)
    assert (done.state, done.settings) == (SimulationState.COMPLETED, {"mode": "unaligned"}), done.reason
    # The runtime was scored on the checkpoints that the quick tiers were scored on.
    assert done.calibration.scored_ids == found.calibration.scored_ids
    assert done.calibration.errors
    as_is, changed = (value_of(p, Measure.DURATION) for p in done.predictions)
    # The job is young, so its first checkpoints found shorter queues than the later ones that are simulated.
    assert measured[Measure.DURATION] / 2 < as_is < measured[Measure.DURATION] * 2
    assert changed < as_is / 5
    for number, checkpoint in enumerate(done.typical_ids):
        one = await _read(client, f"{path}/runs/{number}/checkpoints/{checkpoint}", SimulatedCheckpointOut)
        assert one.barriers.events
        assert one.space_time.lanes

    # It is no simulation of the Lab, nor a confirmation of another job.
    assert (await client.get(f"/api/v1/simulations/{done.id}")).status_code == 404
    assert (await client.get(f"/api/v1/jobs/jother{path}")).status_code == 404

    # It is applied. The card keeps the prediction, and then has what was measured.
    card = await _ask(client, {"settings": _UNALIGNED}, path="/apply", model=CardOut)
    assert job.sent == [{f"{_CP}unaligned.enabled": "true", f"{_CP}aligned-checkpoint-timeout": "0 ms"}]
    assert (card.state, card.recommendation.topic) == (AdviceState.ACCEPTED, Topic.WHAT_IF)
    for seconds, state in ((10, AdviceState.APPLIED), (40, AdviceState.VERIFIED)):
        await job.run(seconds)
        (shown,) = [c for c in (await _read(client, "/advice", JobAdviceOut)).cards if c.id == card.id]
        assert shown.state is state, shown.state_reason
    card = await _read(client, f"/recommendations/{card.id}", CardOut)
    assert card.measured_ids
    after = {m.metric: m for m in card.measured}
    assert after[Metric.DURATION].predicted.value == value_of(found.asked, Measure.DURATION)
    assert after[Metric.DURATION].measured < measured[Measure.DURATION] / 5
    # The model now is that of the job under its new settings.
    now = await _ask(client, {})
    assert next(s.current for s in now.settings if s.name == "mode") == "unaligned"


async def test_one_tier_answers_a_whole_comparison_which_has_the_plain_modes_beside_an_aligned_timeout(
    engine, clock, job, monkeypatch
):
    def fast_run(model, **_):
        return replace(formulas.simulate(model), tier=outcomes.Tier.FAST)

    monkeypatch.setattr(predicting, "simulate_fast", fast_run)
    body = {
        "settings": {"mode": "aligned-with-timeout", "aligned-timeout": "500 ms"},
        "candidates": [{"mode": "unaligned"}, {"mode": "aligned"}, {"aligned-timeout": "800 ms"}],
    }

    def tiers(found):
        return {p.tier for p in (found.current, found.asked, *found.others)}

    async with asking(api_over(engine, clock, quick=QuickTiers(is_ready=True))) as client:
        found = await _ask(client, body)
        assert tiers(found) == {Tier.FAST}
        assert [(o.settings, o.problem) for o in found.others] == [
            ({"mode": "unaligned"}, None),
            ({"mode": "aligned"}, None),
            ({"mode": "aligned-with-timeout", "aligned-timeout": "800 ms"}, None),
        ]
        assert found.others[0].is_on_front
        assert found.calibration.errors

        monkeypatch.setattr(fast, "CHANNELS_QUICK_MAX", 3)
        small = await _ask(client, body)
        assert tiers(small) == {Tier.FORMULAS}
        why_not = "it has 4 channels, and the fast simulation takes 3, so closed formulas answer"
        assert any(why_not in note for note in small.asked.notes)
        assert all(o.problem is None for o in small.others)


@pytest.mark.parametrize(
    ("body", "pointer", "words"),
    [
        ({"settings": {"colour": "red"}}, "settings.colour", "is not a setting"),
        ({"settings": {"interval": "soon"}}, "settings.interval", "cannot be read"),
        ({"settings": {"mode": "aligned", "aligned-timeout": "1 s"}}, "settings.aligned-timeout", "no aligned timeout"),
        ({"settings": {"without-slow-host": "true"}}, "settings.without-slow-host", "no slow host"),
        ({"candidates": [{"mode": "fast"}]}, "candidates.0.mode", "is not a mode"),
        ({"vary": {"key": "mode", "low": "a", "high": "b"}}, "vary.key", "has no range"),
        ({"vary": {"key": "interval", "low": "9 s", "high": "1 s"}}, "vary.high", "is not above"),
    ],
)
async def test_bad_input_is_one_problem_that_names_the_setting(client, body, pointer, words):
    problem = await _ask(client, body, status=422)

    (error,) = problem["errors"]
    assert error["pointer"] == pointer
    assert words in error["detail"]


async def test_the_front_does_not_rest_on_shares_of_expired_checkpoints_that_are_withdrawn(client, monkeypatch):
    usual = predicting.predict

    def predict(model, what_if, tier, **_):
        share, duration = 1.0, 300.0
        if what_if != WhatIf():
            share, duration = (0.5, 100.0) if what_if.interval_ms is None else (0.2, 200.0)
        of = {"expired_ratio": share, "duration_ms": duration, "persisted_bytes": 1.0}
        return replace(usual(model, what_if, tier), **{k: Interval(v, v, v) for k, v in of.items()})

    monkeypatch.setattr(predicting, "predict", predict)
    found = await _ask(client, {"settings": _UNALIGNED, "candidates": [{"interval": "10 s"}]})
    shown = (found.current, found.asked, *found.others)
    assert [value_of(p, Measure.EXPIRED) for p in shown] == [None] * 3
    assert [p.is_on_front for p in shown] == [False, True, False]


async def test_the_prediction_that_was_shown_is_kept_although_a_newer_model_predicts_something_else(client, job):
    shown = await _ask(client, {"settings": _UNALIGNED})
    await job.run(90)
    newer = await _ask(client, {"settings": _UNALIGNED})
    assert newer.model_id != shown.model_id
    assert newer.checkpoint_ids != shown.checkpoint_ids

    body = {"settings": _UNALIGNED, "model_id": shown.model_id}
    card = await _ask(client, body, path="/accept", model=CardOut)

    kept = {e.metric: e.predicted.value for e in card.recommendation.expected}
    assert kept[Metric.DURATION] == value_of(shown.asked, Measure.DURATION)
    assert card.recommendation.checkpoint_ids == shown.checkpoint_ids


@pytest.mark.parametrize("path", ["/apply", "/accept"])
async def test_a_prediction_that_is_no_longer_kept_is_refused_and_not_replaced(client, clock, job, monkeypatch, path):
    shown = await _ask(client, {"settings": _UNALIGNED})
    body = {"settings": _UNALIGNED, "model_id": shown.model_id}

    async def refused(body):
        problem = await _ask(client, body, path=path, status=409)
        assert problem["type"] == "urn:barrierscope:problem:prediction-gone"
        assert problem["detail"].startswith("the prediction of this answer is no longer kept")
        assert problem["detail"].endswith("ask again")

    # Too old. An answer of the same model that was shown later is not.
    clock.at += timedelta(seconds=50)
    again = await _ask(client, {"settings": _UNALIGNED})
    assert again.model_id == shown.model_id
    clock.at += timedelta(seconds=599)
    with monkeypatch.context() as patched:
        patched.setattr(AdviceService, "keep_what_if", _kept)
        assert (await client.post(f"{await _root(client)}/whatif{path}", json=body)).status_code == 418
    clock.at += timedelta(seconds=2)
    await refused(body)
    # Evicted by the models of other answers, or never known.
    monkeypatch.setattr(models, "_SHOWN_COUNT", 1)
    evicted = await _ask(client, {"settings": _UNALIGNED})
    clock.at += timedelta(seconds=61)
    newest = await _ask(client, {"settings": _UNALIGNED})
    await refused(body | {"model_id": evicted.model_id})
    await refused(body | {"model_id": "abc"})
    # The settings of the job changed.
    await job.change("", "", {f"{_CP}interval": "6 s"})
    await job.run(20)
    await refused(body | {"model_id": newest.model_id})
    assert job.sent == [{f"{_CP}interval": "6 s"}]
    # Without a model, the newest one predicts.
    await job.run(60)
    await _ask(client, {"settings": _UNALIGNED}, path=path, model=CardOut)


async def _kept(*_, **__):
    raise HTTPException(418)


async def test_a_shown_prediction_is_kept_although_a_better_tier_is_ready_now(engine, clock, job, monkeypatch):
    quick = QuickTiers()
    monkeypatch.setattr(
        predicting, "simulate_fast", lambda model, **_: replace(formulas.simulate(model), tier=outcomes.Tier.FAST)
    )
    async with asking(api_over(engine, clock, quick=quick)) as client:
        shown = await _ask(client, {"settings": _UNALIGNED})
        quick.begin()
        quick.finish()
        body = {"settings": _UNALIGNED, "model_id": shown.model_id}
        card = await _ask(client, body, path="/accept", model=CardOut)

    assert shown.asked.tier is Tier.FORMULAS
    assert "formulas" in card.recommendation.expected[0].method


async def test_what_cannot_be_applied_is_refused(client, job):
    for settings, kind in (({"parallelism.sums": "4"}, "not-applicable"), ({"interval": "5 s"}, "not-applicable")):
        problem = await _ask(client, {"settings": settings}, path="/apply", status=409)
        assert problem["type"].endswith(kind)
    assert job.sent == []


async def test_a_dry_run_says_what_would_be_sent_where_and_what_refuses_it(client, job):
    found = await _ask(client, {"settings": _UNALIGNED}, path="/dry-run", model=DryRunOut)
    assert (found.is_accepted, found.is_checked, found.refusals) == (True, True, [])
    assert (found.changes[0].key, found.changes[0].proposed) == (f"{_CP}unaligned.enabled", "true")
    assert found.url.startswith("http")
    assert len(job.checked) == 1

    mixed = {"mode": "unaligned", "parallelism.sums": "4"}
    refused = await _ask(client, {"settings": mixed}, path="/dry-run", model=DryRunOut)
    assert (refused.is_accepted, refused.is_checked, len(job.checked)) == (False, False, 1)
    assert refused.changes == found.changes
    assert refused.refusals[0] == "a part of it is no setting of the running job"
    assert "Change the parallelism" in refused.refusals[1]
    problem = await _ask(client, {"settings": {"colour": "red"}}, path="/dry-run", status=422)
    assert problem["errors"][0]["pointer"] == "settings.colour"
    assert job.sent == []


async def test_a_dry_run_of_a_change_without_a_prediction_says_that_it_is_refused(client, job, monkeypatch):
    usual = predicting.predict

    def only_as_it_is(model, what_if, tier, **_):
        if what_if != WhatIf():
            raise NotModelledError("its queues have no place left", fix="use the confirmation")
        return usual(model, what_if, tier)

    monkeypatch.setattr(predicting, "predict", only_as_it_is)
    found = await _ask(client, {"settings": _UNALIGNED}, path="/dry-run", model=DryRunOut)
    assert (found.is_accepted, found.is_checked, job.checked) == (False, False, [])
    problem = await _ask(client, {"settings": _UNALIGNED}, path="/apply", status=409)
    assert problem["type"].endswith("not-predicted")
    assert problem["detail"].endswith(found.refusals[0])


async def test_the_answer_says_that_a_better_tier_is_coming_until_it_is_there(engine, clock, job, monkeypatch):
    quick = QuickTiers()
    monkeypatch.setattr(
        predicting, "simulate_fast", lambda model, **_: replace(formulas.simulate(model), tier=outcomes.Tier.FAST)
    )
    async with asking(api_over(engine, clock, quick=quick)) as client:
        assert not (await _ask(client, {})).is_better_tier_coming
        quick.begin()
        found = await _ask(client, {})
        assert (found.asked.tier, found.is_better_tier_coming) == (Tier.FORMULAS, True)
        quick.finish()
        found = await _ask(client, {})
        assert (found.asked.tier, found.is_better_tier_coming) == (Tier.FAST, False)
        assert [f.failure for f in found.asked.failures] == [FailureKind.TASK]


async def test_a_running_confirmation_is_cancelled(client, engine, clock):
    loop, began = asyncio.get_running_loop(), asyncio.Event()

    def until_stopped(document, progress, limits):
        loop.call_soon_threadsafe(began.set)
        while not progress.is_stopped:
            pass
        raise SimulationStoppedError

    found = await _ask(client, {"settings": _UNALIGNED, "confirm": True})
    path = f"/whatif/confirmations/{found.confirmation.id}"
    others = {confirming.KIND: until_stopped}
    worker = SimulationWorker(engine, clock, name="w", pace=Pace(renew_s=0.01, look_s=0.01), others=others)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.turn(asyncio.Event()))
        await began.wait()
        assert (await client.delete(f"{await _root(client)}{path}")).status_code == 204

    ended = await _read(client, path, ConfirmationOut)
    assert (ended.state, ended.predictions) == (SimulationState.CANCELLED, [])


async def test_a_job_of_which_too_little_is_known_says_what_is_missing(engine, clock, writer, target):
    await writer.write(observation(target, observed_job([completed(1)])))
    async with asking(api_over(engine, clock)) as client:
        problem = await _ask(client, {}, status=422)

    assert problem["type"] == "urn:barrierscope:problem:job-not-modelled"
    assert "cannot be modelled" in problem["detail"]
    assert problem["errors"][0]["allowed"]
