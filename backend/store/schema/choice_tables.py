"""Defines the tables of the settings that the fast simulation chose, and of the processes that choose at the moment.

As ``findings``, they have no foreign key. Retention deletes their rows.
"""

from __future__ import annotations

from sqlalchemy import Column, Table, Text

from backend.store.schema.tables import Instant, Json, metadata

# The newest choice for each run.
setting_choices = Table(
    "setting_choices",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("made_at", Instant, nullable=False),
    Column("document", Json, nullable=False),
)

# The process that chooses settings for a run. Others may do so from ``expires_at`` on.
choice_claims = Table(
    "choice_claims",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("expires_at", Instant, nullable=False),
)
