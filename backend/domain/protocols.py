"""The checkpoint protocols that Flink does not have, and what every part of the product says of them.

The reference runtime has them. ``backend.runtime.protocols`` implements them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
        return TRAITS[self].overtakes


@dataclass(frozen=True, slots=True)
class ProtocolTraits:
    """The names of a protocol, and how it differs from the others."""

    words: str
    """The mode of a checkpoint, as the pages name it."""
    family: str
    """The name in front of *checkpoints* in a sentence."""
    meaning: str
    """What a reader of a verdict has to know of it."""
    overtakes: bool = True
    """Whether barriers or markers overtake queued data."""
    has_markers: bool = False
    """Whether markers are sent in place of barriers."""
    starts_at_last: bool = False
    """Whether a task takes its state only when all barriers or markers have arrived."""


_CHANDY_LAMPORT = "Chandy-Lamport"
TRAITS: Final[Mapping[Protocol, ProtocolTraits]] = {
    Protocol.CHANDY_LAMPORT: ProtocolTraits(
        "Chandy-Lamport",
        _CHANDY_LAMPORT,
        "Chandy-Lamport checkpoints: markers overtake nothing, so queues delay them",
        overtakes=False,
        has_markers=True,
    ),
    Protocol.CHANDY_LAMPORT_OVERTAKING: ProtocolTraits(
        "Chandy-Lamport, overtaking",
        _CHANDY_LAMPORT,
        "Chandy-Lamport checkpoints whose markers overtake queues",
        has_markers=True,
    ),
    Protocol.UNALIGNED_LAST_BARRIER: ProtocolTraits(
        "unaligned, last barrier",
        "last-barrier",
        "unaligned checkpoints: each subtask takes its state at its last barrier",
        starts_at_last=True,
    ),
}
