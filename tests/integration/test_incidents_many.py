"""The list of incidents stays quick with 2,000 jobs, 5,000 open alerts and 100,000 past ones.

The time of a page is compared with that in a small store, so the test does not depend on the speed of the machine.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import psycopg
import pytest
from sqlalchemy import text

from backend.alerting.lifecycle import AlertState
from backend.alerting.payloads import Links
from backend.alerting.rules import Severity
from backend.services.alerts.incidents import IncidentService
from backend.store.alerts.incidents import IncidentFilter
from backend.store.postgres.connections import reading

pytestmark = pytest.mark.anyio

_OPEN = IncidentFilter((AlertState.PENDING, AlertState.FIRING, AlertState.RESOLVED), (Severity.CRITICAL,))
_PAST = IncidentFilter((AlertState.RESOLVED,), (Severity.CRITICAL,))
_ROWS = """
INSERT INTO incidents (id, subject, job_id, labels, began_at, fired_at, ended_at, state, severity, rank, alert_count,
                       open_count, lead_alert_id, rules)
SELECT 'i' || n, 'job:j' || n % 2000, 'j' || n % 2000, jsonb_build_object('job', 'job ' || n % 2000),
       t, t, CASE WHEN n <= 2500 THEN NULL ELSE t + interval '1 minute' END,
       CASE WHEN n <= 2500 THEN 'firing' ELSE 'resolved' END, 'critical', CASE WHEN n <= 2500 THEN 3 ELSE 0 END, 2,
       CASE WHEN n <= 2500 THEN 2 ELSE 0 END, 'a' || n || '-1', '{{CheckpointExpired,ConsecutiveFailures}}'
FROM (SELECT n, timestamptz '2026-11-21 12:00Z' - n * interval '1 minute' AS t
      FROM generate_series({first}, {last}) n) made;
INSERT INTO alerts (id, rule, severity, fingerprint, labels, job_id, state, began_at, fired_at, changed_at, ended_at,
                    evaluated_at, reading, reason, annotations, incident_id)
SELECT 'a' || substr(i.id, 2) || '-' || k, i.rules[k], 'critical', i.id || k, i.labels, i.job_id, i.state, i.began_at,
       i.began_at, i.began_at, i.ended_at, i.began_at, 'active', 'x', '{{"summary": "it failed"}}', i.id
FROM incidents i, generate_series(1, 2) k
WHERE NOT EXISTS (SELECT FROM alerts a WHERE a.incident_id = i.id);
ANALYZE incidents; ANALYZE alerts;
"""


async def _quickest_s(call: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(15):
        began = time.perf_counter()
        await call()
        took.append(time.perf_counter() - began)
    return min(took)


def _fill(database: str, first: int, last: int) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(_ROWS.format(first=first, last=last))


async def test_a_page_costs_as_little_as_in_a_small_store(database, engine, clock):
    service = IncidentService(engine, clock, Links("http://127.0.0.1"))

    async def page(wanted=_OPEN, cursor=None):
        return await service.page(wanted, grouping=None, cursor=cursor, limit=50)

    async def quickest_s():
        past = await page(_PAST)
        return {
            "open": await _quickest_s(page),
            "past": await _quickest_s(lambda: page(_PAST)),
            "second past": await _quickest_s(lambda: page(_PAST, past.next)),
        }

    _fill(database, 2401, 2600)
    small_s = await quickest_s()
    _fill(database, 1, 2400)
    _fill(database, 2601, 52_500)
    large_s = await quickest_s()

    assert [i.state for i in (await page()).items] == ["firing"] * 50
    assert [i.state for i in (await page(_PAST)).items] == ["resolved"] * 50
    ratios = {name: large_s[name] / small_s[name] for name in small_s}
    # The limit allows for load on a shared machine, because the two sizes are timed at different moments. A scan of the
    # whole table would read 250 times as much.
    assert max(ratios.values()) < 25, (ratios, small_s, large_s)


async def test_a_page_reads_only_its_own_incidents(database, engine):
    _fill(database, 1, 52_500)
    for where, condition in (("first", "TRUE"), ("past", "(rank, began_at, id) < (0, 'infinity', '')")):
        query = (
            f"EXPLAIN (ANALYZE, FORMAT JSON) SELECT * FROM incidents WHERE {condition}"
            " AND state IN ('firing', 'resolved') ORDER BY rank DESC, began_at DESC, id DESC LIMIT 50"
        )
        async with reading(engine) as connection:
            ((plan,),) = (await connection.execute(text(query))).all()
        scan = plan[0]["Plan"]["Plans"][0]
        assert (scan["Node Type"], scan["Actual Rows"]) == ("Index Scan", 50), (where, plan)
