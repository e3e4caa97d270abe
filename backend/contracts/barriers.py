"""What each barrier did on its way: the events of one checkpoint, per channel where the engine tells them."""

from __future__ import annotations

from backend.contracts.api import Model
from backend.domain.barriers import BarrierEventKind
from backend.domain.verdict import Basis


class BarrierChannelOut(Model):
    """A logical channel."""

    source: str
    target: str
    source_subtask: int
    target_subtask: int


class BarrierEventOut(Model):
    """One barrier event; ``at_ms`` since the trigger, fractional."""

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
    """Barrier events of one checkpoint. ``basis`` is measured for the runtime; for Flink the events are what REST
    allows to reconstruct (first barrier, snapshot, acknowledgement of each subtask), without channels."""

    basis: Basis
    events: list[BarrierEventOut]
    note: str | None = None
