"""Add a table for the data of Spark micro-batches that checkpoint rows do not contain, and allow targets that push.

Revision 0005. For days whose partitions already exist, the new table has no partition yet. The first write for such a
day creates it: a writer whose row finds no partition looks for partitions again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "micro_batches",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("triggered_on", sa.Date(), nullable=False),
        sa.Column("phases_ms", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("input_row_count", sa.BigInteger(), nullable=True),
        sa.Column("processed_rows_per_s", sa.Double(), nullable=True),
        sa.Column("watermark_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", postgresql.JSONB(), nullable=True),
        sa.Column("sources", postgresql.JSONB(), nullable=False),
        sa.Column("number_basis", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "triggered_on", name=op.f("pk_micro_batches")),
        postgresql_partition_by="RANGE (triggered_on)",
    )
    op.drop_constraint(op.f("ck_targets_origin_known"), "targets", type_="check")
    op.create_check_constraint(
        op.f("ck_targets_origin_known"), "targets", "origin IN ('api', 'configuration', 'built-in', 'push')"
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision. Targets that push are deleted."""
    op.drop_table("micro_batches")
    op.execute("DELETE FROM targets WHERE origin = 'push'")
    op.drop_constraint(op.f("ck_targets_origin_known"), "targets", type_="check")
    op.create_check_constraint(
        op.f("ck_targets_origin_known"), "targets", "origin IN ('api', 'configuration', 'built-in')"
    )
