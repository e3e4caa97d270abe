"""The JSON of the state of Barrierscope itself: ``GET /api/v1/status``."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from backend.contracts.model import Model


class PipelineOut(Model):
    """The pipeline that computes rollups.

    Without the pipeline every page still works, but long time ranges are read more slowly.
    """

    state: Literal["running", "idle", "never"]
    """``never``: no run is recorded yet."""
    last_run: Literal["done", "failed", "interrupted"] | None = None
    last_run_at: datetime | None = None
    last_run_reason: str | None = None
    """Why the last run failed or was interrupted."""
    hours_done: int | None = None
    """Number of hours that the current run has rolled up or, if none is active, that the last run rolled up."""
    hours_total: int | None = None
    next_run_at: datetime | None = None
    rolled_up_until: datetime | None = None
    """Every closed hour before this instant was rolled up. An hour that changed later is read from its checkpoints."""


class SparkDemoOut(Model):
    """The demo query that ``up`` runs on Spark."""

    state: Literal["running", "unavailable"]
    """``unavailable``: Spark cannot be started or has stopped, for the reason in ``reason``."""
    reason: str | None = None


class RewritingOut(Model):
    """A past day whose old arrays are being removed. Its tables are rewritten one after the other."""

    day: date
    table: str
    percent: int
    """The share of this table that was copied, from 0 to 100."""


class HistoryOut(Model):
    """The stored history: its size, and how many past days fit into its size limit at the present rate.

    A number of days that fit, and the size that is needed, are null until there are two hours of data.
    """

    size_bytes: int
    size_limit_bytes: int
    oldest_day: date | None
    promised_days: float
    """The age limit of checkpoints (``BARRIERSCOPE_RETENTION_MAX_AGE_DAYS``)."""
    held_days: float | None
    """Number of past days that fit, at most ``promised_days``. Older days will be dropped before their age limit."""
    promised_whole_days: float
    """The age limit of the arrays of healthy checkpoints (``BARRIERSCOPE_RETENTION_ARRAYS_MAX_AGE_DAYS``)."""
    held_whole_days: float | None
    """Number of past days that can keep these arrays if ``promised_days`` days of checkpoints are stored."""
    needed_bytes: int | None
    """The size limit that both age limits require."""
    is_short: bool
    """Whether the size limit will remove stored days before they reach their age limit."""
    rewriting: RewritingOut | None = None
    """Null if no day is being rewritten."""


class UnreadSourceOut(Model):
    """A file or a discovery that declares targets, and whose newest content was not taken."""

    source: str
    place: str
    """Where it is read: the path of the file, or what the discovery asks."""
    problem: str
    """Each problem with its place and its cure."""
    since: datetime
    read_at: datetime | None
    """When it was last read without a problem. Its targets are those of then. Null: never."""
    target_count: int | None
    """The number of targets that it declared then."""


class PartialSourceOut(Model):
    """A discovery whose newest list was taken, but without some entries or without the history of the jobs."""

    source: str
    place: str
    """What the discovery asks."""
    left_out: str | None
    """A sentence for each of the first namespaces that may not be read and entries that are no targets, and why.

    Null: nothing is left out.
    """
    history_problem: str | None
    """Why the history of the jobs is not read. Null: it is read, or the source has none."""


class StatusOut(Model):
    """The health of Barrierscope itself, and the age of its data."""

    version: str
    as_of: datetime
    store: Literal["ok", "unreachable", "busy"]
    """``busy``: the store may respond, but no connection to it became free in time."""
    targets_total: int | None
    """Null if the store is unreachable or busy."""
    targets_unhealthy: int | None
    newest_observation_at: datetime | None
    alerts_firing_count: int | None = None
    """Number of alerts that fire now, without the watchdog, which always fires; null if the store is unreachable."""
    alerts_severity: Literal["critical", "warning"] | None = None
    """The highest severity of those that nobody has silenced, acknowledged or taken; null if there is none."""
    roles: dict[str, str] = {}
    pipeline: PipelineOut | None = None
    """Null if the store is unreachable."""
    spark_demo: SparkDemoOut | None = None
    """Null if there is no demo query, or if it is still starting."""
    history: HistoryOut | None = None
    """Null if the store is unreachable."""
    unread_sources: list[UnreadSourceOut] = []
    """The files and discoveries of targets of which the last good list is used instead of the newest one."""
    partial_sources: list[PartialSourceOut] = []
    """The discoveries whose targets are current, and that left out entries or cannot read the history."""
