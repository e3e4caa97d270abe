"""How a checkpoint can be restored: which changes of the job its restore supports."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SnapshotKindName = Literal["canonical savepoint", "native savepoint", "aligned checkpoint", "unaligned checkpoint"]


class _Said(BaseModel):
    """Base. Not the ``Model`` of ``backend.contracts.api``, since that module imports this one."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RestoreUseOut(_Said):
    """One use of a checkpoint, and whether this checkpoint supports it."""

    use: str
    """Such as rescaling, arbitrary job upgrade or state backend change."""
    support: Literal["yes", "no", "at own risk"] | None
    """``at own risk``: the engine neither refuses it nor checks that it works. Null: it depends on unreported facts."""
    note: str | None = None


class InFlightOut(_Said):
    """A vertex with in-flight data in the checkpoint: its edges must stay unchanged."""

    vertex_id: str
    vertex: str
    persisted_bytes: int


class RestoringOut(_Said):
    """How one checkpoint can be restored."""

    is_restorable: bool
    """Whether it is completed and not known to be discarded."""
    sentence: str
    kinds: list[SnapshotKindName]
    """The possible kinds: several if the report leaves it open, none if it cannot be restored."""
    location: str | None = None
    """The path under which the engine stores it."""
    uses: list[RestoreUseOut] = []
    in_flight: list[InFlightOut] = []
    source: str
    """The source of the rules."""
