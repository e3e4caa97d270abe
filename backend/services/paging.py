"""Encodes and decodes cursors. A cursor marks the position at which the next page of a list begins.

A cursor is opaque to clients, and a URL can contain it without escaping. It holds the sort key of the last item that
was sent. So pages neither repeat nor skip an item that exists during the whole listing, even if other items are added
meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

import orjson

from backend.domain.errors import FieldProblem, InvalidInputError

LIMIT_DEFAULT = 50
LIMIT_MAX = 500

Key = tuple[str | int | datetime, ...]
T = TypeVar("T")


def encode_cursor(key: Key) -> str:
    """Encode an item's sort key as a cursor."""
    parts = [part.isoformat() if isinstance(part, datetime) else part for part in key]
    return base64.urlsafe_b64encode(orjson.dumps(parts)).decode().rstrip("=")


def decode_cursor(cursor: str | None, kinds: Sequence[type]) -> tuple[object, ...] | None:
    """Decode a cursor into its sort key. Return None if ``cursor`` is None.

    ``kinds`` lists the type of each part of the key.

    Raises:
        InvalidInputError: the cursor is malformed, or its parts are of other types.
    """
    if cursor is None:
        return None
    try:
        parts = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(parts, list) or len(parts) != len(kinds):
            raise ValueError(cursor)
        return tuple(_part(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, TypeError, binascii.Error):
        problem = FieldProblem("cursor", "is not a cursor of this list", "the `next` value of the previous page")
        raise InvalidInputError([problem], what="query") from None


def page_of(items: Sequence[T], limit: int, key: Callable[[T], Key]) -> tuple[Sequence[T], str | None]:
    """Return the page and the cursor of the next page, which is None on the last page.

    ``items`` must contain one item more than ``limit`` if there is a next page.
    """
    if len(items) <= limit:
        return items, None
    page = items[:limit]
    return page, encode_cursor(key(page[-1]))


def _part(part: object, kind: type) -> object:
    if kind is datetime:
        if not isinstance(part, str):
            raise ValueError(part)
        instant = datetime.fromisoformat(part)
        # The ends of the calendar have no equivalent in UTC.
        if instant.tzinfo is None or not 1 < instant.year < 9999:
            raise ValueError(part)
        return instant
    # In Python, a bool is also an int, but a cursor contains no bool.
    if not isinstance(part, kind) or isinstance(part, bool):
        raise ValueError(part)
    if isinstance(part, int) and abs(part) >= 2**63:
        raise ValueError(part)
    if isinstance(part, str) and "\0" in part:
        raise ValueError(part)
    return part
