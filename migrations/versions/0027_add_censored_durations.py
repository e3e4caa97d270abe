"""Count checkpoints that expired in the statistics of durations, as lower bounds.

Revision 0027. Adds a nullable column to the rollups and to their staging table, so older processes can write at the
same time as newer ones. Hours that have expired checkpoints and still hold them are rolled up again. An hour whose
checkpoints are deleted keeps the statistics of its completed ones.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0027"
down_revision: str | None = "0026"
branch_labels: str | None = None
depends_on: str | None = None

_TABLES = ("rollup_measures", "rollup_staging")
# Retention deletes whole days, so an hour of which one checkpoint is there has them all.
_FORGET = (
    "DELETE FROM rollup_hours WHERE hour IN (SELECT date_trunc('hour', triggered_at, 'UTC') FROM checkpoints"
    " WHERE kind = 'checkpoint' AND status = 'failed' AND failure_reason = 'expired')"
)
# With this mark, the next run looks at all changes, and readers believe each hour that has not changed.
_LOOK_AGAIN = "UPDATE pipeline_schedule SET complete_xid = 0 WHERE job = 'rollups' AND complete_xid IS NOT NULL"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    for name in _TABLES:
        op.add_column(name, sa.Column("expired_min", sa.BigInteger(), nullable=True))
    op.execute(_FORGET)
    op.execute(_LOOK_AGAIN)


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.execute(_FORGET)
    op.execute(_LOOK_AGAIN)
    for name in _TABLES:
        op.drop_column(name, "expired_min")
