"""Reads event logs from a server of S3 that redirects, answers without end, or answers what is no list."""

from __future__ import annotations

import time

import pytest

from backend.domain.clock import from_epoch_ms
from backend.domain.connection import ANYWHERE
from backend.domain.errors import UpstreamError
from backend.domain.target import TargetOrigin
from collectors.spark.kind import SPARK
from tests.support.answering_s3 import Answer, answering_s3
from tests.support.collector_targets import Row

pytestmark = pytest.mark.anyio

_BUCKET = "spark-logs"
_LIMIT_BYTES = 8 * 2**20


@pytest.fixture(autouse=True)
def _keys(monkeypatch, tmp_path):
    names = {"AWS_ACCESS_KEY_ID": "reader", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "token-of-reader"}
    for name, value in {**names, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.fixture
def run(monkeypatch):
    """Return what polls a folder of a server, and returns the reason of the error, or None."""

    async def polled(endpoint: str) -> str | None:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
        assert SPARK.open is not None
        async with SPARK.open(
            Row("spark", f"s3://{_BUCKET}/events", origin=TargetOrigin.CONFIGURATION), {}, reach=ANYWHERE
        ) as collector:
            try:
                await collector.collect(from_epoch_ms(round(1000 * time.time())))
            except UpstreamError as error:
                return str(error)
        return None

    return polled


@pytest.mark.parametrize("region", [{}, {"x-amz-bucket-region": "eu-north-1"}])
@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_and_the_token_of_the_session_stays_here(run, status, region):
    with answering_s3(lambda path, query: Answer()) as other:
        place = {"Location": f"{other.endpoint}/taken"} | region
        with answering_s3(lambda path, query: Answer(status=status, headers=place)) as s3:
            reason = await run(s3.endpoint)

    assert other.asked == []
    assert s3.asked[0][1]["x-amz-security-token"] == "token-of-reader"
    assert reason is not None
    assert f"S3 redirects to another address ({status}), which is not followed" in reason
    assert "are AWS_ENDPOINT_URL_S3 and the region of the bucket right?" in reason


@pytest.mark.parametrize("status", [200, 500])
async def test_a_list_without_end_is_given_up_at_the_limit(run, status):
    def endless():
        for _ in range(16 * _LIMIT_BYTES // 2**16):
            yield b" " * 2**16

    with answering_s3(lambda path, query: Answer(endless(), status=status)) as s3:
        reason = await run(s3.endpoint)

    assert reason is not None
    assert "an answer of S3 is larger than 8 MiB" in reason
    # What is on its way in the buffers of the machine counts as sent.
    assert s3.sent_bytes / len(s3.asked) < 3 * _LIMIT_BYTES
