"""The parts that live outside ``backend``, found through the entry-point group ``barrierscope.roles``.

The collector, the pages and ``diagnose`` are such parts, so no import goes up.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from backend.domain.errors import HostError

GROUP = "barrierscope.roles"


def load_role(name: str) -> Any:
    """The object that the entry point ``name`` provides.

    Raises:
        HostError: no installed package provides it, or it cannot be loaded.

    """
    points = metadata.entry_points(group=GROUP, name=name)
    if not points:
        raise HostError(f"the part {name!r} is not installed", fix="install Barrierscope again")
    try:
        return next(iter(points)).load()
    except (ImportError, AttributeError) as error:
        raise HostError(f"the part {name!r} cannot be loaded ({error})", fix="install Barrierscope again") from error
