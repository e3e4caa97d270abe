"""Add simulations: the queue of the Lab page and the results that are kept for some time.

Revision 0018. Adds two tables. Older processes do not use them.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0018"
down_revision: str | None = "0017"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)
_STATES = "state IN ('queued', 'running', 'completed', 'failed', 'cancelled')"


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    json = postgresql.JSONB(none_as_null=True, astext_type=sa.Text())
    op.create_table(
        "simulations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("request", json, nullable=False),
        sa.Column("caller", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("progress_ratio", sa.Double(), server_default="0", nullable=False),
        sa.Column("is_cancel_requested", sa.Boolean(), server_default="false", nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("queued_at", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT, nullable=True),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("expires_at", _INSTANT, nullable=True),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("lease_until", _INSTANT, nullable=True),
        sa.Column("runs", json, nullable=True),
        sa.CheckConstraint(_STATES, name="ck_simulations_state_known"),
        sa.PrimaryKeyConstraint("id", name="pk_simulations"),
    )
    op.create_index("ix_simulations_state_queued_at", "simulations", ["state", "queued_at", "id"])
    op.create_table(
        "simulated_checkpoints",
        sa.Column("simulation_id", sa.Text(), nullable=False),
        sa.Column("run", sa.SmallInteger(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("document", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["simulation_id"],
            ["simulations.id"],
            name="fk_simulated_checkpoints_simulation_id_simulations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("simulation_id", "run", "checkpoint_id", name="pk_simulated_checkpoints"),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("simulated_checkpoints")
    op.drop_table("simulations")
