"""Store the difference between an engine's clock and ours. Ages need it, because they compare the two clocks.

Revision 0002. Adds one nullable column, so older processes can write at the same time as newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column("target_health", sa.Column("clock_offset_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("target_health", "clock_offset_ms")
