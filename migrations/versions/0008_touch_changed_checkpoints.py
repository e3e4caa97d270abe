"""Add a database trigger that stores in each changed checkpoint the id of the transaction that changed it.

Revision 0008. From this id, the pipeline knows that it must compute the rollups of the checkpoint's hour again.
Processes of older versions store the same id themselves.
"""

from __future__ import annotations

from alembic import op

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.execute(
        "CREATE FUNCTION touch_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN NEW.changed_xid := (pg_current_xact_id()::text)::bigint; RETURN NEW; END $$"
    )
    # A trigger of a partitioned table also applies to its existing and future partitions.
    op.execute(
        "CREATE TRIGGER touch_checkpoint BEFORE UPDATE ON checkpoints FOR EACH ROW EXECUTE FUNCTION touch_checkpoint()"
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.execute("DROP TRIGGER touch_checkpoint ON checkpoints")
    op.execute("DROP FUNCTION touch_checkpoint()")
