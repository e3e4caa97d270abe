"""Loads the parts that are outside ``backend``, through the entry-point group ``barrierscope.roles``.

Such parts are the collector, the pages and ``diagnose``. Entry points keep ``backend`` from importing higher layers.
"""

from __future__ import annotations

from importlib import metadata
from typing import Any

from backend.cli.extras import missing_package
from backend.domain.errors import HostError

GROUP = "barrierscope.roles"


def load_role(name: str) -> Any:
    """Return the object that the entry point ``name`` provides.

    Raises:
        HostError: no installed package provides it, or it cannot be loaded.
    """
    points = metadata.entry_points(group=GROUP, name=name)
    if not points:
        raise HostError(f"the part {name!r} is not installed", fix="install Barrierscope again")
    try:
        return next(iter(points)).load()
    except (ImportError, AttributeError) as error:
        if isinstance(error, ModuleNotFoundError) and (problem := missing_package(error)) is not None:
            raise problem from error
        raise HostError(f"the part {name!r} cannot be loaded ({error})", fix="install Barrierscope again") from error
