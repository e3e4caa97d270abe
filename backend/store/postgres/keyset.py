"""One page of a list, newest first: where it begins, its order and its length.

A page begins after the sort key of the last item of the page before, never at a count: what is added meanwhile shifts
nothing. Index and order agree, so a page costs what is on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Select, bindparam, tuple_


def newest_first(
    query: Select[Any], *columns: Column[Any], before: Sequence[object] | None, limit: int
) -> tuple[Select[Any], dict[str, object]]:
    """The statement of one page of ``query``, and the values that it binds besides those of ``query``.

    ``columns`` is the sort key; ``before`` is the key of the last item already sent. A ``query`` that is built when its
    module is imported makes two statements for ever, which SQLAlchemy compiles once.
    """
    values: dict[str, object] = {"limit": limit}
    if before is None:
        return _page(query, columns, is_first=True), values
    return _page(query, columns, is_first=False), values | {f"before_{i}": part for i, part in enumerate(before)}


@lru_cache(maxsize=128)
def _page(query: Select[Any], columns: tuple[Column[Any], ...], *, is_first: bool) -> Select[Any]:
    if not is_first:
        last = (bindparam(f"before_{i}", type_=c.type) for i, c in enumerate(columns))
        query = query.where(tuple_(*columns) < tuple_(*last))
    return query.order_by(*(c.desc() for c in columns)).limit(bindparam("limit"))
