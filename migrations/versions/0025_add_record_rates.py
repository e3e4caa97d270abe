"""Store the rates of records that the engine itself reports, beside the counts of records.

Revision 0025. Adds two nullable columns, so older processes can write at the same time as newer ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0025"
down_revision: str | None = "0024"
branch_labels: str | None = None
depends_on: str | None = None

_COLUMNS = ("records_in_per_s", "records_out_per_s")


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    for name in _COLUMNS:
        op.add_column("pressure", sa.Column(name, postgresql.ARRAY(sa.Double()), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    for name in _COLUMNS:
        op.drop_column("pressure", name)
