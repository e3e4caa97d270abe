"""Renew all leases of a collector in one row, and count what a collector could not read in time.

Revision 0013, which follows 0014. Adds a table, and columns with defaults, so older processes can write at the same
time as newer ones. An older collector may take over the targets of a newer one during the update; reading a target
twice does no harm.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0013"
down_revision: str | None = "0014"
branch_labels: str | None = None
depends_on: str | None = None

_COUNTS = ("shed_checkpoint_count", "shed_detail_count")


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "collector_sessions",
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("backend_pid", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("holder", name=op.f("pk_collector_sessions")),
    )
    for name in _COUNTS:
        op.add_column("target_health", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("target_health", sa.Column("last_shed_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("target_health", "last_shed_at")
    for name in reversed(_COUNTS):
        op.drop_column("target_health", name)
    op.drop_table("collector_sessions")
