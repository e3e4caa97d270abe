"""The JSON that tells whether a document shows what is true now, and if it does not, since when and why."""

from __future__ import annotations

from datetime import UTC, datetime

from backend.contracts.model import Model
from backend.domain import spelling
from backend.domain.freshness import Freshness


class FreshnessOut(Model):
    """Whether a document is current. If it is stale, its values were true at ``read_at`` and may have changed since."""

    state: Freshness
    is_stale: bool
    """True unless ``state`` is ``fresh`` or ``final``."""
    reason: str | None
    """Why the document is stale, as the second half of a sentence; null if it is not."""
    read_at: datetime | None
    """When the job was last read, on the clock of this service.

    Null if that is not known, as of a job that the target lists and that cannot be read.
    """
    stale_after_s: float | None
    """The age of ``read_at`` from which the document is stale: two polls, the time of one poll, and 10 s.

    It is 90 s for a job that pushes its own events, and null if the age decides nothing.
    """


class Dated(Model):
    """A document about a job, which is as old as the newest reading of the job."""

    freshness: FreshnessOut | None = None
    """Null if the document is not about a job."""


class StaleOut(Model):
    """The rows of the board that are stale for one reason."""

    state: Freshness
    reason: str
    """The reason, as the second half of a sentence."""
    job_count: int
    target_names: list[str]
    """Up to three of their targets."""
    target_count: int
    read_at: datetime | None
    """The newest of their readings."""


def stale_line(value: FreshnessOut | None, as_of: datetime | None = None) -> str | None:
    """Return the line that the command line prints of a stale document, or None if the document is current.

    If ``as_of`` is the time of the answer, the line has the age of the newest reading.
    """
    if value is None or not value.is_stale:
        return None
    verb = "evaluated" if value.state is Freshness.NO_EVALUATOR else "read"
    if value.read_at is None:
        return f"stale: {value.reason}"
    age = "" if as_of is None else f" ({spelling.duration((as_of - value.read_at).total_seconds() * 1000)} ago)"
    return f"stale: last {verb} {value.read_at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC{age}, {value.reason}"
