"""Debian's Alertmanager lists our alerts, and sends a page when they fire and when they resolve.

A killed ``alert`` role pages only once.

If ``BARRIERSCOPE_REQUIRE_ALERTMANAGER`` is set, these tests fail on a machine without Alertmanager. Otherwise, they
are skipped.
"""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import anyio.to_thread
import httpx
import psycopg
import pytest

from backend.domain.checkpoint import Checkpoint, CheckpointStatus
from backend.domain.receivers import ReceiverKind
from backend.store.ingest import IngestWriter
from backend.store.wall_clock import WallClock
from tests.support.alerting import Alerting, receiver_at, switch_off_rules_but
from tests.support.alertmanager import alertmanager, missing
from tests.support.observations import SINK, SOURCE, SteppingClock, detail, header, job, observation
from tests.support.receiving import receiving
from tests.support.running_up import COMMAND
from tests.support.waiting import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def now_clock():
    """Return a clock that starts at the real time, which Alertmanager uses."""
    return SteppingClock(WallClock().now())


@pytest.fixture
def watching(engine, target, now_clock):
    """Return a function that writes a poll with one checkpoint for each given outcome, triggered ten seconds apart."""
    begin = now_clock.at - timedelta(minutes=5)

    async def write(*outcomes):
        def made(number, outcome):
            status = CheckpointStatus.FAILED if outcome == "expired" else CheckpointStatus.COMPLETED
            at = begin + timedelta(seconds=10 * number)
            details = tuple(detail(v, number, missing=(1,) if status.name == "FAILED" else ()) for v in (SOURCE, SINK))
            return Checkpoint(header(number, status, triggered_at=at), details)

        listed = [made(i, o) for i, o in enumerate(outcomes, start=1)]
        seen = replace(job(listed), started_at=begin)
        await IngestWriter(engine, clock=now_clock).write(observation(target, seen, at=now_clock.at))

    return write


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
async def test_alertmanager_shows_an_alert_and_pages_its_resolution(engine, watching, now_clock, tmp_path):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    with receiving() as pager, alertmanager(tmp_path, pager=pager.url) as root:
        await receiver_at(engine, now_clock, root, kind=ReceiverKind.ALERTMANAGER)
        alerting = Alerting(engine, now_clock)
        await watching("completed", "expired")
        await alerting.round(seconds=0.1)
        shown = await _shown(root)
        assert set(shown) == {"CheckpointExpired", "Watchdog"}
        alert = shown["CheckpointExpired"]
        assert alert["status"]["state"] in ("active", "unprocessed")
        assert alert["labels"]["job_name"] == "orders"
        assert "checkpoint 2 expired" in alert["annotations"]["summary"]
        assert alert["annotations"]["link"].endswith("/checkpoints/2")
        await anyio.to_thread.run_sync(until, lambda: _paged(pager, "firing"), "Alertmanager pages")

        await watching("completed", "expired", *["completed"] * 3)
        await alerting.round(seconds=0.1)
        await anyio.to_thread.run_sync(until, lambda: _paged(pager, "resolved"), "Alertmanager pages the end")
        assert set(await _shown(root)) == {"Watchdog"}
        assert [p.body["status"] for p in pager.posts if _is_expiry(p.body)] == ["firing", "resolved"]


async def _shown(root):
    async with httpx.AsyncClient(trust_env=False) as client:
        return {a["labels"]["alertname"]: a for a in (await client.get(f"{root}/api/v2/alerts")).json()}


def _is_expiry(body):
    return body["commonLabels"]["alertname"] == "CheckpointExpired"


def _paged(pager, status):
    return any(_is_expiry(p.body) and p.body["status"] == status for p in pager.posts)


@contextmanager
def _role(database):
    """Run the role ``alert`` as a process, and kill it at the end of the block."""
    options = ("alert", "--database-url", database, "--interval", "0.5s")
    with subprocess.Popen(
        [*COMMAND, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
            assert process.poll() is None, process.stderr.read()
        finally:
            process.kill()


async def test_a_role_that_is_killed_before_and_during_a_delivery_pages_once(engine, watching, now_clock, database):
    await switch_off_rules_but(engine, "CheckpointExpired", "Watchdog")
    with receiving() as before:
        port = int(before.url.split(":")[2].split("/")[0])
    await receiver_at(engine, now_clock, before.url)
    await watching("completed", "expired")
    await anyio.to_thread.run_sync(_kill_twice, database, port)


def _kill_twice(database, port):
    def value(query):
        with psycopg.connect(database) as connection:
            return connection.execute(query).fetchone()[0]

    def its_time_is_over():
        # To avoid waiting, make the lease and the claims of the killed process expire now.
        with psycopg.connect(database) as connection:
            connection.execute("UPDATE alert_evaluator SET expires_at = now() - interval '1 s'")
            connection.execute("UPDATE deliveries SET next_attempt_at = now() - interval '1 s'")

    tried = "SELECT count(*) FROM delivery_attempts"
    with _role(database):
        until(lambda: value(tried) >= 1, "a delivery attempt to a port on which nothing listens")
    its_time_is_over()
    with receiving(port) as pager:
        pager.released.clear()
        with _role(database):
            until(lambda: pager.posts, "a message is under way")
        pager.released.set()
        its_time_is_over()
        with _role(database):
            until(lambda: value("SELECT state FROM deliveries") == "delivered", "delivered")
            seen_at = value("SELECT evaluated_at FROM alert_evaluator")
            until(lambda: value("SELECT evaluated_at FROM alert_evaluator") > seen_at, "evaluated again")
        assert len({key for key, _ in pager.pages()}) == 1, "all pages of one episode must have one key"
        assert 1 <= len(pager.posts) <= 2
    assert value("SELECT count(*) FROM alerts WHERE rule = 'CheckpointExpired'") == 1
