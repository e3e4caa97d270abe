"""Builds parts of SQLAlchemy Core statements, and compiles statements to text for psycopg.

The write path needs text, because it executes its statements on the psycopg cursor that it uses for COPY.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    Column,
    Double,
    Integer,
    Interval,
    Table,
    any_,
    bindparam,
    func,
    literal,
    literal_column,
)
from sqlalchemy.dialects.postgresql import ARRAY, Insert, psycopg
from sqlalchemy.sql import ColumnElement
from sqlalchemy.sql.expression import ClauseElement, TableValuedAlias
from sqlalchemy.types import TypeEngine

_DIALECT = psycopg.dialect()  # type: ignore[no-untyped-call]


def sql_of(statement: ClauseElement) -> bytes:
    """Compile a statement to text with bound values as ``%(name)s``. Each statement is compiled once, at import."""
    return str(statement.compile(dialect=_DIALECT)).encode()


def type_name(kind: TypeEngine[Any]) -> str:
    """Return PostgreSQL's name for a column type."""
    return kind.compile(_DIALECT).lower()


def duration_after(instant: ColumnElement[datetime], ms: ColumnElement[int]) -> ColumnElement[datetime]:
    """Return the expression for the instant ``ms`` milliseconds after ``instant``."""
    return instant + ms * literal_column("interval '1 ms'", Interval)


def seconds_from_now(name: str) -> ColumnElement[datetime]:
    """Return the expression for the database's current time plus the number of seconds bound as ``name``."""
    return func.now() + bindparam(name, type_=Double) * literal_column("interval '1 s'", Interval)


def literal_count(count: int) -> ColumnElement[int]:
    """Return a number of rows for ``LIMIT`` as part of the statement's text.

    If the number is bound to the statement, PostgreSQL does not know it when it plans for all values, and assumes a
    tenth of all rows. That plan then looks expensive, so PostgreSQL plans the statement anew for each execution. Over
    many partitions, this takes longer than a look-up.
    """
    return literal_column(str(int(count)), Integer)


def one_of(column: Column[Any], name: str) -> ColumnElement[bool]:
    """Return the condition that ``column`` is one of the values bound as the list ``name``."""
    return column == any_(bindparam(name, type_=ARRAY(column.type)))


def each(column: Column[Any], name: str) -> TableValuedAlias:
    """Turn the list that is bound as ``name`` into a table for a LATERAL join.

    The table has a row for each value of the list, and one column with the name of ``column``.
    """
    return func.unnest(bindparam(name, type_=ARRAY(column.type))).table_valued(column.name).render_derived("each")


def among(column: Column[Any], values: Iterable[object]) -> ColumnElement[bool]:
    """Return the condition that ``column`` is one of ``values``.

    The values are sent as one array, so the text of the statement does not depend on their number.
    """
    return column == any_(literal(list(values), ARRAY(column.type)))


def bound(columns: Iterable[Column[Any]]) -> dict[str, BindParameter[Any]]:
    """Return a bound parameter for each column, named like the column."""
    return {c.name: bindparam(c.name, type_=c.type) for c in columns}


def replaced(insert: Insert, columns: Iterable[Column[Any]]) -> dict[str, ColumnElement[Any]]:
    """Return the values for ``DO UPDATE SET``: each column gets the value that the insert proposed."""
    return {c.name: insert.excluded[c.name] for c in columns}


def beside_key(table: Table) -> Sequence[Column[Any]]:
    """Return the columns of a table that are not in its primary key."""
    return [c for c in table.c if not c.primary_key]
