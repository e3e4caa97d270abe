"""What a checkpoint may be restored into: the wire shape of the answer to "what can I do with this one?"."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SnapshotKindName = Literal["canonical savepoint", "native savepoint", "aligned checkpoint", "unaligned checkpoint"]


class _Said(BaseModel):
    """Base. Not of ``backend.contracts.api``, which names this."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RestoreUseOut(_Said):
    """One thing that one may want of a checkpoint, and whether this one will do."""

    use: str
    """rescaling, arbitrary job upgrade, state backend change, ..."""
    support: Literal["yes", "no", "at own risk"] | None
    """At own risk: nothing refuses it, nothing checks that it works. Null: it depends on what is not known."""
    note: str | None = None


class InFlightOut(_Said):
    """A vertex with data in flight in the checkpoint: its edges must stay as they are."""

    vertex_id: str
    vertex: str
    persisted_bytes: int


class RestoringOut(_Said):
    """What one checkpoint may be restored into."""

    is_restorable: bool
    """Whether it is complete, and not known to be discarded."""
    sentence: str
    kinds: list[SnapshotKindName]
    """What it is; several where what is reported does not tell them apart; none where it cannot be restored."""
    location: str | None = None
    """Where the engine keeps it."""
    uses: list[RestoreUseOut] = []
    in_flight: list[InFlightOut] = []
    source: str
    """Whose rules these are."""
