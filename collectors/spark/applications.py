"""The applications that a history server or a driver of Spark lists, and the requests for them. Does no I/O.

Source: ``org.apache.spark.status.api.v1`` of Spark 3.4 to 4.3, and the answers that were recorded from 3.5.9 and 4.3.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from backend.domain.errors import TargetProtocolError
from collectors.flink.document import Document, read

VERSION: Final = "/api/v1/version"
APPLICATIONS: Final = "/api/v1/applications"
_ID_MAX: Final = 200
_NAME_MAX: Final = 200
_TEXT_MAX: Final = 100
UPDATED_MS_MAX: Final = 253_370_764_800_000
"""The begin of the year 9999."""
_STARTING: Final = b"Spark is starting up"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of an application. ``ended_at`` is None while it runs, as far as Spark knows.

    ``updated_ms`` is when the history server last saw its log grow, in ms since the epoch.
    """

    app_id: str
    attempt_id: str | None
    name: str
    started_at: datetime
    ended_at: datetime | None
    updated_ms: int
    version: str | None = None
    is_of_history: bool = False
    """Whether the entry has a field that only a history server sends. Spark before 4.1 has none."""
    is_named: bool = True
    """Whether ``name`` is the application's own. If not, its log has it."""

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the attempt."""
        return self.app_id, self.attempt_id or ""

    @property
    def path(self) -> str:
        """The path of the attempt in the REST API."""
        tail = "" if self.attempt_id is None else f"/{quote(self.attempt_id, safe='')}"
        return f"{APPLICATIONS}/{quote(self.app_id, safe='')}{tail}"


def listing(since: datetime) -> str:
    """Return the path of the list of all running applications, and of those that ended after ``since``."""
    return f"{APPLICATIONS}?minEndDate={since:%Y-%m-%dT%H:%M:%S}.000GMT"


def document_of(body: bytes, *, url: str) -> Document:
    """Parse an answer.

    Raises:
        TargetProtocolError: it is not JSON.
    """
    if body.startswith(_STARTING):
        raise TargetProtocolError(url=url, reason="Spark is still starting there", is_passing=True)
    return read(body, url=url)


def version_in(document: Document) -> str:
    """Return Spark's version from the answer of ``VERSION``."""
    return document.get("spark").text(length_max=_TEXT_MAX)


def attempts_in(document: Document) -> list[Attempt]:
    """Return all attempts in a list of applications."""
    return [attempt for app in document.items() for attempt in attempts_of(app)]


def attempts_of(app: Document) -> list[Attempt]:
    """Return the attempts of one application."""
    app_id, name = app.get("id").text(length_max=_ID_MAX), app.get("name").text(length_max=_NAME_MAX)
    return [_attempt(app_id, name, found) for found in app.get("attempts").items()]


def _attempt(app_id: str, name: str, found: Document) -> Attempt:
    attempt_id, version = found.find("attemptId"), found.find("appSparkVersion")
    has_ended = found.get("completed").truth()
    return Attempt(
        app_id=app_id,
        attempt_id=None if attempt_id is None else attempt_id.text(length_max=_ID_MAX),
        name=name or app_id,
        started_at=found.get("startTimeEpoch").instant_known(),
        ended_at=found.get("endTimeEpoch").instant_known() if has_ended else None,
        # The time of a file, which may be any. One that no calendar has must not keep the other logs from being read.
        updated_ms=max(0, min(found.get("lastUpdatedEpoch").whole(), UPDATED_MS_MAX)),
        version=None if version is None else version.text(length_max=_TEXT_MAX) or None,
        is_of_history=found.find("logSourceName") is not None,
    )


def is_driver(attempts: list[Attempt]) -> bool:
    """Return whether a driver has answered: it lists itself only, as updated at its start."""
    if len(attempts) != 1:
        return False
    (own,) = attempts
    started_ms = round(own.started_at.timestamp() * 1000)
    return own.ended_at is None and not own.is_of_history and own.updated_ms == started_ms


def counted(count: int) -> str:
    """Return a number of applications in words."""
    return f"{count:,} application{'' if count == 1 else 's'}"
