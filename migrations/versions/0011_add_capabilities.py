"""Keep with each run what its engine can do, so that an engine which only its collector knows is served like any other.

Revision 0011. Adds one column that may be empty, so older processes go on writing beside newer ones.
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
    """Go to this revision."""
    op.add_column("runs", sa.Column("capabilities", postgresql.JSONB(), nullable=True))


def downgrade() -> None:
    """Go back to the revision before."""
    op.drop_column("runs", "capabilities")
