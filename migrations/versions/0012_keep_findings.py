"""Store findings and verdicts, so that one process computes each of them and all processes can read it.

Revision 0012.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0012"
down_revision: str | None = "0015"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "findings",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("found_at", _INSTANT, nullable=False),
        sa.Column("document", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_findings"),
    )
    op.create_table(
        "verdicts",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=False, autoincrement=False),
        sa.Column("triggered_on", sa.Date, nullable=False),
        sa.Column("judged_at", _INSTANT, nullable=False),
        sa.Column("document", JSONB, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "triggered_on", name="pk_verdicts"),
    )
    op.create_index("ix_verdicts_triggered_on", "verdicts", ["triggered_on"])


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("verdicts")
    op.drop_table("findings")
