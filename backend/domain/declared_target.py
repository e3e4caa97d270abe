"""Targets that a file or a discovery declares, and the sets in which they come into the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from backend.domain.connection import PLAIN, ConnectionOptions
from backend.domain.ids import TargetId, target_id
from backend.domain.target import TargetOrigin

INTERVAL_MIN_S: Final = 0.2
INTERVAL_MAX_S: Final = 3600.0
GRACE_S: Final = 120.0
"""A target that its set no longer contains is read this long before it ends. Its history stays."""


@dataclass(frozen=True, slots=True)
class DeclaredLink:
    """A link that is offered for every job of a target, with placeholders (``backend.domain.links``)."""

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class DeclaredTarget:
    """A target as it was declared. ``url`` is normalised, and may have a path.

    ``interval_s`` is the time between two polls in seconds; None means that of the collector. ``ui_url`` is the address
    of the engine's web UI in browsers; None means ``url``.
    """

    url: str
    name: str
    kind: str = "flink"
    labels: Mapping[str, str] = field(default_factory=dict)
    interval_s: float | None = None
    ui_url: str | None = None
    links: tuple[DeclaredLink, ...] = ()
    is_paused: bool = False
    connection: ConnectionOptions = PLAIN

    @property
    def id(self) -> TargetId:
        """The target's id, derived from its URL."""
        return target_id(url=self.url)


@dataclass(frozen=True, slots=True)
class DeclaredSet:
    """All targets of one source, such as a file. A set replaces the earlier set of its source, and nothing else.

    ``source`` names the source, and stays the same over restarts. ``origin`` decides which addresses the collectors may
    connect to: all for ``CONFIGURATION``. The earlier targets whose label ``namespace`` is in ``unread`` stay, because
    their namespace could not be read.
    """

    source: str
    targets: tuple[DeclaredTarget, ...]
    origin: TargetOrigin = TargetOrigin.CONFIGURATION
    unread: tuple[str, ...] = field(default=(), kw_only=True)
