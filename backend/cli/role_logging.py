"""The log of a role: one line for each event on standard error, in UTC. ``up`` redirects it to a file."""

from __future__ import annotations

import logging
import sys
import time

from backend.settings import LogLevel

# Libraries that log every request or statement; only their warnings are logged.
_TALKATIVE = ("httpx", "httpcore", "aiohttp", "alembic", "asyncio", "sqlalchemy", "uvicorn")


def log_to_stderr(level: LogLevel) -> None:
    """Send the output of ``logging`` and ``structlog`` to standard error, from ``level`` upwards."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_UtcFormatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logging.basicConfig(level=number, handlers=[handler], force=True)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(number),
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


class _UtcFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"
