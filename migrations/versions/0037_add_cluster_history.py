"""Add what is known of the history of clusters in Kubernetes.

Revision 0037. The tables are used by collectors with a section ``kubernetes`` only. The new columns say what a source
of targets left out, and why the history is not read. They are nullable, so older processes can write at the same time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0037"
down_revision: str | None = "0036"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "cluster_states",
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("state", postgresql.JSONB(), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("subject", name=op.f("pk_cluster_states")),
    )
    op.create_table(
        "cluster_happenings",
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("noted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("deployment", "key", name=op.f("pk_cluster_happenings")),
    )
    op.add_column("target_sources", sa.Column("left_out", sa.Text(), nullable=True))
    op.add_column("target_sources", sa.Column("history_problem", sa.Text(), nullable=True))
    op.create_index("ix_cluster_happenings_noted_at", "cluster_happenings", ["noted_at"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("target_sources", "history_problem")
    op.drop_column("target_sources", "left_out")
    op.drop_table("cluster_happenings")
    op.drop_table("cluster_states")
