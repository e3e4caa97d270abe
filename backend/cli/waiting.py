"""Waiting for the store at the start of a role, where it may come up later than the role (a fresh cluster)."""

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
    """Do ``action``, again and again while the store is away, for ``wait_s`` at most.

    Raises:
        StoreUnavailableError: it still is.

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
