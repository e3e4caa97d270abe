"""Create the store: targets, jobs and runs, checkpoints down to subtasks, pressure, live progress.

Revision 0001, the first. Tables that grow with time are partitioned by day; partitions are created at run time.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | None = None
depends_on: str | None = None

_TABLES = (
    "targets",
    "target_health",
    "target_leases",
    "jobs",
    "runs",
    "run_versions",
    "job_events",
    "checkpoints",
    "checkpoint_details",
    "barrier_events",
    "pressure",
    "live_progress",
    "progress_points",
    "late_barriers",
)
"""Tables in the order in which they are created. A table comes after the tables that it references."""


def upgrade() -> None:
    """Upgrade the schema to this revision."""
    _create_targets()
    _create_target_health()
    _create_target_leases()
    _create_jobs()
    _create_runs()
    _create_run_versions()
    _create_job_events()
    _create_checkpoints()
    _create_checkpoint_details()
    _create_barrier_events()
    _create_pressure()
    _create_live_progress()
    _create_progress_points()
    _create_late_barriers()


def downgrade() -> None:
    """Downgrade to an empty database. Dropping a table also drops its partitions."""
    for name in reversed(_TABLES):
        op.drop_table(name)


def _create_targets() -> None:
    op.create_table(
        "targets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), server_default="flink", nullable=False),
        sa.Column("labels", postgresql.JSONB(astext_type=sa.Text()), server_default="{}", nullable=False),
        sa.Column("origin", sa.Text(), nullable=False),
        sa.Column("is_enabled", sa.Boolean(), server_default="true", nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("kind IN ('flink', 'spark')", name=op.f("ck_targets_kind_known")),
        sa.CheckConstraint("origin IN ('api', 'configuration', 'built-in')", name=op.f("ck_targets_origin_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_targets")),
        sa.UniqueConstraint("url", name=op.f("uq_targets_url")),
    )


def _create_target_health() -> None:
    op.create_table(
        "target_health",
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("last_success_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_attempt_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("engine", sa.Text(), nullable=True),
        sa.Column("engine_version", sa.Text(), nullable=True),
        sa.Column("poll_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("requests_per_poll", sa.Double(), nullable=True),
        sa.Column("bytes_per_poll", sa.Double(), nullable=True),
        sa.Column("poll_duration_ms", sa.Double(), nullable=True),
        sa.Column("poll_interval_s", sa.Double(), nullable=True),
        sa.Column("rejected_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint("state IN ('ok', 'unreachable', 'malformed')", name=op.f("ck_target_health_state_known")),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name=op.f("fk_target_health_target_id_targets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("target_id", name=op.f("pk_target_health")),
    )


def _create_target_leases() -> None:
    op.create_table(
        "target_leases",
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name=op.f("fk_target_leases_target_id_targets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("target_id", name=op.f("pk_target_leases")),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("deployment", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("first_seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("target_id", sa.Text(), nullable=False),
        sa.Column("engine_run_id", sa.Text(), nullable=False),
        sa.Column("engine", sa.Text(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("engine_state", sa.Text(), nullable=False),
        sa.Column("restart_count", sa.Integer(), nullable=True),
        sa.Column("counts", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("failed_listed_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed_listed_base", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failed_unlisted_past", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("checkpoint_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("placements", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("problems", postgresql.JSONB(astext_type=sa.Text()), server_default="[]", nullable=False),
        sa.Column("first_observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_runs_job_id_jobs"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name=op.f("fk_runs_target_id_targets"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
    )
    op.create_index("ix_runs_job_id_started_at", "runs", ["job_id", "started_at"], unique=False)
    op.create_index("ix_runs_target_id", "runs", ["target_id"], unique=False)


def _create_run_versions() -> None:
    op.create_table(
        "run_versions",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("since", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint("kind IN ('topology', 'config')", name=op.f("ck_run_versions_kind_known")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_versions_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "kind", "since", name=op.f("pk_run_versions")),
    )


def _create_job_events() -> None:
    op.create_table(
        "job_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_job_events_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "kind", "key", name=op.f("pk_job_events")),
    )
    op.create_index("ix_job_events_job_id_at", "job_events", ["job_id", "at"], unique=False)


def _create_checkpoints() -> None:
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("triggered_on", sa.Date(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("is_unaligned", sa.Boolean(), nullable=True),
        sa.Column("triggered_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("latest_ack_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("end_to_end_duration_ms", sa.BigInteger(), nullable=True),
        sa.Column("checkpointed_size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("full_state_size_bytes", sa.BigInteger(), nullable=True),
        sa.Column("processed_bytes", sa.BigInteger(), nullable=True),
        sa.Column("persisted_bytes", sa.BigInteger(), nullable=True),
        sa.Column("subtask_count", sa.Integer(), nullable=False),
        sa.Column("acknowledged_count", sa.Integer(), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("failed_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("external_path", sa.Text(), nullable=True),
        sa.Column("is_discarded", sa.Boolean(), nullable=True),
        sa.Column("start_delay_max_ms", sa.BigInteger(), nullable=True),
        sa.Column("alignment_max_ms", sa.BigInteger(), nullable=True),
        sa.Column("sync_max_ms", sa.BigInteger(), nullable=True),
        sa.Column("async_max_ms", sa.BigInteger(), nullable=True),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint(
            "status IN ('in-progress', 'completed', 'failed')", name=op.f("ck_checkpoints_status_known")
        ),
        sa.CheckConstraint("checkpoint_id >= 0", name=op.f("ck_checkpoints_id_not_negative")),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "triggered_on", name=op.f("pk_checkpoints")),
        postgresql_partition_by="RANGE (triggered_on)",
    )
    op.create_index(
        "ix_checkpoints_job_id_triggered_at", "checkpoints", ["job_id", "triggered_at", "checkpoint_id"], unique=False
    )


def _create_checkpoint_details() -> None:
    op.create_table(
        "checkpoint_details",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vertex_id", sa.Text(), nullable=False),
        sa.Column("triggered_on", sa.Date(), nullable=False),
        sa.Column("subtask_count", sa.Integer(), nullable=False),
        sa.Column("start_delay_ms", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("alignment_duration_ms", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("sync_duration_ms", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("async_duration_ms", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("ack_delay_ms", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("checkpointed_size_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("full_state_size_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("processed_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("persisted_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("unaligned", postgresql.ARRAY(sa.SmallInteger()), nullable=True),
        sa.PrimaryKeyConstraint(
            "run_id", "checkpoint_id", "vertex_id", "triggered_on", name=op.f("pk_checkpoint_details")
        ),
        postgresql_partition_by="RANGE (triggered_on)",
    )


def _create_barrier_events() -> None:
    op.create_table(
        "barrier_events",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("triggered_on", sa.Date(), nullable=False),
        sa.Column("event_count", sa.Integer(), nullable=False),
        sa.Column("events", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "triggered_on", name=op.f("pk_barrier_events")),
        postgresql_partition_by="RANGE (triggered_on)",
    )


def _create_pressure() -> None:
    op.create_table(
        "pressure",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("vertex_id", sa.Text(), nullable=False),
        sa.Column("observed_on", sa.Date(), nullable=False),
        sa.Column("subtask_count", sa.Integer(), nullable=False),
        sa.Column("busy_ratio", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("backpressured_ratio", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("idle_ratio", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("out_pool_usage_ratio", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("in_pool_usage_ratio", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("queued_in_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("queued_out_bytes", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("records_in_count", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("records_out_count", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("bytes_in_count", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("start_delay_gauge_ms", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("alignment_gauge_ms", postgresql.ARRAY(sa.BigInteger()), nullable=True),
        sa.Column("asked", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", "observed_at", "vertex_id", "observed_on", name=op.f("pk_pressure")),
        postgresql_partition_by="RANGE (observed_on)",
    )


def _create_live_progress() -> None:
    op.create_table(
        "live_progress",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("acknowledged_count", sa.Integer(), nullable=False),
        sa.Column("subtask_count", sa.Integer(), nullable=False),
        sa.Column("document", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_live_progress_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", name=op.f("pk_live_progress")),
    )


def _create_progress_points() -> None:
    op.create_table(
        "progress_points",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("observed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("acknowledged_count", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_progress_points_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "observed_at", name=op.f("pk_progress_points")),
    )


def _create_late_barriers() -> None:
    op.create_table(
        "late_barriers",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("vertex_id", sa.Text(), nullable=False),
        sa.Column("subtask", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("start_delay_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("resolution_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_late_barriers_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "checkpoint_id", "vertex_id", "subtask", name=op.f("pk_late_barriers")),
    )
