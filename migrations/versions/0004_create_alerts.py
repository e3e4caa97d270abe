"""Create the tables of alerting: changed rules, alerts and their history, silences, receivers, and messages to send.

Revision 0004. Only adds tables, so older processes are not affected.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "alert_evaluator",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("term", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("evaluated_at", _INSTANT, nullable=True),
        sa.Column("evaluation_ms", sa.Integer(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint("id = 1", name=op.f("ck_alert_evaluator_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_evaluator")),
    )
    op.create_table(
        "alert_rules",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), nullable=False),
        sa.Column("for_s", sa.Double(), nullable=False),
        sa.Column("keep_firing_for_s", sa.Double(), nullable=False),
        sa.Column("thresholds", postgresql.JSONB(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_alert_rules")),
    )
    op.create_table(
        "alerts",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("labels", postgresql.JSONB(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=True),
        sa.Column("target_id", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("began_at", _INSTANT, nullable=False),
        sa.Column("fired_at", _INSTANT, nullable=True),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("ended_reason", sa.Text(), nullable=True),
        sa.Column("clear_since", _INSTANT, nullable=True),
        sa.Column("evaluated_at", _INSTANT, nullable=False),
        sa.Column("reading", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("annotations", postgresql.JSONB(), nullable=False),
        sa.Column("checkpoints", postgresql.JSONB(), server_default="[]", nullable=False),
        sa.CheckConstraint(
            "(state IN ('pending', 'firing')) = (ended_at IS NULL)", name=op.f("ck_alerts_ended_when_closed")
        ),
        sa.CheckConstraint("reading IN ('active', 'clear', 'unknown', 'gone')", name=op.f("ck_alerts_reading_known")),
        sa.CheckConstraint(
            "state IN ('inactive', 'pending', 'firing', 'resolved')", name=op.f("ck_alerts_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alerts")),
    )
    op.create_index("ix_alerts_began_at", "alerts", ["began_at", "id"], unique=False)
    op.create_index("ix_alerts_job_id", "alerts", ["job_id", "began_at"], unique=False)
    op.create_index(
        "uq_alerts_open",
        "alerts",
        ["rule", "fingerprint"],
        unique=True,
        postgresql_where=sa.text("state IN ('pending', 'firing')"),
    )
    op.create_table(
        "receivers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("credential", sa.Text(), nullable=True),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("added_at", _INSTANT, nullable=False),
        sa.Column("removed_at", _INSTANT, nullable=True),
        sa.CheckConstraint("kind IN ('alertmanager', 'webhook')", name=op.f("ck_receivers_kind_known")),
        sa.CheckConstraint("origin IN ('api', 'configuration')", name=op.f("ck_receivers_origin_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_receivers")),
    )
    op.create_index(
        "uq_receivers_name", "receivers", ["name"], unique=True, postgresql_where=sa.text("removed_at IS NULL")
    )
    op.create_table(
        "silences",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("matchers", postgresql.JSONB(), nullable=False),
        sa.Column("starts_at", _INSTANT, nullable=False),
        sa.Column("ends_at", _INSTANT, nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("added_at", _INSTANT, nullable=False),
        sa.CheckConstraint("ends_at >= starts_at", name=op.f("ck_silences_ends_after_it_starts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_silences")),
    )
    op.create_table(
        "alert_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("alert_id", sa.Text(), nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["alert_id"], ["alerts.id"], name=op.f("fk_alert_events_alert_id_alerts"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_alert_events")),
    )
    op.create_index("ix_alert_events_alert_id", "alert_events", ["alert_id"], unique=False)
    op.create_table(
        "deliveries",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("alert_id", sa.Text(), nullable=False),
        sa.Column("receiver_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="due", nullable=False),
        sa.Column("added_at", _INSTANT, nullable=False),
        sa.Column("attempt_count", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", _INSTANT, nullable=False),
        sa.Column("last_attempt_at", _INSTANT, nullable=True),
        sa.Column("delivered_at", _INSTANT, nullable=True),
        sa.Column("sent_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("last_sent_at", _INSTANT, nullable=True),
        sa.Column("result", sa.Text(), nullable=True),
        sa.CheckConstraint("kind IN ('firing', 'resolved')", name=op.f("ck_deliveries_kind_known")),
        sa.CheckConstraint("state IN ('due', 'delivered', 'abandoned')", name=op.f("ck_deliveries_state_known")),
        sa.ForeignKeyConstraint(
            ["alert_id"], ["alerts.id"], name=op.f("fk_deliveries_alert_id_alerts"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["receiver_id"], ["receivers.id"], name=op.f("fk_deliveries_receiver_id_receivers"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_deliveries")),
        sa.UniqueConstraint("alert_id", "receiver_id", "kind", name="uq_deliveries_once"),
    )
    op.create_index(
        "ix_deliveries_due", "deliveries", ["next_attempt_at"], unique=False, postgresql_where=sa.text("state = 'due'")
    )
    op.create_table(
        "delivery_attempts",
        sa.Column("delivery_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("duration_ms", sa.Integer(), nullable=False),
        sa.Column("is_ok", sa.Boolean(), nullable=False),
        sa.Column("result", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["delivery_id"],
            ["deliveries.id"],
            name=op.f("fk_delivery_attempts_delivery_id_deliveries"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("delivery_id", "number", name=op.f("pk_delivery_attempts")),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    for name in (
        "delivery_attempts",
        "deliveries",
        "alert_events",
        "silences",
        "receivers",
        "alerts",
        "alert_rules",
        "alert_evaluator",
    ):
        op.drop_table(name)
