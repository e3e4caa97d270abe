"""Count the changes of each run, so that a reader of all jobs reads again only those that changed.

Revision 0015. Adds one column with a default, so older processes can write at the same time as newer ones. Their writes
do not raise the number; readers notice such changes a minute later.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0015"
down_revision: str | None = "0013"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column("runs", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("runs", "revision")
