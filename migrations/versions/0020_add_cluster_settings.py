"""Allow versions of the settings of a run's cluster.

Revision 0020. Older processes neither write nor read them.
"""

from __future__ import annotations

from alembic import op

revision: str = "0020"
down_revision: str | None = "0019"
branch_labels: str | None = None
depends_on: str | None = None

_NAME = "ck_run_versions_kind_known"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.drop_constraint(op.f(_NAME), "run_versions")
    op.create_check_constraint(op.f(_NAME), "run_versions", "kind IN ('topology', 'config', 'cluster')")


def downgrade() -> None:
    """Downgrade the schema to the previous revision. The settings of clusters are lost."""
    op.execute("DELETE FROM run_versions WHERE kind = 'cluster'")
    op.drop_constraint(op.f(_NAME), "run_versions")
    op.create_check_constraint(op.f(_NAME), "run_versions", "kind IN ('topology', 'config')")
