"""The checkpoint from which a run was restored: found in the store by its location, and linked by the API."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from backend.domain.checkpoint import RestoredFrom
from backend.domain.ids import EngineRunId
from backend.store.jobs.restored import taken_by
from backend.store.postgres.connections import reading
from tests.support.observations import NOW, completed, job, observation
from tests.support.serving import api_over, asking

pytestmark = pytest.mark.anyio
_RUN = "c" * 32


@pytest.fixture
async def client(engine, clock):
    async with asking(api_over(engine, clock)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("origin", "is_found"),
    [
        (RestoredFrom(7, False, f"runtime:/{_RUN}/chk-7"), True),
        (RestoredFrom(7, True, f"runtime:/{_RUN}/savepoint-7"), True),
        (RestoredFrom(7, False, f"s3://bucket/checkpoints/{_RUN}/chk-7"), True),
        (RestoredFrom(8, False, f"runtime:/{_RUN}/chk-8"), False),
        (RestoredFrom(7, False, f"runtime:/{'d' * 32}/chk-7"), False),
        (RestoredFrom(6, False, f"runtime:/{_RUN}/chk-7"), False),
        (RestoredFrom(7, True, "s3://bucket/savepoint-3b2c1d-4f5e6a7b8c9d"), False),
        (RestoredFrom(7, False), False),
    ],
)
async def test_a_location_names_the_run_that_took_the_checkpoint(engine, writer, target, origin, is_found):
    before = replace(job([completed(7)], name="before"), engine_run_id=EngineRunId(_RUN))
    await writer.write(observation(target, before))
    async with reading(engine) as connection:
        taken = await taken_by(connection, origin)
    assert (None if taken is None else taken.job) == ("before" if is_found else None)


async def test_the_job_has_the_link_of_the_checkpoint(client, writer, target):
    before = replace(job([completed(7)], name="before"), engine_run_id=EngineRunId(_RUN))
    after = job([completed(8, triggered_at=NOW + timedelta(seconds=20))], name="after")
    origin = RestoredFrom(7, False, f"runtime:/{_RUN}/chk-7", "before", "aligned checkpoint", False, ("a:keyed",))
    counts = replace(after.counts, restored=1, restored_from=origin)
    await writer.write(observation(target, before, replace(after, counts=counts)))
    listed = {row["name"]: row["id"] for row in (await client.get("/api/v1/jobs")).json()["items"]}
    found = (await client.get(f"/api/v1/jobs/{listed['after']}")).json()["counts"]["restored_from"]
    assert (found["job"], found["job_id"], found["left_out"]) == ("before", listed["before"], ["a:keyed"])
    assert (await client.get(found["link"])).json()["checkpoint_id"] == 7
