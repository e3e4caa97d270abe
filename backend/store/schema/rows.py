"""Converts between rows and dataclasses. A column and the field of the same name hold the same value.

``value_of`` builds a dataclass from a row, and ``values_of`` builds many from the rows of one result, at less cost.
``row_of`` builds a table's row from a dataclass. A caller passes only the fields that differ from their column. The
conversions are determined once for each pair of types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from sqlalchemy import Column, Integer, Table, Text

from backend.store.postgres.encoding import clean_or_none
from backend.store.schema.arrays import limit_of

T = TypeVar("T")
_Getter = Callable[[Any], Any]


def value_of(kind: type[T], row: Mapping[Any, Any], /, **changed: Any) -> T:
    """Build an instance of the dataclass ``kind`` from the columns of ``row`` that are named like its fields.

    Text is converted to the enum of its field. A field that is a dataclass is built from the same row. ``changed``
    replaces fields, or adds those that no column holds.

    Raises:
        KeyError: a field has neither a column nor a value in ``changed``.
    """
    return kind(**{name: changed[name] if name in changed else get(row) for name, get in _readers(kind)})  # type: ignore[arg-type]


def values_of(kind: type[T], names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[T]:
    """Build an instance of the dataclass ``kind`` from each row, whose columns have these ``names``.

    The conversions are those of ``value_of``.

    Raises:
        KeyError: no column has the name of a field.
        ValueError: text is not a value of the enum of its field.
    """
    build = _builder(kind, tuple(names))  # type: ignore[arg-type]
    return [build(row) for row in rows]


def row_of(table: Table, value: object, /, **changed: Any) -> dict[str, Any]:
    """Build a row of ``table`` from the fields of ``value`` that are named like columns.

    ``changed`` replaces or adds columns, and its values are stored unchanged. Text in the other columns is cleaned. An
    integer that its column cannot hold cannot be a measurement. It becomes NULL, or the nearest number that fits if the
    column allows no NULL.
    """
    kind: Any = type(value)
    return {name: get(value) for name, get in _writers(table, kind) if name not in changed} | changed


@lru_cache(maxsize=256)
def _readers(kind: type[Any]) -> tuple[tuple[str, _Getter], ...]:
    hints = get_type_hints(kind)
    return tuple((f.name, _reader(f.name, _plain(hints[f.name]))) for f in fields(kind) if f.init)


def _reader(name: str, hint: Any) -> _Getter:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda row: None if (value := row[name]) is None else hint(value)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda row: value_of(hint, row)
    return itemgetter(name)


@lru_cache(maxsize=64)
def _builder(kind: type[Any], names: tuple[str, ...]) -> Callable[[Sequence[Any]], Any]:
    """Return a function that builds a ``kind`` from a row.

    It takes the values by their position, and converts only those that differ from their column. That takes a quarter
    of the time of ``value_of``, which looks up each value by its name.
    """
    hints = get_type_hints(kind)
    places = {name: i for i, name in enumerate(names)}
    own = [f for f in fields(kind) if f.init]
    changed: list[tuple[int, Callable[[Sequence[Any]], Any]]] = []
    positions: list[int] = []
    for i, field in enumerate(own):
        hint = _plain(hints[field.name])
        if isinstance(hint, type) and is_dataclass(hint):
            changed.append((i, _builder(hint, names)))
            positions.append(0)
            continue
        place = places[field.name]
        positions.append(place)
        if isinstance(hint, type) and issubclass(hint, Enum):
            changed.append((i, partial(_member, hint, {m.value: m for m in hint}, place)))
    take = itemgetter(*positions)
    fields_of = take if len(positions) > 1 else lambda row: (take(row),)
    if any(f.kw_only for f in own):
        raise TypeError(f"{kind.__name__} does not take its fields by position")

    def build(row: Sequence[Any]) -> Any:
        values = list(fields_of(row))
        for i, convert in changed:
            values[i] = convert(row)
        return kind(*values)

    return build


def _member(kind: type[Enum], members: Mapping[Any, Enum], place: int, row: Sequence[Any]) -> Enum | None:
    value = row[place]
    if value is None:
        return None
    member = members.get(value)
    return member if member is not None else kind(value)


@lru_cache(maxsize=256)
def _writers(table: Table, kind: type[Any]) -> tuple[tuple[str, _Getter], ...]:
    hints = get_type_hints(kind)
    names = [f.name for f in fields(kind) if f.name in table.c]
    return tuple((name, _writer(table.c[name], _plain(hints[name]))) for name in names)


def _writer(column: Column[Any], hint: Any) -> _Getter:
    get = attrgetter(column.name)
    if isinstance(hint, type) and issubclass(hint, Enum):
        if not column.nullable:
            return attrgetter(f"{column.name}.value")
        return lambda value: None if (member := get(value)) is None else member.value
    if isinstance(column.type, Text):
        return lambda value: clean_or_none(get(value))
    if isinstance(column.type, Integer):
        limit = limit_of(column)
        return _measured(get, limit) if column.nullable else _bounded(get, limit)
    return get


def _measured(get: _Getter, limit: int) -> _Getter:
    return lambda value: None if (n := get(value)) is None or not -limit <= n <= limit else n


def _bounded(get: _Getter, limit: int) -> _Getter:
    return lambda value: max(-limit, min(get(value), limit))


def _plain(hint: Any) -> Any:
    """Return ``X`` for the type ``X | None``."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else hint
    return hint
