"""The JSON of alerting under ``/api/v1``: alerts, rules, silences, receivers. Conventions: ``backend.contracts.api``.

Paths (GET unless another method is named):

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

from backend.contracts.model import Model

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
    """One episode of an alert: from pending to resolved, or to inactive if it never fired."""

    id: str
    rule: str
    severity: Severity
    state: State
    fingerprint: str
    labels: dict[str, str]
    """The labels that identify the alert; silences match them."""
    summary: str
    description: str
    reason: str
    """The newest reading in words; if nothing could be read, the reason for that."""
    is_unknown: bool
    """Whether the newest reading was inconclusive; the state then stays as it was."""
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
    """Ids of the silences that hide the alert now."""
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
    """One line of the delivery log: a message that a receiver got or is due to get."""

    receiver_id: str
    receiver: str
    kind: Literal["firing", "resolved"]
    state: Literal["due", "delivered", "abandoned"]
    added_at: datetime
    attempt_count: int
    next_attempt_at: datetime | None
    """Null if no delivery is due."""
    delivered_at: datetime | None
    sent_count: int
    """How often the receiver took the message. Alertmanager gets it repeatedly while the alert fires."""
    last_sent_at: datetime | None
    result: str | None
    attempts: list[AttemptOut]
    """The newest ones, oldest first."""


class EpisodeOut(Model):
    """An episode of the same alert, for the timeline."""

    id: str
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    state: State


class AlertDetailOut(AlertOut):
    """One alert with its history, deliveries and runbook."""

    events: list[AlertEventOut]
    deliveries: list[DeliveryOut]
    episodes: list[EpisodeOut]
    """The same alert's episodes, newest first."""
    rule_meaning: str
    runbook_link: str
    """Path of the runbook in this API."""
    as_of: datetime


class ThresholdOut(Model):
    """A threshold of a rule, which can be changed; its name ends with the unit."""

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
    """How long the condition must hold before the alert fires."""
    keep_firing_for_s: float
    """How long the condition must be clear before the alert resolves."""
    thresholds: list[ThresholdOut]
    version: int
    """The number of changes to the rule; send it as ``If-Match``."""
    runbook_link: str
    open_count: int
    """Number of its pending and firing alerts now."""


class AlertRulePatch(Model):
    """Changes to a rule; absent fields and thresholds keep their values."""

    is_enabled: bool | None = None
    for_s: float | None = None
    keep_firing_for_s: float | None = None
    thresholds: Thresholds | None = None


class RunbookOut(Model):
    """What to do when a rule fires."""

    rule: str
    markdown: str


class MatcherOut(Model):
    """``name = value``, or ``name != value`` if ``is_equal`` is false. An absent label counts as empty."""

    name: str
    value: str
    is_equal: bool = True


class SilenceIn(Model):
    """A silence to add. Alerts that fit every matcher are not delivered, but are still evaluated and shown."""

    matchers: Annotated[list[MatcherOut], Field(max_length=50)]
    starts_at: AwareDatetime | None = None
    """If absent, the silence starts now."""
    ends_at: AwareDatetime
    reason: Text
    author: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
    """As typed: all users share one token, so the name is not verified."""


class SilenceOut(Model):
    """A silence; ``hidden_count`` is the number of pending or firing alerts that it hides now."""

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
    """A receiver to add. ``credential`` is a reference, ``env:NAME`` or ``file:NAME``, never the credential itself.

    If the path or query of a webhook is secret, ``url`` is such a reference too, to the whole address.
    """

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
    kind: ReceiverKind
    url: Annotated[str, Field(max_length=2000, examples=["http://alertmanager:9093"])]
    credential: Annotated[str, Field(max_length=200)] | None = None


class ReceiverOut(Model):
    """A receiver, and the number of its due deliveries."""

    id: str
    name: str
    kind: ReceiverKind
    url: str
    """The address, with its path shown as ``/…`` since it may be secret; or the reference to the address."""
    credential: str | None
    """The reference to the credential."""
    origin: Literal["api", "configuration"]
    added_at: datetime
    due_count: int


class ReceiverTestOut(Model):
    """The answer of a receiver to a test message."""

    is_ok: bool
    result: str
    duration_ms: int
