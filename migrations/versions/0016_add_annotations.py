"""Add annotations, such as deployments, which scripts post to jobs.

Revision 0016. Adds one table. Older processes do not use it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0016"
down_revision: str | None = "0012"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "annotations",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("at_engine", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("link", sa.Text(), nullable=True),
        sa.Column("tags", postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), nullable=False),
        sa.Column("author", sa.Text(), nullable=True),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("request_digest", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_annotations_job_id_jobs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "id", name="pk_annotations"),
    )
    op.create_index("ix_annotations_id", "annotations", ["id"])
    op.create_index("ix_annotations_job_id_at_engine", "annotations", ["job_id", "at_engine", "id"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("annotations")
