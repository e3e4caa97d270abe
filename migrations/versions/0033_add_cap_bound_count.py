"""Store at how many subtasks a cap on in-flight data had an effect on a checkpoint.

Revision 0033. Adds one nullable column, so older processes can write at the same time as newer ones. It distinguishes a
checkpoint that its cap kept aligned from one that had nothing in flight. Of stored checkpoints, it is not known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0033"
down_revision: str | None = "0032"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column("checkpoints", sa.Column("cap_bound_count", sa.Integer(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("checkpoints", "cap_bound_count")
