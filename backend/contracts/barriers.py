"""The JSON of the barrier events of one checkpoint. Events have a channel if the engine reports channels."""

from __future__ import annotations

from backend.contracts.model import Model
from backend.domain.barriers import BarrierEventKind
from backend.domain.verdict import Basis


class BarrierChannelOut(Model):
    """A logical channel from an upstream subtask to a downstream subtask."""

    source: str
    target: str
    source_subtask: int
    target_subtask: int


class BarrierEventOut(Model):
    """One barrier event. ``at_ms`` is the time since the trigger in milliseconds, with fractions."""

    kind: BarrierEventKind
    vertex_id: str
    subtask: int
    at_ms: float
    lamport: int
    channel: BarrierChannelOut | None = None
    size_bytes: int | None = None
    records: int | None = None
    reason: str | None = None


class BarriersOut(Model):
    """The barrier events of one checkpoint.

    For the reference runtime they are measured. For Flink they are reconstructed from its REST, without channels: the
    first barrier, the snapshot and the acknowledgement of each subtask.
    """

    basis: Basis
    events: list[BarrierEventOut]
    note: str | None = None
