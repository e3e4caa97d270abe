"""Add the links out of Barrierscope to targets, and the kind of each step to the history of recommendations.

Revision 0019. Older processes do not use the new columns. Roll backs that were stored as a step to the same state get
their kind here.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0019"
down_revision: str | None = "0018"
branch_labels: str | None = None
depends_on: str | None = None

_ROLL_BACKS = "UPDATE recommendation_events SET kind = 'roll-back' WHERE reason LIKE 'roll back sent to the target;%'"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    json = postgresql.JSONB(none_as_null=True, astext_type=sa.Text())
    op.add_column("targets", sa.Column("ui_url", sa.Text(), nullable=True))
    op.add_column("targets", sa.Column("link_templates", json, server_default="[]", nullable=False))
    op.add_column("recommendation_events", sa.Column("kind", sa.Text(), server_default="state", nullable=False))
    op.create_check_constraint(
        op.f("ck_recommendation_events_kind_known"), "recommendation_events", "kind IN ('state', 'roll-back')"
    )
    op.execute(_ROLL_BACKS)


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("recommendation_events", "kind")
    op.drop_column("targets", "link_templates")
    op.drop_column("targets", "ui_url")
