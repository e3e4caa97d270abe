"""Let the history of a recommendation say what came of a request, and who made each entry; censor expired phases.

Revision 0028. Adds two nullable columns, so older processes can write at the same time as newer ones. What they write
has no outcome, which a newer process takes for a request that the target took. The outcomes of earlier entries are
found by the beginnings of their reasons; the names of people are not known of them.

The rollups of phases count expired checkpoints as lower bounds from now on, as those of durations do since 0027. So
hours that have expired checkpoints and still hold them are rolled up again.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision: str = "0028"
down_revision: str | None = "0027"
branch_labels: str | None = None
depends_on: str | None = None

_TABLE = "recommendation_events"
_NAME = "ck_recommendation_events_outcome_known"
_KNOWN = "outcome IN ('awaited', 'sent', 'refused', 'unanswered', 'cut-short')"
# The beginnings of the reasons, and what they mean.
_ANSWERS = {
    "sent to the target; waiting": "sent",
    "roll back sent to the target; waiting": "sent",
    "refused, so nothing changed: ": "refused",
    "not answered, so the target may have taken it": "unanswered",
    "Barrierscope ended while it sent this": "cut-short",
}
_REQUESTS = (
    "sending the change to the target",
    "sending the roll back to the target",
    "sending the automatic roll back: ",
)


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.add_column(_TABLE, sa.Column("outcome", sa.Text(), nullable=True))
    op.add_column(_TABLE, sa.Column("author", sa.Text(), nullable=True))
    for beginning, outcome in _ANSWERS.items():
        _set_outcome(outcome, f"kind = 'state' AND starts_with(reason, '{beginning}')")
    for beginning in _REQUESTS:
        _set_outcome("awaited", f"kind <> 'state' AND starts_with(reason, '{beginning}')")
    # Versions before the entry that announces a request wrote one entry, after the target had taken the request.
    _set_outcome("sent", "kind <> 'state' AND outcome IS NULL")
    op.execute(
        f"UPDATE {_TABLE} SET author = 'the service' WHERE kind = 'auto-roll-back'"  # noqa: S608  only constants
        " OR (kind = 'state' AND (outcome IS NOT NULL OR state NOT IN ('accepted', 'dismissed')))"
    )
    op.create_check_constraint(op.f(_NAME), _TABLE, _KNOWN)
    _roll_up_again()


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    _roll_up_again()
    op.drop_constraint(op.f(_NAME), _TABLE)
    op.drop_column(_TABLE, "author")
    op.drop_column(_TABLE, "outcome")


def _roll_up_again() -> None:
    # Retention deletes whole days, so an hour of which one checkpoint is there has them all.
    op.execute(
        "DELETE FROM rollup_hours WHERE hour IN (SELECT date_trunc('hour', triggered_at, 'UTC') FROM checkpoints"
        " WHERE kind = 'checkpoint' AND status = 'failed' AND failure_reason = 'expired')"
    )
    # With this mark, the next run looks at all changes, and readers believe each hour that has not changed.
    op.execute("UPDATE pipeline_schedule SET complete_xid = 0 WHERE job = 'rollups' AND complete_xid IS NOT NULL")


def _set_outcome(outcome: str, condition: str) -> None:
    op.execute(f"UPDATE {_TABLE} SET outcome = '{outcome}' WHERE {condition}")  # noqa: S608  only constants
