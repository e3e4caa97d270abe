"""Defines the database schema, which Alembic compares with a database. One convention names all constraints.

Identity (decision 0001): a job is identified by (deployment, name). A run is one start of a job on its engine. A
checkpoint is identified by (run, checkpoint id >= 0) and the day of its trigger, by which tables are partitioned. Ids
are opaque text.

Tables that grow with time are partitioned by day (``PARTITIONED``). The others are bounded by the number of jobs or
trimmed by retention. Arrays are indexed by subtask, with NULL for a subtask that reported nothing; see ``arrays``.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Numeric,
    SmallInteger,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, REAL

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

Instant = DateTime(timezone=True)
# None is stored as NULL, not as the JSON document ``null``.
Json = JSONB(none_as_null=True)

targets = Table(
    "targets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("url", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    # The name of the entry point of the collector that reads the target. The live runtime offers Flink's REST API, so
    # its kind is flink.
    Column("kind", Text, nullable=False, server_default="flink"),
    Column("labels", Json, nullable=False, server_default="{}"),
    Column("origin", Text, nullable=False),
    Column("is_enabled", Boolean, nullable=False, server_default="true"),
    Column("added_at", Instant, nullable=False),
    # A removed target keeps its row while history refers to it; adding its URL again restores it.
    Column("removed_at", Instant),
    # The address of the engine's web UI as browsers reach it. NULL: the target's own address.
    Column("ui_url", Text),
    # The links out of Barrierscope: a list of names and URL templates.
    Column("link_templates", Json, nullable=False, server_default="[]"),
    # Credentials by reference, TLS and proxy (``domain.connection``). It contains no secret.
    Column("connection", Json, nullable=False, server_default="{}"),
    # NULL: the interval of the collector.
    Column("interval_s", Double),
    # The source that declares the target. NULL: none, the target was added by the API or by itself.
    Column("declared_by", Text),
    # The instant from which on the source no longer declared the target. It ends after a grace time.
    Column("missing_since", Instant),
    # ``push``: the target is not polled; its jobs send their own events.
    CheckConstraint("origin IN ('api', 'configuration', 'built-in', 'discovery', 'push')", name="origin_known"),
)

target_health = Table(
    "target_health",
    metadata,
    Column("target_id", Text, ForeignKey("targets.id", ondelete="CASCADE"), primary_key=True),
    Column("state", Text, nullable=False),
    # In a target that is ok, the reason tells which of its jobs cannot be read, and what its list leaves out. Readers
    # show such a target as partial.
    Column("reason", Text),
    Column("since", Instant, nullable=False),
    Column("last_success_at", Instant),
    Column("last_attempt_at", Instant, nullable=False),
    Column("engine", Text),
    Column("engine_version", Text),
    # The columns from here to ``poll_interval_s`` are the number of polls, and exponentially weighted means over
    # about the last 20 polls. ``set_interval_s`` is the interval that the collector is set to.
    Column("poll_count", BigInteger, nullable=False, server_default="0"),
    Column("requests_per_poll", Double),
    Column("bytes_per_poll", Double),
    Column("poll_duration_ms", Double),
    *(Column("poll_interval_s", Double), Column("set_interval_s", Double)),
    # The number of checkpoints that were refused because their trigger is outside the accepted days, or their id is
    # out of bounds.
    Column("rejected_count", BigInteger, nullable=False, server_default="0"),
    # The engine's clock minus ours, in milliseconds.
    Column("clock_offset_ms", BigInteger),
    # What was shed because it could not be read in time: whole checkpoints, and the details of stored checkpoints.
    Column("shed_checkpoint_count", BigInteger, nullable=False, server_default="0"),
    Column("shed_detail_count", BigInteger, nullable=False, server_default="0"),
    Column("last_shed_at", Instant),
    CheckConstraint("state IN ('ok', 'unreachable', 'malformed')", name="state_known"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("deployment", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("first_seen_at", Instant, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("target_id", Text, ForeignKey("targets.id", ondelete="CASCADE"), nullable=False),
    Column("engine_run_id", Text, nullable=False),
    Column("engine", Text, nullable=False),
    # The engine's capabilities, without those that it lacks. NULL in a row that an older version wrote.
    Column("capabilities", Json),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("state", Text, nullable=False),
    Column("engine_state", Text, nullable=False),
    Column("restart_count", Integer),
    # The coordinator's counters at the last reading, and the numbers needed to count failures that were never listed.
    Column("counts", Json),
    Column("failed_listed_count", BigInteger, nullable=False, server_default="0"),
    Column("failed_listed_base", BigInteger, nullable=False, server_default="0"),
    Column("failed_unlisted_past", BigInteger, nullable=False, server_default="0"),
    Column("checkpoint_count", BigInteger, nullable=False, server_default="0"),
    Column("placements", Json),
    Column("problems", Json, nullable=False, server_default="[]"),
    Column("first_observed_at", Instant, nullable=False),
    # The time of the newest applied observation. An older observation that arrives later changes no state.
    Column("observed_at", Instant, nullable=False),
    # The run's own clock minus ours, if the runs of its target have different clocks.
    Column("clock_offset_ms", BigInteger),
    # Rises with every write that changes what a list of jobs shows of the run: its state, counters, graph, settings and
    # checkpoints. A reader that knows this number reads the run again only if it has changed. Readings of backpressure
    # and of the progress of open checkpoints do not raise it.
    Column("revision", BigInteger, nullable=False, server_default="0"),
    Index("ix_runs_job_id_started_at", "job_id", "started_at"),
    Index("ix_runs_target_id", "target_id"),
    Index("ix_runs_engine_run_id", "engine_run_id"),
    Index("ix_runs_query_id", "target_id", text("split_part(engine_run_id, '/', 1)"), "started_at", "id"),
)

run_versions = Table(
    "run_versions",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("since", Instant, primary_key=True),
    Column("document", Json, nullable=False),
    CheckConstraint("kind IN ('topology', 'config', 'cluster')", name="kind_known"),
)

job_events = Table(
    "job_events",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("kind", Text, primary_key=True),
    # Identifies the event among those of its run and kind, so that two reports of one event give one row. The key is
    # empty, a count, an instant, or an instant with a digest.
    Column("key", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("at", Instant, nullable=False),
    Column("text", Text, nullable=False),
    Index("ix_job_events_job_id_at", "job_id", "at"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("triggered_on", Date, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("is_unaligned", Boolean),
    Column("triggered_at", Instant, nullable=False),
    Column("latest_ack_at", Instant),
    Column("end_to_end_duration_ms", BigInteger),
    Column("checkpointed_size_bytes", BigInteger),
    Column("full_state_size_bytes", BigInteger),
    Column("processed_bytes", BigInteger),
    Column("persisted_bytes", BigInteger),
    Column("subtask_count", Integer, nullable=False),
    Column("acknowledged_count", Integer, nullable=False),
    Column("failure_reason", Text),
    Column("failure_message", Text),
    Column("failed_at", Instant),
    Column("external_path", Text),
    Column("is_discarded", Boolean),
    Column("savepoint_format", Text),
    Column("protocol", Text),
    Column("cap_bound_count", Integer),
    # The largest values over all subtasks, computed when the details are written.
    Column("start_delay_max_ms", BigInteger),
    Column("alignment_max_ms", BigInteger),
    Column("sync_max_ms", BigInteger),
    Column("async_max_ms", BigInteger),
    Column("observed_at", Instant, nullable=False),
    # The transaction that last wrote the row. With it, rollups find what changed since a snapshot, without any clock.
    Column("changed_xid", BigInteger, nullable=False, server_default=text("(pg_current_xact_id()::text)::bigint")),
    CheckConstraint("checkpoint_id >= 0", name="id_not_negative"),
    CheckConstraint("status IN ('in-progress', 'completed', 'failed')", name="status_known"),
    # These indexes serve queries for the newest checkpoints of one job or of one run. The day comes before the time, so
    # that PostgreSQL reads the partitions in the order of the list and stops at the last one that it needs.
    Index("ix_checkpoints_job_id_triggered_on", "job_id", "triggered_on", "triggered_at", "checkpoint_id"),
    Index("ix_checkpoints_run_id_triggered_on", "run_id", "triggered_on", "triggered_at", "checkpoint_id"),
    *(
        Index(
            f"ix_checkpoints_{name}",
            *("job_id", "triggered_on", "triggered_at", "checkpoint_id"),
            postgresql_where=text(f"status = '{status}'"),
        )
        for name, status in (("open", "in-progress"), ("failed", "failed"))
    ),
    Index(
        "ix_checkpoints_changed_xid", "changed_xid", postgresql_using="brin", postgresql_with={"pages_per_range": 16}
    ),
    postgresql_partition_by="RANGE (triggered_on)",
)

_MS, _BYTES = ARRAY(Integer), ARRAY(BigInteger)

checkpoint_details = Table(
    "checkpoint_details",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("vertex_id", Text, primary_key=True),
    Column("triggered_on", Date, primary_key=True),
    Column("subtask_count", Integer, nullable=False),
    Column("start_delay_ms", _MS),
    Column("alignment_duration_ms", _MS),
    Column("sync_duration_ms", _MS),
    Column("async_duration_ms", _MS),
    Column("ack_delay_ms", _MS),
    Column("checkpointed_size_bytes", _BYTES),
    Column("full_state_size_bytes", _BYTES),
    Column("processed_bytes", _BYTES),
    Column("persisted_bytes", _BYTES),
    Column("unaligned", ARRAY(SmallInteger)),
    postgresql_partition_by="RANGE (triggered_on)",
)

barrier_events = Table(
    "barrier_events",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("triggered_on", Date, primary_key=True),
    Column("event_count", Integer, nullable=False),
    # JSON compressed with zlib, see ``documents.barriers_blob``.
    Column("events", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (triggered_on)",
)

micro_batches = Table(
    "micro_batches",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("triggered_on", Date, primary_key=True),
    # The durations are in the order of ``domain.micro_batch.BatchPhase``. An element is NULL if Spark did not report
    # that phase.
    Column("phases_ms", _BYTES),
    Column("input_row_count", BigInteger),
    Column("processed_rows_per_s", Double),
    Column("watermark_at", Instant),
    # NULL if the query has no state.
    Column("state", Json),
    Column("sources", Json, nullable=False),
    Column("number_basis", Text, nullable=False),
    # What each channel reported, if the run has several (``store.jobs.joining``).
    Column("reports", Json),
    # Spark jobs and stages. NULL if the channel does not report them, or if the batch was not chosen.
    Column("work", Json),
    postgresql_partition_by="RANGE (triggered_on)",
)

_RATIOS = ARRAY(REAL)
# A rate is shown as the engine reports it, which takes more digits than float32 has.
_RATES = ARRAY(Double)

pressure = Table(
    "pressure",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("observed_at", Instant, primary_key=True),
    Column("vertex_id", Text, primary_key=True),
    Column("observed_on", Date, primary_key=True),
    Column("subtask_count", Integer, nullable=False),
    Column("busy_ratio", _RATIOS),
    Column("backpressured_ratio", _RATIOS),
    Column("idle_ratio", _RATIOS),
    Column("out_pool_usage_ratio", _RATIOS),
    Column("in_pool_usage_ratio", _RATIOS),
    Column("queued_in_bytes", _BYTES),
    Column("queued_out_bytes", _BYTES),
    Column("records_in_count", _BYTES),
    Column("records_out_count", _BYTES),
    Column("bytes_in_count", _BYTES),
    Column("start_delay_gauge_ms", _BYTES),
    Column("alignment_gauge_ms", _BYTES),
    # Contains one bit for each array, in the order of the arrays' columns. The bit is set if the array was read.
    Column("asked", Integer, nullable=False),
    # NULL in readings of older versions, which did not read them.
    Column("records_in_per_s", _RATES),
    Column("records_out_per_s", _RATES),
    postgresql_partition_by="RANGE (observed_on)",
)

# The newest finding of each run. This table and ``verdicts`` have no foreign key, because the locks of a foreign key
# could delay an observation that is written at the same time. Retention deletes their rows.
findings = Table(
    "findings",
    metadata,
    Column("run_id", Text, primary_key=True),
    # Identifies what the finding was computed from, and the rules.
    Column("fingerprint", Text, nullable=False),
    Column("found_at", Instant, nullable=False),
    Column("document", Json, nullable=False),
)

# The verdicts on checkpoints that have ended, with their critical paths. A row is written once.
verdicts = Table(
    "verdicts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("triggered_on", Date, primary_key=True),
    Column("judged_at", Instant, nullable=False),
    Column("document", Json, nullable=False),
    Index("ix_verdicts_triggered_on", "triggered_on"),
)

recommendations = Table(
    "recommendations",
    metadata,
    Column("id", Text, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("topic", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("changed_at", Instant, nullable=False),
    Column("last_given_at", Instant, nullable=False),
    Column("applied_at", Instant),
    # The recommendation as ``RecommendationOut``. It no longer changes once the card is accepted or dismissed.
    Column("document", Json, nullable=False),
    # The measurements that were compared with the predictions, and the ids of their checkpoints.
    Column("measured", Json),
    CheckConstraint(
        "state IN ('new', 'accepted', 'dismissed', 'applied', 'verified', 'regressed', 'rolled-back', 'expired')",
        name="state_known",
    ),
    Index("ix_recommendations_job_id_created_at", "job_id", "created_at", "id"),
    Index(
        "uq_recommendations_open", "job_id", "topic", unique=True, postgresql_where=text("state IN ('new', 'accepted')")
    ),
)

recommendation_events = Table(
    "recommendation_events",
    metadata,
    Column("recommendation_id", Text, ForeignKey("recommendations.id", ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("at", Instant, nullable=False),
    # Of all kinds but ``state``: something was sent. With a roll back, ``state`` is the state that the card kept.
    Column("kind", Text, nullable=False, server_default="state"),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    # What is known of the request that the entry records or answers; NULL for every other entry.
    Column("outcome", Text),
    # NULL for a person whose name is not known.
    Column("author", Text),
    CheckConstraint("kind IN ('state', 'apply', 'guarded-apply', 'roll-back', 'auto-roll-back')", name="kind_known"),
    CheckConstraint("outcome IN ('awaited', 'sent', 'refused', 'unanswered', 'cut-short')", name="outcome_known"),
)

# What scripts and people post about jobs, such as deployments.
job_annotations = Table(
    "annotations",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    # A post for several jobs has one row for each job, all with the same id.
    Column("id", Text, primary_key=True),
    Column("at", Instant, nullable=False),
    # NULL for an instant.
    Column("until", Instant),
    # ``at`` on the clock of the job's engine, by the difference of the clocks when the annotation was posted.
    Column("at_engine", Instant, nullable=False),
    Column("text", Text, nullable=False),
    Column("link", Text),
    Column("tags", Json, nullable=False),
    Column("author", Text),
    Column("added_at", Instant, nullable=False),
    # Identifies the content of the request. A repeated request has the same id and the same digest.
    Column("request_digest", Text, nullable=False),
    Index("ix_annotations_id", "id"),
    Index("ix_annotations_job_id_at_engine", "job_id", "at_engine", "id"),
)

# Simulations that pages and scripts requested: the queue, and the results that are kept for some time.
simulations = Table(
    "simulations",
    metadata,
    # The id is determined by the content of the request.
    Column("id", Text, primary_key=True),
    Column("request", Json, nullable=False),
    # The caller that requested the simulation. The number of simulations of each caller is limited.
    Column("caller", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("progress_ratio", Double, nullable=False, server_default="0"),
    Column("is_cancel_requested", Boolean, nullable=False, server_default="false"),
    # Why the simulation failed.
    Column("reason", Text),
    Column("queued_at", Instant, nullable=False),
    Column("started_at", Instant),
    Column("ended_at", Instant),
    # NULL until the simulation has ended.
    Column("expires_at", Instant),
    # The process that runs the simulation, and the end of its lease by the database's clock.
    Column("worker", Text),
    Column("lease_until", Instant),
    # The runs without the subtasks of their checkpoints. NULL until the simulation is completed.
    Column("runs", Json),
    CheckConstraint("state IN ('queued', 'running', 'completed', 'failed', 'cancelled')", name="state_known"),
    Index("ix_simulations_state_queued_at", "state", "queued_at", "id"),
)

# The checkpoints of completed simulations: compressed JSON, as the API returns it.
simulated_checkpoints = Table(
    "simulated_checkpoints",
    metadata,
    Column("simulation_id", Text, ForeignKey("simulations.id", ondelete="CASCADE"), primary_key=True),
    # The number of the run, from 0.
    Column("run", SmallInteger, primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("document", LargeBinary, nullable=False),
)

live_progress = Table(
    "live_progress",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("observed_at", Instant, nullable=False),
    Column("acknowledged_count", Integer, nullable=False),
    Column("subtask_count", Integer, nullable=False),
    # Acknowledgements by vertex, pending subtasks, running alignments, and the vertices' details known so far.
    Column("document", Json, nullable=False),
)

progress_points = Table(
    "progress_points",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("observed_at", Instant, primary_key=True),
    Column("acknowledged_count", Integer, nullable=False),
)

late_barriers = Table(
    "late_barriers",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("checkpoint_id", BigInteger, primary_key=True, autoincrement=False),
    Column("vertex_id", Text, primary_key=True),
    Column("subtask", Integer, primary_key=True, autoincrement=False),
    Column("start_delay_ms", BigInteger, nullable=False),
    Column("seen_at", Instant, nullable=False),
    Column("resolution_ms", BigInteger, nullable=False),
)

# --- rollups, defined in ``domain.rollup``: not partitioned, since an hour adds few rows and a delete removes few ---

rollups = Table(
    "rollups",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("hour", Instant, primary_key=True),
    Column("triggered_count", BigInteger, nullable=False),
    Column("completed_count", BigInteger, nullable=False),
    Column("failed_count", BigInteger, nullable=False),
    Column("failed_by_reason", Json, nullable=False),
    *(Column("last_completed_at", Instant), Column("restorable_at", Instant)),
    Index("ix_rollups_hour", "hour"),
)

rollup_measures = Table(
    "rollup_measures",
    metadata,
    Column("job_id", Text, primary_key=True),
    Column("measure", Text, primary_key=True),
    Column("hour", Instant, primary_key=True),
    Column("present_count", BigInteger, nullable=False),
    Column("minimum", BigInteger, nullable=False),
    Column("maximum", BigInteger, nullable=False),
    Column("total", Numeric(38, 0), nullable=False),
    Column("p50", Double, nullable=False),
    Column("p95", Double, nullable=False),
    Column("p99", Double, nullable=False),
    # The least value of an expired checkpoint, and the largest below it. NULL if none expired, and for other measures.
    *(Column("expired_min", BigInteger), Column("exact_max", BigInteger)),
    # Indexes and counts of the buckets of ``analysis.numbers.log_buckets``, the lowest bucket first.
    Column("bucket_index", ARRAY(SmallInteger), nullable=False),
    Column("bucket_count", ARRAY(BigInteger), nullable=False),
    Index("ix_rollup_measures_hour", "hour"),
)

rollup_hours = Table(
    "rollup_hours",
    metadata,
    Column("hour", Instant, primary_key=True),
    # The hour's rollups contain every change by a transaction with a lower id than this. Later ones may be missing.
    Column("horizon_xid", BigInteger, nullable=False),
)

# Spark's tasks write here. Their rows take effect only when the driver moves them to the rollup tables, in one
# transaction.
rollup_staging = Table(
    "rollup_staging",
    metadata,
    Column("run_id", Text, nullable=False),
    # Identifies the attempt of a task, because a task that is retried leaves the rows of its first attempt behind.
    Column("part", Text, nullable=False),
    Column("job_id", Text, nullable=False),
    Column("hour", Instant, nullable=False),
    # NULL in the rows that contain the counts of an hour.
    Column("measure", Text),
    Column("triggered_count", BigInteger),
    Column("completed_count", BigInteger),
    Column("failed_count", BigInteger),
    Column("failed_by_reason", Text),
    *(Column("last_completed_at", Instant), Column("restorable_at", Instant)),
    Column("present_count", BigInteger),
    Column("minimum", BigInteger),
    Column("maximum", BigInteger),
    Column("total", Text),
    Column("p50", Double),
    Column("p95", Double),
    Column("p99", Double),
    *(Column("expired_min", BigInteger), Column("exact_max", BigInteger)),
    Column("bucket_index", Text),
    Column("bucket_count", Text),
    prefixes=["UNLOGGED"],
)

pipeline_runs = Table(
    "pipeline_runs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("started_at", Instant, nullable=False),
    Column("ended_at", Instant),
    Column("state", Text, nullable=False),
    Column("hours_total", Integer),
    Column("hours_done", Integer, nullable=False, server_default="0"),
    Column("reason", Text),
    CheckConstraint("state IN ('running', 'done', 'failed', 'interrupted')", name="state_known"),
    Index("ix_pipeline_runs_started_at", "started_at"),
)

pipeline_schedule = Table(
    "pipeline_schedule",
    metadata,
    Column("job", Text, primary_key=True),
    Column("next_run_at", Instant),
    # Why there are no runs. NULL if there are runs.
    Column("reason", Text),
    # A transaction id. The rollups of all hours before ``complete_hour`` contain every change by a transaction with a
    # lower id.
    Column("complete_xid", BigInteger),
    Column("complete_hour", Instant),
    Column("updated_at", Instant, nullable=False),
)

PARTITIONED: tuple[str, ...] = ("checkpoints", "checkpoint_details", "barrier_events", "micro_batches", "pressure")
"""Tables that are partitioned by day. A partition is called ``<table>_pYYYYMMDD``."""
