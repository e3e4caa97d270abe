"""Index checkpoints so that a read of one job or of one run visits only the day partitions that it needs.

Revision 0014. The indexes begin with the id and the day, so PostgreSQL can read the partitions in their own order and
stop at the last one that it needs. Partial indexes hold the open and the failed checkpoints, of which there are few.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0014"
down_revision: str | None = "0011"
branch_labels: str | None = None
depends_on: str | None = None

_OLD = "ix_checkpoints_job_id_triggered_at"
_ORDER = ["triggered_on", "triggered_at", "checkpoint_id"]


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_index("ix_checkpoints_job_id_triggered_on", "checkpoints", ["job_id", *_ORDER])
    op.create_index("ix_checkpoints_run_id_triggered_on", "checkpoints", ["run_id", *_ORDER])
    for name, status in (("open", "in-progress"), ("failed", "failed")):
        condition = sa.text(f"status = '{status}'")
        op.create_index(f"ix_checkpoints_{name}", "checkpoints", ["job_id", *_ORDER], postgresql_where=condition)
    op.drop_index(_OLD, "checkpoints")


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.create_index(_OLD, "checkpoints", ["job_id", "triggered_at", "checkpoint_id"])
    for name in ("job_id_triggered_on", "run_id_triggered_on", "open", "failed"):
        op.drop_index(f"ix_checkpoints_{name}", "checkpoints")
