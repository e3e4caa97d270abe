"""Add tables for recommendations and their history.

Revision 0006. Only adds tables, so older processes are not affected.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | None = None
depends_on: str | None = None

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    op.create_table(
        "recommendations",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("changed_at", _INSTANT, nullable=False),
        sa.Column("last_given_at", _INSTANT, nullable=False),
        sa.Column("applied_at", _INSTANT, nullable=True),
        sa.Column("document", postgresql.JSONB(), nullable=False),
        sa.Column("measured", postgresql.JSONB(), nullable=True),
        sa.CheckConstraint(
            "state IN ('new', 'accepted', 'dismissed', 'applied', 'verified', 'rolled-back', 'expired')",
            name=op.f("ck_recommendations_state_known"),
        ),
        sa.ForeignKeyConstraint(
            ["job_id"], ["jobs.id"], name=op.f("fk_recommendations_job_id_jobs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_recommendations")),
    )
    op.create_index("ix_recommendations_job_id_created_at", "recommendations", ["job_id", "created_at", "id"])
    op.create_index(
        "uq_recommendations_open",
        "recommendations",
        ["job_id", "topic"],
        unique=True,
        postgresql_where=sa.text("state IN ('new', 'accepted')"),
    )
    op.create_table(
        "recommendation_events",
        sa.Column("recommendation_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["recommendation_id"],
            ["recommendations.id"],
            name=op.f("fk_recommendation_events_recommendation_id_recommendations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("recommendation_id", "number", name=op.f("pk_recommendation_events")),
    )


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_table("recommendation_events")
    op.drop_table("recommendations")
