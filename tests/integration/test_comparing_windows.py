"""Tests of the comparison of two windows over a real store: counts and quantiles are those of the ingested values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.contracts import api
from backend.contracts.comparing_windows import WindowsComparisonOut
from backend.domain.checkpoint import CheckpointKind
from backend.services.checkpoints import comparing_windows
from tests.support.observations import CONFIG, NOW, completed, failed, in_progress, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

# Checkpoint n is triggered 10 s after checkpoint n - 1, and takes 300 + n ms.
BEGIN = NOW - timedelta(hours=1)
CUT = BEGIN + timedelta(seconds=200)


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _get(client, **query):
    (row,) = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content).items
    return await client.get(f"/api/v1/jobs/{row.id}/compare-windows", params=query)


async def _compared(client, **query):
    answer = await _get(client, **query)
    assert answer.status_code == 200, answer.text
    return WindowsComparisonOut.model_validate_json(answer.content)


def _at(instant):
    return instant.isoformat()


def _longer(number, by_ms):
    one = completed(number)
    return replace(one, header=replace(one.header, end_to_end_duration_ms=300 + number + by_ms))


async def test_the_windows_have_the_counts_and_quantiles_of_their_checkpoints(client, writer, target):
    savepoint = completed(21)
    savepoint = replace(savepoint, header=replace(savepoint.header, kind=CheckpointKind.SAVEPOINT))
    seen = [
        *(completed(n) for n in range(10, 20)),
        *(_longer(n, 5_000) for n in range(22, 32)),
        *(failed(n) for n in (32, 33)),
        savepoint,
        in_progress(40),
    ]
    await writer.write(observation(target, job(seen)))

    found = await _compared(client, at=_at(CUT), width_s="300")

    assert (found.before.completed_count, found.before.failed_count) == (10, 0)
    assert (found.after.completed_count, found.after.failed_count) == (10, 2)
    assert found.after.failed_by_reason == {"expired": 2}
    assert found.after.failed_ratio == pytest.approx(2 / 12)
    assert found.after.failed_per_h == pytest.approx(24)
    assert (found.before.is_capped, found.before.considered_count) == (False, 10)
    duration = next(m for m in found.measures if m.measure == "end_to_end_duration_ms")
    assert duration.before.median.value == 314.5
    # Two expired checkpoints count with the time until they expired.
    assert duration.after.count == 12
    assert duration.after.median.is_at_least
    assert duration.median.direction == "higher"
    alignment = next(m for m in found.measures if m.measure == "alignment_max_ms")
    assert alignment.before.points == [15 + n for n in range(10, 20)]
    # So do their phases: those of the subtasks that acknowledged are lower bounds.
    assert (alignment.after.count, alignment.after.p95.is_at_least) == (12, True)
    size = next(m for m in found.measures if m.measure == "checkpointed_size_bytes")
    assert (size.after.count, size.after.p95.is_at_least) == (10, False)
    assert [m.measure for m in found.measures if m.measure == "persisted_bytes"] == [], "never reported"
    assert found.headline.startswith("The median duration changed: 314 ms before, at least 5.3 s after")
    assert not found.is_too_few


async def test_a_window_is_final_once_it_has_passed_and_its_checkpoints_have_ended(client, writer, target, clock):
    await writer.write(observation(target, job([*(completed(n) for n in range(1, 31)), in_progress(40)])))
    passed = {"before_from": _at(BEGIN), "before_to": _at(CUT), "after_from": _at(CUT)}

    async def states(after_to):
        found = await _compared(client, **passed, after_to=_at(after_to))
        return [found.before.freshness.state, found.after.freshness.state]

    assert await states(BEGIN + timedelta(seconds=310)) == ["final", "final"]
    assert await states(NOW) == ["final", "fresh"], "a checkpoint is open"
    clock.at = NOW + timedelta(minutes=2)
    assert await states(NOW) == ["final", "no-collector"]
    assert await states(clock.at) == ["final", "no-collector"], "nothing was read of the end of the window"


async def test_any_two_windows_can_be_named_and_too_few_checkpoints_are_said(client, writer, target):
    await writer.write(observation(target, job([completed(n) for n in range(1, 31)])))
    ends = {
        "before_from": BEGIN,
        "before_to": BEGIN + timedelta(seconds=35),
        "after_from": CUT,
        "after_to": CUT + timedelta(hours=1),
    }

    found = await _compared(client, **{name: _at(end) for name, end in ends.items()})

    assert (found.before.completed_count, found.after.completed_count) == (3, 11)
    assert found.is_too_few
    assert found.headline == "Too few checkpoints to tell: 3 before and 11 after; each side needs at least 7."
    empty = await _compared(client, at=_at(NOW + timedelta(days=3)), width_s="60")
    assert (empty.before.completed_count, empty.measures, empty.before.failed_ratio) == (0, [], None)


async def test_settings_and_events_between_the_windows_are_listed(client, writer, target):
    await writer.write(
        observation(target, job([completed(n) for n in range(1, 11)]), at=BEGIN + timedelta(seconds=130))
    )
    changed = replace(job([completed(n) for n in range(11, 31)]), config=replace(CONFIG, timeout_ms=5_000))
    await writer.write(observation(target, changed, at=CUT))
    answer = await client.get("/api/v1/jobs")
    note = {"text": "release 7", "at": _at(CUT - timedelta(seconds=60)), "link": "https://ci.example/7"}
    posted = await client.post(f"/api/v1/jobs/{answer.json()['items'][0]['id']}/annotations", json=note)
    assert posted.status_code == 201, posted.text

    found = await _compared(client, at=_at(CUT), width_s="600")

    settings = {s.name: (s.a, s.b) for s in found.settings if s.is_different}
    assert settings == {"timeout_ms": (60_000, 5_000)}
    assert [(e.kind, e.place) for e in found.events] == [("annotation", "before"), ("configuration-changed", "after")]
    assert found.events[0].link == "https://ci.example/7"
    assert "timeout" in found.events[1].text


@pytest.mark.parametrize("later_offset_ms", [-2, -28_000, 60_000])
async def test_a_change_of_settings_is_seen_although_the_clocks_drift_apart(client, writer, target, later_offset_ms):
    first = observation(target, job([completed(n) for n in range(1, 11)]), at=BEGIN + timedelta(seconds=130))
    await writer.write(replace(first, clock_offset_ms=2))
    changed = replace(job([completed(n) for n in range(11, 31)]), config=replace(CONFIG, timeout_ms=5_000))
    await writer.write(replace(observation(target, changed, at=CUT), clock_offset_ms=2))
    later = observation(target, changed, at=CUT + timedelta(seconds=300))
    await writer.write(replace(later, clock_offset_ms=later_offset_ms))

    found = await _compared(client, at=_at(CUT + timedelta(milliseconds=2)), width_s="300")

    assert {s.name: (s.a, s.b) for s in found.settings if s.is_different} == {"timeout_ms": (60_000, 5_000)}


async def test_more_checkpoints_than_are_read_are_counted_and_said(client, writer, target, monkeypatch):
    monkeypatch.setattr(comparing_windows, "CONSIDERED_MAX", 5)
    await writer.write(observation(target, job([completed(n) for n in range(10, 30)])))

    found = await _compared(client, at=_at(CUT), width_s="300")

    assert (found.before.completed_count, found.before.considered_count, found.before.is_capped) == (10, 5, True)
    duration = next(m for m in found.measures if m.measure == "end_to_end_duration_ms")
    assert duration.before.points == [315, 316, 317, 318, 319], "the newest ones of the window"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({}, "`at`, or all of before_from, before_to, after_from, after_to"),
        ({"before_from": BEGIN, "before_to": CUT, "after_from": CUT}, "after_to"),
        ({"at": CUT, "before_from": BEGIN}, "together with `at`"),
        (
            {"before_from": CUT, "before_to": BEGIN, "after_from": CUT, "after_to": NOW},
            "an instant before `before_to`",
        ),
        ({"before_from": BEGIN, "before_to": BEGIN, "after_from": CUT, "after_to": NOW}, "before_from"),
        ({"before_from": BEGIN, "before_to": CUT, "after_from": NOW, "after_to": CUT}, "an instant before `after_to`"),
        ({"before_from": BEGIN, "before_to": NOW, "after_from": CUT, "after_to": NOW}, "at or after `before_to`"),
        (
            {
                "before_from": BEGIN - timedelta(days=401),
                "before_to": BEGIN,
                "after_from": CUT,
                "after_to": NOW,
            },
            "400 days at most",
        ),
    ],
)
async def test_windows_that_cannot_be_compared_are_a_problem(client, writer, target, query, words):
    await writer.write(observation(target, job([completed(1)])))

    answer = await _get(client, **{name: _at(value) for name, value in query.items()})

    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.text


async def test_an_unknown_job_is_not_found(client):
    answer = await client.get("/api/v1/jobs/none/compare-windows", params={"at": _at(CUT)})

    assert answer.status_code == 404
