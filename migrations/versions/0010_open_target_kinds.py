"""Allow targets of any kind, because the installed collectors decide which kinds can be read.

Revision 0010. Older processes keep working at the same time as newer ones, but they poll every target as a Flink and
know three engines only: upgrade all processes before you add a target of another kind.
"""

from __future__ import annotations

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Go to this revision."""
    op.drop_constraint(op.f("ck_targets_kind_known"), "targets", type_="check")


def downgrade() -> None:
    """Go back to the revision before; targets of other kinds are deleted with their history."""
    op.execute("DELETE FROM targets WHERE kind NOT IN ('flink', 'spark')")
    op.create_check_constraint(op.f("ck_targets_kind_known"), "targets", "kind IN ('flink', 'spark')")
