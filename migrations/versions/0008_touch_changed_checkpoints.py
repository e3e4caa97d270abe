"""Add a database trigger that stores in each changed checkpoint the id of the transaction that changed it.

The rollups of the checkpoint's hour are then computed again. Revision 0008. Processes of older versions store the same
id themselves.
"""

from __future__ import annotations

from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Go to this revision."""
    op.execute(
        "CREATE FUNCTION touch_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN NEW.changed_xid := (pg_current_xact_id()::text)::bigint; RETURN NEW; END $$"
    )
    # Existing and future partitions inherit the trigger from their table.
    op.execute(
        "CREATE TRIGGER touch_checkpoint BEFORE UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION touch_checkpoint()"
    )


def downgrade() -> None:
    """Go back to the revision before."""
    op.execute("DROP TRIGGER touch_checkpoint ON checkpoints")
    op.execute("DROP FUNCTION touch_checkpoint()")
