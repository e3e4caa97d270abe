"""Allow targets of any kind, because the installed collectors decide which kinds can be read.

Revision 0010. Older processes keep working at the same time as newer ones. But they poll every target as a Flink
cluster and know only three engines, so upgrade all processes before you add a target of another kind.
"""

from __future__ import annotations

from alembic import op

revision: str = "0010"
down_revision: str | None = "0009"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.drop_constraint(op.f("ck_targets_kind_known"), "targets", type_="check")


def downgrade() -> None:
    """Downgrade the schema to the previous revision, unless there are targets of kinds that it does not know.

    If there are such targets, PostgreSQL refuses the downgrade with their kinds in its message, because their history
    would have to be deleted.
    """
    op.execute("""
        DO $$
        DECLARE
            found text;
        BEGIN
            SELECT string_agg(DISTINCT kind, ', ' ORDER BY kind) INTO found
            FROM targets WHERE kind NOT IN ('flink', 'spark');
            IF found IS NOT NULL THEN
                RAISE EXCEPTION 'revision 0009 does not know targets of the kinds: %', found
                    USING HINT = 'Delete the rows of these targets, and with them their history, and try again.';
            END IF;
        END $$
    """)
    op.create_check_constraint(op.f("ck_targets_kind_known"), "targets", "kind IN ('flink', 'spark')")
