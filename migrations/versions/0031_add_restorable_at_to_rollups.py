"""Store when the newest completed checkpoint of an hour was triggered.

Revision 0031. Adds nullable columns, so older processes can write at the same time as newer ones. From this instant
follows what a failure at the end of an hour would have replayed. Of hours that are rolled up already, it is not known.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0031"
down_revision: str | None = "0030"
branch_labels: str | None = None
depends_on: str | None = None

_TABLES = ("rollups", "rollup_staging")


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    for name in _TABLES:
        op.add_column(name, sa.Column("restorable_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    for name in _TABLES:
        op.drop_column(name, "restorable_at")
