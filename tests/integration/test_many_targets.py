"""A list of 1,000 targets, page by page and searched, and two changes of one target at the same moment."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from backend.contracts.api import Page, Problem, TargetOut
from backend.domain.target import TargetOrigin
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.observations import NOW
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_COUNT = 1_000
_ROOT = "/api/v1/targets"


@pytest.fixture
async def client(engine, clock):
    clock.at = NOW
    async with asking(api_over(engine, clock)) as opened:
        yield opened


async def _fill(engine, count):
    """Add ``count`` targets. Each 100 have the instant of their addition in common."""
    targets = TargetRepository(engine)
    for n in range(count):
        url = f"http://user:canary@flink-{n}.example:8081"
        new = NewTarget(url=url, name=f"cluster {n:04}", origin=TargetOrigin.API)
        await targets.add(new, at=NOW + timedelta(seconds=n // 100))


async def _page(client, **query):
    answer = await client.get(_ROOT, params=query)
    assert answer.status_code == 200, answer.text
    return Page[TargetOut].model_validate_json(answer.content)


async def test_each_of_a_thousand_targets_is_on_one_page_and_the_last_can_be_changed_and_removed(engine, client):
    await _fill(engine, _COUNT)
    pages = [await _page(client, limit=200)]
    while pages[-1].next is not None:
        pages.append(await _page(client, limit=200, cursor=pages[-1].next))

    names = [target.name for page in pages for target in page.items]
    assert sorted(names) == [f"cluster {n:04}" for n in range(_COUNT)]
    assert [len(page.items) for page in pages] == [200] * 5

    last = pages[4].items[-1]
    changed = await client.patch(f"{_ROOT}/{last.id}", json={"labels": {"team": "a, b"}})
    assert (await client.get(f"{_ROOT}/{last.id}")).json()["labels"] == {"team": "a, b"}
    assert changed.json()["version"] != last.version
    assert (await client.delete(f"{_ROOT}/{last.id}")).status_code == 204
    assert len((await _page(client, limit=200, cursor=pages[3].next)).items) == 199


async def test_the_list_is_searched_by_name_address_and_origin_but_not_by_a_password(engine, client):
    await _fill(engine, 12)
    await TargetRepository(engine).add(NewTarget(url="http://a_b:1", name="50%", origin=TargetOrigin.BUILT_IN), at=NOW)

    async def found(**query):
        return [target.name for target in (await _page(client, **query)).items]

    assert await found(search="CLUSTER 0011") == ["cluster 0011"]
    assert await found(search="flink-7.") == ["cluster 0007"]
    assert await found(search="%") == ["50%"]
    assert await found(search="a_b") == ["50%"]
    assert await found(search="canary") == []
    assert await found(origin="built-in") == ["50%"]
    assert await found(origin="built-in", search="cluster") == []
    assert (await client.get(_ROOT, params={"origin": "elsewhere"})).status_code == 422


async def test_of_two_changes_at_the_same_moment_one_is_taken_and_the_other_is_told(engine, client):
    await _fill(engine, 1)
    (target,) = (await _page(client)).items
    path = f"{_ROOT}/{target.id}"
    read = await client.get(path)
    assert read.headers["ETag"] == f'"{target.version}"'

    async def change(body):
        return await client.patch(path, json=body, headers={"If-Match": read.headers["ETag"]})

    answers = await asyncio.gather(*(change({"labels": {"team": f"t{n}"}, "name": f"n{n}"}) for n in range(8)))

    taken = [answer for answer in answers if answer.status_code == 200]
    refused = [Problem.model_validate_json(answer.content) for answer in answers if answer.status_code != 200]
    assert len(taken) == 1
    stored = TargetOut.model_validate_json((await client.get(path)).content)
    assert (stored.name, stored.labels) == (taken[0].json()["name"], taken[0].json()["labels"])
    assert {(problem.status, problem.detail) for problem in refused} == {
        (409, f"the target {stored.name} was changed meanwhile; read it again and repeat the change")
    }
    again = {"If-Match": taken[0].headers["ETag"]}
    assert (await client.patch(path, json={"is_enabled": False}, headers=again)).status_code == 200
    for several in ('"*"', f'{again["If-Match"]}, "b"'):
        refused = await client.patch(path, json={"is_enabled": True}, headers={"If-Match": several})
        assert (refused.status_code, "not one version" in refused.text) == (422, True), several
    assert (await client.patch(path, json={"is_enabled": True}, headers={"If-Match": "*"})).status_code == 200


async def test_a_target_is_removed_only_with_the_version_that_it_has(engine, client):
    await _fill(engine, 1)
    (target,) = (await _page(client)).items
    path = f"{_ROOT}/{target.id}"
    await client.patch(path, json={"name": "changed"})

    refused = await client.delete(path, headers={"If-Match": f'"{target.version}"'})
    wrong = await client.delete(path, headers={"If-Match": '"*"'})
    found = await client.get(path)
    removed = await client.delete(path, headers={"If-Match": found.headers["ETag"]})
    again = await client.delete(path, headers={"If-Match": found.headers["ETag"]})

    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "the target changed was changed meanwhile; look at it again and remove it then",
    )
    assert (wrong.status_code, found.json()["name"], removed.status_code, again.status_code) == (
        422, "changed", 204, 404
    )  # fmt: skip
    await _fill(engine, 1)
    (target,) = (await _page(client)).items
    assert (await client.delete(f"{_ROOT}/{target.id}", headers={"If-Match": "*"})).status_code == 204
