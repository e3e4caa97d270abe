"""Chooses the channel whose state is that of a run that several channels report.

An end is known to the channel that saw it only, so a reported end counts whatever the others say. Among the channels
that were heard of lately, one that says that the query runs is preferred, and then the one that is heard of first.

Invariant: a listener that fell silent, or a driver that no longer answers, is not hidden by a channel that has no newer
event. A history server says that a query runs until it has seen no event for ten minutes, also if its driver was
killed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from backend.domain.channel import Channel, RunChannel

PUSHED_WITHIN: Final = timedelta(seconds=90)
"""A listener that has sent nothing for longer is silent (``services.jobs.silent_jobs``)."""
POLLED_WITHIN: Final = timedelta(minutes=5)
_RANKS: Final = {Channel.LISTENER: 0, Channel.DRIVER: 1}


def speaker(channels: Sequence[RunChannel], current: str, now: datetime) -> str:
    """Return the target that says the state of the run. ``current`` is the one that said it until now.

    ``channels`` must not be empty.
    """
    usable = [c for c in channels if c.is_watched] or list(channels)
    ended = [c for c in usable if c.has_ended and c.is_listed]
    if ended:
        return min(ended, key=_rank).target
    open_ones = [c for c in usable if not c.has_ended]
    heard = [c for c in open_ones if now - c.heard_at <= (PUSHED_WITHIN if c.is_pushed else POLLED_WITHIN)]
    if heard:
        best = min(heard, key=lambda c: (not c.is_running, *_rank(c)))
        silent = [c for c in open_ones if _is_of_driver(c) and c not in heard and c.news_at >= best.news_at]
        return best.target if best.is_pushed or not silent else min(silent, key=_rank).target
    known = open_ones or usable
    return current if any(c.target == current for c in known) else min(known, key=_rank).target


def _is_of_driver(channel: RunChannel) -> bool:
    return channel.is_pushed or channel.channel is Channel.DRIVER


def _rank(channel: RunChannel) -> tuple[int, str]:
    return _RANKS.get(channel.channel, 2), channel.target
