"""Builds the queries of keyset paging. Each query returns one page of a list, newest first.

A page begins after the sort key of the previous page's last item, not at an offset. So items that are added meanwhile
do not shift the page. The order matches an index, so the cost of a page depends only on its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Column, Select, bindparam, tuple_


def newest_first(
    query: Select[Any], *columns: Column[Any], before: Sequence[object] | None, limit: int
) -> tuple[Select[Any], dict[str, object]]:
    """Return the statement for one page of ``query``, and the values to bind for the page.

    The caller adds the values that ``query`` itself binds. ``columns`` is the sort key. ``before`` is the key of the
    last item that was sent. If ``query`` is built at import, only two statements result: one for the first page and one
    for later pages. SQLAlchemy compiles each of them once.
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
