"""The tables of alerting: changed rules, episodes with their history, silences, receivers and the outbox.

A partial unique index allows at most one open episode per (rule, fingerprint), so two evaluators cannot open two. There
is one delivery per (episode, receiver, kind), written in the transaction that changes the episode's state.
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
    Table,
    Text,
    UniqueConstraint,
    text,
)

from backend.store.schema.tables import Instant, Json, metadata

alert_evaluator = Table(
    "alert_evaluator",
    metadata,
    # One row: the process that evaluates. ``term`` rises when another process takes over, which fences off the old one.
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
    # Only changed rules have a row; the others have the values in the code.
    Column("name", Text, primary_key=True),
    Column("is_enabled", Boolean, nullable=False),
    Column("for_s", Double, nullable=False),
    Column("keep_firing_for_s", Double, nullable=False),
    Column("thresholds", Json, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("changed_at", Instant, nullable=False),
)

alerts = Table(
    "alerts",
    metadata,
    Column("id", Text, primary_key=True),
    Column("rule", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("fingerprint", Text, nullable=False),
    Column("labels", Json, nullable=False),
    # No foreign keys: history outlives its job and target.
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
    CheckConstraint("kind IN ('alertmanager', 'webhook')", name="kind_known"),
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
    # Alertmanager gets a firing alert repeatedly.
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
