"""The JSON of alerting under ``/api/v1``: alerts, rules, silences, receivers. Manners as in ``backend.contracts.api``.

Paths (GET unless said):

* ``/api/v1/alerts``                                          -> Page[AlertOut], newest begin first
* ``/api/v1/alerts/{alert}``                                  -> AlertDetailOut
* ``/api/v1/alert-rules``                                     -> Page[AlertRuleOut], every rule
* ``/api/v1/alert-rules/{rule}`` (GET, PATCH AlertRulePatch)  -> AlertRuleOut
* ``/api/v1/alert-rules/{rule}/runbook``                      -> RunbookOut
* ``/api/v1/silences`` (GET, POST SilenceIn -> 201)           -> Page[SilenceOut] / SilenceOut
* ``/api/v1/silences/{silence}`` (DELETE)                     -> 204
* ``/api/v1/receivers`` (GET, POST ReceiverIn -> 201)         -> Page[ReceiverOut] / ReceiverOut
* ``/api/v1/receivers/{receiver}`` (DELETE)                   -> 204
* ``/api/v1/receivers/{receiver}/test`` (POST)                -> ReceiverTestOut
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from backend.contracts.api import Model

State = Literal["inactive", "pending", "firing", "resolved"]
Severity = Literal["critical", "warning", "none"]
ReceiverKind = Literal["alertmanager", "webhook"]
Thresholds = Annotated[dict[str, float], Field(max_length=20)]
Text = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$")]


class LinkedCheckpointOut(Model):
    """A checkpoint that an alert is about."""

    run_id: str
    checkpoint_id: int
    link: str
    """Path of the detail in this API."""


class AlertOut(Model):
    """One episode of an alert: from pending to resolved (or inactive, where it never fired)."""

    id: str
    rule: str
    severity: Severity
    state: State
    fingerprint: str
    labels: dict[str, str]
    """What identifies it; silences match these."""
    summary: str
    description: str
    reason: str
    """What the newest reading said, also where that is that nothing could be read."""
    is_unknown: bool
    """The newest reading could not tell; the state is as it was before."""
    vertex: str | None = None
    subtasks: str | None = None
    hosts: str | None = None
    phase: str | None = None
    job_id: str | None
    target_id: str | None
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    ended_reason: str | None
    evaluated_at: datetime
    value: float | None
    silenced_by: list[str]
    """Ids of the silences that hide it now."""
    checkpoints: list[LinkedCheckpointOut]
    permalink: str
    """The page to look at first."""


class AlertEventOut(Model):
    """A change of state."""

    at: datetime
    before: State
    after: State
    reason: str


class AttemptOut(Model):
    """One attempt to deliver."""

    number: int
    at: datetime
    duration_ms: int
    is_ok: bool
    result: str


class DeliveryOut(Model):
    """One line of the delivery log: what a receiver was, or is still to be, told."""

    receiver_id: str
    receiver: str
    kind: Literal["firing", "resolved"]
    state: Literal["due", "delivered", "abandoned"]
    added_at: datetime
    attempt_count: int
    next_attempt_at: datetime | None
    """Null where nothing is due any more."""
    delivered_at: datetime | None
    sent_count: int
    """How often it was taken: Alertmanager is told again and again while an alert fires."""
    last_sent_at: datetime | None
    result: str | None
    attempts: list[AttemptOut]
    """The newest ones, oldest first."""


class EpisodeOut(Model):
    """An episode of the same alert, for the strip over time."""

    id: str
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    state: State


class AlertDetailOut(AlertOut):
    """One alert with its history, what was sent to whom, and its runbook."""

    events: list[AlertEventOut]
    deliveries: list[DeliveryOut]
    episodes: list[EpisodeOut]
    """The same alert's episodes, newest first."""
    rule_meaning: str
    runbook_link: str
    """Path of the runbook in this API."""
    as_of: datetime


class ThresholdOut(Model):
    """A number of a rule that may be changed; the unit is at the end of its name."""

    name: str
    value: float
    default: float
    least: float
    most: float
    is_whole: bool
    meaning: str


class AlertRuleOut(Model):
    """A rule with the values in force."""

    name: str
    meaning: str
    severity: Severity
    subject: Literal["job", "target", "service"]
    is_enabled: bool
    for_s: float
    """How long the condition must hold before it fires."""
    keep_firing_for_s: float
    """How long it must be clear before it resolves."""
    thresholds: list[ThresholdOut]
    version: int
    """Counts its changes; send it back as ``If-Match``."""
    runbook_link: str
    open_count: int
    """Pending and firing alerts of it now."""


class AlertRulePatch(Model):
    """What to change on a rule; absent fields and thresholds stay."""

    is_enabled: bool | None = None
    for_s: float | None = None
    keep_firing_for_s: float | None = None
    thresholds: Thresholds | None = None


class RunbookOut(Model):
    """What to do when a rule fires."""

    rule: str
    markdown: str


class MatcherOut(Model):
    """``name = value``; with ``is_equal`` false ``!=``. A label that is absent is an empty one."""

    name: str
    value: str
    is_equal: bool = True


class SilenceIn(Model):
    """Alerts to deliver nothing of; they go on being evaluated and shown. Every matcher must fit."""

    matchers: Annotated[list[MatcherOut], Field(max_length=50)]
    starts_at: AwareDatetime | None = None
    """Absent: from now on."""
    ends_at: AwareDatetime
    reason: Text
    author: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
    """As typed: everybody has the same token, so nobody's name is checked."""


class SilenceOut(Model):
    """A silence; ``hidden_count`` firing or pending alerts are not delivered for it now."""

    id: str
    matchers: list[MatcherOut]
    starts_at: datetime
    ends_at: datetime
    reason: str
    author: str
    added_at: datetime
    state: Literal["scheduled", "active", "expired"]
    hidden_count: int


class ReceiverIn(Model):
    """Where to send alerts. ``credential`` says where it is found, ``env:NAME`` or ``file:NAME``, and is never it.

    The ``url`` of a webhook whose path or query is secret is such a reference too: the whole address lies there.
    """

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
    kind: ReceiverKind
    url: Annotated[str, Field(max_length=2000, examples=["http://alertmanager:9093"])]
    credential: Annotated[str, Field(max_length=200)] | None = None


class ReceiverOut(Model):
    """A receiver, and how much is due to it."""

    id: str
    name: str
    kind: ReceiverKind
    url: str
    """Its address, with a path shown as ``/…`` since it may be secret; or where the address is found."""
    credential: str | None
    """Where it is found."""
    origin: Literal["api", "configuration"]
    added_at: datetime
    due_count: int


class ReceiverTestOut(Model):
    """The answer of a receiver to a test message."""

    is_ok: bool
    result: str
    duration_ms: int
