"""Store the difference between the clock of a run and ours: on the live runtime, the clock of each job may lag.

Revision 0007. Adds one nullable column, so older processes can write at the same time as newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column("runs", sa.Column("clock_offset_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("runs", "clock_offset_ms")
