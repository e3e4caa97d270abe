"""Index the runs of one Spark query.

Revision 0030. A verdict on a query compares its newest runs. Without the index, this reads all runs of the target.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0030"
down_revision: str | None = "0029"
branch_labels: str | None = None
depends_on: str | None = None

_QUERY = sa.text("split_part(engine_run_id, '/', 1)")


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_index("ix_runs_query_id", "runs", ["target_id", _QUERY, "started_at", "id"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_index("ix_runs_query_id", table_name="runs")
