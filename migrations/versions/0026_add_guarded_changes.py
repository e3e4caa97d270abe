"""Let the history of a recommendation record that a change is rolled back by itself if the checkpoints are worse.

Revision 0026. Older processes cannot read such an entry, so stop them before a change is applied with this. The
downgrade makes these entries plain ones: the changes stay, and are not rolled back by themselves.
"""

from __future__ import annotations

from alembic import op

revision: str = "0026"
down_revision: str | None = "0025"
branch_labels: str | None = None
depends_on: str | None = None

_NAME = "ck_recommendation_events_kind_known"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    _replace("kind IN ('state', 'apply', 'guarded-apply', 'roll-back', 'auto-roll-back')")


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.execute("UPDATE recommendation_events SET kind = 'apply' WHERE kind = 'guarded-apply'")
    _replace("kind IN ('state', 'apply', 'roll-back', 'auto-roll-back')")


def _replace(condition: str) -> None:
    op.drop_constraint(op.f(_NAME), "recommendation_events")
    op.create_check_constraint(op.f(_NAME), "recommendation_events", condition)
