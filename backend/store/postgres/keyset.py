"""One page of a list, newest first: where it begins, its order and its length.

A page begins after the sort key of the last item of the page before, never at a count: what is added meanwhile shifts
nothing. Index and order agree, so a page costs what is on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from sqlalchemy import Column, Select, tuple_

S = TypeVar("S", bound="Select[Any]")


def newest_first(query: S, *columns: Column[Any], before: Sequence[object] | None, limit: int) -> S:
    """``query`` for one page. ``columns`` is the sort key; ``before`` is the key of the last item already sent."""
    if before is not None:
        query = query.where(tuple_(*columns) < tuple(before))
    return query.order_by(*(c.desc() for c in columns)).limit(limit)
