"""Allow targets that a discovery found.

Revision 0034. Processes of the earlier version know no such targets, so declare no section of a discovery before all
processes are updated.
"""

from __future__ import annotations

from alembic import op

revision: str = "0034"
down_revision: str | None = "0033"
branch_labels: str | None = None
depends_on: str | None = None

_NAME = "ck_targets_origin_known"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.drop_constraint(op.f(_NAME), "targets", type_="check")
    op.create_check_constraint(
        op.f(_NAME), "targets", "origin IN ('api', 'configuration', 'built-in', 'discovery', 'push')"
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision. Discovered targets stay, with the limits of those of the API."""
    op.execute("UPDATE targets SET origin = 'api' WHERE origin = 'discovery'")
    op.drop_constraint(op.f(_NAME), "targets", type_="check")
    op.create_check_constraint(op.f(_NAME), "targets", "origin IN ('api', 'configuration', 'built-in', 'push')")
