"""Builds the queries of keyset paging. Each query returns one page of a list, newest first.

A page begins after the sort key of the previous page's last item, not at an offset. So items that are added meanwhile
do not shift the page. The order matches an index, so the cost of a page depends only on its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Column, ColumnElement, Select, bindparam, tuple_

from backend.store.postgres.statements import literal_count


def newest_first(
    query: Select[Any],
    *columns: Column[Any],
    before: Sequence[object] | None,
    limit: int,
    sorted_count: int | None = None,
    knows_limit: bool = False,
) -> tuple[Select[Any], dict[str, object]]:
    """Return the statement for one page of ``query``, and the values to bind for the page.

    The caller adds the values that ``query`` itself binds. ``columns`` is the sort key. ``before`` is the key of the
    last item that was sent. If ``query`` is built at import, only two statements result: one for the first page and one
    for later pages. SQLAlchemy compiles each of them once.

    With ``sorted_count``, the server sorts by the first ``sorted_count`` columns only, so that an index on them gives
    the order. It then also returns the rows after the limit that are equal to the last one in these columns, and the
    caller sorts the rows and removes those after the limit. With ``knows_limit``, the limit is part of the text (see
    ``literal_count``), and two statements result for each limit.
    """
    ties = len(columns) if sorted_count is None else sorted_count
    statement = _page(query, columns, ties, is_first=before is None, limit=limit if knows_limit else None)
    values: dict[str, object] = {} if knows_limit else {"limit": limit}
    return statement, values | {f"before_{i}": part for i, part in enumerate(before or ())}


@lru_cache(maxsize=256)
def _page(
    query: Select[Any], columns: tuple[Column[Any], ...], sorted_count: int, *, is_first: bool, limit: int | None
) -> Select[Any]:
    if not is_first:
        last = (bindparam(f"before_{i}", type_=c.type) for i, c in enumerate(columns))
        query = query.where(tuple_(*columns) < tuple_(*last))
    query = query.order_by(*(c.desc() for c in columns[:sorted_count]))
    most: ColumnElement[int] = bindparam("limit", type_=BigInteger) if limit is None else literal_count(limit)
    return query.fetch(most, with_ties=True) if sorted_count < len(columns) else query.limit(most)
