"""Defines the tables of who watches what: sessions and leases of collectors, sources of targets, channels of runs."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Index, Integer, Table, Text

from backend.store.schema.tables import Instant, Json, metadata

collector_sessions = Table(
    "collector_sessions",
    metadata,
    Column("holder", Text, primary_key=True),
    Column("expires_at", Instant, nullable=False),
    # The id of the PostgreSQL process that serves the connection of this session. If the process no longer exists, the
    # collector was killed.
    Column("backend_pid", Integer, nullable=False),
)

target_leases = Table(
    "target_leases",
    metadata,
    Column("target_id", Text, ForeignKey("targets.id", ondelete="CASCADE"), primary_key=True),
    Column("holder", Text, nullable=False),
    # Until this instant the lease is valid even if its holder has no session (``collector_sessions``).
    Column("expires_at", Instant, nullable=False),
)

target_sources = Table(
    "target_sources",
    metadata,
    Column("source", Text, primary_key=True),
    # Where the source is read, such as the path of a file.
    Column("place", Text, nullable=False),
    Column("target_count", Integer),
    Column("read_at", Instant),
    Column("seen_at", Instant, nullable=False),
    # Why the newest content was not taken. NULL: it was.
    *(Column("problem", Text), Column("problem_since", Instant)),
    # What the content has that is no target, and why the history is not read.
    *(Column("left_out", Text), Column("history_problem", Text)),
)

# The targets that report a run, if it has several. The row in ``runs`` has the state that one of them reports. A run
# with one channel has no row here, unless that channel would give it to another job.
run_channels = Table(
    "run_channels",
    metadata,
    Column("run_id", Text, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("target_id", Text, ForeignKey("targets.id", ondelete="CASCADE"), primary_key=True),
    # The job to which the run would belong if no other target reported it, and the name that the target gives it.
    Column("own_job_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("capabilities", Json),
    Column("state", Text, nullable=False),
    Column("engine_state", Text, nullable=False),
    Column("ended_at", Instant),
    Column("problems", Json, nullable=False, server_default="[]"),
    # The newest report that was applied, on the clock of the report, and when it arrived, on ours.
    *(Column("observed_at", Instant, nullable=False), Column("heard_at", Instant, nullable=False)),
    # The newest time in the reports, on the clock of the query's driver.
    Column("news_at", Instant, nullable=False),
    Index("ix_run_channels_target_id", "target_id"),
    Index("ix_run_channels_own_job_id", "own_job_id", "observed_at"),
)

# The newest settled state of each object of flink-kubernetes-operator. An upgrade is the difference of two states.
cluster_states = Table(
    "cluster_states",
    metadata,
    # Kind, namespace, name and unique id of the object.
    Column("subject", Text, primary_key=True),
    Column("state", Json, nullable=False),
    Column("noted_at", Instant, nullable=False),
)

# Which happenings of a cluster became annotations, so that none is annotated twice, even if its annotation was deleted.
cluster_happenings = Table(
    "cluster_happenings",
    metadata,
    Column("deployment", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("noted_at", Instant, nullable=False),
    Index("ix_cluster_happenings_noted_at", "noted_at"),
)

# The newest reading of the checkpoint folder of a Spark query. A folder knows no run, so it belongs to the query.
checkpoint_folders = Table(
    "checkpoint_folders",
    metadata,
    Column("target_id", Text, ForeignKey("targets.id", ondelete="CASCADE"), primary_key=True),
    Column("query_id", Text, nullable=False),
    Column("files", Json, nullable=False),
    # On our clock.
    Column("observed_at", Instant, nullable=False),
    Index("ix_checkpoint_folders_query_id", "query_id"),
)
