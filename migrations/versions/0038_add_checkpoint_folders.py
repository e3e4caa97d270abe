"""Add the newest reading of the checkpoint folders of Spark queries.

Revision 0038. The table is used by targets that are such a folder only, so older processes can write at the same time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0038"
down_revision: str | None = "0037"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "checkpoint_folders",
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("files", postgresql.JSONB(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name=op.f("fk_checkpoint_folders_target_id_targets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("target_id", name=op.f("pk_checkpoint_folders")),
    )
    op.create_index("ix_checkpoint_folders_query_id", "checkpoint_folders", ["query_id"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("checkpoint_folders")
