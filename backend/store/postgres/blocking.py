"""Connects code without an event loop to PostgreSQL, with a limit for the time until each response of the server.

A server whose processes are suspended enforces no timeout. Without this limit, its clients would wait without end.
"""

from __future__ import annotations

from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.abc import PQGen

_ANSWER_TIMEOUT_S = 35.0
# The interval at which the driver checks whether a signal has arrived.
_LOOK_INTERVAL_S = 0.1

_T = TypeVar("_T")


class BlockingConnection(psycopg.Connection[Any]):
    """A connection for code without an event loop. It is closed if the server does not respond in time."""

    answer_timeout_s = _ANSWER_TIMEOUT_S

    def wait(self, gen: PQGen[_T], interval: float = _LOOK_INTERVAL_S, timeout: float | None = None) -> _T:
        within_s = self.answer_timeout_s if timeout is None else timeout
        try:
            return super().wait(gen, interval, within_s)
        except psycopg.OperationalError:
            # If no statement is running, the cause is not a missing response, so the error is raised unchanged.
            if self.pgconn.transaction_status != pq.TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()
            raise psycopg.OperationalError(f"the server did not respond within {within_s:g} s") from None
