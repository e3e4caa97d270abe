"""``barrierscope export`` writes the stored rows, complete or not at all, as CSV and as Parquet."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from backend.cli.app import run
from backend.domain.errors import StoreUnavailableError
from backend.domain.export import Contents
from backend.domain.observation import JobState
from backend.store import export
from backend.store.export import Export, ExportSelection
from backend.store.postgres.blocking import BlockingConnection
from backend.store.retention import apply_retention
from backend.store.schema.partitions import Retention, day_of
from tests.support import observations as made
from tests.support.observations import NOW, PARALLELISM, SINK, SOURCE, completed, failed, job, observation
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.anyio
_DAY = timedelta(days=1)


@pytest.fixture
async def stored(writer, target, clock, database):
    """Store two days of a job, and a second job. Return the URL of the database."""
    message = 'expired,\n"late", and more'
    expired = replace(failed(7), header=replace(failed(7).header, failure_message=message, external_path=""))
    for days, checkpoints in (
        (1, [completed(n, triggered_at=NOW - _DAY) for n in (1, 2)]),
        (0, [completed(5), expired]),
    ):
        clock.at = NOW - days * _DAY
        seen = replace(job(checkpoints), started_at=NOW - 2 * _DAY, pressure=(made.pressure(SINK, clock.at),))
        await writer.write(observation(target, seen, at=clock.at))
    other = replace(job([completed(1)], name="payments", run="b"), state=JobState.RUNNING)
    await writer.write(observation(target, other, at=NOW + timedelta(seconds=1)))
    return database


def _rows(url, contents, **selected):
    with Export(url, contents, ExportSelection(**selected)) as opened:
        text = b"".join(opened.lines()).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        assert opened.row_count() == len(rows)
    return rows


def _export(url, *arguments):
    return run(["export", *map(str, arguments), "--database-url", url])


async def test_checkpoints_have_units_in_the_names_and_missing_values_stay_missing(stored):
    rows = _rows(stored, Contents.CHECKPOINTS, jobs=("orders",))

    assert [r["checkpoint_id"] for r in rows] == ["1", "2", "5", "7"]
    assert {r["job"] for r in rows} == {"orders"}
    assert rows[0]["triggered_at"] == "2026-11-20T12:00:00.000000Z"
    assert rows[0]["end_to_end_duration_ms"] == "301"
    assert rows[3]["checkpointed_size_bytes"] == ""
    assert rows[3]["failure_message"] == 'expired,\n"late", and more'
    assert rows[0].keys() >= {"start_delay_max_ms", "full_state_size_bytes", "subtask_count", "is_unaligned"}
    assert not rows[0].keys() & {"changed_xid", "triggered_on"}


async def test_there_is_one_row_for_each_subtask_with_its_own_values(stored):
    rows = [r for r in _rows(stored, Contents.SUBTASKS, jobs=("orders",)) if r["checkpoint_id"] == "7"]

    assert [(r["vertex_id"], r["subtask"]) for r in rows] == [(v, str(n)) for v in (SINK, SOURCE) for n in range(3)]
    sink = made.detail(SINK, 7, missing=(1,))
    for name in ("start_delay_ms", "sync_duration_ms", "full_state_size_bytes", "persisted_bytes", "unaligned"):
        values = tuple(None if r[name] == "" else int(r[name]) for r in rows[:PARALLELISM])
        assert values == getattr(sink, name), name
    assert rows[0]["vertex"] == "Sink: ledger"
    assert rows[0]["status"] == "failed"


async def test_pressure_alerts_and_events_are_exported(stored):
    readings = _rows(stored, Contents.PRESSURE)

    assert [r["subtask"] for r in readings] == ["0", "1", "2"] * 2
    assert [r["backpressured_ratio"] for r in readings[:3]] == ["0.1", "0.123456", "0.25"]
    assert {r["idle_ratio"] for r in readings} == {""}
    assert readings[2]["queued_out_bytes"] == ""
    assert _rows(stored, Contents.ALERTS) == []
    assert {r["kind"] for r in _rows(stored, Contents.EVENTS)}


async def test_the_selection_bounds_jobs_and_time(stored):
    def ids(**selected):
        return [(r["job"], r["checkpoint_id"]) for r in _rows(stored, Contents.CHECKPOINTS, **selected)]

    at = NOW - timedelta(hours=1) + timedelta(seconds=50)
    assert ids(since=NOW - _DAY, until=NOW - _DAY + timedelta(microseconds=1)) == [("orders", "1"), ("orders", "2")]
    assert ids(until=NOW - _DAY) == []
    assert ids(since=at) == [("orders", "5"), ("orders", "7")]
    assert ids(since=at + timedelta(microseconds=1)) == [("orders", "7")]
    assert ids(jobs=("payments", "orders"), since=NOW - timedelta(hours=2)) == [
        ("payments", "1"),
        ("orders", "5"),
        ("orders", "7"),
    ]


async def test_parquet_has_the_same_values_as_csv_with_types(stored, tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet")
    for contents in Contents:
        assert _export(stored, contents, tmp_path / f"{contents}.parquet", "--format", "json") == 0
        done = json.loads(capsys.readouterr().out)
        table = parquet.read_table(tmp_path / f"{contents}.parquet")
        rows = _rows(stored, contents)
        assert done["row_count"] == table.num_rows == len(rows)
        for row, read in zip(rows, table.to_pylist(), strict=True):
            assert row.keys() == read.keys()
            assert {n for n, v in row.items() if v == ""} == {n for n, v in read.items() if v is None or v == ""}
    checkpoints = parquet.read_table(tmp_path / "checkpoints.parquet").to_pylist()
    assert checkpoints[0]["triggered_at"] == NOW - _DAY
    assert checkpoints[0]["end_to_end_duration_ms"] == 301
    assert checkpoints[0]["is_unaligned"] is False
    assert [c["external_path"] for c in checkpoints if c["job"] == "orders"] == [None, None, None, ""]


@pytest.mark.parametrize("name", ["=HYPERLINK(1)", "+1+cmd", "-2+3", "@SUM(A1)"])
async def test_a_name_that_is_a_formula_is_harmless_unless_it_is_wanted_raw(
    writer, target, database, tmp_path, capfdbinary, name
):
    await writer.write(observation(target, job([completed(1)], name=name)))

    (row,) = _rows(database, Contents.CHECKPOINTS)
    assert row["job"] == "'" + name

    assert _export(database, "checkpoints", "-", "--raw") == 0
    (raw,) = csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode()))
    assert raw == row | {"job": name}

    file = tmp_path / "rows.parquet"
    assert _export(database, "checkpoints", file) == 0
    assert pytest.importorskip("pyarrow.parquet").read_table(file).column("job").to_pylist() == [name]


@pytest.mark.parametrize("name", ["-5", "+7.25", "-1e3"])
async def test_a_negative_number_stays_a_number(writer, target, database, name):
    await writer.write(observation(target, job([completed(1)], name=name)))

    (row,) = _rows(database, Contents.CHECKPOINTS)
    assert row["job"] == name


@pytest.mark.parametrize("option", ["--since", "--until"])
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-12:00"])
async def test_an_instant_at_an_end_of_the_calendar_is_one_line(stored, tmp_path, capsys, option, at):
    assert _export(stored, "checkpoints", tmp_path / "rows.csv", option, at) == 2

    (line,) = capsys.readouterr().err.splitlines()
    assert "an instant in the years 1970 to 2199" in line


async def test_csv_is_written_to_a_file_or_to_standard_output(stored, tmp_path, capfdbinary):
    assert _export(stored, "checkpoints", tmp_path / "c.csv") == 0
    assert capfdbinary.readouterr().out.decode() == (
        f"{tmp_path / 'c.csv'}: 5 rows, {(tmp_path / 'c.csv').stat().st_size} bytes\n"
    )
    assert _export(stored, "checkpoints", "-") == 0
    assert capfdbinary.readouterr().out == (tmp_path / "c.csv").read_bytes()
    assert os.listdir(tmp_path) == ["c.csv"]


async def test_errors_are_one_line_and_leave_no_file(stored, tmp_path, capsys, monkeypatch):
    for arguments, code, words in (
        (("checkpoints", tmp_path / "c.csv", "--job", "nobody"), 2, "nobody"),
        (("checkpoints", tmp_path / "c.csv", "--since", "yesterday"), 2, "--since"),
        (("checkpoints", tmp_path / "c.csv", "--since", NOW.isoformat(), "--until", NOW.isoformat()), 2, "--since"),
        (("checkpoints", tmp_path / "no" / "c.csv"), 1, "cannot be written"),
        (("checkpoints", "-", "--file-format", "parquet"), 2, "standard output"),
    ):
        assert _export(stored, *arguments) == code, words
        error = capsys.readouterr().err
        assert words in error
        assert error.count("\n") == 1
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert _export(stored, "checkpoints", tmp_path / "c.parquet") == 1
    assert "needs the package pyarrow" in capsys.readouterr().err
    assert _export(stored, "checkpoints", tmp_path / "c.csv") == 0
    assert os.listdir(tmp_path) == ["c.csv"]


async def test_a_stopped_export_keeps_the_file_that_was_there(stored, tmp_path):
    with psycopg.connect(stored) as connection:
        connection.execute(
            "INSERT INTO job_events (run_id, kind, key, job_id, at, text) SELECT r.id, 'exception', n::text, r.job_id,"
            " now(), repeat('x', 500) FROM runs r, generate_series(1, 60000) n"
        )
    file = tmp_path / "e.csv"
    file.write_text("the export before\n")
    command = [sys.executable, "-m", "backend.cli", "export", "events", str(file), "--database-url", stored]
    partial = tmp_path / "e.csv.partial"
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:  # noqa: ASYNC220  no other task runs
        until(lambda: partial.exists() and partial.stat().st_size > 2**20, "the export writes its partial file")
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 130
    assert file.read_text() == "the export before\n"
    assert os.listdir(tmp_path) == ["e.csv"]


async def test_an_export_from_a_suspended_server_process_ends_with_an_error(stored, monkeypatch):
    with Export(stored, Contents.SUBTASKS, ExportSelection()) as opened:
        lines = opened.lines()
        next(lines)
        connection = opened._opened
        assert isinstance(connection, BlockingConnection)
        assert connection.answer_timeout_s == export._ANSWER_TIMEOUT_S
        connection.answer_timeout_s = 0.05
        pid = connection.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailableError, match="did not respond within"):
                list(lines)
        finally:
            os.kill(pid, signal.SIGCONT)


async def test_retention_leaves_the_days_of_a_running_export(stored, engine, monkeypatch):
    from backend.store import retention

    monkeypatch.setattr(retention, "_DROP_LOCK_TIMEOUT", "50ms")
    later = NOW + 6 * _DAY + timedelta(hours=13)
    with Export(stored, Contents.SUBTASKS, ExportSelection()) as opened:
        lines = opened.lines()
        next(lines)
        assert (await apply_retention(engine, Retention(arrays_max_age=60 * _DAY), later)).days == ()
        assert len(list(lines)) == 5 * 2 * PARALLELISM
    report = await apply_retention(engine, Retention(arrays_max_age=60 * _DAY), later)
    assert report.days == (day_of(NOW - _DAY), day_of(NOW))[: len(report.days)]
    assert report.days
