"""Store which settings the fast simulation chose for each run, so that advice reads it and need not simulate.

Revision 0023.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0023"
down_revision: str | None = "0022"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "setting_choices",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_setting_choices"),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("setting_choices")
