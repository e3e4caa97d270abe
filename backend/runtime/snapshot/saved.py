"""A checkpoint together with what a run needs to continue from it: the content of the external system, time and seed.

A checkpoint is not enough for a new run. The sources of a run read a log that depends on the seed and on the virtual
time, and its sinks write to an external system that already holds the output of the earlier run.
"""

from __future__ import annotations

from dataclasses import dataclass

from backend.runtime.operators.storage import OutsideState
from backend.runtime.snapshot.metadata import StoredCheckpoint


@dataclass(frozen=True, slots=True)
class Handover:
    """What an earlier run hands over to the run that continues it, apart from the checkpoint."""

    at_us: int
    """The virtual time at which the earlier run ended. The next run begins then."""
    attempt: int
    """The last attempt of the earlier run. The names of files and transactions contain the attempt."""
    outside: OutsideState


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint or savepoint of a run, from which another run can begin."""

    job: str
    seed: int
    stored: StoredCheckpoint
    handover: Handover


@dataclass(frozen=True, slots=True)
class RestoreOptions:
    """What a restore may do (GR-1, GR-2, IN-16)."""

    allows_non_restored: bool = False
    """Whether the state of operators that the job no longer has may be left out."""
    is_at_own_risk: bool = False
    """Whether operators at data in flight may have changed, which nothing checks."""
    is_claimed: bool = False
    """Whether the job owns the checkpoint from now on, continues its files, and deletes them when nothing uses them."""
