"""Add the data of Spark micro-batches that their headers do not hold, and targets that push.

Revision 0005. For days that already have partitions, the first write creates the partition of the new table: a writer
whose row finds no partition looks for partitions again.
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
    """Go to this revision."""
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
    """Go back to the revision before."""
    op.drop_table("micro_batches")
    op.execute("DELETE FROM targets WHERE origin = 'push'")
    op.drop_constraint(op.f("ck_targets_origin_known"), "targets", type_="check")
    op.create_check_constraint(
        op.f("ck_targets_origin_known"), "targets", "origin IN ('api', 'configuration', 'built-in')"
    )
