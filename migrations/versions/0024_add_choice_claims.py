"""Store which process chooses settings for a run, so that no transaction stays open while it simulates.

Revision 0024.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0024"
down_revision: str | None = "0023"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "choice_claims",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_choice_claims"),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("choice_claims")
