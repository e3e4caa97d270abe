"""The barrier events of one checkpoint, per channel if the engine reports channels."""

from __future__ import annotations

from backend.contracts.model import Model
from backend.domain.barriers import BarrierEventKind
from backend.domain.verdict import Basis


class BarrierChannelOut(Model):
    """A logical channel."""

    source: str
    target: str
    source_subtask: int
    target_subtask: int


class BarrierEventOut(Model):
    """One barrier event; ``at_ms`` is the time since the trigger, with fractions."""

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
    """Barrier events of one checkpoint. For the runtime they are measured. For Flink they are reconstructed from its
    REST (first barrier, snapshot and acknowledgement of each subtask), without channels."""

    basis: Basis
    events: list[BarrierEventOut]
    note: str | None = None
