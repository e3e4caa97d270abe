"""The JSON of the fleet board. A client requests a window (a range of rows), and gets only the rows that it lacks."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from backend.contracts.api import JobOut
from backend.contracts.freshness import StaleOut
from backend.contracts.model import Model
from backend.domain.verdict import Health


class BoardSort(StrEnum):
    """The values by which the board can be sorted. ``urgency`` is the order of ``/api/v1/jobs``."""

    URGENCY = "urgency"
    NAME = "name"
    HEALTH = "health"
    VERDICT = "verdict"
    ALERTS = "alerts"
    AGE = "age"
    DEBT = "debt"
    SUCCESS = "success"
    P50 = "p50"
    P99 = "p99"
    PHASE = "phase"
    MODE = "mode"
    ADVICE = "advice"
    PRESSURE = "pressure"


class BoardOut(Model):
    """A window of the fleet board, which is a range of its rows."""

    ids: list[str]
    """The ids of the jobs in the window, in the requested order."""
    rows: list[JobOut]
    """The rows of the window that the client does not have.

    These are the rows that changed after ``since``, and those that are not in ``known``. A row does not count as
    changed if only its ages, ``observed_at`` or ``freshness.read_at`` differ.
    """
    total: int
    """Number of rows on the whole board that match the search, without ended jobs if these are not requested."""
    ended_count: int = 0
    """Number of ended jobs that match the search. They come after all other rows, if they are requested."""
    counts: dict[Health, int]
    """Number of rows by health, of the ``total`` that are listed. Jobs that have not been analysed yet are left out."""
    unanalysed_count: int = 0
    """Number of the ``total`` rows that have not been analysed yet, because the service has just started."""
    stale_counts: dict[Health, int] = {}
    """How many of ``counts`` are stale: their health is what it was at their newest reading."""
    stale: list[StaleOut] = []
    """The stale rows of the ``total`` by reason, the reason with the most rows first."""
    sources: list[str]
    """The names of the interfaces from which the data of all jobs comes. Without any job, there is none."""
    newest_observed_at: datetime | None
    version: str
    """Pass this as ``since`` with the next request."""
    as_of: datetime
