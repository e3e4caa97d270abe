"""Migrations work in both directions, produce the tables that the code declares, and run in one process at a time."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime

import psycopg
import pytest
import sqlalchemy.exc
from alembic.script import ScriptDirectory

from backend.domain.errors import HostError, StoreUnavailableError
from backend.store.schema import migrate
from backend.store.schema.partitions import Partitions, day_of
from tests.support.clusters import ROOT
from tests.support.many_checkpoints import insert, row
from tests.support.observations import NOW
from tests.support.waiting import PATIENCE_S

_TABLES = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
_REVISION = "SELECT version_num FROM alembic_version"


def _value(url, query):
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    return None if row is None else row[0]


def test_upgrade_downgrade_and_upgrade_give_the_tables_of_the_code(empty_database):
    assert _value(empty_database, "SELECT to_regclass('alembic_version')") is None
    migrate.upgrade(empty_database)
    first = _value(empty_database, _TABLES)
    migrate.check(empty_database)

    migrate.downgrade(empty_database)
    assert _value(empty_database, _TABLES) == 0
    assert _value(empty_database, _REVISION) is None

    migrate.upgrade(empty_database)
    migrate.check(empty_database)
    assert _value(empty_database, _TABLES) == first > 10
    newest = ScriptDirectory(str(migrate.script_location())).get_current_head()
    assert _value(empty_database, _REVISION) == newest is not None


@pytest.mark.anyio
async def test_day_partitions_are_no_schema_difference_and_are_dropped_with_their_tables(database, engine):
    await Partitions(engine).ensure([day_of(NOW)])

    migrate.check(database)
    migrate.downgrade(database)

    assert _value(database, _TABLES) == 0


def test_a_difference_between_the_code_and_the_database_is_found(database):
    with psycopg.connect(database) as connection:
        connection.execute("ALTER TABLE runs DROP COLUMN problems")

    with pytest.raises(Exception, match="problems"):
        migrate.check(database)


def test_concurrent_processes_can_upgrade_one_database(empty_database):
    code = f"from backend.store.schema.migrate import upgrade; upgrade({empty_database!r})"
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    ends = [(p.communicate(timeout=PATIENCE_S)[1], p.returncode) for p in processes]

    assert ends == [("", 0)] * 2
    migrate.check(empty_database)


def test_a_migration_that_gets_no_response_ends_with_one_line(empty_database, monkeypatch):
    monkeypatch.setattr(migrate, "_ANSWER_TIMEOUT_S", 0.05)
    with psycopg.connect(empty_database) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [migrate.LOCK_KEY])

        with pytest.raises(StoreUnavailableError) as error:
            migrate.upgrade(empty_database)

    assert str(error.value) == "the store does not answer: the server did not respond within 0.05 s"


def test_a_database_of_a_newer_version_is_refused_in_one_line_and_left_unchanged(database):
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(HostError) as error:
        migrate.upgrade(database)

    assert str(error.value) == (
        "the database is at revision 9999, which this version does not know;"
        " install the version that wrote it, or a newer one"
    )
    assert _value(database, "SELECT version_num FROM alembic_version") == "9999"


def test_a_user_without_the_right_to_create_tables_learns_in_one_line_what_to_grant(empty_database):
    with psycopg.connect(empty_database) as connection:
        connection.execute("DROP ROLE IF EXISTS visitor")
        connection.execute("CREATE ROLE visitor LOGIN PASSWORD 's3cret'")
    host = empty_database.rpartition("@")[2]

    with pytest.raises(HostError) as error:
        migrate.upgrade(f"postgresql://visitor:s3cret@{host}")

    assert "permission denied for schema public" in str(error.value)
    assert "grant CREATE on it" in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unreachable_database_is_reported_in_one_line_without_the_password():
    with pytest.raises(StoreUnavailableError) as error:
        migrate.upgrade("postgresql://me:s3cret@127.0.0.1:1/nowhere")

    assert "the store does not answer: " in str(error.value)
    assert "s3cret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_rows_of_the_first_version_survive_every_later_migration(empty_database):
    migrate.upgrade(empty_database, "0001")
    with psycopg.connect(empty_database) as connection:
        connection.execute("INSERT INTO targets (id, url, name, origin, added_at) VALUES ('t', 'u', 'n', 'api', now())")
        connection.execute(
            "INSERT INTO target_health (target_id, state, since, last_attempt_at) VALUES ('t', 'ok', now(), now())"
        )

    migrate.upgrade(empty_database)

    assert (
        _value(empty_database, "SELECT name || ' ' || state FROM targets JOIN target_health ON target_id = id")
        == "n ok"
    )
    migrate.downgrade(empty_database, "0001")
    assert _value(empty_database, "SELECT state FROM target_health") == "ok"


def test_the_outcomes_of_earlier_requests_are_found_by_their_reasons_and_unknown_people_stay_unknown(empty_database):
    rows = {
        ("apply", "accepted", "sending the change to the target"): ("awaited", None),
        ("state", "accepted", "sent to the target; waiting for it to report the new settings"): ("sent", "the service"),
        ("guarded-apply", "accepted", "sent to the target; waiting for it"): ("sent", None),
        ("state", "new", "refused, so nothing changed: HTTP 401"): ("refused", "the service"),
        ("state", "accepted", "not answered, so the target may have taken it"): (
            "unanswered",
            "the service",
        ),
        ("state", "accepted", "Barrierscope ended while it sent this, so it is not"): ("cut-short", "the service"),
        ("auto-roll-back", "regressed", "sending the automatic roll back: 4 of 9"): ("awaited", "the service"),
        ("auto-roll-back", "regressed", "automatic roll back: 4 of 9"): ("sent", "the service"),
        ("roll-back", "applied", "sending the roll back to the target"): ("awaited", None),
        ("state", "applied", "the engine reports the proposed settings"): (None, "the service"),
        ("state", "accepted", "accepted; waiting for the engine"): (None, None),
        ("state", "dismissed", "refused, as we said"): (None, None),
    }
    migrate.upgrade(empty_database, "0027")
    with psycopg.connect(empty_database) as connection:
        connection.execute(
            "ALTER TABLE recommendation_events DROP CONSTRAINT fk_recommendation_events_recommendation_id_"
            "recommendations"
        )
        for number, (kind, state, reason) in enumerate(rows, start=1):
            connection.execute(
                "INSERT INTO recommendation_events (recommendation_id, number, at, kind, state, reason)"
                " VALUES ('c', %s, now(), %s, %s, %s)",
                (number, kind, state, reason),
            )

    migrate.upgrade(empty_database)

    with psycopg.connect(empty_database) as connection:
        found = connection.execute("SELECT outcome, author FROM recommendation_events ORDER BY number").fetchall()
    assert dict(zip(rows, found, strict=True)) == rows
    migrate.downgrade(empty_database, "0027")
    assert _value(empty_database, "SELECT count(*) FROM recommendation_events") == len(rows)


def test_hours_with_expired_checkpoints_are_rolled_up_again_for_their_largest_exact_value(empty_database):
    hours = [datetime(2026, 11, 20, hour, tzinfo=UTC) for hour in (3, 4)]
    migrate.upgrade(empty_database)
    migrate.downgrade(empty_database, "0028")
    insert(
        empty_database,
        [
            row("j", 1, hours[0], "failed", failure_reason="expired", end_to_end_duration_ms=60_000),
            row("j", 2, hours[1], end_to_end_duration_ms=200),
        ],
    )
    with psycopg.connect(empty_database) as connection:
        for hour in hours:
            connection.execute("INSERT INTO rollup_hours (hour, horizon_xid) VALUES (%s, 9)", [hour])

    migrate.upgrade(empty_database)

    assert _value(empty_database, "SELECT array_agg(hour) FROM rollup_hours") == hours[1:]


def test_going_back_is_refused_while_there_are_targets_of_kinds_that_the_older_revision_does_not_know(empty_database):
    migrate.upgrade(empty_database)
    with psycopg.connect(empty_database) as connection:
        for name, kind in (("a", "flink"), ("b", "toy"), ("c", "beam"), ("d", "toy")):
            connection.execute(
                "INSERT INTO targets (id, url, name, origin, kind, added_at) VALUES (%s, %s, %s, 'api', %s, now())",
                (name, f"http://{name}", name, kind),
            )

    with pytest.raises(sqlalchemy.exc.DatabaseError, match="does not know targets of the kinds: beam, toy"):
        migrate.downgrade(empty_database, "0009")

    assert _value(empty_database, "SELECT count(*) FROM targets") == 4


def test_every_change_of_a_checkpoint_sets_changed_xid_in_old_and_new_partitions(empty_database):
    def add_day(connection, day, upper):
        name = f"checkpoints_{day.replace('-', '')}"
        connection.execute(f"CREATE TABLE {name} (LIKE checkpoints INCLUDING ALL)")
        connection.execute(f"ALTER TABLE checkpoints ATTACH PARTITION {name} FOR VALUES FROM ('{day}') TO ('{upper}')")
        columns = "run_id, checkpoint_id, job_id, kind, status, triggered_at, triggered_on, acknowledged_count"
        connection.execute(
            f"INSERT INTO checkpoints ({columns}, subtask_count, observed_at) VALUES"
            f" ('r', 1, 'j', 'checkpoint', 'in-progress', '{day} 01:00Z', '{day}', 0, 6, now())"
        )

    migrate.upgrade(empty_database, "0007")
    with psycopg.connect(empty_database) as connection:
        add_day(connection, "2026-11-20", "2026-11-21")
    migrate.upgrade(empty_database)
    with psycopg.connect(empty_database) as connection:
        add_day(connection, "2026-11-21", "2026-11-22")
    marks = "SELECT changed_xid FROM checkpoints ORDER BY triggered_on"

    for change, touched in (
        ("UPDATE checkpoints SET status = 'failed' WHERE triggered_on = '2026-11-20'", [True, False]),
        ("UPDATE checkpoints_20261121 SET alignment_max_ms = 5", [False, True]),
        ("UPDATE checkpoints SET changed_xid = 1", [True, True]),
    ):
        with psycopg.connect(empty_database) as connection:
            before = connection.execute(marks).fetchall()
            connection.execute(change)
            (own,) = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchone()
            after = connection.execute(marks).fetchall()
        assert [a == (own,) for a in after] == touched, change
        assert [a == b for a, b in zip(after, before, strict=True)] == [not t for t in touched], change


def test_the_alembic_command_line_finds_the_scripts_and_the_given_database(database):
    done = subprocess.run(
        [sys.executable, "-m", "alembic", "-x", f"url={database}", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert (done.returncode, "No new upgrade operations detected" in done.stdout + done.stderr) == (0, True), (
        done.stderr
    )
