"""Add what a declared target has: its source, its connection and its interval; and a table of the sources.

Revision 0032. The new columns are nullable or have a default, so older processes can write at the same time as newer
ones. An older collector reads a target without its credentials and at its own interval.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0032"
down_revision: str | None = "0031"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    json = postgresql.JSONB(astext_type=sa.Text())
    op.add_column("targets", sa.Column("connection", json, server_default="{}", nullable=False))
    op.add_column("targets", sa.Column("interval_s", sa.Double(), nullable=True))
    op.add_column("targets", sa.Column("declared_by", sa.Text(), nullable=True))
    op.add_column("targets", sa.Column("missing_since", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "target_sources",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("target_count", sa.Integer(), nullable=True),
        sa.Column("read_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.Column("problem_since", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("source", name=op.f("pk_target_sources")),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("target_sources")
    for name in ("missing_since", "declared_by", "interval_s", "connection"):
        op.drop_column("targets", name)
