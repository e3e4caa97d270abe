"""Keep the difference between a run's clock and ours, because each job of the live runtime lags on its own.

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
    """Go to this revision."""
    op.add_column("runs", sa.Column("clock_offset_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_column("runs", "clock_offset_ms")
