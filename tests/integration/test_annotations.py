"""Annotations over a real store: what was posted is listed on the job's own clock, once, and within the limits."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text

from backend.contracts import api
from backend.contracts.annotations import AnnotationOut
from backend.domain.target import TargetOrigin
from backend.services.jobs import annotations as limits_of
from backend.store.postgres.connections import writing
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio

_DEPLOYED = {"text": "Deployed 2.14.0", "link": "https://ci.example/812", "tags": ["deployment"], "author": "ci"}


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.fixture
async def job_id(client, writer, target):
    await writer.write(observation(target, job([completed(1)])))
    return (await _jobs(client))["orders"]


async def _jobs(client):
    page = api.Page[api.JobOut].model_validate_json((await client.get("/api/v1/jobs")).content)
    return {f"{row.name}@{row.target_name}" if row.target_name != "flink" else row.name: row.id for row in page.items}


async def _post(client, path, body, *, key=None, status=201):
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = await client.post(f"/api/v1/{path}", json=body, headers=headers)
    assert answer.status_code == status, answer.text
    return answer


async def _listed(client, job_id, query=""):
    answer = await client.get(f"/api/v1/jobs/{job_id}/annotations{query}")
    assert answer.status_code == 200, answer.text
    return api.Page[AnnotationOut].model_validate_json(answer.content)


async def test_what_was_posted_is_listed_newest_first_and_can_be_deleted(client, job_id, clock):
    answer = await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED)
    posted = AnnotationOut.model_validate_json(answer.content)
    earlier = NOW - timedelta(hours=2)
    began = {"text": "load test", "at": earlier.isoformat(), "until": (earlier + timedelta(hours=1)).isoformat()}
    await _post(client, f"jobs/{job_id}/annotations", began)

    found = (await _listed(client, job_id)).items
    assert [a.text for a in found] == ["Deployed 2.14.0", "load test"]
    assert found[0] == posted
    assert (posted.at, posted.until, posted.added_at) == (NOW, None, NOW)
    assert (posted.link, posted.tags, posted.author) == ("https://ci.example/812", ["deployment"], "ci")
    assert (found[1].at, found[1].until) == (earlier, earlier + timedelta(hours=1))

    gone = await client.delete(f"/api/v1/jobs/{job_id}/annotations/{posted.id}")
    again = await client.delete(f"/api/v1/jobs/{job_id}/annotations/{posted.id}")
    assert (gone.status_code, again.status_code) == (204, 404)
    assert [a.text for a in (await _listed(client, job_id)).items] == ["load test"]


async def test_a_range_has_what_overlaps_it_and_pages_neither_repeat_nor_skip(client, job_id):
    begin = NOW - timedelta(hours=5)
    for hour in range(5):
        at = begin + timedelta(hours=hour)
        until = (begin + timedelta(hours=4)).isoformat() if hour == 0 else None
        await _post(client, f"jobs/{job_id}/annotations", {"text": str(hour), "at": at.isoformat(), "until": until})

    def query(since, until):
        words = (f"{n}={(begin + timedelta(hours=h)).isoformat()}" for n, h in (("from", since), ("to", until)))
        return "?" + "&".join(words).replace("+", "%2B")

    assert [a.text for a in (await _listed(client, job_id, query(3, 4))).items] == ["3", "0"]
    assert [a.text for a in (await _listed(client, job_id, query(4.5, 9))).items] == []
    assert [a.text for a in (await _listed(client, job_id, query(-1, 0))).items] == []
    first = await _listed(client, job_id, "?limit=3")
    rest = await _listed(client, job_id, f"?limit=3&cursor={first.next}")
    assert [a.text for a in first.items + rest.items] == ["4", "3", "2", "1", "0"]
    assert rest.next is None


async def test_the_time_is_also_on_the_clock_of_the_engine(client, writer, target):
    await writer.write(replace(observation(target, job([completed(1)])), clock_offset_ms=-90_000))
    (job_id,) = (await _jobs(client)).values()

    ended = {**_DEPLOYED, "until": (NOW + timedelta(minutes=1)).isoformat()}
    posted = AnnotationOut.model_validate_json((await _post(client, f"jobs/{job_id}/annotations", ended)).content)

    assert (posted.at, posted.at_engine) == (NOW, NOW - timedelta(seconds=90))
    assert posted.until_engine == NOW - timedelta(seconds=30)


async def test_a_repeated_request_posts_nothing_and_another_one_with_its_key_is_refused(client, job_id, clock):
    first = await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, key="build-812")
    clock.at += timedelta(seconds=5)
    second = await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, key="build-812")
    assert first.json() == second.json()
    refused = await _post(client, f"jobs/{job_id}/annotations", {"text": "other"}, key="build-812", status=409)
    assert refused.json()["type"].endswith("idempotency-key-used")
    assert len((await _listed(client, job_id)).items) == 1

    answers = await asyncio.gather(
        *(_post(client, f"jobs/{job_id}/annotations", _DEPLOYED, key="build-813") for _ in range(4))
    )
    assert len({a.json()["id"] for a in answers}) == 1
    assert len((await _listed(client, job_id)).items) == 2


async def test_a_post_for_several_jobs_reaches_those_that_fit_and_no_others(client, engine, writer, target):
    new = NewTarget(url="http://other:8081", name="other", origin=TargetOrigin.API, labels={"environment": "prod"})
    other = (await TargetRepository(engine).add(new, at=NOW)).id
    await writer.write(observation(target, job([completed(1)]), job([completed(1)], name="payments", run="r-pay")))
    await writer.write(observation(other, job([completed(1)])))
    jobs = await _jobs(client)
    assert set(jobs) == {"orders", "payments", "orders@other"}

    for selection, expected in (
        ({"job": "orders"}, {"orders", "orders@other"}),
        ({"target": "flink"}, {"orders", "payments"}),
        ({"target": other}, {"orders@other"}),
        ({"labels": {"environment": "prod"}}, {"orders@other"}),
        ({"job": "orders", "target": "flink"}, {"orders"}),
    ):
        answer = await _post(client, "annotations", {**_DEPLOYED, **selection})
        posted = api.Page[AnnotationOut].model_validate_json(answer.content).items
        assert {a.job_id for a in posted} == {jobs[name] for name in expected}, selection
        assert len({a.id for a in posted}) == 1
        gone = await client.delete(f"/api/v1/annotations/{posted[0].id}")
        assert gone.status_code == 204
    assert [(await _listed(client, i)).items for i in jobs.values()] == [[], [], []]

    await _post(client, "annotations", {**_DEPLOYED, "job": "nothing"}, status=404)
    await _post(client, "annotations", {**_DEPLOYED, "labels": {"environment": "test"}}, status=404)
    await _post(client, "annotations", _DEPLOYED, status=422)


@pytest.mark.parametrize(
    "wrong",
    [
        {"text": ""},
        {"text": "x" * 501},
        {"link": "javascript:alert(1)"},
        {"link": "https://user:secret@ci.example/"},
        {"link": "https://ci.example/a b"},
        {"link": "//ci.example"},
        {"tags": ["x"] * 11},
        {"tags": ["x" * 51]},
        {"at": (NOW + timedelta(days=2)).isoformat()},
        {"at": "1931-01-01T00:00:00Z"},
        {"until": (NOW - timedelta(minutes=1)).isoformat()},
        {"until": (NOW + timedelta(days=40)).isoformat()},
        {"colour": "red"},
    ],
)
async def test_what_is_out_of_bounds_is_refused(client, job_id, wrong):
    await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED | wrong, status=422)
    assert (await _listed(client, job_id)).items == []


async def test_a_job_gets_a_bounded_number_of_annotations_in_a_minute_and_in_all(client, job_id, clock, monkeypatch):
    monkeypatch.setattr(limits_of, "MINUTE_MAX", 2)
    monkeypatch.setattr(limits_of, "STORED_MAX", 3)
    for n in range(2):
        await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, key=f"k{n}")
    refused = await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, status=429)
    assert refused.headers["Retry-After"] == "60"
    await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, key="k0")
    clock.at += timedelta(seconds=61)
    await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED)
    clock.at += timedelta(seconds=61)
    full = await _post(client, f"jobs/{job_id}/annotations", _DEPLOYED, status=409)
    assert full.json()["type"].endswith("too-many-annotations")


async def test_requests_at_the_same_time_keep_within_the_limits(client, job_id, monkeypatch):
    monkeypatch.setattr(limits_of, "MINUTE_MAX", 2)
    path = f"/api/v1/jobs/{job_id}/annotations"

    answers = await asyncio.gather(*(client.post(path, json=_DEPLOYED) for _ in range(8)))

    assert sorted(a.status_code for a in answers) == [201] * 2 + [429] * 6
    assert len((await _listed(client, job_id)).items) == 2


async def test_annotations_stay_as_long_as_the_hourly_history_and_go_with_their_job(client, job_id, engine):
    limits = Retention()
    stored_for = max(limits.longest_age, limits.rollups_max_age)
    for words, age in (("new", stored_for - timedelta(days=1)), ("old", stored_for + timedelta(days=1))):
        await _post(client, f"jobs/{job_id}/annotations", {"text": words, "at": (NOW - age).isoformat()})

    await apply_retention(engine, limits, NOW)

    assert [a.text for a in (await _listed(client, job_id)).items] == ["new"]
    async with writing(engine) as connection:
        await connection.execute(text("DELETE FROM runs"))
        await connection.execute(text("DELETE FROM jobs"))
        assert (await connection.execute(text("SELECT count(*) FROM annotations"))).scalar_one() == 0
