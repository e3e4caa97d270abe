"""Streams stored rows as CSV text: checkpoints, values by subtask, backpressure, alerts and events.

Invariants: memory does not depend on the number of rows, because PostgreSQL's COPY produces the text row by row. All
rows of one export are read at one instant, and retention does not change them meanwhile. A missing value is an empty
field, and empty text is a quoted empty field. Column names end with the unit, as in the tables. Instants are in UTC.
"""

# ruff: noqa: S608  the statements contain only this module's own names; values are merged by psycopg.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from enum import StrEnum
from types import TracebackType
from typing import Any

import psycopg
from sqlalchemy import ARRAY, BigInteger, Boolean, DateTime, Double, Integer, Numeric, Table
from sqlalchemy.types import TypeEngine

from backend.domain.errors import StoreUnavailableError, UnknownEntityError
from backend.domain.export import Contents
from backend.store.checkpoints.progress_writer import PRESSURE_ARRAYS
from backend.store.postgres.blocking import BlockingConnection
from backend.store.schema import alert_tables, tables
from backend.store.schema.partitions import day_of, day_of_partition

_CONNECT_TIMEOUT_S = 5
# PostgreSQL may sort the rows of a whole day before it sends the first one. A server that sends nothing for longer is
# treated as suspended.
_ANSWER_TIMEOUT_S = 600.0
# Retention locks tables exclusively while it replaces or drops the partitions of a day. An export that waits longer
# than this for its own locks fails.
_LOCK_TIMEOUT = "60s"
_FORMULA = r"^[-=+@\t\r]"
_NUMBER = r"^[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?$"
_INSTANT = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'


class Kind(StrEnum):
    """The type of a column."""

    TEXT = "text"
    INTEGER = "integer"
    REAL = "real"
    BOOLEAN = "boolean"
    INSTANT = "instant"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an export: its name, its type, and the SQL expression for its value."""

    name: str
    kind: Kind
    sql: str


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """Selects the rows of an export. ``jobs`` contains names or ids; if it is empty, every job is exported.

    The rows are at or after ``since`` and before ``until``; None does not restrict them.
    """

    jobs: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """How one kind of rows is read.

    ``tables`` is what follows FROM. ``at`` is the instant by which rows are selected. ``day`` is the column by which
    ``partitioned`` is partitioned; both are None for a table without partitions. ``count`` counts the exported rows.
    """

    columns: tuple[Column, ...]
    tables: str
    job_id: str
    at: str
    order: str
    count: str = "count(*)"
    partitioned: str | None = None
    day: str | None = None


def columns_of(contents: Contents) -> tuple[Column, ...]:
    """Return the columns of an export, in order."""
    return _SOURCES[contents].columns


def _harmless(column: Column) -> str:
    """Return the SQL of a cell that no spreadsheet runs as a formula. Numbers are not changed, also those in texts.

    The names in the rows come from the jobs of other people.
    """
    if column.kind is not Kind.TEXT:
        return column.sql
    value = f"({column.sql})::text"
    is_formula = f"{value} ~ '{_FORMULA}' AND {value} !~ '{_NUMBER}'"
    return f"CASE WHEN {is_formula} THEN chr(39) || {value} ELSE {value} END"


def _kind(kind: TypeEngine[Any]) -> Kind:
    item = kind.item_type if isinstance(kind, ARRAY) else kind
    for types, found in (
        ((DateTime,), Kind.INSTANT),
        ((Boolean,), Kind.BOOLEAN),
        ((Integer, BigInteger), Kind.INTEGER),
        ((Double, Numeric), Kind.REAL),
    ):
        if isinstance(item, types):
            return found
    return Kind.TEXT


def _column(name: str, kind: Kind, value: str) -> Column:
    sql = f"to_char({value} AT TIME ZONE 'UTC', '{_INSTANT}')" if kind is Kind.INSTANT else value
    return Column(name, kind, sql)


def _own(table: Table, alias: str, names: Sequence[str]) -> tuple[Column, ...]:
    return tuple(_column(name, _kind(table.c[name].type), f'{alias}."{name}"') for name in names)


def _elements(table: Table, names: Sequence[str]) -> tuple[Column, ...]:
    """Return the columns with one element of each array. An array with one element holds the value of every subtask."""
    return tuple(
        _column(
            name, _kind(table.c[name].type), f"CASE WHEN cardinality(t.{name}) = 1 THEN t.{name}[1] ELSE s.{name} END"
        )
        for name in names
    )


def _by_subtask(names: Sequence[str]) -> str:
    """Return the join that expands a stored row, whose arrays hold a value per subtask, into one row per subtask."""
    arrays = ", ".join(f"t.{name}" for name in names)
    # The first array has one element for each subtask, so that there are as many rows even if every other array is
    # stored in a shorter form.
    return (
        f" CROSS JOIN LATERAL unnest(array_fill(0, ARRAY[t.subtask_count]), {arrays}) WITH ORDINALITY"
        f" AS s(filler, {', '.join(names)}, number)"
        # The name of a vertex is read from the newest job graph of its run.
        " LEFT JOIN graphs v ON v.run_id = t.run_id AND v.vertex_id = t.vertex_id"
    )


_JOB = (
    _column("job_id", Kind.TEXT, "j.id"),
    _column("job", Kind.TEXT, "j.name"),
    _column("deployment", Kind.TEXT, "j.deployment"),
    _column("run_id", Kind.TEXT, "t.run_id"),
)
_SUBTASK = (
    _column("vertex_id", Kind.TEXT, "t.vertex_id"),
    _column("vertex", Kind.TEXT, "v.name"),
    _column("subtask", Kind.INTEGER, "s.number - 1"),
)
_LEFT_OUT = {"run_id", "job_id", "triggered_on", "changed_xid"}
_DETAIL_ARRAYS = tuple(c.name for c in tables.checkpoint_details.c if isinstance(c.type, ARRAY))
_GRAPHS = (
    "CREATE TEMPORARY TABLE graphs ON COMMIT DROP AS SELECT DISTINCT ON (run_id, v ->> 'id') run_id,"
    " v ->> 'id' AS vertex_id, v ->> 'name' AS name FROM run_versions, jsonb_array_elements(document -> 'vertices') v"
    " WHERE kind = 'topology' ORDER BY run_id, v ->> 'id', since DESC"
)

_SOURCES: Mapping[Contents, _Source] = {
    Contents.CHECKPOINTS: _Source(
        columns=(
            *_JOB,
            *_own(tables.checkpoints, "t", [c.name for c in tables.checkpoints.c if c.name not in _LEFT_OUT]),
        ),
        tables="checkpoints t JOIN jobs j ON j.id = t.job_id",
        job_id="t.job_id",
        at="t.triggered_at",
        order="t.triggered_at, t.run_id, t.checkpoint_id",
        partitioned="checkpoints",
        day="t.triggered_on",
    ),
    Contents.SUBTASKS: _Source(
        columns=(
            *_JOB,
            *_own(tables.checkpoints, "c", ["checkpoint_id", "kind", "status", "triggered_at"]),
            *_SUBTASK,
            *_elements(tables.checkpoint_details, _DETAIL_ARRAYS),
        ),
        tables=(
            "checkpoint_details t JOIN checkpoints c ON c.run_id = t.run_id AND c.checkpoint_id = t.checkpoint_id"
            " AND c.triggered_on = t.triggered_on JOIN jobs j ON j.id = c.job_id"
        ),
        job_id="c.job_id",
        at="c.triggered_at",
        order="c.triggered_at, t.run_id, t.checkpoint_id, t.vertex_id",
        count="sum(t.subtask_count)",
        partitioned="checkpoint_details",
        day="t.triggered_on",
    ),
    Contents.PRESSURE: _Source(
        columns=(
            *_JOB,
            *_own(tables.pressure, "t", ["observed_at"]),
            *_SUBTASK,
            *_elements(tables.pressure, PRESSURE_ARRAYS),
        ),
        tables="pressure t JOIN runs r ON r.id = t.run_id JOIN jobs j ON j.id = r.job_id",
        job_id="r.job_id",
        at="t.observed_at",
        order="t.observed_at, t.run_id, t.vertex_id",
        count="sum(t.subtask_count)",
        partitioned="pressure",
        day="t.observed_on",
    ),
    Contents.ALERTS: _Source(
        columns=_own(
            alert_tables.alerts,
            "t",
            [
                *("id", "rule", "severity", "job_id", "target_id", "labels", "state", "began_at", "fired_at"),
                *("ended_at", "ended_reason", "reason", "value", "annotations"),
            ],
        ),
        tables="alerts t LEFT JOIN jobs j ON j.id = t.job_id",
        job_id="t.job_id",
        at="t.began_at",
        order="t.began_at, t.id",
    ),
    Contents.EVENTS: _Source(
        columns=(*_JOB, *_own(tables.job_events, "t", ["kind", "at", "text"])),
        tables="job_events t JOIN jobs j ON j.id = t.job_id",
        job_id="t.job_id",
        at="t.at",
        order="t.at, t.run_id, t.kind, t.key",
    ),
}
_SUBTASK_CONTENTS = {Contents.SUBTASKS: _DETAIL_ARRAYS, Contents.PRESSURE: PRESSURE_ARRAYS}


class Export:
    """One export, open on its own connection. Use it as a context manager. It blocks.

    Raises:
        StoreUnavailableError: PostgreSQL is unreachable, fails while rows are read, or sends nothing for 10 minutes.
        UnknownEntityError: a job of the selection is not stored.
    """

    def __init__(self, url: str, contents: Contents, selection: ExportSelection) -> None:
        self._url = url
        self._contents = contents
        self._source = _SOURCES[contents]
        self._selection = selection
        self._connection: psycopg.Connection | None = None
        self._job_ids: list[str] | None = None

    def __enter__(self) -> Export:
        try:
            self._open()
        except psycopg.Error as error:
            self._close()
            raise _unavailable(error) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def row_count(self) -> int:
        """Return the number of rows that the export will have."""
        query = f"SELECT COALESCE({self._source.count}, 0)::int8 FROM {self._source.tables} WHERE {self._condition()}"
        try:
            row = self._opened.execute(query.encode(), self._values()).fetchone()
        except psycopg.Error as error:
            raise _unavailable(error) from error
        return int(row[0]) if row else 0

    def lines(self, *, is_raw: bool = False) -> Iterator[bytes]:
        """Yield the line with the column names, and then each row. A row with line breaks in its text is one item.

        A text that a spreadsheet would run as a formula begins with an apostrophe, unless ``is_raw``.
        """
        yield (",".join(c.name for c in self._source.columns) + "\n").encode()
        try:
            with self._opened.cursor() as cursor:
                for day in self._days():
                    statement = f"COPY ({self._query(day, is_raw=is_raw)}) TO STDOUT (FORMAT csv)"
                    with cursor.copy(statement.encode(), self._values(day)) as copy:
                        yield from map(bytes, copy)
        except psycopg.Error as error:
            raise _unavailable(error) from error

    @property
    def _opened(self) -> psycopg.Connection:
        if self._connection is None:
            raise RuntimeError("the export is not open")
        return self._connection

    def _open(self) -> None:
        options = f"-c statement_timeout=0 -c lock_timeout={_LOCK_TIMEOUT} -c timezone=UTC"
        connection = BlockingConnection.connect(
            self._url, connect_timeout=_CONNECT_TIMEOUT_S, options=options, application_name="barrierscope export"
        )
        connection.answer_timeout_s = _ANSWER_TIMEOUT_S
        self._connection = connection
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for table in dict.fromkeys(t for t in (self._source.partitioned, "checkpoints") if t):
            # The lock comes before the first query, which determines the instant at which rows are read. It also
            # includes the partitions, so retention leaves them for a later pass.
            connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE".encode())
        self._job_ids = self._found_jobs(connection)
        if self._contents in _SUBTASK_CONTENTS:
            connection.execute(_GRAPHS.encode())
            connection.execute(b"CREATE INDEX ON graphs (run_id, vertex_id)")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _found_jobs(self, connection: psycopg.Connection) -> list[str] | None:
        if not self._selection.jobs:
            return None
        names = list(self._selection.jobs)
        rows = connection.execute(b"SELECT id, name FROM jobs WHERE id = ANY(%s) OR name = ANY(%s)", [names, names])
        found = rows.fetchall()
        for name in names:
            if not any(name in row for row in found):
                raise UnknownEntityError(kind="job", id=name)
        return [job_id for job_id, _ in found]

    def _days(self) -> Sequence[date | None]:
        """Return the days to read one after the other, oldest first, or one None for a table without partitions.

        Reading by day bounds what PostgreSQL must sort.
        """
        if self._source.partitioned is None:
            return [None]
        query = (
            b"SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
            b" WHERE i.inhparent = %s::regclass"
        )
        names = self._opened.execute(query, [self._source.partitioned]).fetchall()
        first, last = self._bounds()
        days = (day_of_partition(name) for (name,) in names)
        return sorted(day for day in days if day is not None and first <= day <= last)

    def _bounds(self) -> tuple[date, date]:
        since, until = self._selection.since, self._selection.until
        # The range excludes ``until`` itself.
        last = date.max if until is None else day_of(until - timedelta(microseconds=1))
        return date.min if since is None else day_of(since), last

    def _query(self, day: date | None, *, is_raw: bool) -> str:
        source, names = self._source, _SUBTASK_CONTENTS.get(self._contents)
        joined = source.tables + (_by_subtask(names) if names else "")
        columns = ", ".join(c.sql if is_raw else _harmless(c) for c in source.columns)
        order = source.order + (", s.number" if names else "")
        own_day = "" if day is None else f" AND {source.day} = %(day)s"
        return f"SELECT {columns} FROM {joined} WHERE {self._condition()}{own_day} ORDER BY {order}"

    def _condition(self) -> str:
        source, selection = self._source, self._selection
        conditions = ["true"]
        if self._job_ids is not None:
            conditions.append(f"{source.job_id} = ANY(%(jobs)s)")
        if selection.since is not None:
            conditions.append(f"{source.at} >= %(since)s")
        if selection.until is not None:
            conditions.append(f"{source.at} < %(until)s")
        return " AND ".join(conditions)

    def _values(self, day: date | None = None) -> dict[str, Any]:
        selection = self._selection
        return {"jobs": self._job_ids, "since": selection.since, "until": selection.until, "day": day}


def _unavailable(error: psycopg.Error) -> StoreUnavailableError:
    text = str(error).strip()
    return StoreUnavailableError(text.splitlines()[0] if text else type(error).__name__)
