"""The checkpoint protocols that Flink does not have. The reference runtime has them."""

from __future__ import annotations

from enum import StrEnum


class Protocol(StrEnum):
    """A checkpoint protocol other than aligned and unaligned barriers. Flink has none of these."""

    CHANDY_LAMPORT = "chandy-lamport"
    """Markers keep their place among the data. A task takes its state at the first one, and logs the other channels."""
    CHANDY_LAMPORT_OVERTAKING = "chandy-lamport-overtaking"
    """Chandy-Lamport with markers that overtake queued data."""
    UNALIGNED_LAST_BARRIER = "unaligned-last-barrier"
    """Unaligned barriers. A task takes its state when the last of them has arrived."""

    @property
    def overtakes(self) -> bool:
        """Whether barriers or markers overtake queued data."""
        return self is not Protocol.CHANDY_LAMPORT
