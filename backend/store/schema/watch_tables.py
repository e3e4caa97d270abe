"""Defines the tables of who watches which target: sessions and leases of collectors, and the sources of targets."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, Integer, Table, Text

from backend.store.schema.tables import Instant, metadata

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
)
