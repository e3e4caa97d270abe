"""Waits for the store when a role starts, because in a new cluster the role may start before the store."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from backend.domain.errors import StoreUnavailableError

_PAUSE_S = 2.0

_log = structlog.get_logger(__name__)


def until_the_store_answers(
    action: Callable[[], None],
    *,
    wait_s: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Call ``action``. While the store does not respond, call it again for up to ``wait_s`` seconds.

    Raises:
        StoreUnavailableError: the store still does not respond after ``wait_s``.
    """
    deadline_s = monotonic() + wait_s
    while True:
        try:
            action()
        except StoreUnavailableError as error:
            left_s = deadline_s - monotonic()
            if left_s <= 0:
                raise
            _log.info("waiting for the store", reason=error.reason, left_s=round(left_s))
            pause(min(_PAUSE_S, left_s))
        else:
            return
