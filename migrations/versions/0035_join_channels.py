"""Store which targets report a run, and what each of them reported of a micro-batch.

Revision 0035. Adds a table, a nullable column and an index, so older processes can write at the same time as newer
ones. Runs that were stored under two jobs before stay apart; the next run of their query is one.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0035"
down_revision: str | None = "0034"
branch_labels: str | None = None
depends_on: str | None = None


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    json = postgresql.JSONB(none_as_null=True)  # type: ignore[no-untyped-call]
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "run_channels",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("own_job_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("capabilities", json, nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("engine_state", sa.Text(), nullable=False),
        sa.Column("ended_at", instant, nullable=True),
        sa.Column("problems", json, server_default="[]", nullable=False),
        sa.Column("observed_at", instant, nullable=False),
        sa.Column("heard_at", instant, nullable=False),
        sa.Column("news_at", instant, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_channels_run_id_runs"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name=op.f("fk_run_channels_target_id_targets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "target_id", name=op.f("pk_run_channels")),
    )
    op.create_index("ix_run_channels_target_id", "run_channels", ["target_id"])
    op.create_index("ix_run_channels_own_job_id", "run_channels", ["own_job_id", "observed_at"])
    op.create_index("ix_runs_engine_run_id", "runs", ["engine_run_id"])
    op.add_column("micro_batches", sa.Column("reports", json, nullable=True))


def downgrade() -> None:
    """Downgrade the schema to the previous revision."""
    op.drop_column("micro_batches", "reports")
    op.drop_index("ix_runs_engine_run_id", table_name="runs")
    op.drop_table("run_channels")
