"""Finds the collector for a kind of target among the entry points of the group ``barrierscope.collectors``."""

from __future__ import annotations

from importlib import metadata
from typing import Final

from backend.domain.errors import TargetUnavailableError
from collectors.base import CollectorKind

GROUP: Final = "barrierscope.collectors"


def find_kind(kind: str, *, url: str) -> CollectorKind:
    """The description of the collector for targets of ``kind``; ``url`` is the target's, for the error.

    Raises:
        TargetUnavailableError: no installed package offers such a collector, or it cannot be loaded.

    """
    points = metadata.entry_points(group=GROUP)
    found = next((p for p in points if p.name == kind), None)
    if found is None:
        installed = ", ".join(sorted(p.name for p in points)) or "none"
        reason = f"no collector for targets of kind {kind!r} is installed (installed kinds: {installed})"
        raise TargetUnavailableError(url=url, reason=reason)
    try:
        description = found.load()
    except Exception as error:
        # The module belongs to another package: its import may raise anything.
        reason = f"the collector for targets of kind {kind!r} cannot be loaded ({type(error).__name__}: {error})"
        raise TargetUnavailableError(url=url, reason=reason) from error
    if not isinstance(description, CollectorKind):
        reason = f"the entry point {kind!r} of {GROUP} is not a CollectorKind"
        raise TargetUnavailableError(url=url, reason=reason)
    return description
