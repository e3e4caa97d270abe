"""The JSON of incidents under ``/api/v1``, and of what a silence would hide.

An incident groups the alerts of one cause at one job or target. Its id and its address never change.

Paths (GET unless another method is named):

* ``/api/v1/incidents``                                              -> Page[IncidentOut], the most urgent first
* ``/api/v1/incidents/{incident}``                                   -> IncidentDetailOut
* ``/api/v1/incidents/{incident}/acknowledge`` (POST IncidentActIn)  -> IncidentOut
* ``/api/v1/incidents/{incident}/claim`` (POST ClaimIn)              -> IncidentOut
* ``/api/v1/incidents/{incident}/release`` (POST IncidentActIn)      -> IncidentOut
* ``/api/v1/incidents/{incident}/comments`` (POST CommentIn -> 201)  -> IncidentNoteOut
* ``/api/v1/silences/preview`` (POST SilencePreviewIn)               -> SilencePreviewOut
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from backend.contracts.alerts import AlertEventOut, AlertOut, DeliveryOut, MatcherOut, Severity, State
from backend.contracts.freshness import Dated
from backend.contracts.model import Author, Lines, Model, StrictBool

# At least one character is visible.
_TEXT = r"^[^\x00]*[^\x00\s][^\x00]*$"
Comment = Annotated[str, Field(min_length=1, max_length=4000, pattern=_TEXT), Lines]


class NotifiedOut(Model):
    """The newest message about an incident to one receiver."""

    receiver: str
    kind: Literal["firing", "resolved"]
    state: Literal["due", "delivered", "abandoned"]
    at: datetime
    """When the message arrived or, if it did not, when it was last attempted or added."""
    result: str | None
    """The last result in words; null before the first attempt."""


class IncidentOut(Dated):
    """One incident: the alerts of one cause at one job or target, from the first to the last."""

    id: str
    state: State
    """The most urgent state of its alerts. ``inactive`` means that none of them ever fired."""
    severity: Severity
    """The highest severity of its alerts."""
    headline: str
    """The summary of its most important alert."""
    job_id: str | None
    target_id: str | None
    labels: dict[str, str]
    """The labels that its alerts share: job, target, and the labels of the target."""
    group: str
    """The value by which the list is grouped; empty if it is not grouped."""
    cause: str | None
    """The kind of the verdict, for example ``skew``; null if no verdict named a cause."""
    vertex: str | None = None
    subtasks: str | None = None
    hosts: str | None = None
    phase: str | None = None
    replay_debt: str | None = None
    """The input that a failure would have read again when its most important alert was last evaluated, in words."""
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    """Null while one of its alerts is open. An alert that begins within 10 minutes continues the incident."""
    alert_count: int
    """Number of episodes of alerts that it contains."""
    open_count: int
    """Number of its alerts that are pending or firing now."""
    silenced_count: int
    """Number of its open alerts that a silence hides now."""
    rules: list[str]
    """The names of its alerts."""
    notified: list[NotifiedOut]
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    claimed_at: datetime | None
    claimed_by: str | None
    comment_count: int
    link: str
    """Path of the incident in this API."""
    permalink: str
    """Address of the page of the incident."""


class IncidentAlertOut(AlertOut):
    """An alert of an incident, with the changes of its state."""

    events: list[AlertEventOut]


class IncidentDeliveryOut(DeliveryOut):
    """A message to one receiver about one alert of an incident."""

    alert_id: str
    rule: str


class IncidentNoteOut(Model):
    """A comment on an incident, or a record that somebody acknowledged, claimed or released it."""

    id: int
    at: datetime
    author: str
    """The author's name as it was typed. It is not verified, because all users share one token."""
    kind: Literal["comment", "acknowledged", "claimed", "released"]
    text: str


class IncidentChangeOut(Model):
    """A change of the job shortly before the incident or during it."""

    at: datetime
    """On the clock of this service, like the times of the incident."""
    kind: str
    """The kind of the job's event, or ``advice`` or ``annotation``."""
    text: str
    is_before: bool
    """Whether it happened before the incident began."""


class IncidentDetailOut(IncidentOut):
    """One incident with its alerts, messages, notes, and the changes of the job around its beginning."""

    description: str
    """What is wrong, who causes it and why, and what a failure would replay, from its most important alert."""
    action: str | None = None
    """What to do first: the headline of the job's first open recommendation; null if there is none."""
    alerts: list[IncidentAlertOut]
    """The newest 100 alerts, newest first."""
    deliveries: list[IncidentDeliveryOut]
    """The messages about these alerts, newest first."""
    notes: list[IncidentNoteOut]
    """All comments (at most 200), the acknowledgement, and the newest 100 claims and releases, oldest first."""
    changes: list[IncidentChangeOut]
    """Events, annotations and steps of advice, newest first.

    Up to 20 during the incident, and up to 20 in the 24 hours before it.
    """
    as_of: datetime


class IncidentActIn(Model):
    """The person who acknowledges or releases an incident."""

    author: Author
    """The author's name as it was typed. It is not verified, because all users share one token."""


class ClaimIn(IncidentActIn):
    """Who takes an incident."""

    is_taking_over: StrictBool = False
    """Whether to take the incident although somebody else has it."""
    claimed_by: Author | None = None
    """Who has the incident, as far as the caller knows. If given, the incident is not taken from anybody else."""


class CommentIn(IncidentActIn):
    """A comment to add."""

    text: Comment


class SilencePreviewIn(Model):
    """The matchers of a silence that is not added yet."""

    matchers: Annotated[list[MatcherOut], Field(max_length=50)]


class SilencePreviewOut(Model):
    """What a silence with these matchers would hide if it were in force now."""

    alert_count: int
    """Number of pending or firing alerts, not counting the watchdog."""
    job_count: int
    """Number of jobs that these alerts are about."""
    summaries: list[str]
    """The texts of the first 5 of these alerts."""
