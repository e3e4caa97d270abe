"""Cases that people reported in public, rebuilt with their numbers: the answer holds what they found in the end.

A case is a job of Flink in a few numbers (``described_flink``), a recording of a real Flink in which the mechanism was
rebuilt, or queries of Spark. ``public_cases`` says what is expected of an answer.
"""

from __future__ import annotations

import gzip
import json
from datetime import timedelta

import orjson
import pytest

from backend.store.postgres.connections import create_store_engine
from collectors import diagnose
from collectors.time_left import TOTAL_S
from tests.support import described_spark
from tests.support.described_flink import DescribedFlink
from tests.support.observations import SteppingClock
from tests.support.public_cases import RECORDINGS, answer, cases, diagnosed, faults, said_of
from tests.support.recorded_flink import RecordedFlink, served
from tests.support.recorded_versions import RecordedCluster
from tests.support.serving import api_over, asking

# Two recordings were there before these cases, for a shorter time.
SHORTENED = RECORDINGS.parents[1] / "recordings_causes"

flink_cases = pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in cases("flink")])
recorded_cases = pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in cases("recording")])
spark_cases = pytest.mark.parametrize("case", [pytest.param(c, id=c["name"]) for c in cases("spark")])


@flink_cases
def test_the_answer_to_a_described_job_is_right(case):
    assert faults(case["expect"], diagnosed(DescribedFlink(case))) == []


@recorded_cases
def test_the_answer_to_a_recorded_job_is_right(case, diagnose_without_pauses):
    assert faults(case["expect"], replayed(case)) == []


def replayed(case):
    """Run ``diagnose`` on a recording, at the moment that the case names."""
    name = case["recording"]
    folder = RECORDINGS / name if (RECORDINGS / name).is_dir() else SHORTENED / name
    if name.startswith("V"):
        # The requests of ``diagnose`` itself were recorded.
        with gzip.open(folder / "rest.jsonl.gz") as lines:
            return diagnosed(RecordedCluster([orjson.loads(line) for line in lines]))
    with served(RecordedFlink(folder, case["from_s"])) as url:
        return said_of(diagnose.ask(url, job=None, is_quick=False, deadline_s=TOTAL_S))


@pytest.fixture
async def store(database):
    engine = create_store_engine(database)
    yield engine
    await engine.dispose()


@spark_cases
@pytest.mark.anyio
async def test_the_answer_to_the_queries_of_spark_is_right(case, store):
    assert faults(case["expect"], await posted(case, store)) == []


async def posted(case, store):
    """Post a case as the listener does, and read from the API what is said about its query."""
    async with asking(api_over(store, SteppingClock(described_spark.NOW + timedelta(seconds=5)))) as client:
        for body in described_spark.posts(case):
            accepted = await client.post("/api/v1/ingest/spark", json=body)
            assert accepted.status_code == 200, accepted.text
            assert accepted.json()["rejected"] == []
        (job,) = (await client.get("/api/v1/jobs")).json()["items"]
        said = (await client.get(f"/api/v1/jobs/{job['id']}/verdict")).json()
        advice = (await client.get(f"/api/v1/jobs/{job['id']}/advice")).json()
    text = json.dumps({"health": job["health"], "verdict": said["verdict"], "advice": advice})
    made = {"recommendations": [card["recommendation"] for card in advice["cards"]], "lints": advice["lints"]}
    return answer(job["health"], said["verdict"], made, text)
