"""The end of a query that answers one page of a list, newest first: where it begins, its order and its length.

A page begins after the sort key of the last item of the page before, never at a count: what is added meanwhile shifts
nothing. Index and order agree, so a page costs what is on it.
"""

from __future__ import annotations

from collections.abc import Mapping


def newest_first(columns: Mapping[str, str]) -> str:
    """The condition (to follow ``WHERE ... AND``), order and limit of a page.

    ``columns``: name of the bound value -> column, in the order of the sort key, which begins with an instant. All
    values None: the first page. ``:limit`` is how many rows.
    """
    first, *others = columns
    values = ", ".join((f"CAST(:{first} AS timestamptz)", *(f":{name}" for name in others)))
    order = ", ".join(f"{column} DESC" for column in columns.values())
    return (
        f"(CAST(:{first} AS timestamptz) IS NULL OR ({', '.join(columns.values())}) < ({values}))"
        f" ORDER BY {order} LIMIT :limit"
    )
