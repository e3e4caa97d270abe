"""The JSON that describes how a checkpoint can be restored, and which changes of the job its restore supports."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

SnapshotKindName = Literal["canonical savepoint", "native savepoint", "aligned checkpoint", "unaligned checkpoint"]


class _Said(BaseModel):
    """Base class of the models here. Unlike ``contracts.model.Model``, it cannot be filled from another object."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class RestoreUseOut(_Said):
    """One use of a checkpoint, and whether this checkpoint supports the use."""

    use: str
    """The use, such as rescaling, an arbitrary job upgrade or a change of the state backend."""
    support: Literal["yes", "no", "at own risk"] | None
    """``at own risk``: the engine does not refuse the use, but does not check that it works.

    Null: the support depends on facts that the engine does not report.
    """
    note: str | None = None


class InFlightOut(_Said):
    """A vertex with in-flight data in the checkpoint. The edges at this vertex must stay unchanged for a restore."""

    vertex_id: str
    vertex: str
    persisted_bytes: int


class RestoringOut(_Said):
    """How one checkpoint can be restored."""

    is_restorable: bool
    """Whether the checkpoint is completed and not known to be discarded."""
    sentence: str
    kinds: list[SnapshotKindName]
    """The possible kinds of the snapshot.

    There are several if the engine's report fits more than one, and none if the snapshot cannot be restored.
    """
    location: str | None = None
    """The path at which the engine stores the checkpoint."""
    uses: list[RestoreUseOut] = []
    in_flight: list[InFlightOut] = []
    is_consistent_for_queries: bool | None = None
    """Whether a program that reads the state of several operators from the checkpoint reads a consistent state.

    False for a checkpoint with in-flight data and for an at-least-once checkpoint. Null if it is not known.
    """
    source: str
    """Where the rules about the supported uses come from, such as a page of Flink's documentation."""
