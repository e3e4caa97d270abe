"""The JSON of alerting under ``/api/v1``: alerts, rules, silences and receivers.

``backend.contracts.api`` describes the conventions, and ``backend.contracts.incidents`` has the incidents.

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

from pydantic import Field

from backend.contracts.freshness import Dated
from backend.contracts.model import Lines, Model, OneLine, Rfc3339, StrictBool, StrictNumber, one_of
from backend.domain import receivers

State = Literal["inactive", "pending", "firing", "resolved"]
Severity = Literal["critical", "warning", "none"]
ReceiverKind = Annotated[str, one_of(receivers.ReceiverKind)]
Thresholds = Annotated[dict[str, StrictNumber], Field(max_length=20)]
Text = Annotated[str, Field(min_length=1, max_length=1000, pattern=r"^[^\x00]*$"), Lines]


class LinkedCheckpointOut(Model):
    """A checkpoint that an alert is about."""

    run_id: str
    checkpoint_id: int
    link: str
    """Path of the checkpoint's detail in this API."""


class AlertOut(Dated):
    """One episode of an alert: from pending to resolved, or to inactive if the alert never fired."""

    id: str
    rule: str
    severity: Severity
    state: State
    fingerprint: str
    labels: dict[str, str]
    """The labels that identify the alert. The matchers of silences select alerts by these labels."""
    summary: str
    description: str
    reason: str
    """The newest reading in words, or the reason why nothing could be read."""
    is_unknown: bool
    """Whether the newest reading was inconclusive. Such a reading does not change the state."""
    vertex: str | None = None
    subtasks: str | None = None
    hosts: str | None = None
    phase: str | None = None
    replay_debt: str | None = None
    """The input that a failure would have read again when the alert was last evaluated, in words; null if not known."""
    action: str | None = None
    """What to do first: the headline of the job's first open recommendation. Null if there is none, or if the alert is
    over."""
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
    """Address of the page that a person should open first."""
    incident_id: str | None = None
    """Id of the incident that the alert belongs to; null if an older version of this service stored the alert."""
    incident_link: str | None = None
    """Path of the incident in this API."""


class AlertEventOut(Model):
    """A change of an alert's state."""

    at: datetime
    before: State
    after: State
    reason: str


class AttemptOut(Model):
    """One attempt to send a message to a receiver."""

    number: int
    at: datetime
    duration_ms: int
    is_ok: bool
    result: str


class DeliveryOut(Model):
    """One line of the delivery log: a message that was sent, or is due to be sent, to one receiver."""

    receiver_id: str
    receiver: str
    kind: Literal["firing", "resolved"]
    state: Literal["due", "delivered", "abandoned"]
    added_at: datetime
    attempt_count: int
    next_attempt_at: datetime | None
    """Null if no attempt is due."""
    delivered_at: datetime | None
    sent_count: int
    """How often the receiver accepted the message. Alertmanager gets the message repeatedly while the alert fires."""
    last_sent_at: datetime | None
    result: str | None
    attempts: list[AttemptOut]
    """The newest attempts, in the order in which they were made."""


class EpisodeOut(Model):
    """One episode of an alert, with the data that its bar on the timeline needs."""

    id: str
    began_at: datetime
    fired_at: datetime | None
    ended_at: datetime | None
    state: State


class AlertDetailOut(AlertOut):
    """One alert with its history, deliveries and the link to its runbook."""

    events: list[AlertEventOut]
    deliveries: list[DeliveryOut]
    episodes: list[EpisodeOut]
    """The episodes of the same alert, newest first."""
    rule_meaning: str
    runbook_link: str
    """Path of the runbook in this API."""
    as_of: datetime


class ThresholdOut(Model):
    """A threshold of a rule. Its name ends with its unit. Users can set a value between ``least`` and ``most``."""

    name: str
    value: float
    default: float
    least: float
    most: float
    is_whole: bool
    meaning: str


class AlertRuleOut(Model):
    """An alert rule, with the values that it uses now."""

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
    """How often the rule was changed. A change must send this number as ``If-Match``."""
    runbook_link: str
    open_count: int
    """Number of the rule's alerts that are pending or firing now."""


class AlertRulePatch(Model):
    """Changes to an alert rule. Absent fields and absent thresholds keep their values."""

    is_enabled: StrictBool | None = None
    for_s: StrictNumber | None = None
    keep_firing_for_s: StrictNumber | None = None
    thresholds: Thresholds | None = None


class RunbookOut(Model):
    """The runbook of a rule: what to do when the rule fires."""

    rule: str
    markdown: str


class MatcherOut(Model):
    """A condition on a label: ``name = value``, or ``name != value`` if ``is_equal`` is false.

    An absent label counts as empty.
    """

    name: str
    value: str
    is_equal: StrictBool = True


class SilenceIn(Model):
    """A silence to add. Alerts that match every matcher are not delivered. They are still evaluated and shown."""

    matchers: Annotated[list[MatcherOut], Field(max_length=50)]
    starts_at: Rfc3339 | None = None
    """If absent, the silence starts now."""
    ends_at: Rfc3339
    reason: Text
    author: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00]*$"), OneLine]
    """The author's name as it was typed. It is not verified, because all users share one token."""


class SilenceOut(Model):
    """A silence. ``hidden_count`` is the number of pending or firing alerts that the silence hides now."""

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

    If the path or query of a webhook's address is secret, ``url`` must be a reference too. The whole address is then
    stored in the variable or file to which it refers.
    """

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$"), OneLine]
    kind: ReceiverKind
    url: Annotated[str, Field(max_length=2000, examples=["http://alertmanager:9093"])]
    credential: Annotated[str, Field(max_length=200)] | None = None


class ReceiverOut(Model):
    """A receiver, and the number of messages that are due to be sent to it."""

    id: str
    name: str
    kind: ReceiverKind
    url: str
    """The address, or the reference to it. The path of an address is shown as ``/…``, because it may be secret."""
    credential: str | None
    """The reference to the credential."""
    origin: Literal["api", "configuration"]
    added_at: datetime
    due_count: int


class ReceiverTestOut(Model):
    """The result of sending a test message to a receiver."""

    is_ok: bool
    result: str
    duration_ms: int
