"""Configures the log of a role: one line for each event on standard error, in UTC. ``up`` redirects it to a file.

Parts of a line can come from a request or a target. Characters that are not printable are escaped, so that they can
neither forge a line nor control the terminal that shows the log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO, cast

from backend.domain.text import printable
from backend.settings import LogLevel

# These libraries log every request or statement, so only their warnings and errors are logged.
_TALKATIVE = ("httpx", "httpcore", "aiohttp", "alembic", "asyncio", "sqlalchemy", "uvicorn")


def log_to_stderr(level: LogLevel) -> None:
    """Write the events of ``logging`` and ``structlog`` from ``level`` upwards to standard error."""
    import structlog

    number = logging.getLevelNamesMapping()[level.upper()]
    output = _Unfailing(sys.stderr)
    handler = logging.StreamHandler(output)
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
            _one_line(structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", output)),
    )


class _Unfailing:
    """A text stream that drops what it cannot write.

    So a role does not fail if the disk is full and a line cannot be logged. The disk may have room for a part of a
    line. The next text therefore begins on a new line.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_cut = False

    def write(self, text: str) -> int:
        try:
            self._stream.write("\n" + text if self._is_cut else text)
            self._is_cut = False
        except OSError:
            self._is_cut = True
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._is_cut = True


def _one_line(render: Callable[..., str]) -> Callable[..., str]:
    def rendered(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        return printable(render(logger, method, event))

    return rendered


class _UtcFormatter(logging.Formatter):
    converter = staticmethod(time.gmtime)
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))
