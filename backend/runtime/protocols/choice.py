"""Which protocol a barrier asks for, and who keeps a task's checkpoints: a pure function of barrier and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backend.runtime.core.elements import Alignment, Barrier
from backend.runtime.measure.cap_decisions import CapDecision
from backend.runtime.protocols.aligned import Aligned
from backend.runtime.protocols.aligned_timeout import AlignedTimeout
from backend.runtime.protocols.at_least_once import AtLeastOnce
from backend.runtime.protocols.base import CheckpointProtocol, Gatekeeper, Keeper
from backend.runtime.protocols.capped import Capped, InFlight
from backend.runtime.protocols.concurrent import Concurrent
from backend.runtime.protocols.unaligned import Unaligned


@dataclass(frozen=True, slots=True)
class Cap:
    """What a capped checkpoint asks its task (CAP-1)."""

    cap_bytes: Callable[[], int]
    in_flight: Callable[[], InFlight]
    declines: Callable[[], bool]
    decided: Callable[[CapDecision], None]
    is_partial: Callable[[], bool]


def protocol_of(
    barrier: Barrier, open_channels: frozenset[int], *, clock_us: Callable[[Barrier], int], cap: Cap | None
) -> CheckpointProtocol:
    """The protocol of one checkpoint at one task; ``clock_us`` is what its timeout counts from (AT-1, AT-14)."""
    if barrier.is_capped:
        assert cap is not None
        return Capped(
            open_channels,
            cap_bytes=cap.cap_bytes(),
            in_flight=cap.in_flight,
            declines=cap.declines(),
            is_partial=cap.is_partial(),
            decided=cap.decided,
        )
    if barrier.alignment is Alignment.UNALIGNED:
        return Unaligned(open_channels)
    if barrier.is_timeoutable:
        return AlignedTimeout(barrier, open_channels, counts_from_us=clock_us(barrier))
    return Aligned(open_channels)


def keeper_of(
    channels: int,
    *,
    is_exactly_once: bool = True,
    is_concurrent: bool = False,
    counts_ended: bool = True,
    clock_us: Callable[[Barrier], int] = lambda barrier: barrier.triggered_at_us,
    cap: Cap | None = None,
) -> Keeper:
    """Who keeps the checkpoints of a task with so many channels; ``counts_ended`` as of AL-7."""
    if not is_exactly_once:
        return AtLeastOnce(channels, counts_ended=counts_ended)
    keeper = Concurrent if is_concurrent else Gatekeeper
    return keeper(
        channels,
        lambda barrier, opened: protocol_of(barrier, opened, clock_us=clock_us, cap=cap),
        counts_ended=counts_ended,
    )
