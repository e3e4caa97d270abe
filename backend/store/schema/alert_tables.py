"""Defines the tables of alerting: changed rules, episodes, incidents, silences, receivers and the outbox.

A partial unique index allows at most one open episode per (rule, fingerprint), so two evaluators cannot open the same
alert twice. There is one delivery per (episode, receiver, kind). It is written in the transaction that changes the
episode's state.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY

from backend.domain.receivers import ReceiverKind
from backend.store.schema.tables import Instant, Json, metadata

alert_evaluator = Table(
    "alert_evaluator",
    metadata,
    # The table has only one row. It names the process that evaluates the rules. ``term`` rises when another process
    # takes over, so that writes of the former process can be refused.
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("holder", Text, nullable=False),
    Column("term", BigInteger, nullable=False),
    Column("expires_at", Instant, nullable=False),
    Column("evaluated_at", Instant),
    Column("evaluation_ms", Integer),
    Column("problem", Text),
    CheckConstraint("id = 1", name="one_row"),
)

alert_rules = Table(
    "alert_rules",
    metadata,
    # Only changed rules have a row. The settings of the other rules are those in the code.
    Column("name", Text, primary_key=True),
    Column("is_enabled", Boolean, nullable=False),
    Column("for_s", Double, nullable=False),
    Column("keep_firing_for_s", Double, nullable=False),
    Column("thresholds", Json, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

incidents = Table(
    "incidents",
    metadata,
    Column("id", Text, primary_key=True),
    # Only episodes with the same subject can belong to one incident: ``job:ID``, ``target:ID`` or ``rule:NAME``.
    Column("subject", Text, nullable=False),
    Column("job_id", Text),
    Column("target_id", Text),
    # The labels of the first episode, without the name and the severity of its rule.
    Column("labels", Json, nullable=False),
    Column("cause", Text),
    Column("vertex", Text),
    Column("phase", Text),
    Column("began_at", Instant, nullable=False),
    # The columns from here to ``rules`` are computed from the episodes, in the transaction that changes one of them.
    Column("fired_at", Instant),
    Column("ended_at", Instant),
    Column("state", Text, nullable=False),
    Column("severity", Text, nullable=False),
    # The place in the list: critical and firing 3, firing 2, pending 1, resolved 0, never fired -1.
    Column("rank", SmallInteger, nullable=False),
    Column("alert_count", Integer, nullable=False),
    Column("open_count", Integer, nullable=False),
    Column("lead_alert_id", Text),
    Column("rules", ARRAY(Text), nullable=False),
    Column("acknowledged_at", Instant),
    Column("acknowledged_by", Text),
    Column("claimed_at", Instant),
    Column("claimed_by", Text),
    CheckConstraint("state IN ('inactive', 'pending', 'firing', 'resolved')", name="state_known"),
    CheckConstraint("(acknowledged_at IS NULL) = (acknowledged_by IS NULL)", name="acknowledged_whole"),
    CheckConstraint("(claimed_at IS NULL) = (claimed_by IS NULL)", name="claimed_whole"),
    Index("ix_incidents_rank", "rank", "began_at", "id"),
    Index("ix_incidents_subject", "subject", "ended_at"),
)

incident_notes = Table(
    "incident_notes",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("incident_id", Text, ForeignKey("incidents.id", ondelete="CASCADE"), nullable=False),
    Column("at", Instant, nullable=False),
    Column("author", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("text", Text, nullable=False),
    CheckConstraint("kind IN ('comment', 'acknowledged', 'claimed', 'released')", name="kind_known"),
    Index("ix_incident_notes_incident_id", "incident_id"),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("labels", Json, nullable=False),
    # The ids of the job and the target are not foreign keys, because the history outlives the job and the target.
    Column("job_id", Text),
    Column("target_id", Text),
    Column("state", Text, nullable=False),
    Column("began_at", Instant, nullable=False),
    Column("fired_at", Instant),
    Column("changed_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("ended_reason", Text),
    Column("clear_since", Instant),
    Column("evaluated_at", Instant, nullable=False),
    Column("reading", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("value", Double),
    Column("annotations", Json, nullable=False),
    Column("checkpoints", Json, nullable=False, server_default="[]"),
    # NULL only in rows that an older version of this service has written.
    Column("incident_id", Text, ForeignKey("incidents.id")),
    CheckConstraint("state IN ('inactive', 'pending', 'firing', 'resolved')", name="state_known"),
    CheckConstraint("reading IN ('active', 'clear', 'unknown', 'gone')", name="reading_known"),
    CheckConstraint("(state IN ('pending', 'firing')) = (ended_at IS NULL)", name="ended_when_closed"),
    Index(
        "uq_alerts_open",
        "rule",
        "fingerprint",
        unique=True,
        postgresql_where=text("state IN ('pending', 'firing')"),
    ),
    Index("ix_alerts_began_at", "began_at", "id"),
    Index("ix_alerts_job_id", "job_id", "began_at"),
    Index("ix_alerts_incident_id", "incident_id"),
)

alert_events = Table(
    "alert_events",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("alert_id", Text, ForeignKey("alerts.id", ondelete="CASCADE"), nullable=False),
    Column("at", Instant, nullable=False),
    Column("before", Text, nullable=False),
    Column("after", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Index("ix_alert_events_alert_id", "alert_id"),
)

silences = Table(
    "silences",
    metadata,
    Column("id", Text, primary_key=True),
    Column("matchers", Json, nullable=False),
    Column("starts_at", Instant, nullable=False),
    Column("ends_at", Instant, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("added_at", Instant, nullable=False),
    CheckConstraint("ends_at >= starts_at", name="ends_after_it_starts"),
)

receivers = Table(
    "receivers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("url", Text, nullable=False),
    # A reference to the credential (``env:NAME``, ``file:NAME``), never the credential itself.
    Column("credential", Text),
    Column("origin", Text, nullable=False),
    Column("added_at", Instant, nullable=False),
    Column("removed_at", Instant),
    CheckConstraint(f"kind IN ({', '.join(repr(kind.value) for kind in ReceiverKind)})", name="kind_known"),
    CheckConstraint("origin IN ('api', 'configuration')", name="origin_known"),
    Index("uq_receivers_name", "name", unique=True, postgresql_where=text("removed_at IS NULL")),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("alert_id", Text, ForeignKey("alerts.id", ondelete="CASCADE"), nullable=False),
    Column("receiver_id", Text, ForeignKey("receivers.id", ondelete="CASCADE"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="due"),
    Column("added_at", Instant, nullable=False),
    Column("attempt_count", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", Instant, nullable=False),
    Column("last_attempt_at", Instant),
    Column("delivered_at", Instant),
    # A firing alert is sent to Alertmanager repeatedly, so these columns count and date every time it was sent.
    Column("sent_count", BigInteger, nullable=False, server_default="0"),
    Column("last_sent_at", Instant),
    Column("result", Text),
    UniqueConstraint("alert_id", "receiver_id", "kind", name="uq_deliveries_once"),
    CheckConstraint("kind IN ('firing', 'resolved')", name="kind_known"),
    CheckConstraint("state IN ('due', 'delivered', 'abandoned')", name="state_known"),
    Index("ix_deliveries_due", "next_attempt_at", postgresql_where=text("state = 'due'")),
)

delivery_attempts = Table(
    "delivery_attempts",
    metadata,
    Column("delivery_id", BigInteger, ForeignKey("deliveries.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
    Column("duration_ms", Integer, nullable=False),
    Column("is_ok", Boolean, nullable=False),
    Column("result", Text, nullable=False),
)
