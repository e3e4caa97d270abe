"""Store the largest exact value of an hour, and the interval at which a collector is set to poll a target.

Revision 0029. Adds nullable columns, so older processes can write at the same time as newer ones.

A percentile above the largest exact value of an hour is interpolated with a lower bound, so it is one. Hours that have
expired checkpoints and still hold them are rolled up again. In an hour whose checkpoints are deleted, a percentile
below the least value of an expired checkpoint still counts as exact.

Until a collector of this version polls a target, the age of its readings is compared with the measured interval.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0029"
down_revision: str | None = "0028"
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
    op.add_column("target_health", sa.Column("set_interval_s", sa.Double(), nullable=True))
    for name in _TABLES:
        op.add_column(name, sa.Column("exact_max", sa.BigInteger(), nullable=True))
    op.execute(_FORGET)
    op.execute(_LOOK_AGAIN)


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    for name in _TABLES:
        op.drop_column(name, "exact_max")
    op.drop_column("target_health", "set_interval_s")
