"""Reads the clock of a server from the ``Date`` header of its answers (RFC 9110, 6.6.1)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

AHEAD_MAX: Final = timedelta(days=1)
"""A clock that is further away is not believed: it would turn every age around."""
RESOLUTION: Final = timedelta(seconds=2)
"""The header has whole seconds, and the answer was on its way. A smaller difference is none."""


def ahead_of(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """Return by how much the server's clock is ahead of ours, which shows ``now``; negative if it is behind.

    Return None if the answer has no date that can be believed. A cache repeats the date at which it was filled, and
    says so with the header ``Age``.
    """
    text = headers.get("Date", "")
    if not text or headers.get("Age", "0").strip() not in ("", "0"):
        return None
    try:
        at = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    # The second that the header names lasts until the next one.
    ahead = at + timedelta(milliseconds=500) - now
    if abs(ahead) > AHEAD_MAX:
        return None
    return ahead if abs(ahead) > RESOLUTION else timedelta(0)
