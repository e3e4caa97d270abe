"""Add hourly rollups, a log of the pipeline's runs, and a column that marks changed checkpoints.

Revision 0003. The new column of ``checkpoints`` has a default, so older processes can write at the same time as newer
ones. But older processes do not mark the checkpoints that they update. Such an update is rolled up only with the next
change in the same hour.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    # The default is not volatile, so PostgreSQL does not rewrite the partitions. Existing rows get the id of the
    # transaction of this migration.
    xid = sa.text("(pg_current_xact_id()::text)::bigint")
    op.add_column("checkpoints", sa.Column("changed_xid", sa.BigInteger(), nullable=False, server_default=xid))
    op.create_index(
        "ix_checkpoints_changed_xid",
        "checkpoints",
        ["changed_xid"],
        postgresql_using="brin",
        postgresql_with={"pages_per_range": 16},
    )
    _create_rollups()
    _create_staging()
    _create_log()


def _create_rollups() -> None:
    op.create_table(
        "rollups",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("hour", _INSTANT, nullable=False),
        sa.Column("triggered_count", sa.BigInteger(), nullable=False),
        sa.Column("completed_count", sa.BigInteger(), nullable=False),
        sa.Column("failed_count", sa.BigInteger(), nullable=False),
        sa.Column("failed_by_reason", postgresql.JSONB(), nullable=False),
        sa.Column("last_completed_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("job_id", "hour", name=op.f("pk_rollups")),
    )
    op.create_index("ix_rollups_hour", "rollups", ["hour"])
    op.create_table(
        "rollup_measures",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("measure", sa.Text(), nullable=False),
        sa.Column("hour", _INSTANT, nullable=False),
        sa.Column("present_count", sa.BigInteger(), nullable=False),
        sa.Column("minimum", sa.BigInteger(), nullable=False),
        sa.Column("maximum", sa.BigInteger(), nullable=False),
        sa.Column("total", sa.Numeric(38, 0), nullable=False),
        sa.Column("p50", sa.Double(), nullable=False),
        sa.Column("p95", sa.Double(), nullable=False),
        sa.Column("p99", sa.Double(), nullable=False),
        sa.Column("bucket_index", postgresql.ARRAY(sa.SmallInteger()), nullable=False),
        sa.Column("bucket_count", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "measure", "hour", name=op.f("pk_rollup_measures")),
    )
    op.create_index("ix_rollup_measures_hour", "rollup_measures", ["hour"])
    op.create_table(
        "rollup_hours",
        sa.Column("hour", _INSTANT, nullable=False),
        sa.Column("horizon_xid", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("hour", name=op.f("pk_rollup_hours")),
    )


def _create_staging() -> None:
    op.create_table(
        "rollup_staging",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("part", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("hour", _INSTANT, nullable=False),
        sa.Column("measure", sa.Text(), nullable=True),
        sa.Column("triggered_count", sa.BigInteger(), nullable=True),
        sa.Column("completed_count", sa.BigInteger(), nullable=True),
        sa.Column("failed_count", sa.BigInteger(), nullable=True),
        sa.Column("failed_by_reason", sa.Text(), nullable=True),
        sa.Column("last_completed_at", _INSTANT, nullable=True),
        sa.Column("present_count", sa.BigInteger(), nullable=True),
        sa.Column("minimum", sa.BigInteger(), nullable=True),
        sa.Column("maximum", sa.BigInteger(), nullable=True),
        sa.Column("total", sa.Text(), nullable=True),
        sa.Column("p50", sa.Double(), nullable=True),
        sa.Column("p95", sa.Double(), nullable=True),
        sa.Column("p99", sa.Double(), nullable=True),
        sa.Column("bucket_index", sa.Text(), nullable=True),
        sa.Column("bucket_count", sa.Text(), nullable=True),
        prefixes=["UNLOGGED"],
    )


def _create_log() -> None:
    op.create_table(
        "pipeline_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("started_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("hours_total", sa.Integer(), nullable=True),
        sa.Column("hours_done", sa.Integer(), server_default="0", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('running', 'done', 'failed', 'interrupted')", name=op.f("ck_pipeline_runs_state_known")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pipeline_runs")),
    )
    op.create_index("ix_pipeline_runs_started_at", "pipeline_runs", ["started_at"])
    op.create_table(
        "pipeline_schedule",
        sa.Column("job", sa.Text(), nullable=False),
        sa.Column("next_run_at", _INSTANT, nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("complete_xid", sa.BigInteger(), nullable=True),
        sa.Column("complete_hour", _INSTANT, nullable=True),
        sa.Column("updated_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("job", name=op.f("pk_pipeline_schedule")),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    for name in ("pipeline_schedule", "pipeline_runs", "rollup_staging", "rollup_hours", "rollup_measures", "rollups"):
        op.drop_table(name)
    op.drop_index("ix_checkpoints_changed_xid", "checkpoints")
    op.drop_column("checkpoints", "changed_xid")
