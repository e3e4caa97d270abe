"""Store with each run what its engine can do.

Barrierscope can then support an engine whose name appears only in that engine's collector.

Revision 0011. Adds one nullable column, so older processes can write at the same time as newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0011"
down_revision: str | None = "0010"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column("runs", sa.Column("capabilities", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("runs", "capabilities")
