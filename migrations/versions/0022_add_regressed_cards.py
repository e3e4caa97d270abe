"""Let a recommendation be regressed, and let its history record what was sent to the target and by whom.

Revision 0022. Older processes cannot read a regressed recommendation, so stop them before a change regresses. The
downgrade makes regressed recommendations verified ones, and automatic roll backs plain ones.
"""

from __future__ import annotations

from alembic import op

revision: str = "0022"
down_revision: str | None = "0021"
branch_labels: str | None = None
depends_on: str | None = None

_STATES = "state IN ('new', 'accepted', 'dismissed', 'applied', 'verified', {}'rolled-back', 'expired')"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    _replace("recommendations", "state_known", _STATES.format("'regressed', "))
    kinds = "kind IN ('state', 'apply', 'roll-back', 'auto-roll-back')"
    _replace("recommendation_events", "kind_known", kinds)


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.execute("UPDATE recommendations SET state = 'verified' WHERE state = 'regressed'")
    op.execute("UPDATE recommendation_events SET state = 'verified' WHERE state = 'regressed'")
    op.execute("UPDATE recommendation_events SET kind = 'roll-back' WHERE kind = 'auto-roll-back'")
    op.execute("UPDATE recommendation_events SET kind = 'state' WHERE kind = 'apply'")
    _replace("recommendations", "state_known", _STATES.format(""))
    _replace("recommendation_events", "kind_known", "kind IN ('state', 'roll-back')")


def _replace(table: str, name: str, condition: str) -> None:
    full = op.f(f"ck_{table}_{name}")
    op.drop_constraint(full, table)
    op.create_check_constraint(full, table, condition)
