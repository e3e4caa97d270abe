"""Keep the format of a savepoint, which decides into what the savepoint can be restored.

Revision 0009. Adds one nullable column, so older processes can write at the same time as newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Go to this revision."""
    op.add_column("checkpoints", sa.Column("savepoint_format", sa.Text(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_column("checkpoints", "savepoint_format")
