"""Leases allow only one collector at a time to read a target.

If their holder terminates, another collector takes them.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from backend.domain.target import TargetOrigin
from backend.store.postgres.connections import create_store_engine
from backend.store.targets.leases import CollectorSession, TargetLeases, is_any_collector_alive
from backend.store.targets.targets import NewTarget, TargetRepository
from tests.support.clusters import ROOT
from tests.support.observations import NOW
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio

_KEEPS_SESSION = "application_name = 'barrierscope-collector-session' AND datname = current_database()"
_HOLD = """
import sys
from backend.store.targets.leases import CollectorSession
with CollectorSession({url!r}, holder="killed"):
    sys.stdin.read()
"""


@pytest.fixture
def targets(engine):
    return TargetRepository(engine)


def _value(url, query):
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def _run(url, statement):
    with psycopg.connect(url) as connection:
        connection.execute(statement)


def _await_session(url, holder):
    until(
        lambda: _value(url, f"SELECT true FROM collector_sessions WHERE holder = '{holder}'"),
        f"the session of {holder}",
    )


def test_a_session_whose_server_process_is_suspended_is_renewed_over_another_connection(database):
    with CollectorSession(database, holder="frozen", ttl_s=0.5, renew_s=0.01):
        _await_session(database, "frozen")
        pid = _value(database, "SELECT backend_pid FROM collector_sessions WHERE holder = 'frozen'")
        until(partial(_is_suspended_idle, database, pid), "the server process is suspended between two renewals")
        try:
            until(
                lambda: _value(
                    database, f"SELECT backend_pid <> {pid} FROM collector_sessions WHERE holder = 'frozen'"
                ),
                "the session is renewed by another server process",
            )
        finally:
            os.kill(pid, signal.SIGCONT)


def _is_suspended_idle(url, pid):
    # The process must not be suspended during a renewal: it would hold the lock of the session's row, so that nobody
    # could change the row.
    os.kill(pid, signal.SIGSTOP)
    if _value(url, f"SELECT state FROM pg_stat_activity WHERE pid = {pid}") == "idle":
        return True
    os.kill(pid, signal.SIGCONT)
    return False


@contextmanager
def _session(url, holder):
    with CollectorSession(url, holder=holder):
        _await_session(url, holder)
        yield


def _holding(url):
    return subprocess.Popen([sys.executable, "-c", _HOLD.format(url=url)], cwd=ROOT, stdin=subprocess.PIPE)


def _grow_old(url):
    # Instead of waiting, end the time during which no other collector may take the lease.
    _run(url, "UPDATE target_leases SET expires_at = now() - interval '1 s'")


async def _taken(leases):
    return [row.id for row in await leases.take()]


async def test_another_collector_gets_a_target_only_after_its_release(engine, database, target):
    a, b = TargetLeases(engine, holder="a"), TargetLeases(engine, holder="b")
    with _session(database, "a"):
        assert await _taken(a) == [target]
        _grow_old(database)
        assert await _taken(b) == []
        assert await _taken(a) == [target]

        await b.release([target])
        assert await _taken(b) == []
        await a.release([target])
        assert await _taken(b) == [target]
        assert await _taken(a) == []


async def test_after_kill_9_the_next_attempt_takes_the_targets_before_the_session_expires(engine, database, target):
    held = _holding(database)
    try:
        _await_session(database, "killed")
        assert await _taken(TargetLeases(engine, holder="killed")) == [target]
        _grow_old(database)
        _run(database, "UPDATE collector_sessions SET expires_at = now() + interval '1 day'")
        assert await _taken(TargetLeases(engine, holder="b")) == []
        # Suspend the process, so that it cannot renew the session and thereby replace the expiry that the next line
        # sets.
        held.send_signal(signal.SIGSTOP)
        _run(database, "UPDATE collector_sessions SET expires_at = now() + interval '1 day'")
    finally:
        held.kill()
        held.communicate(timeout=PATIENCE_S)

    gone = f"SELECT count(*) = 0 FROM pg_stat_activity WHERE {_KEEPS_SESSION}"
    until(lambda: _value(database, gone), "the end of the connection of the killed process")
    assert await _taken(TargetLeases(engine, holder="b")) == [target]
    assert await _taken(TargetLeases(engine, holder="killed")) == []


async def test_an_expired_session_gives_its_targets_away_although_its_connection_is_open(engine, database, target):
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO collector_sessions VALUES ('silent', now() + interval '1 day', pg_backend_pid())"
        )
        assert await _taken(TargetLeases(engine, holder="silent")) == [target]
        _grow_old(database)
        assert await _taken(TargetLeases(engine, holder="b")) == []
        connection.execute("UPDATE collector_sessions SET expires_at = now() - interval '1 s'")
        assert await _taken(TargetLeases(engine, holder="b")) == [target]


async def test_an_orderly_end_frees_every_target_at_once(engine, database, target):
    with _session(database, "a"):
        assert await is_any_collector_alive(engine)
        assert await _taken(TargetLeases(engine, holder="a")) == [target]
        _grow_old(database)
    assert not await is_any_collector_alive(engine)
    assert await _taken(TargetLeases(engine, holder="b")) == [target]


async def test_the_session_survives_the_loss_of_its_connection(engine, database, target):
    mine = f"FROM pg_stat_activity WHERE {_KEEPS_SESSION}"
    with CollectorSession(database, holder="a", renew_s=0.05):
        _await_session(database, "a")
        former = _value(database, f"SELECT pid {mine}")
        _run(database, f"SELECT pg_terminate_backend(pid) {mine}")
        renewed = f"SELECT backend_pid <> {former} FROM collector_sessions WHERE holder = 'a'"
        until(lambda: _value(database, renewed), "a renewal over another connection")


async def test_exactly_one_of_several_concurrent_collectors_gets_each_target(targets, target, database, engine):
    for n in range(20):
        await targets.add(NewTarget(f"http://flink-{n}", f"flink-{n}", TargetOrigin.API), at=NOW)
    other = create_store_engine(database)
    for attempt in range(5):
        collectors = [TargetLeases([engine, other][n % 2], holder=f"{attempt}-{n}") for n in range(8)]
        taken = await asyncio.gather(*(_taken(c) for c in collectors))
        assert sorted(i for ids in taken for i in ids) == sorted(t.id for t in await targets.list_all())
        _grow_old(database)
    await other.dispose()


async def test_a_paused_removed_or_pushing_target_is_not_taken(targets, target, engine):
    await targets.add(NewTarget("spark://pushes", "pushes", TargetOrigin.PUSH, kind="spark"), at=NOW)
    leases = TargetLeases(engine, holder="a")
    assert await _taken(leases) == [target]
    await targets.change(target, is_enabled=False)
    assert await _taken(leases) == []
    await targets.change(target, is_enabled=True)
    assert await _taken(leases) == [target]
    await targets.remove(target, at=NOW)
    assert await _taken(leases) == []
