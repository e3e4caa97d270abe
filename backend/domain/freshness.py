"""Decides whether what is known of a job is current, and if it is not, why.

What is known of a job is as old as its newest reading. A job that collectors poll is stale once its newest reading is
older than ``stale_after``: two poll intervals of its target, the time that one poll takes, and a grace. The interval is
the one that the collector is set to. A measured one would grow while a collector is slow, so that its readings would
count as fresh again. The grace is as long as the session of a collector lives, so by the time a job is stale, it is
known whether a collector runs. A job that pushes its own events is stale after the time of nine of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from backend.domain.observation import JobState
from backend.domain.target import TargetState

GRACE: Final = timedelta(seconds=10)
"""The time that a reading may be late. The session of a killed or frozen collector expires within this time."""
PUSHED_STALE_AFTER: Final = timedelta(seconds=90)
"""The listener in a Spark driver sends an event every ten seconds, however long a batch takes.

A listener whose push failed retries within 78 s, so its job does not become stale.
"""
UNMEASURED_STALE_AFTER: Final = timedelta(seconds=60)
"""The limit of a target whose poll interval is not known, because only an earlier version read it, and only once."""
_MISSED_POLLS = 2


class Freshness(StrEnum):
    """Whether a document shows what is true now. Every member after ``FINAL`` is the reason why it does not."""

    FRESH = "fresh"
    FINAL = "final"
    """Nothing about it will change any more, so its age does not matter."""
    NO_COLLECTOR = "no-collector"
    TARGET_UNREACHABLE = "target-unreachable"
    TARGET_MALFORMED = "target-malformed"
    NOT_READ = "not-read"
    """A collector runs and the target answers, but the job was not read in time."""
    JOB_UNREADABLE = "job-unreadable"
    JOB_GONE = "job-gone"
    JOB_SILENT = "job-silent"
    TARGET_PAUSED = "target-paused"
    NO_EVALUATOR = "no-evaluator"
    """Of alerts and incidents only: no process evaluates the alert rules, so their states do not change."""

    @property
    def is_stale(self) -> bool:
        """Whether the document shows what was true some time ago."""
        return self not in (Freshness.FRESH, Freshness.FINAL)

    @property
    def is_outage(self) -> bool:
        """Whether it is stale because something does not work.

        A target that a user paused, and a job that its target has dropped from its list, are no outage.
        """
        return self.is_stale and self not in (Freshness.TARGET_PAUSED, Freshness.JOB_GONE)

    @property
    def is_judged(self) -> bool:
        """Whether the verdict on the job already takes this state into account, so that the verdict is of now."""
        return self in (Freshness.JOB_UNREADABLE, Freshness.JOB_SILENT)


FRESHNESS_WORDS: Final[Mapping[Freshness, str]] = {
    Freshness.FRESH: "fresh",
    Freshness.FINAL: "final",
    Freshness.NO_COLLECTOR: "no collector",
    Freshness.TARGET_UNREACHABLE: "target unreachable",
    Freshness.TARGET_MALFORMED: "target malformed",
    Freshness.NOT_READ: "not read in time",
    Freshness.JOB_UNREADABLE: "cannot be read",
    Freshness.JOB_GONE: "job gone",
    Freshness.JOB_SILENT: "driver silent",
    Freshness.TARGET_PAUSED: "target paused",
    Freshness.NO_EVALUATOR: "no evaluator",
}
FRESHNESS_REASONS: Final[Mapping[Freshness, str]] = {
    Freshness.NO_COLLECTOR: "no collector runs",
    Freshness.TARGET_UNREACHABLE: "the target does not answer",
    Freshness.TARGET_MALFORMED: "the target's answers are not valid for its kind",
    Freshness.NOT_READ: "a collector runs, but has not read the job in time",
    Freshness.JOB_UNREADABLE: "what the engine reports about the job cannot be read",
    Freshness.JOB_GONE: "the target no longer lists the job",
    Freshness.JOB_SILENT: "the driver has stopped sending events",
    Freshness.TARGET_PAUSED: "the target is paused or removed",
    Freshness.NO_EVALUATOR: "no process evaluates the alert rules",
}
"""The reason for each stale state, as the second half of a sentence."""


@dataclass(frozen=True, slots=True)
class Polls:
    """The polls of a target, as collectors recorded them. Each field is None while it is not known."""

    interval_s: float | None = None
    """The mean interval of about the last 20 polls, as measured."""
    duration_ms: float | None = None
    reason: str | None = None
    """Why the last poll failed, or what it could not read."""
    set_interval_s: float | None = None
    """The interval that the collector is set to. None if only collectors of earlier versions polled the target."""


@dataclass(frozen=True, slots=True)
class NewestReading:
    """The newest reading of a job, and what could keep newer ones away.

    ``at`` is on the clock of this service. ``has_collector`` is whether the session of any collector is alive.
    """

    at: datetime
    is_pushed: bool
    state: JobState
    is_listed: bool
    target: TargetState
    polls: Polls
    has_collector: bool


def stale_after(polls: Polls, *, is_pushed: bool) -> timedelta:
    """Return the age from which a reading is stale."""
    if is_pushed:
        return PUSHED_STALE_AFTER
    interval_s = polls.interval_s if polls.set_interval_s is None else polls.set_interval_s
    if interval_s is None:
        return UNMEASURED_STALE_AFTER
    # A reading has the time at which its poll began, and is stored when the poll ends.
    duration_s = (polls.duration_ms or 0.0) / 1000
    if polls.set_interval_s is not None:
        duration_s = min(duration_s, polls.set_interval_s)
    return timedelta(seconds=_MISSED_POLLS * interval_s + duration_s) + GRACE


def freshness(reading: NewestReading, now: datetime) -> Freshness:
    """Return whether the newest reading of a job is current at ``now``, or the reason why there is no newer one."""
    if reading.state is JobState.ENDED:
        return Freshness.FINAL if reading.is_listed else Freshness.JOB_GONE
    if now - reading.at > stale_after(reading.polls, is_pushed=reading.is_pushed):
        return _reason(reading)
    # The time of the reading moves on while the target lists the job and nothing else about it can be read.
    return Freshness.JOB_UNREADABLE if reading.state is JobState.UNREADABLE else Freshness.FRESH


def _reason(reading: NewestReading) -> Freshness:
    """Return why a reading that is too old is the newest one. The cause that explains the most comes first."""
    if reading.target is TargetState.PAUSED:
        return Freshness.TARGET_PAUSED
    if reading.is_pushed:
        return Freshness.JOB_SILENT
    # Without a collector, the state of the target is as old as the reading.
    if not reading.has_collector:
        return Freshness.NO_COLLECTOR
    if reading.target is TargetState.UNREACHABLE:
        return Freshness.TARGET_UNREACHABLE
    if reading.target is TargetState.MALFORMED:
        return Freshness.TARGET_MALFORMED
    return Freshness.JOB_UNREADABLE if reading.state is JobState.UNREADABLE else Freshness.NOT_READ
