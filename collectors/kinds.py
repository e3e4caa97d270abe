"""Finds the collector for a kind of target among the entry points of the group ``barrierscope.collectors``."""

from __future__ import annotations

from importlib import metadata

from backend.domain.errors import TargetUnavailableError
from backend.domain.target import COLLECTOR_GROUP
from collectors.base import CollectorKind


def find_kind(kind: str, *, url: str) -> CollectorKind:
    """Return the description of the collector for targets of ``kind``. ``url`` is used in error messages only.

    Raises:
        TargetUnavailableError: no installed package offers such a collector, several packages do, or the collector
            cannot be loaded.
    """
    points = metadata.entry_points(group=COLLECTOR_GROUP)
    # A package that is found on two paths offers the same object twice, so entry points are distinguished by their
    # object.
    points_by_value = {p.value: p for p in points if p.name == kind}
    if not points_by_value:
        installed = ", ".join(sorted(points.names)) or "none"
        reason = f"no collector for targets of kind {kind!r} is installed (installed kinds: {installed})"
        raise TargetUnavailableError(url=url, reason=reason)
    if len(points_by_value) > 1:
        offers = " and ".join(sorted(points_by_value))
        reason = f"several installed packages offer a collector for targets of kind {kind!r}: {offers}"
        raise TargetUnavailableError(url=url, reason=reason)
    (point,) = points_by_value.values()
    try:
        description = point.load()
    except Exception as error:
        # The module may come from another package, so its import may raise any exception.
        reason = f"the collector for targets of kind {kind!r} cannot be loaded ({type(error).__name__}: {error})"
        raise TargetUnavailableError(url=url, reason=reason) from error
    if not isinstance(description, CollectorKind):
        reason = f"the entry point {kind!r} of {COLLECTOR_GROUP} is not a CollectorKind"
        raise TargetUnavailableError(url=url, reason=reason)
    if description.kind != kind:
        reason = f"the entry point {kind!r} of {COLLECTOR_GROUP} is the collector for kind {description.kind!r}"
        raise TargetUnavailableError(url=url, reason=reason)
    return description
